"""Early stopping: training ends when held-out rows no longer improve, and the best weights are kept.

This is regularisation by stopping, not a proof of convergence: the model that is kept has the duality gap
of its own round, which is usually far from zero. The held-out rows decide when training ends, so private
runs, whose rounds are charged in advance, do not have this rule.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.problem.loss import Loss
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.solver.history import KeptModel, RoundRecord
from fastadmm.solver.metrics import quick_of

Array = np.ndarray

#: Metrics to watch, and whether more of them is better. "loss" is the loss that is trained on.
METRICS = {"loss": False, "log_loss": False, "accuracy": True, "auc": True, "rmse": False, "r2": True}


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop for held-out rows."""

    rows: TestSet
    metric: str = "loss"  # a name of METRICS
    patience: int = 5  # stop after this many rounds without a better value

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(
                f"validation_metric: unknown metric {self.metric!r}; choose {', '.join(METRICS)}"
            )
        if self.patience < 1:
            raise ConfigError(f"patience: {self.patience!r} must be at least 1")


def predictor(rows: TestSet, weights: list[Array], intercept: Any, loss: Loss, engine: Engine) -> Array:
    """Linear predictor of rows. Shapes: each of weights (d_m,); intercept (C,); the result (N,) or (N, C)."""

    def share(block: FeatureBlock, x: Array) -> Array:
        if not loss.vector:
            return block.product(x, engine)
        return block.matrix_product(np.ascontiguousarray(x.T), engine).ravel()

    # One by one: never all parties' shares at once.
    return predictor_of(rows, map(share, rows.blocks, weights), intercept, loss, engine)


def predictor_of(rows: TestSet, scores: Iterable[Array], intercept: Any, loss: Loss, engine: Engine) -> Array:
    """Linear predictor of rows, from the parties' shares of it.

    Shapes: each of scores (N,); intercept (C,); the result (N,) or (N, C).
    """
    if not loss.vector:
        return engine.plus(rows.offset, functools.reduce(engine.plus, scores), intercept)
    z = functools.reduce(np.add, scores).reshape(-1, len(rows.y)).T + intercept
    offset = rows.offset
    if offset.ndim == 2:
        return z + offset
    return z + offset.reshape(z.shape[1], -1).T if offset.size == z.size else z


def mean_loss(rows: TestSet, z: Array, loss: Loss, engine: Engine) -> float:
    """Weighted mean of the loss over rows. Shapes: z (N,) or (N, C)."""
    flat = np.ascontiguousarray(z.T).ravel() if loss.vector else z
    losses = loss.value_parts(flat, rows.y, rows.weight, np.empty_like(flat), engine)
    total, (weight, _) = engine.together(losses, engine.size_parts(rows.weight))
    return float(total / weight)


def measure(metric: str, rows: TestSet, z: Array, loss: Loss, engine: Engine) -> float:
    """Value of a metric on rows. Returns: naN where it is not defined."""
    if metric == "loss":
        return mean_loss(rows, z, loss, engine)
    used = rows.weight > 0.0
    values = quick_of(loss, rows.y[used], z[used], rows.weight[used])
    if not loss.probabilistic:
        values.pop("log_loss", None)
    if metric not in values:
        known = ", ".join(["loss", *values])
        raise ConfigError(f"validation_metric: loss {loss.name} has no {metric}; choose {known}")
    value = values[metric]
    return math.nan if value is None else float(value)


def refuse_rare(y: Array, least: int, what: str, classes: Sequence[str] | None) -> None:
    """Refuse a class of too few rows to be parted; ``classes`` are the labels of 0, 1 and so on.

    Shapes: y (N,).
    """
    values, counts = np.unique(y, return_counts=True)
    if counts.min() < least:
        value = values[np.argmin(counts)]
        name = repr(classes[int(value)]) if classes is not None else f"number {value:g}"
        raise InputError(f"{what}: class {name} has {counts.min()} rows, and {least} are needed")


def held_out_rows(
    y: Array, fraction: float, seed: Any, stratify: bool, classes: Sequence[str] | None = None
) -> Array:
    """Choose rows to hold out. Shapes: y, the result (N,)."""
    from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"validation: the share {fraction!r} must be between 0 and 1")
    if stratify:
        refuse_rare(y, 2, "validation", classes)
    kind: Any = StratifiedShuffleSplit if stratify else ShuffleSplit
    splitter = kind(n_splits=1, test_size=fraction, random_state=seed)
    try:
        _, chosen = next(splitter.split(np.zeros((len(y), 1)), y))
    except ValueError as error:
        raise InputError(
            f"validation: {len(y)} rows cannot be parted: {str(error).splitlines()[0]}"
        ) from None
    mask = np.zeros(len(y), dtype=bool)
    mask[chosen] = True
    return mask


class ValidationWatch(KeptModel):
    """Follows the metric from round to round, and keeps the model of the best."""

    def __init__(self, rule: EarlyStopping, problem: Problem) -> None:
        super().__init__()
        self.rule, self.loss = rule, problem.loss
        self.best = math.nan

    def value(self, z: Array, engine: Engine) -> float:
        """The metric at the linear predictor of the held-out rows, from :func:`predictor`."""
        return measure(self.rule.metric, self.rule.rows, z, self.loss, engine)

    def better(self, record: RoundRecord) -> bool:
        value = math.nan if record.validation is None else record.validation
        higher = value > self.best if METRICS[self.rule.metric] else value < self.best
        if not (self.record is None or higher or (math.isnan(self.best) and not math.isnan(value))):
            return False
        self.best = value
        return True

    def waited(self, n_rounds: int) -> bool:
        """Whether patience is exhausted."""
        return self.record is not None and n_rounds - self.record.round >= self.rule.patience

    def export(self) -> dict[str, Any]:
        return {**super().export(), "best": self.best}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.best = float(saved["best"])
