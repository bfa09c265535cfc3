"""What an owner run charges: all rounds beforehand, and rounds that have to be answered once more.

The ledger notes each draw of a round at no cost, so that it knows which rounds were answered, whatever became
of their files. A round that is answered once more is a further charge, or the budget refuses it.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, PrivacyBudgetError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_bytes
from fastadmm.owners.owner import Owner
from fastadmm.owners.setup import Setup
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import Account, record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, Releases, digest_of, draws_of, reserve
from fastadmm.settings.owners import parse_epsilons
from fastadmm.store.collection import Owners

#: The run's own ledger, where none is shared.
LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class _Member:
    """An owner that answers with noise, and what all its answers cost."""

    owner: Owner
    account: Account
    gdp: float
    pure: float
    budget: float

    def charge(self, run: str, release: str, share: float = 1.0) -> Charge:
        """A share of all rounds: epsilon adds up, mu in squares."""
        return Charge.to(self.account, run, release, gdp=self.gdp * math.sqrt(share), pure=self.pure * share)


class RunAccount:
    """The owners of a run that answer with noise, their budgets and their ledger."""

    def __init__(self, run: Path, identifier: str, setup: Setup, data: Owners) -> None:
        settings = setup.settings
        self.batches = settings.batch < 1
        if self.batches and settings.ledger is not None:
            raise ConfigError(
                "ledger: the cost of batches does not add up exactly with that of other runs; leave --ledger "
                "out"
            )
        self.ledger = Ledger(Path(settings.ledger) if settings.ledger is not None else run / LEDGER)
        self.identifier, self.setup = identifier, setup
        gaussian = settings.mechanism == "gaussian"
        self.delta = settings.delta / setup.kappa if gaussian and settings.delta is not None else 0.0
        budgets = parse_epsilons(settings.budget or settings.epsilon, data.names)
        self.private = [
            _Member(
                owner,
                record_account(file),
                gdp_of(owner.epsilon, self.delta) if gaussian else 0.0,
                0.0 if gaussian else owner.epsilon,
                budget / setup.kappa,
            )
            for owner, file, budget in zip(setup.owners, data.owners, budgets, strict=True)
            if owner.answers.name != "none"
        ]

    def charge_all_rounds(self) -> None:
        """Charge every owner's answers of all rounds, once per run; refused for one, nothing is charged."""
        release = f"answers to {self.setup.settings.rounds} gradient queries"
        payments = self._payments(release)
        # Set aside first: another run that comes between two owners would stop this one half way.
        reserve(self.ledger, [p for p in payments if not self.ledger.holds(p.charges[0])])
        for payment in payments:
            payment.charge("")

    def _payments(self, release: str, share: float = 1.0) -> list[Payment]:
        """What a share of all rounds costs each owner."""
        run = self.identifier
        return [
            Payment(self.ledger, [m.charge(run, release, share)], m.budget, self.delta) for m in self.private
        ]

    def payment(self, number: int) -> RoundPayment:
        """What a round costs."""
        note = Charge.to(self.private[0].account, self.identifier, f"answers to query {number}")
        again = self._payments(f"answers to query {number} again", 1.0 / self.setup.settings.rounds)
        return RoundPayment(self.ledger, [note], math.inf, 0.0, None if self.batches else again)

    def add_repeated(self, statement: dict[str, Any]) -> None:
        """Let a statement say what was really spent, where rounds were answered more than once."""
        more = {}
        for member in self.private:
            spent = self.ledger.spent(member.account, self.identifier).epsilon(self.delta)
            if spent > member.owner.epsilon * (1.0 + 1e-9):
                more[member.owner.name] = spent
        for entry in statement["owners"]:
            if entry["name"] in more:
                entry["epsilon_per_owner"] = more[entry["name"]]
                entry["epsilon"] = more[entry["name"]] * self.setup.kappa
        if more:
            text = "Rounds whose answers were lost were answered again: epsilon counts both."
            statement["sentence"] += f" {text}"


