"""Calls to several parts of one party in one call: what a party of several classes is asked and answers.

A call of one predictor per sample, ``best_response``, becomes ``best_response_classes``: rows become a row
for each class, and everything else stands, class by class, in ``values``. ``layout`` holds a row for each
class: whether it is asked at all, and then for each value, in the order of the table, whether it is there, or
its shape; -1 where it is not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastadmm.errors import FormatError

Array = np.ndarray

#: One dictionary of values for each class; None where a class is not asked.
ByClass = Sequence[dict[str, Any] | None]

_DIMENSIONS = {"vector": 1, "vector?": 1, "matrix": 2, "matrix?": 2}

#: Messages that classes have in common: one class sends them for all.
_MANY = "class rows?"

#: No part has so many numbers.
_LARGEST = 2.0**31


def by_class_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """What of one part is of these kinds, as kinds of several."""
    rows = {key: "class rows?" for key, kind in kinds.items() if _is_rows(kind)}
    return {**rows, "layout": "matrix", "values": "vector"}


def _is_rows(kind: str) -> bool:
    return kind.removesuffix("?").endswith("rows")


def pack(parts: ByClass, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Values of several parts as those of one call."""
    layout, values = [], [np.empty(0)]
    rows: dict[str, np.ndarray] = {}
    for c, part in enumerate(parts):
        line = [float(part is not None)]
        for key, kind in kinds.items():
            value, n = None if part is None else part.get(key), _DIMENSIONS.get(kind, 0)
            if value is None:
                line += [-1.0] * max(n, 1)
            elif kind == _MANY:
                rows[key] = value
                line.append(0.0)
            elif _is_rows(kind):
                rows.setdefault(key, np.zeros((len(parts), len(value))))[c] = value
                line.append(0.0)
            else:
                line += np.shape(value) if n else [0.0]
                values.append(np.ravel(value).astype(np.float64))
        layout.append(line)
    return {**rows, "layout": np.array(layout, dtype=np.float64), "values": np.concatenate(values)}


def unpack(values: Mapping[str, Any], kinds: Mapping[str, str]) -> list[dict[str, Any] | None]:
    """Inverse of :func:`pack`; raises FormatError where the parts do not fit together."""
    layout, numbers, at = values["layout"], values["values"], 0
    width = 1 + sum(max(_DIMENSIONS.get(kind, 0), 1) for kind in kinds.values())
    if layout.shape[1] != width:
        raise FormatError(f"'layout' has {layout.shape[1]} columns instead of {width}")
    sizes = (layout >= -1.0) & (layout < _LARGEST) & (layout % 1.0 == 0.0)
    if not (np.isin(layout[:, 0], (0.0, 1.0)).all() and sizes.all()):
        raise FormatError("'layout' holds no sizes")
    found: list[dict[str, Any] | None] = []
    for c, line in enumerate(layout):
        part: dict[str, Any] = {}
        column = 1
        for key, kind in kinds.items():
            n = _DIMENSIONS.get(kind, 0)
            shape = tuple(int(size) for size in line[column : column + max(n, 1)])
            column += max(n, 1)
            if min(shape) < 0:
                continue
            if kind == _MANY and key in values:
                part[key] = values[key]
                continue
            if _is_rows(kind):
                if key not in values or len(values[key]) != len(layout):
                    raise FormatError(f"{key!r} has not a row for each class")
                part[key] = values[key][c]
                continue
            size = math.prod(shape) if n else 1
            if at + size > len(numbers):
                raise FormatError("'values' ends before what 'layout' announces")
            own = numbers[at : at + size]
            at += size
            scalar = bool(own[0]) if kind.startswith("flag") else float(own[0]) if not n else None
            part[key] = own.reshape(shape).copy() if n else scalar
        found.append(part if line[0] else None)
    if at != len(numbers):
        raise FormatError("'values' goes on after what 'layout' announces")
    return found
