"""Accounts of a ledger, and its charges with their sums by account.

Two accounts are one if they have the same role and the same columns (the same values for the same rows, in
whatever order and under whatever names), or the same rows and party name; for labels the rows alone. A table
without ids has the numbers 0 … N-1, so that all such tables of N rows count as the same: this errs on the
side of charging too much. Digests are computed from the data in use, never read from an attribute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.privacy.accounting import compose_gdp, epsilon_of, zcdp_epsilon, zcdp_of

#: Who holds arrays that an estimator was given, whatever its parties are called: any party.
ARRAYS = "arrays of an estimator"

#: Roles: one party's features of some rows, the labels of some rows, and whole rows with their targets.
FEATURES, LABELS, RECORDS = "features", "labels", "records"

_UINT = np.uint64

#: Rows of a sample.
_SAMPLE = 2048


@dataclass(frozen=True)
class Account:
    """What a charge belongs to: ``docs/privacy.md#the-ledger``."""

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
    """Which rows these are, in whatever order. Shapes: ids (N,)."""
    keys = _row_keys(ids)
    hashes = _mix(keys)
    sums = np.array([hashes.sum(), _mix(hashes).sum()], dtype="<u8")
    return hashlib.sha256(b"rows\n%d\n" % len(keys) + sums.tobytes()).hexdigest()[:32]


def row_sample(ids: np.ndarray | Sequence[Any] | int) -> list[int]:
    """The least of all rows' numbers: tables that share many rows share some of them. Shapes: ids (N,)."""
    return [int(number) for number in np.sort(_mix(_row_keys(ids)))[:_SAMPLE]]


def columns_digest(pieces: Iterable[tuple[int, Any]], ids: np.ndarray | Sequence[Any] | int) -> str:
    """Digest of the values of columns, whatever their order, names and storage. Shapes: ids (N,)."""
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
    """The account of the labels of some rows, whoever holds them. Shapes: ids (N,)."""
    return Account(rows_digest(ids), holder, LABELS)


def record_account(owner: Any) -> Account:
    """The account of an owner's rows, whose files have no ids: they are known by their targets."""
    # Targets stand for ids: they order neither rows nor columns, so a file in another order is the same.
    ids = np.ascontiguousarray(owner.targets() + 0.0).view(np.int64)
    return Account(rows_digest(ids), owner.name, RECORDS, columns_digest(owner.iter_rows(), ids))


#: Two costs that differ by rounding are the same.
TOLERANCE = 1e-9

#: So many pure mechanisms are always accounted for exactly.
_FEW = 12


@dataclass(frozen=True)
class Charge:
    """What one release costs."""

    run: str  # identifier of the run
    rows: str  # which rows it is about; with ``party``, ``role`` and ``columns`` it names the account
    party: str
    release: str  # what is released
    gdp: float = 0.0  # mu of a Gaussian release, 0 for none
    pure: float = 0.0  # epsilon of a pure mechanism, 0 for none
    rho: float = 0.0  # zCDP of a discrete Gaussian release, 0 for none
    role: str = FEATURES
    columns: str = ""  # digest of the values, see Account; empty if not known
    draw: str = ""  # name of the draw, see the module's rules; empty for releases of older versions

    @classmethod
    def to(cls, account: Account, run: str, release: str, **cost: Any) -> Charge:
        """A charge to an account; the cost is ``gdp``, ``pure`` or ``rho``, with its ``draw``."""
        a = account
        return cls(run, a.rows, a.party, release, role=a.role, columns=a.columns, **cost)

    @property
    def account(self) -> Account:
        """What it is made to."""
        return Account(self.rows, self.party, self.role, self.columns)

    @property
    def plan(self) -> tuple[str, str, str, str]:
        """Identifies the release in its run, whichever draw it is."""
        return self.run, self.role, self.party, self.release

    def same(self, other: Charge) -> bool:
        """Whether it is the very same charge: one release, one draw, one account, one cost."""
        costs = zip((self.gdp, self.pure, self.rho), (other.gdp, other.pure, other.rho))
        return (
            (self.plan, self.draw) == (other.plan, other.draw)
            and self.account.same(other.account)
            and all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in costs)
        )


@dataclass(frozen=True)
class Spent:
    """What has been charged to one account."""

    gdp: float  # mu of all Gaussian releases together
    pure: tuple[float, ...]
    rho: float  # zCDP of all discrete Gaussian releases together
    releases: int
    runs: int

    @property
    def total_gdp(self) -> float:
        """mu of Gaussian releases, those of discrete noise counted as continuous ones of the same rho."""
        return math.hypot(self.gdp, math.sqrt(2.0 * self.rho))

    def epsilon(self, delta: float) -> float:
        """Epsilon of everything together at ``delta``; exact for continuous noise and few mechanisms."""
        if self.rho > 0.0:
            return zcdp_epsilon(self.rho + zcdp_of([self.gdp]), delta) + math.fsum(self.pure)
        exact = epsilon_of(self.gdp, delta, self.pure)
        if delta == 0.0 or len(self.pure) < _FEW:
            return exact
        # The law of very many is cut short; as zCDP they have a bound, too.
        return min(exact, zcdp_epsilon(zcdp_of([self.gdp, *self.pure]), delta))

    def exceeds(self, epsilon: float, delta: float) -> bool:
        """Whether this is beyond a budget: by bounds, then by the exact law."""
        most = epsilon * (1.0 + TOLERANCE)
        if self.rho == 0.0:
            if epsilon_of(self.gdp, delta) + math.fsum(self.pure) <= most:
                return False
            if delta > 0.0 and zcdp_epsilon(zcdp_of([self.gdp, *self.pure]), delta) <= most:
                return False
        return not self.epsilon(delta) <= most


def added(charges: Sequence[Charge]) -> Spent:
    """What charges cost together, exactly."""
    return Spent(
        compose_gdp(c.gdp for c in charges),
        tuple(c.pure for c in charges if c.pure > 0.0),
        math.fsum(c.rho for c in charges),
        len(charges),
        len({c.run for c in charges}),
    )


class Book:
    """Charges by account and by release, in the order in which they came: ``docs/privacy.md#the-ledger``."""

    def __init__(self, charges: Iterable[Charge] = ()) -> None:
        self.charges: list[Charge] = []
        self.accounts: dict[Account, list[Charge]] = {}
        self.plans: dict[tuple[str, str, str, str], list[Charge]] = {}
        self.add(charges)

    def add(self, charges: Iterable[Charge]) -> None:
        """Take in further charges."""
        for charge in charges:
            self.charges.append(charge)
            self.accounts.setdefault(charge.account, []).append(charge)
            self.plans.setdefault(charge.plan, []).append(charge)

    def of(self, account: Account, *more: Book) -> list[Charge]:
        """All charges to an account, tied together by names and columns, with those of other books."""
        books, found, edge = (self, *more), set[Account](), [account]
        known = {other for book in books for other in book.accounts}
        while edge:
            here = edge.pop()
            same = {other for other in known - found if other.same(here)}
            found |= same
            # Old charges do not say their rows: they count, but do not tie other rows together.
            edge += [other for other in same if other.rows]
        return [c for book in books for a, charges in book.accounts.items() if a in found for c in charges]
