"""Working sets of columns for l1: the same optimum as over all columns, for every kind of block."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import as_block
from fastadmm.blocks.columns import some_columns
from fastadmm.engine.engine import Engine

N = 12_000


def problem(kind, loss="squared", regularizer="l1", **more):
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
    monkeypatch.setattr("fastadmm.pooled.cost.first_set", lambda goal: 10)
    given = problem(kind, loss, **more)
    found, known = (
        solve(given, SolverOptions(scheme="pooled", gap=1e-8)),
        solve(given, SolverOptions(gap=1e-8, scheme="proximal")),
    )
    assert found.certified
    assert len(found.history) <= 3
    assert found.objective == pytest.approx(known.objective, rel=3e-8)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
def test_bits_do_not_depend_on_threads(kind):
    alone, several = (
        solve(problem(kind, "logistic"), SolverOptions(scheme="pooled", n_threads=k)) for k in (1, 3)
    )
    for x, y in zip(alone.weights, several.weights, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def sizes(monkeypatch):
    """Of the sets, of which the first has 10 columns."""
    found = []

    def counting(blocks, chosen, engine):
        found.append(len(chosen))
        return some_columns(blocks, chosen, engine)

    monkeypatch.setattr("fastadmm.pooled.cost.first_set", lambda goal: 10)
    monkeypatch.setattr("fastadmm.pooled.working_sets.some_columns", counting)
    return found


def test_sets_of_columns_that_are_alike_need_not_double_many_times(sizes):
    """Of 160 columns 90 or so have weights: from 10 on, doubling alone would take four sets to get there."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 160))
    X[:, 1:] += 0.7 * X[:, :-1]
    y = X @ (rng.normal(size=160) * (rng.random(160) < 0.5)) + rng.normal(size=N)
    found = solve(
        make_problem([as_block(X)], y, loss="squared", regularizer="l1", lam=0.05),
        SolverOptions(scheme="pooled"),
    )
    assert found.certified
    assert 60 <= np.count_nonzero(found.weights[0]) <= 120
    assert len(sizes) <= 3
    assert sizes[1] >= 60


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
