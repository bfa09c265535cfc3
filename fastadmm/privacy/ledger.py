"""The privacy ledger: a release is charged, on disk, before it leaves; none is made beyond the budget.

One ledger may serve several runs on the same data, as tuning needs: what they spend adds up. It is a file
of JSON lines that only grows: a header with nothing but the version, then one line per charge. Two processes
that charge at once take turns.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from fastadmm.errors import FormatError, PrivacyBudgetError
from fastadmm.privacy.accounting import compose_gdp, epsilon_of, zcdp_epsilon, zcdp_of
from fastadmm.privacy.settings import Privacy
from fastadmm.store.atomic import shown, storage_errors

__all__ = ["Charge", "Ledger", "Spent", "other_runs"]

_FORMAT = "fastadmm-privacy-ledger"
_VERSION = "1.0"

#: Two budgets that differ by rounding are the same.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Charge:
    """What one release costs.

    Attributes
    ----------
    run : str
        Identifier of the run.
    data : str
        Identifier of the protected data: a party's content digest, or any name for labels.
    party : str
    release : str
        What is released; with ``run``, ``data`` and ``party`` it identifies the release.
    gdp : float
        mu of a Gaussian release, 0 for none.
    pure : float
        Epsilon of a pure mechanism, 0 for none.
    rho : float
        zCDP of a discrete Gaussian release, 0 for none.
    """

    run: str
    data: str
    party: str
    release: str
    gdp: float = 0.0
    pure: float = 0.0
    rho: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies the release."""
        return self.run, self.data, self.party, self.release


@dataclass(frozen=True)
class Spent:
    """What has been charged to one set of data.

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
        If the file is not a ledger, or damaged before its last line.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._charges: dict[tuple[str, str, str, str], Charge] = {}
        self._size = 0
        if path is not None and path.exists():
            with self._locked() as file:
                self._read(file)

    @property
    def charges(self) -> list[Charge]:
        """All charges, oldest first."""
        return list(self._charges.values())

    def holds(self, charge: Charge) -> bool:
        """Whether this very release was charged already."""
        return charge.key in self._charges

    def spent(self, data: str, run: str | None = None) -> Spent:
        """What has been charged to one set of data.

        Parameters
        ----------
        data : str
        run : str, optional
            Count only this run's charges.

        Returns
        -------
        Spent
        """
        found = [c for c in self._charges.values() if c.data == data and run in (None, c.run)]
        return _sum(found)

    def charge(self, charge: Charge, epsilon: float, delta: float) -> bool:
        """Charge a release before it is made; on disk when this returns.

        Parameters
        ----------
        charge : Charge
        epsilon, delta : float
            Budget of everything that is charged to the same data.

        Returns
        -------
        bool
            False if this very release was charged before: the message that
            was stored then has to be sent again, and none drawn.

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
            Budget for each set of data.

        Returns
        -------
        bool
            Whether any of them is new.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not allow one of them; nothing is charged.
        """
        if self.path is None:
            return self._charge(charges, epsilon, delta, None)
        with self._locked() as file:
            self._read(file)
            return self._charge(charges, epsilon, delta, file)

    def check_all(self, charges: Sequence[Charge], epsilon: float, delta: float) -> None:
        """Refuse a run that its budget would stop half way; charges nothing.

        Parameters
        ----------
        charges : sequence of Charge
            Everything the run will charge.
        epsilon, delta : float
            Budget for each set of data.

        Raises
        ------
        PrivacyBudgetError
        """
        new = [c for c in charges if not self.holds(c)]
        for data in {c.data for c in new}:
            self._check(data, [c for c in new if c.data == data], epsilon, delta)

    def _charge(
        self, charges: Sequence[Charge], epsilon: float, delta: float, file: IO[bytes] | None
    ) -> bool:
        new = [c for c in charges if c.key not in self._charges]
        if not new:
            return False
        for data in {c.data for c in new}:
            self._check(data, [c for c in new if c.data == data], epsilon, delta)
        if file is not None:
            lines = [] if self._size else [{"format": _FORMAT, "version": _VERSION}]
            lines += [asdict(c) for c in new]
            text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
            file.seek(self._size)
            file.truncate()  # what a kill left half-written; its release was never made
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            self._size += len(text)
        self._charges.update((c.key, c) for c in new)
        return True

    def _check(self, data: str, new: Sequence[Charge], epsilon: float, delta: float) -> None:
        for c in new:
            if not all(0.0 <= cost < math.inf for cost in (c.gdp, c.pure, c.rho)):
                raise PrivacyBudgetError(f"privacy ledger: {c.party}, {c.release}: its cost is not finite")
        before = self.spent(data)
        after = _sum([*(c for c in self._charges.values() if c.data == data), *new]).epsilon(delta)
        if after > epsilon * (1.0 + _TOLERANCE):
            name = shown(self.path) if self.path is not None else "privacy ledger"
            spent = f"{before.releases} releases of {before.runs} run(s) have spent epsilon"
            raise PrivacyBudgetError(
                f"{name}: {new[0].party}: {spent} {before.epsilon(delta):.4g}; "
                f"with '{new[0].release}' it would be {after:.4g} of {epsilon:.4g} "
                f"at delta {delta:g}; nothing was sent"
            )

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file, held by this process alone."""
        path = self.path
        if path is None:
            raise AssertionError("a ledger in memory has no file")
        with storage_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file

    def _read(self, file: IO[bytes]) -> None:
        """Take in what is on disk; a torn last line was never acted upon and does not count."""
        file.seek(0)
        raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        charges: dict[tuple[str, str, str, str], Charge] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                values = json.loads(line)
                if number == 1:
                    if values.get("format") != _FORMAT or values.get("version") != _VERSION:
                        raise ValueError(
                            f"format {values.get('format')!r}, version {values.get('version')!r}"
                        )
                    continue
                charge = _charge_of(values)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise FormatError(
                    f"{shown(self.path or '')}: line {number}: not a privacy ledger: {error}; "
                    "what was spent is unknown, so nothing is sent: restore the file"
                ) from None
            charges[charge.key] = charge
        self._charges, self._size = charges, len(whole)


def _charge_of(values: dict[str, Any]) -> Charge:
    texts = {key: values[key] for key in ("run", "data", "party", "release")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("names must be texts")
    costs = {key: float(values[key]) for key in ("gdp", "pure", "rho")}
    if not all(0.0 <= cost < math.inf for cost in costs.values()):
        raise ValueError("costs must be finite and not negative")
    return Charge(**texts, gdp=costs["gdp"], pure=costs["pure"], rho=costs["rho"])


def other_runs(ledger: Ledger, data: Sequence[str], settings: Privacy) -> str:
    """What a ledger has charged to the same data in other runs, in words; empty for none.

    Parameters
    ----------
    ledger : Ledger
    data : sequence of str
        Identifier of each party's data.
    settings : Privacy

    Returns
    -------
    str
    """
    worst = max((ledger.spent(name) for name in data), key=lambda s: s.runs, default=None)
    if worst is None or worst.runs <= 1:
        return ""
    epsilon = worst.epsilon(settings.delta)
    return (
        f"{worst.runs - 1} other run(s) in this ledger; all together epsilon {epsilon:.4g} at delta "
        f"{settings.delta:g}, of {settings.budget:.4g} allowed"
    )
