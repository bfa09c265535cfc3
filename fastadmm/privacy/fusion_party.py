"""A party of mode "fusion": everything it ever sends is computed in one step, and is the answer to one call.

Row norm, local model, moments, one symbol per record: each uses the data only through a mechanism with a
theorem, and the releases before it. How the budget is split among them: ``docs/fusion.md#f5-the-budget``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.conversation.gate import check_features
from fastadmm.engine.engine import Engine
from fastadmm.privacy import fusion_mechanisms as mechanisms
from fastadmm.privacy.accounting import compose_gdp, gdp_of
from fastadmm.privacy.fusion_mechanisms import Channel, LocalModel, ScoreMoments
from fastadmm.privacy.ledger import Charge, Spent
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.private_run import PrivateParty
from fastadmm.privacy.releases import Books, Releases, digest_of
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement
from fastadmm.settings.privacy import FusionPrivacy

Array = np.ndarray


@dataclass(frozen=True)
class FusionMessage:
    """Everything that a party sends. Shapes: levels (N,)."""

    row_norm: float  # R
    model: LocalModel
    moments: ScoreMoments
    channel: Channel  # public consequence of the above
    levels: Array  # of shape (N,): one symbol per record

    @property
    def values(self) -> Array:
        """Unbiased noisy scores of shape (N,)."""
        return self.channel.values(self.levels)

    def to_arrays(self) -> dict[str, Any]:
        """What is stored and sent."""
        return {
            "row_norm": np.array([self.row_norm]),  # of one size, whatever it is
            "weights": self.model.weights,
            "model": np.array([self.model.intercept, self.model.sigma, self.model.sensitivity]),
            "count": self.moments.count,
            "mean": self.moments.mean,
            "square": self.moments.square,
            "moments": np.array([self.moments.origin, self.moments.sigma]),
            "channel": np.array(astuple(self.channel), dtype=np.float64),
            "levels": self.levels,
        }

    @classmethod
    def from_arrays(cls, found: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_arrays`."""
        (intercept, sigma, sensitivity), (origin, noise) = found["model"], found["moments"]
        epsilon, n_levels, center, clip = (float(v) for v in found["channel"])
        levels, (row_norm,) = found["levels"], np.atleast_1d(found["row_norm"])
        if any(len(found[key]) != 2 for key in ("count", "mean", "square")) or not found["count"].sum() > 0:
            raise ValueError("moments are of two classes")
        if not row_norm >= 0.0:
            raise ValueError("the row norm is below zero")
        if not (n_levels >= 2 and clip > 0 and epsilon > 0 and levels.max(initial=0) < n_levels):
            raise ValueError("symbols are not those of the channel")
        return cls(
            float(row_norm),
            LocalModel(found["weights"], float(intercept), float(sigma), float(sensitivity)),
            ScoreMoments(found["count"], found["mean"], found["square"], float(origin), float(noise)),
            Channel(epsilon, int(n_levels), center, clip),
            levels,
        )


def make_message(
    block: FeatureBlock,
    target: Array,
    public_class: Array,
    budget: FusionBudget,
    noise: NoiseSource,
    engine: Engine,
    row_norm: float | None = None,
) -> FusionMessage:
    """The message: ``docs/fusion.md#f5-the-budget``. Shapes: block (N, d); target, public_class (N,)."""
    norms = mechanisms.row_norms(block)
    if row_norm is None:
        row_norm = mechanisms.find_row_norm(norms, budget.norm, noise, 0, engine)
    first = mechanisms.NORM_QUERIES
    model = mechanisms.private_descent(block, norms, row_norm, target, budget.model, noise, first, engine)
    # The same for every record of the same features: nothing else of the data enters.
    score = block.product(model.weights, engine) + model.intercept
    origin, last = model.intercept, first + mechanisms.STEPS
    moments = mechanisms.release_moments(score, public_class, origin, budget.moments, noise, last, engine)
    mean, variance = moments.overall
    channel = mechanisms.choose_channel(budget.symbol, mean, float(np.sqrt(variance)))
    levels = channel.release(score, noise, last + 1, engine)
    return FusionMessage(row_norm, model, moments, channel, levels)


#: Shares of mu^2: row norm (only where it is not given), moments; the rest is the local model's.
NORM_SHARE, MOMENT_SHARE = 0.03, 0.15


@dataclass(frozen=True)
class FusionBudget:
    """What each of a party's releases may cost."""

    symbol: float  # pure epsilon of the symbol
    norm: float  # mu of the Gaussian releases, as the next two; 0 where the row norm is public
    model: float
    moments: float

    @property
    def gdp(self) -> float:
        """mu of the Gaussian releases together."""
        return compose_gdp((self.norm, self.model, self.moments))


