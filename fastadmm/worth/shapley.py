r"""Shapley values of a game that is known in full, in exact arithmetic.

The value of player i in a game v over the players 1..M is

.. math:: \phi_i = \sum_{S \not\ni i} \frac{|S|!\,(M - |S| - 1)!}{M!}\,\bigl(v(S \cup i) - v(S)\bigr),

the mean of what i adds over all M! orders in which the players may come together
(Shapley, 1953). It is the only division of v(all) - v(none) that is symmetric,
gives nothing to a player who adds nothing, and is linear in v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def shapley_values(values: Sequence[float]) -> list[Fraction]:
    """Shapley value of every player."""
    n_players = len(values).bit_length() - 1
    if len(values) != 1 << n_players:
        raise ValueError(f"values: {len(values)} coalitions; a game has a power of two of them")
    exact = [Fraction(value) for value in values]  # OverflowError or ValueError where not finite
    total = math.factorial(n_players)
    # Whole numbers of orders: one division at the end.
    orders = [math.factorial(s) * math.factorial(n_players - s - 1) for s in range(n_players)]
    shares = []
    for i in range(n_players):
        player = 1 << i
        added = sum(
            orders[mask.bit_count()] * (exact[mask | player] - exact[mask])
            for mask in range(len(exact))
            if not mask & player
        )
        shares.append(Fraction(added, total))
    return shares