@dataclass(frozen=True)
class RoundPayment(Payment):
    """What one round costs: the note of the first draw nothing, any later draw a share of all rounds."""

    again: Sequence[Payment] | None = ()

    def check(self) -> None:
        """Refuse a round that the budget does not allow, before anything is drawn."""
        if self.charges and draws_of(self.ledger, self.charges[0]):
            for payment in self._priced():
                payment.check()

    def charge(self, draw: str) -> None:
        """Note a draw, and charge it unless it is the first of its round."""
        if not self.charges:
            return
        super().charge(draw)
        if draws_of(self.ledger, self.charges[0])[0] != draw:
            for payment in self._priced():
                payment.charge(draw)

    def _priced(self) -> Sequence[Payment]:
        if self.again is None:
            raise PrivacyBudgetError(
                f"{self.charges[0].release}: was answered before, and that answer is lost; what another one "
                "on a batch costs does not add up: restore the file, or start a new run; nothing was sent"
            )
        return self.again


class Answers:
    """Answers by round, each of shape (owners, p)."""

    def __init__(
        self, directory: Path, run: str, shape: tuple[int, int], payment: Callable[[int], Payment]
    ) -> None:
        self.directory, self.shape = directory, shape
        self._payment, self._releases = payment, Releases(directory)
        self._before = run  # what the next answer's question continues
        with storage_errors(directory, "read"):
            self._names = sorted(os.listdir(directory)) if directory.is_dir() else []

    def holds(self, number: int) -> bool:
        """Whether a round was answered."""
        return self._releases.holds(_name(number)) or self._old(number) is not None

    def obtain(self, number: int, ask: Callable[[], np.ndarray]) -> np.ndarray:
        """A round's answers, stored, or drawn and noted before their use. Shapes: the result (owners, p)."""
        old = self._old(number)
        if old is not None:
            answers = self._checked(old, _read_old(old))
        else:
            if not self.holds(number):
                self._refuse_hole(number)
            # Not the query itself, whose last bits may differ on another machine.
            question = digest_of(self._before, number)
            place = self.directory / f"{_name(number)}.npz"
            answers = self._releases.obtain(
                _name(number),
                question,
                self._payment(number),
                lambda: {"answers": ask()},
                lambda found: self._checked(place, found["answers"]),
            )
        self._before = digest_of(self._before, number, answers)
        return answers

    def _refuse_hole(self, number: int) -> None:
        numbers = [_number(name) for name in self._names]
        later = min((n for n in numbers if n is not None and n > number), default=None)
        self._names = []  # what comes after this round is made here
        if later is not None:
            raise FormatError(
                f"{shown(self.directory)}: the answers of round {number} are missing, those of round {later} "
                "are there; restore them, or remove the later ones to ask again, which is charged"
            )

    def _checked(self, path: Path, answers: np.ndarray) -> np.ndarray:
        if answers.shape != self.shape or answers.dtype != np.float64 or not np.isfinite(answers).all():
            raise FormatError(f"{shown(path)}: holds no {self.shape} finite numbers; restore the file")
        return answers

    def _old(self, number: int) -> Path | None:
        """The answers as older versions kept them: one array, without a checksum."""
        path = self.directory / f"{_name(number)}.npy"
        return path if path.name in self._names else None


def _name(number: int) -> str:
    return f"round-{number:06d}"


def _number(name: str) -> int | None:
    digits = name.removeprefix("round-").split(".")[0]
    return int(digits) if digits.isdecimal() else None


def _read_old(path: Path) -> np.ndarray:
    raw = read_bytes(path)
    advice = "damaged; it cannot be asked for again: restore the file, or start a new run"
    try:
        version = np.lib.format.read_magic(file := io.BytesIO(raw))
        if version != (1, 0):
            raise ValueError("version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if math.prod(shape) * dtype.itemsize != len(raw) - file.tell() or dtype.hasobject:
            raise ValueError("length")
        return np.frombuffer(raw, dtype, offset=file.tell()).reshape(shape)
    except Exception:  # whatever a damaged header makes NumPy say
        raise FormatError(f"{shown(path)}: {advice}") from None
