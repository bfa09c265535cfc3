"""What shares the pieces of a kernel among threads: who computes a piece, never what it contains."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = ["ALONE", "RowThreads", "address_of"]

#: Addresses that were asked for, by kernel and kinds of arguments.
_ADDRESSES: dict[Any, int] = {}


def _kind(argument: Any) -> Any:
    """What decides for which types a kernel is compiled, found faster than Numba's own types."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    return type(argument)


def address_of(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Address of a kernel's machine code for arguments of given types; compiles it where needed.

    Parameters
    ----------
    kernel : Numba dispatcher
    arguments : tuple
        Arrays and numbers.
    """
    key = (kernel, *map(_kind, arguments))
    address = _ADDRESSES.get(key)
    if address is None:
        from numba import typeof

        types = tuple(typeof(argument) for argument in arguments)
        kernel.compile(types)
        compiled = kernel.overloads[types]
        address = int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
        _ADDRESSES[key] = address
    return address


class RowThreads(ABC):
    """Threads that compute the pieces of kernels over rows.

    Parameters
    ----------
    n_threads : int
        The caller among them.

    Attributes
    ----------
    process : int
        Where the threads are: they do not survive a fork.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads, self.process = n_threads, os.getpid()

    @abstractmethod
    def over_rows(self, address: int, bounds: np.ndarray, *arguments: Any) -> None:
        """Call the kernel at an address with ``(*arguments, start, stop)`` for each range between bounds."""

    @abstractmethod
    def over_sums(self, address: int, bounds: np.ndarray, own: np.ndarray, *arguments: Any) -> None:
        """The same with ``(*arguments, own[k], start, stop)`` for the k-th range."""

    def close(self) -> None:  # noqa: B027 (there may be nothing to end)
        """End the threads."""


class _Alone(RowThreads):
    """The caller, piece after piece."""

    _nobody = np.empty(0, dtype=np.int64)

    def over_rows(self, address: int, bounds: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.crew import over_rows

        over_rows(self._nobody, address, bounds, *arguments)

    def over_sums(self, address: int, bounds: np.ndarray, own: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.crew import over_sums

        over_sums(self._nobody, address, bounds, own, *arguments)


#: Where nobody helps.
ALONE = _Alone(1)
