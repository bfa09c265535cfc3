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
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import MAX_GRAM_SIDE, DirectionParty, choose_metric_solver
from fastadmm.parties.orthonormal import orthonormal
from fastadmm.parties.proximal import Party
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


class ClassParty(Party):
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
        self._dual = np.zeros_like(self.weights)

    def _images(self, v: np.ndarray) -> np.ndarray:
        return self.block.transposed_matrix_product(v.reshape(self.n_classes, -1), self.engine)

    def step(
        self, w: np.ndarray, scaled_penalty: float, out: np.ndarray | None = None, known: bool = False
    ) -> dict[str, Any]:
        """Arguments as in :class:`fastadmm.parties.proximal.Party`; class-major, of shape (C N,)."""
        self._factorise()
        mu = self.regularization / scaled_penalty
        targets = w.reshape(self.n_classes, -1)
        answers = self.engine.map(
            lambda c: self.update.solve(targets[c], mu, self.weights[c], self.engine), range(self.n_classes)
        )
        self.weights = np.array(answers)
        return self._stepped(self._message(out))

    def _message(self, out: np.ndarray | None) -> np.ndarray:
        message = self.block.matrix_product(self.weights, self.engine).ravel()
        if out is None:
            return message
        out[:] = message
        return out

    def certify(self, gradient: np.ndarray, pull: np.ndarray, target: Any = None) -> dict[str, Any]:
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes; arguments of shape (C N,)."""
        scale = self.regularization
        residual = self._images(gradient) + scale * self.weights
        mapped = (scale * self.weights + self._images(pull)) / (1.0 + scale)
        gap = float(np.sum(residual * residual)) / (2.0 * scale)
        return {"gap": gap, "stationarity": float(np.sum(mapped * mapped))}

    def stationarity(
        self, pull: np.ndarray, ahead: np.ndarray | None = None, target: Any = None
    ) -> dict[str, Any]:
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes; pull of shape (C N,)."""
        targets = self.weights - self._images(pull)
        mapped = self.weights - np.array([self.penalty.prox(target, 1.0) for target in targets])
        return {"value": float(np.sum(mapped * mapped))}

    def dual_scale(self, u: np.ndarray) -> dict[str, Any]:
        """The scale that every class allows, as in :class:`fastadmm.parties.proximal.Party`; u: (C N,)."""
        self._dual = -self._images(u)
        return {"value": min(float(self.penalty.largest_scale(self._dual[c])) for c in range(self.n_classes))}

    def dual_value(self, scale: float) -> dict[str, Any]:
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes."""
        return {
            "value": float(sum(self.penalty.conjugate(scale * self._dual[c]) for c in range(self.n_classes)))
        }

    def penalty_value(self) -> float:
        """As in :class:`fastadmm.parties.proximal.Party`, summed over classes."""
        if not self.penalty.is_ridge:
            return float(sum(self.penalty.value(self.weights[c]) for c in range(self.n_classes)))
        return 0.5 * self.regularization * float(np.sum(self.weights * self.weights))


class ClassDirectionParty(DirectionParty):
    r"""A party of a multinomial subspace run: a direction per class in one message.

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
    directions : ndarray of shape (C, K, d)
        Per class orthonormal rows (a row of zeros where a class had nothing
        new): the weights of class c are ``coefficients[c] @ directions[c]``.

    Notes
    -----
    All classes share one factorisation, in the metric of the mean curvature
    over the classes: one per class costs C times as much, and saves hardly a
    round on MNIST.
    """

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, n_classes: int
    ) -> None:
        super().__init__(name, block, regularization, engine)
        self.kind, self.reason = choose_class_solver(block.shape, n_classes)
        self.directions = np.zeros((n_classes, 0, block.shape[1]))

    def respond_classes(
        self,
        gradient: np.ndarray,
        coefficients: np.ndarray,
        newton: bool,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray | None, float]:
        r"""Answer a loss gradient with the message of one new direction per class.

        Parameters
        ----------
        gradient : ndarray of shape (C, N)
            g, summed scaling.
        coefficients : ndarray of shape (C, K)
            This party's coefficients, which give its weights.
        newton : bool
            Newton direction where the party can; else the negative gradient.
        out : ndarray of shape (C, N), optional
            Where the message is to be written.

        Returns
        -------
        message : ndarray of shape (C, N) or None
            Row c is ``D d_c`` for a unit vector orthogonal to all earlier ones
            of the class; zero, or None for all, where there is nothing new.
        squared_residual : float
            :math:`\sum_c \|D_m^\top g_c + \lambda W x_{m,c}\|^2`.
        """
        residual = self.block.transposed_matrix_product(gradient, self.engine)
        residual += self.regularization * self.weights(coefficients)
        squared = float(np.sum(residual * residual))
        directions = -self._newton_classes(residual) if newton and self._can_newton() else -residual
        fresh = np.zeros_like(directions)
        for own, direction, earlier in zip(fresh, directions, self.directions):
            if (found := orthonormal(direction, earlier)) is not None:
                own[:] = found
        if not fresh.any():
            return None, squared
        self.directions = np.concatenate([self.directions, fresh[:, None]], axis=1)
        message = self.block.matrix_product(fresh, self.engine)
        if out is None:
            return message, squared
        out[:] = message
        return out, squared

    def _newton_classes(self, residual: np.ndarray) -> np.ndarray:
        if self.kind == "gram":
            return scipy.linalg.cho_solve(self._factor, residual.T, check_finite=False).T
        return np.array([self._newton(row) for row in residual])

    def merge_oldest(self, coefficients: np.ndarray) -> None:
        """Replace the two oldest directions of every class by their combination along the weights.

        Parameters
        ----------
        coefficients : ndarray of shape (C, 2)
            Current coefficients, scaled to unit norm per class.
        """
        merged = np.einsum("ck,ckd->cd", coefficients, self.directions[:, :2])
        self.directions = np.concatenate([merged[:, None], self.directions[:, 2:]], axis=1)

    def weights(self, coefficients: np.ndarray) -> np.ndarray:
        """Weights of shape (C, d) for this party's coefficients of shape (C, K)."""
        return np.einsum("ck,ckd->cd", coefficients, self.directions)
