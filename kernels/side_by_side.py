"""Sparse rows of several matrices side by side: every row's entries are those of the first, then the next."""

import numpy as np
from fastadmm.kernels.policy import kernel


@kernel
def append_csr(indptr, indices, data, first, places, out_indices, out_data, start, stop):
    """Write the entries of a range of rows behind those that the rows have.

    Entry by entry, because branches on the lengths of short rows cannot be predicted.

    Shapes: places (N,) of int64; out_indices (nnz of the result,); out_data (nnz of the result,).
    ``first``: column of the whole that is this matrix's first. ``places``: where each row's next entry goes;
    moved on.
    """
    begin, end = np.uint64(indptr[start]), np.uint64(indptr[stop])
    # Of each entry, rows that begin with it; of each row, how far its entries move.
    begins, moves = np.zeros(end - begin + np.uint64(1), dtype=np.int32), np.empty(stop - start, np.int64)
    for i in range(start, stop):
        moves[i - start] = places[i] - indptr[i]
        places[i] += indptr[i + 1] - indptr[i]
    for i in range(start + 1, stop):
        begins[np.uint64(indptr[i]) - begin] += 1
    row = np.uint64(0)
    for k in range(begin, end):
        row += np.uint64(begins[k - begin])
        place = np.uint64(k + moves[row])
        out_indices[place] = indices[k] + first
        out_data[place] = data[k]
