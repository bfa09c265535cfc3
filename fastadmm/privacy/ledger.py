"""The privacy ledger: a release is charged, on disk, before it is used, and none exceeds the budget.

One ledger may serve several runs on the same data, for example when tuning: their costs add up. Its file
(:mod:`fastadmm.privacy.ledger_file`) only grows, and two processes that charge at the same time take turns.

* **A charge belongs to data and a role**, not to names: :mod:`fastadmm.privacy.accounts`.
* **A charge is for one draw.** Each draw of noise has a random name, ``draw``, stored with the release. Draw,
  store, charge, use, in this order: a stored release is charged under its own draw before every use, which
  costs nothing if the ledger already holds that charge. So a release whose charge was lost with the ledger
  is charged again. A release that was charged but is no longer stored is spent; drawing it again gets a new
  name and a new charge. Two copies of a run that continue separately pay for two draws. A kill between any
  two steps neither loses a charge nor makes one for nothing.
* **Charges are the same only if their costs are.** At a different cost it is a different release.
* **A run reserves its whole budget before it draws anything**, :meth:`Ledger.reserve`, so that two runs
  that share a ledger do not stop each other half way. A reservation ends with its process: what the process
  used was charged, and the rest was never used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import PrivacyBudgetError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.privacy.accounting import compose_gdp, epsilon_of, zcdp_epsilon, zcdp_of
from fastadmm.privacy.accounts import FEATURES, LABELS, RECORDS, Account
from fastadmm.privacy.ledger_file import LedgerFile, Line
from fastadmm.privacy.reservations import Reservation, reserved_by_others
from fastadmm.privacy.statement import rounded_up
from fastadmm.settings.privacy import Privacy

__all__ = ["Charge", "Ledger", "Spent", "other_runs", "refuse_to_forget"]

#: Two budgets that differ by rounding are the same, and so are two costs.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Charge:
    """What one release costs.

    Attributes
    ----------
    run : str
        Identifier of the run.
    rows : str
        Which rows it is about; with ``party``, ``role`` and ``columns`` it names the account.
    party : str
    release : str
        What is released.
    gdp : float
        mu of a Gaussian release, 0 for none.
    pure : float
        Epsilon of a pure mechanism, 0 for none.
    rho : float
        zCDP of a discrete Gaussian release, 0 for none.
    role : {"features", "labels", "records"}
    columns : str
        Digest of the values, see :class:`~fastadmm.privacy.accounts.Account`; empty if not known.
    draw : str
        Name of the draw, see the module's rules; empty for releases of older versions.
    """

    run: str
    rows: str
    party: str
    release: str
    gdp: float = 0.0
    pure: float = 0.0
    rho: float = 0.0
    role: str = FEATURES
    columns: str = ""
    draw: str = ""

    @classmethod
    def to(
        cls,
        account: Account,
        run: str,
        release: str,
        *,
        gdp: float = 0.0,
        pure: float = 0.0,
        rho: float = 0.0,
        draw: str = "",
    ) -> Charge:
        """A charge to an account.

        Parameters
        ----------
        account : Account
        run, release : str
        gdp, pure, rho : float
        draw : str
            As in the class.
        """
        a = account
        return cls(run, a.rows, a.party, release, gdp, pure, rho, a.role, a.columns, draw)

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
            and all(math.isclose(a, b, rel_tol=_TOLERANCE) for a, b in costs)
        )


@dataclass(frozen=True)
class Spent:
    """What has been charged to one account.

    Attributes
    ----------
    gdp : float
        mu of all Gaussian releases together.
    pure : tuple of float
    rho : float
        zCDP of all discrete Gaussian releases together.
    releases : int
    runs : int
    """

    gdp: float
    pure: tuple[float, ...]
    rho: float
    releases: int
    runs: int

    @property
    def total_gdp(self) -> float:
        """mu of Gaussian releases, those of discrete noise counted as continuous ones of the same rho."""
        return math.hypot(self.gdp, math.sqrt(2.0 * self.rho))

    def epsilon(self, delta: float) -> float:
        """Epsilon of everything together at ``delta``; exact unless discrete noise is among it."""
        if self.rho > 0.0:
            return zcdp_epsilon(self.rho + zcdp_of([self.gdp]), delta) + math.fsum(self.pure)
        return epsilon_of(self.gdp, delta, self.pure)


def _sum(charges: Sequence[Charge]) -> Spent:
    return Spent(
        compose_gdp(c.gdp for c in charges),
        tuple(c.pure for c in charges if c.pure > 0.0),
        math.fsum(c.rho for c in charges),
        len(charges),
        len({c.run for c in charges}),
    )


def _together(accounts: Iterable[Account], account: Account) -> set[Account]:
    """The accounts that are one with an account, by names and columns that tie them together."""
    left, found, edge = set(accounts), set[Account](), [account]
    while edge:
        here = edge.pop()
        near = {other for other in left if other.same(here)}
        left -= near
        found |= near
        # Old charges do not say their rows: they count, but do not tie other rows together.
        edge += [other for other in near if other.rows]
    return found


class _Book:
    """Charges by account and by release, in the order in which they came."""

    def __init__(self, charges: Iterable[Charge] = ()) -> None:
        self.charges: list[Charge] = []
        self.accounts: dict[Account, list[Charge]] = {}
        self.plans: dict[tuple[str, str, str, str], list[Charge]] = {}
        self.add(charges)

    def add(self, charges: Iterable[Charge]) -> None:
        for charge in charges:
            self.charges.append(charge)
            self.accounts.setdefault(charge.account, []).append(charge)
            self.plans.setdefault(charge.plan, []).append(charge)

    def of(self, account: Account, *more: _Book) -> list[Charge]:
        """All charges to an account, those of other books among them."""
        books = (self, *more)
        found = _together((a for book in books for a in book.accounts), account)
        return [c for book in books for a, charges in book.accounts.items() if a in found for c in charges]


class Ledger:
    """Append-only account of releases.

    Parameters
    ----------
    path : Path or None
        The file, made with the first charge; None keeps the account in memory
        only, for estimators.

    Raises
    ------
    FormatError
        If the file is not a ledger, or does not verify; it is left as it is.

    Notes
    -----
    Rules: ``docs/privacy.md#the-ledger``.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._book = _Book()
        self._lines: list[Line] | None = None
        self._planned: list[Charge] = []
        self._reservation: Reservation | None = None
        self._file: LedgerFile | None = None
        if path is not None:
            self._file = LedgerFile(path)
            with storage_errors(path, "read"):
                exists = path.exists()
            if exists:
                with self._file.locked(write=False) as (_, lines):
                    self._refresh(lines)

    def _refresh(self, lines: list[Line]) -> None:
        """Take in what the file holds; see :meth:`LedgerFile.locked`."""
        if lines is not self._lines:
            self._lines, self._book = lines, _Book()
        self._book.add(_charge_of(line) for line in lines[len(self._book.charges) :])

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self  # a copy would be an account of its own: two could spend the whole budget each

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError("a ledger in memory cannot be shared with another process; give it a file")
        return Ledger, (self.path,)

    @property
    def charges(self) -> list[Charge]:
        """All charges, oldest first."""
        return list(self._book.charges)

    def planned(self, charge: Charge) -> Sequence[Charge]:
        """The charges of a release, one for each of its draws, oldest first."""
        return self._book.plans.get(charge.plan, ())

    def holds(self, charge: Charge) -> bool:
        """Whether this very release was charged already, at this cost."""
        return any(charge.same(other) for other in self.planned(charge))

    def spent(self, data: Account | str, run: str | None = None) -> Spent:
        """What has been charged to one account.

        Parameters
        ----------
        data : Account or str
            A text means the features of these rows, whoever holds them.
        run : str, optional
            Count only this run's charges.
        """
        if isinstance(data, str):
            found = [c for c in self._book.charges if c.rows == data and c.role == FEATURES]
        else:
            found = self._book.of(data)
        return _sum([c for c in found if run in (None, c.run)])

    def accounts(self) -> list[list[Charge]]:
        """All charges, those of one account together; the oldest account first."""
        groups: list[list[Charge]] = []
        seen = set[Account]()
        for account in self._book.accounts:
            if account not in seen:
                groups.append(self._book.of(account))
                seen |= {c.account for c in groups[-1]}
        return groups

    def charge(self, charge: Charge, epsilon: float, delta: float) -> bool:
        """Charge a release before it is used; on disk when this returns.

        Parameters
        ----------
        charge : Charge
        epsilon, delta : float
            Budget of everything that is charged to the same account.

        Returns
        -------
        bool
            False if this very charge was made before.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not allow it; nothing is charged.
        StorageError
            If it cannot be written; then nothing may be released.
        """
        return self.charge_all([charge], epsilon, delta)

    def charge_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> bool:
        """Charge several releases, all or none.

        Parameters
        ----------
        charges : sequence of Charge
        epsilon, delta : float
            Budget for each account.

        Returns
        -------
        bool
            Whether any of them is new.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not allow one of them; nothing is charged.
        """
        if self._file is None or self.path is None:
            new = self._new(charges)
            self._check(new, self._left(new), epsilon, delta)
            self._planned = self._left(new)
            self._book.add(new)
            return bool(new)
        if not self.path.exists():
            self._check(self._new(charges), [], epsilon, delta)  # what is refused makes no file
        self._file.create()
        with self._file.locked() as (file, lines):
            self._refresh(lines)
            new = self._new(charges)
            self._check(new, [*self._left(new), *self._others()], epsilon, delta)
            if new:
                self._file.append(file, [asdict(charge) for charge in new])
            self._refresh(lines)
            self._planned = self._left(new)
            if not self._planned:
                self.free()
        return bool(new)

    def check_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Refuse what :meth:`charge_all` would refuse; charges nothing, and does not write.

        Parameters
        ----------
        charges : sequence of Charge
        epsilon, delta : float
            Budget for each account.

        Raises
        ------
        PrivacyBudgetError
        """
        if self._file is None or self.path is None or not self.path.exists():
            new = self._new(charges)
            self._check(new, self._left(new), epsilon, delta)
            return
        with self._file.locked() as (_, lines):
            self._refresh(lines)
            new = self._new(charges)
            self._check(new, [*self._left(new), *self._others()], epsilon, delta)

    def reserve(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Reserve what a run will charge, or refuse the run before it draws anything.

        The charges themselves use it up; :meth:`free` or the end of the process releases the rest. A
        resumed run reserves again what it will still draw.

        Parameters
        ----------
        charges : sequence of Charge
            Everything that is still to be drawn; the draws have no names yet.
        epsilon, delta : float
            Budget for each account.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not allow one of them, or reservations of running processes leave no room;
            nothing is reserved.
        """
        planned = [*self._planned, *charges]
        if self._file is None or self.path is None:
            self._check(charges, self._planned, epsilon, delta)
            self._planned = planned
            return
        if not self.path.exists():
            self._check(charges, self._planned, epsilon, delta)
        self._file.create()
        with self._file.locked() as (_, lines):
            self._refresh(lines)
            self._check(charges, [*self._planned, *self._others()], epsilon, delta)
            if charges:
                self._reservation = self._reservation or Reservation(self.path)
                self._reservation.write(len(lines), [asdict(charge) for charge in planned])
                self._planned = planned

    def free(self) -> None:
        """Release what was reserved and not charged."""
        self._planned = []
        if self._reservation is not None:
            self._reservation.free()
            self._reservation = None

    def _new(self, charges: Sequence[Charge]) -> list[Charge]:
        return [charge for charge in charges if not self.holds(charge)]

    def _left(self, new: Sequence[Charge]) -> list[Charge]:
        """What remains reserved by this ledger once these are charged."""
        return _without(self._planned, Counter(c.plan for c in new))

    def _others(self) -> list[Charge]:
        """What living runs have reserved in this file and not charged yet."""
        if self.path is None:
            return []
        found: list[Charge] = []
        for at, planned in reserved_by_others(self.path, self._reservation):
            made = Counter(c.plan for c in self._book.charges[at:])
            found += _without([Charge(**values) for values in planned], made)
        return found

    def _check(self, new: Sequence[Charge], reserved: Sequence[Charge], epsilon: float, delta: float) -> None:
        for c in new:
            if not all(0.0 <= cost < math.inf for cost in (c.gdp, c.pure, c.rho)):
                raise PrivacyBudgetError(f"privacy ledger: {c.party}, {c.release}: its cost is not finite")
        held, coming = _Book(reserved), _Book(new)
        for account, charges in coming.accounts.items():
            if not any(c.gdp or c.pure or c.rho for c in charges):
                continue  # a note of a release that was charged beforehand
            after = _sum(self._book.of(account, held, coming)).epsilon(delta)
            if after <= epsilon * (1.0 + _TOLERANCE):
                continue
            before, aside = self.spent(account), len(held.of(account))
            name = shown(self.path) if self.path is not None else "privacy ledger"
            spent = f"{before.releases} releases of {before.runs} run(s) have spent epsilon"
            more = f", {aside} more are set aside by runs under way" if aside else ""
            raise PrivacyBudgetError(
                f"{name}: {account.party}: {spent} {before.epsilon(delta):.4g}{more}; "
                f"with '{charges[0].release}' it would be {after:.4g} of {epsilon:.4g} "
                f"at delta {delta:g}; nothing was sent"
            )


