"""What a private run takes as public: its settings, record ids, N and widths, and nothing else; and labels.

Anything else that enters a public target reveals the rows or labels that it was made from. Labels may be
randomised, once; the unbiased soft targets that parties then learn from keep the loss's mean and convexity
(``docs/fusion.md#f6-labels``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.releases import Payment, Releases, digest_of
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy


def check_covered(problem: Problem, settings: DifferentialPrivacy, **asked: tuple[bool, Any, str]) -> None:
    """Refuse what theorems do not cover: by key, do they, its value, and what the mode takes instead.

    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    public = "none, as public targets would give away the labels or rows that these were made from"
    asked["sample_weight"] = bool((problem.weight == 1.0).all()), "given", public
    asked["offset"] = not problem.offset.any(), "given", public
    for key, (covered, value, takes) in asked.items():
        if not covered:
            raise ConfigError(
                f"{key}: is {value}, but privacy mode {settings.mode!r} takes {takes}; change it, or the mode"
            )


def curvature_unit(problem: Problem, settings: DifferentialPrivacy) -> float:
    """The loss's curvature, without secret labels: ``docs/privacy.md#what-a-private-run-takes-as-public``."""
    y = problem.y if settings.label_epsilon is None else problem.y[:0]
    return problem.loss.penalty_unit(y, problem.weight, problem.offset, problem.lam)


def preparation_not_covered(
    settings: DifferentialPrivacy, unproved: Mapping[str, str] | None
) -> tuple[str, ...]:
    """What is not covered of unknown preparation: ``docs/privacy.md#what-a-private-run-takes-as-public``."""
    if unproved is not None or settings.public_scaling:
        return ()
    return (
        "how columns were prepared before they were given: scales, fills or categories computed from the "
        "private rows void epsilon",
    )


#: Part of the nonce of randomised labels, where parties have their number.
_LABELS = 2**32 - 1


@dataclass(frozen=True)
class PublicLabels:
    """What leaves the label holder. Shapes: classes, target (N,)."""

    classes: np.ndarray  # of shape (N,): 0 and 1
    target: np.ndarray  # of shape (N,): the same, or unbiased soft targets where the classes are randomised


def label_payment(settings: DifferentialPrivacy, ledger: Ledger, run: str, account: Account) -> Payment:
    """The cost of randomised labels; zero without them, and for the noise of tests, which claims nothing."""
    epsilon, charges = settings.label_epsilon, []
    if epsilon is None:
        return Payment(ledger, [], 0.0, settings.delta)
    if settings.sampler != "insecure_test":
        charges = [Charge.to(account, run, "randomised labels", pure=epsilon)]
    runs = 1.0 if settings.total_epsilon is None else settings.total_epsilon / settings.epsilon
    return Payment(ledger, charges, epsilon * runs, settings.delta)


def publish_labels(
    y: np.ndarray, settings: DifferentialPrivacy, releases: Releases, payment: Payment, engine: Engine
) -> PublicLabels:
    """Labels, randomised if requested, once: ``docs/fusion.md#f6-labels``. Shapes: y (N,)."""
    epsilon = settings.label_epsilon
    if epsilon is None:
        return PublicLabels(y, y)
    if not np.isin(y, (0.0, 1.0)).all():
        raise ConfigError("label_epsilon: randomised response needs labels of two classes, not other targets")
    question = digest_of(len(y), epsilon)

    def draw() -> dict[str, np.ndarray]:
        noise = NoiseSource(settings.sampler, settings.seed, _LABELS)
        return {"labels": randomise_labels(y, epsilon, noise, 0, engine)}

    labels = releases.obtain("labels", question, payment, draw, lambda found: found["labels"])
    classes = labels.astype(np.float64)
    target = soft_targets(classes, epsilon)
    if not 0.0 < float(target.mean()) < 1.0 or math.isinf(float(target.max())):
        raise ConfigError(
            f"label_epsilon: {epsilon:g} is too small for {len(y)} labels: their estimated mean "
            f"{target.mean():.3g} is not between 0 and 1"
        )
    return PublicLabels(classes, target)


Array = np.ndarray


def flip_probability(epsilon: float) -> float:
    """1 / (1 + e^epsilon), rounded towards privacy: ``docs/fusion.md#f6-labels``."""
    if math.isinf(epsilon):
        return 0.0
    # 2**-50: what 53-bit uniforms can miss.
    return min(1.0 / (1.0 + math.exp(epsilon)) + 2.0**-50, 0.5)


def randomise_labels(y: Array, epsilon: float, noise: NoiseSource, round: int, engine: Engine) -> Array:
    """Randomised response on labels: ``docs/fusion.md#f6-labels``. Shapes: y, the result (N,)."""
    flip = noise.uniform(len(y), round, engine) < flip_probability(epsilon)
    return ((y > 0.5) ^ flip).astype(np.uint8)


def soft_targets(noisy: Array, epsilon: float) -> Array:
    r"""Unbiased targets from randomised labels. Shapes: noisy, the result (N,)."""
    scale = 1.0 / (1.0 - 2.0 * flip_probability(epsilon))
    return 0.5 * (1.0 + (2.0 * np.asarray(noisy, dtype=np.float64) - 1.0) * scale)
