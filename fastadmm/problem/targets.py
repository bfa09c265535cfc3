"""Which targets a loss accepts (refusals name the row), and class weights: factors for the sample weights."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError

Array = np.ndarray

#: Most classes of a multinomial model: one linear predictor each.
MAX_CLASSES = 1000


def refuse(y: Array, wrong: Array, why: str) -> None:
    """Refuse the first of the wrong targets. Shapes: y, wrong (N,)."""
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InputError(f"y: target {y[i]} in row {i} {why}")


def check_unbiased_targets(y: Array, weight: Array, fit_intercept: bool) -> None:
    """Require soft targets with a weighted mean between 0 and 1, else no intercept is best.

    Single ones may lie outside [0, 1], as the unbiased targets of randomised labels do
    (:func:`fastadmm.privacy.public.soft_targets`).

    Shapes: y, weight (N,).
    """
    mean = float((weight * y).sum() / weight.sum())
    if fit_intercept and not 0.0 < mean < 1.0:
        raise InputError(
            f"y: the mean {mean:.3g} of the soft targets is not between 0 and 1, so no intercept is best; "
            "they are too few for their randomisation"
        )


def check_soft_labels(y: Array, weight: Array) -> None:
    """Require targets in [0, 1], not all of one class. Shapes: y, weight (N,)."""
    refuse(y, (y < 0) | (y > 1), "is outside [0, 1]; map the two classes to 0 and 1")
    seen = y[weight > 0]
    if seen.min() == seen.max() and seen[0] in (0.0, 1.0):
        raise InputError(f"y: only one class is present ({seen[0]:g}); two are needed")


def check_labels(y: Array, weight: Array) -> None:
    """Require targets 0 and 1, both present. Shapes: y, weight (N,)."""
    refuse(y, (y != 0) & (y != 1), "is not 0 or 1; this loss takes hard labels only")
    check_soft_labels(y, weight)


def check_rates(y: Array, weight: Array, fit_intercept: bool, loss: str, needs: str) -> None:
    """Require targets that are not negative and, with an intercept, not all zero. Shapes: y, weight (N,)."""
    refuse(y, y < 0, f"is negative; the {loss} loss needs {needs}")
    if fit_intercept and not (y[weight > 0] > 0).any():
        raise InputError(f"y: all targets are zero; the {loss} loss needs a positive one to fit an intercept")


def check_class_numbers(y: Array, weight: Array, fit_intercept: bool) -> None:
    """Require class numbers 0, 1, 2 and so on, at least two of them present. Shapes: y, weight (N,)."""
    wrong = (y < 0) | (y != np.floor(y)) | (y >= MAX_CLASSES)
    refuse(y, wrong, f"is no class number; number the classes 0, 1, 2 ... (at most {MAX_CLASSES})")
    present = np.bincount(y.astype(np.int64), weight) > 0
    if present.sum() < 2:
        raise InputError(f"y: only one class is present ({int(np.argmax(present))}); two are needed")
    if fit_intercept and not present.all():
        missing = int(np.argmin(present))
        raise InputError(
            f"y: class {missing} has no sample with a positive weight, but higher class numbers have; "
            "number the classes that occur, or fit no intercept"
        )


def weighted_quantile(values: Array, weight: Array, level: float) -> float:
    """Smallest value at which the summed weight of the values up to it reaches a level.

    Shapes: values, weight (N,).
    """
    order = np.argsort(values, kind="stable")
    order = order[weight[order] > 0.0]
    at = int(np.searchsorted(np.cumsum(weight[order]), level))
    return float(values[order[min(at, len(order) - 1)]])


ClassWeight = str | Mapping[Any, float]

#: Every class counts the same in total.
BALANCED = "balanced"

_SHOWN = 5


def class_factors(
    class_weight: ClassWeight, codes: Array, classes: Sequence[Any], sample_weight: Array | None
) -> Array:
    r"""One factor per class.

    "balanced" is :math:`W / (C\, W_c)` with W_c the sum of the sample weights
    of class c, as in scikit-learn: it leaves the total weight W as it is.

    Shapes: codes, sample_weight (N,); the result (C,).
    """
    names = list(classes)
    if isinstance(class_weight, str) and class_weight == BALANCED:
        totals = np.bincount(codes, weights=sample_weight, minlength=len(names)).astype(np.float64)
        present = totals > 0.0
        factors = np.ones(len(names))
        factors[present] = totals.sum() / (present.sum() * totals[present])
        return factors
    if not isinstance(class_weight, Mapping):
        raise ConfigError(f"class_weight: {class_weight!r} is neither 'balanced' nor a weight for each class")
    factors = np.ones(len(names))
    for name, value in class_weight.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < math.inf:
            raise ConfigError(
                f"class_weight: {value!r} of class {name!r} must be a finite number, at least 0"
            )
        if name not in names:
            known = ", ".join(repr(n) for n in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ConfigError(f"class_weight: unknown class {name!r}; the classes are {known}")
        factors[names.index(name)] = float(value)
    return factors


def weigh_classes(
    class_weight: ClassWeight | None, y: Array, classes: Sequence[Any], sample_weight: Array | None
) -> Array | None:
    """Sample weights times class weights.

    Returns: None where neither is given.
    Shapes: y, sample_weight, the result (N,).
    """
    if class_weight is None:
        return sample_weight
    codes = y.astype(np.intp)
    factors = class_factors(class_weight, codes, classes, sample_weight)[codes]
    return factors if sample_weight is None else factors * sample_weight
