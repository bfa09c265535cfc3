"""The coordinator's state: everything that is needed to go on, and nothing private."""

from __future__ import annotations

import numpy as np

__all__ = ["SharedState"]


class SharedState:
    """Messages, consensus variable and dual variable, in one vector.

    One flat vector lets an acceleration step treat the whole state as a point.

    Shapes: messages (M, N); z, u (N,).
    """

    def __init__(self, n_parties: int, n_samples: int, vector: np.ndarray | None = None) -> None:
        m, n = n_parties, n_samples
        self.vector = np.zeros((m + 2) * n) if vector is None else vector
        self.messages = self.vector[: m * n].reshape(m, n)
        self.z = self.vector[m * n : (m + 1) * n]
        self.u = self.vector[(m + 1) * n :]

    def like(self, vector: np.ndarray) -> SharedState:
        """A state of the same shape with given values."""
        return SharedState(*self.messages.shape, vector)

    def total(self) -> np.ndarray:
        """Sum of the messages over parties, in the parties' order, of shape (N,)."""
        return self.messages.sum(axis=0)
