"""What every x-update offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fastadmm.blocks import FeatureBlock
from fastadmm.engine import Engine

__all__ = ["XUpdate"]


class XUpdate(ABC):
    """Solver of one party's regularised least-squares problem."""

    #: Name in logs and reports.
    name: ClassVar[str]

    @abstractmethod
    def __init__(self, block: FeatureBlock) -> None:
        """Keep the block; do no work yet."""

    @abstractmethod
    def prepare(self, engine: Engine) -> None:
        """Compute what does not depend on the penalty; called once."""

    @abstractmethod
    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        """Minimise ``mu/2 |x|^2 + 1/2 |D x - w|^2``.

        Parameters
        ----------
        w : ndarray of shape (N,)
            Target given by the coordinator.
        mu : float
            ``lambda W / (tau r)``, positive.
        start : ndarray of shape (d,)
            Warm start; direct methods ignore it.
        engine : Engine

        Returns
        -------
        ndarray of shape (d,)
        """
