"""The coordinator's state: everything that is needed to go on, and nothing private."""

from __future__ import annotations

import numpy as np

__all__ = ["SharedState"]


class SharedState:
    """Messages, consensus variable and dual variable, in one vector.

    One flat vector lets an acceleration step treat the whole state as a point.

    Parameters
    ----------
    n_parties, n_samples : int
        M and N.
    vector : ndarray of shape ((M + 2) N,), optional
        Existing values; zero by default, the paper's initialisation.

    Attributes
    ----------
    messages : ndarray of shape (M, N)
        Row m is the last message D_m x_m.
    z : ndarray of shape (N,)
        Consensus variable for ``sum_m D_m x_m`` (offset and intercept excluded).
    u : ndarray of shape (N,)
        Dual variable, equal to the loss gradient after each z-update.
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
