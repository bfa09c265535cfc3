r"""A party: a proximal oracle over a private block.

Given a public target w, it answers with the message :math:`a_m = D_m x_m`. It
keeps nothing that the coordinator would need to restart it: its factorisation
is a cache, its weights are its last answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastadmm.blocks.block import FeatureBlock, check_scale
from fastadmm.blocks.weighted import WeightedBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.constraints import AllSpace, Constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import Regularizer, SquaredL2

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
    dual : ndarray of shape (d,)
        Image of the vector last given to :meth:`dual_scale`.
    metric : ndarray of shape (N,) or None
        omega, where every sample has a penalty of its own.
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
        self._x_update = x_update
        self.update, self.reason = choose_penalised(
            block, self.penalty.regularizer, self.penalty.constraint, x_update
        )
        self.metric: np.ndarray | None = None
        self.dual = np.zeros(block.shape[1])
        self.weights = np.zeros(block.shape[1])
        self._target_image: np.ndarray | None = None

    def look_ahead(self, vectors: Sequence[np.ndarray], target: np.ndarray | None) -> None:
        """Make in one pass what the rest of a round and the next x-update need of the block.

        To the bit what they would make themselves, pass by pass: this saves
        reading the block, and changes nothing else.

        Parameters
        ----------
        vectors : sequence of ndarray of shape (N,)
            What :meth:`certify`, :meth:`stationarity` and :meth:`dual_scale` will be given.
        target : ndarray of shape (N,) or None
            What :meth:`step` will be given next; :meth:`forget_target` where it will not.
        """
        # The kernel side works on the target itself.
        if self.update.name == "kernel":
            target = None
        wanted = [*vectors]
        if target is not None:
            block = self.update.block
            # In the order of products in which the x-update would do it by itself.
            wanted.append(block.root * (block.root * target) if isinstance(block, WeightedBlock) else target)
        images = self.block.transposed_products(wanted, self.engine)
        self.block.know(list(zip(vectors, images)))
        self._target_image = None if target is None else images[-1]

    def forget_target(self) -> None:
        """The next target is another than the one looked ahead to."""
        self._target_image = None

    def prepare(self) -> None:
        """Factorise, once; free to repeat after a restart.

        Raises
        ------
        InputError
            If squares of the features overflow.
        """
        check_scale(self.block, self.name, self.engine)
        self.update.prepare(self.engine)

    def set_metric(self, metric: np.ndarray) -> None:
        r"""Give every sample a penalty of its own, :math:`r \omega_i`, and factorise for it.

        Parameters
        ----------
        metric : ndarray of shape (N,)
            omega, positive. From now on :meth:`step` minimises with
            :math:`\tfrac{\tau r}{2} \sum_i \omega_i (D_m x - w)_i^2`.
        """
        self.metric = metric
        self.forget_target()
        block = WeightedBlock(self.block, metric)
        self.update, _ = choose_penalised(
            block, self.penalty.regularizer, self.penalty.constraint, self._x_update
        )
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
        block = self.update.block  # the party's own, or that in the metric
        if isinstance(block, WeightedBlock):
            w = block.root * w
        block.know([] if self._target_image is None else [(w, self._target_image)])
        self.weights = self.update.solve(w, self.regularization / scaled_penalty, self.weights, self.engine)
        block.know([])
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
        image, lagrangian = self.block.images([gradient, pull], self.engine)
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
        self.dual = -self.block.transposed_product(u, self.engine)
        return self.penalty.largest_scale(self.dual)

    def dual_value(self, scale: float) -> float:
        r""":math:`h_m^*(-\alpha D_m^\top u)` at a scale that every party allows, for the last u."""
        return self.penalty.conjugate(scale * self.dual)

    def penalty_value(self) -> float:
        r"""Regulariser :math:`\lambda W R_m(x_m)`, summed scaling."""
        if not self.penalty.is_ridge:
            return self.penalty.value(self.weights)
        return 0.5 * self.regularization * float(self.weights @ self.weights)
