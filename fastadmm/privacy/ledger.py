"""The privacy ledger: a release is charged, on disk, before it is used, and none exceeds the budget.

* **A charge belongs to data and a role**, not to names: :mod:`fastadmm.privacy.accounts`.
* **A charge is for one draw.** Each draw of noise has a random name, stored with the release. Draw, store,
  charge, use: a stored release is charged under its own draw before every use, which costs nothing if the
  ledger holds that charge. A release that is no longer stored is spent; drawing it again is a new charge.
* **Charges are the same only if their costs are.** At a different cost it is a different release.
* **A ledger counts at its own delta**, that of its first charge unless its owner has stated another, and
  never allows more than the epsilon that its owner stated. What a run is allowed is checked besides.
* **A run reserves its whole budget before it draws anything**, in a locked file beside the ledger, so that
  two runs do not stop each other half way. A reservation ends with its process.
"""

from __future__ import annotations

import glob
import json
import math
import os
import secrets
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, PrivacyBudgetError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.modes import lock_file
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

__all__ = ["Charge", "Ledger", "Reservation", "Spent", "other_runs", "refuse_to_forget", "reserved_by_others"]


class Ledger:
    """Append-only account of releases: ``docs/privacy.md#the-ledger``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._book = Book()
        self._planned: list[Charge] = []
        self._reservation: Reservation | None = None
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
            self._check(new, [*self._left(new), *self._others()], epsilon, delta)
            if new:
                append(new)
            self._planned = self._left(new)
            if not self._planned:
                self.free()
        return bool(new)

    def check_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Refuse what :meth:`charge_all` would refuse; charges nothing, and does not write."""
        if self._refuse_early(self._new(charges), epsilon, delta):
            return
        with self._held(delta, make=False):
            new = self._new(charges)
            self._check(new, [*self._left(new), *self._others()], epsilon, delta)

    def reserve(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Reserve what a run will charge, until it ends, or refuse it before it draws anything."""
        self._refuse_early(charges, epsilon, delta)
        with self._held(delta):
            self._check(charges, [*self._planned, *self._others()], epsilon, delta)
            planned = [*self._planned, *charges]
            if charges and self.path is not None:
                self._reservation = self._reservation or Reservation(self.path)
                self._reservation.write(len(self._book.charges), [asdict(charge) for charge in planned])
            self._planned = planned

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
            self._check(new, self._left(new), epsilon, delta)
        return absent

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
        held, coming = Book(reserved), Book(new)
        limit = self._limit or Limit(None, delta)
        bounds = [(epsilon, min(delta, limit.delta), "")]
        if limit.epsilon is not None:
            bounds.append((limit.epsilon, limit.delta, ", which the ledger states"))
        for account, charges in coming.accounts.items():
            if not any(c.gdp or c.pure or c.rho for c in charges):
                continue  # a note of a release that was charged beforehand
            for most, at, whose in bounds:
                if added(self._book.of(account, held, coming)).exceeds(most, at):
                    self._refuse(account, charges[0].release, (most, at, whose), held, coming)

    def _refuse(
        self, account: Account, release: str, bound: tuple[float, float, str], held: Book, coming: Book
    ) -> None:
        most, delta, whose = bound
        before, aside = self.spent(account), len(held.of(account))
        after = added(self._book.of(account, held, coming)).epsilon(delta)
        name = shown(self.path) if self.path is not None else "privacy ledger"
        spent = f"{before.releases} releases of {before.runs} run(s) have spent epsilon"
        more = f", {aside} more are set aside by runs under way" if aside else ""
        raise PrivacyBudgetError(
            f"{name}: {account.party}: {spent} {before.epsilon(delta):.4g}{more}; "
            f"with '{release}' it would be {after:.4g} of {most:.4g} at delta {delta:g}{whose}; "
            "nothing was sent"
        )


def _without(charges: Sequence[Charge], made: Counter[tuple[str, str, str, str]]) -> list[Charge]:
    """Planned charges that were not made yet."""
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


class Reservation:
    """One run's file of charges to come, used while the ledger is locked: ``docs/privacy.md#the-ledger``."""

    def __init__(self, ledger: Path) -> None:
        target = Path(os.path.realpath(ledger))
        self.path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        lock_file(self._descriptor, wait=False)
        # Also when nobody frees it: the lock ends with the process, the file's name with the interpreter.
        self._finalizer = weakref.finalize(self, _free, self._descriptor, self.path, os.getpid())

    def write(self, at: int, planned: list[dict[str, Any]]) -> None:
        """Say what is to come."""
        raw = json.dumps({"at": at, "planned": planned}, allow_nan=False).encode()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while raw:
            raw = raw[os.write(self._descriptor, raw) :]

    def free(self) -> None:
        """Give back what was not drawn."""
        self._finalizer()


def _free(descriptor: int, path: Path, process: int) -> None:
    os.close(descriptor)
    if os.getpid() == process:  # a forked child leaves its parent's
        for _ in range(2):  # an error of the disk may pass; what stays goes with the next run
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _prefix(target: Path) -> str:
    """By the file itself: hard links beside each other are one ledger."""
    number = os.stat(target).st_ino if target.exists() else 0
    return f".ledger-{number}.reserved-"


def reserved_by_others(ledger: Path, own: Reservation | None) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    """What living processes have set aside; files of dead ones are removed."""
    target = Path(os.path.realpath(ledger))
    for path in sorted(target.parent.glob(glob.escape(_prefix(target)) + "*.tmp")):
        if own is not None and path == own.path:
            continue
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            with suppress(BlockingIOError):
                lock_file(descriptor, wait=False)
                with suppress(OSError):
                    path.unlink()  # nobody holds it: its process is gone, and what it used is charged
                continue
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                found = json.loads(file.read())
            yield int(found["at"]), list(found["planned"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{shown(path)}: another run's reservation is unreadable ({error}); wait for that run"
            ) from None
        finally:
            os.close(descriptor)


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
