"""Fits of generated data whose sizes and kinds decide how they are solved, as those of large data do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import make_problem
from fastadmm.schemes.registry import SCHEMES
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve

Array = np.ndarray

#: Stored entries in a row of the sparse blocks.
_ENTRIES = 10

#: Rounds of most fits: enough to go through all that a round does.
_ROUNDS = 4


@dataclass
class _Fit:
    """Blocks, loss, other arguments of the problem, and options that differ from the usual ones."""

    blocks: list[Any]
    loss: str = "logistic"
    terms: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def other_fits(n_threads: int) -> None:
    """Solve problems of all kinds but those of the default path."""
    for fit in (*_smooth_fits(), *_fits_with_kinks(), *_fits_of_classes(), *_fits_by_messages()):
        rng = np.random.default_rng(1)
        y = targets(fit.loss, fit.blocks[0].shape[0], rng)
        problem = make_problem(fit.blocks, y, loss=fit.loss, **fit.terms)
        usual: dict[str, Any] = {"max_rounds": _ROUNDS, "n_threads": n_threads}
        solve(problem, SolverOptions(**{**usual, **fit.options}))
        with Engine(n_threads) as engine:
            pooled = not fit.options and SCHEMES["pooled"].takes(problem, engine)
        if pooled:
            solve(problem, SolverOptions("pooled", **usual))


def dense(rng: np.random.Generator, n_rows: int, width: int) -> Array:
    """Normal columns."""
    return rng.normal(size=(n_rows, width))


def sparse(rng: np.random.Generator, n_rows: int, width: int, equal: bool = False) -> sp.csr_array:
    """A few entries in a row, about as many in each column."""
    each = min(_ENTRIES, max(1, width // 4))
    indices = np.sort((rng.integers(0, width, (n_rows, 1)) + np.arange(each) * (width // each)) % width)
    data = np.ones(indices.size) if equal else rng.normal(size=indices.size)
    indptr = np.arange(n_rows + 1) * each
    return sp.csr_array((data, indices.ravel(), indptr), shape=(n_rows, width))


def targets(loss: str, n_rows: int, rng: np.random.Generator) -> Array:
    """Targets in the domain of a loss."""
    if loss in ("squared", "huber"):
        return rng.normal(size=n_rows)
    return (np.arange(n_rows) % (3 if loss == "multinomial" else 2)).astype(float)


def _of(form: Any, n_rows: int, *widths: int, **more: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [form(rng, n_rows, width, **more) for width in widths]


def _smooth_fits() -> Iterator[_Fit]:
    """Dense and sparse columns, many rows and few."""
    yield _Fit(_of(dense, 20_000, 5, 5))
    yield _Fit(_of(dense, 80_000, 7, 7))  # columns that fill large pages
    yield _Fit(_of(dense, 600, 40, 40))
    yield _Fit(_of(dense, 2000, 300, 300))
    yield _Fit(_of(sparse, 20_000, 100, 100))
    yield _Fit(_of(sparse, 20_000, 10, 10))  # rows that are sampled
    for equal in (False, True):
        yield _Fit(_of(sparse, 20_000, 1000, 1000, equal=equal))
    yield _Fit(_of(dense, 20_000, 5, 5) + _of(sparse, 20_000, 100))
    for loss in ("logistic", "squared", "huber", "squared_hinge"):
        yield _Fit(_of(dense, 400, 800, 800), loss)
        yield _Fit(_of(sparse, 2000, 2500, 2500), loss)
        yield _Fit(_of(dense, 1000, 5, 5) + _of(sparse, 1000, 5000), loss)


def _fits_with_kinks() -> Iterator[_Fit]:
    """Kinks in the loss, then in the penalty."""
    for blocks in (_of(dense, 20_000, 10, 10), _of(dense, 400, 800, 800), _of(sparse, 2000, 2500, 2500)):
        yield _Fit(blocks, "hinge")
    yield _Fit(_of(dense, 2000, 5) + _of(sparse, 2000, 100), "hinge")
    for blocks in (_of(dense, 20_000, 10, 10), _of(sparse, 20_000, 1000, 1000), _of(dense, 200, 1000, 1000)):
        yield _Fit(blocks, terms={"regularizer": "l1"})
    yield _Fit(_of(dense, 20_000, 10, 10), terms={"regularizer": "group_lasso"})


def _fits_of_classes() -> Iterator[_Fit]:
    yield _Fit(_of(dense, 20_000, 10, 10), "multinomial")
    yield _Fit(_of(sparse, 5000, 4000, 4000), "multinomial")
    for blocks in (_of(dense, 80_000, 7, 7), _of(sparse, 5000, 300, 300)):
        yield _Fit(blocks, "multinomial", {"regularizer": "l1"})
    yield _Fit(_of(dense, 2000, 10, 10), "multinomial", {"regularizer": "group_lasso"})


def _fits_by_messages() -> Iterator[_Fit]:
    """Rounds by directions, and those of sharing until the penalty follows the curvature."""
    yield _Fit(_of(dense, 300, 500, 500), options={"history": 10})
    for asked in ("one", "both"):
        yield _Fit(_of(dense, 20_000, 10, 10), options={"directions": asked})
        yield _Fit(_of(sparse, 3000, 20_000, 20_000), options={"directions": asked})
    weights, sharing = np.linspace(0.1, 1.0, 600), {"scheme": "sharing", "gap": 0.0, "max_rounds": 14}
    for loss in ("logistic", "hinge"):
        yield _Fit(_of(dense, 600, 10, 10), loss, {"sample_weight": weights}, sharing)
