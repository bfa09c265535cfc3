"""Feature blocks: one party's matrix D_m behind the products that a solver needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.engine import Engine, row_ranges
from fastadmm.errors import InputError

__all__ = ["CSRBlock", "DenseBlock", "FeatureBlock", "as_block", "check_scale"]

Array = np.ndarray

#: Memory that partial Gram matrices of one block may take, in bytes.
_GRAM_BUDGET = 256 * 2**20


class FeatureBlock(ABC):
    """An N x d matrix that one party holds.

    Attributes
    ----------
    shape : tuple of int
        (N, d).
    nbytes : int
        Memory held.
    density : float
        Share of stored entries.
    """

    shape: tuple[int, int]
    nbytes: int
    density: float

    @abstractmethod
    def product(self, x: Array, engine: Engine) -> Array:
        """Message ``D x`` of shape (N,) for weights x of shape (d,)."""

    @abstractmethod
    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""

    @abstractmethod
    def gram(self, engine: Engine, weight: Array | None = None) -> Array:
        """Gram matrix ``D.T diag(weight) D`` of shape (d, d); weight of shape (N,) is not negative."""

    @abstractmethod
    def kernel_gram(self) -> Array:
        """Kernel side ``D D.T`` of shape (N, N)."""

    @abstractmethod
    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""

    def _gram_pieces(self) -> list[tuple[int, int]]:
        d = self.shape[1]
        return row_ranges(self.shape[0], max(1, min(4, _GRAM_BUDGET // max(8 * d * d, 1))))


class DenseBlock(FeatureBlock):
    """A dense block; rows are contiguous.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        Values; kept without a copy where already C-contiguous float64.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float64)
        self.shape = self.matrix.shape
        self.nbytes = self.matrix.nbytes
        self.density = 1.0

    def product(self, x: Array, engine: Engine) -> Array:
        out = np.empty(self.shape[0])

        def work(rows: tuple[int, int]) -> None:
            np.dot(self.matrix[rows[0] : rows[1]], x, out=out[rows[0] : rows[1]])

        engine.map(work, row_ranges(self.shape[0]))
        return out

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        parts = engine.map(
            lambda rows: v[rows[0] : rows[1]] @ self.matrix[rows[0] : rows[1]], row_ranges(self.shape[0])
        )
        return _sum_in_order(parts)

    def gram(self, engine: Engine, weight: Array | None = None) -> Array:
        def work(rows: tuple[int, int]) -> Array:
            part = self.matrix[rows[0] : rows[1]]
            if weight is None:
                return part.T @ part
            # Scaled on one side it would not be symmetric to the last bit.
            part = part * np.sqrt(weight[rows[0] : rows[1], None])
            return part.T @ part

        return _sum_in_order(engine.map(work, self._gram_pieces()))

    def kernel_gram(self) -> Array:
        return self.matrix @ self.matrix.T

    def column_squares(self, engine: Engine) -> Array:
        def work(rows: tuple[int, int]) -> Array:
            part = self.matrix[rows[0] : rows[1]]
            return np.einsum("ij,ij->j", part, part)

        return _sum_in_order(engine.map(work, row_ranges(self.shape[0])))


