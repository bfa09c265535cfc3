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
from fastadmm.owners.setup import Setup
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, Releases, digest_of, draws_of, reserve
from fastadmm.settings.owners import parse_epsilons
from fastadmm.store.collection import Owners


def charge_all_rounds(
    own: Path, run: str, setup: Setup, data: Owners, *, claimed: bool
) -> Callable[[int], Payment]:
    """Charge every owner's answers of all rounds, once per run; what notes each round's draw.

    Where nothing is claimed nothing is charged.
    """
    settings = setup.settings
    if not claimed:
        return lambda number: Payment(Ledger(), [], math.inf, 0.0)
    ledger = Ledger(Path(settings.ledger) if settings.ledger is not None else own)
    gaussian = settings.mechanism == "gaussian"
    delta = (settings.delta or 0.0) / setup.kappa if gaussian else 0.0
    release = f"answers to {settings.rounds} gradient queries"
    payments = []
    budgets = parse_epsilons(settings.budget or settings.epsilon, data.names)
    for owner, file, budget in zip(setup.owners, data.owners, budgets, strict=True):
        if owner.answers.private:
            cost = {"gdp": gdp_of(owner.epsilon, delta)} if gaussian else {"pure": owner.epsilon}
            charge = Charge.to(record_account(file), run, release, **cost)
            payments.append(Payment(ledger, [charge], budget / setup.kappa, delta))
    # Set aside first: another run that comes between two owners would stop this one half way.
    reserve(ledger, [p for p in payments if not ledger.holds(p.charges[0])])
    for payment in payments:
        payment.charge("")
    first = payments[0].charges[0].account
    return lambda number: RoundNote(
        ledger, [Charge.to(first, run, f"answers to query {number}")], math.inf, 0.0
    )


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
        return self._releases.holds(_name(number)) or os.path.lexists(self._old(number))

    def obtain(self, number: int, ask: Callable[[], np.ndarray]) -> np.ndarray:
        """A round's answers, stored, or drawn and noted before their use. Shapes: the result (owners, p)."""
        name, old = _name(number), self._old(number)
        if os.path.lexists(old):
            answers = self._checked(old, _read_old(old))
        else:
            # Not the query itself, whose last bits may differ on another machine.
            question, place = digest_of(self._before, number), self.directory / f"{name}.npz"
            answers = self._releases.obtain(
                name,
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

    def _old(self, number: int) -> Path:
        """Where older versions kept the answers: one array, without a checksum."""
        return self.directory / f"{_name(number)}.npy"


def _name(number: int) -> str:
    return f"round-{number:06d}"


def _read_old(path: Path) -> np.ndarray:
    file = io.BytesIO(read_bytes(path))
    try:
        found = np.lib.format.read_array(file, allow_pickle=False)
        if file.read():
            raise ValueError("length")
        return found
    except Exception:  # whatever a damaged header makes NumPy say
        raise FormatError(
            f"{shown(path)}: damaged; it cannot be asked for again: restore the file, or start a new run"
        ) from None
