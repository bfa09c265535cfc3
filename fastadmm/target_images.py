r"""What a party knows of the target of the next x-update: its image :math:`D_m^\top w_m`.

The target is linear in the coordinator's state. So the image of a target at an
extrapolated state is the same combination of images at earlier states, and a
party that hears how the coordinator combined them needs no pass over its data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["TargetImages", "Turn"]

Array = np.ndarray


@dataclass(frozen=True)
class Turn:
    """Where the coordinator goes on from after a round.

    Attributes
    ----------
    taken_back : bool
        From the last result that was accepted; the acceleration has forgotten everything.
    slot : int or None
        Where it stored the difference between this result and the one before; None if nowhere.
    weights : ndarray of shape (count,) or None
        What it took off the new result of each stored difference; None without an extrapolation.
    """

    taken_back: bool = False
    slot: int | None = None
    weights: Array | None = None


class TargetImages:
    """Images of one party's targets, combined as the coordinator combines its states.

    Parameters
    ----------
    size : int
        d.
    memory : int
        Differences that the acceleration keeps.

    Attributes
    ----------
    current : ndarray of shape (d,) or None
        Image of the next target; None where it is not known, and takes a pass.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._differences = np.zeros((memory, size))
        self.forget()

    def forget(self) -> None:
        """Know nothing: the targets changed otherwise than by a turn, for instance with the penalty."""
        self.current: Array | None = None
        self._reached: Array | None = None
        self._last: Array | None = None
        self._known = np.zeros(len(self._differences), dtype=np.int64)

    def follow(self, turn: Turn, image: Array) -> None:
        """Take in a round.

        Parameters
        ----------
        turn : Turn
        image : ndarray of shape (d,)
            Image of the target at the round's own result; kept.
        """
        if turn.taken_back:
            self.current, self._last = self._reached, None
            self._known[:] = 0
            return
        self._reached = image
        if turn.slot is not None:
            self._known[turn.slot] = self._last is not None
            if self._last is not None:
                np.subtract(image, self._last, out=self._differences[turn.slot])
        self._last = image
        self.current = image
        if turn.weights is not None:
            n = len(turn.weights)
            self.current = image - turn.weights @ self._differences[:n] if self._known[:n].all() else None

    def export(self) -> dict[str, Array]:
        """Everything a resumed run needs to go on bit for bit; the party's own."""
        images = {"current": self.current, "reached": self._reached, "last": self._last}
        saved = {f"image_{key}": value for key, value in images.items() if value is not None}
        if self._known.any():
            saved |= {"image_differences": self._differences, "image_known": self._known}
        return saved

    def restore(self, saved: dict[str, Array]) -> None:
        """Inverse of :meth:`export`; what is absent is not known."""
        self.forget()
        size = self._differences.shape[1]

        def read(key: str) -> Array | None:
            if f"image_{key}" not in saved:
                return None
            value = np.array(saved[f"image_{key}"], dtype=np.float64)
            if value.shape != (size,):
                raise ValueError(f"image_{key}")
            return value

        self.current, self._reached, self._last = read("current"), read("reached"), read("last")
        if "image_known" in saved:
            self._differences[:] = saved["image_differences"]
            self._known[:] = saved["image_known"]
