r"""A party's part of ``mode="fusion"``: everything it ever sends, computed in one step.

Row norm, local model, moments, one symbol per record: each uses the data only through a mechanism with a
theorem, and the releases before it. What they cost together is :class:`~fastadmm.privacy.budget.FusionBudget`
(theorem ``docs/fusion.md#f5-the-budget``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.privacy.budget import FusionBudget
from fastadmm.privacy.descent import STEPS, LocalModel, private_descent
from fastadmm.privacy.levels import Channel, choose_channel
from fastadmm.privacy.moments import ScoreMoments, release_moments
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.row_norm import NORM_QUERIES, find_row_norm, row_norms

__all__ = ["FusionMessage", "make_message"]

Array = np.ndarray

_MODEL = ("intercept", "sigma", "sensitivity")
_CHANNEL = ("epsilon", "n_levels", "center", "clip")


@dataclass(frozen=True)
class FusionMessage:
    """Everything that a party sends.

    Shapes: levels (N,).
    """

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
            "model": np.array([getattr(self.model, name) for name in _MODEL]),
            "count": self.moments.count,
            "mean": self.moments.mean,
            "square": self.moments.square,
            "moments": np.array([self.moments.origin, self.moments.sigma]),
            "channel": np.array([float(getattr(self.channel, name)) for name in _CHANNEL]),
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
    """Compute a party's message.

    Guarantee: ``docs/fusion.md#f5-the-budget``.

    Shapes: block (N, d); target, public_class (N,).
    """
    norms = row_norms(block, engine)
    if row_norm is None:
        row_norm = find_row_norm(norms, budget.norm, noise, 0, engine)
    first = NORM_QUERIES
    model = private_descent(block, norms, row_norm, target, budget.model, noise, first, engine)
    # The same for every record of the same features: nothing else of the data enters.
    score = block.product(model.weights, engine) + model.intercept
    moments = release_moments(
        score, public_class, model.intercept, budget.moments, noise, first + STEPS, engine
    )
    mean, variance = moments.overall
    channel = choose_channel(budget.symbol, mean, float(np.sqrt(variance)))
    levels = channel.release(score, noise, first + STEPS + 1, engine)
    return FusionMessage(row_norm, model, moments, channel, levels)
