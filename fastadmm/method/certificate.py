r"""The duality gap that rounds find: how far the current model can be from the best one, but for rounding.

At the predictor :math:`z = o + b + \sum_m D_m x_m` with summed loss gradient
g, Fenchel duality with the dual point g gives

.. math:: F(x) - F^* \le \frac{1}{W} \sum_m \frac{\|D_m^\top g + \lambda W x_m\|^2}{2 \lambda W}.

The intercept is first minimised out exactly, which makes g sum to zero, as dual feasibility asks (up to
rounding, about 1e-13 of the objective). Every round thereby finds a lower bound on :math:`F^*`; the best one
so far decides when to stop. What is claimed of a model :mod:`fastadmm.proof` proves.

A loss with kinks has no gradient to use. Its dual point is the vector u of the z-update, which lies in the
conjugate's domain and sums to zero: see :func:`dual_bound`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

#: Largest sum of the gradient, relative to its absolute sum, that counts as zero.
_FEASIBILITY = 1e-9

#: What that sum times the intercept may be of the loss: by so much a bound may be too high. The intercept is
#: large where columns are far from zero.
_COST = 1e-10

#: The sum that Newton's method for the intercept reaches where nothing prevents it.
_TIGHT_FEASIBILITY = 1e-12

#: Steps from an intercept that is nearly right.
_NEARBY_STEPS = 5

#: A gradient's sum, relative to its absolute sum, from which a step hardly changes the slope.
_SHORT_STEP = 1e-4

#: Up to this relative sum a gradient is repaired: rounding in z, where the losses nearly vanish.
_REPAIRABLE = 1e-3


@dataclass(frozen=True)
class PrimalValue:
    """Loss at the current weights, with the best intercept. Shapes: gradient (N,)."""

    loss: float  # summed loss
    gradient: np.ndarray  # of shape (N,): summed-scaling gradient g; of a loss with kinks some subgradient
    intercept: Any  # the minimising b; of a multinomial model of shape (C,)
    dual_feasible: bool
    sums: tuple[float, float] | None = None  # sum of g and of its absolute values, where they are known


#: Loss and gradient at a point, and the sums of that and of its absolute values.
Known = tuple[float, np.ndarray, tuple[float, float]]


def primal_value(
    problem: Problem, total: np.ndarray, intercept: float, engine: Engine, known: Known | None = None
) -> PrimalValue:
    """Evaluate the loss at a sum of messages, with the intercept minimised out in convex problems.

    Shapes: total, each of known (N,).
    """
    loss, y, weight = problem.loss, problem.y, problem.weight
    if known is not None and (near := _from_nearby(problem, total, intercept, known, engine)) is not None:
        return near
    gradient, value = engine.vector(len(total)), math.nan
    sums: tuple[float, float] | None = None
    if not problem.convex:
        # The intercept is one variable of a descent, not minimised out, and no gradient proves anything.
        value = loss.evaluate(engine.plus(problem.offset, total, intercept), y, weight, gradient, engine)
        return PrimalValue(value, gradient, intercept, dual_feasible=False)
    z, bend, slope = engine.vector(len(total)), engine.vector(len(total)), 0.0
    constant = loss.name == "squared"
    if constant:
        slope = problem.total_weight

    def evaluate(b: float) -> tuple[float, float]:
        nonlocal value, sums, slope
        measured = [loss.measure_parts(problem, total, b, z, gradient, engine)]
        short = slope > 0.0 and sums is not None and abs(sums[0]) <= _SHORT_STEP * sums[1]
        if not (constant or short):
            measured.append(loss.curvature_parts(problem, total, b, bend, engine))
        found, *bent = engine.together(*measured)
        slope = float(bent[0][0]) if bent else slope
        value, excess, size = found.tolist()
        sums = excess, size
        # Rounding of the sum itself: there is no better intercept.
        at_root = abs(excess) <= 1e-14 * size
        return 0.0 if at_root else excess, slope

    if not problem.fit_intercept:
        intercept = 0.0
    elif loss.has_best_intercept:
        formula = loss.best_intercept(*engine.gather(engine.plus(problem.offset, total), y, weight))
        assert formula is not None
        intercept = formula
    if problem.fit_intercept and loss.smooth:
        intercept = increasing_root(evaluate, intercept)  # also after a formula: the last digits
    elif loss.smooth:
        (found,) = engine.together(loss.measure_parts(problem, total, intercept, z, gradient, engine))
        value, *own = found.tolist()
        sums = own[0], own[1]
    else:
        z = engine.plus(problem.offset, total, intercept, out=z)
        value = loss.evaluate(z, y, weight, gradient, engine)
    feasible = make_feasible(problem, z, gradient, (value, float(intercept)), engine, sums)
    return PrimalValue(float(value), gradient, intercept, feasible, sums if feasible else None)


def _from_nearby(
    problem: Problem, total: np.ndarray, intercept: float, known: Known, engine: Engine
) -> PrimalValue | None:
    """Newton's method for the intercept from a point close to its root; None if it was not close."""
    loss, (value, gradient, sums) = problem.loss, known
    if not problem.convex:
        return None
    if not problem.fit_intercept:
        return PrimalValue(value, gradient, 0.0, loss.smooth, sums)
    if not loss.smooth:
        return None
    slope, z, bend = 0.0, engine.vector(len(total)), engine.vector(len(total))
    moved: np.ndarray | None = None  # not the given array: products with that are known
    for attempt in range(_NEARBY_STEPS + 1):
        excess, size = sums
        if abs(excess) <= min(_TIGHT_FEASIBILITY * size, _largest_sum(size, value, intercept)):
            return PrimalValue(value, gradient, intercept, True, sums)
        if attempt == _NEARBY_STEPS:
            break
        if attempt == 0 or abs(excess) > _SHORT_STEP * size:  # one slope serves several short steps
            slope = engine.together(loss.curvature_parts(problem, total, intercept, bend, engine))[0][0]
        if not slope > 0.0:
            break
        intercept -= excess / slope
        gradient = moved = engine.vector(len(total)) if moved is None else moved
        (found,) = engine.together(loss.measure_parts(problem, total, intercept, z, gradient, engine))
        value, excess, size = found.tolist()
        sums = excess, size
    return None


