"""What parties with directions have in common: their coefficients, and all columns as directions at once."""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable
from fastadmm.engine.engine import Engine

__all__ = ["SendsColumns"]


class SendsColumns:
    """A party that keeps directions."""

    block: FeatureBlock
    engine: Engine
    directions: np.ndarray

    def send_columns(self, out: np.ndarray) -> None:
        """Write all columns, as rows, to ``out`` of shape (d, N): the directions are the unit vectors."""
        self.directions = np.eye(self.block.shape[1])
        self.block.columns_into(out, self.engine)

    def _own(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients of shape (K,), of as many directions as there are."""
        if len(coefficients) != len(self.directions):
            raise Unanswerable(
                f"{len(coefficients)} coefficients for {len(self.directions)} directions that were sent; "
                "the coordinator's state is another run's"
            )
        return coefficients
