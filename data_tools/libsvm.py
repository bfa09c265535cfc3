"""LIBSVM text, read in blocks of complete lines.

The numbers of a block are read by pandas, after it is made sure that they stand where they belong. A block
that is not plain is parsed again, slowly, to name the line and the token at fault.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.plain_text import read_frame
from fastadmm.data_tools.threads import in_order
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
_COMMENT = re.compile(rb"#[^\n]*")

#: What a byte of plain text is: a digit, another part of a number, or what stands between tokens.
_DIGIT, _MARK, _SPACE, _END, _COLON, _OTHER = range(6)
_OF = {
    **dict.fromkeys(b"0123456789", _DIGIT),
    **dict.fromkeys(b"+-.eE", _MARK),
    **dict.fromkeys(b" \t\r", _SPACE),
    **{ord("\n"): _END, ord(":"): _COLON},
}
_KINDS = bytes(_OF.get(byte, _OTHER) for byte in range(256))

#: Each token in a line of its own.
_ONE_COLUMN = bytes.maketrans(b": \t\r", b"\n\n\n\n")


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
    ) -> None:
        self.threads = threads
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
            X, y, lines = parsed or (*self._parse_slowly(text, line), text.count(b"\n"))
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
        """A block, parsed if it is plain; the text is needed only if it is not."""
        parsed = self._parse_plain(text)
        return text if parsed is None else b"", parsed

    def _parse_plain(self, text: bytes) -> _Parsed | None:
        """Rows of plain numbers; None where anything is unusual or wrong."""
        n_lines = text.count(b"\n")
        text = b"\n" + (_COMMENT.sub(b"", text) if b"#" in text else text) + b"\n"
        kinds = np.frombuffer(text.translate(_KINDS), dtype=np.uint8)
        if (kinds == _OTHER).any():
            return None
        tokens = np.flatnonzero((kinds[1:] <= _MARK) & (kinds[:-1] > _MARK)) + 1
        firsts = np.unique(np.searchsorted(tokens, np.flatnonzero(kinds == _END)))[:-1]
        is_value = kinds[tokens - 1] == _COLON
        is_index = ~is_value
        is_index[firsts] = False
        # Every index is followed by a colon and its value; no colon stands elsewhere.
        colons = np.flatnonzero(kinds == _COLON)
        marks = np.cumsum((kinds == _MARK).view(np.uint8), dtype=np.uint8)  # a number has not 256
        starts = tokens[is_index]
        if (
            not len(firsts)
            or len(colons) != len(starts)
            or not np.array_equal(is_index[:-1], is_value[1:])
            or is_index[-1]
            or is_value[firsts].any()
            or (kinds[colons - 1] > _MARK).any()
            or (marks[colons] != marks[starts - 1]).any()
        ):
            return None
        frame = read_frame(text.translate(_ONE_COLUMN), ",", ["token"], {"token": np.float64})
        if frame is None or len(frame) != len(tokens):
            return None
        numbers = frame["token"].to_numpy()
        indices, values = numbers[is_index] - (0 if self.zero_based else 1), numbers[is_value]
        indptr = ((np.append(firsts, len(tokens)) - np.arange(len(firsts) + 1)) // 2).astype(np.int32)
        rising = np.diff(indices, prepend=-1.0) > 0
        rising[indptr[:-1][np.diff(indptr) > 0]] = True
        limit = min(self.n_features if self.n_features is not None else MAX_FEATURES, _INT32_MAX) - 1
        if not (rising.all() and np.isfinite(numbers).all()) or (
            len(indices) and not 0 <= indices.min() <= indices.max() <= limit
        ):
            return None
        width = self.n_features
        if width is None:
            width = int(indices.max()) + 1 if len(indices) else 0
        X = make_csr(values, indices.astype(np.int32), indptr, (len(firsts), width))
        return X, numbers[firsts], n_lines

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
        self.parts = [
            LibsvmSource(file, n_features=n_features, zero_based=zero_based, threads=False) for file in files
        ]
        self.rows: list[int] = []

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows of all files; see :meth:`LibsvmSource.blocks`."""
        first = 0
        for part in self.parts:
            rows = 0
            for block in part.blocks(on_read):
                yield replace(block, first_row=first + block.first_row)
                rows += len(block.labels)
            first += rows

    def where(self, row: int) -> str:
        """File and line of a zero-based row."""
        for part, rows in zip(self.parts, self.rows):
            if row < rows:
                return f"{part.path}, {part.where(row)}"
            row -= rows
        return f"row {row + 1}"