def make_feasible(
    problem: Problem,
    z: np.ndarray,
    gradient: np.ndarray,
    place: tuple[float, float],
    engine: Engine,
    sums: tuple[float, float] | None = None,
) -> bool:
    """Repair a gradient whose sum only rounding keeps from zero. Shapes: z, gradient (N,)."""
    loss = problem.loss
    if not loss.smooth or not problem.fit_intercept:
        return loss.smooth
    excess, size = sums or engine.total_and_size(gradient)
    if abs(excess) <= _largest_sum(size, *place):
        return True
    if abs(excess) <= _REPAIRABLE * size:
        curvature = loss.curvature(z, problem.y, problem.weight, np.empty_like(z), engine)
        total = engine.total(curvature)
        if total > 0.0:
            gradient -= curvature * (excess / total)
    return False


def dual_bound(
    problem: Problem, u: np.ndarray, total: np.ndarray, regulariser: float, gaps: float, engine: Engine
) -> float:
    r"""Lower bound on the optimum that a dual vector proves, smooth loss or not.

    .. math:: \mathcal D(u) = \langle u, o\rangle - \sum_i (s_i \ell)^*(u_i)
              - \sum_m \frac{\|D_m^\top u\|^2}{2 \lambda W}

    The parties' part comes from what they report anyway: expanding
    :math:`\gamma_m = \|D_m^\top u + \lambda W x_m\|^2 / (2 \lambda W)` gives
    :math:`\sum_m \|D_m^\top u\|^2 / (2 \lambda W) = \sum_m \gamma_m - \langle u, S\rangle - R(x)`.

    Shapes: u, total (N,).
    Scaling: u, the result summed scaling.
    """
    if problem.fit_intercept and not sums_to_zero(u, engine, problem.n_outputs):
        return -math.inf
    conjugate = problem.loss.conjugate(u, problem.y, problem.weight, engine)
    bound = inner(u, problem.offset + total, engine, problem.n_outputs) - conjugate + regulariser - gaps
    return bound if math.isfinite(bound) else -math.inf


