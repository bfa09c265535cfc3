"""An owner of rows: answers gradient queries with noise, and nothing else."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.errors import InputError
from fastadmm.owners.bound import Bound, OwnerLoss
from fastadmm.owners.mechanism import GaussianAnswers, LaplaceAnswers, NoNoise, lattice_unit, make_answers

if TYPE_CHECKING:
    from fastadmm.store.owner_file import OwnerFile

#: Up to this many parameters, moments of the squared loss are kept instead of passing over the rows.
MOMENTS_UP_TO = 256


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
        batch: float = 1.0,
        engine: Engine | None = None,
    ) -> None:
        self.name, self.rows, self.loss, self.bound = name, rows, loss, bound
        self.intercept, self.epsilon, self.batch = int(intercept), epsilon, batch
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
            batch=batch,
            slack=self._moments_slack() if self.uses_moments else 0.0,
        )
        self.batch_size = rows.n_samples if batch >= 1 else max(1, round(batch * rows.n_samples))

    @property
    def n_samples(self) -> int:
        """Records of the owner."""
        return self.rows.n_samples

    @property
    def uses_moments(self) -> bool:
        """Whether one pass over the rows serves all rounds: squared loss with bounded features."""
        return (
            self.loss.name == "squared"
            and self.bound.kind == "features"
            and self.rows.kind == "dense"
            and self.batch >= 1
            and self.n_parameters <= MOMENTS_UP_TO
        )

    def _moment_size(self) -> float:
        """Largest entry of one record's moments."""
        return max(self.bound.row_norm, self.bound.target_limit, 1e-300) ** 2

    def _moments_slack(self) -> float:
        """What rounding of moments and of their product with a query adds between two neighbours."""
        p, theta_max, row = self.n_parameters, self.bound.theta_max, self.bound.row_norm
        unit = lattice_unit(self.n_samples, self._moment_size())
        wide = math.sqrt(p) * row
        product = self.n_samples * wide * (wide * theta_max + self.bound.target_limit)
        return p * (p * theta_max + 1.0) * unit + 2.0 * (p + 4) * 2.0**-53 * product

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
        mask = None
        if self.batch_size < self.n_samples:
            from fastadmm.owners.mechanism import secret_batch

            mask = secret_batch(self.n_samples, self.batch_size)
        total = self.total(theta, mask)
        if not np.isfinite(total).all():  # a NaN in an answer would tell about a record
            raise InputError(f"{self.name}: gradients overflow; scale the features, or bound them")
        return self.answers.answer(total) / self.batch_size

    def total(self, theta: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Exact sum of bounded gradients, which never leaves. Shapes: theta, the result (p,); mask (n,)."""
        if mask is None and self.uses_moments:
            gram, cross, _ = self.moments
            result: np.ndarray = gram @ theta - cross
            return result
        out = np.zeros(self.n_parameters)
        start = 0
        for X, y in self.rows.pieces():
            chosen = None if mask is None else mask[start : start + len(y)]
            out += self._piece(*_chosen_rows(X, y, chosen), theta)
            start += len(y)
        return out

    def _piece(self, X: Any, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
        from fastadmm.kernels.owner_gradient import owner_csr_gradient, owner_dense_gradient

        unit = lattice_unit(self.n_samples, self.bound.xi) if self.bound.enforced else 0.0
        target_limit = self.bound.target_limit if self.loss.name == "squared" else math.inf
        limits = self._row_limit(), target_limit, self.bound.kernel_limit(self.n_parameters)
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

    def _row_limit(self) -> float:
        return self.bound.row_limit * (1.0 - (self.n_parameters + 8) * 2.0**-52)

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Gram matrix (p, p), products with the targets (p,), and squared targets, of the bounded rows."""
        from fastadmm.kernels.owner_gradient import owner_dense_moments

        size = self.n_parameters + 1
        unit = 0.0
        if self.bound.enforced and math.isfinite(self._moment_size()):
            unit = lattice_unit(self.n_samples, self._moment_size())
        total = np.zeros((size, size))
        for X, y in self.rows.pieces():

            def work(piece: tuple[int, int], X: Any = X, y: np.ndarray = y) -> np.ndarray:
                out = np.zeros((size, size))
                owner_dense_moments(
                    X, y, self.intercept, self.bound.euclidean, self._row_limit(), self.bound.target_limit,
                    unit, out, *piece,
                )  # fmt: skip
                return out

            for part in self.engine.map(work, row_ranges(len(y))):
                total += part
        total += np.triu(total, 1).T
        return total[:-1, :-1].copy(), total[:-1, -1].copy(), float(total[-1, -1])

    def loss_sum(self, theta: np.ndarray) -> float:
        """Summed loss of the (scaled) records, without noise, for simulations only. Shapes: theta (p,)."""
        if self.uses_moments:
            gram, cross, square = self.moments
            return float(0.5 * theta @ gram @ theta - cross @ theta + 0.5 * square)
        from scipy import sparse

        total = 0.0
        weights, constant = theta[: self.rows.n_features], float(theta[-1]) if self.intercept else 0.0
        for X, y in self.rows.pieces():
            if isinstance(X, tuple):
                X = sparse.csr_array((X[2], X[1].astype(np.int64), X[0]), shape=(len(y), len(weights)))
            z = scaled(X, self.bound) @ weights + constant
            target = np.clip(y, -self.bound.target_limit, self.bound.target_limit)
            total += float(self.loss.values(z, target if self.loss.name == "squared" else y).sum())
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


def _chosen_rows(X: Any, y: np.ndarray, mask: np.ndarray | None) -> tuple[Any, np.ndarray]:
    if mask is None:
        return X, y
    if not isinstance(X, tuple):
        return np.ascontiguousarray(X[mask]), y[mask]
    indptr, indices, data = X
    lengths = np.diff(indptr)[mask]
    entries = np.repeat(mask, np.diff(indptr))
    return (np.concatenate([[0], np.cumsum(lengths)]), indices[entries], data[entries]), y[mask]
