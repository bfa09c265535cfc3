"""What the parties learn about the labels: the labels, or randomised ones, drawn once and charged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.label_response import randomise_labels, soft_targets
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.releases import Payment, digest_of
from fastadmm.privacy.stored import Store
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["PublicLabels", "check_label_loss", "label_payment", "publish_labels", "with_labels_spent"]

Settings = TypeVar("Settings", bound=DifferentialPrivacy)

#: Part of the nonce of randomised labels, where parties have their number.
_LABELS = 2**32 - 1


@dataclass(frozen=True)
class PublicLabels:
    """What leaves the label holder.

    Shapes: classes, target (N,).
    """

    classes: np.ndarray  # of shape (N,): 0 and 1
    target: np.ndarray  # of shape (N,): the same, or unbiased soft targets where the classes are randomised


def check_label_loss(loss: str, settings: DifferentialPrivacy) -> None:
    """Refuse randomised labels where soft targets do not keep the mean of the loss."""
    if settings.label_epsilon is not None and loss not in ("logistic", "squared"):
        raise ConfigError(
            f"label_epsilon: randomised labels go with the logistic or the squared loss, not with {loss}"
        )


def label_payment(settings: DifferentialPrivacy, ledger: Ledger, run: str, account: Account) -> Payment:
    """The cost of randomised labels; zero without them, and for the noise of tests, which claims nothing."""
    epsilon, charges = settings.label_epsilon, []
    if epsilon is None:
        return Payment(ledger, [], 0.0, settings.delta)
    if settings.sampler != "insecure_test":
        charges = [Charge.to(account, run, "randomised labels", pure=epsilon)]
    runs = 1.0 if settings.total_epsilon is None else settings.total_epsilon / settings.epsilon
    return Payment(ledger, charges, epsilon * runs, settings.delta)


def with_labels_spent(settings: Settings, ledger: Ledger, run: str, account: Account) -> Settings:
    """Settings for a run's statement: labels that had to be drawn twice cost twice."""
    spent = math.fsum(ledger.spent(account, run).pure)
    if settings.label_epsilon is None or spent <= settings.label_epsilon:
        return settings
    return settings.with_(label_epsilon=spent)


def publish_labels(
    y: np.ndarray, settings: DifferentialPrivacy, store: Store, payment: Payment, engine: Engine
) -> PublicLabels:
    """Randomise the labels if requested: once, stored and charged before they are used.

    Theorem: ``docs/fusion.md#f6-labels``.

    Shapes: y (N,).
    """
    epsilon = settings.label_epsilon
    if epsilon is None:
        return PublicLabels(y, y)
    if not np.isin(y, (0.0, 1.0)).all():
        raise ConfigError("label_epsilon: randomised response needs labels of two classes, not other targets")
    question = digest_of(len(y), epsilon)

    def draw() -> np.ndarray:
        noise = NoiseSource(settings.sampler, settings.seed, _LABELS)
        return randomise_labels(y, epsilon, noise, 0, engine)

    labels = store.labels(question, payment, draw)
    classes = labels.astype(np.float64)
    target = soft_targets(classes, epsilon)
    if not 0.0 < float(target.mean()) < 1.0 or math.isinf(float(target.max())):
        raise ConfigError(
            f"label_epsilon: {epsilon:g} is too small for {len(y)} labels: their estimated mean "
            f"{target.mean():.3g} is not between 0 and 1"
        )
    return PublicLabels(classes, target)
