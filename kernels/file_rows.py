"""Products with rows that are read from a file tile by tile, without the interpreter in between.

A thread that returns to the interpreter after every tile waits there for the
others, for longer than a tile takes from the page cache. So these kernels read
(``pread``, into one buffer that stays in the core's cache) and compute, many
tiles in a call. A read that fails ends the call, which returns the row it
failed at: the caller reads that row again and hears from the system why.
"""

import ctypes
import os
from typing import Any

import numpy as np
from fastadmm.kernels.csr import add_csr_rows, add_csr_rows_of_four, multiply_csr_rows
from fastadmm.kernels.dense_products import add_rows
from fastadmm.kernels.dense_rows import multiply_rows
from fastadmm.kernels.policy import COMPILED, inline, kernel
from numba import types

#: Of the C library; the address is an integer as wide as a pointer.
_compiled: Any = types.ExternalFunction(
    "pread", types.intp(types.int32, types.intp, types.uintp, types.int64)
)


def _interpreted(descriptor, address, count, place):
    """``pread`` for runs without the compiler."""
    found = os.pread(descriptor, int(count), int(place))
    ctypes.memmove(int(address), found, len(found))
    return len(found)


_pread: Any = _compiled if COMPILED else _interpreted


@inline
def read_rows(descriptor, offsets, chunk_rows, row_bytes, start, stop, address):
    """Copy rows of a dataset stored as it is to an address; return whether all of them came."""
    row = start
    while row < stop:
        chunk = row // chunk_rows
        until = min(stop, (chunk + 1) * chunk_rows)
        place = offsets[chunk] + (row - chunk * chunk_rows) * row_bytes
        missing = (until - row) * row_bytes
        while missing > 0:
            count = _pread(np.int32(descriptor), address, np.uint64(missing), place)
            if count <= 0:
                return False
            address, place, missing = address + count, place + count, missing - count
        row = until
    return True


@kernel
def read_range(descriptor, offsets, chunk_rows, row_bytes, start, stop, out):
    """Copy the rows of a range to a buffer.

    Shapes: offsets (number of chunks,) of int64; out (rows, ...).
    ``descriptor``: open file. ``offsets``: where in the file each chunk begins. ``chunk_rows``,
    ``row_bytes``: rows of a chunk; bytes of a row. ``out``: contiguous, of at least as many bytes.
    Returns: whether all of them came.
    """
    return read_rows(descriptor, offsets, chunk_rows, row_bytes, start, stop, np.int64(out.ctypes.data))


@inline
def _widen(stored, values, factor, count):
    """Stored values as the kernels take them, times a factor; in place where they are wide already."""
    if factor != 1.0 or stored.ctypes.data != values.ctypes.data:
        for k in range(count):
            values[k] = np.float64(stored[k]) * factor


@kernel
def dense_product_from_file(
    x, out, descriptor, offsets, chunk_rows, stored, values, factor, step, start, stop
):
    """As :func:`fastadmm.kernels.dense_products.dense_product`, for rows in a file.

    Shapes: x (d,); out (at least stop - start,); stored (step * d,); values (step * d,).
    ``out``: from row ``start``. ``stored``: buffer of the stored type. ``values``: the same object where that
    is the stored type; another buffer otherwise. ``factor``: what every value is multiplied by. ``step``:
    rows of a tile. Others as in :func:`read_range`.
    Returns: first row that is not done: ``stop``, or of a tile that could not be read.
    """
    d = len(x)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        count = (last - first) * d
        if not read_rows(
            descriptor, offsets, chunk_rows, d * stored.itemsize, first, last, np.int64(stored.ctypes.data)
        ):
            return first
        _widen(stored, values, factor, count)
        multiply_rows(values[:count].reshape(last - first, d), x, out[first - start : last - start])
    return stop


@kernel
def dense_transposed_from_file(
    vectors, out, descriptor, offsets, chunk_rows, stored, values, factor, step, start, stop
):
    """Add images of vectors under ``D.T``, for rows in a file.

    Shapes: vectors (C, at least stop - start); out (C, d).
    ``vectors``: from row ``start``. ``out``: sums that are added to. Others as in
    :func:`dense_product_from_file`.
    Returns: first row that is not done.
    """
    d = out.shape[1]
    for first in range(start, stop, step):
        last = min(first + step, stop)
        count = (last - first) * d
        if not read_rows(
            descriptor, offsets, chunk_rows, d * stored.itemsize, first, last, np.int64(stored.ctypes.data)
        ):
            return first
        _widen(stored, values, factor, count)
        tile = values[:count].reshape(last - first, d)
        begin, end = first - start, last - start
        for c in range(len(out)):
            add_rows(tile, np.ascontiguousarray(vectors[c, begin:end]), out[c], 0, last - first)
    return stop


