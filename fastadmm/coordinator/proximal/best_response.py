"""What a party answers to a loss gradient, and what its part of the next model is combined from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastadmm.method.penalised_bound import DualShare
from fastadmm.parties.active_set import Face

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

    Shapes: message (N,); products, coefficients (K,); messages (k, N); products_of_all (k, K).
    """

    message: Array | None  # of shape (N,)
    products: Array  # of shape (K,)
    coefficients: Array  # of shape (K,): of the answer
    norms: tuple[float, float]  # :math:`\Omega` of the model and of the answer
    to_proposal: SegmentNorms | None  # from the model; None where the proposal is the model
    face: Face
    dual: DualShare
    squared: float  # squared prox-gradient map at the proposal: how far it is from this party's optimality
    excess: float | None = None
    messages: Array = field(default_factory=lambda: np.empty((0, 0)))  # of all directions, where asked for
    products_of_all: Array = field(default_factory=lambda: np.empty((0, 0)))
    clipped: tuple[Array, float] | None = None  # of the proposal, and its norm; None where it passed nothing

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
            Face.read(answer["coefficients"], answer),
            DualShare.read(answer),
            float(answer["squared"]),
            float(answer["excess"]) if "excess" in answer else None,
            answer.get("messages", np.empty((0, 0))),
            answer.get("products_of_all", np.empty((0, 0))),
            (answer["clipped"], float(answer["clipped_norm"])) if "clipped" in answer else None,
        )

    @property
    def inside(self) -> bool:
        """Whether the whole segment to the proposal, if there is one, is in the set."""
        return self.to_proposal is None or float(self.to_proposal.positions[-1]) == 1.0


#: Earlier answers that a party's part of the model may be combined from; with more parties than this one.
_OLDER, _FEW_PARTIES = 4, 64


class Candidates:
    """What every party's part of the next model is combined from; its earlier answers."""

    def __init__(self, n_parties: int) -> None:
        self._older: list[list[tuple[Array, float]]] = [[] for _ in range(n_parties)]
        self._most = _OLDER if n_parties <= _FEW_PARTIES else 1

    def of(
        self, m: int, model: Array, norm: float, proposal: Array, best: float, answer: BestResponse
    ) -> list[tuple[Array, float]]:
        """Party m's points and their norms, where the line search ended first; the answer is remembered.

        Shapes: model, proposal (K,).
        """
        points = [(model, norm), (answer.coefficients, answer.norms[1])]
        if answer.to_proposal is not None:
            at, norms = answer.to_proposal.positions, answer.to_proposal.norms
            after = int(np.searchsorted(at, best))
            for i in sorted({after - 1, min(after, len(at) - 1)} - {-1, 0}):
                points.append((model + at[i] * (proposal - model), float(norms[i])))
            reached = float(np.interp(best, at, norms))
            points.insert(1, (model + best * (proposal - model), reached))
        if answer.clipped is not None:
            points.append(answer.clipped)
        older = [(_padded(c, len(model)), norm) for c, norm in self._older[m]]
        self._older[m] = [*older, (answer.coefficients, answer.norms[1])][-self._most :]
        return points + older

    def forget(self, m: int) -> None:
        """Party m's directions are others now: its earlier answers go."""
        self._older[m] = []

    def export(self, sizes: list[int]) -> dict[str, dict[str, Array]]:
        """Everything that a resumed run needs, with as many coefficients as parties have directions."""
        return {
            str(m): {
                "coefficients": np.array([_padded(c, k) for c, _ in older]).reshape(len(older), k),
                "norms": np.array([norm for _, norm in older]),
            }
            for m, (k, older) in enumerate(zip(sizes, self._older, strict=True))
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`."""
        self._older = [
            [(np.array(c), float(norm)) for c, norm in zip(part["coefficients"], part["norms"])]
            for part in (saved[str(m)] for m in range(len(self._older)))
        ]


def _padded(c: Array, n: int) -> Array:
    return np.append(c, np.zeros(n - len(c)))
