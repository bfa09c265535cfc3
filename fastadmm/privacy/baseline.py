"""The result without sending anything: the baseline that every private result has to beat."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve

_NOT_COVERED = "measured with exact local models: outside the guarantee, not to be published"


@dataclass(frozen=True)
class LateFusion:
    """Local models, added up: nothing about features is sent while they are trained."""

    weights: list[np.ndarray]  # one vector per party
    intercept: float  # sum of the local intercepts, less M - 1 times the intercept of no features at all


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


def late_fusion(problem: Problem, n_threads: int | None = None) -> LateFusion:
    """Train every party by itself on labels and its own block, and add the predictors."""
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
    return LateFusion(weights, sum(intercepts) - (len(weights) - 1) * empty.intercept)


def mean_loss(
    problem: Problem, test: TestSet, weights: list[np.ndarray], intercept: float, engine: Any
) -> float:
    """Mean loss of a model on a test set."""
    z = test.offset + intercept
    for block, x in zip(test.blocks, weights):
        z = z + block.product(x, engine)
    total = problem.loss.evaluate(z, test.y, test.weight, np.empty_like(z), engine)
    return total / float(test.weight.sum())


def compare_with_nothing(
    problem: Problem,
    engine: Engine,
    private: tuple[list[np.ndarray], float],
    start: tuple[list[np.ndarray], float],
    noise: str,
) -> Comparison:
    """Compare a private result with late fusion and with the parties' answers to labels alone (T = 0).

    Without a test set nothing is compared: a loss on the training rows would be another release of them.
    """
    if problem.test is None:
        line = "not compared with sending nothing: no test data (give --test)"
        return Comparison({}, [line])
    fused = late_fusion(problem, engine.n_threads)
    with engine.limited():
        losses = {
            name: mean_loss(problem, problem.test, x, b, engine)
            for name, x, b in (
                ("private messages", *private),
                ("late fusion of local models (nothing sent)", fused.weights, fused.intercept),
                ("answers to labels alone (T = 0)", *start),
            )
        }
    lines = [
        f"test loss: {', '.join(f'{name} {loss:.4f}' for name, loss in losses.items())} ({_NOT_COVERED})"
    ]
    own, *others = losses.values()
    warnings = []
    if not own < min(others):
        warnings.append(
            f"sending nothing was better: test loss {min(others):.4f} against {own:.4f} with private "
            f"messages ({noise}); use mode 'fusion', or more epsilon"
        )
    return Comparison(losses, lines, warnings)


def compare_fusion(losses: dict[str, float]) -> Comparison:
    """Compare a fusion result with the label holder alone and with the released models without symbols."""
    if not losses:
        return Comparison({}, ["not compared with sending nothing: no test data (give --test)"])
    lines = [f"test loss: {', '.join(f'{name} {loss:.4f}' for name, loss in losses.items())}"]
    fused, *others = losses.values()
    warnings = []
    if not fused < min(others):
        warnings.append(
            f"fusion did not help here: test loss {fused:.4f} against {min(others):.4f} without symbols; "
            "use more epsilon, more records or the better baseline"
        )
    return Comparison(losses, lines, warnings)
