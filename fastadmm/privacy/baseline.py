"""The result without sending anything: the baseline that every private result has to beat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.solver import early_stopping
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve

#: Weights by party and intercept.
Model = tuple[list[np.ndarray], float]


@dataclass(frozen=True)
class Comparison:
    """A private result beside its zero-message baselines, as mean test loss."""

    losses: dict[str, float]  # by name; the private result first
    lines: list[str] = field(default_factory=list)  # what a terminal shows
    warnings: list[str] = field(default_factory=list)  # what a terminal shows

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``result.json``."""
        losses = {key: value if np.isfinite(value) else None for key, value in self.losses.items()}
        return {"test_loss": losses, "lines": self.lines, "warnings": self.warnings, "covered": False}


def late_fusion(problem: Problem, n_threads: int | None = None) -> Model:
    """Train every party by itself on labels and its own block, and add up the models; nothing is sent."""
    weights, intercepts = [], []
    options = SolverOptions(gap=1e-6, max_rounds=200, directions="one", n_threads=n_threads)
    common: dict[str, Any] = {
        "loss": problem.loss.name,
        "loss_parameters": problem.loss.parameters,
        "lam": problem.lam,
        "fit_intercept": problem.fit_intercept,
        "sample_weight": problem.weight,
        "offset": problem.offset,
        "soft_targets": True,  # as randomised labels are
    }
    for block in problem.blocks:
        result = solve(make_problem([block], problem.y, **common), options)
        weights.append(result.weights[0])
        intercepts.append(result.intercept)
    empty = solve(make_problem([np.zeros((problem.n_samples, 1))], problem.y, **common), options)
    return weights, sum(intercepts) - (len(weights) - 1) * empty.intercept


def mean_loss(
    problem: Problem, test: TestSet, weights: list[np.ndarray], intercept: float, engine: Engine
) -> float:
    """Mean loss of a model on a test set."""
    z = early_stopping.predictor(test, weights, intercept, problem.loss, engine)
    return early_stopping.mean_loss(test, z, problem.loss, engine)


def mean_losses(problem: Problem, models: Mapping[str, Model], engine: Engine) -> dict[str, float]:
    """Mean test loss of each model; empty without a test set: one on the training rows would be a release."""
    test = problem.test
    if test is None:
        return {}
    with engine.limited():
        return {name: mean_loss(problem, test, *model, engine) for name, model in models.items()}


def compare(losses: dict[str, float], worse: str, note: str = "") -> Comparison:
    """The first, which is private, beside those that send nothing, and what to say where these are better."""
    if not losses:
        return Comparison({}, ["not compared with sending nothing: no test data (give --test)"])
    line = f"test loss: {', '.join(f'{name} {loss:.4f}' for name, loss in losses.items())}{note}"
    own, *others = losses.values()
    warnings = [] if own < min(others) else [worse.format(own=own, best=min(others))]
    return Comparison(losses, [line], warnings)
