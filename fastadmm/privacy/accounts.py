"""Accounts of a ledger: a charge belongs to data and a role, whatever their names.

Two accounts are one if they have the same role and

* the same columns: the same values, rounded to float32, for the same rows, in whatever order of rows and
  columns, whatever storage, and whatever the party and its columns are called; or
* the same rows and the same party name, whatever its columns are now; for labels the rows alone.

Rows are identified by their ids, in any order. A table without ids has the numbers 0 … N-1, so all tables
of N rows without ids count as the same rows: this errs on the side of charging too much. Digests are
computed from the data in use, never read from an attribute. They are sums of hashes, so order does not
matter. They recognise the same data; they do not stop owners of data who want to deceive their own ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "ARRAYS",
    "FEATURES",
    "LABELS",
    "RECORDS",
    "Account",
    "columns_digest",
    "feature_account",
    "label_account",
    "record_account",
    "row_sample",
    "rows_digest",
]

#: Who holds arrays that an estimator was given, whatever its parties are called: any party.
ARRAYS = "arrays of an estimator"

#: Roles: one party's features of some rows, the labels of some rows, and whole rows with their targets.
FEATURES, LABELS, RECORDS = "features", "labels", "records"

_UINT = np.uint64

#: Rows of a sample.
_SAMPLE = 2048


@dataclass(frozen=True)
class Account:
    """What a charge belongs to.

    Rules: ``docs/privacy.md#the-ledger``.
    """

    rows: str  # which rows, see rows_digest; empty for charges of old ledgers, which do not record it
    party: str  # who holds the data
    role: str = FEATURES
    columns: str = ""  # digest of the values, see columns_digest; empty if not known

    def same(self, other: Account) -> bool:
        """Whether both are one account, see the module's rule."""
        if self.role != other.role:
            return False
        if self.columns and self.columns == other.columns:
            return True
        rows = self.rows == other.rows or not self.rows or not other.rows
        party = self.party == other.party or ARRAYS in (self.party, other.party)
        return rows and (self.role == LABELS or party)


def _mix(values: np.ndarray) -> np.ndarray:
    """Scatter 64-bit numbers (the last steps of SplitMix64)."""
    values = values + _UINT(0x9E3779B97F4A7C15)
    values = (values ^ (values >> _UINT(30))) * _UINT(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> _UINT(27))) * _UINT(0x94D049BB133111EB)
    return values ^ (values >> _UINT(31))


def _row_keys(ids: np.ndarray | Sequence[Any] | int) -> np.ndarray:
    """A 64-bit number for each row: of its id, or of its position."""
    if isinstance(ids, int):
        return _mix(np.arange(ids, dtype=_UINT))
    ids = np.asarray(ids)
    if ids.dtype.kind in "iu":
        return _mix(ids.astype(np.int64, copy=False).view(_UINT))
    texts = (hashlib.sha256(str(name).encode("utf-8", "surrogatepass")).digest()[:8] for name in ids)
    return np.frombuffer(b"".join(texts), dtype="<u8").astype(_UINT)


def rows_digest(ids: np.ndarray | Sequence[Any] | int) -> str:
    """Which rows these are, in whatever order.

    Shapes: ids (N,).
    """
    keys = _row_keys(ids)
    hashes = _mix(keys)
    sums = np.array([hashes.sum(), _mix(hashes).sum()], dtype="<u8")
    return hashlib.sha256(b"rows\n%d\n" % len(keys) + sums.tobytes()).hexdigest()[:32]


def row_sample(ids: np.ndarray | Sequence[Any] | int) -> list[int]:
    """The least of all rows' numbers: two tables that share a good part of their rows share some of them.

    Shapes: ids (N,).
    """
    return [int(number) for number in np.sort(_mix(_row_keys(ids)))[:_SAMPLE]]


def columns_digest(pieces: Iterable[tuple[int, Any]], ids: np.ndarray | Sequence[Any] | int) -> str:
    """Digest of the values of a set of columns, independent of order, names, type and storage.

    Shapes: ids (N,).
    """
    keys, total = _row_keys(ids), None
    for start, block in pieces:
        if total is None:
            total = np.zeros((2, block.shape[1]), dtype=_UINT)
        part = _mix(keys[start : start + block.shape[0]])
        if isinstance(block, np.ndarray):
            for lane, hashes in enumerate(_hashes(block, part[:, None])):
                total[lane] += hashes.sum(axis=0)
        else:
            for lane, hashes in enumerate(_hashes(block.data, np.repeat(part, np.diff(block.indptr)))):
                np.add.at(total[lane], block.indices, hashes)
    columns = np.zeros((0, 2), dtype=_UINT) if total is None else total.T
    found = sorted(column.astype("<u8").tobytes() for column in columns if column.any())
    return hashlib.sha256(b"columns\n" + b"".join(found)).hexdigest()[:32]


def _hashes(values: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """128 bits of each value as float32 and its row; nothing of a zero, which sparse storage leaves out."""
    with np.errstate(over="ignore", under="ignore"):
        short = np.ascontiguousarray(values, dtype=np.float32)
    first = _mix(short.view(np.uint32).astype(_UINT) + keys)
    there = (short != 0.0).astype(_UINT)
    return first * there, _mix(first) * there


def feature_account(party: Any) -> Account:
    """The account of a party's file."""
    ids = party.ids()
    return Account(rows_digest(ids), party.name, FEATURES, columns_digest(party.iter_rows(), ids))


def label_account(ids: np.ndarray | Sequence[Any] | int, holder: str) -> Account:
    """The account of the labels of some rows, whoever holds them.

    Shapes: ids (N,).
    """
    return Account(rows_digest(ids), holder, LABELS)


def record_account(owner: Any) -> Account:
    """The account of an owner's rows, whose files have no ids: they are known by their targets."""
    # Targets stand for ids: they order neither rows nor columns, so a file in another order is the same.
    ids = np.ascontiguousarray(owner.targets() + 0.0).view(np.int64)
    return Account(rows_digest(ids), owner.name, RECORDS, columns_digest(owner.iter_rows(), ids))
