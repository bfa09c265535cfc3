"""Working sets of columns for l1: the same optimum as over all columns, for every kind of block."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import as_block
from fastadmm.blocks.some_columns import some_columns
from fastadmm.coordinator.proximal.stacked import StackedProximalMethod
from fastadmm.coordinator.proximal.working_sets import WorkingSets
from fastadmm.engine.engine import Engine
from fastadmm.solver.solver import Solver

from resumed import assert_resumed_is_the_same

N = 12_000


def problem(kind: str, loss: str = "squared", regularizer: str = "l1", **more):
    rng = np.random.default_rng(7)
    dense = [rng.normal(size=(N, 40)), rng.normal(size=(N, 30))]
    sparse = [sp.random(N, 90, 0.05, "csr", random_state=k) for k in (1, 2)]
    blocks = {"dense": dense, "sparse": sparse, "mixed": [dense[0], sparse[0], dense[1]]}[kind]
    z = sum(block[:, :9] @ rng.normal(size=9) for block in blocks)
    z = z / z.std() + 0.3 * rng.normal(size=N)
    y = z if loss == "squared" else (z > 0.0) * 1.0
    given = {"loss": loss, "regularizer": regularizer, "lam": 2e-3, **more}
    return make_problem([as_block(block) for block in blocks], y, **given)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
@pytest.mark.parametrize("more", [{}, {"constraint": "nonnegative"}, {"regularizer": "elastic_net"}])
def test_one_round_over_few_columns_ends_where_all_columns_do(kind, loss, more, monkeypatch):
    monkeypatch.setattr("fastadmm.coordinator.proximal.working_sets.of_first_set", lambda *shape: 10)
    given = problem(kind, loss, **more)
    assert isinstance(Solver(given, SolverOptions(gap=1e-8)).method, StackedProximalMethod)
    found, known = solve(given, SolverOptions(gap=1e-8)), solve(given, SolverOptions(gap=1e-8, history=20))
    assert found.certified
    assert len(found.history) <= 3
    assert found.objective == pytest.approx(known.objective, rel=3e-8)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
def test_bits_do_not_depend_on_threads(kind):
    alone, several = (solve(problem(kind, "logistic"), SolverOptions(n_threads=k)) for k in (1, 3))
    for x, y in zip(alone.weights, several.weights, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
def test_a_run_goes_on_to_the_same_bits(kind):
    assert_resumed_is_the_same(problem(kind, "logistic"), SolverOptions(gap=0.0), 1)


def test_a_loss_without_curvature_at_the_start_is_no_reason_for_directions():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 24))
    y = (X[:, :4].sum(axis=1) > 0.0) * 1.0
    given = make_problem(
        [as_block(X[:, :12]), as_block(X[:, 12:])],
        y,
        loss="smoothed_hinge",
        regularizer="l1",
        lam=1e-2,
        fit_intercept=False,
    )
    solver = Solver(given, SolverOptions(gap=1e-6))
    while solver.round().gap > 1e-6:
        assert solver.n_rounds < 4
    assert solver.method.whole


def test_where_sets_become_large_coordinate_descent_follows(monkeypatch):
    monkeypatch.setattr(WorkingSets, "_pays", lambda self, rows, more: rows.shape[1] < 60)
    monkeypatch.setattr(
        "fastadmm.coordinator.proximal.stacked.goes_by_sparse_columns", lambda *given: "coordinates"
    )
    given = problem("sparse", "logistic", lam=1e-4)
    known = solve(given, SolverOptions(gap=1e-8, history=20))
    found = solve(given, SolverOptions(gap=1e-8))
    assert found.objective == pytest.approx(known.objective, rel=3e-8)


@pytest.mark.parametrize(("with_weights", "chosen"), [(40, 40), (60, 70)])
def test_a_set_of_nearly_all_columns_has_all(with_weights, chosen):
    method = Solver(problem("dense")).method
    method.prepare_parties()
    weights = 1.0 * (np.arange(70) < with_weights)
    assert len(method._sets._chosen(np.zeros(70), weights, 0.0, True)) == chosen
    assert len(method._sets._chosen(np.zeros(70), weights, 0.0, False)) == with_weights


@pytest.fixture
def sizes(monkeypatch):
    """Of the sets, of which the first has 10 columns."""
    found = []

    def counting(blocks, chosen, engine):
        found.append(len(chosen))
        return some_columns(blocks, chosen, engine)

    monkeypatch.setattr("fastadmm.coordinator.proximal.working_sets.of_first_set", lambda *shape: 10)
    monkeypatch.setattr("fastadmm.coordinator.proximal.working_sets.some_columns", counting)
    return found


def test_sets_of_columns_that_are_alike_need_not_double_many_times(sizes):
    """Of 160 columns 90 or so have weights: from 10 on, doubling alone would take four sets to get there."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 160))
    X[:, 1:] += 0.7 * X[:, :-1]
    y = X @ (rng.normal(size=160) * (rng.random(160) < 0.5)) + rng.normal(size=N)
    found = solve(make_problem([as_block(X)], y, loss="squared", regularizer="l1", lam=0.05))
    assert found.certified
    assert 60 <= np.count_nonzero(found.weights[0]) <= 120
    assert len(sizes) <= 3
    assert sizes[1] >= 60


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
def test_few_columns_take_a_round_or_two(loss):
    """Whether or not all of them pull at zero, and are in the first set."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(3, 14))
        X = rng.normal(size=(1000, d))
        X[:, 1:] += rng.uniform(0.0, 0.9) * X[:, :-1]
        z = X @ rng.normal(size=d)
        y = z + rng.normal(size=1000) if loss in ("squared", "huber") else (z > 0.0) * 1.0
        lam = float(rng.uniform(1e-3, 0.2))
        found = solve(make_problem([as_block(X)], y, loss=loss, regularizer="l1", lam=lam))
        assert found.certified
        assert len(found.history) <= 2, seed


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_some_columns_are_those_of_the_blocks(kind, share):
    blocks, engine = problem(kind).blocks, Engine(1)
    rng = np.random.default_rng(0)
    chosen = np.flatnonzero(rng.random(sum(block.shape[1] for block in blocks)) < share)
    rows, numbers = some_columns(blocks, chosen, engine)
    whole = np.hstack([block.columns(np.arange(block.shape[1]), engine) for block in blocks])
    np.testing.assert_array_equal(np.sort(numbers), chosen)
    for k, number in enumerate(numbers):
        np.testing.assert_array_equal(rows.product(np.eye(len(numbers))[k], engine), whole[:, number])
