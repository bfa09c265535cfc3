"""What a private party needs beside its data: what was agreed, whose ledger it charges, what it released.

All of it is the party's own, wherever the coordinator is. The coordinator sees noised releases and
nothing before they are charged and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.releases import Payment
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["Books"]


Settings_co = TypeVar("Settings_co", bound=DifferentialPrivacy, covariant=True)


@dataclass(frozen=True)
class Books(Generic[Settings_co]):
    """The books of one party in one run.

    Rules: ``docs/privacy.md#the-ledger``.
    """

    settings: (
        Settings_co  # what was agreed; ``total_epsilon`` is what the party's ledger allows over all runs
    )
    ledger: Ledger
    run: str  # identifier of the run in the ledger
    account: Account  # of the party's features
    data: str  # identifier of the party's data, for which a stored release is used again
    releases: Path | None  # directory of what was released; None keeps nothing
    noise: Callable[[], NoiseSource]  # makes a fresh source of noise
    unproved: str = ""  # why nothing is proved for this party's data; else empty

    def payment(self, charges: Sequence[Charge]) -> Payment:
        """What a release costs; nothing is claimed for a test's noise, and nothing may be charged."""
        s = self.settings
        return Payment(self.ledger, [] if s.sampler == "insecure_test" else charges, s.budget, s.delta)