@inline
def _tile_end(indptr, first, stop, most):
    """End of the tile of at most so many entries, or one row, that begins at a row."""
    last = first + 1
    reach = indptr[first] + most
    while last < stop and indptr[last + 1] <= reach:
        last += 1
    return last


@inline
def _csr_tile(descriptor, places, chunk_rows, indices, stored, values, factor, begin, end):
    """Read a range of entries; return whether all of them came."""
    size, address = indices.itemsize, np.int64(indices.ctypes.data)
    found = read_rows(descriptor, places[0], chunk_rows[0], size, begin, end, address)
    size, address = stored.itemsize, np.int64(stored.ctypes.data)
    found = found and read_rows(descriptor, places[1], chunk_rows[1], size, begin, end, address)
    if found:
        _widen(stored, values, factor, end - begin)
    return found


@kernel
def csr_product_from_file(
    x, out, descriptor, places, chunk_rows, indices, stored, values, factor, indptr, start, stop
):
    """As :func:`fastadmm.kernels.csr.csr_product`, for entries in a file.

    Shapes: x (d,); out (at least stop - start,); indices, stored (most,); values (most,).
    ``out``: from row ``start``. ``descriptor``: open file. ``places``: where in the file each chunk of
    indices, and of values begins. ``chunk_rows``: entries of a chunk of either. ``indices``, ``stored``:
    buffers of the stored types, indices as unsigned integers; no row has more entries. ``values``: the same
    object as ``stored`` where that is the stored type; another buffer otherwise. ``factor``: what every value
    is multiplied by.
    Returns: first row that is not done: ``stop``, or of a tile that could not be read.
    """
    first = start
    while first < stop:
        last = _tile_end(indptr, first, stop, len(indices))
        begin, end = indptr[first], indptr[last]
        if not _csr_tile(descriptor, places, chunk_rows, indices, stored, values, factor, begin, end):
            return first
        multiply_csr_rows(indptr, begin, indices, values, x, start, out, first, last)
        first = last
    return stop


@kernel
def csr_transposed_from_file(
    v, out, descriptor, places, chunk_rows, indices, stored, values, factor, indptr, start, stop
):
    """As :func:`fastadmm.kernels.csr.csr_accumulate_transposed`, for entries in a file.

    Shapes: v (at least stop - start,); out (d,).
    ``v``: from row ``start``. ``out``: sums that are added to. Others as in :func:`csr_product_from_file`.
    Returns: first row that is not done.
    """
    first = start
    while first < stop:
        last = _tile_end(indptr, first, stop, len(indices))
        begin, end = indptr[first], indptr[last]
        if not _csr_tile(descriptor, places, chunk_rows, indices, stored, values, factor, begin, end):
            return first
        add_csr_rows(indptr, begin, indices, values, v, start, out, first, last)
        first = last
    return stop


@kernel
def csr_images_from_file(
    vectors, out, descriptor, places, chunk_rows, indices, stored, values, factor, indptr, start, stop
):
    """As :func:`fastadmm.kernels.csr.csr_accumulate_images`, for entries in a file.

    Shapes: vectors (4 G, at least stop - start); out (G, d, 4).
    ``vectors``: from row ``start``; zero where fewer are wanted. ``out``: sums that are added to. Others as
    in :func:`csr_product_from_file`.
    Returns: first row that is not done.
    """
    first = start
    while first < stop:
        last = _tile_end(indptr, first, stop, len(indices))
        begin, end = indptr[first], indptr[last]
        if not _csr_tile(descriptor, places, chunk_rows, indices, stored, values, factor, begin, end):
            return first
        for g in range(len(out)):
            own = vectors[4 * g : 4 * g + 4]
            add_csr_rows_of_four(indptr, begin, indices, values, own, start, out[g], first, last)
        first = last
    return stop
