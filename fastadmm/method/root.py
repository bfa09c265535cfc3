"""Root of an increasing scalar function: the intercept's optimality condition."""

from __future__ import annotations

import math
from collections.abc import Callable

_MAX_STEPS = 200

#: Largest last step, relative to ``1 + |root|``.
_LAST_STEP = 1e-13


def increasing_root(function: Callable[[float], tuple[float, float]], start: float) -> float:
    """Find where an increasing function crosses zero, by Newton inside a bracket."""
    point, low, high = start, -math.inf, math.inf
    for _ in range(_MAX_STEPS):
        value, slope = function(point)
        if value == 0.0:
            return point
        if value > 0.0:
            high = point
        else:
            low = point
        following = point - value / slope if slope > 0.0 else math.nan
        if not (math.isfinite(low) and math.isfinite(high)) and math.isfinite(following):
            # A nearly flat function sends Newton far beyond any root: walk in growing steps.
            limit = 1.0 + 2.0 * abs(point - start)
            following = min(max(following, point - limit), point + limit)
        if not low < following < high:
            if math.isfinite(low) and math.isfinite(high):
                following = 0.5 * (low + high)
            elif not math.isfinite(following):
                # flat so far: walk away from the known side in growing steps
                known = high if math.isfinite(high) else low
                following = known - math.copysign(1.0 + abs(known), value)
        if abs(following - point) <= _LAST_STEP * (1.0 + abs(point)):
            return point
        point = following
    function(point)
    return point
