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

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock, check_scale
from fastadmm.blocks.weighted import WeightedBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import XUpdate
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import Regularizer

__all__ = ["Answer", "DualShare", "Face", "FaceParty", "Way", "sum_without_rounding"]

Array = np.ndarray

#: What is left of an answer beside the earlier directions counts as new above this share of it.
_NOTHING_NEW = 1e-13

#: Combinations of directions that keep zeros and bounds to this share are said to keep them.
_KEPT = 1e-11

#: Weights up to this share of the terms that they are the sum of are rounding.
_ROUNDING = 1e-11

#: The same of a sum of terms that are rounded themselves: a place on a way is a quotient of sums.
_LAST_DIGITS = 1e-14

#: Answers grow to at most so many times what model and proposal are.
_REACH = 1e6

#: Norms that reach the radius of the ball to this share are on the sphere.
_ON_SPHERE = 1e-9

#: Most places on a way at which the regulariser is reported.
_MOST_PLACES = 48


def sum_without_rounding(start: Array, columns: Array, factors: Array) -> Array:
    """``start + columns @ factors``, zero where only rounding is left.

    Relative to such a rest nothing would be rounding any more, and weights that are to be zero would not be.

    Parameters
    ----------
    start : ndarray of shape (K,)
    columns : ndarray of shape (K, n)
    factors : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (K,)
    """
    total = start + columns @ factors
    total[np.abs(total) <= _LAST_DIGITS * (np.abs(start) + np.abs(columns) @ np.abs(factors))] = 0.0
    return total


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
class Way:
    r"""The regulariser along a line that starts at the model, as far as it stays in the set.

    Attributes
    ----------
    places : ndarray of shape (n,)
        Increasing, the model at 0 and the end of the line at 1: the kinks of
        :math:`\Omega`, or some of them.
    norms : ndarray of shape (n,)
        :math:`\Omega` there. Between places it is at most linear, by convexity.
    """

    places: Array
    norms: Array


