"""A file that appears under its name only when its writer is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from fastadmm.errors import FastadmmError, InputError


class _Abort(Exception):
    """Thrown into the output's context manager to discard the temporary file."""


class Writer(ABC):
    """Base of writers that are context managers; when the ``with`` block raises, nothing remains."""

    #: The file, as messages name it.
    _shown: str

    def __init__(self) -> None:
        self.state = "open"
        self._stack = ExitStack()

    @abstractmethod
    def _finish(self) -> None:
        """Write what completes the file; raises InputError where something is missing."""

    def _require_open(self) -> None:
        if self.state != "open":
            raise InputError(f"{self._shown}: the writer is {self.state} already")

    def close(self) -> None:
        """Complete the file and give it its name."""
        self._require_open()
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise
        self.state = "aborted"  # unless the rename below succeeds
        self._stack.close()
        self.state = "closed"

    def abort(self) -> None:
        """Discard the file; nothing happens if it is complete already."""
        if self.state == "open":
            self.state = "aborted"
            with suppress(_Abort, FastadmmError):
                self._stack.__exit__(_Abort, _Abort(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self.state == "open":
            self.close()
