r"""A party: a proximal oracle over a private block.

Given a public target w, it answers with the message :math:`a_m = D_m x_m`. It
keeps nothing that the coordinator would need to restart it: its factorisation
is a cache, its weights are its last answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastadmm.blocks import FeatureBlock, check_scale
from fastadmm.constraints import AllSpace, Constraint
from fastadmm.engine import Engine
from fastadmm.penalty import PartyPenalty
from fastadmm.regularizers import Regularizer, SquaredL2
from fastadmm.xupdate.choose import choose_penalised

__all__ = ["Certificate", "Party"]


@dataclass(frozen=True)
class Certificate:
    """What one party contributes to a round's report: scalars only.

    Attributes
    ----------
    gap : float
        Its share of the duality gap, summed scaling.
    stationarity : float
        Its squared term of the Lyapunov value V^t (Hu et al., equation 13).
    """

    gap: float
    stationarity: float


class Party:
    """Holder of one feature block and its weights.

    Parameters
    ----------
    name : str
        Name in messages and files.
    block : FeatureBlock of shape (N, d)
        Private features.
    regularization : float
        ``lambda * W`` in the summed scaling (W: total sample weight).
    engine : Engine
        Runs the products.
    x_update : {"auto", "gram", "kernel", "cg"}
        How to solve the x-update.
    regularizer : Regularizer, optional
        R_m; squared l2 without one.
    constraint : Constraint, optional
        X_m; all space without one.

    Attributes
    ----------
    weights : ndarray of shape (d,)
        x_m, the last answer; zero at the start.
    reason : str
        Why this x-update was chosen.
    """

    def __init__(
        self,
        name: str,
        block: FeatureBlock,
        regularization: float,
        engine: Engine,
        x_update: str = "auto",
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.name = name
        self.block = block
        self.regularization = regularization
        self.engine = engine
        self.penalty = PartyPenalty(regularizer or SquaredL2(), constraint or AllSpace(), regularization)
        self.update, self.reason = choose_penalised(
            block, self.penalty.regularizer, self.penalty.constraint, x_update
        )
        self._dual = np.zeros(block.shape[1])
        self.weights = np.zeros(block.shape[1])

    def prepare(self) -> None:
        """Factorise, once; free to repeat after a restart.

        Raises
        ------
        InputError
            If squares of the features overflow.
        """
        check_scale(self.block, self.name, self.engine)
        self.update.prepare(self.engine)

    def step(self, w: np.ndarray, scaled_penalty: float) -> np.ndarray:
        r"""Answer a target with a message.

        Parameters
        ----------
        w : ndarray of shape (N,)
            Public target.
        scaled_penalty : float
            :math:`\tau r`, summed scaling.

        Returns
        -------
        ndarray of shape (N,)
            :math:`D_m x_m` with
            :math:`x_m = \arg\min_{x \in X_m} \lambda W R_m(x) + \tfrac{\tau r}{2}\|D_m x - w\|^2`.
        """
        self.weights = self.update.solve(w, self.regularization / scaled_penalty, self.weights, self.engine)
        return self.block.product(self.weights, self.engine)

    def certify(self, gradient: np.ndarray, pull: np.ndarray) -> Certificate:
        r"""This party's share of the duality gap and of V^t, for squared l2 without a set.

        Parameters
        ----------
        gradient : ndarray of shape (N,)
            g, the loss gradient at the current predictor, summed scaling.
        pull : ndarray of shape (N,)
            :math:`u + r(\sum_k D_k x_k - z)`, whose image under
            :math:`D_m^\top` is the smooth part of the Lagrangian's gradient.

        Returns
        -------
        Certificate
            Gap share :math:`\|D_m^\top g + \lambda W x_m\|^2 / (2 \lambda W)`;
            stationarity of the prox-gradient map in equation 13.
        """
        scale = self.regularization
        image, lagrangian = self.block.transposed_products([gradient, pull], self.engine)
        residual = image + scale * self.weights
        # prox of (lambda W / 2)|x|^2 at x - q is (x - q) / (1 + lambda W)
        mapped = (scale * self.weights + lagrangian) / (1.0 + scale)
        return Certificate(float(residual @ residual) / (2.0 * scale), float(mapped @ mapped))

    def stationarity(self, pull: np.ndarray) -> float:
        r"""Squared prox-gradient map of equation 13, for any regulariser and set.

        Parameters
        ----------
        pull : ndarray of shape (N,)
            As in :meth:`certify`.

        Returns
        -------
        float
            :math:`\|x_m - \mathrm{prox}_{h_m}(x_m - D_m^\top \mathrm{pull})\|^2`,
            :math:`h_m = \lambda W R_m + \mathrm{ind}_{X_m}`.
        """
        mapped = self.penalty.gradient_map(self.weights, self.block.transposed_product(pull, self.engine))
        return float(mapped @ mapped)

    def dual_scale(self, u: np.ndarray) -> float:
        r"""Largest :math:`\alpha \le 1` for which :math:`h_m^*(-\alpha D_m^\top u)` is finite.

        Parameters
        ----------
        u : ndarray of shape (N,)
            Dual vector; its image is kept for :meth:`dual_value`.
        """
        self._dual = -self.block.transposed_product(u, self.engine)
        return self.penalty.largest_scale(self._dual)

    def dual_value(self, scale: float) -> float:
        r""":math:`h_m^*(-\alpha D_m^\top u)` at a scale that every party allows, for the last u."""
        return self.penalty.conjugate(scale * self._dual)

    def penalty_value(self) -> float:
        r"""Regulariser :math:`\lambda W R_m(x_m)`, summed scaling."""
        if not self.penalty.is_ridge:
            return self.penalty.value(self.weights)
        return 0.5 * self.regularization * float(self.weights @ self.weights)
