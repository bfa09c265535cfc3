"""The pooled program: all columns at once, one minimiser after another, certified like any other run."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingClassifier, SolverOptions, make_problem, solve
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.pooled import newton
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.interior_point import InteriorPoint
from fastadmm.pooled.method import MINIMISERS, ways_of
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.ending import pooled_hint
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver
from sklearn.linear_model import Lasso

from resumed import assert_resumed_is_the_same

KINDS = ("dense", "sparse", "mixed")


def problem(kind="dense", loss="logistic", n=400, lam=1e-2, **more):
    rng = np.random.default_rng(11)
    blocks: list[Any] = []
    for m, d in enumerate((9, 14, 7)):
        if kind == "dense" or (kind == "mixed" and m != 1):
            blocks.append(rng.normal(size=(n, d)) + 0.5)
        else:
            blocks.append(sp.random_array((n, d), density=0.3, rng=rng, format="csr"))
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) / 3.0 + 0.5 * rng.normal(size=n)
    y = z
    if loss in ("logistic", "hinge", "squared_hinge"):
        y = (z > 0.3) * 1.0
    elif loss == "multinomial":
        y = np.digitize(z, [-0.5, 0.7]) * 1.0
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z, -3.0, 2.0))) * 1.0
    return make_problem(blocks, y, loss=loss, lam=lam, **more)


CASES = [
    ("logistic", {}),
    ("squared", {}),
    ("poisson", {"fit_intercept": False}),
    ("multinomial", {}),
    ("hinge", {}),
    ("quantile", {"regularizer": "l1"}),
    ("logistic", {"regularizer": "l1"}),
    ("huber", {"regularizer": "elastic_net", "constraint": "nonnegative"}),
    ("squared", {"constraint": "box:-0.2,0.3"}),
    ("multinomial", {"regularizer": "l1"}),
]


@pytest.mark.representatives(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loss", "more"), CASES)
def test_it_ends_where_parties_do(kind, loss, more):
    given = problem(kind, loss, **more)
    found = solve(given, SolverOptions(scheme="pooled"))
    apart = solve(given, SolverOptions(scheme="auto"))
    assert found.certified
    assert found.program == "pooled: all columns are in this process"
    assert apart.program.startswith("parties: ")
    assert found.objective <= apart.objective * (1.0 + 1e-6)
    assert apart.objective <= found.objective * (1.0 + 1e-6)


def test_the_lasso_is_that_of_scikit_learn_and_slow_parties_say_so():
    given = problem(loss="squared", lam=5e-2, regularizer="l1")
    X = np.hstack([block.matrix for block in given.blocks])
    lasso = Lasso(alpha=5e-2, tol=1e-14, max_iter=100_000).fit(X, given.y)
    found = solve(given, SolverOptions(scheme="pooled", gap=1e-12))
    x = np.concatenate(found.weights)
    np.testing.assert_allclose(x, lasso.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(x == 0.0, lasso.coef_ == 0.0)
    # A much slower run of parties says so.
    given = problem()
    with Engine(1) as engine:
        assert pooled_hint(given, engine, 0.5) == ""  # not worth a line
        assert "scheme 'pooled'" in pooled_hint(given, engine, 60.0)
        assert pooled_hint(problem(regularizer="log_sum"), engine, 60.0) == ""


@pytest.mark.representatives(20)
@pytest.mark.parametrize("way", MINIMISERS, ids=lambda way: way.name)
@pytest.mark.parametrize(("loss", "more"), CASES)
def test_every_minimiser_finds_the_optimum_alone(way, loss, more):
    given = problem("mixed", loss, **more)
    with Engine(1) as engine:
        goal = Goal(given, engine)
        if not way.takes(goal):
            assert len(ways_of(goal)) > 0
            return
        point = goal.start()
        found = [point := way.minimise(goal, point, 1e-7, math.inf) or point for _ in range(4)][-1]
        value = goal.at(found.weights, found.intercept).value / given.total_weight
        first = way is ways_of(goal)[0]
    best = solve(given, SolverOptions(scheme="pooled", gap=1e-9))
    assert best.objective * (1.0 - 1e-9) <= value
    if first or found.gap <= 1e-7:
        assert value <= best.objective * (1.0 + 1e-6)


@pytest.mark.parametrize(("loss", "more"), CASES)
def test_threads_change_no_bit(loss, more):
    given = problem("mixed", loss, n=3000, **more)
    one, two = (solve(given, SolverOptions(scheme="pooled", n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("loss", "more"), CASES)
def test_a_run_goes_on_to_the_same_bits(loss, more, monkeypatch):
    monkeypatch.setattr(newton, "_ENTRIES_OF_ROUND", 1.0)  # rounds end soon
    monkeypatch.setattr(newton, "_FEWEST_OF_CLASSES", 1.0)
    assert_resumed_is_the_same(
        problem("mixed", loss, **more), SolverOptions(scheme="pooled", gap=0.0, max_rounds=4), 2
    )


def test_where_it_is_chosen_and_where_not():
    X, y = np.random.default_rng(0).normal(size=(80, 6)), np.arange(80) % 2
    pooled, apart = (
        ADMMSharingClassifier(parties=parties, alpha=0.1).fit(X, y) for parties in (None, [3, 3])
    )
    assert pooled.program_ == "pooled: all columns are in this process"
    assert apart.program_ == "parties: subspace, as between organisations"
    np.testing.assert_allclose(pooled.coef_, apart.coef_, atol=1e-3)
    for more in ({"directions": "one"}, {"history": 8}, {"scheme": "sharing"}):
        own = Solver(make_problem([X], y * 1.0), SolverOptions(**more))
        assert own.program().startswith("parties: ")
    # Whatever is drawn is of a party's message: a single party's, too.
    from fastadmm import Privacy
    from fastadmm.privacy.message import private_solver

    given = make_problem([np.random.default_rng(0).normal(size=(90, 4))], np.arange(90) % 2.0)
    settings = Privacy(mode="message", epsilon=1.0, sampler="insecure_test", seed=1)
    for scheme in ("auto", "pooled"):
        try:
            solver = private_solver(given, SolverOptions(scheme=scheme), settings)
        except ConfigError:
            continue
        assert solver.name != "pooled"
        assert solver.program().startswith("parties: ")
    # What pooled is not for.
    given = problem()
    rule = EarlyStopping(rows=given.test or _rows_of(given), patience=3)
    for options, more, words in (
        (SolverOptions(scheme="pooled"), {"early": rule}, "early stopping"),
        (SolverOptions(scheme="pooled"), {"driver": _Elsewhere()}, "in others"),
    ):
        with pytest.raises(ConfigError, match=words):
            Solver(given, options, **more)
    with pytest.raises(ConfigError, match="goes with the scheme 'subspace'"):
        SolverOptions(scheme="pooled", secrecy="sums")
    with pytest.raises(ConfigError, match="early stopping"):
        Solver(problem(loss="welsch"), SolverOptions(scheme="pooled"), early=rule)


@pytest.mark.parametrize(
    "more",
    [
        {"loss": "welsch"},
        {"loss": "welsch", "regularizer": "l1", "constraint": "nonnegative"},
        {"loss": "welsch", "regularizer": "log_sum"},
        {"loss": "hinge", "constraint": "ball:0.5"},
        {"regularizer": "group_lasso"},
        {"loss": "squared", "constraint": "simplex:1"},
    ],
)
def test_what_no_minimiser_takes_is_done_as_among_parties(more):
    given = problem(**more)
    pooled, parties = (solve(given, SolverOptions(scheme=scheme)) for scheme in ("pooled", "auto"))
    assert pooled.exchanges == 0
    assert pooled.status == (Status.CONVERGED if given.convex else Status.STATIONARY)
    assert pooled.program == "pooled: all columns are in this process"
    assert parties.program.startswith("parties: ")
    assert (pooled.objective, pooled.stationarity) == (parties.objective, parties.stationarity)


class _Elsewhere:
    local = False


def _rows_of(given):
    from fastadmm.problem.problem import TestSet

    return TestSet(given.blocks, given.y, given.weight, given.offset)


def test_unusual_problems_end_too():
    found = solve(problem(constraint="box:0.1,0.3"), SolverOptions(scheme="pooled", max_rounds=3))
    assert all(((x >= 0.1) & (x <= 0.3)).all() for x in found.weights)
    assert found.certified
    hopeless = solve(problem(constraint="box:0.1,0.3"), SolverOptions(scheme="pooled", gap=0.0, max_rounds=1))
    assert min(x.min() for x in hopeless.weights) >= 0.1
    # Nothing in the rows tells two classes apart: their Hessian is singular.
    y = np.arange(12) % 4.0
    X = np.zeros((12, 3))
    X[0, 0] = 1e3
    given = make_problem([X], y, loss="multinomial", regularizer="none", lam=0.03)
    found = solve(given, SolverOptions(scheme="pooled", max_rounds=20))
    assert np.isfinite(found.objective)
    # Rows that are sampled first.
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20_000, 6))
    y = (X @ rng.normal(size=6) + rng.logistic(size=20_000) > 0.0) * 1.0
    found = solve(make_problem([X], y, lam=1e-3))
    assert found.certified
    assert len(found.history) == 1


@pytest.mark.parametrize("loss", ["huber", "smoothed_hinge", "squared_hinge"])
def test_clamped_slopes_without_kinks_have_a_last_resort(loss):
    """Piecewise parabolas, on which proximal Newton steps may come to no end."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 8)) * 10.0 ** rng.uniform(-2.0, 2.0, size=8)
    y = X @ rng.normal(size=8) if loss == "huber" else np.arange(30) % 2.0
    given = make_problem([X], y, loss=loss, regularizer="none", constraint="nonnegative")
    with Engine(1) as engine:
        goal = Goal(given, engine)
        point = InteriorPoint().minimise(goal, goal.start(), 1e-8, math.inf)
    assert point.gap <= 1e-8
    assert solve(given, SolverOptions(scheme="pooled", gap=1e-6, max_rounds=20)).proof.settled