class CSRBlock(FeatureBlock):
    """A sparse block in compressed sparse rows.

    Parameters
    ----------
    matrix : scipy sparse array or matrix of shape (N, d)
        Converted to CSR with sorted, distinct column indices.
    """

    def __init__(self, matrix: Any) -> None:
        matrix = sp.csr_array(matrix)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.indptr = np.ascontiguousarray(matrix.indptr, dtype=np.int64)
        # Unsigned: see fastadmm.kernels.csr.
        index_type = np.uint32 if self.shape[1] < 2**32 else np.uint64
        self.indices = np.ascontiguousarray(matrix.indices).astype(index_type, copy=False)
        self.data = np.ascontiguousarray(matrix.data, dtype=np.float64)
        self.nbytes = self.indptr.nbytes + self.indices.nbytes + self.data.nbytes
        self.density = len(self.data) / max(1, self.shape[0] * self.shape[1])

    def to_scipy(self) -> sp.csr_array:
        """The block as a SciPy CSR array that shares its values."""
        return sp.csr_array((self.data, self.indices.astype(np.int64), self.indptr), shape=self.shape)

    def product(self, x: Array, engine: Engine) -> Array:
        from fastadmm.kernels.csr import csr_product

        out = np.empty(self.shape[0])
        engine.map(
            lambda rows: csr_product(self.indptr, self.indices, self.data, x, out, *rows),
            row_ranges(self.shape[0]),
        )
        return out

    def _accumulate(self, kernel: Any, engine: Engine, *arguments: Array) -> Array:
        def work(rows: tuple[int, int]) -> Array:
            out = np.zeros(self.shape[1])
            kernel(self.indptr, self.indices, self.data, *arguments, out, *rows)
            return out

        return _sum_in_order(engine.map(work, row_ranges(self.shape[0])))

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        from fastadmm.kernels.csr import csr_accumulate_transposed

        return self._accumulate(csr_accumulate_transposed, engine, v)

    def gram(self, engine: Engine, weight: Array | None = None) -> Array:
        from fastadmm.kernels.csr import csr_accumulate_gram

        d = self.shape[1]
        data = self.data if weight is None else self.data * np.repeat(np.sqrt(weight), np.diff(self.indptr))

        def work(rows: tuple[int, int]) -> Array:
            out = np.zeros((d, d))
            csr_accumulate_gram(self.indptr, self.indices, data, out, *rows)
            return out

        upper = _sum_in_order(engine.map(work, self._gram_pieces()))
        return upper + np.triu(upper, 1).T

    def kernel_gram(self) -> Array:
        matrix = self.to_scipy()
        return (matrix @ matrix.T).toarray()

    def column_squares(self, engine: Engine) -> Array:
        from fastadmm.kernels.csr import csr_column_squares

        return self._accumulate(csr_column_squares, engine)


def _sum_in_order(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def as_block(matrix: Any, name: str = "block") -> FeatureBlock:
    """Wrap a matrix as a feature block.

    Parameters
    ----------
    matrix : ndarray, scipy sparse, pandas DataFrame or FeatureBlock, of shape (N, d)
        Finite values.
    name : str
        What error messages call it.

    Returns
    -------
    FeatureBlock

    Raises
    ------
    InputError
        If it is not a numeric matrix with at least one row and column, or
        holds NaN or infinity (the message names row and column).
    """
    if isinstance(matrix, FeatureBlock):
        return matrix
    if sp.issparse(matrix):
        if matrix.dtype.kind == "c":
            raise InputError(f"{name}: not a matrix of numbers: complex values")
        values = matrix.data if matrix.format in ("csr", "csc") else matrix.tocsr().data
        if not np.isfinite(values).all():
            coo = matrix.tocoo()
            k = int(np.flatnonzero(~np.isfinite(coo.data))[0])
            raise InputError(
                f"{name}: value {coo.data[k]} in row {coo.row[k]}, column {coo.col[k]}; remove or impute it"
            )
        block: FeatureBlock = CSRBlock(matrix)
    else:
        try:
            if np.iscomplexobj(matrix):
                raise TypeError("complex values")
            array = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: not a matrix of numbers: {error}") from None
        if array.ndim != 2:
            raise InputError(f"{name}: expected a matrix (2 dimensions), got {array.ndim} dimension(s)")
        if not np.isfinite(array).all():
            i, j = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise InputError(f"{name}: value {array[i, j]} in row {i}, column {j}; remove or impute it")
        block = DenseBlock(array)
    if block.shape[0] == 0 or block.shape[1] == 0:
        raise InputError(f"{name}: empty matrix of shape {block.shape[0]} x {block.shape[1]}")
    return block


def check_scale(block: FeatureBlock, name: str, engine: Engine) -> Array:
    """Column sums of squares of a block, refusing values whose squares overflow.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    name : str
        What the error message calls it.
    engine : Engine

    Returns
    -------
    ndarray of shape (d,)
        Diagonal of the Gram matrix.

    Raises
    ------
    InputError
        If one is not finite; the message names the column.
    """
    squares = block.column_squares(engine)
    if not np.isfinite(squares).all():
        column = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise InputError(
            f"{name}: column {column} holds values so large that their squares overflow; "
            "rescale it (for example convert --standardize)"
        )
    return squares
