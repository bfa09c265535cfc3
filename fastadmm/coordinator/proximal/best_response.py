"""What a party answers to a loss gradient, as the coordinator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.penalised_bound import DualShare
from fastadmm.parties.active_set import Face

__all__ = ["BestResponse", "SegmentNorms"]

Array = np.ndarray


@dataclass(frozen=True)
class SegmentNorms:
    r"""The regulariser along a segment that starts at the model, as far as it stays in the set.

    Attributes
    ----------
    positions : ndarray of shape (n,)
        Increasing, the model at 0 and the end of the segment at 1: the kinks of
        :math:`\Omega`, or some of them.
    norms : ndarray of shape (n,)
        :math:`\Omega` there. Between positions it is at most linear, by convexity.
    """

    positions: Array
    norms: Array


@dataclass(frozen=True)
class BestResponse:
    r"""A party's answer to a loss gradient.

    Attributes
    ----------
    message : ndarray of shape (N,) or None
        Of the new direction; None where the answer is a combination of old ones.
    products : ndarray of shape (K,)
        Inner products of the new direction with all, its own square last; empty where there is none.
    coefficients : ndarray of shape (K,)
        Of the answer.
    norms : tuple of float
        :math:`\Omega` of the model and of the answer.
    to_proposal : SegmentNorms or None
        From the model; None where the proposal is the model.
    to_answer : SegmentNorms
        From the model.
    face : Face
    dual : DualShare
    excess : float or None
        Of a party whose weights no square and no set bounds: what the gradient still gains over the norm with
        weights with which no column contributes more than 1.
    squared : float
        Squared prox-gradient map at the proposal: how far it is from this party's optimality.
    """

    message: Array | None
    products: Array
    coefficients: Array
    norms: tuple[float, float]
    to_proposal: SegmentNorms | None
    to_answer: SegmentNorms
    face: Face
    dual: DualShare
    squared: float
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
