"""Numba kernels: pure functions over arrays. Nothing here imports fastadmm.

Conventions shared by all kernels: row ranges are half-open ``[start, stop)``;
losses are *summed* over the range, never averaged; outputs are written in
place into arrays given by the caller, so no kernel allocates N-vectors.
"""
