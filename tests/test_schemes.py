"""The paper's schemes step by step against their equations, and what happens where they diverge."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions

import naive

ROUNDS = 20


def case(loss, *, parties, intercept, weighted, seed=0, n=24):
    """A small problem, dense and sparse blocks in turn, as arguments of both implementations."""
    rng = np.random.default_rng(seed)
    blocks = []
    for m in range(parties):
        block = rng.normal(size=(n, 3 + m)) / 2
        blocks.append(sp.csr_array(np.where(np.abs(block) < 0.3, 0.0, block)) if m % 2 else block)
    z = sum(naive.dense(b) @ rng.normal(size=b.shape[1]) for b in blocks) + 0.5
    y = z + rng.normal(size=n) if loss == "squared" else (z + rng.normal(size=n) > 0).astype(float)
    s = rng.uniform(0.2, 3.0, n) if weighted else None
    if weighted:
        s /= s.mean()  # as the problem scales them
    offset = rng.normal(size=n) if weighted else None
    return blocks, y, s, offset, intercept


@pytest.mark.representatives(4)
@pytest.mark.parametrize(("intercept", "weighted"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize(
    ("scheme", "parties"), [("jacobi", 2), ("gauss-seidel", 3), ("sharing", 3), ("jacobi", 1)]
)
def test_every_round_solves_the_printed_equations(scheme, parties, loss, intercept, weighted):
    blocks, y, s, offset, intercept = case(loss, parties=parties, intercept=intercept, weighted=weighted)
    lam, r = 0.01, 0.2
    problem = make_problem(
        blocks, y, loss=loss, lam=lam, fit_intercept=intercept, sample_weight=s, offset=offset
    )
    solver = Solver(problem, SolverOptions(scheme=scheme, penalty=r, acceleration="none", n_threads=1))
    twin = naive.NaiveADMM(
        scheme, blocks, y, loss=loss, lam=lam, r=r, s=s, offset=offset, fit_intercept=intercept
    )
    best = 0.0  # neither loss goes below zero
    for _ in range(ROUNDS):
        record = solver.round()
        state = twin.round()
        fast = solver.coordinator.last
        for a, b in zip(solver.party_weights(), state.x):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
        np.testing.assert_allclose(fast.messages, state.messages, rtol=0, atol=1e-9)
        np.testing.assert_allclose(fast.z, state.z, rtol=0, atol=1e-9)
        np.testing.assert_allclose(fast.u, state.u, rtol=0, atol=1e-9)
        assert solver.coordinator.shift == pytest.approx(state.b, abs=1e-9)
        # Lemma 2: u is the loss gradient at z
        gradient = naive.loss_gradient(loss, twin.offset + state.b + state.z, twin.y, twin.s)
        np.testing.assert_allclose(fast.u, gradient, rtol=0, atol=1e-9)
        # and the record describes exactly this state
        total = np.sum(state.messages, axis=0)
        assert record.primal_residual == pytest.approx(np.sqrt(np.mean((total - state.z) ** 2)), abs=1e-9)
        assert record.augmented_lagrangian * twin.s.sum() == pytest.approx(twin.lagrangian(state), rel=1e-9)
        assert record.lyapunov == pytest.approx(twin.lyapunov(state), rel=1e-6, abs=1e-12)
        b = naive.best_intercept(loss, twin.offset + total, twin.y, twin.s) if intercept else 0.0
        value, gap = twin.certificate(state.x, b)
        best = max(best, value - gap)
        assert record.objective == pytest.approx(value, rel=1e-10)
        assert record.gap_absolute == pytest.approx(value - best, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("scheme", ["jacobi", "gauss-seidel", "sharing"])
def test_dual_residual_is_the_failure_of_each_partys_optimality(scheme):
    blocks, y, *_ = case("logistic", parties=3, intercept=False, weighted=False)
    problem = make_problem(blocks, y, lam=0.05, fit_intercept=False)
    solver = Solver(problem, SolverOptions(scheme=scheme, penalty=0.1, acceleration="none"))
    previous = None
    for _ in range(5):
        record = solver.round()
        state = solver.coordinator.last
        if previous is not None:
            # a party's solve gives ridge x = -D' (its own smooth term); optimality wants ridge x = -D' u
            norms = []
            old_total, tau_r = previous.total(), solver.coordinator.order.tau(3) * 0.1
            seen = old_total.copy()
            for m, block in enumerate(blocks):
                target = previous.messages[m] - (seen - previous.z) * 0.1 / tau_r - previous.u / tau_r
                s = state.u - tau_r * (state.messages[m] - target)
                D = naive.dense(block)
                failure = problem.regularization * solver.parties[m].weights + D.T @ state.u
                np.testing.assert_allclose(D.T @ s, failure, atol=1e-9)
                norms.append(float(s @ s))
                if scheme == "gauss-seidel":
                    seen += state.messages[m] - previous.messages[m]
            assert record.dual_residual == pytest.approx(np.sqrt(sum(norms) / (3 * len(y))), rel=1e-6)
        previous = solver.coordinator.last
