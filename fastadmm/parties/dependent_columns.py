"""Columns that depend on each other: moves of weights that change no message, as within one-hot columns.

Where the regulariser is linear on a face, a search along such a move would go far and find nothing.
"""

import numpy as np

from fastadmm.engine.singular import singular
from fastadmm.problem.penalty import PartyPenalty

Array = np.ndarray

#: Columns depend on each other where one adds less than this share of what another does.
DEPENDENT = 1e-10

#: Weights that a move leaves this share of are zero but for rounding.
_NOTHING = 1e-13


def independent(images: Array, order: Array) -> Array:
    """Which of the columns ``order`` depend on none before them in it; bool of its shape (n,).

    Shapes: images (k, d), of the columns; order (n,).
    """
    shares = np.abs(np.diag(np.linalg.qr(images[:, order], mode="r")))
    own = np.pad(shares, (0, len(order) - len(shares)))
    return own > DEPENDENT * own.max(initial=0.0)


def at_a_corner(x: Array, images: Array, scale: Array, penalty: PartyPenalty) -> Array:
    """Weights with the same message whose free columns are independent, and whose norm is no larger.

    Norms are sums of absolute values: along a move that changes no message, one of its two ways does not
    raise them until a weight meets a kink or bound.

    Shapes: x, scale, the result (d,); images (k, d), of columns less their scale.
    """
    free = np.flatnonzero(~penalty.held(x))
    if len(free) == 0:
        return x
    _, sizes, right = singular(images[:, free], whole=True)
    moves = np.zeros((len(x), len(free) - int((sizes > DEPENDENT * sizes[0]).sum())))
    moves[free] = (right[len(free) - moves.shape[1] :] / scale[free]).T
    while moves.shape[1]:
        move = moves[:, 0]
        if float(np.sign(x) @ move) > 0.0:
            move = -move
        step = 2.0 * float(np.abs(x).max()) / float(np.abs(move[move != 0.0]).min()) * move
        at, value = penalty.crossings(x, x + step)
        first = int(np.argmin(at))
        if not at[first] < 1.0:
            moves = moves[:, 1:]  # nothing holds them
            continue
        moved = x + at[first] * step
        moved[np.abs(moved) <= _NOTHING * np.abs(x)] = 0.0
        moved[first] = value[first]
        x = penalty.constraint.project(moved)
        for held in np.flatnonzero(penalty.held(x) & moves.any(axis=1)):
            moves = _without(moves, int(held))
    return x


def _without(moves: Array, column: int) -> Array:
    """Combinations of moves that leave a column alone, at most one less. Shapes: moves (d, k)."""
    pivot = int(np.argmax(np.abs(moves[column])))
    if (own := moves[column, pivot]) == 0.0:
        return moves  # another's going has freed them
    rest = np.delete(moves, pivot, axis=1)
    rest -= np.outer(moves[:, pivot], rest[column] / own)
    rest[column] = 0.0
    return rest
