"""How far a curvature has moved from the metric that parties have factorised."""

import numpy as np
from fastadmm.kernels.exponential import log1p_unit
from fastadmm.kernels.policy import kernel

#: Samples per block: all that is computed of them stays in the first-level cache.
_BLOCK = 1024

#: A double is ``2**(exponent - 1023) * (1 + fraction)``, with the exponent above 52 bits of the fraction.
_FRACTION_BITS, _EXPONENT_OF_ONE = 52, 1023
_FRACTION, _ONE = (1 << _FRACTION_BITS) - 1, _EXPONENT_OF_ONE << _FRACTION_BITS

_LOG_2 = 0.6931471805599453


@kernel
def metric_drift(curvature, metric, floor, out, start, stop):
    """Add weighted squares of the logarithm of curvature over metric, and the weights, to two sums.

    Shapes: curvature (N,); metric (N,); out (3,).
    ``curvature``: taken as ``floor`` where it is less. ``metric``: positive. ``floor``: positive. ``out``:
    sum of ``(curvature + metric) * log(curvature / metric)**2``, of ``curvature + metric``, and of the
    curvature as it is.
    """
    ratio, squares = np.empty(_BLOCK), np.empty(_BLOCK)
    weights, ones = np.empty(_BLOCK), np.ones(_BLOCK)
    bits, fraction = ratio.view(np.int64), np.empty(_BLOCK, dtype=np.int64)
    exponent, mantissa = np.empty(_BLOCK, dtype=np.int32), fraction.view(np.float64)
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        own, other = curvature[begin : begin + size], metric[begin : begin + size]
        for k in range(size):
            h = max(own[k], floor)
            ratio[k] = h / other[k]
            weights[k] = h + other[k]
        for k in range(size):
            exponent[k] = (bits[k] >> _FRACTION_BITS) - _EXPONENT_OF_ONE
            fraction[k] = (bits[k] & _FRACTION) | _ONE
        for k in range(size):
            log = exponent[k] * _LOG_2 + log1p_unit(mantissa[k] - 1.0)
            squares[k] = log * log
        out[0] += np.dot(squares[:size], weights[:size])
        out[1] += np.dot(weights[:size], ones[:size])
        out[2] += np.dot(own, ones[:size])
