"""Fusion messages and randomised labels on disk: drawn once, stored before use, never drawn again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastadmm.privacy.descent import LocalModel
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.levels import Channel
from fastadmm.privacy.moments import ScoreMoments
from fastadmm.privacy.releases import Payment, Releases

__all__ = ["Store"]

_MODEL = ("intercept", "sigma", "sensitivity")
_CHANNEL = ("epsilon", "n_levels", "center", "clip")


class Store:
    """What a fusion run has released, one file per release.

    Parameters
    ----------
    directory : Path or None
        Made with the first release; None keeps nothing, for runs that cannot be resumed.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._releases = Releases(directory)

    def has_labels(self) -> bool:
        """Whether randomised labels were drawn."""
        return self._releases.holds("labels")

    def labels(self, question: str, payment: Payment, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """The randomised labels of shape (N,): the stored ones, or new ones, stored and charged first.

        Parameters
        ----------
        question : str
            Digest of what they have to answer.
        payment : Payment
        draw : callable
            Makes them.

        Returns
        -------
        ndarray of shape (N,)

        Raises
        ------
        FormatError
            If the stored ones are damaged or answer something else.
        PrivacyBudgetError
            If the budget does not allow them.
        StorageError
            If they cannot be written; then they must not be used.
        """
        return self._releases.obtain(
            "labels", question, payment, lambda: {"labels": draw()}, lambda found: found["labels"]
        )

    def has_message(self, party: str) -> bool:
        """Whether a party's message was drawn.

        Parameters
        ----------
        party : str
        """
        return self._releases.holds(f"fusion-{party}")

    def message(
        self, party: str, question: str, payment: Payment, draw: Callable[[], FusionMessage]
    ) -> FusionMessage:
        """A party's message: the stored one, or a new one that is stored and charged first.

        Parameters
        ----------
        party : str
        question : str
            Digest of the public numbers it has to answer.
        payment : Payment
        draw : callable
            Makes the message.

        Returns
        -------
        FusionMessage

        Raises
        ------
        FormatError
            If the stored message is damaged or answers something else: a second message
            would cost privacy that was not charged.
        PrivacyBudgetError
            If the budget does not allow it.
        StorageError
            If it cannot be written; then it must not be used.
        """
        return self._releases.obtain(f"fusion-{party}", question, payment, lambda: _values(draw()), _message)


def _message(found: dict[str, np.ndarray]) -> FusionMessage:
    model, channel = found["model"], found["channel"]
    origin, sigma = found["moments"]
    return FusionMessage(
        float(found["row_norm"]),
        LocalModel(found["weights"], *(float(v) for v in model)),
        ScoreMoments(found["count"], found["mean"], found["square"], float(origin), float(sigma)),
        Channel(float(channel[0]), int(channel[1]), float(channel[2]), float(channel[3])),
        found["levels"],
    )


def _values(message: FusionMessage) -> dict[str, object]:
    return {
        "row_norm": message.row_norm,
        "weights": message.model.weights,
        "model": [getattr(message.model, name) for name in _MODEL],
        "count": message.moments.count,
        "mean": message.moments.mean,
        "square": message.moments.square,
        "moments": [message.moments.origin, message.moments.sigma],
        "channel": [float(getattr(message.channel, name)) for name in _CHANNEL],
        "levels": message.levels,
    }
