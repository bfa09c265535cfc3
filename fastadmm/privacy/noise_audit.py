"""The audit of noise: what a source draws, what whole runs drew, and what decides every number of it."""

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise, product
from operator import attrgetter
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.game import Release, Tap
from fastadmm.privacy.noise import calibrate
from fastadmm.privacy.noise_tests import (
    Check,
    at_distances,
    directions_check,
    drawn_in_a_child,
    exact_check,
    law_check,
    links_check,
    patterns_check,
    reuse_check,
    size_check,
    tails_check,
)

Array = np.ndarray

#: Makes the source of a party, as a run does.
Maker = Callable[[int], Any]

#: Numbers in a release: around groups of 128, pieces of 8192 and beyond some of these.
_SIZES = (1, 2, 3, 5, 17, 127, 128, 129, 1_000, 5_003, 8_191, 8_193, 40_001)

#: Standard deviations, at both ends of their grid and far from one.
_SIGMAS = (1.0, 1.999, 0.37, 16.4, 3.1e-4, 2.5e5)

#: Numbers of the releases whose directions are looked at, and how many there are for one more trial.
_SIDE, _SHARE = 64, 1 / 600

#: What tells draws apart; what is cut to 8 or 16 bits would meet.
_PARTIES = (0, 1, 2, 3, 7, 255, 256, 65_535, 65_536, 2**32 - 1)
_ROUNDS = (0, 1, 2, 3, 4, 9, 40, 49, 50, 255, 256, 1_000, 65_536)

_KEY_BITS = 256


