"""A party of mode "fusion": it answers one call with its message, wherever the label holder is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.conversation.gate import GatedParty, check_features
from fastadmm.engine.engine import Engine
from fastadmm.privacy.books import Books
from fastadmm.privacy.budget import FusionBudget, split_budget
from fastadmm.privacy.descent import STEPS
from fastadmm.privacy.fusion_party import FusionMessage, make_message
from fastadmm.privacy.ledger import Charge, Spent, other_runs
from fastadmm.privacy.releases import Payment, digest_of
from fastadmm.privacy.row_norm import NORM_QUERIES
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement, state
from fastadmm.privacy.stored import Store
from fastadmm.settings.privacy import FusionPrivacy

__all__ = [
    "HOLDER_SEES",
    "UNPROVED_WEIGHTS",
    "FusionParty",
    "fusion_budget",
    "fusion_guarantee",
    "split_in_words",
]

Array = np.ndarray

#: What the label holder sees of each other party.
HOLDER_SEES = (
    "record ids and order, N; of each other party: row norm, local model, "
    "moments of its scores, one randomised symbol per record"
)

UNPROVED_WEIGHTS = "epsilon = infinity: nothing is proved for what they were computed from"

_NOT_COVERED = (
    "features of the records that are predicted, and test figures",
    "rounding of sums in double precision, before noise is added",
)

_WEIGHTS = "the local model is released and covered"


def split_in_words(budget: FusionBudget) -> str:
    """How a budget is split."""
    return (
        f"mu {budget.gdp:.4g} for row norm, {STEPS}-step local model and moments, "
        f"epsilon {budget.symbol:.4g} for one symbol per record"
    )


def fusion_budget(settings: FusionPrivacy) -> FusionBudget:
    """How a party's budget is split."""
    s = settings
    return split_budget(s.epsilon, s.delta, s.model_share, s.model_epsilon_max, s.row_norm is not None)


def fusion_guarantee(
    name: str, settings: FusionPrivacy, message: FusionMessage | None, spent: Spent, reason: str
) -> PartyGuarantee:
    """What a party that sends a message is guaranteed.

    Theorem: ``docs/fusion.md#f5-the-budget``.
    """
    budget = fusion_budget(settings)
    return PartyGuarantee(
        name=name,
        mechanism="private gradient descent, moments, one randomised symbol per record",
        theorem="F5",
        sensitivity=None if message is None else message.model.sensitivity,
        sigma=None if message is None else message.model.sigma,
        rounds=STEPS + 2 + (NORM_QUERIES if settings.row_norm is None else 0),
        gdp=max(budget.gdp, spent.gdp),
        pure=max((budget.symbol,), spent.pure, key=math.fsum),
        reason=reason,
    )


class FusionParty(GatedParty):
    """Holder of a feature block that sends one message: drawn once, charged, stored, and only then sent.

    Shapes: block (N, d); weights (d,).
    """

    family = "fusion"
    clips_rows = False

    def __init__(self, name: str, block: FeatureBlock, books: Books[FusionPrivacy], engine: Engine) -> None:
        check_features(block, name, engine)
        self.name, self.block, self.books, self.engine = name, block, books, engine
        self.budget = fusion_budget(books.settings)
        self.kind, self.reason = "local model and symbols", split_in_words(self.budget)
        self.weights = np.zeros(block.shape[1])
        self._store = Store(books.releases)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        """A sender by the terms of a session, which also hold the party's own ``books``."""
        return cls(name, block, terms["books"], engine)

    def prepare(self) -> None:
        """Refuse a run that the ledger has no room for; what was drawn before a kill has its room."""
        if not self._store.has_message(self.name):
            self.payment().check()

    def payment(self) -> Payment:
        """What the message costs."""
        account, run = self.books.account, self.books.run
        return self.books.payment(
            [
                Charge.to(account, run, "row norm, local model, moments", gdp=self.budget.gdp),
                Charge.to(account, run, "one symbol per record", pure=self.budget.symbol),
            ]
        )

    @property
    def has_message(self) -> bool:
        """Whether the message was drawn."""
        return self._store.has_message(self.name)

    def fuse(self, target: Array, classes: Array) -> dict[str, Any]:
        """The message: one that was stored is sent again, never drawn again.

        Shapes: target, classes (N,).
        """
        if not np.isin(classes, (0.0, 1.0)).all():
            raise Unanswerable("call 'fuse': 'classes' are not 0 and 1")
        books, norm = self.books, self.books.settings.row_norm
        question = digest_of(target, classes, self.budget, norm, books.data)

        def draw() -> FusionMessage:
            return make_message(self.block, target, classes, self.budget, books.noise(), self.engine, norm)

        message = self._store.message(self.name, question, self.payment(), draw)
        self.weights = message.model.weights
        return message.to_arrays()

    def statement(self) -> PrivacyStatement:
        """What the run guarantees this party."""
        books = self.books
        spent = books.ledger.spent(books.account, books.run)
        guarantee = fusion_guarantee(self.name, books.settings, None, spent, books.unproved)
        seen = {"label holder": HOLDER_SEES, "other parties": "nothing about this party's features"}
        other = other_runs(books.ledger, [books.account], books.settings)
        proved = not books.unproved and books.settings.sampler != "insecure_test"
        weights = _WEIGHTS if proved else UNPROVED_WEIGHTS
        return state(books.settings, [guarantee], seen, _NOT_COVERED, other, weights)

    def final_weights(self) -> Array:
        """The released local model."""
        return self.weights

    def export(self) -> dict[str, Array]:
        """What was released."""
        return {"weights": self.weights}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`."""
        self.weights = checked(saved, "weights", self.weights.shape)
