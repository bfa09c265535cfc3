"""The one order of addition: rows are cut by halves into leaves, and leaves are added by halves.

A node of the tree is a range of rows; its children are its halves. How many leaves a job has depends on the
size of the data alone. Which thread computes a leaf, how many leaves make a piece of work, and which machine
holds a node of the tree therefore changes no bit of a sum.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

#: Consecutive half-open ranges of rows.
Ranges = tuple[tuple[int, int], ...]

#: Rows of a leaf at least: the pieces of a job cost a microsecond each.
LEAF_ROWS = 4096

#: From this many leaves on, rows of a leaf at least.
SOME_LEAVES, MANY_ROWS = 16, 8192

#: As many leaves as give 256 cores and a few machines their share.
MOST_LEAVES = 4096

#: Entries of a pass that are worth a leaf, where rows are long.
LEAF_ENTRIES = 1 << 18


def leaves_of(
    n_rows: int, entries: float = 0.0, work: float = float("inf"), fewest: int = SOME_LEAVES
) -> int:
    """How many leaves a job has: a power of two."""
    by_rows = max(min(n_rows // LEAF_ROWS, SOME_LEAVES), n_rows // MANY_ROWS)
    wanted = min(max(by_rows, entries / LEAF_ENTRIES), MOST_LEAVES, n_rows)
    wanted = min(wanted, max(work, min(by_rows, fewest)))
    return 1 << max(0, int(wanted).bit_length() - 1)


#: Entries worth a sum of a leaf: each leaf sets all of its sums to zero and adds them to the others',
#: in memory that no cache holds where they are many. Tuned on sparse products of 20,000 to 1,000,000 rows.
SUM_ENTRIES = 5.0


def leaves_for_sums(n_rows: int, entries: float, numbers: float) -> tuple[float, float, int]:
    """What :func:`leaves_of` asks for beside rows, of a pass that adds entries up to so many numbers."""
    if numbers <= 1:
        return entries, entries, SOME_LEAVES
    # However many sums there are, so many rows are worth a leaf: workers of a cluster have one each.
    fewest = max(1, min(n_rows // (LEAF_ROWS * SOME_LEAVES), SOME_LEAVES))
    return entries, entries / (SUM_ENTRIES * numbers), fewest


@lru_cache(maxsize=256)
def even_ranges(n_rows: int, pieces: int) -> Ranges:
    """Cut ``n_rows`` into ``pieces`` consecutive ranges, or into single rows if there are fewer."""
    pieces = max(1, min(n_rows, pieces))
    bounds = [n_rows * k // pieces for k in range(pieces + 1)]
    return tuple(itertools.pairwise(bounds))


@lru_cache(maxsize=1024)
def halved(n_rows: int, leaves: int) -> Ranges:
    """Cut rows by halves, the first of two the smaller where they differ."""
    bounds = [0, n_rows]
    while len(bounds) <= leaves:
        middles = [(start + stop) // 2 for start, stop in itertools.pairwise(bounds)]
        bounds = [b for pair in itertools.zip_longest(bounds, middles) for b in pair if b is not None]
    return tuple(itertools.pairwise(bounds))


def node_range(n_rows: int, level: int, index: int) -> tuple[int, int]:
    """Rows of a node."""
    start, stop = 0, n_rows
    for bit in reversed(range(level)):
        middle = (start + stop) // 2
        start, stop = (middle, stop) if index >> bit & 1 else (start, middle)
    return start, stop


def add(first: Any, second: Any) -> Any:
    """Sum of two numbers, arrays or tuples of them."""
    if isinstance(first, tuple):
        return tuple(map(add, first, second))
    return operator.iadd(first, second)


def add_by_halves(parts: Sequence[Any]) -> Any:
    """Sum of the leaves of a node."""
    while len(parts) > 1:
        parts = [add(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def sum_leaves(function: Callable[[tuple[int, int]], Any], ranges: Ranges) -> Any:
    """Sum over a node; holds as many results as the tree is high."""
    held: list[Any] = []
    for number, rows in enumerate(ranges):
        found = function(rows)
        while number & 1:
            found = add(held.pop(), found)
            number >>= 1
        held.append(found)
    (total,) = held
    return total
