"""Conjugate gradients are preconditioned by what the last system has shown."""

import numpy as np
import pytest
from fastadmm.pooled.newton import Preconditioner


def conjugate(matrix, count):
    """Directions that are conjugate in a matrix, by Gram and Schmidt."""
    found = np.random.default_rng(1).normal(size=(count, len(matrix)))
    for k in range(count):
        for own in found[:k]:
            found[k] -= (own @ matrix @ found[k]) / (own @ matrix @ own) * own
    return found


@pytest.mark.parametrize("count", [0, 3, 8])
def test_it_is_the_inverse_in_the_span_of_its_directions_and_positive_definite(count):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix = root @ root.T + np.eye(12)
    known, sizes = Preconditioner(12, 1e9), matrix.diagonal().copy()
    for own in conjugate(matrix, count):
        known.learn(own, matrix @ own, float(own @ matrix @ own))
    other = sizes + rng.random(12)
    known.begin(other)
    found = np.array([known(unit, np.empty(12)) for unit in np.eye(12)])
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert np.linalg.eigvalsh(found).min() > 0.0
    if not count:
        np.testing.assert_array_equal(found, np.diag(1.0 / other))
    for own in conjugate(matrix, count):
        np.testing.assert_allclose(found @ (matrix @ own), own, atol=1e-9)
    # A system without a direction of its own leaves what was known.
    known.begin(other)
    np.testing.assert_allclose(known(matrix[0], np.empty(12)), found @ matrix[0], rtol=1e-12)


def test_where_products_are_short_directions_are_not_kept():
    known = Preconditioner(100, 1000.0)
    known.learn(np.ones(100), np.ones(100), 100.0)
    known.begin(np.full(100, 2.0))
    np.testing.assert_array_equal(known(np.ones(100), np.empty(100)), np.full(100, 0.5))
