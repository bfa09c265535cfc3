"""Digests: of row ids (do two files describe the same samples in the same order?) and of contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def _strings_bytes(strings: Iterable[str]) -> bytes:
    # A length before each string: ("ab", "c") and ("a", "bc") must differ.
    pieces = []
    for text in strings:
        raw = text.encode("utf-8", "surrogatepass")
        pieces.append(len(raw).to_bytes(8, "little"))
        pieces.append(raw)
    return b"".join(pieces)


def strings_digest(strings: Iterable[str]) -> str:
    """Return ``sha256:<hex>`` over the strings, each after its length in bytes (8 bytes, little-endian)."""
    return "sha256:" + hashlib.sha256(_strings_bytes(strings)).hexdigest()


class RowDigest:
    """sha256 of row ids, in order, fed in pieces.

    Integers count as 8 bytes little-endian; a string as its length in bytes (8 bytes
    little-endian) and its UTF-8 bytes. The kind comes first (``int64\\n`` or ``utf-8\\n``),
    so that numbers and strings never agree by accident.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._hash = hashlib.sha256(f"{kind}\n".encode())

    def update(self, ids: np.ndarray | Iterable[str]) -> None:
        """Add ids, shape (k,): integers or strings according to the kind."""
        if self.kind == "int64":
            self._hash.update(np.ascontiguousarray(ids, dtype="<i8").data)
        else:
            self._hash.update(_strings_bytes(ids))

    def text(self) -> str:
        """Return ``sha256:<hex>``."""
        return "sha256:" + self._hash.hexdigest()


def row_digest(ids: np.ndarray) -> str:
    """Return the digest of a column of row ids. Shapes: ids (N,)."""
    digest = RowDigest("int64" if ids.dtype.kind in "iu" else "utf-8")
    digest.update(ids)
    return digest.text()


class ContentDigest:
    """sha256 of a party's block and feature names, fed row block by row block.

    Two parties with equal digests hold the same columns under the same names: one file
    was listed twice under two names. The digest is the sha256 over the lines
    ``kind``, ``dtype``, ``N d``, then the hexadecimal sha256 of the values (row-major for
    dense), of the column indices (int64; CSR only), of the row lengths (int64; CSR only)
    and of the names (as in :func:`strings_digest`).
    """

    def __init__(self, kind: str, dtype: str) -> None:
        self.kind = kind
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._rows = 0
        self._values = hashlib.sha256()
        self._indices = hashlib.sha256()
        self._lengths = hashlib.sha256()

    def update(self, block: np.ndarray | csr_array) -> None:
        """Add rows, dense or CSR, shape (k, d)."""
        self._rows += block.shape[0]
        values = block if isinstance(block, np.ndarray) else block.data
        self._values.update(np.ascontiguousarray(values, dtype=self.dtype).data)
        if not isinstance(block, np.ndarray):
            self._indices.update(np.ascontiguousarray(block.indices, dtype="<i8").data)
            lengths = np.diff(block.indptr.astype("<i8", copy=False))
            self._lengths.update(np.ascontiguousarray(lengths, dtype="<i8").data)

    def text(self, names: Iterable[str]) -> str:
        """Return ``sha256:<hex>`` for everything so far and these feature names."""
        names = list(names)
        lines = [self.kind, self.dtype.name, f"{self._rows} {len(names)}", self._values.hexdigest()]
        if self.kind == "csr":
            lines += [self._indices.hexdigest(), self._lengths.hexdigest()]
        lines.append(strings_digest(names).removeprefix("sha256:"))
        return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()
