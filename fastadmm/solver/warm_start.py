"""Warm starts: training that begins at given weights instead of at zero.

The starting point changes how many rounds are needed, never what is certified: the gap is computed from the
data at the final weights. Each family of methods uses a start in its own way, from each party's weights and
the messages computed from them; the coordinator learns nothing that a round would not reveal.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.errors import InputError
from fastadmm.method.method import Method
from fastadmm.problem.constraints import AllSpace
from fastadmm.problem.problem import Problem

Array = np.ndarray


@dataclass(frozen=True)
class StartingPoint:
    """Where training begins.

    Attributes
    ----------
    weights : list of ndarray
        x_m of shape (d_m,) per party; of a multinomial model of shape (d_m, C).
    intercept : float or ndarray
        b; of a multinomial model of shape (C,). If an intercept is fitted, this is only where the search
        for the best one begins.
    """

    weights: list[Array]
    intercept: Any = 0.0


def check_start(start: StartingPoint, problem: Problem) -> StartingPoint:
    """The start as float64 arrays of the problem's shapes."""
    outputs = (problem.n_outputs,) if problem.loss.vector else ()
    weights = [np.asarray(x, dtype=np.float64) for x in start.weights]
    intercept = np.asarray(start.intercept, dtype=np.float64)
    shapes = [x.shape for x in (*weights, intercept)]
    expected = [*((block.shape[1], *outputs) for block in problem.blocks), outputs]
    if shapes != expected:
        raise InputError(
            f"warm start: weights by party and intercept have the shapes {shapes}, expected {expected}"
        )
    if not all(np.isfinite(x).all() for x in (*weights, intercept)):
        raise InputError("warm start: a weight or the intercept is not finite")
    if not problem.fit_intercept and intercept.any():
        raise InputError("warm start: the start has an intercept, but none is fitted")
    return StartingPoint(weights, intercept if problem.loss.vector else float(intercept))


def begin_at(method: Method, start: StartingPoint, problem: Problem) -> None:
    """Let the first round of a prepared method begin at given weights, as far as sets allow them."""
    weights = []
    for own, x in zip(problem.party_constraints, start.weights):
        each = x.ndim == 1 or isinstance(own, AllSpace)
        weights.append(own.project(x) if each else np.stack([own.project(c) for c in x.T], axis=1))
    method.begin_at(weights, start.intercept)
