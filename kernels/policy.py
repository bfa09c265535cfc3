"""Compile flags of every kernel, decided in one place.

``error_model="numpy"``
    Division by zero gives inf instead of raising: the raise is an early exit,
    and loops with early exits are not vectorised by LLVM.
``nogil=True``
    Kernels are serial over a row range; one parallel kernel runs fixed row ranges of
    any of them on several threads (:mod:`fastadmm.kernels.pieces`). So results cannot depend on the number of
    threads, cold compilation stays short (Numba's parallel target multiplies it), and
    caching is safe.
``cache=True``
    Compiled once per machine and version of the sources, in the directory that
    :mod:`fastadmm.kernels.cache` chooses, also for a read-only installation. Each file has a digest
    (:mod:`fastadmm.kernels.checked_cache`).

``fastmath`` is never given here: it would allow reassociation upstream of
privacy noise, and reductions that differ between machines.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from fastadmm.kernels.cache import cache_directory, make_safe, readable_directories
from fastadmm.kernels.checked_cache import check_digests, subdirectory
from fastadmm.kernels.compilation import tell
from numba import njit as _njit
from numba.core import event
from numba.extending import intrinsic as _intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Numba takes the directory from its configuration, which is the process's.
_CONFIGURATION = threading.Lock()
_SETTINGS: Any = numba.config

#: Without the compiler kernels run as Python and have no addresses.
COMPILED = not _SETTINGS.DISABLE_JIT

#: Their types do not tell all of their options, and Numba, not the caller, gives the typing context.
njit: Any = _njit
intrinsic: Any = _intrinsic


def kernel(function: _Function, parallel: bool = False) -> _Function:
    """Compile a kernel that is called from Python; ``parallel``: whose ``prange`` runs on Numba's threads."""
    module = function.__module__.rpartition(".")[2]
    directory, below = cache_directory(module), subdirectory(function)
    if directory is not None and not make_safe(directory / below):
        directory = None
    with _CONFIGURATION:
        before = _SETTINGS.CACHE_DIR
        _SETTINGS.CACHE_DIR = str(directory or "")
        try:
            compiled: Any = njit(
                cache=directory is not None,
                nogil=True,
                error_model="numpy",
                parallel=parallel,
                no_cfunc_wrapper=True,
            )(function)
        finally:
            _SETTINGS.CACHE_DIR = before
    if COMPILED:
        check_digests(compiled, [place / below for place in readable_directories(module)])
    return compiled


def inline(function: _Function) -> _Function:
    """Compile a scalar function that kernels call; always inlined, since a call stops vectorisation."""
    compiled: Any = njit(error_model="numpy", forceinline=True, no_cfunc_wrapper=True)(function)
    return compiled


def spliced(function: _Function) -> _Function:
    """Make a function part of the kernels that call it before they are compiled.

    For a large one that calls others: with :func:`inline` LLVM would optimise it once by itself, and again
    inside every caller, at every level.
    """
    compiled: Any = njit(error_model="numpy", inline="always", no_cfunc_wrapper=True)(function)
    return compiled


class _Listener(event.Listener):
    """Passes on the beginning and end of every compilation of a kernel, not of what it inlines."""

    def __init__(self) -> None:
        # Numba compiles under one lock: these need none.
        self.depth, self.begin = 0, 0.0

    def _tell(self, happened: event.Event, seconds: float | None) -> None:
        function = happened.data["dispatcher"].py_func
        if self.depth == 0 and function.__module__.startswith("fastadmm.kernels."):
            tell(f"{function.__module__}.{function.__name__}".removeprefix("fastadmm.kernels."), seconds)

    def on_start(self, happened: event.Event) -> None:
        if self.depth == 0:
            self.begin = time.perf_counter()
        self._tell(happened, None)
        self.depth += 1

    def on_end(self, happened: event.Event) -> None:
        self.depth -= 1
        self._tell(happened, time.perf_counter() - self.begin)


event.register("numba:compile", _Listener())
