"""Which direction the parties send next: block Newton or block gradient.

The two complement each other, so neither is sent more than twice in a row.
Otherwise the kind is chosen whose last direction brought the
larger decrease of the objective, relative to the gap at that time. The choice uses
only the records of the run.
"""

from __future__ import annotations

import numpy as np

#: The first rounds alternate: nothing can be compared yet.
_FIRST_ROUNDS = 3


class DirectionChoice:
    """The kinds sent so far and the decrease that each brought. Shapes: gain (2,)."""

    def __init__(self) -> None:
        self.n_rounds = 0
        self.last: list[bool] = []
        self.gain = np.zeros(2)

    def newton(self) -> bool:
        """Whether the next directions are Newton directions."""
        if self.n_rounds < _FIRST_ROUNDS:
            return self.n_rounds % 2 == 0
        if self.last[0] == self.last[1]:
            return not self.last[1]
        return bool(self.gain[1] > self.gain[0])

    def record(self, newton: bool, decrease: float, gap: float) -> None:
        """Note a round."""
        self.n_rounds += 1
        self.last = [*self.last[-1:], newton]
        self.gain[int(newton)] = decrease / gap if gap > 0.0 else 0.0

    def export(self) -> np.ndarray:
        """State as numbers, of shape (5,)."""
        last = [float(kind) for kind in [False, False, *self.last][-2:]]
        return np.array([self.n_rounds, *last, *self.gain])

    def restore(self, saved: np.ndarray) -> None:
        """Inverse of :meth:`export`."""
        self.n_rounds = int(saved[0])
        self.last = [bool(kind) for kind in saved[1:3]][2 - min(2, self.n_rounds) :]
        self.gain = np.array(saved[3:5])
