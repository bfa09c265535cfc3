"""Every loss by name. Their tables are in ``docs/losses.md``."""

from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead
from fastadmm.problem.bounded_losses import Sigmoid, Tukey, Welsch
from fastadmm.problem.convex_losses import (
    Binomial,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredHinge,
)
from fastadmm.problem.log_link_losses import Gamma, NegativeBinomial, Poisson, Tweedie
from fastadmm.problem.loss import Loss
from fastadmm.problem.multinomial import Multinomial
from fastadmm.problem.regularizers import number_up_to

#: Every loss by name, with its default parameters.
LOSSES: dict[str, Loss] = {
    kind.name: kind()
    for kind in (
        *(Logistic, Squared, Huber, Quantile, Hinge, SmoothedHinge, SquaredHinge),
        *(Poisson, Gamma, Tweedie, NegativeBinomial, Binomial),
        *(Multinomial, Sigmoid, Tukey, Welsch),
    )
}


def get_loss(name: str, **parameters: Any) -> Loss:
    """Loss of a given name."""
    try:
        loss = LOSSES[name]
    except KeyError:
        raise ConfigError(f"loss: unknown loss {name!r}; {choose_instead(name, LOSSES)}") from None
    if not parameters:
        return loss
    checked = {}
    for key, value in parameters.items():
        if key not in loss.limits:
            known = ", ".join(loss.limits) or "none"
            raise ConfigError(f"loss: {name} has no parameter {key!r}; it has {known}")
        low, high = loss.limits[key]
        wanted = "positive and finite" if high == np.inf else f"between {low:g} and {high:g}"
        largest, what = float(np.nextafter(high, low)), f"loss: {name}: {key} "
        checked[key] = number_up_to(what, value, low, largest, f"must be {wanted}")
    return type(loss)(**checked)


def parse_loss(text: str) -> Loss:
    """Loss from ``name`` or ``name:value``, the value being that of its one parameter."""
    name, colon, value = text.partition(":")
    keys = list(get_loss(name).limits) if colon else []
    if colon and len(keys) != 1:
        raise ConfigError(f"loss: {name} has no parameter; write {name!r} alone")
    return get_loss(name, **dict.fromkeys(keys, value))
