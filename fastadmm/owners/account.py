"""What an owner run charges, all rounds beforehand, and the answers that it stores.

The ledger notes each draw of a round at no cost, so that it knows which rounds were answered, whatever became
of their files. A round whose answers were lost is not answered once more.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastadmm.errors import FormatError, PrivacyBudgetError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_bytes
from fastadmm.owners.owner import Owner
from fastadmm.owners.setup import Setup
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import Account, record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, Releases, digest_of, draws_of, reserve
from fastadmm.settings.owners import parse_epsilons
from fastadmm.store.owner_file import Owners

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


class RunAccount:
    """The owners of a run that answer with noise, their budgets and their ledger."""

    def __init__(self, run: Path, identifier: str, setup: Setup, data: Owners) -> None:
        settings = setup.settings
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
        payments = [
            Payment(
                self.ledger,
                [Charge.to(m.account, self.identifier, release, gdp=m.gdp, pure=m.pure)],
                m.budget,
                self.delta,
            )
            for m in self.private
        ]
        # Set aside first: another run that comes between two owners would stop this one half way.
        reserve(self.ledger, [p for p in payments if not self.ledger.holds(p.charges[0])])
        for payment in payments:
            payment.charge("")

    def note(self, number: int) -> RoundNote:
        """The note of a round's draw."""
        charge = Charge.to(self.private[0].account, self.identifier, f"answers to query {number}")
        return RoundNote(self.ledger, [charge], math.inf, 0.0)


@dataclass(frozen=True)
class RoundNote(Payment):
    """The note of a round's only draw, which costs nothing: all rounds were charged beforehand."""

    def check(self) -> None:
        """Refuse a round that was answered before."""
        self._refuse_another("")

    def charge(self, draw: str) -> None:
        """Note the draw."""
        self._refuse_another(draw)
        super().charge(draw)

    def _refuse_another(self, draw: str) -> None:
        drawn = draws_of(self.ledger, self.charges[0])
        if drawn and draw not in drawn:
            raise PrivacyBudgetError(
                f"{self.charges[0].release}: was answered before, and that answer is lost: restore the file, "
                "or start a new run; nothing was sent"
            )


class Answers:
    """Answers by round, each of shape (owners, p)."""

    def __init__(
        self, directory: Path, run: str, shape: tuple[int, int], payment: Callable[[int], Payment]
    ) -> None:
        self.directory, self.shape = directory, shape
        self._payment, self._releases = payment, Releases(directory)
        self._before = run  # what the next answer's question continues

    def holds(self, number: int) -> bool:
        """Whether a round was answered."""
        return self._releases.holds(_name(number)) or self._old(number) is not None

    def obtain(self, number: int, ask: Callable[[], np.ndarray]) -> np.ndarray:
        """A round's answers, stored, or drawn and noted before their use. Shapes: the result (owners, p)."""
        old = self._old(number)
        if old is not None:
            answers = self._checked(old, _read_old(old))
        else:
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

    def _checked(self, path: Path, answers: np.ndarray) -> np.ndarray:
        if answers.shape != self.shape or answers.dtype != np.float64 or not np.isfinite(answers).all():
            raise FormatError(f"{shown(path)}: holds no {self.shape} finite numbers; restore the file")
        return answers

    def _old(self, number: int) -> Path | None:
        """The answers as older versions kept them: one array, without a checksum."""
        path = self.directory / f"{_name(number)}.npy"
        return path if os.path.lexists(path) else None


def _name(number: int) -> str:
    return f"round-{number:06d}"


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
