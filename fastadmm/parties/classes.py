r"""Parties of a multinomial model: one weight vector per class over the same block.

A party's problems are separable over the classes, so both kinds are the scalar
ones, class by class, over one factorisation. Weights are held class-major, of
shape (C, d); a model's weights are their transpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Answering, Unanswerable, checked
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import MAX_GRAM_SIDE, DirectionParty, choose_metric_solver
from fastadmm.parties.proximal import Party, penalty_of
from fastadmm.parties.reflection import Turn
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.regularizers import Regularizer

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

    def __init__(
        self,
        name: str,
        block: FeatureBlock,
        regularization: float,
        engine: Engine,
        n_classes: int,
        x_update: str = "auto",
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(name, block, regularization, engine, x_update, regularizer, constraint)
        self.n_classes = n_classes
        self.weights = np.zeros((n_classes, block.shape[1]))
        self.dual = np.zeros_like(self.weights)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> ClassParty:
        regularizer, constraint = penalty_of(name, block, terms)
        scale = float(terms["regularization"])
        return cls(name, block, scale, engine, terms["n_classes"], terms["x_update"], regularizer, constraint)

    def _images(self, v: np.ndarray) -> np.ndarray:
        return self.block.transposed_matrix_product(v, self.engine)

    def step_classes(self, w: np.ndarray, scaled_penalty: float) -> dict[str, Any]:
        """As ``step`` of :class:`fastadmm.parties.proximal.Party`, class by class. Shapes: w (C, N)."""
        self._factorise()
        mu = self.regularization / scaled_penalty
        answers = self.engine.map(
            lambda c: self.update.solve(w[c], mu, self.weights[c], self.engine), range(self.n_classes)
        )
        self.weights = np.array(answers)
        return self._stepped(self.block.matrix_product(self.weights, self.engine))

    def certify_classes(self, gradient: np.ndarray, pull: np.ndarray) -> dict[str, Any]:
        """As ``certify`` of :class:`fastadmm.parties.proximal.Party`, summed over classes.

        Shapes: gradient, pull (C, N).
        """
        scale = self.regularization
        residual = self._images(gradient) + scale * self.weights
        mapped = (scale * self.weights + self._images(pull)) / (1.0 + scale)
        gap = float(np.sum(residual * residual)) / (2.0 * scale)
        return {"gap": gap, "stationarity": float(np.sum(mapped * mapped))}

    def stationarity_classes(self, pull: np.ndarray) -> dict[str, Any]:
        """As ``stationarity`` of :class:`fastadmm.parties.proximal.Party`, summed over classes; (C, N)."""
        targets = self.weights - self._images(pull)
        mapped = self.weights - np.array([self.penalty.prox(target, 1.0) for target in targets])
        return {"value": float(np.sum(mapped * mapped))}

    def dual_scale_classes(self, u: np.ndarray) -> dict[str, Any]:
        """The scale that every class allows, for u of shape (C, N); its image is kept for the value there."""
        self.dual = -self._images(u)
        return {"value": min(float(self.penalty.largest_scale(dual)) for dual in self.dual)}

    def dual_value(self, scale: float) -> dict[str, Any]:
        """A party's number, summed over classes; told at :class:`fastadmm.parties.proximal.Party`."""
        return {"value": float(sum(self.penalty.conjugate(scale * dual) for dual in self.dual))}

    def penalty_value(self) -> float:
        """A party's number, summed over classes; told at :class:`fastadmm.parties.proximal.Party`."""
        if not self.penalty.is_ridge:
            return float(sum(self.penalty.value(self.weights[c]) for c in range(self.n_classes)))
        return 0.5 * self.regularization * float(np.sum(self.weights * self.weights))

    def final_weights(self) -> np.ndarray:
        return self.weights.T

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.weights = checked(saved, "weights", self.weights.shape)
        self.dual = checked(saved, "dual", self.weights.shape)


class ClassDirectionParty(OfClasses, DirectionParty):
    r"""A party of a multinomial subspace run: up to C directions in one message.

    Shapes: block (N, d); directions (K, d).
    Scaling: regularization summed scaling.
    """

    family = "multinomial_subspace"
    needs = ("class_coefficients",)

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, n_classes: int
    ) -> None:
        super().__init__(name, block, regularization, engine)
        self.n_classes = n_classes
        self.kind, self.reason = choose_class_solver(block.whole_shape, n_classes)

    @classmethod
    def opened(cls, name: str, block: FeatureBlock, engine: Engine, terms: Mapping[str, Any]) -> Self:
        return cls(name, block, float(terms["regularization"]), engine, terms["n_classes"])

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
        residual += self.regularization * self.weights(self._own_classes(class_coefficients))
        return residual

    def _own_classes(self, class_coefficients: np.ndarray) -> np.ndarray:
        self._own(class_coefficients.T)
        return class_coefficients

    def _newton_classes(self, residual: np.ndarray) -> np.ndarray:
        if self.kind == "gram":
            return scipy.linalg.lapack.dpotrs(self._factor, residual.T, lower=True)[0].T
        return np.array([self._newton(row) for row in residual])

    def forget_classes(self, directions: np.ndarray) -> None:
        """Drop some directions: the others span what is orthogonal to them. Shapes: directions (n, K)."""
        n, k = directions.shape
        if not (0 < n < k and k == len(self.directions) and np.isfinite(directions).all()):
            raise Unanswerable("call 'forget_classes': not combinations of the directions that were sent")
        self.directions = Turn(directions).applied(self.directions)

    def final_weights(self, class_coefficients: np.ndarray) -> np.ndarray:
        return self.weights(self._own_classes(class_coefficients)).T
