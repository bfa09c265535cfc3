"""An owner of rows: answers gradient queries with noise, and nothing else."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.errors import InputError
from fastadmm.owners.mechanism import Bound, OwnerLoss, lattice_unit, make_answers
from fastadmm.settings.owners import OwnerSettings


class Rows:
    """The rows of an owner, in memory or read from its file in every pass. Shapes: X (n, d); y (n,)."""

    def __init__(self, X: Any, y: np.ndarray | None = None, *, in_memory: bool = True) -> None:
        self.y = X.targets() if y is None else np.ascontiguousarray(y, dtype=np.float64)
        self.n_samples, self.n_features = len(self.y), X.n_features if y is None else X.shape[1]
        self._file = X if y is None and not in_memory else None
        if self._file is None:
            self._rows = _compiled_form(X if y is not None else next(iter(X.iter_rows(self.n_samples)))[1])

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Blocks of rows in the form kernels take, with their targets, in order."""
        if self._file is None:
            yield self._rows, self.y
            return
        for start, block in self._file.iter_rows():
            yield _compiled_form(block), self.y[start : start + block.shape[0]]


def _compiled_form(X: Any) -> Any:
    """Dense rows as they are; CSR as (indptr, indices, data) with unsigned indices."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X)
    indices = X.indices.astype(np.uint32 if X.indices.dtype.itemsize <= 4 else np.uint64)
    return X.indptr.astype(np.int64), indices, X.data


@dataclass(eq=False)
class Owner:
    """One owner: its rows, the enforced bound and its calibrated answers."""

    name: str
    rows: Rows
    settings: OwnerSettings
    loss: OwnerLoss
    bound: Bound
    epsilon: float  # what its answers may cost; where one record is with kappa owners, the kappa-th part
    kappa: int = 1
    engine: Engine = field(default_factory=lambda: Engine(1))

    def __post_init__(self) -> None:
        self.n_samples = self.rows.n_samples
        self.n_parameters = self.rows.n_features + self.settings.intercept
        delta = None if self.settings.delta is None else self.settings.delta / self.kappa
        shape = self.n_samples, self.n_parameters
        self.answers = make_answers(self.settings, self.bound, shape, self.epsilon, delta)

    def answer(self, theta: np.ndarray) -> np.ndarray:
        """Answer one query: the noisy mean of bounded gradients. Shapes: theta, the result (p,)."""
        theta = np.ascontiguousarray(theta, dtype=np.float64)
        if theta.shape != (self.n_parameters,) or not np.isfinite(theta).all():
            raise InputError(f"{self.name}: a query must be {self.n_parameters} finite numbers")
        boxed = self.bound.kind == "features"  # clipped gradients are bounded wherever they are asked for
        if boxed and np.abs(theta).max() > self.bound.theta_max * (1.0 + 1e-12):
            raise InputError(
                f"{self.name}: the query leaves the box of {self.bound.theta_max:g} that the bound rests on"
            )
        total = self.total(theta)
        if not np.isfinite(total).all():  # a NaN in an answer would tell about a record
            raise InputError(f"{self.name}: gradients overflow; scale the features, or bound them")
        return self.answers.answer(total) / self.n_samples

    def total(self, theta: np.ndarray) -> np.ndarray:
        """Exact sum of bounded gradients, which never leaves. Shapes: theta, the result (p,)."""
        from fastadmm.kernels.owner_gradient import owner_csr_gradient, owner_dense_gradient

        bound, p = self.bound, self.n_parameters
        unit = lattice_unit(self.n_samples, bound.xi) if bound.enforced else 0.0
        row_limit = bound.row_limit * (1.0 - (p + 8) * 2.0**-52)
        target_limit = bound.target_limit if self.loss.name == "squared" else math.inf
        limits = row_limit, target_limit, bound.kernel_limit(p)
        asked = self.loss.code, int(self.settings.intercept), bound.euclidean, *limits, unit
        total = np.zeros(p)
        for X, y in self.rows.pieces():
            kernel: Any = owner_csr_gradient if isinstance(X, tuple) else owner_dense_gradient

            def work(piece: tuple[int, int], kernel: Any = kernel, X: Any = X, y: Any = y) -> np.ndarray:
                out = np.zeros(p)
                kernel(X, y, theta, asked, out, *piece)
                return out

            total += sum(self.engine.map(work, row_ranges(len(y))), np.zeros(p))
        return total


def scaled(X: Any, bound: Bound) -> Any:
    """Rows brought into the ball of a ``features`` bound; a copy, shape (n, d)."""
    if math.isinf(bound.row_limit):
        return X
    square = X * X if bound.euclidean else abs(X)
    norms = np.asarray(square.sum(axis=1), dtype=np.float64).ravel()
    norms = np.sqrt(norms) if bound.euclidean else norms
    factor = bound.row_limit / np.maximum(norms, bound.row_limit)
    if isinstance(X, np.ndarray):
        return X * factor[:, None]
    from scipy import sparse

    return sparse.diags_array(factor) @ X
