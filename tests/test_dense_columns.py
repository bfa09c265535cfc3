"""Dense columns are read where they are where parties are in this process, from where samples lead on."""

import numpy as np
import pytest
from fastadmm.blocks.side_by_side import Beside
from fastadmm.kernels.beside import beside_gram, beside_product, beside_rows, beside_transposed
from fastadmm.kernels.blas import routine

import naive

N, WIDTHS = 9000, (9, 3, 8)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("widths", [(1,), (9, 3, 8), (16, 0, 40, 5, 2)])
def test_kernels(widths):
    rng, n = np.random.default_rng(0), 2100
    whole, v = rng.normal(size=(n, sum(widths))), rng.normal(size=n)
    parts = np.split(whole, np.cumsum(widths)[:-1], axis=1)
    matrices = Beside([np.ascontiguousarray(part) for part in parts]).matrices
    start, stop, x = 700, n - 3, rng.normal(size=sum(widths))
    product, images = np.full(n, np.nan), np.ones(sum(widths))
    beside_product(matrices, x, product, start, stop)
    beside_transposed(matrices, v, images, start, stop)
    gram = np.ones((len(x), len(x)))
    beside_gram(matrices, 0, v * v, 64, routine("dsyrk"), gram, start, stop)
    led = np.ones((1 + len(x), 1 + len(x)))
    beside_gram(matrices, 1, v * v, 64, routine("dsyrk"), led, start, stop)
    own = whole[start:stop]
    np.testing.assert_allclose(product[start:stop], own @ x, rtol=0, atol=1e-12)
    assert np.isnan(product[:start]).all()
    np.testing.assert_allclose(images, 1.0 + own.T @ v[start:stop], rtol=0, atol=1e-11)
    expected = 1.0 + naive.gram(own, v[start:stop] ** 2)
    np.testing.assert_allclose(np.triu(gram), np.triu(expected), rtol=0, atol=1e-10)
    with_ones = np.hstack([np.ones((len(own), 1)), own])
    expected = 1.0 + naive.gram(with_ones, v[start:stop] ** 2)
    np.testing.assert_allclose(np.triu(led), np.triu(expected), rtol=0, atol=1e-10)
    numbers, chosen = np.sort(rng.choice(n, size=90, replace=False)), np.full((90, sum(widths)), np.nan)
    beside_rows(matrices, numbers, chosen, 20, 80)
    np.testing.assert_array_equal(chosen[20:80], whole[numbers[20:80]])
    assert np.isnan(chosen[:20]).all()
    assert np.isnan(chosen[80:]).all()
