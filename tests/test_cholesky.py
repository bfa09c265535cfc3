"""Cholesky factors, in the place of their matrix."""

import numpy as np
import pytest
from fastadmm.parties.direction import cholesky, solve_factorised


@pytest.mark.parametrize("n", [1, 7, 150])
def test_factor_and_solution(n):
    rng = np.random.default_rng(n)
    half, right = rng.normal(size=(n, n + 3)), rng.normal(size=n)
    whole = half @ half.T
    given = np.triu(whole)
    given[np.tril_indices(n, -1)] = np.nan  # nobody looks there
    factor = cholesky(given)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(whole), rtol=1e-9, atol=1e-9)
    before = right.copy()
    np.testing.assert_allclose(whole @ solve_factorised(factor, right), right, rtol=1e-7, atol=1e-7)
    assert np.array_equal(right, before)


def test_a_matrix_that_is_not_positive_definite_has_no_factor():
    assert cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
