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

__all__ = ["ClassDirectionParty", "ClassParty", "choose_class_solver"]

#: Largest Gram side that is refactorised in every new metric, whatever the number of classes.
MAX_SIDE = 256

#: The same per class: a factorisation must not cost much more than a few rounds' products.
_SIDE_PER_CLASS = 32


def choose_class_solver(shape: tuple[int, int], n_classes: int) -> tuple[str, str]:
    """Which matrix a party factorises in each curvature metric, and why.

    As :func:`fastadmm.parties.direction.choose_metric_solver`, but for smaller
    matrices: gradient directions need next to no more rounds with C
    coefficients per message, so that a factorisation pays only where it is cheap.

    Parameters
    ----------
    shape : tuple of int
        (N, d_m).
    n_classes : int
        C.

    Returns
    -------
    name : {"gram", "kernel", "gradient"}
    reason : str
        One clause for the log.
    """
    n, d = shape
    if min(n, d) <= min(MAX_GRAM_SIDE, max(MAX_SIDE, _SIDE_PER_CLASS * n_classes)):
        return choose_metric_solver(shape)
    return "gradient", f"{n} x {d} with {n_classes} classes: gradient directions, without a factorisation"


class OfClasses(Answering):
    """What parties of several classes have in common.

    Attributes
    ----------
    n_classes : int
        C.
    """

    n_classes: int

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

    Parameters
    ----------
    name : str
    block : FeatureBlock of shape (N, d)
    regularization : float
        ``lambda * W``, summed scaling.
    engine : Engine
    n_classes : int
        C.
    x_update : str
    regularizer : Regularizer, optional
    constraint : Constraint, optional
        As in :class:`fastadmm.parties.proximal.Party`.

    Attributes
    ----------
    weights : ndarray of shape (C, d)
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

    def step_classes(
        self, w: np.ndarray, scaled_penalty: float, out: np.ndarray | None = None
    ) -> dict[str, Any]:
        """As ``step`` of :class:`fastadmm.parties.proximal.Party`, class by class.

        Parameters
        ----------
        w : ndarray of shape (C, N)
        scaled_penalty : float
        out : ndarray of shape (C N,), optional
            Where the message is to be written.

        Returns
        -------
        dict
            ``message`` of shape (C, N), ``penalty`` and ``norm``.
        """
        self._factorise()
        mu = self.regularization / scaled_penalty
        answers = self.engine.map(
            lambda c: self.update.solve(w[c], mu, self.weights[c], self.engine), range(self.n_classes)
        )
        self.weights = np.array(answers)
        message = self.block.matrix_product(self.weights, self.engine)
        if out is not None:
            out[:] = message.ravel()
            message = out.reshape(message.shape)
        return self._stepped(message)

    def certify_classes(self, gradient: np.ndarray, pull: np.ndarray) -> dict[str, Any]:
        """As ``certify`` of :class:`fastadmm.parties.proximal.Party`, summed over classes.

        Parameters
        ----------
        gradient, pull : ndarray of shape (C, N)
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
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes."""
        return {"value": float(sum(self.penalty.conjugate(scale * dual) for dual in self.dual))}

    def penalty_value(self) -> float:
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes."""
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

    Parameters
    ----------
    name : str
    block : FeatureBlock of shape (N, d)
    regularization : float
        ``lambda * W``, summed scaling.
    engine : Engine
    n_classes : int
        C.

    Attributes
    ----------
    directions : ndarray of shape (K, d)
        Orthonormal rows, which all classes share: the weights are ``class_coefficients @ directions``.

    Notes
    -----
    All classes share one factorisation, in the metric of the mean curvature
    over the classes: one per class costs C times as much, and saves hardly a
    round on MNIST.
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

        Parameters
        ----------
        gradient : ndarray of shape (C, N)
            g, summed scaling.
        class_coefficients : ndarray of shape (C, K)
            This party's coefficients, which give its weights.
        newton : bool
            Newton directions where the party can; else negative gradients.

        Returns
        -------
        dict
            ``squared_residual``, :math:`\sum_c \|D_m^\top g_c + \lambda W x_{m,c}\|^2`; and ``message`` of
            shape (r, N), unless there is nothing new: a row is ``D d`` for a unit vector d orthogonal to
            all earlier ones and to those of the rows before. What the classes ask for sums to zero: r < C.
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

    def residual_classes(self, gradient: np.ndarray, class_coefficients: np.ndarray) -> np.ndarray:
        """Block gradients of shape (C, d); arguments as in :meth:`respond_classes`."""
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
        """Drop some directions: the others span what is orthogonal to them.

        Parameters
        ----------
        directions : ndarray of shape (n, K)
            Combinations of this party's directions, orthonormal.
        """
        n, k = directions.shape
        if not (0 < n < k and k == len(self.directions) and np.isfinite(directions).all()):
            raise Unanswerable("call 'forget_classes': not combinations of the directions that were sent")
        self.directions = Turn(directions).applied(self.directions)

    def final_weights(self, class_coefficients: np.ndarray) -> np.ndarray:
        return self.weights(self._own_classes(class_coefficients)).T
