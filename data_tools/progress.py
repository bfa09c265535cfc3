"""How far a conversion is."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(stage, done, total)``.
Progress = Callable[[str, int, int], None]


class Steps:
    """Adds up the steps of one stage."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress, self._stage, self._total = progress, stage, total
        self._done = 0

    def __call__(self, step: int) -> None:
        self._done = min(self._total, self._done + step)
        self._progress(self._stage, self._done, self._total)
