"""What a party answers to a loss gradient, as the coordinator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.method.penalised_bound import DualShare
from fastadmm.parties.active_set import Face

__all__ = ["BestResponse", "SegmentNorms"]

Array = np.ndarray


@dataclass(frozen=True)
class SegmentNorms:
    r"""The regulariser along a segment that starts at the model, as far as it stays in the set.

    Shapes: positions, norms (n,).
    """

    positions: Array  # of shape (n,)
    norms: Array  # of shape (n,): :math:`\Omega` there. Between positions it is at most linear, by convexity


@dataclass(frozen=True)
class BestResponse:
    r"""A party's answer to a loss gradient.

    Shapes: message (N,); products, coefficients (K,).
    """

    message: Array | None  # of shape (N,)
    products: Array  # of shape (K,)
    coefficients: Array  # of shape (K,): of the answer
    norms: tuple[float, float]  # :math:`\Omega` of the model and of the answer
    to_proposal: SegmentNorms | None  # from the model; None where the proposal is the model
    to_answer: SegmentNorms  # from the model
    face: Face
    dual: DualShare
    squared: float  # squared prox-gradient map at the proposal: how far it is from this party's optimality
    excess: float | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> BestResponse:
        """From the answer of the call ``best_response``."""
        to_proposal = None
        if "proposal_positions" in answer:
            to_proposal = SegmentNorms(answer["proposal_positions"], answer["proposal_norms"])
        of_model, of_answer = answer["norms"]
        return cls(
            answer.get("message"),
            answer["products"],
            answer["coefficients"],
            (float(of_model), float(of_answer)),
            to_proposal,
            SegmentNorms(answer["answer_positions"], answer["answer_norms"]),
            Face.read(answer["coefficients"], answer),
            DualShare.read(answer),
            float(answer["squared"]),
            float(answer["excess"]) if "excess" in answer else None,
        )

    @property
    def inside(self) -> bool:
        """Whether the whole segment to the proposal, if there is one, is in the set."""
        return self.to_proposal is None or float(self.to_proposal.positions[-1]) == 1.0