@dataclass(frozen=True)
class Face:
    r"""Where the regulariser is smooth around a point, in coefficients of directions.

    Attributes
    ----------
    anchor : ndarray of shape (K,)
        A point of the face.
    basis : ndarray of shape (K, K')
        Orthonormal columns: combinations of directions that vanish where the face
        holds weights at a kink or bound.
    slope : ndarray of shape (K,)
        :math:`\langle\nabla\Omega, d_k\rangle`.
    curvature : ndarray of shape (K, K)
        :math:`\langle d_j, \nabla^2\Omega\, d_k\rangle`; None for the l1 norm, which has none. A norm is
        homogeneous, so that slope and half the curvature are its second-order model around
        any point of the face.
    stiffness : ndarray of shape (K, K)
        The same of the parabolas that touch the terms of :math:`\Omega` and have their
        least value at zero: it keeps a step from going through kinks.
    multiplier : float
        Of the ball; 0 inside it.
    """

    anchor: Array
    basis: Array
    slope: Array
    curvature: Array | None
    stiffness: Array
    multiplier: float


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
    line : Way or None
        From the model to the proposal; None where that is the model.
    turns : Way
        From the model to the answer.
    face : Face
    dual : DualShare
    """

    message: Array | None
    products: Array
    coefficients: Array
    norms: tuple[float, float]
    line: Way | None
    turns: Way
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
    directions : ndarray of shape (K, d)
        Orthonormal when column j is measured in units of 1 / ``scale[j]``.
    scale : ndarray of shape (d,)
        Root mean square of every column; 1 where that is zero.
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
        self.directions = np.empty((0, block.shape[1]))
        self.scale = np.ones(block.shape[1])
        self._solver: XUpdate | None = None
        self._root = np.ones(0)
        self._answer = self._signs = self._goal = np.zeros(block.shape[1])
        self._held = np.zeros(block.shape[1], dtype=bool)
        self._last_multiplier = 0.0
        self._tangent: Array | None = None

    def prepare(self) -> None:
        """Measure the columns; raises InputError where squares of values overflow."""
        check_scale(self.block, self.name, self.engine)
        squares = self.block.column_squares(self.engine)
        self.scale = np.sqrt(squares / max(1, self.block.shape[0]))
        self.scale[self.scale == 0.0] = 1.0

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
        penalty, x, y = self.penalty, self.weights(model), self._combine(proposal)
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
            self._way(x, y) if extrapolated else None,
            self._way(x, new),
            self._face(coefficients, new, penalty.held(new), self._last_multiplier),
            self._dual(slope, y),
        )

    def _within_reach(self, x: Array, y: Array, new: Array) -> Array:
        """An answer far beyond model and proposal, on a flat piece of the loss, is shortened."""
        if not np.isfinite(new).all():
            return x
        reach = _REACH * max(float(np.linalg.norm(self.scale * v)) for v in (x, y))
        size = float(np.linalg.norm(self.scale * new))
        return new if reach == 0.0 or size <= reach else x + (reach / size) * (new - x)

    def describe(self, x: Array, near: Array | None = None) -> tuple[Array | None, Array, Array]:
        """Coefficients of weights, after one more direction where they need it.

        Parameters
        ----------
        x : ndarray of shape (d,)
        near : ndarray of shape (K,), optional
            Coefficients of weights that may be close by. What is new is then taken from the difference,
            which vanishes to the last digit where both are held: what little a stiff metric moves would
            else bring the rounding of the weights themselves into the direction, and out of every face.

        Returns
        -------
        message : ndarray of shape (N,) or None
            Of the new direction.
        products : ndarray of shape (K,)
            Its inner products with all directions, itself last; empty where there is none.
        coefficients : ndarray of shape (K,)
        """
        known = self.directions * self.scale
        there = 0.0 if near is None else self._combine(near)
        rest = self.scale * (x - there)
        for _ in range(2):  # the second for the rounding of the first
            rest = rest - (known @ rest) @ known
        size, whole = float(np.linalg.norm(rest)), float(np.linalg.norm(self.scale * x))
        if len(known) >= len(x) or not size > _NOTHING_NEW * whole:
            return None, np.empty(0), self._coefficients(x)
        direction = rest / size
        direction -= (known @ direction) @ known
        direction /= np.linalg.norm(direction)
        direction /= self.scale
        self.directions = np.vstack([self.directions, direction])
        message = self.block.product(direction, self.engine)
        return message, self.directions @ direction, self._coefficients(x)

    def _coefficients(self, x: Array) -> Array:
        """Of weights in the span of the directions, afresh: of none exactly zero, and no rounding adds up."""
        scaled, known = self.scale * x, self.directions * self.scale
        coefficients = known @ scaled
        return coefficients + known @ (scaled - coefficients @ known)

    def _way(self, x: Array, y: Array) -> Way:
        """Norms at the kinks between x, in the set, and y."""
        places = np.array([0.0, *self.penalty.kinks_between(x, y)])
        if len(places) > _MOST_PLACES:
            places = places[np.linspace(0, len(places) - 1, _MOST_PLACES).round().astype(np.int64)]
        norm = self.penalty.regularizer.norm
        return Way(places, np.array([norm(self.penalty.on_the_way(x, y, t)) for t in places]))

    def _face(self, anchor: Array, x: Array, held: Array, multiplier: float) -> Face:
        """The face with the signs of x, of shape (d,), that holds weights where its anchor has them."""
        self._signs, self._held = x, held
        self._goal = self.weights(anchor)
        # On a sphere only what is tangent to it stays on it.
        directions = self.directions
        self._tangent = self._normal(self._goal) if multiplier > 0.0 else None
        regularizer = self.penalty.regularizer
        slope, curvature = regularizer.bending(x, directions)
        loose = directions * np.sqrt(np.where(held, 0.0, regularizer.stiffness(x)))
        return Face(
            anchor,
            self._kept(held)[0],
            slope,
            None if regularizer.separable else curvature,
            loose @ loose.T,
            multiplier,
        )

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
        """Where the way between two points of the last face first meets a kink or bound, or leaves the ball.

        Parameters
        ----------
        start, end : ndarray of shape (K,)
            Coefficients; the start is in the set.

        Returns
        -------
        float
            Infinite where it meets none up to the end, which is at 1.
        """
        at, x, y = *self._crossings(start, end)[:1], self.weights(start), self._combine(end)
        first = float(at.min(initial=np.inf))
        radius = self.penalty.constraint.radius
        if self._tangent is None and np.linalg.norm(y) > radius * (1.0 + _ROUNDING):
            first = min(first, self.penalty.leaves_ball(x, y))
        return first if first < 1.0 else np.inf

    def _crossings(self, start: Array, end: Array) -> tuple[Array, Array]:
        """Per weight that is not held: where it meets a kink or bound, and its value there."""
        x, y = self.weights(start), self._combine(end)
        loose = self.penalty.held(x)  # let go by the face: its signs say to which side
        at, value = self.penalty.crossings(np.where(loose, self._signs, x), y)
        at = np.where(loose & (at < 1.0), 0.0, at)
        return np.where(self._held | (at >= 1.0), np.inf, at), value

    def hold_at(self, start: Array, end: Array, at: float) -> tuple[Array, float]:
        """Hold weights that meet their kink or bound up to a place on the way, or stay on the sphere there.

        Parameters
        ----------
        start, end : ndarray of shape (K,)
            As in :meth:`first_crossing`.
        at : float
            The place.

        Returns
        -------
        basis : ndarray of shape (K, K')
            The new one.
        multiplier : float
            Of the ball, the last known, where the place is on the sphere for the first time; else 0.
        """
        first, _ = self._crossings(start, end)
        met = np.flatnonzero(first <= at * (1.0 + 1e-9))
        if len(met):
            self._held = self._held.copy()
            self._held[self.penalty.regularizer.together(met, len(first))] = True
        multiplier, x, y = 0.0, self.weights(start), self._combine(end)
        if self._tangent is None and self.penalty.leaves_ball(x, y) <= at * (1.0 + 1e-9):
            x = x + at * (y - x)
            self._tangent = self._normal(x)
            multiplier = self._last_multiplier
        return self._kept(self._held)[0], multiplier

    def _normal(self, x: Array) -> Array:
        """Of the sphere at x, in coefficients."""
        return self.directions @ x / float(np.linalg.norm(x))

    def _kept(self, held: Array) -> tuple[Array, Array, Array]:
        """Singular vectors of the directions' part in held weights: those of nothing first, then the others.

        Returns
        -------
        basis : ndarray of shape (K, K')
        others : ndarray of shape (K, K - K')
        images : ndarray of shape (K - K', n_held + 1 or n_held)
            Of ``others``, at the held weights in units of ``scale``.
        """
        rows = self.directions[:, held] * self.scale[held]
        if self._tangent is not None:
            rows = np.column_stack([rows, self._tangent])
        if rows.size == 0:
            return np.eye(len(rows)), np.empty((len(rows), 0)), np.empty((0, rows.shape[1]))
        left, sizes, _ = scipy.linalg.svd(rows, full_matrices=rows.shape[0] > rows.shape[1])
        rank = int((sizes > _KEPT).sum())
        return left[:, rank:], left[:, :rank], left[:, :rank].T @ rows

    def hold(self, coefficients: Array) -> tuple[Array, Array] | None:
        """Hold weights there that a proposal would take through a kink or bound, as far as possible.

        Parameters
        ----------
        coefficients : ndarray of shape (K,)
            Of the proposal, on the last face or what this method has left of it.

        Returns
        -------
        anchor : ndarray of shape (K,)
            The nearest combination with the held weights at their kinks and bounds.
        basis : ndarray of shape (K, K')
            Combinations that keep it so.
            None instead of both where nothing is to be held.
        """
        x, y = self._signs, self._combine(coefficients)
        at, value = self.penalty.crossings(x, y)
        crossing = np.flatnonzero((at < 1.0) & ~self._held)
        free = self._kept(self._held)[0].shape[1]
        if len(crossing) == 0 or free < 2:
            return None
        goal = np.where(self._held, self._goal, value)
        for n in (len(crossing), max(1, free // 2), 1):
            held = self._held.copy()
            first = crossing[np.argsort(at[crossing], kind="stable")[:n]]
            held[self.penalty.regularizer.together(first, len(x))] = True
            basis, others, images = self._kept(held)
            if basis.shape[1] == 0:
                continue
            wanted = goal[held] * self.scale[held]
            missing = wanted - (coefficients @ self.directions[:, held]) * self.scale[held]
            if self._tangent is not None:
                missing = np.append(missing, 0.0)
            move, *_ = np.linalg.lstsq(images.T, missing, rcond=None)
            left = float(np.abs(images.T @ move - missing).max())
            if left <= _ROUNDING * max(float(np.abs(wanted).max()), float(np.abs(missing).max())):
                self._held, self._goal = held, goal
                return sum_without_rounding(coefficients, others, move), basis
        return None

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

    def turn(self, rotation: Array) -> None:
        """Replace the oldest directions by orthonormal combinations of them, shape (r, number of oldest)."""
        n = rotation.shape[1]
        self.directions = np.vstack([rotation @ self.directions[:n], self.directions[n:]])

    def _combine(self, coefficients: Array) -> Array:
        """Weights for coefficients of shape (K,), zero where they are only rounding."""
        x = coefficients @ self.directions
        x[np.abs(x) <= _ROUNDING * (np.abs(coefficients) @ np.abs(self.directions))] = 0.0
        return x

    def weights(self, coefficients: Array) -> Array:
        """x_m of shape (d,), in the set, for coefficients of shape (K,)."""
        x = self._combine(coefficients)
        low, high = self.penalty.constraint.bounds
        for bound in (low, high):
            if np.isfinite(bound) and bound != 0.0:
                x[np.abs(x - bound) <= _ROUNDING * abs(bound)] = bound
        return self.penalty.constraint.project(x)

    def norm(self, coefficients: Array) -> float:
        r""":math:`\Omega` at the model of coefficients of shape (K,)."""
        return self.penalty.regularizer.norm(self.weights(coefficients))

    def penalty_value(self, coefficients: Array) -> float:
        r""":math:`\lambda W R_m` at the model of coefficients of shape (K,)."""
        return self.penalty.value(self.weights(coefficients))
