"""Bins of a column and their weights of evidence, stored with the column's encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.store.elements import read_array, write_array

if TYPE_CHECKING:
    import h5py

Array = np.ndarray


@dataclass(frozen=True)
class Bins:
    """Bins of one column, which becomes one feature: the weight of evidence of the cell's bin.

    The weight of evidence of a bin is ln(q / p), where p and q are its shares of all rows of class 1 and of
    class 0: it is high where class 1 is rare.
    """

    edges: tuple[float, ...]
    groups: tuple[int, ...]  # bin of each category, in the order of the column's levels
    woe: tuple[float, ...]  # weight of evidence of each of the K bins, and last that of missing cells
    events: tuple[float, ...]
    others: tuple[float, ...]
    low: float = 0.0  # range of the numbers of training; both 0 for categories
    high: float = 0.0  # range of the numbers of training; both 0 for categories

    @property
    def count(self) -> int:
        """Number of bins K, without that of missing cells."""
        return len(self.woe) - 1

    @property
    def knows_missing(self) -> bool:
        """Whether training had missing cells: they are a bin of their own."""
        return self.events[-1] != 0.0 or self.others[-1] != 0.0

    def of_numbers(self, values: Array) -> Array:
        """Bin of each number. Shapes: values (N,)."""
        return np.searchsorted(np.array(self.edges), values, "left")

    def valid(self, n_levels: int) -> bool:
        """Whether its parts agree."""
        size, edges = len(self.woe), np.array(self.edges)
        numbers = np.array([*self.edges, *self.woe, *self.events, *self.others, self.low, self.high])
        if size < 2 or len(self.events) != size or len(self.others) != size or not np.isfinite(numbers).all():
            return False
        if n_levels < 0:
            return len(edges) == size - 2 and not self.groups and bool((np.diff(edges) > 0.0).all())
        inside = all(0 <= group < size - 1 for group in self.groups)
        return not len(edges) and len(self.groups) == n_levels and inside


def write_bins(h5group: h5py.Group, bins: Sequence[Bins | None]) -> None:
    """Write the bins of all columns into an encoder's group, as arrays for all columns together."""
    found = [own for own in bins if own is not None]
    counts = [0 if own is None else own.count for own in bins]
    write_array(h5group, "bin_counts", np.array(counts, dtype=np.int64))
    ranges = [(0.0, 0.0) if own is None else (own.low, own.high) for own in bins]
    write_array(h5group, "bin_range", np.array(ranges, dtype=np.float64))
    groups = [group for own in found for group in own.groups]
    write_array(h5group, "bin_of_level", np.array(groups, dtype=np.int64))
    for key, name in (("edges", "bin_edges"), ("woe", "woe"), ("events", "events"), ("others", "others")):
        values = [value for own in found for value in getattr(own, key)]
        write_array(h5group, name, np.array(values, dtype=np.float64))


def read_bins(h5group: h5py.Group, levels: Sequence[int], place: str) -> list[Bins | None]:
    """Read what :func:`write_bins` wrote."""
    damaged = FormatError(f"{place}: bins of columns do not agree with each other; damaged or edited")
    n = len(levels)
    counts = read_array(h5group, "bin_counts", ndim=1, length=n, kind="i").tolist()
    ranges = read_array(h5group, "bin_range", ndim=2, length=n, kind="f")
    held: dict[str, Any] = {"groups": read_array(h5group, "bin_of_level", ndim=1, kind="i").tolist()}
    for key, name in (("edges", "bin_edges"), ("woe", "woe"), ("events", "events"), ("others", "others")):
        held[key] = read_array(h5group, name, ndim=1, kind="f").tolist()
    if ranges.shape != (n, 2) or min(counts, default=0) < 0:
        raise damaged
    at = dict.fromkeys(held, 0)
    found: list[Bins | None] = []
    for count, n_levels, (low, high) in zip(counts, levels, ranges.tolist(), strict=True):
        if not count:
            found.append(None)
            continue
        widths = dict.fromkeys(("woe", "events", "others"), count + 1)
        widths |= {"edges": count - 1 if n_levels < 0 else 0, "groups": max(n_levels, 0)}
        own = {key: tuple(held[key][at[key] : at[key] + width]) for key, width in widths.items()}
        at = {key: at[key] + widths[key] for key in at}
        bins = Bins(**own, low=low, high=high)
        if not bins.valid(n_levels):
            raise damaged
        found.append(bins)
    if any(at[key] != len(held[key]) for key in at):
        raise damaged
    return found
