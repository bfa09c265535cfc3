"""The privacy ledger: a release is charged, on disk, before it is used, and none exceeds the budget.

* **A charge belongs to data and a role**, not to names: :mod:`fastadmm.privacy.accounts`.
* **A charge is for one draw.** Each draw of noise has a random name, stored with the release. Draw, store,
  charge, use: a stored release is charged under its own draw before every use, which costs nothing if the
  ledger holds that charge. A release that is no longer stored is spent; drawing it again is a new charge.
* **Charges are the same only if their costs are.** At a different cost it is a different release.
* **A ledger counts at its own delta**, that of its first charge unless its owner has stated another, and
  never allows more than the epsilon that its owner stated. What a run is allowed is checked besides.
* **A run is refused before it draws anything** if its whole cost does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, PrivacyBudgetError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.privacy.accounts import (
    FEATURES,
    LABELS,
    RECORDS,
    TOLERANCE,
    Account,
    Book,
    Charge,
    Spent,
    added,
)
from fastadmm.privacy.ledger_file import LedgerFile, Limit, Line
from fastadmm.privacy.statement import rounded_up
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["Charge", "Ledger", "Spent", "other_runs", "refuse_to_forget"]


class Ledger:
    """Append-only account of releases: ``docs/privacy.md#the-ledger``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._book = Book()
        self._file: LedgerFile | None = None
        self._limit: Limit | None = None
        if path is not None:
            self._file = LedgerFile(path)
            with storage_errors(path, "read"):
                exists = path.exists()
            if exists:
                with self._file.locked(write=False):
                    self._refresh()

    def _refresh(self) -> None:
        """Take in what the file holds."""
        if self._file is not None:
            self._book, self._limit = Book(map(_charge_of, self._file.lines)), self._file.limit

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self  # a copy would be an account of its own: two could spend the whole budget each

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError("a ledger in memory cannot be shared with another process; give it a file")
        return Ledger, (self.path,)

    @property
    def limit(self) -> Limit | None:
        """What the ledger states of itself; None before its first charge."""
        return self._limit

    def state_limit(self, epsilon: float, delta: float) -> None:
        """State, once, what may be spent of each account; makes the file if there is none."""
        if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
            raise ConfigError(
                f"a ledger's limit: epsilon {epsilon!r} and delta {delta!r} must be positive, delta below 1"
            )
        wanted = Limit(float(epsilon), float(delta))
        with self._held(delta) as append:
            if self._limit != wanted:
                self._check_limit(wanted, epsilon)
                append([], wanted)

    def _check_limit(self, wanted: Limit, epsilon: float) -> None:
        place = "privacy ledger" if self.path is None else shown(self.path)
        if self._limit is not None and self._limit.epsilon is not None and self._limit != wanted:
            raise ConfigError(
                f"{place}: states its limit already, epsilon {self._limit.epsilon:g} at delta "
                f"{self._limit.delta:g}, and states it once; use another ledger for data that share no person"
            )
        for account in self._book.accounts:
            spent = self.spent(account).epsilon(wanted.delta)
            if not spent <= epsilon * (1.0 + TOLERANCE):
                raise PrivacyBudgetError(
                    f"{place}: {account.party}: epsilon {rounded_up(spent)} at delta {wanted.delta:g} has "
                    f"been spent, more than {epsilon:g}"
                )

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
        """What has been charged to one account."""
        if isinstance(data, str):
            found = [c for c in self._book.charges if c.rows == data and c.role == FEATURES]
        else:
            found = self._book.of(data)
        return added([c for c in found if run in (None, c.run)])

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
        """Charge a release before it is used; on disk when this returns."""
        return self.charge_all([charge], epsilon, delta)

    def charge_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> bool:
        """Charge several releases, all or none."""
        self._refuse_early(self._new(charges), epsilon, delta)
        with self._held(delta) as append:
            new = self._new(charges)
            self._check(new, epsilon, delta)
            if new:
                append(new)
        return bool(new)

    def check_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Refuse what :meth:`charge_all` would refuse; charges nothing, and does not write."""
        if self._refuse_early(self._new(charges), epsilon, delta):
            return
        with self._held(delta, make=False):
            self._check(self._new(charges), epsilon, delta)

    @contextmanager
    def _held(self, delta: float, *, make: bool = True) -> Iterator[Callable[..., None]]:
        """The newest charges, by this process alone where they are on disk; what appends to them."""
        own = self._file
        if own is None:

            def keep(charges: Sequence[Charge], limit: Limit | None = None) -> None:
                self._book.add(charges)
                self._limit = limit or self._limit or (Limit(None, delta) if delta > 0.0 else None)

            yield keep
            return
        if make:
            own.create(delta or None)
        with own.locked() as file:
            self._refresh()

            def append(charges: Sequence[Charge], limit: Limit | None = None) -> None:
                own.append(file, [asdict(charge) for charge in charges], limit)
                self._refresh()

            yield append

    def _refuse_early(self, new: Sequence[Charge], epsilon: float, delta: float) -> bool:
        """Whether there is no file yet: what is refused makes none."""
        absent = self.path is not None and not self.path.exists()
        if absent:
            self._check(new, epsilon, delta)
        return absent

    def _new(self, charges: Sequence[Charge]) -> list[Charge]:
        return [charge for charge in charges if not self.holds(charge)]

    def _check(self, new: Sequence[Charge], epsilon: float, delta: float) -> None:
        for c in new:
            if not all(0.0 <= cost < math.inf for cost in (c.gdp, c.pure, c.rho)):
                raise PrivacyBudgetError(f"privacy ledger: {c.party}, {c.release}: its cost is not finite")
        coming = Book(new)
        limit = self._limit or Limit(None, delta)
        bounds = [(epsilon, min(delta, limit.delta), "")]
        if limit.epsilon is not None:
            bounds.append((limit.epsilon, limit.delta, ", which the ledger states"))
        for account, charges in coming.accounts.items():
            if not any(c.gdp or c.pure or c.rho for c in charges):
                continue  # a note of a release that was charged beforehand
            for most, at, whose in bounds:
                if added(self._book.of(account, coming)).exceeds(most, at):
                    self._refuse(account, charges[0].release, (most, at, whose), coming)

    def _refuse(self, account: Account, release: str, bound: tuple[float, float, str], coming: Book) -> None:
        most, delta, whose = bound
        before = self.spent(account)
        after = added(self._book.of(account, coming)).epsilon(delta)
        name = shown(self.path) if self.path is not None else "privacy ledger"
        spent = f"{before.releases} releases of {before.runs} run(s) have spent epsilon"
        raise PrivacyBudgetError(
            f"{name}: {account.party}: {spent} {before.epsilon(delta):.4g}; "
            f"with '{release}' it would be {after:.4g} of {most:.4g} at delta {delta:g}{whose}; "
            "nothing was sent"
        )


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
    """Refuse to replace a run that keeps the only account of what it spent."""
    if path.exists() and Ledger(path).charges:
        raise PrivacyBudgetError(
            f"{shown(path.parent)}: --force would remove {path.name}, the only account of what this run "
            "released; choose another name, or move that file away and pass it as --ledger"
        )


def other_runs(
    ledger: Ledger,
    data: Sequence[Account | str],
    settings: DifferentialPrivacy,
    labels: Account | None = None,
) -> str:
    """What a ledger has charged to the same data in other runs, in words; empty for none."""
    spent = [found for found in map(ledger.spent, data) if found.runs > 1]
    told = [found for found in [ledger.spent(labels)] if found.runs > 1] if labels is not None else []
    if not (spent or told):
        return ""
    parts, limit = [], ledger.limit
    if spent:
        delta = settings.delta if limit is None else limit.delta
        allowed = min(settings.budget, math.inf if limit is None or limit.epsilon is None else limit.epsilon)
        epsilon = rounded_up(max(found.epsilon(delta) for found in spent))
        parts.append(f"epsilon {epsilon} at delta {delta!r}, of {allowed!r} allowed")
    if told:
        parts.append(f"label epsilon {rounded_up(math.fsum(told[0].pure))}")
    runs = max(found.runs for found in (*spent, *told))
    return f"{runs - 1} other run(s) in this ledger; all together {', '.join(parts)}"


def limit_words(ledger: Ledger) -> str:
    """What a ledger allows, in words."""
    limit = ledger.limit
    if limit is None or limit.epsilon is None:
        at = "" if limit is None else f"; counts at delta {limit.delta!r}"
        return f"none stated{at}: what each run or approval says; state one with --set-limit EPSILON"
    return f"epsilon {limit.epsilon!r} at delta {limit.delta!r} for each account, as its owner stated"


def spent_words(ledger: Ledger, account: Account, delta: float) -> str:
    """What a ledger holds about some data, in one line, for an owner who is to decide about more."""
    limit, spent = ledger.limit, ledger.spent(account)
    at = delta if limit is None else limit.delta
    most = "" if limit is None or limit.epsilon is None else f" of {limit.epsilon!r}"
    if not spent.releases:
        return "nothing of these data" + (f"{most} at delta {at!r}" if most else "")
    return (
        f"epsilon {rounded_up(spent.epsilon(at))}{most} at delta {at!r}, in {spent.releases} release(s) of "
        f"{spent.runs} run(s)"
    )


def describe_accounts(ledger: Ledger, delta: float) -> list[dict[str, Any]]:
    """The accounts of a ledger."""
    numbers = {"": 0}
    described = []
    for charges in ledger.accounts():
        for charge in charges:
            numbers.setdefault(charge.rows, len(numbers))
        spent = ledger.spent(charges[0].account)
        described.append(
            {
                "role": charges[0].role,
                "rows": sorted({numbers[charge.rows] for charge in charges}),
                "parties": sorted({charge.party for charge in charges}),
                "runs": spent.runs,
                "releases": spent.releases,
                "epsilon": spent.epsilon(delta),
            }
        )
    return described


def account_table(accounts: list[dict[str, Any]], delta: float) -> list[tuple[str, str]]:
    """Accounts as a table of two columns: whose data they are, and what was spent."""
    return [
        (
            f"{account['role']} of {', '.join(ascii(name)[1:-1] for name in account['parties'])}, "
            + (
                f"rows {', '.join(map(str, known))}"
                if (known := [n for n in account["rows"] if n])
                else "any rows"
            ),
            f"epsilon = {rounded_up(account['epsilon'])} at delta = {delta!r}: "
            f"{account['releases']} release(s) of {account['runs']} run(s)",
        )
        for account in accounts
    ]
