"""What every party that keeps directions checks of coefficients."""

from __future__ import annotations

import numpy as np

from fastadmm.conversation.answering import Unanswerable


class OwnDirections:
    """A party that keeps directions."""

    directions: np.ndarray

    def _own(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients of shape (K,), of as many directions as there are."""
        if len(coefficients) != len(self.directions):
            raise Unanswerable(
                f"{len(coefficients)} coefficients for {len(self.directions)} directions that were sent; "
                "the coordinator's state is another run's"
            )
        return coefficients
