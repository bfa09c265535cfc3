"""Warm starts: training that begins at given weights instead of at zero.

The starting point changes how many rounds are needed, never what is certified: the gap is computed from the
data at the final weights. Each family of methods uses a start in its own way, from each party's weights and
the messages computed from them; the coordinator learns nothing that a round would not reveal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.coordinator.certificate import primal_value
from fastadmm.coordinator.method import Method
from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
from fastadmm.coordinator.multinomial.span import ClassSpanPoint
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.subspace.descent import DescentSubspaceMethod
from fastadmm.coordinator.subspace.smoothed import SmoothedSubspaceMethod
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.problem import Problem

__all__ = ["StartingPoint", "begin_at", "check_start"]

Array = np.ndarray

#: Width of the smoothing of a loss with kinks at a warm start, as a share of the objective there.
_WIDTH_OF_OBJECTIVE = 1e-3


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
    """The start as float64 arrays of the problem's shapes.

    Parameters
    ----------
    start : StartingPoint
    problem : Problem

    Returns
    -------
    StartingPoint

    Raises
    ------
    InputError
        If a shape is another than the problem's, or a value is not finite.
    """
    if len(start.weights) != problem.n_parties:
        raise InputError(
            f"warm start: weights of {len(start.weights)} parties, but there are {problem.n_parties}"
        )
    weights = []
    for x, block, name in zip(start.weights, problem.blocks, problem.names):
        values = np.asarray(x, dtype=np.float64)
        shape = (block.shape[1], problem.n_outputs) if problem.loss.vector else (block.shape[1],)
        if values.shape != shape:
            raise InputError(f"warm start: {name}: weights of shape {values.shape}, expected {shape}")
        if not np.isfinite(values).all():
            raise InputError(f"warm start: {name}: a weight is not finite")
        weights.append(values)
    intercept = np.asarray(start.intercept, dtype=np.float64)
    expected = (problem.n_outputs,) if problem.loss.vector else ()
    if intercept.shape != expected:
        raise InputError(f"warm start: intercept of shape {intercept.shape}, expected {expected}")
    if not np.isfinite(intercept).all():
        raise InputError("warm start: the intercept is not finite")
    if not problem.fit_intercept and intercept.any():
        raise InputError("warm start: the start has an intercept, but none is fitted")
    return StartingPoint(weights, intercept if problem.loss.vector else float(intercept))


def begin_at(method: Method, start: StartingPoint, problem: Problem) -> None:
    """Let the first round of a prepared method begin at given weights.

    Parameters
    ----------
    method : Method
        Prepared, before its first round.
    start : StartingPoint
        As :func:`check_start` returns it.
    problem : Problem
        That of the method.

    Raises
    ------
    ConfigError
        If the method has no such start.
    """
    if isinstance(method, ProximalMethod):
        method.begin_at([_allowed(p, x) for p, x in zip(method.parties, start.weights)], start.intercept)
    elif isinstance(method, MultinomialMethod):
        _begin_multinomial(method, start, problem)
    elif isinstance(method, SubspaceMethod):
        _begin_subspace(method, start, problem)
    elif isinstance(method, AdmmMethod):
        weights = [_allowed(p, x.T) for p, x in zip(method.parties, start.weights)]
        method.begin_at(weights, start.intercept)
    else:
        raise ConfigError(f"warm start: scheme '{method.name}' has none")


def _begin_subspace(method: SubspaceMethod, start: StartingPoint, problem: Problem) -> None:
    """The weights become every party's first direction, their norm its coefficient."""
    coordinator, engine = method.coordinator, method.engine
    if isinstance(method, DescentSubspaceMethod):
        method.skip_start()
    norms = np.array([float(np.linalg.norm(x)) for x in start.weights])
    owner = np.flatnonzero(norms > 0.0)
    messages = np.empty((len(owner), problem.n_samples))
    for k, m in enumerate(owner):
        party = method.parties[m]
        party.directions = (start.weights[m] / norms[m])[np.newaxis]
        messages[k] = party.block.product(party.directions[0], engine)
    coefficients = norms[owner]
    coordinator.adopt(messages, owner)
    if coordinator.rounded is not None:
        coordinator.rounded.exact(owner, problem.n_samples)
    coordinator.point = SpanPoint(coefficients, start.intercept, coefficients @ messages)
    if isinstance(method, SmoothedSubspaceMethod):
        primal = primal_value(problem, coordinator.point.total, start.intercept, engine)
        objective = primal.loss + coordinator.regulariser()
        method.narrow(_WIDTH_OF_OBJECTIVE * objective / problem.total_weight, primal.intercept)
        coordinator.point.intercept = primal.intercept
    coordinator.start(coordinator.point.intercept)


def _begin_multinomial(method: MultinomialMethod, start: StartingPoint, problem: Problem) -> None:
    """As :func:`_begin_subspace`, with a direction per class."""
    coordinator, classes, n = method.coordinator, problem.n_outputs, problem.n_samples
    norms = np.array([np.linalg.norm(x, axis=0) for x in start.weights])  # (M, C)
    owner = np.flatnonzero(norms.any(axis=1))
    messages = np.zeros((classes, len(owner), n))
    for k, m in enumerate(owner):
        party, size = method.parties[m], np.where(norms[m] > 0.0, norms[m], 1.0)
        unit = np.ascontiguousarray((start.weights[m] / size).T)
        party.directions = unit[:, np.newaxis]
        messages[:, k] = party.block.matrix_product(unit, method.engine)
    coefficients = np.ascontiguousarray(norms[owner].T)
    total = np.einsum("ck,ckn->cn", coefficients, messages).ravel()
    coordinator.adopt(messages, owner)
    coordinator.point = ClassSpanPoint(coefficients, np.array(start.intercept), total)
    coordinator.start()


def _allowed(party: Any, x: Array) -> Array:
    """What the party's set allows of weights of shape (d,), or of each row of (C, d)."""
    project = party.penalty.constraint.project
    return np.array([project(row) for row in x]) if x.ndim == 2 else project(x)
