"""Shuffle numbers in place, the same way everywhere."""

import numpy as np
from fastadmm.kernels.policy import inline

__all__ = ["shuffle"]

#: Multiplier and increment of a linear congruential generator (Knuth's MMIX).
_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


@inline
def shuffle(numbers, count, state):
    """Shuffle the first ``count`` of some numbers (Fisher and Yates).

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
    count : int
    state : uint64
        Of the generator.

    Returns
    -------
    uint64
        The generator's next state.
    """
    for place in range(count - 1, 0, -1):
        state = state * _MULTIPLIER + _INCREMENT
        other = np.int64((state >> np.uint64(33)) % np.uint64(place + 1))
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return state
