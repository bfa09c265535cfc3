"""Kernels over pieces of their rows: in turn, or by ``prange`` on Numba's threads.

Every piece writes to its own place, so results do not depend on which thread computes it.
"""

from __future__ import annotations

from fastadmm.kernels.pieces import (
    call_piece,
    call_share,
    describe_returns,
    describe_rows,
    describe_sums,
    keep_described_rows,
)
from fastadmm.kernels.policy import kernel, parallel_kernel, spliced
from numba import prange

__all__ = [
    "keep_rows",
    "over_returns",
    "over_rows",
    "over_sums",
    "pieces_of_jobs",
    "share_pieces",
]


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


@kernel
def keep_rows(room, address, bounds, *arguments):
    """Describe a job of :func:`over_rows` for :func:`pieces_of_jobs`; the address of its piece function.

    Parameters
    ----------
    room : ndarray of int64, shape (any,)
        Written to: what the piece function is told. All arrays have to live until the job is done. Where it
        is too small for that, the address is 0.
    address, bounds, *arguments
        As of :func:`over_rows`.
    """
    return keep_described_rows((address, bounds, *arguments), room)


@kernel
def pieces_of_jobs(jobs, start, stop):
    """Do some of the pieces of several jobs, one job's behind another's.

    Parameters
    ----------
    jobs : ndarray of int64, shape (J, 3)
        Addresses of a job's piece function and of what that is told; pieces of all jobs up to this one.
    start, stop : int
        Range of pieces.
    """
    job = 0
    for piece in range(start, stop):
        while piece >= jobs[job, 2]:
            job += 1
        call_piece(jobs[job, 0], jobs[job, 1], piece - (jobs[job - 1, 2] if job > 0 else 0))
