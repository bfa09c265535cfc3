r"""A party in a proximal Newton run: answers a loss gradient with the message of a feasible model.

Given the gradient g at a proposed model y and a curvature metric H it solves
its block's proximal Newton problem

.. math:: \hat x_m = \arg\min_{x \in X_m} \lambda W R_m(x) + \langle D_m^\top g, x\rangle
          + \tfrac12 \|D_m (x - y_m)\|_H^2,

the x-update of ADMM sharing with a penalty per sample, keeps the answer as a
*point* and sends the message :math:`D_m \hat x_m` with a few scalars. The
coordinator refers to points by their coefficients and never sees weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fastadmm.blocks import FeatureBlock, check_scale
from fastadmm.constraints import Constraint
from fastadmm.engine import Engine
from fastadmm.penalty import PartyPenalty
from fastadmm.regularizers import Regularizer
from fastadmm.weighted_block import WeightedBlock
from fastadmm.xupdate.base import XUpdate
from fastadmm.xupdate.choose import choose_penalised

__all__ = ["Answer", "Bend", "DualShare", "HullParty", "PointScalars"]

Array = np.ndarray

#: A new point this close to an old one in every weight, relative to its size, adds nothing.
_NOTHING_NEW = 1e-12

#: Kinks reported on the way to a proposal; beyond the last one the way is not known.
_MAX_KINKS = 24


@dataclass(frozen=True)
class PointScalars:
    r"""What the coordinator learns of a point besides its message.

    Attributes
    ----------
    norm : float
        :math:`\Omega(p)`, the homogeneous part of the regulariser.
    products : ndarray of shape (K + 1,)
        Inner products with the party's points, its own square last.
    extends, extended : ndarray of bool, shape (K,)
        Whether an older point lies on the face of the new one, and the new
        one on that of the older: on one face h is linear along lines, up to
        its square, as long as no weight crosses its kink or bound.
    together : ndarray of bool, shape (K,)
        Whether both lie on some common face.
    """

    norm: float
    products: Array
    extends: Array
    extended: Array
    together: Array


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
class LinePoint:
    """A point on the way from the model to the proposal, where a weight meets its kink or bound.

    Attributes
    ----------
    at : float
        Position, 0 at the model and 1 at the proposal.
    norm, extends, extended, together
        As in :class:`PointScalars`.
    """

    at: float
    norm: float
    extends: Array
    extended: Array
    together: Array


@dataclass(frozen=True)
class Bend:
    r"""Second-order model of a norm at the party's current weights, over its points.

    Attributes
    ----------
    on_face : ndarray of bool, shape (K,)
        Points on the face of the weights, on which the norm is smooth there.
    slope : ndarray of shape (K,)
    curvature : ndarray of shape (K, K)
        As of :meth:`fastadmm.regularizers.Regularizer.bending`.
    """

    on_face: Array
    slope: Array
    curvature: Array


@dataclass(frozen=True)
class Answer:
    """What a party sends back.

    Attributes
    ----------
    settled : PointScalars or None
        Of the model itself, now a point too; None where it was one.
    line : list of LinePoint
        Empty where the proposal is the model.
    message : ndarray of shape (N,) or None
        Of the new point; None where there is nothing new.
    scalars : PointScalars or None
        Of the new point.
    dual : DualShare
    multiplier : float
        Of the ball, at the new point; 0 inside it.
    exact : ndarray of shape (N,) or None
        Message of the model, where the coordinator asked for it.
    bend : Bend or None
        Where the norm is not linear on faces: its shape at the model.
    turns : list of LinePoint
        On the way from the model to the new point, where the signs of weights begin to change.
    """

    settled: PointScalars | None
    line: list[LinePoint]
    message: Array | None
    scalars: PointScalars | None
    dual: DualShare
    multiplier: float
    exact: Array | None = None
    bend: Bend | None = None
    turns: list[LinePoint] = field(default_factory=list)


class HullParty:
    """Holder of a feature block and of the points it has answered with.

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
    points : ndarray of shape (K, d)
        The first is the feasible point nearest to zero.
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
        self.points = constraint.project(np.zeros((1, block.shape[1])))
        self._solver: XUpdate | None = None
        self._root = np.ones(0)
        self._ends = self._turn = self.points[0], self.points[0]

    def prepare(self) -> None:
        """Refuse values whose squares overflow; raises InputError."""
        check_scale(self.block, self.name, self.engine)

    def first(self) -> tuple[Array, PointScalars]:
        """Message of shape (N,) and scalars of the point that the party starts with."""
        start = self.points[0]
        none = np.zeros(0, dtype=bool)
        norm = self.penalty.regularizer.norm(start)
        return self.block.product(start, self.engine), PointScalars(
            norm, np.array([start @ start]), none, none, none
        )

    def keep(self, x: Array) -> tuple[Array, PointScalars] | None:
        """Make weights of shape (d,), in the set, a point: message and scalars; None where they are one."""
        scalars = self._keep(x)
        return None if scalars is None else (self.block.product(x, self.engine), scalars)

    def set_metric(self, curvature: Array) -> None:
        """Take in a new curvature metric: positive weights of shape (N,), summed scaling."""
        weighted = WeightedBlock(self.block, curvature)
        self._solver, _ = choose_penalised(weighted, self.penalty.regularizer, self.penalty.constraint)
        self._solver.prepare(self.engine)
        self._root = weighted.root

    def respond(
        self, gradient: Array, model: Array, proposal: Array, extrapolated: bool, exact: bool = False
    ) -> Answer:
        """Answer a loss gradient.

        Parameters
        ----------
        gradient : ndarray of shape (N,)
            g at the proposed model, summed scaling.
        model : ndarray of shape (K,)
            Coefficients of the party's points that give its current weights.
        proposal : ndarray of shape (K,)
            Those that give y, where the gradient was taken; y may leave the set.
        extrapolated : bool
            Whether y is another model than the current one.
        exact : bool
            Whether to send the message of the current model too, which rounding has changed.

        Returns
        -------
        Answer
        """
        y = proposal @ self.points
        x = current = self.weights(model)
        settled = self._keep(x, anyway=exact)
        known = self.block.product(x, self.engine) if exact else None
        line = self._line(x, y) if extrapolated else []
        slope = self.block.transposed_product(gradient, self.engine)
        dual = self._dual(slope, y)
        if self._solver is None:
            raise RuntimeError("set_metric comes first")
        target = self._root * self.block.product(y, self.engine) - gradient / self._root
        start = self.penalty.prox(y, 0.0)
        x = self._solver.solve(target, self.regularization, start, self.engine)
        scalars = self._keep(x)
        if scalars is None:
            return Answer(settled, line, None, None, dual, 0.0, known, self._bend(current))
        message = self.block.product(x, self.engine)
        multiplier = self._multiplier(x, slope, message, y)
        self._turn = current, x
        turns = self._turns(current, x)
        return Answer(settled, line, message, scalars, dual, multiplier, known, self._bend(current), turns)

    def _bend(self, x: Array) -> Bend | None:
        if self.penalty.regularizer.separable:
            return None
        on_face = np.array([self.penalty.on_face(x, p) for p in self.points], dtype=bool)
        return Bend(on_face, *self.penalty.regularizer.bending(x, self.points))

    def _line(self, x: Array, y: Array) -> list[LinePoint]:
        """Where the way from x to y meets kinks and bounds, as far as it stays in the set."""
        self._ends = x, y
        found = []
        for at in self.penalty.kinks_between(x, y)[:_MAX_KINKS]:
            point = self.penalty.on_the_way(x, y, at)
            found.append(LinePoint(at, self.penalty.regularizer.norm(point), *self._faces(point)))
        return found

    def _turns(self, x: Array, new: Array) -> list[LinePoint]:
        """Up to where the signs of x are kept on the way to a new point, if they are not to its end."""
        if not self.penalty.regularizer.separable or self.penalty.on_common_face(x, new):
            return []
        kinks = self.penalty.kinks_between(x, new)[:-1]
        found = []
        middle = len(kinks) // 2
        for at in dict.fromkeys(kinks[:1] + kinks[middle : middle + 1]):
            point = self.penalty.on_the_way(x, new, at)
            found.append(LinePoint(at, self.penalty.regularizer.norm(point), *self._faces(point)))
        return found

    def keep_turn(self, at: float) -> None:
        """The same for the way to the last answer."""
        self.points = np.vstack([self.points, self.penalty.on_the_way(*self._turn, at)])

    def keep_line(self, at: float) -> None:
        """Make the place on the last way that a :class:`LinePoint` reported a point."""
        point = self.penalty.on_the_way(*self._ends, at)
        self.points = np.vstack([self.points, point])

    def _faces(self, x: Array) -> tuple[Array, Array, Array]:
        on_face, together = self.penalty.on_face, self.penalty.on_common_face
        return (
            np.array([on_face(x, p) for p in self.points], dtype=bool),
            np.array([on_face(p, x) for p in self.points], dtype=bool),
            np.array([together(p, x) for p in self.points], dtype=bool),
        )

    def _keep(self, x: Array, anyway: bool = False) -> PointScalars | None:
        """Make x, of shape (d,), a point and describe it; None where it is one already."""
        size = np.maximum(np.abs(x), np.abs(self.points).max(axis=0))
        same = np.abs(self.points - x) <= _NOTHING_NEW * size
        if not np.isfinite(x).all() or (same.all(axis=1).any() and not anyway):
            return None
        scalars = self._scalars(x)
        self.points = np.vstack([self.points, x])
        return scalars

    def _dual(self, slope: Array, y: Array) -> DualShare:
        scale = self.penalty.largest_scale(-slope)
        value = self.penalty.conjugate(-scale * slope) if scale > 0.0 else 0.0
        moved = y - self.penalty.prox(y - slope, 1.0)
        return DualShare(scale, value, self.penalty.conjugate(np.zeros_like(slope)), float(moved @ moved))

    def _multiplier(self, x: Array, slope: Array, message: Array, y: Array) -> float:
        """Multiplier of the ball at a solution: curvature of the sphere, 0 inside it."""
        radius = self.penalty.constraint.radius
        if not np.linalg.norm(x) >= radius * (1.0 - 1e-9):
            return 0.0
        pull = self._root * self._root * (message - self.block.product(y, self.engine))
        subgradient = -(slope + self.block.transposed_product(pull, self.engine))
        # At a solution it is a subgradient of the regulariser plus a multiple of x.
        first, second = self.penalty.coefficients
        along = float(subgradient @ x) - first * self.penalty.regularizer.norm(x)
        return max(along / float(x @ x) - second, 0.0)

    def _scalars(self, x: Array) -> PointScalars:
        norm, products = self.penalty.regularizer.norm(x), np.append(self.points @ x, x @ x)
        return PointScalars(norm, products, *self._faces(x))

    def merge(self, pair: Array) -> None:
        """Replace the two oldest points by their combination; weights of shape (2,) sum to one."""
        self.points = np.vstack([pair @ self.points[:2], self.points[2:]])

    def forget(self, numbers: Array) -> None:
        """Forget points by number, an int array."""
        self.points = np.delete(self.points, numbers, axis=0)

    def weights(self, coefficients: Array) -> Array:
        """x_m of shape (d,) for coefficients of shape (K,)."""
        return self.penalty.constraint.project(coefficients @ self.points)  # rounding of a combination

    def penalty_value(self, coefficients: Array) -> float:
        r""":math:`\lambda W R_m` at the model of coefficients of shape (K,)."""
        return self.penalty.value(self.weights(coefficients))
