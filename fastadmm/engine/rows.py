"""Kernels over rows on Numba's threads: who may use them, and where they are."""

import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from fastadmm.engine.free_cores import FREE_CORES

#: Numba's layers for several callers at a time. With its own one, `workqueue`, that ends the process.
_SAFE_LAYERS = ("omp", "tbb")

#: Addresses that were asked for, by kernel and kinds of arguments.
_ADDRESSES: dict[Any, int] = {}


@cache
def compiled() -> bool:
    """Whether kernels are compiled at all."""
    from fastadmm.kernels.policy import COMPILED

    return COMPILED


@cache
def _kinds_of() -> Callable[[tuple[Any, ...]], Any]:
    """What decides for which types a kernel is compiled: as Numba's own calls find it, in compiled code."""
    from numba import typeof
    from numba._dispatcher import compute_fingerprint

    def kinds(arguments: tuple[Any, ...]) -> Any:
        try:
            return compute_fingerprint(arguments)
        except NotImplementedError:  # arrays of other types than NumPy's, such as those of files
            return tuple(map(typeof, arguments))

    return kinds


def address_of(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """Address of a kernel's machine code for arguments of given types; compiles it where needed.

    Without the compiler the kernel itself.
    """
    if not compiled():
        return kernel
    key = kernel, _kinds_of()(arguments)
    address = _ADDRESSES.get(key)
    if address is None:
        from numba import typeof

        types = tuple(typeof(argument) for argument in arguments)
        kernel.compile(types)
        found = kernel.overloads[types]
        address = int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
        _ADDRESSES[key] = address
    return address


class _NumbaThreads:
    """Numba's threads, which are the process's: one caller uses them at a time, a second computes alone."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._share: int | None = None

    @property
    def share(self) -> int:
        """Address of the kernel that shares pieces among them; 0 where they are not for us. Launches them."""
        if self._share is None:
            self._share = _launch()
        return self._share

    def run(self, n_threads: int, runner: Any, *arguments: Any) -> Any:
        """``runner(share, *arguments)`` for so many threads, or for the caller alone."""
        if n_threads == 1 or not self.share or not self._busy.acquire(blocking=False):
            return runner(0, *arguments)
        before = 0
        try:
            FREE_CORES.share(n_threads)
            before = _limit(n_threads)
            return runner(self.share, *arguments)
        finally:
            FREE_CORES.share(n_threads)  # after a long job they would seem to be others'
            if before:
                _limit(before)
            self._busy.release()

    def after_fork(self) -> None:
        """In a child: GNU OpenMP ends it if it was forked after threads were launched, whoever did that."""
        self._busy = threading.Lock()
        if getattr(sys.modules.get("numba.np.ufunc.parallel"), "_is_initialized", False):
            self._share = 0


def _launch() -> int:
    from numba import get_num_threads
    from numba.core.compiler_lock import global_compiler_lock
    from numba.np.ufunc.parallel import threading_layer

    if not compiled():
        return 0
    with global_compiler_lock:  # a fork waits for it
        try:
            get_num_threads()
        except ValueError:  # NUMBA_THREADING_LAYER asks for one that is not there
            return 0
        if threading_layer() not in _SAFE_LAYERS:
            return 0
        from fastadmm.kernels.pieces import share_pieces

        return address_of(share_pieces, (0, 0, 0))


def _limit(n_threads: int) -> int:
    """Let this thread's jobs have so many of Numba's threads, or all; how many there were, 0 if as many."""
    from numba import config, get_num_threads, set_num_threads

    before, settings = get_num_threads(), cast(Any, config)
    now = min(n_threads, settings.NUMBA_NUM_THREADS)
    if now == before:
        return 0
    set_num_threads(now)
    return int(before)


NUMBA_THREADS = _NumbaThreads()


def over_rows(n_threads: int, kernel: Any, bounds: np.ndarray, *arguments: Any) -> None:
    """Call ``kernel(*arguments, start, stop)`` for each range between bounds.

    Shapes: bounds (pieces + 1,).
    """
    from fastadmm.kernels.pieces import over_rows as on_pieces

    address = address_of(kernel, (*arguments, 0, 0))
    NUMBA_THREADS.run(n_threads, on_pieces, address, bounds, *arguments)


def over_sums(n_threads: int, kernel: Any, bounds: np.ndarray, own: np.ndarray, *arguments: Any) -> None:
    """Call ``kernel(*arguments, own[k], start, stop)``, own[k] zero, for the k-th range between bounds."""
    from fastadmm.kernels.pieces import over_sums as on_pieces

    address = address_of(kernel, (*arguments, own[0], 0, 0))
    NUMBA_THREADS.run(n_threads, on_pieces, address, bounds, own, *arguments)
