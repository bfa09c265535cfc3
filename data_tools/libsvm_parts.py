"""LIBSVM text in many files: read side by side, kept in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.large_text import LARGE
from fastadmm.data_tools.libsvm import LibsvmSource
from fastadmm.data_tools.opening import SourceFile


class LibsvmParts:
    """Files whose rows follow one another."""

    kind, quick = "csr", False
    feature_names: list[str] | None = None

    def __init__(
        self, path: str, files: Sequence[SourceFile], *, n_features: int | None, zero_based: bool
    ) -> None:
        self.path, self.n_features = path, n_features
        large = sum(file.size for file in files) >= LARGE
        self.parts = [
            LibsvmSource(file, n_features=n_features, zero_based=zero_based, threads=False, large=large)
            for file in files
        ]
        self.rows: list[int] = []

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows of all files; see :meth:`LibsvmSource.blocks`."""
        first = before = 0
        for part in self.parts:
            rows = 0

            def told(done: int, before: int = before) -> None:
                assert on_read is not None
                on_read(before + done)

            for block in part.blocks(told if on_read is not None else None):
                yield replace(block, first_row=first + block.first_row)
                rows += len(block.labels)
            first, before = first + rows, before + part.source.size

    def where(self, row: int) -> str:
        """File and line of a zero-based row."""
        for part, rows in zip(self.parts, self.rows):
            if row < rows:
                return f"{part.path}, {part.where(row)}"
            row -= rows
        return f"row {row + 1}"
