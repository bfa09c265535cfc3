r"""Regularisation paths: one problem on a decreasing grid of lambda, each fit starting at the one before.

The grid begins where all weights are zero, and every fit is certified by its own duality gap.
:mod:`fastadmm.solver.cross_validation` chooses one value.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.method.certificate import penalty_unit
from fastadmm.method.class_certificate import best_primal
from fastadmm.problem.problem import Problem
from fastadmm.solver.loop import SolveResult, run_rounds
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

Array = np.ndarray

#: Smallest over largest value of a grid: with a norm in the regulariser, and with squared l2 alone.
RATIO_OF_NORMS, RATIO_OF_RIDGE = 1e-3, 1e-6

#: Steps of the power iteration for the largest curvature; a grid needs no more than its size.
_POWER_STEPS = 20


@dataclass
class PathPoint(SolveResult):
    """The model at one value of lambda. Shapes: each of weights (d_m,); intercept (C,)."""

    lam: float = math.nan  # per mean loss
    claim: str | None = None  # what its proof claims

    @property
    def n_rounds(self) -> int:
        """Rounds of this fit."""
        return self.history[-1].round

    @property
    def n_nonzero(self) -> int:
        """Number of weights that are not zero."""
        return int(sum(np.count_nonzero(x) for x in self.weights))


def refuse_nonconvex(problem: Problem) -> None:
    """Refuse a problem that has no certificate."""
    if not problem.convex:
        raise ConfigError("path: needs a convex problem, whose fits a duality gap certifies")


def largest_lambda(problem: Problem, engine: Engine | None = None) -> float:
    r"""Where a grid begins.

    With a norm in the regulariser (l1, elastic net, group lasso) the smallest
    :math:`\lambda` at which all weights are zero,

    .. math:: \lambda_{\max} = \max_m \Omega_m^\circ(D_m^\top g) / (W \alpha),

    with g the gradient at zero weights and the best intercept, :math:`\Omega^\circ` the
    dual norm and :math:`\alpha` its share in the regulariser. With squared l2 no finite value does that;
    the result is then the largest curvature of the mean loss in the weights at zero, at which every
    direction is shrunk to half or less.
    """
    refuse_nonconvex(problem)
    engine = engine or Engine(1)
    regularizers = problem.party_regularizers
    if any(r.shares == (0.0, 0.0) for r in regularizers):
        raise ConfigError("path: regularizer none has no lambda; choose l2, l1, elastic_net or group_lasso")
    total = np.zeros(problem.message_size)
    with engine.limited():
        primal = best_primal(problem, total, 0.0, engine)
        if all(r.shares[0] > 0.0 for r in regularizers):
            found = 0.0
            for block, r in zip(problem.blocks, regularizers):
                for part in primal.gradient.reshape(problem.n_outputs, -1):
                    image = block.transposed_product(np.ascontiguousarray(part), engine)
                    found = max(found, r.dual_norm(image) / r.shares[0])
        else:
            found = _largest_curvature(problem, primal.intercept, primal.gradient, engine)
    value = found / problem.total_weight
    return value if math.isfinite(value) and value > 0.0 else 1.0


def _largest_curvature(problem: Problem, intercept: Any, gradient: Array, engine: Engine) -> float:
    """Largest eigenvalue of the summed loss's second derivative in the weights, at zero, from below."""
    if problem.loss.vector:
        # The softmax's curvature is at most half of the weights, and no less than its diagonal.
        shift = np.exp(intercept - np.max(intercept))
        share = shift / shift.sum()
        h = float((share * (1.0 - share)).max()) * problem.weight
    elif problem.loss.smooth:
        z = problem.offset + intercept
        h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), engine)
    else:
        h = np.zeros(problem.n_samples)
    if not h.max() > 0.0:
        h = penalty_unit(problem, engine) * problem.weight
    part = np.ascontiguousarray(gradient.reshape(problem.n_outputs, -1)[-1])
    vectors = [block.transposed_product(part, engine) for block in problem.blocks]
    value = 0.0
    for _ in range(_POWER_STEPS):
        size = math.sqrt(sum(float(v @ v) for v in vectors))
        if not size > 0.0:
            return value
        total = sum(block.product(v / size, engine) for block, v in zip(problem.blocks, vectors))
        image = h * np.asarray(total)
        value = float(np.asarray(total) @ image)
        vectors = [block.transposed_product(image, engine) for block in problem.blocks]
    return value


