"""Logistic loss with targets outside [0, 1], as unbiased targets of randomised labels are."""

from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem
from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.problem.losses import get_loss
from fastadmm.solver.solver import solve
from scipy.optimize import brentq, minimize
from scipy.special import expit


def soft_problem(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    y = (X[:, 0] + rng.standard_normal(n) > 0).astype(float)
    p = 1.0 / (1.0 + np.exp(1.0))
    noisy = np.where(rng.random(n) < p, 1.0 - y, y)
    return X, 0.5 * (1.0 + (2.0 * noisy - 1.0) / (1.0 - 2.0 * p))


def test_targets_of_any_size():
    rng = np.random.default_rng(1)
    n = 2000
    v, q = rng.normal(0, 5, n), rng.uniform(-4, 5, n)
    weight = rng.uniform(0.1, 3, n)
    rows = SimpleNamespace(y=q, weight=weight)
    for penalty in (0.01, 1.0, 30.0):
        z, gradient = np.zeros(n), np.empty(n)
        with Engine(1) as engine:
            get_loss("logistic").prox(v, np.zeros(n), rows, penalty, z, gradient, engine)
        assert np.abs(weight * (expit(z) - q) + penalty * (z - v)).max() < 1e-9 * (1 + penalty)
        for i in range(0, n, 400):
            bound = weight[i] / penalty * 6
            root = brentq(
                lambda t, i=i, r=penalty: weight[i] * (expit(t) - q[i]) + r * (t - v[i]),
                v[i] - bound,
                v[i] + bound,
            )
            assert z[i] == pytest.approx(root, abs=1e-8)
    # Conjugate is fenchels for targets outside.
    rng = np.random.default_rng(2)
    q, z = rng.uniform(-2, 3, 50), rng.normal(0, 2, 50)
    loss, one = get_loss("logistic"), np.ones(50)
    with Engine(1) as engine:
        u = np.empty(50)
        value = loss.evaluate(z, q, one, u, engine)
        assert value + loss.conjugate(u, q, one, engine) == pytest.approx(float(u @ z), rel=1e-12)
        assert loss.conjugate(1.0 - q + 1e-6, q, one, engine) == np.inf


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
@pytest.mark.parametrize("lam", [1e-2, 1e-4])
def test_joint_model_is_the_optimum(scheme, lam):
    X, q = soft_problem()
    problem = make_problem([X[:, :2], X[:, 2:]], q, lam=lam, soft_targets=True)
    result = solve(problem, SolverOptions(scheme=scheme, gap=1e-8, max_rounds=3000))

    def objective(w):
        z = X @ w[:6] + w[6]
        gradient = np.append(X.T @ (expit(z) - q) / len(q) + lam * w[:6], np.mean(expit(z) - q))
        return np.mean(np.logaddexp(0, z) - q * z) + 0.5 * lam * w[:6] @ w[:6], gradient

    best = minimize(objective, np.zeros(7), jac=True, tol=1e-13).fun
    assert result.status == "converged"
    assert result.history[-1].objective == pytest.approx(best, abs=3e-8)


def test_negative_optima_and_what_is_asked_for():
    # Targets of 2 and -1 that the features explain perfectly: the loss itself is below zero.
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 4))
    q = np.where(X[:, 0] > 0, 1.6, -0.6)
    problem = make_problem([X[:, :1], X[:, 1:]], q, lam=1e-2, soft_targets=True)
    result = solve(problem, SolverOptions(gap=1e-7))
    assert result.history[-1].objective < 0
    assert result.status == "converged"
    assert 0 <= result.gap <= 1e-7
    # Soft targets are asked for.
    X, q = soft_problem()
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        make_problem([X], q)
    with pytest.raises(InputError, match=r"mean .* of the soft targets"):
        make_problem([X], np.full(len(q), 1.2), soft_targets=True)
