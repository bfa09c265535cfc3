"""Singular values where LAPACK's quick method gives up."""

import numpy as np
from fastadmm.engine.singular import singular


def gives_up(*args, **settings):
    raise np.linalg.LinAlgError("SVD did not converge")


def test_another_method_takes_over(monkeypatch):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(9, 4)) @ np.diag([1.0, 1.0, 1e-3, 0.0])
    expected = singular(matrix, whole=True)[1]
    monkeypatch.setattr(np.linalg, "svd", gives_up)
    for whole in (True, False):
        left, values, right = singular(matrix, whole)
        assert left.shape == ((9, 9) if whole else (9, 4))
        np.testing.assert_allclose(values, expected, atol=1e-14)
        np.testing.assert_allclose(left[:, :4] * values @ right, matrix, atol=1e-14)
