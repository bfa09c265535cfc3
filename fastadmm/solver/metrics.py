"""How well a model predicts: full metrics after training, quick ones after every round.

:func:`classification_metrics` and :func:`regression_metrics` serve ``fastadmm evaluate`` and
use scikit-learn. :func:`quick_metrics` runs inside the training loop on the linear predictor
and needs NumPy alone, so that a short run does not pay for importing scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fastadmm.problem.loss import Loss

__all__ = [
    "classification_metrics",
    "deviance_metrics",
    "evaluation_metrics",
    "multiclass_metrics",
    "quick_class_metrics",
    "quick_metrics",
    "regression_metrics",
]

#: Number of bins of the calibration curve.
CALIBRATION_BINS = 10


def classification_metrics(
    y01: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, Any]:
    """Metrics of predicted probabilities for two classes.

    Parameters
    ----------
    y01 : array_like, shape (N,)
        True classes, 0 or 1.
    p : array_like, shape (N,)
        Predicted probability of class 1, in [0, 1].
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1. A whole-number weight means the same
        as repeating the row, in every metric.

    Returns
    -------
    dict
        ``log_loss`` (mean, natural logarithm), ``accuracy`` (class 1 is predicted where
        p > 0.5), ``auc`` (``None`` where only one class is present), ``brier`` (mean squared
        error of p), and ``calibration``: ``{"bins": [{"mean_predicted", "observed_rate",
        "count", "weight"}, ...], "expected_calibration_error"}``. The bins hold equal numbers
        of rows (equal weight, with weights), in order of p; rows with the same p always
        share a bin, so that the result does not depend on the order of the rows and there
        can be fewer than ten bins. All values are plain Python numbers.

    Raises
    ------
    InputError
        Shapes differ, there are no rows, y is not 0/1, p is not in [0, 1], or a value is not finite.
    """
    y, prob, weight = _checked(y01, p, sample_weight, what="p")
    _check_binary(y)
    outside = np.flatnonzero((prob < 0.0) | (prob > 1.0))
    if outside.size:
        raise InputError(
            f"p[{outside[0]}] is {prob[outside[0]]:g}: probabilities lie in [0, 1]; "
            "pass predict_proba, not scores"
        )
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

    auc = None
    if weight[y == 1.0].sum() > 0.0 and weight[y == 0.0].sum() > 0.0:
        auc = float(roc_auc_score(y, prob, sample_weight=weight))
    return {
        "log_loss": float(log_loss(y, prob, sample_weight=weight, labels=[0.0, 1.0])),
        "accuracy": float(accuracy_score(y == 1.0, prob > 0.5, sample_weight=weight)),
        "auc": auc,
        "brier": float(brier_score_loss(y, prob, sample_weight=weight, labels=[0.0, 1.0])),
        "calibration": _calibration(y, prob, weight),
    }


def multiclass_metrics(
    y: ArrayLike, p: ArrayLike, classes: Sequence[str], sample_weight: ArrayLike | None = None
) -> dict[str, Any]:
    """Metrics of predicted probabilities for any number of classes.

    Parameters
    ----------
    y : array_like, shape (N,)
        True class numbers, from 0.
    p : array_like, shape (N, C)
        Predicted probabilities; each row sums to 1.
    classes : sequence of str
        Names of the C classes.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.

    Returns
    -------
    dict
        ``log_loss`` (mean, natural logarithm), ``accuracy`` (the most probable class is
        predicted), ``auc`` (plain mean over the classes that occur, each against all others;
        ``None`` where only one occurs), ``brier`` (mean over samples of the squared error summed
        over classes, between 0 and 2), and ``classes``: for each its ``name``, ``weight``
        (summed weight of its rows), ``precision``, ``recall`` (``None`` where undefined) and ``auc``.

    Raises
    ------
    InputError
        Shapes differ, there are no rows, y is no class number, or p holds no probabilities.
    """
    y_, prob, weight = _checked_classes(y, p, sample_weight, "p")
    if prob.shape[1] != len(classes):
        raise InputError(f"p has {prob.shape[1]} columns for {len(classes)} classes: pass one per class")
    wrong = ~((prob >= 0.0) & (prob <= 1.0)).all(axis=1) | ~(np.abs(prob.sum(axis=1) - 1.0) <= 1e-6)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(f"p[{row}] is {prob[row]}: probabilities lie in [0, 1] and sum to 1")
    total, predicted = weight.sum(), np.argmax(prob, axis=1)
    truth = np.zeros_like(prob)
    truth[np.arange(len(y_)), y_] = 1.0
    # scikit-learn's log loss cuts probabilities at the spacing of numbers near 1, as here
    certain = np.clip(prob[np.arange(len(y_)), y_], np.finfo(np.float64).eps, 1.0)
    rows: list[dict[str, Any]] = []
    for c, name in enumerate(classes):
        is_class, said = y_ == c, predicted == c
        both, of_class, of_said = (float(weight[m].sum()) for m in (is_class & said, is_class, said))
        rows.append(
            {
                "name": name,
                "weight": of_class,
                "precision": both / of_said if of_said > 0.0 else None,
                "recall": both / of_class if of_class > 0.0 else None,
                "auc": _auc(truth[:, c], prob[:, c], weight),
            }
        )
    areas = [row["auc"] for row in rows if row["auc"] is not None]
    return {
        "log_loss": float(weight @ -np.log(certain) / total),
        "accuracy": float(weight[predicted == y_].sum() / total),
        "auc": float(np.mean(areas)) if areas else None,
        "brier": float(weight @ ((prob - truth) ** 2).sum(axis=1) / total),
        "classes": rows,
    }


def regression_metrics(
    y: ArrayLike, pred: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics of predicted real values.

    Parameters
    ----------
    y, pred : array_like, shape (N,)
        True and predicted values, in the unit of the target.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.

    Returns
    -------
    dict
        ``rmse`` and ``mae`` in the unit of the target, and ``r2`` (``None`` with fewer than
        two rows; with a constant target 1 for a perfect prediction and 0 otherwise, as in
        scikit-learn).

    Raises
    ------
    InputError
        Shapes differ, there are no rows, or a value is not finite.
    """
    y_, pred_, weight = _checked(y, pred, sample_weight, what="pred")
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    return {
        "rmse": float(root_mean_squared_error(y_, pred_, sample_weight=weight)),
        "mae": float(mean_absolute_error(y_, pred_, sample_weight=weight)),
        "r2": float(r2_score(y_, pred_, sample_weight=weight)) if y_.size > 1 else None,
    }


