r"""The gate: what leaves a party of a protected run, and with which outcome.

Protected runs are those of modes "message" and "fusion" and those of sums only. Whether a party answers
there, with which code and in which size, must not depend on its rows: a refusal that does is a release that
nobody charged. So nothing that is computed from rows may end in an error. Three rules do it:

- what would go wrong with *features* is found when their owner opens them, before anybody asks;
- what would go wrong with a *request* is refused by its own numbers, whatever the rows are;
- what goes wrong all the same becomes an answer like any other: a number out of range counts as the end of
  the range, a message without a certificate as the public centre.

``docs/privacy.md#outcomes-are-public`` says why no theorem suffers.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Answering, Unanswerable
from fastadmm.conversation.calls import CALLS
from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError

#: Numbers of features, requests and states are no larger: ten of them multiplied do not overflow.
LARGEST = 2.0**100

#: A session that has refused so many requests has ended: no honest run comes near.
MOST_REFUSALS = 100


class GatedParty(Answering):
    """A protected run's party, which refuses by requests alone: ``docs/privacy.md#outcomes-are-public``."""

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        _check_asked(name, arguments)
        return super().answer(name, arguments)


def _check_asked(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse numbers that products with any features could overflow by."""
    kinds = CALLS[name].arguments if name in CALLS else {}
    for key, value in arguments.items():
        number = isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype == np.float64)
        if not number or key in ("step", "units"):
            continue  # a step only divides; what units make of a direction is saturated
        sizes = np.abs(value)
        if not float(np.max(sizes, initial=0.0)) <= LARGEST:
            raise Unanswerable(f"call {name!r}: a number of {key!r} is beyond {LARGEST:.3g}")
        if kinds.get(key, "").startswith("positive") and not float(np.min(sizes, initial=1.0)) >= 1 / LARGEST:
            raise Unanswerable(f"call {name!r}: a number of {key!r} is below {1 / LARGEST:.3g}")


def check_features(block: FeatureBlock, place: str, engine: Engine) -> None:
    """Refuse features that answers could overflow by: ``docs/privacy.md#outcomes-are-public``.

    Shapes: block (N, d).
    """
    n, d = block.whole_shape
    largest = block.largest if math.isfinite(block.largest) else block.find_largest(engine)
    if not largest * math.sqrt(n * d) <= LARGEST:
        raise InputError(
            f"{place}: holds a value of {largest:.3g}, too large for {n} x {d} numbers to be multiplied "
            "safely; rescale its column (for example convert --standardize)"
        )


def saturated(values: np.ndarray, limit: float) -> np.ndarray:
    """Numbers within a range; what is beyond counts as its end, what is none as its upper end.

    Each entry by itself, so no two arrays get farther apart: ``docs/privacy.md#outcomes-are-public``.

    Returns: the given array itself where nothing is beyond.
    """
    if float(np.abs(values).max(initial=0.0)) <= limit:
        return values
    return np.clip(np.nan_to_num(values, nan=limit, posinf=limit, neginf=-limit), -limit, limit)


def certified(message: np.ndarray, error: float, slack: float) -> np.ndarray:
    """A message if its certificate holds, else zeros: ``docs/privacy.md#t6-inexact-solver``.

    Shapes: message (N,).
    """
    return message if error <= slack else np.zeros_like(message)