def lambda_grid(
    problem: Problem, length: int = 20, ratio: float | None = None, engine: Engine | None = None
) -> list[float]:
    """Values of lambda from :func:`largest_lambda` down, in equal steps of the logarithm.

    Parameters
    ----------
    problem : Problem
    length : int
        Number of values.
    ratio : float, optional
        Smallest over largest value; by default 1e-3 with a norm in the regulariser, 1e-6 with squared l2.
    engine : Engine, optional

    Raises
    ------
    ConfigError
        If a parameter is out of range, or :func:`largest_lambda` refuses the problem.
    """
    if length < 1:
        raise ConfigError(f"path_length: {length!r} must be at least 1")
    if ratio is None:
        norms = all(r.shares[0] > 0.0 for r in problem.party_regularizers)
        ratio = RATIO_OF_NORMS if norms else RATIO_OF_RIDGE
    if not 0.0 < ratio < 1.0:
        raise ConfigError(f"path_ratio: {ratio!r} must be between 0 and 1")
    largest = largest_lambda(problem, engine)
    return [largest * ratio ** (k / max(length - 1, 1)) for k in range(length)]


def check_lambdas(lambdas: Sequence[float]) -> list[float]:
    """The values from large to small."""
    values = [float(value) for value in lambdas]
    if not values or not all(math.isfinite(v) and v > 0.0 for v in values):
        raise ConfigError(f"path: lambdas {values!r} must be positive, finite numbers")
    return sorted(values, reverse=True)


def fit_point(
    problem: Problem,
    options: SolverOptions,
    engine: Engine,
    start: StartingPoint | None,
    should_stop: Callable[[], bool] | None = None,
) -> PathPoint:
    """One fit; arguments as in :func:`fastadmm.solver.solver.solve`, on an engine that stays open."""
    solver = Solver(problem, options, engine, start=start)
    found = run_rounds(solver, should_stop=should_stop)
    claim = None if found.proof is None else str(found.proof.claim)
    return PathPoint(**vars(found), lam=problem.lam, claim=claim)


def path(
    problem: Problem,
    lambdas: Sequence[float] | None = None,
    options: SolverOptions | None = None,
    *,
    length: int = 20,
    ratio: float | None = None,
    monitor: Callable[[PathPoint], None] | None = None,
) -> list[PathPoint]:
    """Train at every lambda of a decreasing grid, each fit starting at the one before.

    Parameters
    ----------
    problem : Problem
        Convex; its own ``lam`` does not matter.
    lambdas : sequence of float, optional
        Values per mean loss, taken from large to small; a grid of :func:`lambda_grid` by default.
    options : SolverOptions, optional
        Of every fit: ``gap`` is certified at each lambda.
    length, ratio
        As in :func:`lambda_grid`.
    monitor : callable, optional
        Called with each point.

    Returns
    -------
    list of PathPoint
        From the largest lambda to the smallest.

    Raises
    ------
    ConfigError
        If the problem is not convex or has nothing to regularise it, or a value is out of range.

    Examples
    --------
    >>> from fastadmm import make_problem, path
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> problem = make_problem([X[:, :5], X[:, 5:]], y, loss="squared", regularizer="l1")
    >>> points = path(problem, length=5)
    >>> [point.n_nonzero for point in points][0], all(point.record.gap <= 1e-6 for point in points)
    (0, True)
    """
    options = options or SolverOptions()
    refuse_nonconvex(problem)
    points: list[PathPoint] = []
    with Engine(options.n_threads) as engine:
        values = lambda_grid(problem, length, ratio, engine) if lambdas is None else check_lambdas(lambdas)
        start = None
        for lam in values:
            point = fit_point(replace(problem, lam=lam), options, engine, start)
            points.append(point)
            start = StartingPoint(point.weights, point.intercept)
            if monitor is not None:
                monitor(point)
    return points