def audit_noise(
    make: Maker,
    runs: Sequence[Sequence[Release]],
    trials: int,
    cost: Callable[[float], float],
    discrete: bool,
) -> list[Check]:
    """Examine a mode's source, and what its runs drew: ``docs/privacy.md#the-audit``."""
    tap = _drawn(make, trials // 20 if discrete else trials)
    every = [release for run in (tap.releases, *runs) for release in run]
    if not runs or not all(every and run for run in runs):
        return [Check("size of the noise", "no noise was drawn", True, float("inf"))]
    if not all(release.on_grid for release in every):
        return [Check("grid of the noise", "digits below the grid are those of the exact values", True)]
    noises, exact = [release.noise for release in every], [release.exact for release in every]
    together, uniforms = np.concatenate(noises), [normal_of(numbers) for numbers in tap.uniforms]
    of_uniforms = (
        law_check(np.concatenate(uniforms)),
        reuse_check(np.concatenate(uniforms)),
        links_check(at_distances(uniforms)),
    )
    return [
        size_check(parts_of(every), cost),
        law_check(together),
        tails_check(together),
        reuse_check(together),
        links_check({**_links((tap.releases, *runs)), **at_distances(noises)}),
        patterns_check(noises, exact),
        directions_check(np.array([r.noise for r in tap.releases if len(r.exact) == _SIDE])),
        *(replace(check, name=f"uniform numbers: {check.name}") for check in of_uniforms),
        _source_key_check(make, discrete),
        *([] if discrete else [_nonce_check(make)]),
        _process_check(make),
    ]


def _drawn(make: Maker, trials: int) -> Tap:
    """Noise and uniform numbers of three parties, in short and long releases, on one and two threads."""
    sizes, engines = [n for n in _SIZES if n <= trials], (Engine(1), Engine(2))
    times = max(2 * _SIDE, int(trials * _SHARE))
    with Tap() as tap:
        for party in range(3):
            source = make(party)
            for t, (n, engine) in enumerate([*((_SIDE, engines[0]),) * times, *product(sizes, engines)], 1):
                level = calibrate(_SIGMAS[t % len(_SIGMAS)], 1.0, n)
                # Zeros, and numbers below and above the noise.
                values = np.where(np.arange(n) % 5 == 0, 0.0, 3.0 * np.sin(np.arange(n)))
                source.release(values, level, t, engine)
                source.uniform(n, t, engine, 1)
    return tap


def parts_of(releases: Sequence[Release]) -> dict[str, Array]:
    """Noise by what its numbers have in common: party, round, length, place, size of the exact value."""
    parts: dict[str, list[Array]] = {}
    for release in releases:
        noise, size, n = release.noise, np.abs(release.exact), len(release.exact)
        largest = float(size.max(initial=0.0))
        found = {
            "all numbers": noise,
            f"party {release.party}": noise,
            f"round {release.round}" if release.round < 64 else "later rounds": noise,
            f"releases of {2 ** n.bit_length()} numbers or half": noise,
            "first numbers": noise[:1],
            "last numbers": noise[-1:],
            "numbers whose exact value is 0": noise[size == 0.0],
            "numbers whose exact value is nearly the largest": noise[(size > 0.66 * largest) & (size > 0.0)],
            "numbers whose exact value is negative": noise[release.exact < 0.0],
        }
        if n >= 256:
            found |= {f"number {k} of every 128": noise[k::128] for k in range(128)}
        if n > 1024:
            found |= {f"numbers from {k} of a release": noise[k : k + 1024] for k in range(0, n, 1024)}
        for name, numbers in found.items():
            parts.setdefault(name, []).append(numbers)
    return {name: np.concatenate(found) for name, found in parts.items()}


def _links(runs: Sequence[Sequence[Release]]) -> dict[str, list[tuple[Array, Array]]]:
    """Pairs of releases of equal length: one after the other, and of two parties in a round."""
    found = {}
    for name, same, other in (
        ("successive releases", "party", "round"),
        ("releases of two parties", "round", "party"),
    ):
        orders = (sorted(run, key=attrgetter(same, other)) for run in runs)
        pairs = [pair for ordered in orders for pair in pairwise(ordered)]
        found[name] = [
            (one.noise, next_.noise)
            for one, next_ in pairs
            if getattr(one, same) == getattr(next_, same) and len(one.exact) == len(next_.exact)
        ]
    return found


def normal_of(uniforms: Array) -> Array:
    """Normal numbers of uniform ones."""
    from scipy.special import ndtri

    # A middle between two of the 2**53 numbers, so that none is infinite.
    found: Array = ndtri(uniforms + 2.0**-54)
    return found


# --- what decides the numbers
@contextmanager
def from_system(answer: Callable[[int], bytes]) -> Iterator[None]:
    """Let ``os.urandom`` give chosen bytes to this thread."""
    own, here = os.urandom, threading.get_ident()

    def urandom(size: int, /) -> bytes:
        return answer(size) if threading.get_ident() == here else own(size)

    os.urandom = urandom
    try:
        yield
    finally:
        os.urandom = own


def key_check(name: str, what: str, draw: Callable[[], Array], moves: Callable[[Array], Any]) -> Check:
    """Do 256 bits of the system's randomness, each by itself, and nothing else decide a draw? No sampling."""
    wrong = ""
    given = os.urandom(_KEY_BITS // 8)

    def under(flip: int | None = None) -> tuple[Array, int]:
        """A draw, and how many bits it asked for."""
        raw = bytearray(given)
        if flip is not None:
            raw[flip // 8] ^= 1 << flip % 8
        stream = io.BytesIO(raw)
        with from_system(lambda size: stream.read(size).ljust(size, b"\0")):
            return draw(), 8 * stream.tell()

    base, asked = under()
    if not np.array_equal(base, under()[0]):
        wrong = f"other randomness than the operating system's decides {what}"
    bits = sum(bool(moves(under(flip)[0] != base)) for flip in range(asked))
    found = f"{bits} of {_KEY_BITS} bits of the operating system's randomness decide {what}"
    return exact_check(name, wrong or (found if bits < _KEY_BITS else ""), found)


def _draw(source: Any, n: int, number: int, stream: int = 0) -> Array:
    values: Array = source.release(np.zeros(n), calibrate(1.0, 1.0, 1), number, Engine(1), stream).values
    return values


def _source_key_check(make: Maker, discrete: bool) -> Check:
    def drawn() -> Array:
        source = make(1)  # discrete noise has no key of ours, its uniform numbers have
        return normal_of(source.uniform(8, 1, Engine(1))) if discrete else _draw(source, 8, 1)

    return key_check("key of the noise", "every number", drawn, np.all)


def _nonce_check(make: Maker) -> Check:
    """Draws under one key, which differ by party, round and stream alone."""
    given = os.urandom(64)
    drawn: list[Array] = []
    with from_system(lambda size: given[:size]):
        for party in _PARTIES:
            source = make(party)
            drawn += [_draw(source, 24, t, stream) for t in _ROUNDS for stream in (0, 1)]
    return reuse_check(np.concatenate(drawn), "noise used twice, under one key")


def _process_check(make: Maker) -> Check:
    """Sources of this process and of its children, made before the fork and after."""
    before = make(1)
    _draw(before, 1, 0)  # it has its key when the process forks

    def drawn() -> Array:
        return np.concatenate([_draw(before, 256, 1), _draw(make(1), 256, 1)])

    children = [child for _ in range(2) if (child := drawn_in_a_child(drawn)) is not None]
    numbers = np.concatenate([*children, drawn(), *(_draw(make(1), 256, 1) for _ in range(4))])
    return reuse_check(numbers, "noise used twice, by processes" + "; no fork here" * (not children))
