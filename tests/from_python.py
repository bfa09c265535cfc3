"""Calls of functions that only kernels can call."""

from __future__ import annotations

from numba import njit

__all__ = ["call"]


@njit(error_model="numpy")
def call(function, *arguments):
    """What an inlined function of :mod:`fastadmm.kernels.policy` makes of arguments."""
    return function(*arguments)
