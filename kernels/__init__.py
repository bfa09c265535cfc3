"""Numba kernels: pure functions over arrays. Nothing here imports fastadmm.

Conventions shared by all kernels: ``start, stop`` is a half-open range of rows, where nothing else is said;
losses are *summed* over the range, never averaged; outputs are written in place into arrays given by the
caller, so no kernel allocates N-vectors.
"""
