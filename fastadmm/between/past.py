"""Exchanges that are done with, kept so that either side can go back to them.

A party repeats old answers, a coordinator sends old requests again: whoever was
restored from a backup follows the other's files to where they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["KEPT_BYTES", "prune"]

#: What each side keeps of past exchanges, at most.
KEPT_BYTES = 1 << 30


def prune(paths: Iterable[Path]) -> None:
    """Remove the oldest files until the rest has at most :data:`KEPT_BYTES`."""
    sizes = []
    for path in paths:
        with suppress(OSError):
            sizes.append((path, path.stat().st_size))
    total = sum(size for _, size in sizes)
    for path, size in sizes:
        if total <= KEPT_BYTES:
            return
        with suppress(OSError):
            path.unlink()
            total -= size
