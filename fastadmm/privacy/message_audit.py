"""The game of mode "message": the worst neighbours, and what the audit draws.

Neighbours are found by search: those that the bounds are about, and for every clip those that would be
farthest apart without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastadmm.errors import InputError
from fastadmm.privacy.adversary import concrete_rows, find_worst_pair
from fastadmm.privacy.game import Case, cost_check
from fastadmm.privacy.noise_tests import Check
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.transcript import epsilon_spent, many_rows
from fastadmm.settings.privacy import MessagePrivacy

Array = np.ndarray

#: Name, rows of both neighbours, of shape (N, d), and the target that an adversary asks with, of shape (N,).
Pair = tuple[str, Array, Array, Array]

#: Records of the neighbours.
_ROWS = 4_000

#: How much longer than allowed are rows and targets that have to be clipped.
_BEYOND = 10.0


def declared_cost(settings: MessagePrivacy, mu: float, sigma: float) -> Check:
    """Is a noise level enough for the claim, according to the theorems?"""
    bound, discrete = message_sensitivity(settings, mu, 1), settings.sampler == "discrete"
    gdp = math.sqrt(settings.rounds) * bound.value / sigma
    where = f"for {settings.rounds} message(s) with sigma {sigma:.4g} and sensitivity {bound.value:.4g}"
    cost = epsilon_spent(gdp, settings.delta, (), discrete)
    return cost_check("cost of the noise on record", cost, settings, f"{where} ({bound.theorem})")


def message_cases(settings: MessagePrivacy, mu: float) -> Iterator[Case]:
    """Pairs by columns, storage, place and rows, and whole runs: ``docs/privacy.md#the-audit``."""
    rounds, pairs = range(1, 1 + settings.rounds), worst_pairs(settings, mu)

    def case(name: str, pair: Sequence[Array], columns: int = 2, **how: Any) -> Case:
        """A pair, turned into an even number of columns and asked in every round."""
        first, second, target = pair
        turn = np.array([np.ones(columns), 1.0 - 2.0 * (np.arange(columns) % 2)]) / math.sqrt(columns)
        calls = [("noisy", {"target": target, "round": t}) for t in rounds]
        return Case(name, first @ turn, second @ turn, calls, **how)

    for name, *pair in pairs:
        yield case(name, pair)
        yield case(f"{name}, sparse", pair, 16, stored="sparse")
    for (name, *pair), stored in ((pairs[0], "sparse"), (pairs[-1], "dense")):
        backwards = [each[::-1] for each in pair]
        yield case(f"{name}, the record last", backwards, 4, stored=stored, threads=2)
    name, first, second, target = pairs[0]
    most = max(many_rows(40_000, settings.delta), len(first))
    more = [(0, most - len(first)), (0, 0)]  # rows of zeros move nothing
    many = np.pad(first, more), np.pad(second, more), np.pad(target, more[0])
    yield case(f"{name} among {most} rows", many, threads=2)
    yield Case("the worst neighbours in a whole run", first, second)
    # Neighbours whose other rows are any; the record turns from one side to the other.
    first = np.random.default_rng(2).normal(size=(many_rows(500, settings.delta), 4))
    second = first.copy()
    first[3], second[3] = 50.0, 0.0 if settings.adjacency == "zero_out" else -50.0
    yield Case("any neighbours in a whole run", first, second, stored="sparse", threads=2)


def worst_pairs(settings: MessagePrivacy, mu: float) -> list[Pair]:
    """Neighbours of the bounds before clipping, and for each clip those that need it most."""
    if settings.adjacency == "column":
        raise InputError("audit: the search covers adjacency replace_one and zero_out, not column")
    ball, target, clip = settings.ball, settings.clip_of_targets, settings.message_clip
    rows = min(float(_ROWS), 0.8 / settings.delta)

    def search(name: str, b: float, w: float, m: float, clip: float | None, longer: float = 1.0) -> Pair:
        limits = {"rows": rows, "longest": 1.0 if clip is None else min(1.0, clip / b)}
        searched = {"adjacency": settings.adjacency, "center": settings.message_center, "starts": 1}
        pair = find_worst_pair(b, w, m, clip, **searched, **limits)
        first, second, asked = concrete_rows(pair, w, limits["longest"])
        return name, longer * first, longer * second, asked

    pairs = [search("the worst neighbours", ball, target, mu, clip)]
    if clip is not None:
        pairs.append(search("neighbours that need clipped messages", ball, target, mu, None))
    pairs.append(search("neighbours that need clipped targets", ball, _BEYOND * target, mu, clip))
    # Rows that are longer by a factor are the same as a larger ball and a smaller ridge.
    far = _BEYOND * ball, target, mu / _BEYOND**2
    pairs.append(search("neighbours that need clipped rows", *far, clip, longer=_BEYOND))
    return [pair for pair in pairs if len(pair[1]) * settings.delta < 1.0] or pairs[:1]
