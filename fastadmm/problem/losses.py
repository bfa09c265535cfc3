"""Every loss by name. Their tables are in ``docs/losses.md``."""

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

#: Every loss by name, with its default parameters.
LOSSES: dict[str, Loss] = {
    kind.name: kind()
    for kind in (
        *(Logistic, Squared, Huber, Quantile, Hinge, SmoothedHinge, SquaredHinge),
        *(Poisson, Gamma, Tweedie, NegativeBinomial, Binomial),
        *(Multinomial, Sigmoid, Tukey, Welsch),
    )
}


def get_loss(name: str, **parameters: float) -> Loss:
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
            known = f"it has {', '.join(loss.limits)}" if loss.limits else "it has none"
            raise ConfigError(f"loss: {name} has no parameter {key!r}; {known}")
        low, high = loss.limits[key]
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"loss: {name}: {key} {value!r} is not a number") from None
        if not low < number < high:
            wanted = "positive and finite" if high == np.inf else f"between {low:g} and {high:g}"
            raise ConfigError(f"loss: {name}: {key} {value!r} must be {wanted}")
        checked[key] = number
    return type(loss)(**checked)


def parse_loss(text: str) -> Loss:
    """Loss from ``name`` or ``name:value``, the value being that of its one parameter."""
    name, colon, value = text.partition(":")
    loss = get_loss(name)
    if not colon:
        return loss
    keys = list(loss.limits)
    if len(keys) != 1:
        raise ConfigError(f"loss: {name} has no parameter; write {name!r} alone")
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"loss: {name}: {keys[0]} {value!r} is not a number") from None
    return get_loss(name, **{keys[0]: number})
