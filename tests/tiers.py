"""Which tests `make test` runs, and which are left to `make test-repeats`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest

#: Of every test file, the number of tests that `make test` runs.
BEFORE_A_COMMIT = pytest.StashKey[Counter[str]]()

GOLDEN = (5**0.5 - 1) / 2


def representatives(cases: Sequence[Mapping[str, int]], n_wanted: int) -> list[int]:
    """Positions of cases that show as many values as they can, then as many pairs of values."""
    kept: list[int] = []
    seen: set[object] = set()

    def shown(case: Mapping[str, int]) -> tuple[set[object], set[object]]:
        return set(case.items()), set(combinations(sorted(case.items()), 2))

    def news(place: int) -> tuple[int, ...]:
        return tuple(len(values - seen) for values in shown(cases[place]))

    # Among equals the next is far from those before it: neighbours are often of one kind.
    left = sorted(range(len(cases)), key=lambda place: place * GOLDEN % 1)
    while left and len(kept) < n_wanted:
        best = max(left, key=news)
        left.remove(best)
        kept.append(best)
        seen.update(*shown(cases[best]))
    return kept


def mark_repeats(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark all cases of a test but its representatives, and count what is left for each file."""
    groups: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        marked = item.get_closest_marker("slow") or item.get_closest_marker("repeats")
        if isinstance(item, pytest.Function) and item.get_closest_marker("representatives") and not marked:
            groups[item.nodeid.partition("[")[0]].append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("representatives")
        assert marker is not None
        kept = representatives([item.callspec.indices for item in group], *marker.args)
        for place, item in enumerate(group):
            if place not in kept:
                item.add_marker("repeats")
    config.stash[BEFORE_A_COMMIT] = Counter({item.path.name: 0 for item in items})
    config.stash[BEFORE_A_COMMIT].update(
        item.path.name
        for item in items
        if not item.get_closest_marker("slow") and not item.get_closest_marker("repeats")
    )
