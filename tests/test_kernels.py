"""Every kernel against its twin in naive.py, with and without compilation."""

import itertools
import math
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.kernels.blas import routine
from fastadmm.kernels.csr import (
    csr_accumulate_gram,
    csr_accumulate_images,
    csr_accumulate_transposed,
    csr_column_squares,
    csr_products,
)
from fastadmm.kernels.dense_products import (
    dense_accumulate_transposed,
    dense_column_squares,
    dense_gram,
    dense_products,
)
from fastadmm.kernels.exponential import exp_nonpositive, expm1_and_exp
from fastadmm.kernels.logistic import logistic
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from run_tools import without_compilation

EPS = np.finfo(float).eps
COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"

#: Without compilation kernels are slow and NumPy scalars warn where machine code is silent.
N = 600 if COMPILED else 30


def targets(rng, n):
    """Hard and soft targets mixed."""
    return np.where(rng.random(n) < 0.5, rng.integers(0, 2, n).astype(float), rng.random(n))


def spread(rng, n, decades=6.0):
    """Numbers of both signs from 1e-decades to 1e+decades, and zero."""
    values = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-decades, decades, n)
    values[0] = 0.0
    return values


@pytest.mark.parametrize("low", [-1e-300, -1e-9, -0.5, -1.0, -40.0, -700.0])
def test_exponential_is_within_two_ulps(low):
    rng = np.random.default_rng(1)
    for x in [0.0, low, *(rng.random(N) * low)]:
        exact = Decimal(float(x)).exp()
        assert abs(Decimal(exp_nonpositive(x)) - exact) <= 2 * Decimal(math.ulp(float(exact)))
        assert abs(exp_nonpositive(x) - math.exp(x)) <= 2.0 * math.ulp(math.exp(x))


def test_exponential_at_seams_and_of_any_number():
    for n in range(-1020, 1):
        for x in (n * math.log(2), (n - 0.5) * math.log(2)):
            for y in (x, math.nextafter(x, -math.inf), math.nextafter(x, math.inf)):
                if -708.0 < y <= 0.0:
                    assert abs(exp_nonpositive(y) - math.exp(y)) <= 2.0 * math.ulp(math.exp(y))
    assert expm1_and_exp(709.5) == (math.inf, math.inf)
    assert expm1_and_exp(math.inf) == (math.inf, math.inf)
    assert expm1_and_exp(-math.inf) == (-1.0, pytest.approx(math.exp(-708.0), rel=4 * EPS))
    assert all(math.isnan(value) for value in expm1_and_exp(math.nan))


@pytest.mark.parametrize("x", [-708.0, -709.0, -745.2, -1e6, -1e308, -math.inf])
def test_exponential_stays_a_normal_number(x):
    assert exp_nonpositive(x) == pytest.approx(math.exp(-708.0), rel=4 * EPS)


@pytest.mark.parametrize("size", [1e-300, 1e-9, 0.1, 0.5, 1.2, 40.0, 700.0])
def test_exponential_less_one_keeps_its_digits(size):
    rng = np.random.default_rng(2)
    for x in [0.0, size, -size, *(rng.uniform(-size, size, N))]:
        less, whole = expm1_and_exp(x)
        assert abs(less - math.expm1(x)) <= 3.0 * math.ulp(math.expm1(x))
        assert abs(whole - math.exp(x)) <= 2.0 * math.ulp(math.exp(x))


def check_logistic(z, q, s):
    n = len(z)
    gradient, curvature = np.full(n, np.nan), np.full(n, np.nan)
    total = logistic.evaluate(z, q, s, (), gradient, 0, n)
    logistic.curvature(z, q, s, (), curvature, 0, n)
    exact = [naive.exact_logistic(float(a), float(b)) for a, b in zip(z, q)]
    value = math.fsum(w * e[0] for w, e in zip(s, exact))
    assert total == pytest.approx(value, rel=4 * EPS * (1 + math.log2(n + 1)), abs=1e-300)
    # tails are relative: a tiny gradient is exact too (1e-307: exp is floored at exp(-708))
    np.testing.assert_allclose(curvature, s * [e[2] for e in exact], rtol=12 * EPS, atol=1e-300)
    hard = (q == 0) | (q == 1)
    expected = s * [e[1] for e in exact]
    np.testing.assert_allclose(gradient[hard], expected[hard], rtol=8 * EPS, atol=1e-300)
    # with a soft target the difference itself may vanish: absolute accuracy then
    assert (np.abs(gradient - expected) <= 4 * EPS * s + 1e-300).all()


