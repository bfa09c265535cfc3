"""One order of addition: leaves from the data alone, added by halves, and nothing else adds up rows."""

from itertools import pairwise

import numba
import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import add_by_halves, halved, leaves_for_sums, leaves_of, node_range, sum_leaves
from fastadmm.kernels.vectors import sum_by_halves as sum_rows_by_halves
from fastadmm.kernels.vectors import total_and_size
from hypothesis import given, settings
from hypothesis import strategies as st


def slow_sum(values):
    """The sum by halves, as the text says it."""
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return slow_sum(values[:middle]) + slow_sum(values[middle:])


def sum_of(v, rows):
    """What the kernel adds up for a leaf."""
    out = np.zeros(2)
    total_and_size(v, out, *rows)
    return float(out[0])


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
    rows = np.array([values] * 5).T.copy()
    sum_rows_by_halves(rows, rows[0], 1, 4)
    assert rows[0].tolist() == [values[0], slow, slow, slow, values[0]]
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


def test_few_leaves_are_added_as_many_are(monkeypatch):
    u, v = np.random.default_rng(3).normal(size=(2, 3, 20_000)) * 10.0 ** np.arange(3)[:, np.newaxis]
    with Engine(1) as engine:
        assert len(engine.leaves(20_000)) == Engine.few_leaves
        few = engine.dot(u, v[0]), engine.total(u[0]), engine.total_and_size(v)
        monkeypatch.setattr(Engine, "few_leaves", 0)
        many = engine.dot(u, v[0]), engine.total(u[0]), engine.total_and_size(v)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
    assert few[1] == slow_sum([sum_of(u[0], rows) for rows in halved(20_000, 4)])


@pytest.mark.parametrize("light", [True, False])
def test_pieces_of_work_change_no_bit(light):
    values = np.random.default_rng(1).normal(size=200_000)
    with Engine(1) as engine:
        leaves = engine.leaves(len(values))
        assert len(leaves) == 16
        slow = slow_sum([float(values[a:b].sum()) for a, b in leaves])
        for size in (1, 10**8):  # with memory for few sums
            found = engine.sums(lambda rows: float(values[slice(*rows)].sum()), leaves, light, size)
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
