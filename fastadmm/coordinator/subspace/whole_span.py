"""When parties of this process answer with all of their columns at once.

A direction is one message for every party and round. As many directions as a party has columns span all its
weights, whichever they are. Where columns are few it is less work to send a basis at once, the columns
themselves: what is left is Newton's method over all weights and a round that proves its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["FACES", "SPAN", "Rounds", "whole_span_pays"]


class Rounds(NamedTuple):
    """What directions cost, as measured.

    Attributes
    ----------
    number : float
        Rounds that they are expected to take.
    entry, row, each : float
        Nanoseconds of a round: an entry in its passes, a row in what the coordinator does, and what every
        round costs however few its rows.
    """

    number: float
    entry: float
    row: float
    each: float


#: Of `subspace`; and with faces, of `proximal`.
SPAN, FACES = Rounds(8.0, 2.0, 30.0, 5e5), Rounds(10.0, 4.0, 150.0, 5e6)

#: The same of all columns: a pair of them in a Hessian over all weights, a column in the passes of Newton's
#: method.
_PAIR, _COLUMN = 0.08, 3.75

#: Hessians that Newton's method takes; of the squared loss one.
_HESSIANS = 2.0


def whole_span_pays(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    quadratic: bool,
    rounds: Rounds = SPAN,
) -> bool:
    """Whether all columns are less work than rounds by directions.

    Parameters
    ----------
    n_samples : int
        N, of all workers.
    widths : sequence of int
        Columns of each party.
    densities : sequence of float
        Share of each block's entries that are stored.
    most : int
        Messages that a party may keep.
    quadratic : bool
        Whether the loss is: its curvature is the same everywhere.
    rounds : Rounds
        What directions cost.
    """
    columns = sum(widths)
    entries = sum(width * density for width, density in zip(widths, densities))
    by_directions = rounds.number * (rounds.entry * entries + rounds.row + rounds.each / n_samples)
    hessians = 1.0 if quadratic else _HESSIANS
    at_once = hessians * _PAIR * columns**2 + _COLUMN * columns
    return max(widths) <= most and at_once <= by_directions
