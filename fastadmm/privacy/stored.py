"""Fusion messages and randomised labels on disk: drawn once, stored before use, never drawn again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.releases import Payment, Releases

__all__ = ["Store"]


class Store:
    """What a fusion run has released, one file per release."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self._releases = Releases(directory)

    def has_labels(self) -> bool:
        """Whether randomised labels were drawn."""
        return self._releases.holds("labels")

    def labels(self, question: str, payment: Payment, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """The randomised labels of shape (N,): the stored ones, or new ones, stored and charged first.

        Shapes: the result (N,).
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
        """A party's message: the stored one, or a new one that is stored and charged first."""
        return self._releases.obtain(
            f"fusion-{party}", question, payment, lambda: draw().to_arrays(), FusionMessage.from_arrays
        )