def deviance_metrics(
    loss: Loss, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Deviance of a linear predictor, and the share of it that the model explains.

    Parameters
    ----------
    loss : Loss
        Of the model; there are no such metrics but for losses that are half a deviance.
    y, z : array_like, shape (N,)
        True targets; linear predictor with offset and intercept.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.

    Returns
    -------
    dict
        ``deviance``, the mean one, and ``d2``: 1 - deviance / deviance of the mean target, as
        scikit-learn's ``d2_tweedie_score``. Both are ``None`` where targets are outside the loss's domain,
        ``d2`` where the mean target has no deviance.
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

    Parameters
    ----------
    loss : Loss
        Of the model.
    y : array_like, shape (N,)
        True targets: 0 and 1, class numbers, or real values.
    z : array_like, shape (N,) or (N, C)
        Linear predictor with offset and intercept.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.
    classes : sequence of str
        Names of the classes of a multinomial model; their numbers by default.

    Returns
    -------
    dict
        Of :func:`regression_metrics` (and :func:`deviance_metrics`), :func:`multiclass_metrics` or
        :func:`classification_metrics`; for a loss without probabilities (the hinge losses) ``accuracy`` and
        ``auc`` alone.

    Raises
    ------
    InputError
        As those functions.
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
    metrics = quick_metrics(loss.task, y, scores, sample_weight)
    del metrics["log_loss"]
    return metrics


def quick_metrics(
    task: str, y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics for one line of the round log, from the linear predictor, with NumPy alone.

    Equal to the same entries of :func:`classification_metrics` at p = 1 / (1 + exp(-z)), or of
    :func:`regression_metrics` at pred = z. It stays exact where p would round to 0 or 1.

    Parameters
    ----------
    task : {"classification", "regression"}
    y : array_like, shape (N,)
        Classes 0 or 1, or the target.
    z : array_like, shape (N,)
        Linear predictor with offset and intercept: the log-odds of class 1, or the predicted target.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.

    Returns
    -------
    dict
        ``log_loss``, ``accuracy`` (class 1 is predicted where z > 0) and ``auc``, or ``rmse``
        and ``r2``. A metric that is undefined is ``None``: the AUC of a single class, r2 of a
        single row, and everything where ``z`` is not finite (a run that diverges must be
        able to log its rounds, so this is no error).

    Raises
    ------
    InputError
        The task is unknown, shapes differ, there are no rows, or y or the weights are wrong.
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
            _check_binary(y_)
            values: tuple[float | None, ...] = _quick_classification(y_, z_, weight)
        else:
            values = _quick_regression(y_, z_, weight)
    return {
        name: float(value) if value is not None and np.isfinite(value) else None
        for name, value in zip(names, values)
    }


def quick_class_metrics(
    y: ArrayLike, z: ArrayLike, sample_weight: ArrayLike | None = None
) -> dict[str, float | None]:
    """Metrics of a multinomial model for one line of the round log, from its linear predictors.

    Parameters
    ----------
    y : array_like, shape (N,)
        Class numbers, from 0.
    z : array_like, shape (N, C)
        Linear predictors.
    sample_weight : array_like, shape (N,), optional
        Non-negative weights, not all zero; default 1.

    Returns
    -------
    dict
        ``log_loss``, ``accuracy`` (the class of the largest predictor) and ``auc``: the plain
        mean over the classes that occur, each against all others, by its log-odds. None as in
        :func:`quick_metrics`.

    Raises
    ------
    InputError
        Shapes differ, there are no rows, or y or the weights are wrong.
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
    known = [area for area in areas if area is not None]
    return {
        "log_loss": float(weight @ loss / total),
        "accuracy": float(weight[np.argmax(z_, axis=1) == y_].sum() / total),
        "auc": float(np.mean(known)) if known else None,
    }


def _quick_classification(y: NDArray, z: NDArray, weight: NDArray) -> tuple[float, float, float | None]:
    total = weight.sum()
    # log(1 + exp(-z)) for class 1 and log(1 + exp(z)) for class 0: no cancellation, no overflow.
    loss = np.logaddexp(0.0, np.where(y == 1.0, -z, z))
    accuracy = weight[(z > 0.0) == (y == 1.0)].sum() / total
    return weight @ loss / total, accuracy, _auc(y, z, weight)


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
    for k in range(CALIBRATION_BINS):
        members = which == k
        bin_weight = float(weight[members].sum())
        if bin_weight == 0.0:
            continue
        mean_predicted = float(weight[members] @ prob[members] / bin_weight)
        observed_rate = float(weight[members] @ y[members] / bin_weight)
        error += bin_weight / total * abs(mean_predicted - observed_rate)
        bins.append(
            {
                "mean_predicted": mean_predicted,
                "observed_rate": observed_rate,
                "count": int(np.count_nonzero(members)),
                "weight": bin_weight,
            }
        )
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
        if (finite or name != what) and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array))[0])
            raise InputError(f"{name}[{row}] is {array[row]}: metrics need finite values")
    if weight.min() < 0.0:
        row = int(np.argmin(weight))
        raise InputError(f"sample_weight[{row}] is {weight[row]:g}: weights must not be negative")
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
    wrong = np.flatnonzero((y_ < 0.0) | (y_ >= scores_.shape[1]) | (y_ != np.floor(y_)))
    if wrong.size:
        raise InputError(
            f"y[{wrong[0]}] is {y_[wrong[0]]:g}: classes must be given as 0 to {scores_.shape[1] - 1}"
        )
    return y_.astype(np.intp), scores_, weight


def _check_binary(y: NDArray) -> None:
    wrong = np.flatnonzero((y != 0.0) & (y != 1.0))
    if wrong.size:
        raise InputError(f"y[{wrong[0]}] is {y[wrong[0]]:g}: classes must be given as 0 and 1")
