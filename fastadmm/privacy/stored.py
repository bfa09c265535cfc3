"""Fusion messages and randomised labels on disk: drawn once, stored before use, never drawn again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.releases import Payment, Releases

__all__ = ["Store"]


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
        """Whether a party's message was drawn."""
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
        return self._releases.obtain(
            f"fusion-{party}", question, payment, lambda: draw().to_arrays(), FusionMessage.from_arrays
        )