def _without(charges: Sequence[Charge], made: Counter[tuple[str, str, str, str]]) -> list[Charge]:
    """Those planned charges that were not made yet."""
    left, made = [], made.copy()
    for charge in charges:
        if made[charge.plan] > 0:
            made[charge.plan] -= 1
        else:
            left.append(charge)
    return left


def _charge_of(line: Line) -> Charge:
    """A line as a charge; one of version 1.0 names neither rows nor role, so it counts for any rows."""
    values = dict(line.values)
    if not line.old:
        return Charge(**values)
    del values["data"]
    release = values["release"]
    role = FEATURES
    if release == "randomised labels":
        role = LABELS
    elif release.startswith("answers to ") or release.startswith("second moments for "):
        role = RECORDS
    return Charge(rows="", role=role, **values)


def refuse_to_forget(path: Path) -> None:
    """Refuse to replace a run that keeps the only account of what it spent.

    Parameters
    ----------
    path : Path
        The run's own ledger, if there is one.

    Raises
    ------
    PrivacyBudgetError
        If it holds a charge.
    """
    if path.exists() and Ledger(path).charges:
        raise PrivacyBudgetError(
            f"{shown(path.parent)}: --force would remove {path.name}, the only account of what this run "
            "released; choose another name, or move that file away and pass it as --ledger"
        )


def other_runs(ledger: Ledger, data: Sequence[Account | str], settings: Privacy) -> str:
    """What a ledger has charged to the same data in other runs, in words; empty for none.

    Parameters
    ----------
    ledger : Ledger
    data : sequence of Account or str
        Each party's account.
    settings : Privacy
    """
    shared = [spent for spent in map(ledger.spent, data) if spent.runs > 1]
    if not shared:
        return ""
    runs, epsilon = max(s.runs for s in shared), max(s.epsilon(settings.delta) for s in shared)
    return (
        f"{runs - 1} other run(s) in this ledger; all together epsilon {rounded_up(epsilon)} at delta "
        f"{settings.delta!r}, of {settings.budget!r} allowed"
    )
