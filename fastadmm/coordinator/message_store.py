"""Room for the messages of all parties: in memory, or in a scratch file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.spilled import SpilledRows
from fastadmm.files.atomic import storage_errors


class MessageStore:
    """Messages, one below another, and room for those to come."""

    def __init__(self, n_samples: int, engine: Engine) -> None:
        self.rows, self.engine = np.empty((0, n_samples)), engine
        self.directory: Path | None = None
        self._spilled: SpilledRows | None = None

    def close(self) -> None:
        """Hold none, at the end of a run: their memory is given back."""
        self.rows = self.rows[:0].copy()

    def adopt(self, messages: np.ndarray) -> None:
        """Hold other messages, of shape (K, N)."""
        if messages is not self.rows:
            self.rows, self._spilled, self.engine.spilled = messages, None, None

    def take(self, messages: np.ndarray, count: int, room: int) -> None:
        """Hold saved messages, with room behind them or without; raises ValueError where they do not fit.

        They are taken over where they can be: all of them twice may not fit.
        """
        n = self.rows.shape[1]
        if messages is not self.rows:
            messages = np.require(messages, np.float64, ["C", "O", "W"])
        if messages.shape not in ((count, n), (count + room, n)) or not all(
            np.isfinite(message).all() for message in messages[:count]
        ):
            raise ValueError("messages")
        self.adopt(messages)

    def make_room(self, used: int, least: int, most: int) -> None:
        """Make room for some messages."""
        held = self.rows[:used]
        grows = least > len(self.rows)
        if grows:
            self._new(least, most)
        self._reserve(least)
        if grows and used:
            rows = self.rows[:used]
            self.engine.by_leaf(
                lambda part: np.copyto(rows[:, slice(*part)], held[:, slice(*part)]),
                self.engine.leaves(held.shape[1]),
            )

    def _reserve(self, count: int) -> None:
        if self._spilled is not None and self.directory is not None:
            with storage_errors(self.directory):
                self._spilled.reserve(count)

    def place(self, count: int, room: int) -> np.ndarray:
        """Hold messages that are still to be read, and room behind them.

        Shapes: the result (count + room, N).
        """
        self._new(count, count + room)
        self._reserve(count)
        return self.rows

    def _new(self, least: int, most: int) -> None:
        """Rows for all that may come: what nothing is written to takes no memory."""
        n = self.rows.shape[1]
        if self.directory is not None:
            with storage_errors(self.directory):
                self._spilled = self.engine.spilled = SpilledRows(self.directory, (max(least, most), n))
            self.rows = self._spilled.array
            return
        while True:
            try:
                self.rows = np.empty((max(least, most), n))
                return
            except MemoryError:  # more than the system has
                if most <= least:
                    raise
                most //= 2

    def keep(self, stay: Sequence[int]) -> None:
        """Close the gaps that messages leave: of those that are held, the ones in places ``stay`` stay."""
        moves, rows = [(k, place) for k, place in enumerate(stay) if k != place], self.rows

        def piece(part: tuple[int, int]) -> None:
            for k, place in moves:  # one by one: NumPy would copy all of them first
                rows[k, slice(*part)] = rows[place, slice(*part)]

        if moves:
            self.engine.by_leaf(piece, self.engine.leaves(self.rows.shape[1]))
