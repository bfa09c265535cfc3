"""One order of addition: leaves from the data alone, added by halves, and nothing else adds up rows."""

from itertools import pairwise
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import add_by_halves, halved, leaves_for_sums, leaves_of, node_range, sum_leaves
from fastadmm.kernels.vectors import total_and_size
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st


def slow_sum(values):
    """The sum by halves, as the text says it."""
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return slow_sum(values[:middle]) + slow_sum(values[middle:])


@given(n=st.integers(1, 10**6), level=st.integers(0, 6))
@settings(max_examples=50, deadline=None)
def test_leaves_of_a_node_are_leaves_of_the_whole(n, level):
    level = min(level, n.bit_length() - 1)
    whole = halved(n, 1 << level)
    assert whole[0][0] == 0
    assert whole[-1][1] == n
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise([*whole, (n, n)]))
    for index in range(1 << level):
        assert node_range(n, level, index) == whole[index]
    for up in range(level):
        start, stop = node_range(n, up, (1 << up) - 1)
        inside = [(a - start, b - start) for a, b in whole if start <= a]
        assert list(halved(stop - start, 1 << (level - up))) == inside


def test_numbers_of_leaves():
    assert [leaves_of(n) for n in (1, 4095, 8191, 8192, 32561, 10**5, 10**6)] == [1, 1, 1, 2, 4, 16, 64]
    assert leaves_of(10**9) == 4096  # 256 cores, sixteen times each
    assert leaves_of(2000, entries=2000 * 500.0) == 2
    assert leaves_of(3, entries=1e9) == 2
    # Sums of a million numbers from a hundred million entries.
    assert leaves_of(10**6, 1e8, 1e8 / 1e6) == 64
    assert leaves_of(10**6, 1e8, 0.01) == 16
    assert leaves_of(10**6, 1e8, 0.01, fewest=4) == 4
    # Wide sums have few leaves.
    wide = {
        (20_000, 200_000): 1,
        (100_000, 200_000): 2,
        (10**6, 200_000): 16,
        (10**6, 10**8): 8,
        (20_000, 300): 4,
    }
    for (n, d), leaves in wide.items():
        assert leaves_of(n, *leaves_for_sums(n, 30.0 * n if n > 20_000 else 60.0 * n, d)) == leaves


@pytest.mark.parametrize("n_leaves", [1, 2, 8, 64])
def test_three_ways_to_add_leaves_are_one(n_leaves):
    values = list(np.random.default_rng(0).normal(size=n_leaves) * 10.0 ** np.arange(n_leaves))
    ranges = halved(n_leaves, n_leaves)
    slow = slow_sum(values)
    assert add_by_halves(values) == slow
    assert sum_leaves(lambda rows: values[rows[0]], ranges) == slow
    pairs = [(v, np.array([v, -v])) for v in values]
    number, array = sum_leaves(lambda rows: pairs[rows[0]], ranges)
    assert number == slow
    assert list(array) == [slow, -slow]


def test_a_sum_of_no_numbers_over_many_leaves(monkeypatch):
    """A run's first span is empty; without the compiler no leaves are few."""
    monkeypatch.setattr(Engine, "few_leaves", 0)
    nothing = numba.njit(lambda out, start, stop: None)
    with Engine(1) as engine:
        for shape in ((0, 0), (0,)):
            found = engine.sum_over_rows(nothing, engine.leaves(50_000), shape)
            assert found.shape == shape


def test_pieces_of_work_change_no_bit():
    values = np.random.default_rng(1).normal(size=200_000)
    with Engine(1) as engine:
        leaves = engine.leaves(len(values))
        assert len(leaves) == 16
        slow = slow_sum([float(values[a:b].sum()) for a, b in leaves])
        for size in (1, 10**8):  # with memory for few sums
            found = engine.sums(lambda rows: float(values[slice(*rows)].sum()), leaves, size)
            assert found == slow
        by_leaf = np.zeros((len(leaves), 2))
        for own, rows in zip(by_leaf, leaves, strict=True):
            total_and_size(values, own, *rows)
        slow = slow_sum(by_leaf[:, 0].tolist())
        assert engine.total(values) == slow
        total, of_sizes = engine.total_and_size(np.array([values, -values]))
        assert list(total) == [slow, -slow]
        assert of_sizes[0] == of_sizes[1] == engine.total(np.abs(values))
        assert engine.mean(values) == slow / len(values)
        assert engine.norm(values) ** 2 == pytest.approx(float(values @ values))
        assert engine.largest(values) == values.max()
        assert list(engine.each_largest([values, -values], -1.0)) == [-values.min(), values.max()]
        np.testing.assert_allclose(engine.combine(np.ones((1, 2)), np.array([values, values])), [2 * values])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [5, 200_001])
