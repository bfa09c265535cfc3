"""A party of mode "message": in each round it answers a public target with one noisy message."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable
from fastadmm.conversation.gate import LARGEST, GatedParty
from fastadmm.engine.engine import Engine
from fastadmm.privacy.accounting import noise_multiplier, zcdp_budget, zcdp_of
from fastadmm.privacy.books import Books
from fastadmm.privacy.ledger import Charge, Spent, other_runs
from fastadmm.privacy.noise import Calibration, GridMessage, calibrate
from fastadmm.privacy.outbox import Outbox
from fastadmm.privacy.party import MessageParty, clipped_block
from fastadmm.privacy.releases import Payment
from fastadmm.privacy.sensitivity import Sensitivity, message_sensitivity
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement, state
from fastadmm.settings.privacy import MessagePrivacy

__all__ = ["MODELS_NOT_COVERED", "MessageSender", "message_guarantee", "message_level"]

MODELS_NOT_COVERED = (
    "the local models x_m, predictions made with them and any figure measured with them (T7: message noise "
    "does not cover them)"
)


def message_level(settings: MessagePrivacy, mu: float, n_samples: int) -> tuple[Sensitivity, Calibration]:
    """How far one record moves a message, and the noise that this takes.

    Theorem: as the sensitivity names it, in ``docs/privacy.md``.
    """
    s = settings
    if s.sampler == "discrete":
        multiplier = math.sqrt(s.rounds / (2.0 * zcdp_budget(s.epsilon, s.delta)))
    else:
        multiplier = noise_multiplier(s.epsilon, s.delta, s.rounds)
    sensitivity = message_sensitivity(s, mu, n_samples)
    return sensitivity, calibrate(sensitivity.value, multiplier, n_samples)


def message_guarantee(
    name: str, settings: MessagePrivacy, mu: float, n_samples: int, spent: Spent, reason: str
) -> PartyGuarantee:
    """What a party is guaranteed, with all T rounds charged, and messages that had to be drawn again.

    Theorem: as the sensitivity names it, in ``docs/privacy.md``.
    """
    sensitivity, level = message_level(settings, mu, n_samples)
    return PartyGuarantee(
        name=name,
        mechanism="gaussian message" if settings.sampler != "discrete" else "discrete gaussian message",
        theorem=sensitivity.theorem,
        sensitivity=level.sensitivity,
        sigma=level.sigma,
        rounds=settings.rounds,
        gdp=max(level.gdp * math.sqrt(settings.rounds), spent.total_gdp),
        reason=reason,
    )


class MessageSender(GatedParty):
    """A :class:`fastadmm.privacy.party.MessageParty` with its books: every message is charged, stored,
    sent.
    """

    family = "message"
    clips_rows = True

    def __init__(self, party: MessageParty, books: Books[MessagePrivacy]) -> None:
        self.party, self.books = party, books
        self.name, self.block = party.name, party.block
        self.kind = "private ball"
        self.reason = f"mu {party.mu:.4g}, sigma {party.level.sigma:.6g}"
        self.outbox = Outbox(books.releases)
        self.watch: Callable[[np.ndarray], None] | None = None

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        """A sender by the terms of a session, which also hold the party's own ``books``."""
        books: Books[MessagePrivacy] = terms["books"]
        if not float(terms["penalty"]) > 0.0:
            raise Unanswerable("argument 'penalty': mode 'message' needs a positive one")
        mu, settings = float(terms["regularization"]) / float(terms["penalty"]), books.settings
        if not 1.0 / LARGEST <= mu <= LARGEST:
            raise Unanswerable("arguments 'regularization' and 'penalty': their ratio is out of range")
        level = message_level(settings, mu, block.shape[0])[1]
        index = int(terms["position"])
        return cls(MessageParty(name, index, clipped_block(block, name), settings, mu, level, engine), books)

    def prepare(self) -> None:
        """Refuse a run that the ledger has no room for; what was drawn before a kill has its room."""
        self.books.payment(self.missing()).check()

    def charge(self, number: int) -> Charge:
        """What the message of a round costs."""
        mu = self.party.level.gdp
        gdp, rho = (0.0, zcdp_of([mu])) if self.books.settings.sampler == "discrete" else (mu, 0.0)
        return Charge.to(self.books.account, self.books.run, f"message {number}", gdp=gdp, rho=rho)

    def missing(self) -> list[Charge]:
        """What is still to be charged: messages that were not drawn."""
        rounds = range(1, self.books.settings.rounds + 1)
        return [self.charge(t) for t in rounds if not self.outbox.holds(self.name, t)]

    def payment(self, number: int) -> Payment:
        """What a message still costs, with the ledger that pays it."""
        return self.books.payment([self.charge(number)])

    def noisy(self, target: np.ndarray, round: int) -> dict[str, Any]:
        """The message of a round; one that was stored is sent again, never drawn again.

        Shapes: target (N,).
        """
        if not 1 <= round <= self.books.settings.rounds:
            raise Unanswerable(f"call 'noisy': round {round} of {self.books.settings.rounds}")

        def draw() -> GridMessage:
            message = self.party.answer(target, round)
            if self.watch is not None:
                self.watch(message.values)
            return message

        public = np.ascontiguousarray(self.party.public_target(target))
        question = hashlib.sha256(public.tobytes()).hexdigest()
        return {"message": self.outbox.send(self.name, round, question, self.payment(round), draw).values}

    def settle(self, target: np.ndarray) -> None:
        """Answer the last public target once more, for itself: that is the model, and is not sent.

        Shapes: target (N,).
        """
        self.party.solve(target)

    def statement(self) -> PrivacyStatement:
        """What the run guarantees this party."""
        books, n = self.books, self.block.shape[0]
        spent = books.ledger.spent(books.account, books.run)
        guarantee = message_guarantee(self.name, books.settings, self.party.mu, n, spent, books.unproved)
        seen = {"coordinator": f"record ids and order, N, {books.settings.rounds} noisy message(s)"}
        other = other_runs(books.ledger, [books.account], books.settings)
        return state(books.settings, [guarantee], seen, (MODELS_NOT_COVERED,), other)

    def final_weights(self) -> np.ndarray:
        """The answer to the last target."""
        return self.party.weights

    def export(self) -> dict[str, np.ndarray]:
        """Nothing: what was sent is stored as a release."""
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Nothing to do."""
