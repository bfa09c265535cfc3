"""Feature blocks: one party's matrix D_m behind the products that a solver needs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.tiles import TILE_BYTES, Rows, csr_tiles, dense_tiles, tile_rows
from fastadmm.engine.engine import SUMS_BUDGET, Engine, row_ranges
from fastadmm.engine.tree import Ranges, leaves_for_sums
from fastadmm.errors import InputError

Array = np.ndarray

#: Entries that are looked at before more are: most blocks show at once that not all are one.
_LOOKED_AT = 1 << 16

#: Dense matrices with at most this share of entries that are not zero are compressed: they move fewer bytes.
MOST_FILLED = 0.25

#: Matrix products of fewer columns gain nothing from single precision.
_FEWEST_ROUGH = 64

#: A dense matrix of more bytes is looked through by all cores.
_LARGE_BYTES = 1 << 22

#: Rows of a kernel matrix are made in groups of tiles of about this many bytes.
_KERNEL_GROUP_BYTES = 32 * 2**20


class FeatureBlock(ABC):
    """An N x d matrix that one party holds.

    Every sum runs tile by tile inside the engine's leaves, and a tile's rows
    depend on the data alone (:mod:`fastadmm.blocks.tiles`): where a tile comes from,
    memory or a file, cannot change a bit of the result.
    """

    shape: tuple[int, int]  # (N, d)
    nbytes: int  # memory held
    density: float  # share of stored entries
    largest: float = math.inf  # bound on the entries' absolute values; infinite where nobody has looked

    #: Rows of the whole data, where only some of them are here: ``density`` and ``largest`` are of all then.
    all_rows: int | None = None

    #: Of the content of the file that it is read from, where it is not in memory.
    digest: str | None = None

    @property
    def whole_shape(self) -> tuple[int, int]:
        """(N, d) of the whole data: what decides how it is worked on."""
        return self.all_rows or self.shape[0], self.shape[1]

    def of_rows(self, start: int, stop: int) -> FeatureBlock:
        """Some rows, without those before ``start`` and from ``stop`` on."""
        raise TypeError(f"{type(self).__name__}: a block of this kind cannot be cut by rows")

    def centred(self, centre: Array) -> FeatureBlock:
        """The block with a constant of shape (d,) subtracted from its columns; only of dense ones."""
        raise TypeError(f"{type(self).__name__}: a block of this kind cannot be centred")

    def product(self, x: Array, engine: Engine) -> Array:
        """Message ``D x`` of shape (N,) for weights x of shape (d,)."""
        out = engine.vector(self.shape[0])
        self.product_into(x, out, engine)
        return out

    @abstractmethod
    def product_into(self, x: Array, out: Array, engine: Engine) -> None:
        """Write ``D x`` to ``out`` of shape (N,)."""

    def products_into(self, x: Array, out: Array, engine: Engine) -> None:
        """Write ``D x`` for each row x of an array (C, d) to ``out`` of shape (C, N), to the bit as alone."""
        for weights, message in zip(x, out):
            self.product_into(weights, message, engine)

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""
        return self.transposed_products([v], engine)[0]

    @abstractmethod
    def transposed_products(self, vectors: Sequence[Array], engine: Engine) -> list[Array]:
        """``D.T v`` for several v, each to the bit as alone, in one pass over the data."""

    def compensated(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,), added up within leaves as if in twice the precision; v of shape (N,)."""
        raise TypeError(f"{type(self).__name__}: a block of this kind has no compensated products")

    def compensated_product(self, x: Array, engine: Engine) -> Array:
        """``D x`` of shape (N,), added up as if in twice the precision; x of shape (d,)."""
        raise TypeError(f"{type(self).__name__}: a block of this kind has no compensated products")

    def matrix_product(self, x: Array, engine: Engine) -> Array:
        """Messages of several weight vectors, of shape (C, N), for x of shape (C, d), in one pass."""
        out = np.empty((len(x), self.shape[0]))
        self.products_into(x, out, engine)
        return out

    def transposed_matrix_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of several vectors, of shape (C, d), for v of shape (C, N), in one pass."""
        return np.array(self.transposed_products(list(v), engine))

    def columns(self, numbers: Array, engine: Engine) -> Array:
        """Some columns, of shape (N, k)."""
        units = np.zeros((len(numbers), self.shape[1]))
        units[np.arange(len(numbers)), numbers] = 1.0
        found = np.empty((len(numbers), self.shape[0]))
        self.products_into(units, found, engine)
        return np.ascontiguousarray(found.T)

    def columns_into(self, out: Array, engine: Engine) -> None:
        """Write all columns, as rows, to ``out`` of shape (d, N)."""
        self.products_into(np.eye(self.shape[1]), out, engine)

    def gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        """Gram matrix ``D.T diag(weight) D`` of shape (d, d). Shapes: weight (N,)."""
        return mirrored(self.upper_gram(engine, weight, rough))

    @abstractmethod
    def upper_gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        """As :meth:`gram`, without what is below the diagonal: that may be anything."""

    def rough_gram_is_faster(self) -> bool:
        """Whether :meth:`gram` gains anything from ``rough``."""
        return False

    @abstractmethod
    def kernel_gram(self) -> Array:
        """Kernel side ``D D.T`` of shape (N, N)."""

    def column_lengths(self, exact: bool, engine: Engine) -> Any:
        r"""Upper bounds of the norms of the columns, of shape (d,), or one for all."""
        n = self.whole_shape[0]
        more = 1.0 + (n + 8) * 2.0**-52
        if exact:
            return np.sqrt(self.column_squares(engine)) * more
        if not math.isfinite(self.largest):
            self.largest = self.find_largest(engine)
        return math.sqrt(n) * self.largest * more

    def find_largest(self, engine: Engine) -> float:
        """Largest absolute value of the entries, in one pass over all of them."""
        raise TypeError(f"{type(self).__name__}: nobody has looked for the largest entry")

    @abstractmethod
    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""

    def _leaves(self, engine: Engine, numbers: int = 1) -> Ranges:
        """Leaves of a pass for so many sums: as many as rows or entries are worth."""
        (n, d), everything = self.shape, engine.all_rows(self.shape[0])
        return engine.leaves(n, *leaves_for_sums(everything, self.density * everything * d, numbers))

    def _gram_leaves(self, engine: Engine) -> Ranges:
        """Leaves of a pass that forms a Gram matrix: fewer where that is large."""
        (n, d), everything = self.shape, engine.all_rows(self.shape[0])
        entries = self.density * d  # in a row
        work = min(0.125 * everything * (entries / d) ** 2, SUMS_BUDGET / (2.0 * d * d))
        return engine.leaves(n, everything * entries, work, fewest=4)


def pass_leaves(n_rows: int, columns: int, engine: Engine) -> Ranges:
    """Leaves of a pass over dense rows that adds up a number for every column."""
    everything = engine.all_rows(n_rows)
    return engine.leaves(n_rows, *leaves_for_sums(everything, float(everything) * columns, columns))


class _Tiled(FeatureBlock):
    """A block whose rows come in tiles, from memory or from a file."""

    #: Whether all of it is there as a whole; else passes go tile by tile.
    in_memory = True

    @abstractmethod
    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        """Rows ``rows`` in order, as what kernels read of whole tiles; each is valid until the next."""

    @abstractmethod
    def _part(self, start: int, stop: int) -> Any:
        """What kernels read of some rows, held in memory."""

    def once(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        """Rows ``rows`` for one pass, which in memory needs no tiles: their sums go on from row to row."""
        return iter([(rows, self._part(*rows))]) if self.in_memory else self.tiles(rows)

    #: Module of :mod:`fastadmm.kernels`, and what the names of kernels begin with.
    _module: ClassVar[str]
    _kind: ClassVar[str]

    def _kernel(self, name: str) -> Any:
        module = "compensated" if name.startswith("compensated") else self._module
        return getattr(import_module(f"fastadmm.kernels.{module}"), f"{self._kind}_{name}")

    @property
    def _whole(self) -> tuple[Any, ...]:
        """What kernels read, held in memory."""
        return _arrays_of(self._part(0, self.shape[0]))

    @property
    def _quick(self) -> tuple[Any, ...]:
        """As :attr:`_whole`, without entries that are all one; nothing where they are not in memory."""
        return self._whole if self.in_memory else ()

    @staticmethod
    @abstractmethod
    def _entries(tile: Any) -> Array:
        """Stored numbers of a tile."""

    @abstractmethod
    def _matrix(self, tile: Any) -> Any:
        """A copy of a tile as a matrix of NumPy or SciPy."""

    def _write(self, name: str, engine: Engine, x: Array, out: Array, whole: Any = None) -> None:
        """Have a kernel write what it makes of the rows and x to ``out``, of shape (N,) or (C, N)."""
        kernel, x = self._kernel(name), np.ascontiguousarray(x)
        if self.in_memory:
            engine.over_rows(kernel, self._leaves(engine), *(whole or self._whole), x, out)
            return

        def work(rows: Rows) -> None:
            for (start, stop), tile in self.once(rows):
                kernel(*_arrays_of(tile), x, out[..., start:stop], 0, stop - start)

        engine.by_leaf(work, self._leaves(engine))

    def _added(
        self,
        kernel: Any,
        engine: Engine,
        leaves: Ranges,
        shape: tuple[int, ...],
        *vectors: Array,
        more: tuple[Any, ...] = (),
        whole: Any = None,
    ) -> Array:
        """What a kernel adds up over all rows, of vectors of shape (N,), or of none where they are empty."""
        if self.in_memory:
            return engine.sum_over_rows(kernel, leaves, shape, *(whole or self._whole), *vectors, *more)

        def work(rows: Rows) -> Array:
            total = np.zeros(shape)
            for (start, stop), tile in self.once(rows):
                own = (v[start:stop] for v in vectors)
                kernel(*_arrays_of(tile), *own, *more, total, 0, stop - start)
            return total

        return engine.sums(work, leaves, size=math.prod(shape))

    def product_into(self, x: Array, out: Array, engine: Engine) -> None:
        self._write("products", engine, x[np.newaxis], out[np.newaxis], self._quick)

    def products_into(self, x: Array, out: Array, engine: Engine) -> None:
        self._write("products", engine, x, out, self._quick)

    def compensated_product(self, x: Array, engine: Engine) -> Array:
        out = np.empty(self.shape[0])
        self._write("compensated_product", engine, x, out)
        return out

    def compensated(self, v: Array, engine: Engine) -> Array:
        d, kernel = self.shape[1], self._kernel("compensated_images")
        return self._added(kernel, engine, self._leaves(engine, d), (2, d), v).sum(axis=0)

    def transposed_products(self, vectors: Sequence[Array], engine: Engine) -> list[Array]:
        given, d = tuple(map(np.ascontiguousarray, vectors)), self.shape[1]
        leaves, kernel = self._leaves(engine, len(given) * d), self._kernel("accumulate_transposed")
        if len(given) == 1:
            return [self._added(kernel, engine, leaves, (d,), *given, whole=self._quick)]
        return self._several(given, leaves, engine)

    @abstractmethod
    def _several(self, vectors: Sequence[Array], leaves: Ranges, engine: Engine) -> list[Array]:
        """Transposed products of several vectors."""

    def column_squares(self, engine: Engine) -> Array:
        d, kernel = self.shape[1], self._kernel("column_squares")
        return self._added(kernel, engine, self._leaves(engine, d), (d,))

    def find_largest(self, engine: Engine) -> float:
        own = max(_largest(self._entries(tile)) for _, tile in self.tiles((0, self.shape[0])))
        return float(engine.each_largest([np.array([own])])[0])

    def kernel_gram(self) -> Array:
        """From pairs of tiles; a group of tiles stays in memory for one pass over the rest."""
        n, start = self.shape[0], 0
        out = np.empty((n, n))
        while start < n:
            group: list[tuple[Rows, Any]] = []
            for rows, tile in self.tiles((start, n)):
                if group and len(group) * TILE_BYTES >= _KERNEL_GROUP_BYTES:
                    break
                group.append((rows, self._matrix(tile)))
            for (a, b), tile in self.tiles((start, n)):
                own = self._matrix(tile).T
                for (c, d), kept in group:
                    if c <= a:
                        found = kept @ own
                        out[c:d, a:b] = found.toarray() if sp.issparse(found) else found
                        out[a:b, c:d] = out[c:d, a:b].T
            start = group[-1][0][1]
        return out


def _arrays_of(tile: Any) -> tuple[Array, ...]:
    return tile if isinstance(tile, tuple) else (tile,)


class DenseBlock(_Tiled):
    """A dense block; rows are contiguous. Shapes: matrix (N, d)."""

    _module, _kind = "dense_products", "dense"

    def __init__(self, matrix: Array) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float64)
        self.shape = self.matrix.shape
        self.nbytes = self.matrix.nbytes
        self.density = 1.0

    def of_rows(self, start: int, stop: int) -> FeatureBlock:
        return DenseBlock(self.matrix[start:stop].copy())

    def centred(self, centre: Array) -> FeatureBlock:
        made = DenseBlock(self.matrix - centre)
        made.all_rows = self.all_rows
        return made

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, Array]]:
        for start, stop in dense_tiles(rows, self.shape[1]):
            yield (start, stop), self.matrix[start:stop]

    def _part(self, start: int, stop: int) -> Array:
        return self.matrix[start:stop]

    @staticmethod
    def _entries(tile: Array) -> Array:
        return tile

    def _matrix(self, tile: Array) -> Array:
        return tile.copy()

    def columns(self, numbers: Array, engine: Engine) -> Array:
        if self.in_memory:
            return np.array(self.matrix[:, numbers], dtype=np.float64, order="C")
        return super().columns(numbers, engine)

    def columns_into(self, out: Array, engine: Engine) -> None:
        def work(rows: Rows) -> None:
            for (start, stop), part in self.tiles(rows):
                out[:, start:stop] = part.T

        engine.by_leaf(work, self._leaves(engine))

    def _several(self, vectors: Sequence[Array], leaves: Ranges, engine: Engine) -> list[Array]:
        shape, kernel = (len(vectors), self.shape[1]), self._kernel("accumulate_transposed")

        def work(rows: Rows) -> Array:
            totals = np.zeros(shape)
            for (start, stop), part in self.tiles(rows):
                for v, total in zip(vectors, totals):
                    kernel(part, v[start:stop], total, 0, stop - start)
            return totals

        return list(engine.sums(work, leaves, size=math.prod(shape)))

    def matrix_product(self, x: Array, engine: Engine) -> Array:
        out = np.empty((len(x), self.shape[0]))

        def work(rows: Rows) -> None:
            for (start, stop), part in self.tiles(rows):
                out[:, start:stop] = x @ part.T

        engine.by_leaf(work, self._leaves(engine))
        return out

    def transposed_matrix_product(self, v: Array, engine: Engine) -> Array:
        def work(rows: Rows) -> Array:
            total = np.zeros((len(v), self.shape[1]))
            for (start, stop), part in self.tiles(rows):
                total += v[:, start:stop] @ part
            return total

        size = len(v) * self.shape[1]
        return engine.sums(work, self._leaves(engine, size), size=size)

    def rough_gram_is_faster(self) -> bool:
        return self.shape[1] >= _FEWEST_ROUGH

    def upper_gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        from fastadmm.kernels.blas import routine

        d, own = self.shape[1], np.empty(0) if weight is None else weight
        room: Array = np.empty(d if rough else 0, np.float32 if rough else np.float64)
        told, leaves = (tile_rows(d), routine("ssyrk" if rough else "dsyrk"), room), self._gram_leaves(engine)
        return self._added(self._kernel("gram"), engine, leaves, (d, d), own, more=told)

    def some_rows(self, numbers: Array) -> DenseBlock:
        """A copy of the rows with numbers of shape (n,)."""
        return DenseBlock(self.matrix[numbers])


class CSRBlock(_Tiled):
    """A sparse block in compressed sparse rows; a tile is (indptr, indices, data). Shapes: matrix (N, d)."""

    _module, _kind = "csr", "csr"

    def __init__(self, matrix: Any) -> None:
        matrix = sp.csr_array(matrix)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        columns = int(matrix.shape[1])
        self._take(
            np.ascontiguousarray(matrix.indptr, dtype=np.int64),
            _shortest_indices(matrix.indices, columns),
            np.ascontiguousarray(matrix.data, dtype=np.float64),
            columns,
        )

    @classmethod
    def of_sorted(cls, indptr: Array, indices: Array, data: Array, n_columns: int) -> CSRBlock:
        """Block of arrays that are what the kernels take: nothing is checked or copied.

        Shapes: indptr (N + 1,); data (nnz,).
        """
        block = cls.__new__(cls)
        block._take(indptr, indices, data, n_columns)
        return block

    def _take(self, indptr: Array, indices: Array, data: Array, n_columns: int) -> None:
        self.shape = (len(indptr) - 1, n_columns)
        self.indptr, self.indices, self.data = indptr, indices, data
        self.nbytes = indptr.nbytes + indices.nbytes + data.nbytes
        self.density = len(data) / max(1, self.shape[0] * n_columns)

    def of_rows(self, start: int, stop: int) -> FeatureBlock:
        own = slice(int(self.indptr[start]), int(self.indptr[stop]))
        indptr = self.indptr[start : stop + 1] - own.start
        return CSRBlock.of_sorted(indptr, self.indices[own].copy(), self.data[own].copy(), self.shape[1])

    def some_rows(self, numbers: Array) -> CSRBlock:
        """A copy of the rows with numbers of shape (n,)."""
        starts, lengths = self.indptr[numbers], np.diff(self.indptr)[numbers]
        indptr = np.append(0, np.cumsum(lengths))
        places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
        found = CSRBlock.of_sorted(indptr, self.indices[places], self.data[places], self.shape[1])
        found.density = self.density  # of the rows of all workers, about
        return found

    @cached_property
    def all_ones(self) -> bool:
        """Whether all entries, held in memory, are one, so that no pass needs to read them."""
        parts = range(0, len(self.data), _LOOKED_AT)
        return bool(parts) and all((self.data[k : k + _LOOKED_AT] == 1.0).all() for k in parts)

    @property
    def _quick(self) -> tuple[Any, ...]:
        return (self.indptr, self.indices, None if self.all_ones else self.data) if self.in_memory else ()

    def to_scipy(self) -> sp.csr_array:
        """The block as a SciPy CSR array that shares its values."""
        if not self.in_memory:
            raise TypeError("a streamed block is never whole in memory")
        return sp.csr_array((self.data, self.indices.astype(np.int64), self.indptr), shape=self.shape)

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, tuple[Array, Array, Array]]]:
        for start, stop in csr_tiles(rows, self.indptr):
            yield (start, stop), self._part(start, stop)

    def _part(self, start: int, stop: int) -> tuple[Array, Array, Array]:
        return self.indptr[start : stop + 1], self.indices, self.data

    @staticmethod
    def _entries(tile: tuple[Array, Array, Array]) -> Array:
        return tile[2][int(tile[0][0]) : int(tile[0][-1])]

    def _matrix(self, tile: tuple[Array, Array, Array]) -> sp.csr_array:
        indptr, indices, _ = tile
        own = indices[int(indptr[0]) : int(indptr[-1])].astype(np.int64)
        shape = len(indptr) - 1, self.shape[1]
        return sp.csr_array((self._entries(tile).copy(), own, indptr - indptr[0]), shape)

    def _several(self, vectors: Sequence[Array], leaves: Ranges, engine: Engine) -> list[Array]:
        kernel, d, groups = self._kernel("accumulate_images"), self.shape[1], -(-len(vectors) // 4)

        def by_four(rows: Rows) -> Array:
            totals = np.zeros((groups, d, 4))
            for (start, stop), tile in (self.once if groups == 1 else self.tiles)(rows):
                given = np.zeros((groups, 4, stop - start))
                for k, v in enumerate(vectors):
                    given[divmod(k, 4)] = v[start:stop]
                for own, total in zip(given, totals):
                    kernel(*tile, own, total, 0, stop - start)
            return totals

        sums = engine.sums(by_four, leaves, size=len(vectors) * d)
        return [sums[k // 4, :, k % 4].copy() for k in range(len(vectors))]

    def upper_gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        d, own = self.shape[1], np.ones(self.shape[0]) if weight is None else weight
        kernel, leaves = self._kernel("accumulate_gram"), self._gram_leaves(engine)
        return self._added(kernel, engine, leaves, (d, d), own, whole=self._quick)


def _shortest_indices(indices: Array, n_columns: int) -> Array:
    """Column indices in two bytes where they fit: passes are as fast as memory delivers."""
    if n_columns <= 2**16:
        return np.ascontiguousarray(indices, dtype=np.uint16)
    return unsigned_indices(np.ascontiguousarray(indices), n_columns)


def unsigned_indices(indices: Array, n_columns: int) -> Array:
    """Column indices as the kernels take them, without a copy where only the sign is in the way."""
    # Unsigned: see fastadmm.kernels.csr.
    index_type = np.dtype(np.uint32 if n_columns < 2**32 else np.uint64)
    if indices.dtype.kind in "iu" and indices.dtype.itemsize == index_type.itemsize:
        return indices.view(index_type)
    return indices.astype(index_type)


def mirrored(upper: Array) -> Array:
    """Fill the lower triangle of a matrix of shape (d, d) from its upper one, in place."""
    d = len(upper)
    for j in range(1, d):
        upper[j, :j] = upper[:j, j]
    return upper


def as_block(matrix: Any, name: str = "block", engine: Engine | None = None) -> FeatureBlock:
    """Wrap a matrix as a feature block. Shapes: matrix (N, d)."""
    if isinstance(matrix, FeatureBlock):
        return matrix
    if sp.issparse(matrix):
        if matrix.dtype.kind == "c":
            raise InputError(f"{name}: not a matrix of numbers: complex values")
        values = matrix.data if matrix.format in ("csr", "csc") else matrix.tocsr().data
        largest = _largest(values)
        if not math.isfinite(largest):
            coo = matrix.tocoo()
            k = int(np.flatnonzero(~np.isfinite(coo.data))[0])
            raise InputError(
                f"{name}: value {coo.data[k]} in row {coo.row[k]}, column {coo.col[k]}; remove or impute it"
            )
        sparse = CSRBlock(matrix)
        if len(values) == len(sparse.data):  # otherwise entries were added up
            sparse.largest = largest
        if engine is not None:
            tell_of_all(sparse, engine, len(sparse.data))
        block: FeatureBlock = sparse
    else:
        try:
            if np.iscomplexobj(matrix):
                raise TypeError("complex values")
            array = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: not a matrix of numbers: {error}") from None
        if array.ndim != 2:
            raise InputError(f"{name}: expected a matrix (2 dimensions), got {array.ndim} dimension(s)")
        block = _dense_or_compressed(array, name, engine)
    if block.shape[0] == 0 or block.shape[1] == 0:
        raise InputError(f"{name}: empty matrix of shape {block.shape[0]} x {block.shape[1]}")
    return block


def _largest(values: Array) -> float:
    """Largest absolute value; not finite if one is not, in two quick passes without a copy."""
    if values.size == 0:
        return 0.0
    return float(np.maximum(-float(values.min()), float(values.max())))  # NaN wins


def tell_of_all(block: FeatureBlock, engine: Engine, entries: int) -> int:
    """Tell a block what is true of the rows of all workers."""
    everything = engine.all_rows(block.shape[0])
    (counts,) = engine.gather(np.array([float(entries)]))
    total = int(counts.sum())
    block.all_rows = everything
    block.density = 1.0 if isinstance(block, DenseBlock) else total / max(1, everything * block.shape[1])
    block.largest = float(engine.each_largest([np.array([block.largest])])[0])
    return total


def _dense_or_compressed(array: Array, name: str, shared: Engine | None) -> FeatureBlock:
    """A dense matrix as a block; compressed where most of it is zero."""
    from fastadmm.kernels.csr import dense_compress, dense_count

    n, d = array.shape
    array = np.ascontiguousarray(array)
    indptr, rows = np.zeros(n + 1, dtype=np.int64), row_ranges(n)
    large = array.nbytes > _LARGE_BYTES
    with Engine(None if large else 1) as engine:  # to count cores takes longer than a small block
        found = engine.map(lambda r: dense_count(array, indptr[1:], *r), rows, parallel=large)
        largest = float(np.max(found))  # NaN wins
        if not math.isfinite(largest):
            i, j = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise InputError(f"{name}: value {array[i, j]} in row {i}, column {j}; remove or impute it")
        np.cumsum(indptr, out=indptr)
        entries = int(indptr[-1])
        whole = DenseBlock(array)
        whole.largest = largest
        of_all = entries if shared is None else tell_of_all(whole, shared, entries)
        if not mostly_zero(whole, of_all):
            return whole
        indices, data = np.empty(entries, dtype=np.uint16), np.empty(entries)
        engine.map(lambda r: dense_compress(array, indptr, indices, data, *r), rows, parallel=large)
    block = CSRBlock.of_sorted(indptr, indices, data, d)
    block.largest = whole.largest
    if shared is not None:
        block.all_rows, block.density = whole.all_rows, of_all / (whole.whole_shape[0] * d)
    return block


def mostly_zero(block: DenseBlock, entries: int) -> bool:
    """Whether a dense block is worked on as a compressed one."""
    n, d = block.whole_shape
    return d <= 2**16 and entries <= MOST_FILLED * n * d


def check_scale(block: FeatureBlock, name: str, engine: Engine) -> None:
    """Refuse a block with a column whose sum of squares overflows. Shapes: block (N, d)."""
    if block.largest < math.sqrt(np.finfo(float).max / block.whole_shape[0]) / 2.0:
        return
    squares = block.column_squares(engine)
    if not np.isfinite(squares).all():
        column = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise InputError(
            f"{name}: column {column} holds values so large that their squares overflow; "
            "rescale it (for example convert --standardize)"
        )
