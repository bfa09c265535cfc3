r"""A party in a run of ADMM sharing of which the coordinator sees sums only.

Between rounds a party's message is :math:`a_m = D_m v_m - c`, where c is the same for all parties and only
the coordinator needs it. So the party keeps the weights :math:`v_m`, and its target is :math:`D_m v_m`
minus a vector that all parties receive. What acceleration needs of the messages are inner products of
:math:`D_m` times differences of weights, which the coordinator learns as sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.engine.engine import Engine
from fastadmm.parties.masked import MaskedParty
from fastadmm.parties.proximal import Party
from fastadmm.secrecy.least import at_or_above

__all__ = ["MaskedProximalParty"]

Array = np.ndarray


class MaskedProximalParty(MaskedParty, Party):
    """Holder of a feature block, of its weights and of where its next step begins.

    Shapes: points (4, d); before (2, d) or (0, d); moves, ends (K, d).
    """

    family = "admm_sums"
    remembers = ("points", "before", "moves", "ends", "weights", "dual")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        d = self.block.shape[1]
        self.points = np.zeros((4, d))
        self.before = self.moves = self.ends = np.empty((0, d))
        self._images: list[Array] = []  # D times each of the moves
        self._image: Array | None = None  # D v

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        return super().opened(name, block, engine, terms)._begin(terms)

    def begin_at(self, weights: Array) -> Array:
        """Let the next step begin at weights of shape (d,); their message, of shape (N,)."""
        self.weights = np.array(weights)
        self.points[:3] = weights
        self._image = self.block.product(self.weights, self.engine)
        return self._image

    def step_masked(
        self,
        exchange: int,
        shift: Array,
        scaled_penalty: float,
        relaxation: float,
        slot: int,
        kept: int,
        step: float,
    ) -> dict[str, Any]:
        r"""An x-update with the target :math:`D_m v_m` minus a shift.

        Shapes: shift (N,).
        """
        moves = len(self.moves)
        if kept and not (len(self.before) and slot <= moves and kept == max(moves, slot + 1)):
            raise Unanswerable(f"call 'step_masked': difference {slot} of {kept}, but {moves} are kept")
        start, image = self.points[0], self._start_image()
        answer = self.step(image - shift, scaled_penalty)
        message = answer["message"]
        self.points[2] = relaxation * self.weights + (1.0 - relaxation) * start
        self.points[3] = self.points[2] - start
        moved = relaxation * (message - image)
        pressed = self._pressed(moved)
        numbers = [
            answer["penalty"],
            float(message @ message),
            float(self.weights @ self.weights),
            float(moved @ pressed),
            float(pressed @ pressed),
        ]
        if kept:
            newest = self.block.product(self.points[3] - self.before[0], self.engine)
            images = [*self._images[:slot], newest, *self._images[slot + 1 :]]
            numbers += [float(own @ pressed) for own in images]
            pressed = self._pressed(newest)
            numbers += [float(own @ pressed) for own in images]
        return self.sealed(message, step, numbers)

    def certify_masked(
        self,
        exchange: int,
        gradient: Array,
        pull: Array,
        accepted: bool,
        weights: Array,
        slot: int,
        kept: int,
    ) -> dict[str, Any]:
        r"""Shares of the gap and of V^t for squared l2 without a set; the next step's start is decided.

        Shapes: gradient, pull (N,); weights (K,).
        """
        found = self.certify(gradient, pull)
        size = self._decide(accepted, weights, slot, kept)
        return self.sealed(np.empty(0), 1.0, [found["gap"], found["stationarity"], size])

    def certify_penalised_masked(
        self, exchange: int, u: Array, pull: Array, accepted: bool, weights: Array, slot: int, kept: int
    ) -> dict[str, Any]:
        r"""Shares of the gap and of stationarity, masked, for any regulariser and set.

        Shapes: u (N,).
        """
        scale, found = self.dual_scale(u)["value"], self.stationarity(pull)
        size = self._decide(accepted, weights, slot, kept)
        return self.sealed(at_or_above(scale), 1.0, [found["value"], size])

    def dual_value_masked(self, exchange: int, scale: float) -> dict[str, Any]:
        """Of the u of the last :meth:`certify_penalised_masked`, at a scale that every party allows."""
        return self.sealed(np.empty(0), 1.0, [self.dual_value(scale)["value"]])

    def _pressed(self, rows: Array) -> Array:
        return rows if self.metric is None else self.metric * rows

    def _start_image(self) -> Array:
        if self._image is None:
            self._image = self.block.product(self.points[0], self.engine)
        return self._image

    def _decide(self, accepted: bool, weights: Array, slot: int, kept: int) -> float:
        """Where the next step begins; the squared norm of its image."""
        end, move = self.points[2], self.points[3]
        if kept:
            # As the step before was told; checked there.
            if slot > len(self.moves) or not len(self.before):
                raise Unanswerable(f"difference {slot} of {kept}, but {len(self.moves)} are kept")
            parts = (move - self.before[0], end - self.before[1])
            self.moves, self.ends = (
                np.vstack([own[:slot], part, own[slot + 1 :]])
                for own, part in zip((self.moves, self.ends), parts)
            )
            image = self.block.product(self.moves[slot], self.engine)
            self._images = [*self._images[:slot], image, *self._images[slot + 1 :]]
        else:
            self.moves, self.ends, self._images = self.moves[:0], self.ends[:0], []
        if len(weights) > len(self.ends):
            raise Unanswerable(f"{len(weights)} weights for {len(self.ends)} differences")
        self.before = np.vstack([move, end]) if accepted else self.before[:0]
        if accepted:
            self.points[1] = end
        self.points[0] = end - weights @ self.ends if len(weights) else self.points[1]
        self._image = None
        image = self._start_image()
        return float(image @ image)

    def memory(self) -> dict[str, Array]:
        """What the next round begins with, all of it weights."""
        return {"points": self.points, "before": self.before, "moves": self.moves, "ends": self.ends}

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`memory`; raises ValueError with the key that is wrong."""
        d = self.block.shape[1]
        points = checked(saved, "points", (4, d))
        before, moves, ends = (checked(saved, key, (-1, d)) for key in ("before", "moves", "ends"))
        if len(before) not in (0, 2):
            raise ValueError("before")
        if len(moves) != len(ends):
            raise ValueError("ends")
        self.remember({"points": points.copy(), "before": before, "moves": moves, "ends": ends})

    def remember(self, kept: Mapping[str, Array]) -> None:
        super().remember(kept)
        self._image, self._images = None, [self.block.product(move, self.engine) for move in self.moves]

    def export(self) -> dict[str, Array]:
        return {**super().export(), **self.memory(), **self.export_secrecy()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.recall(saved)
        self.restore_secrecy(saved)