@pytest.mark.parametrize("seed", range(3))
def test_logistic_against_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    check_logistic(
        spread(rng, N), targets(rng, N), np.where(rng.random(N) < 0.1, 0.0, 10.0 ** rng.uniform(-3, 3, N))
    )


def check_prox(v, shift, q, s, r, start):
    """Solve and compare with bisection in 50 digits: rounding of the inputs' size is all that is allowed."""
    n = len(v)
    z, gradient = start.copy(), np.full(n, np.nan)
    sum_gradient, sum_slope = logistic.prox(v, shift, q, s, (), r, z, gradient, 0, n)
    slopes = []
    for i in range(n):
        root, g = naive.exact_logistic_prox(*(float(a[i]) for a in (v, shift, q, s)), r)
        point = float(root + Decimal(float(shift[i])))
        size = abs(v[i]) + abs(shift[i]) + abs(float(root)) + abs(point) + 1.0
        _, residual, h = naive.exact_logistic(point, float(q[i]))
        # stationarity r (z - v) + g = 0 up to rounding of z, amplified by the condition of the sample
        assert abs(Decimal(float(z[i])) - root) <= Decimal(16 * EPS * size), i
        slack = s[i] * (h * size + 1.0) if 0 < q[i] < 1 else s[i] * abs(residual) * (1.0 + size)
        assert abs(gradient[i] - g) <= 16 * EPS * slack + 1e-300, i
        slopes.append(r * s[i] * h / (r + s[i] * h))
    assert sum_gradient == pytest.approx(math.fsum(gradient), abs=1e-12 * np.abs(gradient).sum() + 1e-300)
    assert sum_slope == pytest.approx(math.fsum(slopes), rel=1e-9 * (1 + np.abs(v).max() * 1e-3), abs=1e-300)
    return z


@pytest.mark.representatives(3)
@pytest.mark.parametrize("start", ["cold", "warm", "far"])
@pytest.mark.parametrize("exponent", range(-6, 7, 2))
def test_logistic_prox_is_exact_for_every_ratio(exponent, start):
    rng = np.random.default_rng(exponent + 10)
    n = N // 4
    v, shift, q = spread(rng, n), spread(rng, n, 1.0), targets(rng, n)
    s = np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0.5, 2.0, n))
    r = 10.0**-exponent
    begin = {"cold": np.zeros(n), "warm": v + rng.normal(size=n) * 1e-3, "far": -v * 3.0}[start]
    check_prox(v, shift, q, s, r, begin)


@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(-50, 50), st.floats(0, 1), st.floats(1e-6, 1e6)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1e-3, 0.1, 1.0, 1e3]),
    st.floats(-1e6, 1e6),
)
@settings(max_examples=60, deadline=None)
def test_logistic_prox_on_any_numbers(rows, r, start):
    v, shift, q, s = (np.array(column) for column in zip(*rows))
    s = np.clip(s, 1e-6 * r, 1e6 * r)
    check_prox(v, shift, q, s, r, np.full(len(v), start))


