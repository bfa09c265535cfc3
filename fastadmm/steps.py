"""Steps: kernels that all run for one tile before the next, if possible without the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastadmm.engine.crew import address_of

__all__ = ["Step", "Steps", "Visit", "Written"]

#: Room for a step's arguments at first, in numbers of eight bytes; a larger one gets more.
_ROOM = 128

#: Tiles that run in one call: between two the interpreter has its turn, and an interrupt is noticed.
_BATCH = 64


class Step(NamedTuple):
    """A kernel, or a plain function, to be called with ``(*arguments, start, stop)`` for every tile.

    Attributes
    ----------
    kernel : callable
    arguments : tuple
        C-contiguous arrays, numbers and tuples of these; they must not be replaced while the steps run.
    failed : callable, optional
        Called with a tile's rows where the kernel does not return the end of the tile. It
        raises, or the tile's steps are run again from the first.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    failed: Callable[[int, int], None] | None = None


class Visit(NamedTuple):
    """What is done with the tiles of a block: first the product, later the images.

    Attributes
    ----------
    product, images : Step
    advise : callable, optional
        Told a range of rows some time before they are needed.
    """

    product: Step
    images: Step
    advise: Callable[[tuple[int, int]], None] | None = None


@dataclass(frozen=True)
class Written:
    """A step that is ready to be run by any thread.

    Attributes
    ----------
    step : Step
    returned : ndarray of int64, shape (tiles,)
        What it returned for each tile, if that was an integer.
    code : int
        Of the compiled step; 0 where there is none.
    place : ndarray of int64
        Its arguments.
    """

    step: Step
    returned: np.ndarray
    code: int
    place: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """What it returned, if that was a float."""
        return self.returned.view(np.float64)


class Steps:
    """Runs steps tile by tile.

    Parameters
    ----------
    bounds : ndarray of int64, shape (tiles + 1,)
        Borders of the tiles.
    """

    def __init__(self, bounds: np.ndarray) -> None:
        self.bounds = bounds

    def write(self, step: Step) -> Written:
        """Make a step ready.

        Parameters
        ----------
        step : Step
        """
        from fastadmm.kernels.crew import COMPILED
        from fastadmm.kernels.steps import write_step

        returned = np.zeros(len(self.bounds) - 1, dtype=np.int64)
        place, code = np.empty(_ROOM, dtype=np.int64), 0
        if COMPILED and hasattr(step.kernel, "py_func"):
            address = address_of(step.kernel, (*step.arguments, 0, 0))
            code, size = write_step(place, address, self.bounds, returned, *step.arguments)
            if size > place.nbytes:
                place = np.empty(-(-size // 8), dtype=np.int64)
                code, _ = write_step(place, address, self.bounds, returned, *step.arguments)
        return Written(step, returned, code, place)

    def run(
        self,
        steps: Sequence[Written],
        first: int,
        last: int,
        advise: Callable[[tuple[int, int]], None] = lambda rows: None,
    ) -> None:
        """Run steps for a range of tiles, in order.

        Parameters
        ----------
        steps : sequence of Written
        first, last : int
        advise : callable
            Told the rows of tiles some time before they are run.
        """
        bounds = self.bounds
        batches = [(a, min(a + _BATCH, last)) for a in range(first, last, _BATCH)]
        for k, (tile, end) in enumerate(batches):
            if k + 1 < len(batches):
                following = batches[k + 1]
                advise((int(bounds[following[0]]), int(bounds[following[1]])))
            while (tile := self._run(steps, tile, end)) < end:
                start, stop = int(bounds[tile]), int(bounds[tile + 1])
                for written in steps:
                    if written.step.failed is not None and written.returned[tile] != stop:
                        written.step.failed(start, stop)
                        break

    def _run(self, steps: Sequence[Written], first: int, last: int) -> int:
        """Run steps for a range of tiles; the first that is not done."""
        from fastadmm.kernels.steps import run_steps

        if all(written.code for written in steps):
            numbers = [(w.code, w.place.ctypes.data, w.returned.ctypes.data) for w in steps]
            codes, places, returned = np.array(numbers, dtype=np.int64).T.copy()
            checked = np.array([w.step.failed is not None for w in steps])
            return int(run_steps(codes, places, returned, self.bounds[1:], checked, first, last))
        for tile in range(first, last):
            start, stop = int(self.bounds[tile]), int(self.bounds[tile + 1])
            for written in steps:
                kernel, arguments, failed = written.step
                answer = kernel(*arguments, start, stop)
                if isinstance(answer, float):
                    written.values[tile] = answer
                elif isinstance(answer, int | np.integer):
                    written.returned[tile] = answer
                if failed is not None and written.returned[tile] != stop:
                    return tile
        return last
