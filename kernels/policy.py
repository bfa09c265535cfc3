"""Compile flags of every kernel, decided in one place.

``error_model="numpy"``
    Division by zero gives inf instead of raising: the raise is an early exit,
    and loops with early exits are not vectorised by LLVM.
``nogil=True``
    Kernels are serial over a row range; the engine runs fixed row ranges on a
    thread pool. So results cannot depend on the number of threads, cold
    compilation stays short (Numba's own parallel target multiplies it), and
    caching is safe.
``cache=True``
    Compiled once per machine. A read-only installation falls back to Numba's
    user-wide cache directory.

``fastmath`` is never given here: it would allow reassociation upstream of
privacy noise, and reductions that differ between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

__all__ = ["inline", "kernel"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile a kernel that is called from Python."""
    compiled: Any = njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inline(function: _Function) -> _Function:
    """Compile a scalar function that kernels call; always inlined, since a call stops vectorisation."""
    compiled: Any = njit(error_model="numpy", forceinline=True)(function)
    return compiled