def fusion_budget(settings: FusionPrivacy) -> FusionBudget:
    """Split (epsilon, delta) of one party, exactly: ``docs/fusion.md#f5-the-budget``."""
    epsilon = settings.epsilon
    share = min(settings.model_share * epsilon, settings.model_epsilon_max)
    symbol = min(epsilon - share, mechanisms.MAX_EPSILON)
    mu = gdp_of(epsilon, settings.delta, (symbol,))
    norm = NORM_SHARE if settings.row_norm is None else 0.0
    shares = norm, 1.0 - norm - MOMENT_SHARE, MOMENT_SHARE
    return FusionBudget(symbol, *(mu * math.sqrt(share) for share in shares))


#: What the label holder sees of each other party.
HOLDER_SEES = (
    "record ids and order, N; of each other party: row norm, local model, "
    "moments of its scores, one randomised symbol per record"
)

UNPROVED_WEIGHTS = "epsilon = infinity: nothing is proved for what they were computed from"

#: Whatever a party sends.
PARTY_NOT_COVERED = (
    "features of the records that are predicted, and test figures",
    "rounding of sums in double precision, before noise is added",
)

_WEIGHTS = "the local model is released and covered"


def split_in_words(budget: FusionBudget) -> str:
    """How a budget is split."""
    return (
        f"mu {budget.gdp:.4g} for row norm, {mechanisms.STEPS}-step local model and moments, "
        f"epsilon {budget.symbol:.4g} for one symbol per record"
    )


def fusion_guarantee(
    name: str, settings: FusionPrivacy, message: FusionMessage | None, spent: Spent, reason: str
) -> PartyGuarantee:
    """What a party that sends a message is guaranteed: ``docs/fusion.md#f5-the-budget``."""
    budget = fusion_budget(settings)
    return PartyGuarantee(
        name=name,
        mechanism="private gradient descent, moments, one randomised symbol per record",
        theorem="F5",
        sensitivity=None if message is None else message.model.sensitivity,
        sigma=None if message is None else message.model.sigma,
        rounds=mechanisms.STEPS + 2 + (mechanisms.NORM_QUERIES if settings.row_norm is None else 0),
        gdp=max(budget.gdp, spent.gdp),
        pure=max((budget.symbol,), spent.pure, key=math.fsum),
        reason=reason,
    )


class FusionParty(PrivateParty):
    """Holder of a block that sends one message, drawn once. Shapes: block (N, d); weights (d,)."""

    family = "fusion"
    clips_rows = False

    def __init__(self, name: str, block: FeatureBlock, books: Books, engine: Engine) -> None:
        check_features(block, name, engine)
        self.name, self.block, self.books, self.engine = name, block, books, engine
        self.budget = fusion_budget(books.settings)
        self.kind, self.reason = "local model and symbols", split_in_words(self.budget)
        self.weights = np.zeros(block.shape[1])
        self.stored = Releases(books.releases)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        """A sender by the terms of a session, which also hold the party's own ``books``."""
        return cls(name, block, terms["books"], engine)

    def planned(self) -> dict[str, list[Charge]]:
        """What the message costs."""
        account, run = self.books.account, self.books.run
        gaussian = Charge.to(account, run, "row norm, local model, moments", gdp=self.budget.gdp)
        symbols = Charge.to(account, run, "one symbol per record", pure=self.budget.symbol)
        return {f"fusion-{self.name}": [gaussian, symbols]}

    def fuse(self, target: Array, classes: Array) -> dict[str, Any]:
        """The message: one that was stored is sent again, never drawn again. Shapes: target, classes (N,)."""
        if not np.isin(classes, (0.0, 1.0)).all():
            raise Unanswerable("call 'fuse': 'classes' are not 0 and 1")
        books, norm = self.books, self.books.settings.row_norm
        question = digest_of(target, classes, self.budget, norm, books.data)

        def draw() -> dict[str, Any]:
            made = make_message(self.block, target, classes, self.budget, books.noise(), self.engine, norm)
            return made.to_arrays()

        ((name, charges),) = self.planned().items()
        message = self.stored.obtain(name, question, books.payment(charges), draw, FusionMessage.from_arrays)
        self.weights = message.model.weights
        return message.to_arrays()

    def statement(self) -> PrivacyStatement:
        """What the run guarantees this party."""
        guarantee = fusion_guarantee(self.name, self.books.settings, None, *self.spent())
        seen = {"label holder": HOLDER_SEES, "other parties": "nothing about this party's features"}
        proved = not self.books.unproved and self.books.settings.sampler != "insecure_test"
        return self.stated(guarantee, seen, PARTY_NOT_COVERED, _WEIGHTS if proved else UNPROVED_WEIGHTS)

    def export(self) -> dict[str, Array]:
        """What was released."""
        return {"weights": self.weights}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`."""
        self.weights = checked(saved, "weights", self.weights.shape)
