r"""Parties of a multinomial model: one weight vector per class over the same block.

A party's problems are separable over the classes, so both kinds are the scalar
ones, class by class, over one factorisation. Weights are held class-major, of
shape (C, d); a model's weights are their transpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Answering, Unanswerable
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import MAX_GRAM_SIDE, DirectionParty, choose_metric_solver
from fastadmm.parties.proximal import Party

#: Largest Gram side that is refactorised in every new metric, whatever the number of classes.
MAX_SIDE = 256

#: The same per class: a factorisation must not cost much more than a few rounds' products.
_SIDE_PER_CLASS = 32


def choose_class_solver(shape: tuple[int, int], n_classes: int) -> tuple[str, str]:
    """Which matrix a party factorises in each curvature metric, and why.

    As :func:`fastadmm.parties.direction.choose_metric_solver`, but for smaller
    matrices: gradient directions need next to no more rounds with C
    coefficients per message, so that a factorisation pays only where it is cheap.
    """
    n, d = shape
    if min(n, d) <= min(MAX_GRAM_SIDE, max(MAX_SIDE, _SIDE_PER_CLASS * n_classes)):
        return choose_metric_solver(shape)
    return "gradient", f"{n} x {d} with {n_classes} classes: gradient directions, without a factorisation"


class OfClasses(Answering):
    """What parties of several classes have in common."""

    n_classes: int  # C

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        for key, value in arguments.items():
            if key != "directions" and np.ndim(value) == 2 and len(value) != self.n_classes:
                raise Unanswerable(
                    f"call {name!r}: argument {key!r} is of {len(value)} classes instead of {self.n_classes}"
                )
        return super().answer(name, arguments)

    def prove_classes(self, **asked: Any) -> dict[str, Any]:
        """As ``prove``, for u of shape (C, N); the message has that shape, too."""
        return self.prove(**asked)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        return self.block.shape[1], self.n_classes


class ClassParty(OfClasses, Party):
    """Proximal oracle for C classes; R and X apply to each class's weights.

    Shapes: block (N, d); weights (C, d).
    Scaling: regularization summed scaling.
    """

    family = "multinomial_admm"
    takes = ("n_classes", *Party.takes)

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, n_classes: int, *own: Any
    ) -> None:
        super().__init__(name, block, regularization, engine, *own)
        self.n_classes = n_classes
        self.weights = np.zeros((n_classes, block.shape[1]))
        self.dual = np.zeros_like(self.weights)

    def step_classes(self, w: np.ndarray, scaled_penalty: float) -> dict[str, Any]:
        """As ``step`` of :class:`fastadmm.parties.proximal.Party`, class by class. Shapes: w (C, N)."""
        self._factorise()
        mu = self.regularization / scaled_penalty
        answers = self.engine.map(
            lambda c: self.update.solve(w[c], mu, self.weights[c], self.engine), range(self.n_classes)
        )
        self.weights = np.array(answers)
        return self._stepped(self.block.matrix_product(self.weights, self.engine))

    certify_classes, stationarity_classes = Party.certify, Party.stationarity
    dual_scale_classes = Party.dual_scale


class ClassDirectionParty(OfClasses, DirectionParty):
    r"""A party of a multinomial subspace run: up to C directions in one message.

    Shapes: block (N, d); directions (K, d).
    Scaling: regularization summed scaling.
    """

    family = "multinomial_subspace"
    takes = ("n_classes",)
    needs = ("class_coefficients",)

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, n_classes: int
    ) -> None:
        super().__init__(name, block, regularization, engine)
        self.n_classes = n_classes
        self.kind, self.reason = choose_class_solver(block.whole_shape, n_classes)

    def respond_classes(
        self, gradient: np.ndarray, class_coefficients: np.ndarray, newton: bool
    ) -> dict[str, Any]:
        r"""Answer a loss gradient with the message of a new direction for each class.

        Shapes: gradient (C, N); class_coefficients (C, K).
        Scaling: gradient summed scaling.
        """
        residual = self.residual_classes(gradient, class_coefficients)
        answer: dict[str, Any] = {"squared_residual": float(np.sum(residual * residual))}
        known = len(self.directions)
        wanted = -self._newton_classes(residual) if newton and self._can_newton() else -residual
        for direction in np.ascontiguousarray(wanted):
            if len(self.directions) < self.block.shape[1]:
                self._keep(direction)
        if len(self.directions) == known:
            return answer
        return {**answer, "message": self.block.matrix_product(self.directions[known:], self.engine)}

    def _first_residual(self, gradient: np.ndarray, class_coefficients: np.ndarray) -> np.ndarray:
        return self.residual_classes(gradient, class_coefficients)

    def residual_classes(self, gradient: np.ndarray, class_coefficients: np.ndarray) -> np.ndarray:
        """Block gradients of shape (C, d)."""
        residual = self.block.transposed_matrix_product(gradient, self.engine)
        residual += self.regularization * self.weights(self._own(class_coefficients))
        return residual

    def _newton_classes(self, residual: np.ndarray) -> np.ndarray:
        if self.kind == "gram":
            return scipy.linalg.lapack.dpotrs(self._factor, residual.T, lower=True)[0].T
        return np.array([self._newton(row) for row in residual])

    def forget_classes(self, directions: np.ndarray) -> None:
        """Drop some directions: the others span what is orthogonal to them. Shapes: directions (n, K)."""
        n, k = directions.shape
        if not (0 < n < k and k == len(self.directions) and np.isfinite(directions).all()):
            raise Unanswerable("call 'forget_classes': not combinations of the directions that were sent")
        self._turn(directions)

    def final_weights(self, class_coefficients: np.ndarray) -> np.ndarray:
        return self.weights(self._own(class_coefficients)).T
