"""How well a model predicts: full metrics after training, quick ones after every round.

:func:`classification_metrics` and :func:`regression_metrics` serve ``fastadmm evaluate``;
:func:`quick_metrics` runs inside the training loop, on the linear predictor. Values are scikit-learn's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fastadmm.problem.loss import Loss

#: What a label must be where there are two classes.
_BINARY = "classes must be given as 0 and 1"

#: Number of bins of the calibration curve.
CALIBRATION_BINS = 10


def classification_metrics(
    y01: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, Any]:
    """Metrics of predicted probabilities for two classes. Shapes: y01, p, sample_weight (N,)."""
    y, prob, weight = _checked(y01, p, sample_weight, what="p")
    _refuse("y", y, (y != 0.0) & (y != 1.0), _BINARY)
    why = "probabilities lie in [0, 1]; pass predict_proba, not scores"
    _refuse("p", prob, (prob < 0.0) | (prob > 1.0), why)
    found = _of_probabilities(y.astype(np.intp), np.column_stack([1.0 - prob, prob]), weight)
    auc, calibration = _auc(y, prob, weight), _calibration(y, prob, weight)
    return {**found, "auc": auc, "brier": 0.5 * found["brier"], "calibration": calibration}


def _of_probabilities(y: NDArray, prob: NDArray, weight: NDArray) -> dict[str, Any]:
    """Metrics of probabilities of every class. Shapes: y, weight (N,); prob (N, C)."""
    total, rows = weight.sum(), np.arange(len(y))
    truth = np.zeros_like(prob)
    truth[rows, y] = 1.0
    # scikit-learn's log loss cuts probabilities at the spacing of numbers near 1, as here
    certain = np.clip(prob[rows, y], np.finfo(np.float64).eps, 1.0)
    return {
        "log_loss": float(weight @ -np.log(certain) / total),
        "accuracy": float(weight[np.argmax(prob, axis=1) == y].sum() / total),
        "auc": None,
        "brier": float(weight @ ((prob - truth) ** 2).sum(axis=1) / total),
    }


def multiclass_metrics(
    y: ArrayLike, p: ArrayLike, classes: Sequence[str], sample_weight: ArrayLike | None = None
) -> dict[str, Any]:
    """Metrics of predicted probabilities for any number of classes.

    Shapes: y, sample_weight (N,); p (N, C).
    """
    y_, prob, weight = _checked_classes(y, p, sample_weight, "p")
    if prob.shape[1] != len(classes):
        raise InputError(f"p has {prob.shape[1]} columns for {len(classes)} classes: pass one per class")
    wrong = ~((prob >= 0.0) & (prob <= 1.0)).all(axis=1) | ~(np.abs(prob.sum(axis=1) - 1.0) <= 1e-6)
    _refuse("p", prob, wrong, "probabilities lie in [0, 1] and sum to 1")
    predicted = np.argmax(prob, axis=1)
    rows: list[dict[str, Any]] = []
    for c, name in enumerate(classes):
        is_class, said = y_ == c, predicted == c
        both, of_class, of_said = (float(weight[m].sum()) for m in (is_class & said, is_class, said))
        precision, recall = (both / of if of > 0.0 else None for of in (of_said, of_class))
        own = {"name": name, "weight": of_class, "precision": precision, "recall": recall}
        rows.append({**own, "auc": _auc(is_class.astype(np.float64), prob[:, c], weight)})
    auc = _mean_area([row["auc"] for row in rows])
    return {**_of_probabilities(y_, prob, weight), "auc": auc, "classes": rows}


def regression_metrics(
    y: ArrayLike, pred: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics of predicted real values. Shapes: y, pred, sample_weight (N,)."""
    y_, pred_, weight = _checked(y, pred, sample_weight, what="pred")
    rmse, r2 = _quick_regression(y_, pred_, weight)
    mae = weight @ np.abs(y_ - pred_) / weight.sum()
    return {"rmse": float(rmse), "mae": float(mae), "r2": None if r2 is None else float(r2)}


