"""The solvers that a user would pick for each loss, on the pooled columns; as :mod:`peers` for the logistic.

No intercepts. A peer is given the data in the form it likes best, outside the clock, and a tolerance; it
returns pooled weights, of shape (d,) or (d, C).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

Array = np.ndarray

#: Takes a tolerance and a limit on iterations.
Fit = Callable[[float, int], Array]


def _hinge(z: Array, y: Array) -> float:
    return float(np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * z).mean())


def _logistic(z: Array, y: Array) -> float:
    return float((np.logaddexp(0.0, z) - y * z).mean())


def _multinomial(z: Array, y: Array) -> float:
    from scipy.special import logsumexp

    return float((logsumexp(z, axis=1) - z[np.arange(len(y)), y.astype(int)]).mean())


def _squared(z: Array, y: Array) -> float:
    return 0.5 * float(((z - y) ** 2).mean())


def _poisson(z: Array, y: Array) -> float:
    from scipy.special import xlogy

    return float((np.exp(z) - y * z + xlogy(y, y) - y).mean())  # half the deviance


#: Mean loss at predictors of shape (N,) or (N, C).
OBJECTIVES: dict[str, Callable[[Array, Array], float]] = {
    "hinge": _hinge,
    "logistic": _logistic,
    "multinomial": _multinomial,
    "squared": _squared,
    "poisson": _poisson,
}


def _linear_svc(X: Any, y: Array, lam: float) -> Fit:
    from sklearn.svm import LinearSVC

    def fit(tolerance: float, limit: int) -> Array:
        model = LinearSVC(
            loss="hinge", C=1.0 / (len(y) * lam), fit_intercept=False, tol=tolerance, max_iter=limit
        )
        return model.set_params(random_state=0).fit(X, y).coef_[0]

    return fit


def _liblinear(kind: int) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        import scipy.sparse as sp
        from liblinear.liblinearutil import parameter, problem, train

        data = problem(2.0 * y - 1.0, sp.csr_matrix(X))

        def fit(tolerance: float, limit: int) -> Array:
            options = parameter(f"-s {kind} -c {1.0 / (len(y) * lam)!r} -e {tolerance!r} -B -1 -q")
            model = train(data, options)
            return model.get_labels()[0] * np.ctypeslib.as_array(model.w, (X.shape[1],))

        return fit

    return prepare


def _columns(X: Any) -> Any:
    return np.asfortranarray(X) if isinstance(X, np.ndarray) else X.tocsc()


def _celer(loss: str) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        import celer

        data, labels = _columns(X), 2.0 * y - 1.0

        def fit(tolerance: float, limit: int) -> Array:
            given: dict[str, Any] = {"tol": tolerance, "fit_intercept": False}
            if loss == "logistic":
                return celer.LogisticRegression(C=1.0 / (len(y) * lam), **given).fit(data, labels).coef_[0]
            return celer.Lasso(alpha=lam, **given).fit(data, y).coef_

        return fit

    return prepare


def _skglm(loss: str) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        import skglm

        data, labels = _columns(X), 2.0 * y - 1.0

        def fit(tolerance: float, limit: int) -> Array:
            given: dict[str, Any] = {"alpha": lam, "tol": tolerance, "fit_intercept": False}
            if loss == "logistic":
                return np.ravel(skglm.SparseLogisticRegression(**given).fit(data, labels).coef_)
            return skglm.Lasso(**given).fit(data, y).coef_

        return fit

    return prepare


def _logistic_regression(solver: str, l1_ratio: float = 0.0) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        from sklearn.linear_model import LogisticRegression

        own: dict[str, Any] = {"l1_ratio": l1_ratio, "random_state": 0} if solver == "saga" else {}

        def fit(tolerance: float, limit: int) -> Array:
            given: dict[str, Any] = {"solver": solver, "tol": tolerance, "max_iter": limit, **own}
            return LogisticRegression(C=1.0 / (len(y) * lam), fit_intercept=False, **given).fit(X, y).coef_.T

        return fit

    return prepare


def _ridge(solver: str) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        from sklearn.linear_model import Ridge

        def fit(tolerance: float, limit: int) -> Array:
            model = Ridge(alpha=len(y) * lam, fit_intercept=False, solver=solver, tol=tolerance)
            return model.fit(X, y).coef_

        return fit

    return prepare


def _lasso(X: Any, y: Array, lam: float) -> Fit:
    from sklearn.linear_model import Lasso

    data = np.asfortranarray(X)

    def fit(tolerance: float, limit: int) -> Array:
        model = Lasso(alpha=lam, fit_intercept=False, tol=tolerance, max_iter=limit)
        return model.fit(data, y).coef_

    return fit


def _poisson_regressor(solver: str) -> Callable[[Any, Array, float], Fit]:
    def prepare(X: Any, y: Array, lam: float) -> Fit:
        from sklearn.linear_model import PoissonRegressor

        def fit(tolerance: float, limit: int) -> Array:
            model = PoissonRegressor(
                alpha=lam, fit_intercept=False, solver=solver, tol=tolerance, max_iter=limit
            )
            return model.fit(X, y).coef_

        return fit

    return prepare


def _glum(X: Any, y: Array, lam: float) -> Fit:
    from glum import GeneralizedLinearRegressor

    data = np.asfortranarray(X)

    def fit(tolerance: float, limit: int) -> Array:
        model = GeneralizedLinearRegressor(
            family="poisson", alpha=lam, l1_ratio=0, fit_intercept=False, gradient_tol=tolerance
        )
        return model.fit(data, y).coef_

    return fit


#: Loss and regulariser, then name, and what prepares a fit: ``prepare(X, y, lam)``.
PEERS: dict[tuple[str, str], dict[str, Callable[[Any, Array, float], Fit]]] = {
    ("hinge", "l2"): {"scikit-learn LinearSVC": _linear_svc, "LIBLINEAR -s 3": _liblinear(3)},
    ("logistic", "l1"): {
        "LIBLINEAR -s 6": _liblinear(6),
        "celer": _celer("logistic"),
        "skglm": _skglm("logistic"),
    },
    ("multinomial", "l2"): {
        f"scikit-learn {solver}": _logistic_regression(solver)
        for solver in ("newton-cg", "newton-cholesky", "lbfgs")
    },
    ("multinomial", "l1"): {"scikit-learn saga": _logistic_regression("saga", 1.0)},
    ("squared", "l2"): {
        f"scikit-learn Ridge {solver}": _ridge(solver) for solver in ("cholesky", "lsqr", "sparse_cg")
    },
    ("squared", "l1"): {
        "celer": _celer("squared"),
        "skglm": _skglm("squared"),
        "scikit-learn Lasso": _lasso,
    },
    ("poisson", "l2"): {
        "scikit-learn newton-cholesky": _poisson_regressor("newton-cholesky"),
        "scikit-learn lbfgs": _poisson_regressor("lbfgs"),
        "glum": _glum,
    },
}

_MODULES = {"LIBLINEAR": "liblinear", "scikit-learn": "sklearn"}


def available(name: str) -> bool:
    """Whether a peer is installed."""
    first = name.split(maxsplit=1)[0]
    return find_spec(_MODULES.get(first, first)) is not None
