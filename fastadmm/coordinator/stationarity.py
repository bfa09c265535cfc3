r"""Non-convex problems: which penalty guarantees descent, and how far from stationary a model is.

Without convexity nothing bounds the distance to a global optimum. What can be
measured is equation 13 of Hu et al., V^t, at the state of ADMM and at the model itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, primal_value
from fastadmm.problem.problem import Problem
from fastadmm.problem.regularizers import SquaredL2

#: The default penalty exceeds the threshold by this factor: what exceeds it is what every round gains.
_ABOVE_THRESHOLD = 1.05


def descent_penalty(problem: Problem, engine: Engine, above: float = _ABOVE_THRESHOLD) -> float:
    r"""Penalty with which every round of ``sharing`` decreases the augmented Lagrangian.

    With L the Lipschitz constant of the loss's gradient and w its weak convexity, both times the
    largest sample weight, the condition is :math:`r (r - w) > 2 L^2` (``docs/theory.md``).

    Scaling: the result summed scaling.
    """
    largest = engine.largest(problem.weight)
    lipschitz, weak = problem.loss.gradient_lipschitz, problem.loss.weak_convexity * largest
    if lipschitz is None:
        return math.inf
    return above * 0.5 * (weak + math.sqrt(weak * weak + 8.0 * (lipschitz * largest) ** 2))


def start_point(problem: Problem, engine: Engine) -> PrimalValue:
    """Loss and gradient at zero weights and the intercept that a non-convex run starts from."""
    zero = np.zeros(problem.n_samples)
    if not problem.fit_intercept:
        return primal_value(problem, zero, 0.0, engine)
    if problem.loss.convex:  # only the regulariser is not: the best intercept is well defined
        ridge = replace(problem, regularizers=[SquaredL2()] * problem.n_parties)
        intercept = primal_value(ridge, zero, 0.0, engine).intercept
    else:
        rows = engine.gather(problem.y, problem.weight, problem.offset)
        intercept = problem.loss.start_intercept(*rows)
    return primal_value(problem, zero, intercept, engine)


def model_measure(problem: Problem, gradient: np.ndarray, engine: Engine) -> Talk[float]:
    r"""V at the parties' weights with z the sum of their messages and u the loss gradient there.

    Shapes: gradient (N,).
    Scaling: gradient summed scaling.
    """
    return sum((yield from stationarities(problem, gradient))) + intercept_part(problem, gradient, engine)


def stationarities(problem: Problem, pull: np.ndarray) -> Talk[list[float]]:
    """What each party answers to ``stationarity``: see :class:`fastadmm.parties.proximal.Party`."""
    answers = yield from ask_all(problem.n_parties, "stationarity", pull=pull)
    return [float(answer["value"]) for answer in answers]


def intercept_part(problem: Problem, pull: np.ndarray, engine: Engine) -> float:
    """Squared derivative in the intercept, the sum of ``pull``; 0 where none is fitted."""
    total = float(engine.total(pull)) if problem.fit_intercept else 0.0
    return total * total


class Progress:
    """Measures relative to that of zero weights."""

    def __init__(self) -> None:
        self.reference = 0.0

    def relative(self, measure: float) -> float:
        """Square root of V over the reference: 1 at the start, 0 at a stationary point."""
        if self.reference == 0.0 and math.isfinite(measure):
            self.reference = measure
        if measure == 0.0:
            return 0.0
        return math.sqrt(measure / self.reference) if self.reference > 0.0 else math.inf
