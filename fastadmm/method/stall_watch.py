"""Whether the gap still falls, counted in rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PATIENCE", "StallWatch"]

#: Rounds in which a gap is to fall by a tenth.
PATIENCE = 20

_FALLEN = 0.9

#: After so many without it, rounds may take more exchanges.
_SLOW = 2


@dataclass
class StallWatch:
    """State of the watch."""

    reference: float = math.inf  # gap when it had last fallen by a tenth
    n_still: int = 0  # rounds since then
    n_stalls: int = 0  # how often that were too many

    def stalls(self, gap: float) -> bool:
        """Take in a round's gap; True where it has not fallen by a tenth in so many rounds."""
        if gap <= _FALLEN * self.reference:
            self.reference, self.n_still = gap, 0
            return False
        self.n_still += 1
        if self.n_still < PATIENCE:
            return False
        self.reference, self.n_still = gap, 0
        self.n_stalls += 1
        return True

    @property
    def slow(self) -> bool:
        """Whether the gap has stalled before, or not fallen by a tenth lately."""
        return self.n_stalls > 0 or self.n_still >= _SLOW

    @property
    def remark(self) -> str:
        """What the end of a run says; empty where nothing stalled."""
        told = f"stalled {self.n_stalls} times: the gap had not fallen by a tenth in {PATIENCE} rounds"
        return told if self.n_stalls else ""

    def export(self) -> dict[str, Any]:
        """Everything a resumed run needs."""
        return asdict(self)

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> StallWatch:
        """Inverse of :meth:`export`."""
        return cls(float(saved["reference"]), int(saved["n_still"]), int(saved["n_stalls"]))
