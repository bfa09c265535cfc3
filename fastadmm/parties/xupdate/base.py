"""What every x-update offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.regularizers import Regularizer


class XUpdate(ABC):
    """Solver of one party's regularised least-squares problem."""

    #: Name in logs and reports.
    name: ClassVar[str]

    def __init__(self, block: FeatureBlock) -> None:
        #: What it solves for; nothing is computed before :meth:`prepare`.
        self.block = block

    @abstractmethod
    def prepare(self, engine: Engine) -> None:
        """Compute what does not depend on the penalty; called once."""

    @abstractmethod
    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        """Minimise ``mu R(x) + 1/2 |D x - w|^2``; without more said, ``R = 1/2 |x|^2``.

        Shapes: w (N,); start, the result (d,).
        """


class PenalisedUpdate(XUpdate):
    r"""Solver of :math:`\min_{x \in X} \mu R(x) + \tfrac12 \|D x - w\|^2` beyond squared l2.

    Shapes: block (N, d).
    """

    def __init__(self, block: FeatureBlock, regularizer: Regularizer, constraint: Constraint) -> None:
        super().__init__(block)
        self.regularizer, self.constraint = regularizer, constraint

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        return self.minimise(self.block.transposed_product(w, engine), mu, start, engine)

    @abstractmethod
    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        """Solve with ``right = D.T w`` of shape (d,), all that matters of the target."""

    def minimise_around(
        self, point: np.ndarray, slope: np.ndarray, mu: float, start: np.ndarray, engine: Engine
    ) -> np.ndarray:
        """Minimise ``mu R(x) + <slope, x> + 1/2 |D (x - point)|^2``; all of shape (d,)."""
        return self.minimise(self.normal(point, engine) - slope, mu, start, engine)

    def normal(self, x: np.ndarray, engine: Engine) -> np.ndarray:
        """``D.T D x`` for x of shape (d,); without a pass over the block where the Gram matrix is kept."""
        return self.block.transposed_product(self.block.product(x, engine), engine)
