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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, PrivacyBudgetError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_all
from fastadmm.files.modes import lock_file
from fastadmm.privacy.accounts import TOLERANCE, Account, Book, Charge, Spent, added
from fastadmm.privacy.ledger_file import LedgerFile, Limit
from fastadmm.privacy.statement import rounded_up
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["Charge", "Ledger", "Spent"]


class Ledger:
    """Append-only account of releases: ``docs/privacy.md#the-ledger``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.name = path, "privacy ledger" if path is None else shown(path)
        self.limit: Limit | None = None  # what the ledger states of itself; None before its first charge
        self._book = Book()
        self._planned: list[Charge] = []
        self._reservation: Reservation | None = None
        self._file = None if path is None else LedgerFile(path)
        if path is not None and self._file is not None:
            with storage_errors(path, "read"):
                exists = path.exists()
            if exists:
                with self._file.locked(write=False):
                    self._refresh()

    def _refresh(self) -> None:
        """Take in what the file holds."""
        if self._file is not None:
            self._book, self.limit = Book(self._file.state.charges), self._file.state.limit

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self  # a copy would be an account of its own: two could spend the whole budget each

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError("a ledger in memory cannot be shared with another process; give it a file")
        return Ledger, (self.path,)

    @property
    def most(self) -> float:
        """The epsilon that its owner stated; infinite where none was."""
        return math.inf if self.limit is None or self.limit.epsilon is None else self.limit.epsilon

    def delta(self, run: float) -> float:
        """The delta at which it counts: its own, or a run's."""
        return run if self.limit is None else self.limit.delta

    def state_limit(self, epsilon: float, delta: float) -> None:
        """State, once, what may be spent of each account; makes the file if there is none."""
        if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
            raise ConfigError(
                f"a ledger's limit: epsilon {epsilon!r} and delta {delta!r} must be positive, delta below 1"
            )
        wanted = Limit(float(epsilon), float(delta))
        with self._held(delta) as append:
            if self.limit == wanted:
                return
            if self.limit is not None and self.limit.epsilon is not None:
                raise ConfigError(
                    f"{self.name}: states its limit already, epsilon {self.limit.epsilon:g} at delta "
                    f"{self.limit.delta:g}, and states it once; use another ledger for data that share no "
                    "person"
                )
            for account in self._book.accounts:
                spent = self.spent(account).epsilon(delta)
                if not spent <= epsilon * (1.0 + TOLERANCE):
                    raise PrivacyBudgetError(
                        f"{self.name}: {account.party}: epsilon {rounded_up(spent)} at delta {delta:g} has "
                        f"been spent, more than {epsilon:g}"
                    )
            append([], wanted)

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

    def spent(self, account: Account, run: str | None = None) -> Spent:
        """What has been charged to one account."""
        return added([c for c in self._book.of(account) if run in (None, c.run)])

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
            new = self._checked(charges, epsilon, delta)
            if new:
                append(new)
            self._planned = self._left(new)
            if not self._planned:
                self.free()
        return bool(new)

    def check_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Refuse what :meth:`charge_all` would refuse; charges nothing, and does not write."""
        if not self._refuse_early(self._new(charges), epsilon, delta):
            with self._held(delta, make=False):
                self._checked(charges, epsilon, delta)

    def _checked(self, charges: Sequence[Charge], epsilon: float, delta: float) -> list[Charge]:
        """Those of the charges that are new, if there is room for them beside what is set aside."""
        new = self._new(charges)
        self._check(new, [*self._left(new), *self._others()], epsilon, delta)
        return new

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
        if self._file is None:

            def keep(charges: Sequence[Charge], limit: Limit | None = None) -> None:
                self._book.add(charges)
                self.limit = limit or self.limit or (Limit(None, delta) if delta > 0.0 else None)

            yield keep
            return
        if make:
            self._file.create(delta or None)
        with self._file.locked() as file:
            self._refresh()
            yield partial(self._file.append, file)
            self._refresh()

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
        own = None if self._reservation is None else self._reservation.path
        reserved = () if self.path is None else reserved_by_others(self.path, own)
        return [
            charge
            for at, planned in reserved
            for charge in _without(planned, Counter(c.plan for c in self._book.charges[at:]))
        ]

    def _check(self, new: Sequence[Charge], reserved: Sequence[Charge], epsilon: float, delta: float) -> None:
        for c in new:
            if not all(0.0 <= cost < math.inf for cost in (c.gdp, c.pure, c.rho)):
                raise PrivacyBudgetError(f"privacy ledger: {c.party}, {c.release}: its cost is not finite")
        held, coming = Book(reserved), Book(new)
        bounds = [(epsilon, min(delta, self.delta(delta)), "")]
        if self.limit is not None and self.limit.epsilon is not None:
            bounds.append((self.limit.epsilon, self.limit.delta, ", which the ledger states"))
        for account, charges in coming.accounts.items():
            if not any(c.gdp or c.pure or c.rho for c in charges):
                continue  # a note of a release that was charged beforehand
            after = added(self._book.of(account, held, coming))
            for most, at, whose in bounds:
                if after.exceeds(most, at):
                    before, aside = self.spent(account), len(held.of(account))
                    more = f", {aside} more are set aside by runs under way" if aside else ""
                    raise PrivacyBudgetError(
                        f"{self.name}: {account.party}: {before.releases} releases of {before.runs} run(s) "
                        f"have spent epsilon {before.epsilon(at):.4g}{more}; with '{charges[0].release}' it "
                        f"would be {after.epsilon(at):.4g} of {most:.4g} at delta {at:g}{whose}; nothing was "
                        "sent"
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


def refuse_to_forget(path: Path) -> None:
    """Refuse to replace a run that keeps the only account of what it spent."""
    if path.exists() and Ledger(path).charges:
        raise PrivacyBudgetError(
            f"{shown(path.parent)}: --force would remove {path.name}, the only account of what this run "
            "released; choose another name, or move that file away and pass it as --ledger"
        )


def spent_words(spent: Spent, delta: float, most: float = math.inf) -> str:
    """What was spent, of what is allowed, in one line, for an owner who is to decide about more."""
    allowed = f" of {most!r}" if math.isfinite(most) else ""
    if not spent.releases:
        return "nothing of these data" + (f"{allowed} at delta {delta!r}" if allowed else "")
    epsilon = f"epsilon {rounded_up(spent.epsilon(delta))}{allowed} at delta {delta!r}"
    return f"{epsilon}, in {spent.releases} release(s) of {spent.runs} run(s)"


def other_runs(
    ledger: Ledger, data: Sequence[Account], settings: DifferentialPrivacy, labels: Account | None = None
) -> str:
    """What a ledger has charged to the same data in other runs, in words; empty for none."""
    delta, most = ledger.delta(settings.delta), min(settings.budget, ledger.most)
    spent = [found for found in map(ledger.spent, data) if found.runs > 1]
    told = [found for found in [ledger.spent(labels)] if found.runs > 1] if labels is not None else []
    if not (spent or told):
        return ""
    largest = sorted(spent, key=lambda found: found.epsilon(delta))[-1:]
    parts = [spent_words(found, delta, most) for found in largest]
    parts += [f"label epsilon {rounded_up(math.fsum(found.pure))}" for found in told]
    runs = max(found.runs for found in (*spent, *told))
    return f"{runs - 1} other run(s) in this ledger; all together {', '.join(parts)}"


class Reservation:
    """One run's file of charges to come, used while the ledger is locked: ``docs/privacy.md#the-ledger``."""

    def __init__(self, ledger: Path) -> None:
        target = Path(os.path.realpath(ledger))
        self.path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        lock_file(self._descriptor, wait=False)
        #: Gives back what was not drawn. Also when nobody does: the lock ends with the process, the file's
        #: name with the interpreter.
        self.free = weakref.finalize(self, _free, self._descriptor, self.path, os.getpid())

    def write(self, at: int, planned: list[dict[str, Any]]) -> None:
        """Say what is to come."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        write_all(self._descriptor, json.dumps({"at": at, "planned": planned}, allow_nan=False).encode())


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


def reserved_by_others(ledger: Path, own: Path | None) -> Iterator[tuple[int, list[Charge]]]:
    """What living processes have set aside; files of dead ones are removed."""
    target = Path(os.path.realpath(ledger))
    for path in sorted(target.parent.glob(glob.escape(_prefix(target)) + "*.tmp")):
        try:
            file = None if path == own else open(path, "r+b")  # noqa: SIM115 (closed below)
        except FileNotFoundError:
            continue
        if file is None:
            continue
        with file:
            with suppress(BlockingIOError):
                lock_file(file.fileno(), wait=False)
                with suppress(OSError):
                    path.unlink()  # nobody holds it: its process is gone, and what it used is charged
                continue
            try:
                found = json.loads(file.read())
                planned = int(found["at"]), [Charge(**values) for values in found["planned"]]
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(
                    f"{shown(path)}: another run's reservation is unreadable ({error}); wait for that run"
                ) from None
            yield planned


def limit_words(ledger: Ledger) -> str:
    """What a ledger allows, in words."""
    limit = ledger.limit
    if limit is None or limit.epsilon is None:
        at = "" if limit is None else f"; counts at delta {limit.delta!r}"
        return f"none stated{at}: what each run or approval says; state one with --set-limit EPSILON"
    return f"epsilon {limit.epsilon!r} at delta {limit.delta!r} for each account, as its owner stated"
