"""Proximal Newton sharing: rounds, limits of what a party keeps, and promises that are kept."""

import itertools

import numpy as np
import pytest
from fastadmm.coordinator.proximal import coordinator
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale


def cancer(parties, **options):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    bounds = [X.shape[1] * k // parties for k in range(parties + 1)]
    return make_problem([X[:, a:b] for a, b in itertools.pairwise(bounds)], y * 1.0, **options)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("parties", [2, 30])
@pytest.mark.parametrize("regularizer", ["l1", "elastic_net", "group_lasso"])
def test_few_rounds_certify(parties, regularizer):
    problem = cancer(parties, lam=1e-3, regularizer=regularizer)
    solver = Solver(problem, SolverOptions(gap=1e-4, n_threads=1))
    for _ in range(30):  # takes 4 to 20
        if solver.round().gap <= 1e-4:
            break
    assert solver.last_record.gap <= 1e-4


def test_history_and_zeros(monkeypatch):
    problem = cancer(5, lam=1e-2, regularizer="l1")
    weights = np.concatenate(solve(problem, SolverOptions(gap=1e-8, n_threads=1)).weights)
    assert 0 < np.count_nonzero(weights) < 15
    assert np.abs(weights[weights != 0.0]).min() > 1e-6
    # History limits what a party keeps.
    monkeypatch.setattr(coordinator, "directions_of_few_numbers", lambda *_: 0)  # messages are long
    problem = cancer(2, lam=1e-3, regularizer="l1")
    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=200, n_threads=1)).objective
    solver = Solver(problem, SolverOptions(history=6, n_threads=1))
    records = [solver.round() for _ in range(60)]
    assert max(len(party.directions) for party in solver.parties) <= 6
    assert len(solver.coordinator.shared) == sum(len(party.directions) for party in solver.parties)
    for m, party in enumerate(solver.parties):
        mine = solver.coordinator.shared.of(m)
        sent = np.array([party.block.product(d, solver.engine) for d in party.directions])
        assert np.allclose(sent, solver.coordinator.shared.messages[mine], rtol=0, atol=1e-10)
        products = party.directions @ party.directions.T
        assert np.allclose(
            products, solver.coordinator.shared.products[np.ix_(mine, mine)], rtol=0, atol=1e-12
        )
    values = [record.objective for record in records]
    assert all(b <= a * (1.0 + 1e-12) for a, b in itertools.pairwise(values))
    assert values[-1] <= best * (1.0 + 1e-8)  # `best` is proved to 1e-9
    assert all(r.objective - r.gap_absolute <= best * (1.0 + 1e-12) for r in records)


@pytest.mark.parametrize(("parties", "name"), [(300, "proximal"), (301, "sharing")])
def test_more_than_300_parties_share(parties, name):
    rng = np.random.default_rng(0)
    blocks = list(rng.normal(size=(parties, 20, 1)))
    problem = make_problem(blocks, rng.normal(size=20), loss="squared", lam=0.1, regularizer="l1")
    assert Solver(problem, SolverOptions(n_threads=1)).method.name == name


@pytest.mark.representatives(4)
@pytest.mark.parametrize("regularizer", ["l1", "group_lasso"])
@pytest.mark.parametrize("seed", [2, 6, 11, 16, 18])
def test_a_weight_just_beside_its_kink_holds_nothing_up(regularizer, seed):
    # The parabolas that keep steps short grow as weights shrink: added for ever, they made steps of nothing.
    rng = np.random.default_rng(seed)
    X = np.linalg.qr(rng.standard_normal((13, 2)))[0] * np.sqrt(13)
    y, lam = X @ rng.standard_normal(2) + 0.3 * rng.standard_normal(13), 0.05
    options = SolverOptions(gap=1e-10, max_rounds=60, n_threads=1)
    first = solve(make_problem([X[:, :1]], y, loss="huber", lam=lam, regularizer="l1"), options)
    residual = X[:, :1] @ first.weights[0] + first.intercept - y
    # The second column is scaled so that its weight has left zero by a millionth of lambda.
    X[:, 1] *= lam * (1.0 + 1e-6) / abs(float(X[:, 1] @ np.clip(residual, -1.0, 1.0)) / 13)
    problem = make_problem([X[:, :1], X[:, 1:]], y, loss="huber", lam=lam, regularizer=regularizer)
    result = solve(problem, options)
    assert result.status is Status.CONVERGED
    assert 0.0 < abs(result.weights[1][0]) < 1e-3  # beside its kink: the other weight is about one
    assert len(result.history) <= 10
