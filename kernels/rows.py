"""Kernels over pieces of their rows: in turn, or by ``prange`` on Numba's threads.

Every piece writes to its own place, so results do not depend on which thread computes it.
"""

from fastadmm.kernels.pieces import call_piece, call_share, describe_returns, describe_rows, describe_sums
from fastadmm.kernels.policy import kernel, parallel_kernel, spliced
from numba import prange

__all__ = ["over_returns", "over_rows", "over_sums", "share_pieces"]


@parallel_kernel
def share_pieces(code, what, pieces):
    """Have the pieces of a job done by as many threads as :func:`numba.set_num_threads` was told.

    Parameters
    ----------
    code, what : int
        Addresses of the piece function and of its arguments.
    pieces : int
    """
    for piece in prange(pieces):
        call_piece(code, what, piece)


@spliced
def _do(share, described, pieces):
    code, what = described
    if share != 0:
        call_share(share, code, what, pieces)
    else:
        for piece in range(pieces):
            call_piece(code, what, piece)


@kernel
def over_rows(share, address, bounds, *arguments):
    """Call the kernel at an address with ``(*arguments, start, stop)`` for each range between bounds.

    Parameters
    ----------
    share : int
        Address of :func:`share_pieces`; 0 where the caller does all pieces in turn. It is not called by its
        name, so that a caller on one thread neither compiles it nor launches threads.
    address : int
        Of a kernel compiled for exactly these arguments.
    bounds : ndarray of int64, shape (pieces + 1,)
    *arguments
        What the kernel takes.
    """
    _do(share, describe_rows((address, bounds, *arguments)), len(bounds) - 1)


@kernel
def over_sums(share, address, bounds, own, *arguments):
    """Call the kernel at an address with ``(*arguments, own[k], start, stop)`` for the k-th range.

    Parameters
    ----------
    share, address, bounds, *arguments
        As in :func:`over_rows`.
    own : ndarray of shape (pieces, ...)
        Each piece adds to a row of its own, which is set to zero first.
    """
    _do(share, describe_sums((address, bounds, own, *arguments)), len(bounds) - 1)


@kernel
def over_returns(share, address, bounds, own, *arguments):
    """Keep what the kernel at an address returns of ``(*arguments, start, stop)`` for the k-th range.

    Parameters
    ----------
    share, address, bounds, *arguments
        As in :func:`over_rows`.
    own : ndarray of shape (pieces, at least 2)
        One number or two are written to the beginning of row k.
    """
    _do(share, describe_returns((address, bounds, own, *arguments)), len(bounds) - 1)
