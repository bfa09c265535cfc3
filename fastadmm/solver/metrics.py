"""How well a model predicts, from its linear predictor: a few numbers each round, all of them at the end.

Values are scikit-learn's, but exact where a probability rounds to 0 or 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fastadmm.problem.loss import Loss

#: Number of bins of the calibration curve.
CALIBRATION_BINS = 10


def evaluation_metrics(
    loss: Loss,
    y: ArrayLike,
    z: ArrayLike,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Metrics of a model's linear predictor: the ones that suit its loss.

    Shapes: y, sample_weight (N,); z (N,) or (N, C).
    """
    values, scores, weight = _arrays(y, z, sample_weight)
    if not (total := weight.sum()) > 0.0:
        raise InputError("sample_weight is zero for every row: at least one row must count")
    found, areas = _measured(loss, values, scores, weight)
    if loss.task == "regression":
        mae = weight @ np.abs(values - loss.predict_mean(scores)) / total
        found = {"rmse": found["rmse"], "mae": _known(mae), "r2": found["r2"]}
        return {**found, **deviance_metrics(loss, values, scores, weight)}
    if not loss.probabilistic:
        return {name: value for name, value in found.items() if name != "log_loss"}
    p = loss.predict_mean(scores)
    if not loss.vector:
        brier = _known(weight @ (p - values) ** 2 / total)
        return {**found, "brier": brier, "calibration": _calibration(values, p, weight)}
    predicted, truth = np.argmax(scores, axis=1), values.astype(np.intp)
    brier = _known(weight @ ((p - np.eye(p.shape[1])[truth]) ** 2).sum(axis=1) / total)
    rows: list[dict[str, Any]] = []
    for c, (name, area) in enumerate(zip(classes or map(str, range(p.shape[1])), areas, strict=True)):
        is_class, said = truth == c, predicted == c
        both, of_class, of_said = (float(weight[m].sum()) for m in (is_class & said, is_class, said))
        precision, recall = (both / of if of > 0.0 else None for of in (of_said, of_class))
        own = {"name": name, "weight": of_class, "precision": precision, "recall": recall}
        rows.append({**own, "auc": area})
    return {**found, "brier": brier, "classes": rows}


