"""Sums of vectors row by row and over rows, beside NumPy's."""

import math

import numpy as np
import pytest
from fastadmm.engine.engine import Engine, SomeRowsEngine
from fastadmm.kernels.vectors import (
    add_squares,
    chosen,
    combine_by_class,
    products,
    products_by_class,
    shifted_sum,
    sum_by_halves,
    total_and_size,
)

FIRST = np.random.default_rng(0).normal(size=1000)
SECOND = np.random.default_rng(1).normal(size=1000)


def test_rows_and_numbers():
    out = np.full(1000, 7.0)
    shifted_sum(FIRST, 1.0, SECOND, 0.3, 1.0, out, 5, 900)
    assert np.array_equal(out[5:900], ((FIRST + SECOND) + 0.3)[5:900])
    shifted_sum(FIRST, -1.0, SECOND, 0.0, 0.25, out, 5, 900)
    assert np.array_equal(out[5:900], ((FIRST - SECOND) * 0.25)[5:900])
    assert (out[[*range(5), *range(900, 1000)]] == 7.0).all()
    # Numbers are chosen.
    vectors, places = (FIRST, SECOND), np.array([3, 4, 9, 30, 999])
    out = np.full((2, 5), np.nan)
    factors = np.array([1.0, 3.0])
    chosen(vectors, places, factors, out, 1, 4)
    for v, factor, own in zip(vectors, factors, out):
        assert np.array_equal(own[1:4], factor * v[places[1:4]])
        assert np.isnan(own[[0, 4]]).all()


@pytest.mark.parametrize("rows", [(0, 1000), (3, 4), (7, 71), (10, 10), (936, 1000)])
def test_sums_are_added_to_what_is_there(rows):
    out, own = np.array([1.0, 2.0]), FIRST[slice(*rows)]
    total_and_size(FIRST, out, *rows)
    # 64 running sums, then six levels: each number is rounded at most some twenty times.
    exact = np.array([1.0 + math.fsum(own), 2.0 + math.fsum(np.abs(own))])
    assert np.abs(out - exact).max() <= 30 * 2.0**-53 * (2.0 + np.abs(own).sum())


@pytest.mark.parametrize("n", [0, 1, 63, 64, 1000])
def test_products_depend_on_no_address(n):
    rng, found = np.random.default_rng(n), []
    rows, v = rng.normal(size=(3, 2, n)), rng.normal(size=(2, n))
    for before in (0, 1):
        for behind in (0, 1):
            own = np.pad(rows, ((0, 0), (0, 0), (before, behind)), constant_values=np.nan)
            other = np.pad(v, ((0, 0), (before, behind)), constant_values=np.nan)
            out, by_class = np.ones(3), np.ones(3)
            products(own, other, out, before, before + n)
            products_by_class(own[:, 0].copy(), np.array([1, 0, 1]), other, by_class, before, before + n)
            found.append((*out, *by_class))
    assert len(set(found)) == 1
    exact = [1.0 + math.fsum((row * v).ravel()) for row in rows]
    exact += [1.0 + math.fsum(row[0] * v[k]) for row, k in zip(rows, (1, 0, 1))]
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 5, 600])
def test_each_class_gets_the_sum_of_its_rows(n):
    rng = np.random.default_rng(n)
    rows, c, classes = rng.normal(size=(4, n)), np.array([2.0, 0.0, -1.0, 0.5]), np.array([1, 2, 1, 0])
    out, wide = np.full((4, n + 2), 7.0), np.pad(rows, ((0, 0), (1, 1)))
    combine_by_class(c, wide, classes, out, 1, n + 1)
    expected = np.array(
        [sum(c[k] * rows[k] for k in range(4) if classes[k] == j) + 0 * rows[0] for j in range(4)]
    )
    np.testing.assert_allclose(out[:, 1:-1], expected, atol=1e-15)
    assert (out[:, [0, -1]] == 7.0).all()
    add_squares(wide, out[0], 1, n + 1)
    np.testing.assert_allclose(out[0, 1:-1], expected[0] + (rows * rows).sum(axis=0), atol=1e-14)
    assert out[0, [0, -1]].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_is_seen(bad):
    spoilt = FIRST.copy()
    spoilt[400] = bad
    with Engine(1) as engine:
        assert not np.isfinite(engine.total(spoilt))


def test_an_engine_gives_the_same_for_any_number_of_threads():
    v = np.random.default_rng(2).normal(size=200_001)
    found = []
    for threads in (1, 3):
        with Engine(threads) as engine:
            found.append((*engine.total_and_size(v), engine.mean(v), *engine.plus(v, v, 1.0)[:3]))
            # Of what is not contiguous, or whole numbers.
            assert engine.total(v[::2]) == engine.total(v[::2].copy())
            assert engine.total(np.arange(10)) == 45.0
    assert found[0] == found[1]


@pytest.mark.parametrize("inside", [False, True])
def test_sums_by_halves_go_where_they_are_wanted(inside):
    rows = np.random.default_rng(2).normal(size=(8, 50))
    pairs = rows[::2] + rows[1::2]
    expected = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])
    out = rows[0] if inside else np.full(50, 7.0)
    sum_by_halves(rows, out, 3, 40)
    assert np.array_equal(out[3:40], expected[3:40])
    assert inside or (out[[*range(3), *range(40, 50)]] == 7.0).all()


def test_an_engine_of_some_rows_has_the_other_do_its_work():
    rows, asked = np.arange(0, 70_000, 3), list[str]()

    class Whole(Engine):
        def over_rows(self, *given):
            asked.append("rows")
            super().over_rows(*given)

        def _into_leaves(self, *given):
            asked.append("sums")
            super()._into_leaves(*given)

    v, found = np.random.default_rng(0).normal(size=len(rows)), []
    for threads in (1, 2, 3):
        with Whole(threads) as whole:
            some = SomeRowsEngine(whole, rows, 70_000)
            doubled = some.plus(v, v)
            found.append(some.total(doubled))
        assert np.array_equal(doubled, 2.0 * v)
        assert asked == ["rows", "sums"]
        asked.clear()
    assert found[0] == found[1] == found[2]
