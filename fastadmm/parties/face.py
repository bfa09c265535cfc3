r"""A party in a proximal Newton run: answers a loss gradient with its block's best response and its face.

Given the gradient g at a proposed model y and a curvature metric H it solves
its block's proximal Newton problem

.. math:: \hat x_m = \arg\min_{x \in X_m} \lambda W R_m(x) + \langle D_m^\top g, x\rangle
          + \tfrac12 \|D_m (x - y_m)\|_H^2,

the x-update of ADMM sharing with a penalty per sample. What is new in the
answer against its earlier ones is one *direction*, whose message it sends; the
rest is coefficients. With them go a few scalars: which combinations of
directions keep the zeros and bounds of the answer (its *face*), and the
regulariser's slope and curvature there. The coordinator never sees weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastadmm.blocks.block import FeatureBlock, check_scale
from fastadmm.blocks.weighted import WeightedBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.active_set import ActiveSet, Face
from fastadmm.parties.direction_span import DirectionSpan
from fastadmm.parties.xupdate.base import XUpdate
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import Regularizer

__all__ = ["Answer", "DualShare", "FaceParty", "SegmentNorms"]

Array = np.ndarray

#: Answers grow to at most so many times what model and proposal are.
_REACH = 1e6

#: Norms that reach the radius of the ball to this share are on the sphere.
_ON_SPHERE = 1e-9

#: Most positions on a segment at which the regulariser is reported.
_MOST_POSITIONS = 48


@dataclass(frozen=True)
class DualShare:
    r"""What a party says about the gradient as a dual vector.

    Attributes
    ----------
    scale : float
        Largest :math:`\alpha \le 1` for which :math:`h_m^*(-\alpha D_m^\top g)` is finite.
    value, at_zero : float
        The conjugate there and at :math:`\alpha = 0`: by convexity they bound
        it at every scale between.
    squared : float
        Squared prox-gradient map at y: how far y is from this party's optimality.
    """

    scale: float
    value: float
    at_zero: float
    squared: float


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
class Answer:
    r"""What a party sends back.

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
    """

    message: Array | None
    products: Array
    coefficients: Array
    norms: tuple[float, float]
    to_proposal: SegmentNorms | None
    to_answer: SegmentNorms
    face: Face
    dual: DualShare


class FaceParty:
    """Holder of a feature block and of the directions it has sent.

    Parameters
    ----------
    name : str
    block : FeatureBlock of shape (N, d)
    regularization : float
        ``lambda * W``, summed scaling.
    engine : Engine
    regularizer, constraint
        Of this party.

    Attributes
    ----------
    span : DirectionSpan
        Of the directions sent. Column j is measured by its root mean square; by 1 where that is zero.
    """

    def __init__(
        self,
        name: str,
        block: FeatureBlock,
        regularization: float,
        engine: Engine,
        regularizer: Regularizer,
        constraint: Constraint,
    ) -> None:
        self.name, self.block, self.regularization, self.engine = name, block, regularization, engine
        self.penalty = PartyPenalty(regularizer, constraint, regularization)
        self.update, self.reason = choose_penalised(block, regularizer, constraint)
        width = block.shape[1]
        self.span = DirectionSpan(np.empty((0, width)), np.ones(width), self.penalty)
        self._solver: XUpdate | None = None
        self._root = np.ones(0)
        self._answer, self._last_multiplier = np.zeros(width), 0.0
        self._active = ActiveSet.of(self.span, np.empty(0), self._answer, self._answer != 0.0, False)

    def prepare(self) -> None:
        """Measure the columns; raises InputError where squares of values overflow."""
        check_scale(self.block, self.name, self.engine)
        squares = self.block.column_squares(self.engine)
        scale = np.sqrt(squares / max(1, self.block.shape[0]))
        scale[scale == 0.0] = 1.0
        self.span = replace(self.span, scale=scale)

    @property
    def directions(self) -> Array:
        """Of shape (K, d)."""
        return self.span.directions

    @directions.setter
    def directions(self, directions: Array) -> None:
        self.span = replace(self.span, directions=directions)

    @property
    def kind(self) -> str:
        """Name of its proximal problem's solver."""
        return self.update.name

    def first(self) -> tuple[Array | None, Array, Array]:
        """The feasible point nearest to zero: message of its direction, products and coefficients."""
        start = self.penalty.constraint.project(np.zeros(self.block.shape[1]))
        return self.describe(start)

    def set_metric(self, curvature: Array) -> None:
        """Take in a new curvature metric: positive weights of shape (N,), summed scaling."""
        weighted = WeightedBlock(self.block, curvature)
        self._solver, _ = choose_penalised(weighted, self.penalty.regularizer, self.penalty.constraint)
        self._solver.prepare(self.engine)
        self._root = weighted.root

    def respond(self, gradient: Array, model: Array, proposal: Array, extrapolated: bool) -> Answer:
        """Answer a loss gradient.

        Parameters
        ----------
        gradient : ndarray of shape (N,)
            g at the proposed model, summed scaling.
        model : ndarray of shape (K,)
            Coefficients of the party's current weights.
        proposal : ndarray of shape (K,)
            Those of y, where the gradient was taken; y may leave the set.
        extrapolated : bool
            Whether y is another model than the current one.

        Returns
        -------
        Answer
        """
        if self._solver is None:
            raise RuntimeError("set_metric comes first")
        penalty, x, y = self.penalty, self.weights(model), self.span.combine(proposal)
        slope = self.block.transposed_product(gradient, self.engine)
        target = self._root * self.block.product(y, self.engine) - gradient / self._root
        new = self._solver.solve(target, self.regularization, penalty.prox(y, 0.0), self.engine)
        new = self._within_reach(x, y, new)
        message, products, coefficients = self.describe(new, proposal)
        self._answer, self._last_multiplier = new, self._multiplier(new, slope, y)
        norm = penalty.regularizer.norm
        return Answer(
            message,
            products,
            coefficients,
            (norm(x), norm(new)),
            self._norms_along(x, y) if extrapolated else None,
            self._norms_along(x, new),
            self._face(coefficients, new, penalty.held(new), self._last_multiplier),
            self._dual(slope, y),
        )

    def _within_reach(self, x: Array, y: Array, new: Array) -> Array:
        """An answer far beyond model and proposal, on a flat piece of the loss, is shortened."""
        if not np.isfinite(new).all():
            return x
        reach = _REACH * max(float(np.linalg.norm(self.span.scale * v)) for v in (x, y))
        size = float(np.linalg.norm(self.span.scale * new))
        return new if reach == 0.0 or size <= reach else x + (reach / size) * (new - x)

    def describe(self, x: Array, near: Array | None = None) -> tuple[Array | None, Array, Array]:
        """Coefficients of weights, after one more direction where they need it.

        Parameters
        ----------
        x : ndarray of shape (d,)
        near : ndarray of shape (K,), optional
            As in :meth:`DirectionSpan.new_direction`.

        Returns
        -------
        message : ndarray of shape (N,) or None
            Of the new direction.
        products : ndarray of shape (K,)
            Its inner products with all directions, itself last; empty where there is none.
        coefficients : ndarray of shape (K,)
        """
        direction = self.span.new_direction(x, near)
        if direction is None:
            return None, np.empty(0), self.span.coefficients(x)
        self.directions = np.vstack([self.directions, direction])
        message = self.block.product(direction, self.engine)
        return message, self.directions @ direction, self.span.coefficients(x)

    def _norms_along(self, x: Array, y: Array) -> SegmentNorms:
        """Norms at the kinks between x, in the set, and y."""
        positions = np.array([0.0, *self.penalty.kinks_between(x, y)])
        if len(positions) > _MOST_POSITIONS:
            chosen = np.linspace(0, len(positions) - 1, _MOST_POSITIONS).round().astype(np.int64)
            positions = positions[chosen]
        norm = self.penalty.regularizer.norm
        return SegmentNorms(positions, np.array([norm(self.penalty.on_the_way(x, y, t)) for t in positions]))

    def _face(self, anchor: Array, signs: Array, held: Array, multiplier: float) -> Face:
        self._active = ActiveSet.of(self.span, anchor, signs, held, multiplier > 0.0)
        return self._active.face(anchor, multiplier)

    def face_at(self, model: Array) -> Face:
        """The face of a model with the last answer: what both hold is held, the model's signs come first.

        Parameters
        ----------
        model : ndarray of shape (K,)
            Coefficients.

        Returns
        -------
        Face
        """
        x, answer, penalty = self.weights(model), self._answer, self.penalty
        held = penalty.held(x)
        signs = np.where(held, answer, x)
        on_sphere = float(np.linalg.norm(x)) >= penalty.constraint.radius * (1.0 - _ON_SPHERE)
        multiplier = self._last_multiplier if on_sphere else 0.0
        return self._face(model, signs, held & penalty.held(answer), multiplier)

    def first_crossing(self, start: Array, end: Array) -> float:
        """As :meth:`ActiveSet.first_crossing`, on the last face."""
        return self._active.first_crossing(start, end)

    def hold_met(self, start: Array, end: Array, at: float) -> tuple[Array, float]:
        """Arguments as in :meth:`ActiveSet.holding_met`: new basis, and the ball's multiplier if just met."""
        before = self._active
        self._active = before.holding_met(start, end, at)
        meets_sphere = before.tangent is None and self._active.tangent is not None
        return self._active.basis(), self._last_multiplier if meets_sphere else 0.0

    def hold_crossed(self, coefficients: Array) -> tuple[Array, Array] | None:
        """As :meth:`ActiveSet.holding_crossed`: anchor and basis."""
        held = self._active.holding_crossed(coefficients)
        if held is None:
            return None
        self._active = held.active
        return held.anchor, held.basis

    def _dual(self, slope: Array, y: Array) -> DualShare:
        scale = self.penalty.largest_scale(-slope)
        value = self.penalty.conjugate(-scale * slope) if scale > 0.0 else 0.0
        moved = y - self.penalty.prox(y - slope, 1.0)
        return DualShare(scale, value, self.penalty.conjugate(np.zeros_like(slope)), float(moved @ moved))

    def _multiplier(self, x: Array, slope: Array, y: Array) -> float:
        """Multiplier of the ball at a solution: curvature of the sphere, 0 inside it."""
        radius = self.penalty.constraint.radius
        if not np.linalg.norm(x) >= radius * (1.0 - _ON_SPHERE):
            return 0.0
        moved = self._root * self._root * self.block.product(x - y, self.engine)
        subgradient = -(slope + self.block.transposed_product(moved, self.engine))
        # At a solution it is a subgradient of the regulariser plus a multiple of x.
        first, second = self.penalty.coefficients
        along = float(subgradient @ x) - first * self.penalty.regularizer.norm(x)
        return max(along / float(x @ x) - second, 0.0)

    def recombine(self, rotation: Array) -> None:
        """Replace the oldest directions by orthonormal combinations of them, shape (r, number of oldest)."""
        n = rotation.shape[1]
        self.directions = np.vstack([rotation @ self.directions[:n], self.directions[n:]])

    def weights(self, coefficients: Array) -> Array:
        """x_m of shape (d,), in the set, for coefficients of shape (K,)."""
        return self.span.weights(coefficients)

    def norm(self, coefficients: Array) -> float:
        r""":math:`\Omega` at the model of coefficients of shape (K,)."""
        return self.penalty.regularizer.norm(self.weights(coefficients))

    def penalty_value(self, coefficients: Array) -> float:
        r""":math:`\lambda W R_m` at the model of coefficients of shape (K,)."""
        return self.penalty.value(self.weights(coefficients))