N, WIDTHS = 2500, (40, 30, 2)


def matrices(ones=False):
    rng = np.random.default_rng(5)
    found: list[Any] = [sp.random_array((N, d), density=0.06, rng=rng, format="csr") for d in WIDTHS[:2]]
    if ones:
        found = [(own != 0.0).astype(np.float64) for own in found]
    return [*found, rng.normal(size=(N, WIDTHS[2]))]


@pytest.mark.parametrize("ones", [False, True])
def test_side_by_side_are_the_columns_of_all(ones):
    given = matrices(ones)
    blocks = [as_block(matrix) for matrix in given]
    with Engine(2) as engine:
        found = side_by_side(blocks, engine)
        whole = np.hstack([m.toarray() if sp.issparse(m) else m for m in given])
        np.testing.assert_array_equal(found.to_scipy().toarray(), whole)
        assert all(
            (np.diff(own) > 0).all() for own in np.split(found.indices.astype(int), found.indptr[1:-1])
        )
        assert mean_row_square(blocks, engine) == pytest.approx((np.diff(found.indptr) ** 2.0).mean())
        assert side_by_side(blocks[:1], engine) is blocks[0]  # no copy of a single one
        assert not found.all_ones  # of a dense block nobody has looked
        assert side_by_side(blocks[:2], engine).all_ones == ones
    assert can_stand_side_by_side(blocks)