def penalty_unit(problem: Problem, engine: Engine) -> float:
    """A typical second derivative of the loss, for unit weight: see :meth:`Loss.penalty_unit`."""
    y, weight, offset = engine.gather(problem.y, problem.weight, problem.offset)
    return problem.loss.penalty_unit(y, weight, offset, problem.lam)


def _largest_sum(size: float, value: float, intercept: float) -> float:
    """Largest sum of a gradient that counts as zero, by its absolute sum, the loss and the intercept.

    A gradient with the sum e bounds the objective at the intercept b only up to e times what b is off.
    """
    allowed = _FEASIBILITY * size
    return min(allowed, _COST * abs(value / intercept)) if intercept != 0.0 else allowed


def sums_to_zero(
    gradient: np.ndarray,
    engine: Engine,
    n_outputs: int = 1,
    place: tuple[float, np.ndarray | float] | None = None,
) -> bool:
    """Whether a gradient of shape (N,) sums to zero as far as rounding allows.

    Shapes: gradient (N,) or (C N,); place (C,).
    """
    total, size = engine.total_and_size(gradient if n_outputs == 1 else gradient.reshape(n_outputs, -1))
    cheap = place is None or np.all(np.abs(total * place[1]) <= _COST * abs(place[0]))
    return bool(cheap and np.all(np.abs(total) <= _FEASIBILITY * size))


def inner(u: np.ndarray, v: np.ndarray, engine: Engine, n_outputs: int = 1) -> float:
    """Inner product over rows. Shapes: u, v (N,) or (C N,)."""
    return float(np.sum(engine.together(*inner_parts(u, v, engine, n_outputs))))


def inner_parts(u: np.ndarray, v: np.ndarray, engine: Engine, n_outputs: int = 1) -> list[list[Any]]:
    """What :func:`inner` adds up, for :meth:`Engine.together`."""
    pairs = zip(u.reshape(n_outputs, -1), v.reshape(n_outputs, -1))
    return [engine.dot_parts(a, b) for a, b in pairs]


class LowerBound:
    """The best proved lower bound on the optimum, per mean loss."""

    def __init__(self, value: float = -math.inf) -> None:
        self.value = value

    def update(self, objective: float, bound: float) -> tuple[float, float]:
        """Take in one certificate; return the absolute and relative gap it leaves."""
        self.value = max(self.value, bound)  # NaN never wins
        absolute = max(objective - self.value, 0.0)
        if self.value > 0.0:
            return absolute, absolute / self.value
        if objective < 0.0:
            return absolute, absolute / abs(objective)
        return absolute, 0.0 if absolute == 0.0 else math.inf


MAX_STEPS = 200

#: Largest last step, relative to ``1 + |root|``.
_LAST_STEP = 1e-13


def increasing_root(function: Callable[[float], tuple[float, float]], start: float) -> float:
    """Find where an increasing function crosses zero, by Newton inside a bracket."""
    point, low, high = start, -math.inf, math.inf
    for _ in range(MAX_STEPS):
        value, slope = function(point)
        if value == 0.0:
            return point
        if value > 0.0:
            high = point
        else:
            low = point
        following = point - value / slope if slope > 0.0 else math.nan
        if not (math.isfinite(low) and math.isfinite(high)) and math.isfinite(following):
            # A nearly flat function sends Newton far beyond any root: walk in growing steps.
            limit = 1.0 + 2.0 * abs(point - start)
            following = min(max(following, point - limit), point + limit)
        if not low < following < high:
            if math.isfinite(low) and math.isfinite(high):
                following = 0.5 * (low + high)
            elif not math.isfinite(following):
                # flat so far: walk away from the known side in growing steps
                known = high if math.isfinite(high) else low
                following = known - math.copysign(1.0 + abs(known), value)
        if abs(following - point) <= _LAST_STEP * (1.0 + abs(point)):
            return point
        point = following
    function(point)
    return point