def test_work_number_by_number_is_the_same_in_pieces(n, threads, idle_machine):
    u, v = np.random.default_rng(4).normal(size=(2, n))
    with Engine(threads) as engine:
        found = engine.each(lambda a, r, b: a - r * (b / a), u, 0.3, v)
        np.testing.assert_array_equal(found, u - 0.3 * (v / u))
        out = np.empty(n)
        assert engine.each(np.subtract, u, v, out=out) is out
        np.testing.assert_array_equal(out, u - v)
        np.testing.assert_array_equal(engine.times(u, v), u * v)
        np.testing.assert_array_equal(engine.plus(u, v, 0.5, -1.0, 2.0), (u - v + 0.5) * 2.0)
        engine.copy(v, out)
        np.testing.assert_array_equal(out, v)


SMOOTH = [name for name, loss in LOSSES.items() if loss.smooth and loss.convex and not loss.vector]
LARGE = 300_000


@pytest.mark.parametrize("name", SMOOTH)
def test_curvature_in_one_pass_is_that_of_several(name):
    rng, n, loss = np.random.default_rng(0), 70_001, get_loss(name)
    base, total = 0.3 * rng.normal(size=(2, n))
    y = rng.integers(0, 2, n).astype(float) + (
        0.5 if loss.link(1.0) is not None and name != "binomial" else 0.0
    )
    weight, found = rng.uniform(0.2, 3.0, n), []
    for threads in (1, 3):
        with Engine(threads) as engine:
            bend, root = np.full(n, np.nan), np.full(n, np.nan)
            given = SimpleNamespace(y=y, weight=weight, offset=base), total, 0.7, bend, engine
            ((first, size),) = engine.together(loss.curvature_parts(*given, root))
            ((second, _),) = engine.together(loss.curvature_parts(*given))
            z = engine.plus(base, total, 0.7)
            expected = loss.curvature(z, y, weight, np.empty(n), engine)
            assert first == second == engine.total(expected)
            assert size == engine.total(np.abs(expected))
            np.testing.assert_array_equal(bend, expected)
            np.testing.assert_array_equal(root, np.sqrt(expected))
            found.append((first, bend.tobytes()))
    assert found[0] == found[1]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("loss", ["logistic", "huber", "squared_hinge", "hinge"])
def test_fits_do_not_depend_on_what_stood_in_memory(loss, monkeypatch):
    rng, found = np.random.default_rng(1), []
    X = rng.normal(size=(LARGE, 4)) * [1.0, 3.0, 0.1, 1.0]
    y = (X @ [1.0, -0.5, 2.0, 0.0] + rng.normal(size=LARGE) > 0.3).astype(float)
    problem = make_problem([X[:, :2].copy(), X[:, 2:].copy()], y, loss=loss, lam=1e-4)
    for threads in (1, 2, 0):
        if not threads:
            monkeypatch.setattr(Engine, "vector", lambda self, size: np.full(size, np.nan))
        result = solve(problem, SolverOptions(gap=1e-5, n_threads=max(1, threads), max_rounds=40))
        records = [(record.objective, record.gap) for record in result.history]
        found.append((records, result.intercept, *(own.tobytes() for own in result.weights)))
    assert found[0] == found[1] == found[2]


def test_a_method_that_is_closed_holds_no_messages():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 6))
    solver = Solver(make_problem([X[:, :3], X[:, 3:]], (X[:, 0] > 0).astype(float)), SolverOptions())
    solver.round()
    assert len(solver.coordinator.messages)
    solver.method.close()
    assert not len(solver.coordinator.messages)