def random_csr(rng, n, d, density):
    matrix = np.where(rng.random((n, d)) < density, rng.normal(size=(n, d)), 0.0)
    matrix[n // 2] = 0.0  # an empty row
    matrix[-1] = 0.0
    matrix[:, d // 2] = 0.0  # an empty column
    return matrix, sp.csr_array(matrix)


@pytest.mark.representatives(4)
@pytest.mark.parametrize("index_type", [np.uint32, np.uint64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (40, 17), (5, 60)])
def test_csr_kernels(shape, index_type):
    rng = np.random.default_rng(shape[0])
    n, d = shape
    matrix, csr = random_csr(rng, n, d, 0.3)
    parts = csr.indptr.astype(np.int64), csr.indices.astype(index_type), csr.data
    start, stop = n // 4, n - n // 5
    rows = slice(start, stop)

    gram = np.zeros((d, d))
    weight = rng.random(n)
    csr_accumulate_gram(*parts, weight, gram, start, stop)
    expected = matrix[rows].T @ (weight[rows, None] * matrix[rows])
    np.testing.assert_allclose(gram, np.triu(expected), rtol=1e-13, atol=1e-13)

    squares = np.ones(d)
    csr_column_squares(*parts, squares, start, stop)
    np.testing.assert_allclose(squares, 1.0 + (matrix[rows] ** 2).sum(axis=0), rtol=1e-14)


def uneven_rows(rng, d):
    """Rows of every length from 0 to 40, in disorder, as CSR."""
    lengths = rng.permutation(np.repeat(np.arange(41), 3))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([rng.choice(d, k, replace=False) for k in lengths]).astype(np.uint16)
    return indptr, indices, rng.normal(size=len(indices))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("n", "d"), [(300, 1), (301, 5), (129, 40), (64, 3)])
def test_dense_gram_matrices(n, d, weighted):
    rng = np.random.default_rng(n)
    matrix, weight = rng.normal(size=(n, d)), rng.random(n) if weighted else np.empty(0)
    start, stop = 7, n - 2
    expected = 1.0 + naive.gram(matrix[start:stop], weight[start:stop] if weighted else np.ones(stop - start))
    rough = np.empty(d, np.float32)
    for name, room, tolerance in (("dsyrk", np.empty(0), 1e-12), ("ssyrk", rough, 1e-4)):
        out = np.ones((d, d))
        dense_gram(matrix, weight, 64, routine(name), room, out, start, stop)
        np.testing.assert_allclose(np.triu(out), np.triu(expected), rtol=0, atol=tolerance)
        # From tiles that lie elsewhere, as from a file, the same bits.
        again = np.ones((d, d))
        for begin in range(start, stop, 64):
            rows = slice(begin, min(begin + 64, stop))
            there = matrix[rows].copy(), weight[rows], 64, routine(name), room
            dense_gram(*there, again, 0, rows.stop - begin)
        np.testing.assert_array_equal(np.triu(again), np.triu(out))


@pytest.mark.parametrize("ones", [False, True])
def test_csr_rows_of_every_length(ones):
    """To the bit as their twins, wherever a range begins and ends: what is behind a row is never in it."""
    rng = np.random.default_rng(3)
    d = 50
    indptr, indices, data = uneven_rows(rng, d)
    n = len(indptr) - 1
    data = np.ones(len(data)) if ones else data
    x, vectors = rng.normal(size=d), rng.normal(size=(4, n))
    rows = [slice(a, b) for a, b in itertools.pairwise(indptr)]
    expected = [naive.sparse_row_product(data[row], x[indices[row]]) for row in rows]
    parts = indptr, indices, None if ones else data
    for start, stop in [(0, n), *((k, k + 1) for k in range(0, n, 3)), (n, n)]:
        out = np.full(n, -99.0)
        csr_products(*parts, x[np.newaxis], out[np.newaxis], start, stop)
        np.testing.assert_array_equal(out[start:stop], expected[start:stop])
        several = np.full((2, n), -99.0)
        csr_products(*parts, np.array([x, -2.0 * x]), several, start, stop)
        np.testing.assert_array_equal(several[:, start:stop], [out[start:stop], -2.0 * out[start:stop]])
        assert (np.delete(several, np.arange(start, stop), axis=1) == -99.0).all()
        sums = np.zeros((4, d))
        for i in range(start, stop):
            for k in range(indptr[i], indptr[i + 1]):
                sums[:, indices[k]] += data[k] * vectors[:, i]
        found = np.zeros((4, d))
        for v, own in zip(vectors, found):
            csr_accumulate_transposed(*parts, v, own, start, stop)
        np.testing.assert_array_equal(found, sums)
        if not ones:
            found = np.zeros((d, 4))
            csr_accumulate_images(*parts, vectors, found, start, stop)
            np.testing.assert_array_equal(found.T, sums)
    strided = np.zeros((2, d)).T  # neither x nor the sums need be contiguous
    strided[:, 0] = x
    csr_products(*parts, strided[:, 0][np.newaxis], out[np.newaxis], 0, n)
    np.testing.assert_array_equal(out, expected)
    csr_accumulate_transposed(*parts, vectors[0], strided[:, 1], 0, n)
    np.testing.assert_array_equal(strided[:, 1], sums_of(indptr, indices, data, vectors[0], d))


def sums_of(indptr, indices, data, v, d):
    """``D.T v``, entry after entry."""
    out = np.zeros(d)
    np.add.at(out, indices, data * np.repeat(v, np.diff(indptr)))
    return out


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_csr_rows_keep_to_themselves(bad):
    """What is not finite in one row or column is in no other's sums."""
    rng = np.random.default_rng(4)
    indptr, indices, data = uneven_rows(rng, 50)
    n = len(indptr) - 1
    touched = np.array([7 in indices[a:b] for a, b in itertools.pairwise(indptr)])
    x, out = rng.normal(size=50), np.zeros(n)
    x[7] = bad
    csr_products(indptr, indices, data, x[np.newaxis], out[np.newaxis], 0, n)
    np.testing.assert_array_equal(np.isfinite(out), ~touched)
    row = int(np.flatnonzero(np.diff(indptr) == 5)[0])
    vectors, images, alone = rng.normal(size=(4, n)), np.zeros((50, 4)), np.zeros(50)
    vectors[1:, row] = bad
    csr_accumulate_images(indptr, indices, data, vectors, images, 0, n)
    csr_accumulate_transposed(indptr, indices, data, vectors[1], alone, 0, n)
    touched = np.isin(np.arange(50), indices[indptr[row] : indptr[row + 1]])
    assert np.isfinite(images[:, 0]).all()
    for sums in (*images.T[1:], alone):
        np.testing.assert_array_equal(np.isfinite(sums), ~touched)


NARROW_SHAPES = [(7, 3), (23, 5), (2, 3), (19, 8), (21, 10), (33, 17), (9, 31), (30, 32), (11, 33)]
STRIPS = [(1, 33), (300, 39), (290, 40), (200, 41), (3, 47), (190, 64), (150, 65)]


@pytest.mark.representatives(3)
@pytest.mark.parametrize("shape", [(1, 1), (41, 600), (5, 60), (38, 64), *NARROW_SHAPES, *STRIPS])
def test_dense_kernels(shape):  # (41, 600): products of several vectors in groups of rows
    rng = np.random.default_rng(shape[0])
    n, d = shape
    matrix, x, v = rng.normal(size=shape), rng.normal(size=d), rng.normal(size=n)
    start, stop = n // 4, n - n // 5
    rows = slice(start, stop)

    out = np.full(n, -99.0)
    dense_products(matrix, x[np.newaxis], out[np.newaxis], start, stop)
    np.testing.assert_allclose(out[rows], matrix[rows] @ x, rtol=1e-14, atol=1e-15 * max(d, 10))
    assert (np.delete(out, np.arange(n)[rows]) == -99.0).all()

    alone = np.full(n, -99.0)
    for i in range(start, stop):  # a row's bits do not depend on how rows are grouped
        dense_products(matrix, np.repeat(x, 2)[::2][np.newaxis], alone[np.newaxis], i, i + 1)
    np.testing.assert_allclose(alone, out, rtol=0 if COMPILED else 1e-14, atol=0 if COMPILED else 1e-14)

    several, among = np.full((3, n), -99.0), np.array([x, 0.5 * x, -x])
    dense_products(matrix, among, several, start, stop)
    assert (np.delete(several, np.arange(n)[rows], axis=1) == -99.0).all()
    np.testing.assert_allclose(
        several[:, rows], np.outer([1.0, 0.5, -1.0], out[rows]), rtol=0 if COMPILED else 1e-14
    )

    out = np.ones(d)
    dense_accumulate_transposed(matrix, v, out, start, stop)
    np.testing.assert_allclose(out, 1.0 + matrix[rows].T @ v[rows], rtol=1e-13, atol=1e-13)
    again = np.ones(d)
    for i in range(start, stop):  # one row after the other: however they are grouped
        dense_accumulate_transposed(matrix, v, again, i, i + 1)
    np.testing.assert_array_equal(out, again)


@pytest.mark.parametrize("d", [3, 9, 61, 70])
def test_dense_sums_read_nothing_behind_the_rows(d):
    rng = np.random.default_rng(d)
    memory = np.full(11 * d + 8, np.nan)  # sums of leaves have whole cache lines: their room is longer
    matrix, v = memory[: 11 * d].reshape(11, d), rng.normal(size=11)
    matrix[:] = rng.normal(size=(11, d))
    for kernel, told, exact in (
        (dense_column_squares, (), (matrix**2).sum(axis=0)),
        (dense_accumulate_transposed, (v,), matrix.T @ v),
    ):
        out = np.zeros(-(-d // 8) * 8)
        kernel(matrix, *told, out, 0, 11)
        np.testing.assert_allclose(out[:d], exact, rtol=1e-13, atol=1e-13)
        assert not out[d:].any()


@pytest.mark.repeats
@pytest.mark.skipif(not COMPILED, reason="already without compilation")
def test_kernels_without_compilation():
    """The kernels are plain Python too: a debugger can step through them."""
    chosen = "seams or evaluate or range or csr_ or dense_ker or dense_gram or against_exact or prox_is_exact"
    chosen += " or stays or test_rows or test_span_kernels or naive_twin"
    others = (f"test_{name}.py" for name in ("rows", "span_kernels", "fusion_mechanisms"))
    without_compilation(chosen, __file__, *(str(Path(__file__).with_name(name)) for name in others))