def deviance_metrics(
    loss: Loss, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Deviance of a linear predictor, and the share of it that the model explains.

    Shapes: y, z, sample_weight (N,).
    """
    y_, z_, weight = _checked(y, z, sample_weight, what="z")
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
    scores = np.asarray(z, dtype=np.float64)
    if loss.task != "classification":
        metrics = regression_metrics(y, loss.predict_mean(scores), sample_weight)
        return {**metrics, **deviance_metrics(loss, y, scores, sample_weight)}
    if loss.vector:
        names = classes or [str(c) for c in range(scores.shape[1])]
        return multiclass_metrics(y, loss.predict_mean(scores), names, sample_weight)
    if loss.probabilistic:
        return classification_metrics(y, loss.predict_mean(scores), sample_weight)
    return {k: v for k, v in quick_of(loss, y, scores, sample_weight).items() if k != "log_loss"}


def quick_of(
    loss: Loss, y: ArrayLike, z: NDArray, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics for one line of the round log, of a loss. Shapes: y, sample_weight (N,); z (N,) or (N, C)."""
    if loss.vector:
        return quick_class_metrics(y, z, sample_weight)
    if loss.task == "regression":
        return quick_metrics(loss.task, y, loss.predict_mean(z), sample_weight)
    metrics = quick_metrics(loss.task, y, z, sample_weight)
    return metrics if loss.probabilistic else {**metrics, "log_loss": None}


def quick_metrics(
    task: str, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics for one line of the round log, from the linear predictor, with NumPy alone.

    Equal to the same entries of :func:`classification_metrics` at p = 1 / (1 + exp(-z)), or of
    :func:`regression_metrics` at pred = z. It stays exact where p would round to 0 or 1.

    Shapes: y, z, sample_weight (N,).
    """
    if task not in ("classification", "regression"):
        raise InputError(f"unknown task {task!r}: choose classification or regression")
    y_, z_, weight = _checked(y, z, sample_weight, what="z", finite=False)
    names = ("log_loss", "accuracy", "auc") if task == "classification" else ("rmse", "r2")
    if not np.isfinite(z_).all():
        return dict.fromkeys(names)
    # Near divergence z is finite but its square is not; such a value is reported as undefined.
    with np.errstate(over="ignore", invalid="ignore"):
        if task == "classification":
            _refuse("y", y_, (y_ != 0.0) & (y_ != 1.0), _BINARY)
            total, ones = weight.sum(), y_ == 1.0
            # log(1 + exp(-z)) for class 1 and log(1 + exp(z)) for class 0: no cancellation, no overflow.
            loss = weight @ np.logaddexp(0.0, np.where(ones, -z_, z_)) / total
            accuracy = weight[(z_ > 0.0) == ones].sum() / total
            values: tuple[float | None, ...] = loss, accuracy, _auc(y_, z_, weight)
        else:
            values = _quick_regression(y_, z_, weight)
    return {k: float(v) if v is not None and np.isfinite(v) else None for k, v in zip(names, values)}


def quick_class_metrics(
    y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics of a multinomial model for one line of the round log, from its linear predictors.

    Shapes: y, sample_weight (N,); z (N, C).
    """
    y_, z_, weight = _checked_classes(y, z, sample_weight, "z")
    if not np.isfinite(z_).all():
        return dict.fromkeys(("log_loss", "accuracy", "auc"))
    rows = np.arange(len(y_))
    total = weight.sum()
    # Log-odds of each class against the rest: a score that does not round to 1.
    excess = z_ - z_.max(axis=1, keepdims=True)
    spread = np.exp(excess)
    others = spread.sum(axis=1, keepdims=True) - spread
    loss = np.log(spread.sum(axis=1)) - excess[rows, y_]
    with np.errstate(divide="ignore"):
        odds = excess - np.log(np.maximum(others, 0.0))
    areas = [_auc((y_ == c).astype(np.float64), odds[:, c], weight) for c in range(z_.shape[1])]
    return {
        "log_loss": float(weight @ loss / total),
        "accuracy": float(weight[np.argmax(z_, axis=1) == y_].sum() / total),
        "auc": _mean_area(areas),
    }


def _mean_area(areas: Sequence[float | None]) -> float | None:
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def _quick_regression(y: NDArray, z: NDArray, weight: NDArray) -> tuple[float, float | None]:
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
    positive = weight * (y[order] == 1.0)
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


def _checked(
    y: ArrayLike, values: ArrayLike, sample_weight: ArrayLike | None, *, what: str, finite: bool = True
) -> tuple[NDArray, NDArray, NDArray]:
    y_ = np.asarray(y, dtype=np.float64)
    values_ = np.asarray(values, dtype=np.float64)
    weight = np.ones(y_.shape) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if y_.ndim != 1 or y_.size == 0:
        raise InputError(f"y has shape {y_.shape}: a metric needs one value per row and at least one row")
    for name, array in ((what, values_), ("sample_weight", weight)):
        if array.shape != y_.shape:
            raise InputError(f"{name} has shape {array.shape} but y {y_.shape}: pass one value per row")
    for name, array in (("y", y_), (what, values_), ("sample_weight", weight)):
        if finite or name != what:
            _refuse(name, array, ~np.isfinite(array), "metrics need finite values")
    least = weight.min()
    _refuse("sample_weight", weight, (weight < 0.0) & (weight == least), "weights must not be negative")
    if weight.sum() == 0.0:
        raise InputError("sample_weight is zero for every row: at least one row must count")
    return y_, values_, weight


def _checked_classes(
    y: ArrayLike, scores: ArrayLike, sample_weight: ArrayLike | None, what: str
) -> tuple[NDArray, NDArray, NDArray]:
    scores_ = np.asarray(scores, dtype=np.float64)
    if scores_.ndim != 2 or scores_.shape[1] < 2:
        raise InputError(f"{what} has shape {scores_.shape}: pass one column per class, two at least")
    y_, _, weight = _checked(y, scores_[:, 0], sample_weight, what=what, finite=False)
    wrong = (y_ < 0.0) | (y_ >= scores_.shape[1]) | (y_ != np.floor(y_))
    _refuse("y", y_, wrong, f"classes must be given as 0 to {scores_.shape[1] - 1}")
    return y_.astype(np.intp), scores_, weight


def _refuse(name: str, values: NDArray, wrong: NDArray, why: str) -> None:
    """Refuse the first of the wrong values, numbers or rows of them. Shapes: wrong (N,)."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{name}[{row}] is {values[row]:{'g' if values.ndim == 1 else ''}}: {why}")
