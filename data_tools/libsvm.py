"""LIBSVM text, read in blocks of complete lines.

A block goes through scikit-learn's compiled reader, or, if the file is large, through one of our own. Where
that refuses a block, or would let something pass that is not LIBSVM text proper, the block is parsed again,
slowly, to name the line and the token at fault.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.large_text import LARGE, in_order, powers
from fastadmm.data_tools.opening import SourceFile
from fastadmm.errors import InputError
from fastadmm.store.elements import make_csr
from scipy import sparse

#: One mistyped index must not allocate the machine's memory; ``n_features`` lifts the limit.
MAX_FEATURES = 200_000_000

#: Rows, labels and the number of lines.
_Parsed = tuple[sparse.csr_array, np.ndarray, int]

_INT32_MAX = 2**31 - 1
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_INDEX = re.compile(rb"\+?\d+\Z")


class LibsvmSource:
    """LIBSVM text, plain or compressed (gzip, bzip2, xz).

    Each line is ``label index:value index:value ...``; indices ascend and count from 1 unless
    ``zero_based``. Blank lines and everything after ``#`` are skipped.
    """

    kind, quick = "csr", False
    feature_names: list[str] | None = None

    def __init__(
        self,
        source: SourceFile,
        *,
        n_features: int | None = None,
        zero_based: bool = False,
        block_bytes: int | None = None,
        threads: bool = True,
        large: bool | None = None,
    ) -> None:
        self.large = source.size >= LARGE if large is None else large
        self.threads = threads and self.large
        self.source = source
        self.path = source.shown
        self.n_features = n_features
        self.zero_based = zero_based
        self.block_bytes = block_bytes

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        row, line = 0, 1
        texts = self.source.text_blocks(self.block_bytes, on_read)
        for text, parsed in in_order(self._try, texts) if self.threads else map(self._try, texts):
            X, y, lines = parsed or self._parse(text, line)
            line += lines
            if len(y):
                yield Block(X, y, row)
                row += len(y)
        if row == 0:
            raise InputError(f"{self.path}: no data rows, only blank lines or comments")

    def where(self, row: int) -> str:
        """Name the line of a zero-based row (comments and blank lines count as lines)."""
        seen = 0
        for first_line, text in self.source.line_blocks(self.block_bytes):
            for number, line in enumerate(io.BytesIO(text), start=first_line):
                if line.split(b"#", 1)[0].split():
                    if seen == row:
                        return f"line {number}"
                    seen += 1
        return f"row {row + 1}"

    def _try(self, text: bytes) -> tuple[bytes, _Parsed | None]:
        """A block of a large file, parsed if it is plain; the text is needed only if it is not."""
        parsed = self._parse_compiled(text) if self.large else None
        return text if parsed is None else b"", parsed

    def _parse(self, text: bytes, first_line: int) -> _Parsed:
        X, y = self._parse_uncompiled(text, first_line)
        return X, y, text.count(b"\n")

    def _parse_uncompiled(self, text: bytes, first_line: int) -> tuple[sparse.csr_array, np.ndarray]:
        # int() and float() of the compiled reader accept "1_000", and it drops "qid:" silently.
        if b"_" not in text and b"qid" not in text:
            parsed = self._parse_fast(text)
            if parsed is not None:
                return parsed
        return self._parse_slowly(text, first_line)

    def _parse_compiled(self, text: bytes) -> _Parsed | None:
        from fastadmm.kernels.cells import parse_libsvm

        if not text.endswith(b"\n"):
            text += b"\n"
        # The shortest line is "1\n" and the shortest entry " 1:1"; what is not written takes no memory.
        labels, indptr = np.empty(len(text) // 2 + 1), np.empty(len(text) // 2 + 2, dtype=np.int32)
        values, indices = np.empty(len(text) // 4 + 1), np.empty(len(text) // 4 + 1, dtype=np.int32)
        limit = (self.n_features if self.n_features is not None else MAX_FEATURES) - 1
        rows, lines = parse_libsvm(
            np.frombuffer(text, dtype=np.uint8), 0 if self.zero_based else 1, min(limit, _INT32_MAX - 1),
            powers(), labels.view(np.uint64), indptr, indices, values.view(np.uint64),
        )  # fmt: skip
        if rows < 0:
            return None
        count = int(indptr[rows])
        width = self.n_features
        if width is None:
            width = int(indices[:count].max()) + 1 if count else 0
        X = make_csr(values[:count], indices[:count], indptr[: rows + 1], (rows, width))
        # Labels outlive the rows, and a view would keep the whole buffer.
        return X, labels[:rows].copy(), lines

    def _parse_fast(self, text: bytes) -> tuple[sparse.csr_array, np.ndarray] | None:
        from sklearn.datasets import load_svmlight_file

        try:
            X, y = load_svmlight_file(
                io.BytesIO(text), n_features=self.n_features, zero_based=self.zero_based, dtype=np.float64
            )
        except (ValueError, OverflowError, IndexError):
            return None
        if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
            return None
        width = self.n_features
        if width is None:
            width = int(X.indices.max()) + 1 if X.nnz else 0
            if width > MAX_FEATURES:
                return None
        X = sparse.csr_array((X.data, X.indices, X.indptr), shape=(len(y), width))
        return X, np.asarray(y, dtype=np.float64)

    def _parse_slowly(self, text: bytes, first_line: int) -> tuple[sparse.csr_array, np.ndarray]:
        """Parse token by token; raises at the first fault."""
        labels: list[float] = []
        indices: list[int] = []
        values: list[float] = []
        indptr = [0]
        shift = 0 if self.zero_based else 1
        for number, line in enumerate(io.BytesIO(text), start=first_line):
            tokens = line.split(b"#", 1)[0].split()
            if not tokens:
                continue
            labels.append(self._label(tokens[0], number))
            last = -1
            for token in tokens[1:]:
                index, value = self._feature(token, number)
                index -= shift
                if index <= last:
                    what = "is repeated" if index == last else f"comes after index {last + shift}"
                    raise InputError(
                        f"{self.path}: line {number}: index {index + shift} {what}: "
                        "indices must ascend, each at most once"
                    )
                indices.append(index)
                values.append(value)
                last = index
            indptr.append(len(indices))
        width = self.n_features if self.n_features is not None else max(indices, default=-1) + 1
        X = sparse.csr_array(
            (np.array(values), np.array(indices, dtype=np.int64), np.array(indptr, dtype=np.int64)),
            shape=(len(labels), width),
        )
        return X, np.array(labels, dtype=np.float64)

    def _label(self, token: bytes, number: int) -> float:
        if not _NUMBER.match(token):
            hint = ""
            if b":" in token:
                hint = "; the line has no label"
            elif b"," in token:
                hint = "; for a CSV file pass --format csv"
            raise InputError(f"{self.path}: line {number}: label {_show(token)} is not a finite number{hint}")
        label = float(token)
        if not np.isfinite(label):
            raise InputError(f"{self.path}: line {number}: label {_show(token)} is too large for a float64")
        return label

    def _feature(self, token: bytes, number: int) -> tuple[int, float]:
        index_text, colon, value_text = token.partition(b":")
        if not colon:
            raise InputError(f"{self.path}: line {number}: {_show(token)} is not index:value")
        if index_text == b"qid":
            raise InputError(
                f"{self.path}: line {number}: {_show(token)}: ranking data with query ids cannot be converted"
            )
        if not _INDEX.match(index_text):
            raise InputError(f"{self.path}: line {number}: index in {_show(token)} is not a whole number")
        index = int(index_text[:20])  # 20 digits are out of range already
        if index == 0 and not self.zero_based:
            raise InputError(
                f"{self.path}: line {number}: index 0, but indices count from 1: "
                "pass --zero-based if this file counts from 0"
            )
        limit = self.n_features if self.n_features is not None else MAX_FEATURES
        largest = min(limit, _INT32_MAX) - (1 if self.zero_based else 0)
        if index > largest:
            if self.n_features is not None:
                detail = f"is out of range: there are {limit} features (largest index {largest})"
            else:
                detail = f"asks for more than {MAX_FEATURES} features; if that is meant, pass --features"
            raise InputError(f"{self.path}: line {number}: index {_show(index_text)} {detail}")
        where = f"{self.path}: line {number}: value {_show(value_text)} of feature {index}"
        if not _NUMBER.match(value_text):
            what = "NaN or infinite" if _is_special(value_text) else "not a number"
            raise InputError(f"{where} is {what}: every value must be finite")
        value = float(value_text)
        if not np.isfinite(value):
            raise InputError(f"{where} is too large for a float64")
        return index, value


def _is_special(token: bytes) -> bool:
    return token.lstrip(b"+-").lower() in {b"nan", b"inf", b"infinity"}


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


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
