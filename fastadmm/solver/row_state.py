"""What of a method's state has numbers for each row: taken out, and put back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def rows_of_state(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of some keys, as far as they are there."""
    found = {}
    for path in keys:
        here: Any = state
        for name in path.split("/"):
            here = here.get(name) if isinstance(here, Mapping) else None
        if here is not None:
            found[path] = here
    return found


def without_rows(state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The rest."""
    rest = {}
    for name, value in state.items():
        if name in keys:
            continue
        inner = [key.removeprefix(f"{name}/") for key in keys if key.startswith(f"{name}/")]
        rest[name] = without_rows(value, inner) if inner and isinstance(value, Mapping) else value
    return rest


def with_rows(state: Mapping[str, Any], rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The state again, from what the other two gave."""
    whole = dict(state)
    for path, values in rows.items():
        name, _, inner = path.partition("/")
        whole[name] = with_rows(whole.get(name, {}), {inner: values}) if inner else values
    return whole
