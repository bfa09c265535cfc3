"""Timings that other people's load does not change: the reference kernel runs before and after each call.

Both are measured in seconds of the processor, not of the clock, on one thread, so a busy machine
lengthens neither by waiting; what it does to caches and clock rates, it does to both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from reference import reference_call

__all__ = ["Turns"]


class Turns:
    """Runs of one call in turn with the reference kernel.

    Parameters
    ----------
    call : callable
        What is timed.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._own: list[float] = []
        self._reference: list[float] = []

    def reference(self) -> None:
        """Time the reference kernel once."""
        self._reference.append(_seconds(reference_call))

    def call(self, *arguments: Any) -> Any:
        """Time the call once; what it returned."""
        result = None

        def run() -> None:
            nonlocal result
            result = self._call(*arguments)

        self._own.append(_seconds(run))
        return result

    def ratio(self, warmup: int) -> dict[str, float]:
        """Quartiles of the call's time in units of the reference, without the first ``warmup`` calls.

        Returns
        -------
        dict
            ``ratio`` (the median), ``low`` and ``high`` (the quartiles).
        """
        self.reference()
        around = [0.5 * (before + after) for before, after in pairwise(self._reference)]
        ratios = [own / reference for own, reference in zip(self._own, around, strict=True)]
        low, ratio, high = np.percentile(ratios[warmup:], [25, 50, 75]).tolist()
        return {"ratio": ratio, "low": low, "high": high}


def _seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin
