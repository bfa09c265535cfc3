r"""What a step changes, weight by weight: exact where the objective's own rounding would hide it.

A slope that keeps a relative gap of 1e-6 open may promise as little as 1e-20 of the objective: with a norm
the gap is linear in the slope, and a step gains its square. The difference of two objectives cannot
show that. Half the sum of the slopes at both ends of a short step, times the step, keeps all digits of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

Array = np.ndarray

#: The gain of a step that promises less than this share of the loss is hidden by the loss's rounding; a step
#: that promises less than this share of the objective gains nothing.
FLAT, NOTHING = 1e-13, 1e-28


class Place(Protocol):
    """A point with the loss there, and its slope in intercepts (first, if there are any) and weights."""

    slope: Array
    value: float


def change_along(
    slope: Array, step: Array, c: Array, x: Array, l1: float | Array, l2: float | Array
) -> float:
    r"""Change, along a step, of the loss's tangent and of :math:`l_1 \|x\|_1 + \tfrac{l_2}{2} \|x\|^2`.

    Shapes: l1, l2 (d,).
    """
    lead = step.shape[-1] - c.shape[-1]
    moves = step[..., lead:]
    own = slope[..., lead:] * moves
    own += l1 * (np.abs(x) - np.abs(c))
    if np.any(l2):
        own += 0.5 * l2 * moves * (x + c)
    change = float(own.sum())
    return change + float(np.sum(slope[..., :lead] * step[..., :lead])) if lead else change


def change_to(
    here: Place,
    there: Place,
    step: Array,
    c: Array,
    x: Array,
    l1: float | Array,
    l2: float | Array,
    promised: float,
) -> float:
    """Of loss and penalty from one place to another, by a step that promised so much less."""
    if promised <= FLAT * abs(here.value):
        return change_along(0.5 * (here.slope + there.slope), step, c, x, l1, l2)
    return there.value - here.value + change_along(np.zeros_like(step), step, c, x, l1, l2)
