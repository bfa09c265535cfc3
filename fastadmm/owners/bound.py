"""How the gradient of one record is bounded, which is what any claim of privacy rests on; and the losses.

``clip:XI`` scales each record's gradient to norm at most Xi: where it does, the sum is no longer the gradient
of the objective. ``features:R`` scales features (and the squared loss's targets), from which a bound on the
gradient follows in the box of parameters. ``assumed:XI`` enforces nothing, and no epsilon is claimed. Norms
are l1 for Laplace answers, l2 for Gaussian ones. The objective is per mean loss, and its penalty takes in the
constant; the paper's squared loss, gradients and Xi are twice ours, its step constants half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead
from fastadmm.settings.owners import OwnerSettings

KINDS = ("clip", "features", "assumed")


@dataclass(frozen=True)
class Bound:
    """A bound on every record's gradient."""

    kind: str
    xi: float  # xi, the bound on the norm of one record's gradient
    euclidean: bool  # whether the norm is l2; else l1
    target_limit: float  # bound on the absolute target; infinite for none
    theta_max: float  # half the side of the box that queries must lie in
    row_limit: float = math.inf  # R; infinite unless features are bounded
    row_norm: float = math.inf  # largest norm of ``[x, 1]`` after scaling; infinite likewise

    @property
    def enforced(self) -> bool:
        """Whether it holds whatever the data are."""
        return self.kind != "assumed"

    def kernel_limit(self, n_parameters: int) -> float:
        """What kernels clip at: slightly less, so that rounding cannot lead beyond Xi."""
        if not self.enforced or math.isinf(self.xi):
            return math.inf
        return self.xi * (1.0 - (n_parameters + 8) * 2.0**-52)

    def describe(self) -> str:
        """One sentence for people."""
        norm = "l2" if self.euclidean else "l1"
        if self.kind == "clip":
            return f"each record's gradient is clipped to {norm} norm {self.xi:g}"
        if self.kind == "features":
            target = "" if math.isinf(self.target_limit) else f", targets to {self.target_limit:g}"
            return (
                f"each record's features are scaled to {norm} norm {self.row_limit:g}{target}, parameters "
                f"stay within {self.theta_max:g}: {norm} norm of the gradient at most {self.xi:g}"
            )
        return f"{norm} norm {self.xi:g} is assumed and not enforced: no epsilon is claimed"


def make_bound(settings: OwnerSettings, loss: OwnerLoss, n_features: int) -> Bound:
    """Work out the bound on every record's gradient that settings ask for."""
    text, intercept, theta_max = settings.bound, settings.intercept, settings.theta_max
    euclidean = settings.mechanism == "gaussian"
    target = math.inf if settings.target_bound is None else settings.target_bound
    if text is None:
        return Bound("assumed", math.inf, euclidean, target, theta_max)
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if kind not in KINDS or not 0 < value < math.inf:
        raise ConfigError(
            f"bound: {text!r} is not clip:XI, features:R or assumed:XI with a positive number, such as clip:1"
        )
    if kind != "features":
        return Bound(kind, value, euclidean, target, theta_max)
    row = math.sqrt(value**2 + intercept) if euclidean else value + intercept
    slope = 1.0  # the largest
    if loss.name == "squared":
        for name, limit, wanted in (
            ("without a bound on the targets", target, "target_bound too"),
            ("with theta_max = inf", theta_max, "a finite theta_max"),
        ):
            if math.isinf(limit):
                raise ConfigError(
                    f"bound: features:R leaves the gradients of the squared loss unbounded {name}; give "
                    f"{wanted}, or clip:XI"
                )
        # |u'theta| <= |u|_1 max|theta|, and <= |u|_2 sqrt(p) max|theta|.
        slope = theta_max * row * (math.sqrt(n_features + intercept) if euclidean else 1.0) + target
    return Bound(kind, slope * row, euclidean, target, theta_max, value, row)


@dataclass(frozen=True)
class OwnerLoss:
    """One loss."""

    name: str
    code: int  # as in owner_gradient
    task: str  # which labels it takes
    curvature: float  # largest second derivative in z; infinite for the hinge

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Loss of every record, the shape of ``z``; y is broadcast against z."""
        if self.name == "squared":
            return 0.5 * (z - y) ** 2
        if self.name == "hinge":
            return np.maximum(0.0, 1.0 - y * z)
        return np.logaddexp(0.0, -y * z)


LOSSES: dict[str, OwnerLoss] = {
    loss.name: loss
    for loss in (
        OwnerLoss("squared", 0, "regression", 1.0),
        OwnerLoss("hinge", 1, "classification", math.inf),
        OwnerLoss("logistic", 2, "classification", 0.25),
    )
}


def get_loss(name: str, task: str, place: str = "data") -> OwnerLoss:
    """The loss of a name; ``auto`` takes squared for a regression, logistic for two classes."""
    if name == "auto":
        name = "squared" if task == "regression" else "logistic"
    if name not in LOSSES:
        raise ConfigError(f"loss: unknown loss {name!r}; {choose_instead(name, ('auto', *LOSSES))}")
    loss = LOSSES[name]
    if loss.task == "classification" and task != "classification":
        raise ConfigError(
            f"loss: {name} needs labels of two classes (-1 and 1), but {place} has real targets; "
            "convert with --task classification, or choose squared"
        )
    return loss
