"""Numba kernels: pure functions over arrays. Nothing here imports fastadmm.

Conventions shared by all kernels: ``start, stop`` is a half-open range of rows, where nothing else is said;
losses are *summed* over the range, never averaged; outputs are written in place into arrays given by the
caller, so no kernel allocates N-vectors.

Arguments that are the same everywhere are told here only: ``indptr`` (N + 1,) of int64, ``indices`` (nnz,),
unsigned, and ``data`` (nnz,) are compressed sparse rows; other matrices are C-contiguous. ``extra`` are the
parameters of a loss. ``syrk`` and ``gemm`` are addresses of the library's routines
(:mod:`fastadmm.kernels.blas`), and ``tile`` rows are multiplied by these at once: they stay in a cache.
"""
