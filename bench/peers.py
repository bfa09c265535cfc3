"""The solvers that a user would pick instead, on the pooled columns, each under one interface.

All solve the same problem: mean logistic loss plus ``lam / 2 |x|^2``, no
intercept. A peer is prepared outside the clock (its own copy of the data, in
the form it likes best) and tuned in its favour: its time is that of the
loosest tolerance of a grid whose model is within the wanted suboptimality of
the optimum, which is known from a certificate and not to the peer.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

#: A fit: takes a tolerance and a limit on iterations, returns pooled weights of shape (d,).
Fit = Callable[[float, int], np.ndarray]

#: Tolerances that are tried, from loose to tight.
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(1, 21))

#: The curve of a peer goes on to this suboptimality, if time allows.
_FURTHER = 1e-9

#: Widest data that ``newton-cholesky`` is asked to factorise, and the largest dense copy it is given.
WIDEST_HESSIAN, DENSE_BYTES = 2000, 10**9


def objective(X: Any, y: np.ndarray, lam: float, x: np.ndarray) -> float:
    """Mean logistic loss plus ``lam / 2 |x|^2`` at weights x of shape (d,)."""
    z = X @ x
    return float(np.mean(np.logaddexp(0.0, z) - y * z) + 0.5 * lam * (x @ x))


def _scikit_learn(solver: str) -> Callable[[Any, np.ndarray, float], Fit | None]:
    def prepare(X: Any, y: np.ndarray, lam: float) -> Fit | None:
        from sklearn.linear_model import LogisticRegression

        dense = isinstance(X, np.ndarray)
        if solver == "newton-cholesky":
            if X.shape[1] > WIDEST_HESSIAN:
                return None
            if not dense and X.shape[0] * X.shape[1] * 8 <= DENSE_BYTES:
                X = X.toarray()
        elif solver in ("saga", "liblinear") and dense:
            X = np.ascontiguousarray(X)

        def fit(tolerance: float, limit: int) -> np.ndarray:
            model = LogisticRegression(
                C=1.0 / (len(y) * lam),
                fit_intercept=False,
                solver=solver,
                tol=tolerance,
                max_iter=limit,
                random_state=0,
            )
            return model.fit(X, y).coef_[0]

        return fit

    return prepare


def _liblinear(kind: int) -> Callable[[Any, np.ndarray, float], Fit | None]:
    def prepare(X: Any, y: np.ndarray, lam: float) -> Fit:
        import scipy.sparse as sp
        from liblinear.liblinearutil import parameter, problem, train

        data = problem(2.0 * y - 1.0, sp.csr_matrix(X))  # LIBLINEAR knows sparse rows only

        def fit(tolerance: float, limit: int) -> np.ndarray:
            options = parameter(f"-s {kind} -c {1.0 / (len(y) * lam)!r} -e {tolerance!r} -B -1 -q")
            model = train(data, options)
            first = model.get_labels()[0]  # the class that positive values speak for
            return first * np.ctypeslib.as_array(model.w, (X.shape[1],))

        return fit

    return prepare


def _snapml(X: Any, y: np.ndarray, lam: float) -> Fit:
    import os

    from snapml import LogisticRegression

    labels = 2.0 * y - 1.0

    def fit(tolerance: float, limit: int) -> np.ndarray:
        model = LogisticRegression(
            regularizer=len(y) * lam,
            fit_intercept=False,
            tol=tolerance,
            max_iter=limit,
            n_jobs=len(os.sched_getaffinity(0)),
            dual=True,
        )
        return np.ravel(model.fit(X, labels).coef_)

    return fit


#: Name, and what prepares a fit: ``prepare(X, y, lam)``; None where the peer cannot take the data.
PEERS: dict[str, Callable[[Any, np.ndarray, float], Fit | None]] = {
    "scikit-learn lbfgs": _scikit_learn("lbfgs"),
    "scikit-learn newton-cholesky": _scikit_learn("newton-cholesky"),
    "scikit-learn newton-cg": _scikit_learn("newton-cg"),
    "scikit-learn liblinear": _scikit_learn("liblinear"),
    "scikit-learn saga": _scikit_learn("saga"),
    "LIBLINEAR -s 0": _liblinear(0),
    "LIBLINEAR -s 7": _liblinear(7),
    "snapml": _snapml,
}

_MODULES = {"LIBLINEAR": "liblinear", "snapml": "snapml", "scikit-learn": "sklearn"}


def available(name: str) -> bool:
    """Whether a peer is installed."""
    from importlib.util import find_spec

    return find_spec(_MODULES[name.split(maxsplit=1)[0]]) is not None


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what solvers say about iterations that they were not given."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class Tuned(NamedTuple):
    """What tuning found."""

    fit: Callable[[], np.ndarray] | None
    tolerance: float | None
    seconds: float
    curve: list[tuple[float, float]]


def tune(
    name: str, X: Any, y: np.ndarray, lam: float, optimum: float, target: float, budget: float, slow: float
) -> Tuned | None:
    """The loosest tolerance of the grid with a relative suboptimality of at most ``target``."""
    prepared = PEERS[name](X, y, lam)
    if prepared is None:
        return None
    spent, found, curve = 0.0, None, []
    with quietly():
        for tolerance in TOLERANCES:
            begin = time.perf_counter()
            x = prepared(tolerance, 5000)
            seconds = time.perf_counter() - begin
            spent += seconds
            value = objective(X, y, lam, x) / optimum - 1.0
            curve.append((seconds, value))
            if found is None and value <= target:
                found = (tolerance, seconds)
            if value <= _FURTHER or spent > budget or (seconds > slow and (found or len(curve) > 1)):
                break
    if found is None:
        return Tuned(None, None, spent, curve)
    tolerance, seconds = found

    def fit() -> np.ndarray:
        with quietly():
            return prepared(tolerance, 5000)

    return Tuned(fit, tolerance, seconds, curve)
