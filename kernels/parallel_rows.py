"""Pieces of one kernel on Numba's own threads: ``prange`` over the pieces that a crew would share.

The pieces and what they contain are those of :mod:`fastadmm.kernels.crew`, so results have the same bits.
"""

from __future__ import annotations

from fastadmm.kernels.pieces import call_piece, describe_rows, describe_sums
from fastadmm.kernels.policy import kernel, parallel_kernel
from numba import prange

__all__ = ["parallel_post", "parallel_rows", "parallel_sums"]


@parallel_kernel
def parallel_post(code, what, pieces):
    """Have the pieces of a job done by as many threads as :func:`numba.set_num_threads` was told.

    Parameters
    ----------
    code, what : int
        Addresses of the piece function and of its arguments.
    pieces : int
    """
    for piece in prange(pieces):
        call_piece(code, what, piece)


@kernel
def parallel_rows(address, bounds, *arguments):
    """As :func:`fastadmm.kernels.crew.over_rows`.

    Parameters
    ----------
    address, bounds, *arguments
        As there.
    """
    code, what = describe_rows((address, bounds, *arguments))
    parallel_post(code, what, len(bounds) - 1)


@kernel
def parallel_sums(address, bounds, own, *arguments):
    """As :func:`fastadmm.kernels.crew.over_sums`.

    Parameters
    ----------
    address, bounds, own, *arguments
        As there.
    """
    code, what = describe_sums((address, bounds, own, *arguments))
    parallel_post(code, what, len(bounds) - 1)
