"""An owner of rows: answers gradient queries with noise, and nothing else."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.errors import InputError
from fastadmm.owners.bound import Bound, OwnerLoss
from fastadmm.owners.mechanism import GaussianAnswers, LaplaceAnswers, NoNoise, lattice_unit, make_answers

if TYPE_CHECKING:
    from fastadmm.store.owner_file import OwnerFile


class Rows:
    """The rows of an owner, in memory or read from its file in every pass. Shapes: X (n, d); y (n,)."""

    def __init__(self, X: Any, y: np.ndarray | None = None, *, in_memory: bool = True) -> None:
        self._file: OwnerFile | None = None
        if y is None:
            self._file = X
            self.y = X.targets()
            self.n_samples, self.n_features, self.kind = X.n_samples, X.n_features, X.kind
        else:
            self.y = np.ascontiguousarray(y, dtype=np.float64)
            self.n_samples, self.n_features = X.shape
            self.kind = "dense" if isinstance(X, np.ndarray) else "csr"
        self._pieces: list[tuple[Any, np.ndarray]] | None = None
        if self._file is None:
            self._pieces = [(_compiled_form(X), self.y)]
        elif in_memory:
            block = next(iter(self._file.iter_rows(self.n_samples)))[1]
            self._pieces = [(_compiled_form(block), self.y)]

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Blocks of rows in the form kernels take, with their targets, in order."""
        if self._pieces is not None:
            yield from self._pieces
            return
        assert self._file is not None
        for start, block in self._file.iter_rows():
            yield _compiled_form(block), self.y[start : start + block.shape[0]]


def _compiled_form(X: Any) -> Any:
    """Dense rows as they are; CSR as (indptr, indices, data) with unsigned indices."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X)
    indices = X.indices.astype(np.uint32 if X.indices.dtype.itemsize <= 4 else np.uint64)
    return X.indptr.astype(np.int64), indices, X.data


class Owner:
    """One owner: its rows, the enforced bound and its calibrated answers."""

    def __init__(
        self,
        name: str,
        rows: Rows,
        *,
        loss: OwnerLoss,
        bound: Bound,
        intercept: bool,
        mechanism: str,
        epsilon: float,
        rounds: int,
        delta: float | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.name, self.rows, self.loss, self.bound = name, rows, loss, bound
        self.intercept, self.epsilon = int(intercept), epsilon
        self.n_parameters = rows.n_features + self.intercept
        self.engine = engine or Engine(1)
        self.answers: NoNoise | LaplaceAnswers | GaussianAnswers = make_answers(
            mechanism,
            bound,
            n_records=rows.n_samples,
            n_parameters=self.n_parameters,
            rounds=rounds,
            epsilon=epsilon,
            delta=delta,
        )

    @property
    def n_samples(self) -> int:
        """Records of the owner."""
        return self.rows.n_samples

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
        out = np.zeros(self.n_parameters)
        for X, y in self.rows.pieces():
            out += self._piece(X, y, theta)
        return out

    def _piece(self, X: Any, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
        from fastadmm.kernels.owner_gradient import owner_csr_gradient, owner_dense_gradient

        unit = lattice_unit(self.n_samples, self.bound.xi) if self.bound.enforced else 0.0
        row_limit = self.bound.row_limit * (1.0 - (self.n_parameters + 8) * 2.0**-52)
        target_limit = self.bound.target_limit if self.loss.name == "squared" else math.inf
        limits = row_limit, target_limit, self.bound.kernel_limit(self.n_parameters)
        asked = self.loss.code, self.intercept, self.bound.euclidean, *limits, unit
        kernel: Any = owner_csr_gradient if isinstance(X, tuple) else owner_dense_gradient

        def work(piece: tuple[int, int]) -> np.ndarray:
            out = np.zeros(self.n_parameters)
            kernel(X, y, theta, asked, out, *piece)
            return out

        total = np.zeros(self.n_parameters)
        for part in self.engine.map(work, row_ranges(len(y))):
            total += part
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
