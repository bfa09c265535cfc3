"""LIBSVM text, read in blocks of complete lines.

A block is read by scikit-learn, which is exact. What it refuses, or would forgive, is parsed again, slowly,
to name the line and the token at fault.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from weakref import finalize

import numpy as np
from fastadmm.data_tools.blocks import Block
from fastadmm.data_tools.opening import OnRead, SourceFile
from fastadmm.errors import InputError
from fastadmm.files.atomic import storage_errors
from fastadmm.store.block_file import make_csr
from scipy import sparse

#: One mistyped index must not allocate the machine's memory; ``n_features`` lifts the limit.
MAX_FEATURES = 200_000_000

_INT32_MAX = 2**31 - 1
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_INDEX = re.compile(rb"\+?\d+\Z")
_COMMENT = re.compile(rb"#[^\n]*")

#: What scikit-learn reads on over: digits with underscores, query ids, and texts that C takes to end early.
_FORGIVEN = re.compile(rb"[_\0]|qid")


#: Bytes of parsed rows kept in memory between two passes; more of them wait in files without a name.
CACHE_BYTES = 32 << 20


class LibsvmSource:
    """LIBSVM text, plain or compressed (gzip, bzip2, xz), in one file or several that follow one another.

    Each line is ``label index:value index:value ...``; indices ascend and count from 1 unless
    ``zero_based``. Blank lines and everything after ``#`` are skipped.
    """

    kind = "csr"
    feature_names: list[str] | None = None

    def __init__(
        self,
        files: Sequence[SourceFile],
        path: str | None = None,
        *,
        n_features: int | None = None,
        zero_based: bool = False,
        scratch: str | Path | None = None,
    ) -> None:
        self.files, self._scratch = files, scratch
        self._kept: Any = None  # a file of the arrays of all blocks
        self._shapes: list[tuple[int, int]] = []
        self.path = files[0].shown if path is None else path
        self.n_features, self.zero_based = n_features, zero_based

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows, which are parsed once if there is a scratch folder to keep them in."""
        if self._kept is not None:
            self._kept.seek(0)
            for shape in self._shapes:
                data, indices, indptr, labels = (np.load(self._kept) for _ in range(4))
                yield Block(make_csr(data, indices, indptr, shape), labels)
            return
        kept, shapes = None, []
        if self._scratch is not None:
            kept = SpooledTemporaryFile(CACHE_BYTES, dir=str(self._scratch), prefix=".fastadmm-")  # noqa: SIM115
            finalize(self, kept.close)
        for block in self._parsed(on_read):
            X: Any = block.X
            shapes.append(X.shape)
            if kept is not None:
                with storage_errors(str(self._scratch)):
                    for array in (X.data, X.indices, X.indptr, block.labels):
                        np.save(kept, array)
            yield block
        if kept is not None:
            with storage_errors(str(self._scratch)):
                kept.flush()
        self._kept, self._shapes = kept, shapes

    def _parsed(self, on_read: OnRead | None) -> Iterator[Block]:
        for file in self.files:
            empty = True
            for line, text in file.line_blocks(on_read):
                if (found := self._parse_plain(text)) is None:
                    raise self._fault(text, line, file.shown)
                X, y = found
                if len(y):
                    yield Block(X, y)
                    empty = False
            if empty:
                raise InputError(f"{file.shown}: no data rows, only blank lines or comments")

    def _parse_plain(self, text: bytes) -> tuple[sparse.csr_array, np.ndarray] | None:
        """Rows that scikit-learn reads as they are meant; None where anything is unusual or wrong."""
        from sklearn.datasets import load_svmlight_file

        text = _COMMENT.sub(b"", text) if b"#" in text else text
        if _FORGIVEN.search(text):
            return None
        try:
            X, y = load_svmlight_file(io.BytesIO(text), dtype=np.float64, zero_based=True)
        except (ValueError, OverflowError):
            return None
        indices = X.indices if self.zero_based else X.indices - 1
        limit = min(self.n_features if self.n_features is not None else MAX_FEATURES, _INT32_MAX) - 1
        low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
        if low < 0 or high > limit or not (np.isfinite(X.data).all() and np.isfinite(y).all()):
            return None
        shape = (len(y), high + 1 if self.n_features is None else self.n_features)
        return make_csr(X.data, indices.astype(np.int32), X.indptr.astype(np.int32), shape), y

    def _fault(self, text: bytes, first_line: int, path: str) -> InputError:
        """The error about the first token that is wrong."""
        shift = 0 if self.zero_based else 1
        for number, line in enumerate(io.BytesIO(text), start=first_line):
            label, *tokens = line.split(b"#", 1)[0].split() or [b"0"]
            place, last = f"{path}: line {number}", -1
            if not _is_finite(label):
                hint = "; the line has no label" if b":" in label else ""
                hint = "; for a CSV file pass --format csv" if b"," in label else hint
                return InputError(f"{place}: label {_show(label)} is not a finite number{hint}")
            for token in tokens:
                index_text, _, value_text = token.partition(b":")
                if not _INDEX.match(index_text) or not _is_finite(value_text):
                    problem = "is not index:value, a whole number and a finite one"
                    return InputError(f"{place}: {_show(token)} {problem}")
                index = int(index_text[:20]) - shift  # 20 digits are out of range already
                if problem := self._out_of_range(index, shift, _show(index_text)):
                    return InputError(f"{place}: index {problem}")
                if index <= last:
                    what = "is repeated" if index == last else f"comes after index {last + shift}"
                    return InputError(
                        f"{place}: index {index + shift} {what}: indices must ascend, each at most once"
                    )
                last = index
        return InputError(f"{path}: line {first_line}: not LIBSVM text")

    def _out_of_range(self, index: int, shift: int, written: str) -> str:
        """What is wrong with an index, here from 0 on; empty where it fits."""
        if index < 0:
            return "0, but indices count from 1: pass --set zero_based=true if this file counts from 0"
        limit = self.n_features if self.n_features is not None else MAX_FEATURES
        if index < min(limit, _INT32_MAX):
            return ""
        if self.n_features is None:
            return f"{written} asks for more than {limit} features; if that is meant, pass --features"
        largest = min(limit, _INT32_MAX) - 1 + shift
        return f"{written} is out of range: there are {limit} features (largest index {largest})"


def _is_finite(token: bytes) -> bool:
    return bool(_NUMBER.match(token)) and bool(np.isfinite(float(token)))


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")
