"""Class weights: factors for the sample weights that depend only on the class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError

Array = np.ndarray

#: Every class counts the same in total.
BALANCED = "balanced"

_SHOWN = 5


def class_factors(
    class_weight: str | Mapping[Any, float], codes: Array, classes: Sequence[Any], sample_weight: Array | None
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
    class_weight: str | Mapping[Any, float] | None,
    y: Array,
    classes: Sequence[Any],
    sample_weight: Array | None,
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
