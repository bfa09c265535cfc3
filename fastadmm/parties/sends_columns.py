"""What parties of this process do where all of their columns are directions at once."""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.block import FeatureBlock
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
