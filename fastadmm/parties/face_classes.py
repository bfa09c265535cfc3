"""A party of several classes in a proximal Newton run: for each class a face party over the same block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable, checked
from fastadmm.conversation.by_class import pack, unpack
from fastadmm.conversation.calls import BY_CLASS, CALLS
from fastadmm.engine.engine import Engine
from fastadmm.errors import FormatError
from fastadmm.parties.classes import OfClasses
from fastadmm.parties.direction_span import OwnDirections
from fastadmm.parties.face import FaceParty, Response
from fastadmm.parties.proximal import Opened
from fastadmm.problem.constraints import AllSpace
from fastadmm.problem.regularizers import L1, ElasticNet

_OF_ONE = {several: one for one, several in BY_CLASS.items()}


class ClassFaceParty(OfClasses, OwnDirections, Opened):
    """Holder of a feature block and, for each class, of the directions sent; R and X apply class by class.

    Shapes: block (N, d).
    Scaling: regularization summed scaling.
    """

    family = "multinomial_proximal"
    takes = ("n_classes", *FaceParty.takes)
    answers_by_column = True
    needs = ("coefficients",)

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, n_classes: int, *own: Any
    ) -> None:
        self.name, self.block, self.engine, self.n_classes = name, block, engine, n_classes
        self.parts = [FaceParty(name, block, regularization, engine, *own) for _ in range(n_classes)]
        self.kind, self.reason = self.parts[0].kind, self.parts[0].reason
        self.penalty = penalty = self.parts[0].penalty
        kinks = isinstance(penalty.regularizer, L1 | ElasticNet)
        self._shifts = kinks and isinstance(penalty.constraint, AllSpace)

    def prepare(self) -> None:
        first, *others = self.parts
        first.prepare()
        for part in others:
            part.span, part.deviations, part.sizes = first.span, first.deviations, first.sizes

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if (one := _OF_ONE.get(name)) is None:
            return super().answer(name, arguments)
        rule = CALLS[one]
        try:
            asked = unpack(arguments, rule.arguments)
        except FormatError as error:
            raise Unanswerable(f"call {name!r}: {error}") from None
        if len(asked) != self.n_classes:
            raise Unanswerable(f"call {name!r}: {len(asked)} classes instead of {self.n_classes}")

        def of_class(c: int) -> dict[str, Any] | None:
            values = asked[c]
            return None if values is None else self.parts[c].answer(one, values)

        if one == "best_response" and None not in asked:
            return pack(self._best_responses([values for values in asked if values is not None]), rule.answer)
        answers = self.engine.map(of_class, range(self.n_classes))
        return pack(answers, rule.answer) if rule.answer else {}

    def _best_responses(self, asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of all classes, each by itself, less their common shift; new directions may be common."""
        each = range(self.n_classes)
        common = {values.pop("common", False) for values in asked} == {True}
        most = max(values.pop("most", 0) for values in asked)
        found = self.engine.map(lambda c: self.parts[c].responded(**asked[c]), each)
        if self._shifts:
            shift = common_shift(np.stack([own.weights for own in found]), *self.penalty.regularizer.shares)
            for own in found:
                own.weights = own.weights - shift
        if common:
            sent = self._spanned(most) or [self._extended(c, found[c]) for c in each]
            return self.engine.map(lambda c: self.parts[c].answered(found[c], sent[c]), each)
        return self.engine.map(lambda c: self.parts[c].answered(found[c]), each)

    def _spanned(self, most: int) -> list[dict[str, Any]]:
        """Directions of all columns, sent by the first class for all; empty where they are not wanted."""
        first, *others = self.parts
        if not most >= first.block.shape[1] - len(first.directions) > 0:
            return []
        sent = [{"products": np.empty(0), **first.spanned()}, *({"products": np.empty(0)} for _ in others)]
        for part in others:
            part.directions, part.images = first.directions, first.images
        return sent

    def _extended(self, c: int, found: Response) -> dict[str, Any]:
        """A new direction of one class becomes one of all."""
        part = self.parts[c]
        near, known = found.coefficients, len(part.directions)
        sent = part.extended(found.weights, np.append(near, np.zeros(known - len(near))))
        if len(part.directions) > known:
            for other in self.parts:
                other.directions = part.directions
        return sent

    def final_weights(self, coefficients: np.ndarray) -> np.ndarray:
        ends = np.cumsum([len(part.directions) for part in self.parts])
        each = np.split(self._own(coefficients), ends[:-1])
        return np.stack([part.weights(c) for part, c in zip(self.parts, each)], axis=1)

    @property
    def directions(self) -> np.ndarray:  # type: ignore[override]
        """Of all classes, class by class, of shape (K, d)."""
        return np.vstack([part.directions for part in self.parts])

    def export(self) -> dict[str, np.ndarray]:
        saved = [part.export() for part in self.parts]
        counts = np.array([float(len(part.directions)) for part in self.parts])
        found = {key: np.stack([own[key] for own in saved]) for key in saved[0] if key != "directions"}
        return {**found, "directions": self.directions, "counts": counts}

    def restore(self, saved: Mapping[str, Any]) -> None:
        counts = checked(saved, "counts", (self.n_classes,))
        directions = checked(saved, "directions", (-1, self.block.shape[1]))
        ends = np.cumsum(counts).astype(np.int64)
        if (counts < 0.0).any() or ends[-1] != len(directions):
            raise ValueError("counts")
        each = np.split(directions, ends[:-1])
        for c, part in enumerate(self.parts):
            own = {
                key: value[c]
                for key, value in saved.items()
                if key not in ("directions", "counts") and np.ndim(value) > 0 and len(value) == self.n_classes
            }
            part.restore({**own, "directions": each[c]})


def common_shift(weights: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    r"""A number taken from the weights of a column in all classes: it changes the regulariser, not the loss.

    .. math:: \min_t\; \alpha \sum_c |x_c - t| + \tfrac\beta2 \sum_c (x_c - t)^2

    Each class by itself cannot find it: all weights of a column would have to move at once, past the kink of
    one. Its minimiser is the median of the weights and of C + 1 numbers more (Li & Osher, *A new median
    formula with applications to PDE based denoising*, 2009); where several are, the one nearest to zero.

    Shapes: weights (C, d); the result (d,).
    """
    n = len(weights)
    if beta == 0.0:
        ranked = np.sort(weights, axis=0)
        low, high = ranked[(n - 1) // 2], ranked[n // 2]
        nearest: np.ndarray = np.clip(0.0, low, high)
        return nearest
    pulls = (n - 2.0 * np.arange(n + 1)) * alpha / (beta * n)
    middle: np.ndarray = np.median(np.vstack([weights, weights.mean(axis=0) + pulls[:, np.newaxis]]), axis=0)
    return middle