def deviance_metrics(
    loss: Loss, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Deviance of a linear predictor, and the share of it that the model explains.

    Shapes: y, z, sample_weight (N,).
    """
    y_, z_, weight = _arrays(y, z, sample_weight)
    null = loss.link(float(weight @ y_ / weight.sum()))
    if null is None:
        return {}
    from fastadmm.engine.engine import Engine

    found: list[float | None] = []
    with Engine(1) as engine, np.errstate(all="ignore"):
        least = loss.least(y_, weight)
        for at in (z_, np.full_like(z_, null)):
            value = 2.0 * (loss.evaluate(at, y_, weight, np.empty_like(at), engine) - least) / weight.sum()
            found.append(float(value) if np.isfinite(value) and (y_ >= 0.0).all() else None)
    own, of_mean = found
    return {"deviance": own, "d2": None if own is None or not of_mean else 1.0 - own / of_mean}


def quick_of(
    loss: Loss, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics for one line of the round log, with NumPy alone; None where one is undefined.

    Shapes: y, sample_weight (N,); z (N,) or (N, C).
    """
    return _measured(loss, *_arrays(y, z, sample_weight))[0]


def _arrays(y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None) -> tuple[NDArray, NDArray, NDArray]:
    y_ = np.asarray(y, dtype=np.float64)
    weight = np.ones(y_.shape) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return y_, np.asarray(z, dtype=np.float64), weight


def _known(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _measured(
    loss: Loss, y: NDArray, z: NDArray, weight: NDArray
) -> tuple[dict[str, float | None], list[float | None]]:
    """Metrics by name, and the area under the curve of each of several classes."""
    names: tuple[str, ...] = ("log_loss", "accuracy", "auc")
    areas: list[float | None] = [None] * (z.shape[1] if loss.vector else 0)
    if loss.task == "regression":
        names, z = ("rmse", "r2"), loss.predict_mean(z)
    if not (np.isfinite(z).all() and weight.sum() > 0.0):
        return dict.fromkeys(names), areas
    # Near divergence z is finite but its square is not; such a value is reported as undefined.
    with np.errstate(over="ignore", invalid="ignore"):
        if loss.task == "regression":
            values: tuple[float | None, ...] = _regression(y, z, weight)
        elif loss.vector:
            mean, accuracy, areas = _of_classes(y.astype(np.intp), z, weight)
            known = [area for area in areas if area is not None]
            values = mean, accuracy, float(np.mean(known)) if known else None
        else:
            if ((y != 0.0) & (y != 1.0)).any():
                raise InputError("y: classes must be given as 0 and 1")
            ones, total = y == 1.0, weight.sum()
            # log(1 + exp(-z)) for class 1 and log(1 + exp(z)) for class 0: no cancellation, no overflow.
            own = weight @ np.logaddexp(0.0, np.where(ones, -z, z)) / total if loss.probabilistic else None
            values = own, weight[(z > 0.0) == ones].sum() / total, _auc(ones, z, weight)
    return dict(zip(names, map(_known, values))), areas


def _of_classes(y: NDArray, z: NDArray, weight: NDArray) -> tuple[float, float, list[float | None]]:
    """Log loss, accuracy and each class's area from predictors of shape (N, C)."""
    rows, total = np.arange(len(y)), weight.sum()
    # Log-odds of each class against the rest: a score that does not round to 1.
    excess = z - z.max(axis=1, keepdims=True)
    spread = np.exp(excess)
    sums = spread.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        odds = excess - np.log(np.maximum(sums - spread, 0.0))
    loss = weight @ (np.log(sums[:, 0]) - excess[rows, y]) / total
    accuracy = weight[np.argmax(z, axis=1) == y].sum() / total
    return loss, accuracy, [_auc(y == c, odds[:, c], weight) for c in range(z.shape[1])]


def _regression(y: NDArray, z: NDArray, weight: NDArray) -> tuple[float, float | None]:
    total = weight.sum()
    residual = weight @ (y - z) ** 2
    rmse = np.sqrt(residual / total)
    if y.size < 2:
        return rmse, None
    spread = weight @ (y - weight @ y / total) ** 2
    if spread == 0.0:  # the convention of scikit-learn for a constant target
        return rmse, float(residual == 0.0)
    return rmse, 1.0 - residual / spread


def _auc(y: NDArray, score: NDArray, weight: NDArray) -> float | None:
    """Probability that a positive row scores above a negative one, ties counted half (Mann-Whitney)."""
    order = np.argsort(score)
    score, weight = score[order], weight[order]
    positive = weight * y[order]
    negative = weight - positive
    starts = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    positive, negative = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    pairs = positive.sum() * negative.sum()
    if pairs == 0.0:
        return None
    return float(positive @ (np.cumsum(negative) - 0.5 * negative) / pairs)


def _calibration(y: NDArray, prob: NDArray, weight: NDArray) -> dict[str, Any]:
    order = np.argsort(prob, kind="stable")
    prob, y, weight = prob[order], y[order], weight[order]
    starts = np.flatnonzero(np.r_[True, prob[1:] != prob[:-1]])
    tie_weight = np.add.reduceat(weight, starts)
    total = tie_weight.sum()
    # Rows with one value of p go together to the bin that holds the middle of their ranks.
    middle = (np.cumsum(tie_weight) - 0.5 * tie_weight) / total
    tie_bin = np.minimum((middle * CALIBRATION_BINS).astype(np.intp), CALIBRATION_BINS - 1)
    which = np.repeat(tie_bin, np.diff(np.r_[starts, prob.size]))
    bins, error = [], 0.0
    for members in (which == k for k in range(CALIBRATION_BINS)):
        held = weight[members]
        if (size := float(held.sum())) == 0.0:
            continue
        predicted, observed = float(held @ prob[members] / size), float(held @ y[members] / size)
        error += size / total * abs(predicted - observed)
        count = int(np.count_nonzero(members))
        means = {"mean_predicted": predicted, "observed_rate": observed}
        bins.append({**means, "count": count, "weight": size})
    return {"bins": bins, "expected_calibration_error": float(error)}
