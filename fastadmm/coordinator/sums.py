"""The coordinator's side of sums only: it asks all parties the same, and reads the sum of their answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.secrecy.grid import from_grid, from_whole
from fastadmm.secrecy.masks import add_up

__all__ = ["Sums"]


class Sums:
    """Exchanges whose answers are masked.

    Parameters
    ----------
    n_parties : int
        M.

    Attributes
    ----------
    number : int
        Of the last exchange.
    """

    def __init__(self, n_parties: int) -> None:
        self.n_parties = n_parties
        self.number = 0

    def introduce(self) -> Talk[None]:
        """Let parties make keys, and tell all of them those of all."""
        shown = yield from ask_all(self.n_parties, "show_key")
        keys = np.concatenate([answer["key"] for answer in shown])
        yield from ask_all(self.n_parties, "introduce", keys=keys)

    def ask(
        self, name: str, step: float | None = None, **arguments: Any
    ) -> Talk[tuple[np.ndarray, list[float]]]:
        """Ask every party for one masked answer.

        Parameters
        ----------
        name : str
            Of the call.
        step : float, optional
            Of the grid that their rows are on, where they have any.
        **arguments

        Returns
        -------
        rows : ndarray of shape (n,)
        numbers : list of float
            Sums over all parties.
        """
        self.number += 1
        if step is not None:
            arguments["step"] = step
        answers = yield from ask_all(self.n_parties, name, exchange=self.number, **arguments)
        total = add_up(answers)
        return from_grid(total.rows, step or 1.0), from_whole(total.numbers)
