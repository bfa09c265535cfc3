"""What an owner run charges: all rounds beforehand, and rounds that have to be answered once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.owners.answers import RoundPayment
from fastadmm.owners.owner import Owner
from fastadmm.owners.setup import Setup
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import Account, record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, reserve
from fastadmm.settings.owners import parse_epsilons
from fastadmm.store.collection import Owners

__all__ = ["LEDGER", "RunAccount"]

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
        payments = [
            Payment(self.ledger, [member.charge(self.identifier, release)], member.budget, self.delta)
            for member in self.private
        ]
        # Set aside first: another run that comes between two owners would stop this one half way.
        reserve(self.ledger, [p for p in payments if not self.ledger.holds(p.charges[0])])
        for payment in payments:
            payment.charge("")

    def payment(self, number: int) -> RoundPayment:
        """What a round costs."""
        note = Charge.to(self.private[0].account, self.identifier, f"answers to query {number}")
        release, share = f"answers to query {number} again", 1.0 / self.setup.settings.rounds
        again = [
            (member.charge(self.identifier, release, share), member.budget, self.delta)
            for member in self.private
        ]
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