@pytest.mark.parametrize("widths", [(20,), (3, 1, 12, 2)])
def test_dense_blocks_are_one_matrix(widths):
    rng = np.random.default_rng(3)
    blocks = [as_block(rng.normal(size=(N, d))) for d in widths]
    whole = np.hstack([block.matrix for block in blocks])
    numbers, w, v = np.arange(0, N, 7), rng.random(N), rng.normal(size=N)
    with Engine(2) as engine:
        found = side_by_side(blocks, engine)
        assert isinstance(found, DenseBlock)
        assert (found is blocks[0]) == (len(widths) == 1)
        np.testing.assert_array_equal(found.matrix, whole)
        for own in (found, CSRBlock(sp.csr_array(whole))):
            some = own.some_rows(numbers).columns(np.arange(sum(widths)), engine)
            np.testing.assert_array_equal(some, whole[numbers])
            np.testing.assert_allclose(own.gram(engine, w), whole.T @ (w[:, None] * whole), rtol=1e-12)
        np.testing.assert_allclose(found.transposed_product(v, engine), whole.T @ v, rtol=1e-11, atol=1e-11)


def test_files_are_not_read_side_by_side(tmp_path):
    class Elsewhere(CSRBlock):
        in_memory = False

    block = Elsewhere(matrices()[0])
    assert not can_stand_side_by_side([block])
