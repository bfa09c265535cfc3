"""The audit of a source of noise: its key, its nonces, its noise at every size, in every process."""

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import Calibration, calibrate
from fastadmm.privacy.noise_tests import (
    Check,
    directions_check,
    distances_check,
    drawn_in_a_child,
    exact_check,
    law_check,
    link_check,
    mean_check,
    parts_check,
    patterns_check,
    reuse_check,
    size_check,
    tails_check,
    uniform_check,
)
from fastadmm.privacy.transcript import Release

Array = np.ndarray

#: Makes the source of a party, as a run does.
Maker = Callable[[int], Any]

#: Numbers in a release: around groups of 128, pieces of 8192 and beyond all sixteen pieces.
_SIZES = (1, 2, 3, 5, 17, 64, 127, 128, 129, 1_000, 5_003, 8_191, 8_193, 16_385, 40_001, 140_001)

#: So many of them where noise is drawn by OpenDP, which takes a hundred times as long.
_FEW_SIZES = 11

#: Standard deviations, at both ends of their grid and far from one.
_SIGMAS = (1.0, 1.999, 0.37, 16.4, 3.1e-4, 2.5e5)

#: What tells draws apart; what is cut to 8 or 16 bits would meet.
_PARTIES = (0, 1, 2, 3, 7, 255, 256, 65_535, 65_536, 2**32 - 1)
_ROUNDS = (0, 1, 2, 3, 4, 9, 40, 49, 50, 255, 256, 1_000, 65_536)

#: Numbers of the releases whose directions are looked at, and how many releases.
_SIDE, _TIMES = 64, 2_048

_KEY_BITS = 256


class _TwoThreads(Engine):
    """An engine that has two threads at work whatever else the machine does."""

    def __init__(self) -> None:
        super().__init__(2)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], parallel: bool = True) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(function, items))


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


def key_check(
    name: str, what: str, draw: Callable[[], Array], moves: Callable[[Array], Any], wrong: str = ""
) -> Check:
    """Do 256 bits of the system's randomness, each by itself, and nothing else decide a draw? No sampling."""
    given, asked = os.urandom(_KEY_BITS // 8), 0

    def under(flip: int | None) -> Array:
        nonlocal asked
        raw, asked = bytearray(given), 0
        if flip is not None:
            raw[flip // 8] ^= 1 << flip % 8

        def answer(size: int) -> bytes:
            nonlocal asked
            begin, asked = asked, asked + size
            return bytes(raw[begin:asked]).ljust(size, b"\0")

        with from_system(answer):
            return draw()

    base = under(None)
    if not np.array_equal(base, under(None)):
        wrong = f"other randomness than the operating system's decides {what}"
    bits = sum(bool(moves(under(flip) != base)) for flip in range(min(8 * asked, _KEY_BITS)))
    found = f"{bits} of {_KEY_BITS} bits of the operating system's randomness decide {what}"
    return exact_check(name, wrong or (found if bits < _KEY_BITS else ""), found)


def parts_of(noises: Sequence[Array], exact: Sequence[Array], names: Sequence[str]) -> dict[str, Array]:
    """Noise by what its numbers have in common: release, place in it, size of the exact value."""
    parts: dict[str, list[Array]] = {}

    def put(name: str, numbers: Array) -> None:
        if len(numbers):
            parts.setdefault(name, []).append(numbers)

    for noise, value, name in zip(noises, exact, names):
        size, n = np.abs(value), len(noise)
        largest = float(size.max(initial=0.0))
        put(f"all of {name}", noise)
        put("first numbers", noise[:1])
        put("last numbers", noise[-1:])
        put("numbers whose exact value is 0", noise[size == 0.0])
        put("numbers whose exact value is the largest", noise[(size == largest) & (size > 0.0)])
        put("other numbers", noise[(size < largest) & (size > 0.0)])
        put("numbers whose exact value is negative", noise[value < 0.0])
        for k in range(min(n, 128)) if n >= 256 else ():
            put(f"number {k} of every 128", noise[k::128])
        for first in range(0, n if n > 1024 else 0, 1024):
            put(f"numbers from {first} of a release", noise[first : first + 1024])
    return {name: np.concatenate(found) for name, found in parts.items()}


class DrawnNoise:
    """Noise that a mode drew, by kind; of parties and of what follows one another in pairs."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Release]] = {}
        self.parties: list[tuple[Array, Array]] = []
        self.steps: list[tuple[Array, Array]] = []

    def keep(self, kind: str, releases: Sequence[Release], *, linked: bool = True) -> None:
        """Take in releases of one kind, in the order in which each party drew them."""
        self.kinds.setdefault(kind, []).extend(releases)
        own: dict[int, list[Array]] = {}
        for release in releases if linked else ():
            own.setdefault(release.party, []).append(release.noise)
        alike = [pair for noises in own.values() for pair in itertools.pairwise(noises)]
        self.steps += [pair for pair in alike if len(pair[0]) == len(pair[1])]
        for one, other in itertools.pairwise(own.values()):
            self.parties += [pair for pair in zip(one, other) if len(pair[0]) == len(pair[1])]

    def checks(
        self,
        where: str,
        steps: str,
        name_of: Callable[[str, Release], str],
        cost: Callable[[float], float],
        costs: str,
    ) -> list[Check]:
        """Tests of all noise, of which the cost of one kind is that of the mode."""
        silent = [kind for kind, releases in self.kinds.items() if not releases]
        if silent or not self.parties:
            drawn = silent[0] if silent else "several parties"
            return [Check("size of the noise", f"no noise was drawn for {drawn}", True, math.inf)]
        if not all(r.on_grid for releases in self.kinds.values() for r in releases):
            found = "digits below the grid of the noise are those of the exact values"
            return [Check("grid of the noise", found, True, math.inf)]
        noises = {kind: [r.noise for r in releases] for kind, releases in self.kinds.items()}
        every = [noise for drawn in noises.values() for noise in drawn]
        exact = [r.exact for releases in self.kinds.values() for r in releases]
        names = [name_of(kind, r) for kind, releases in self.kinds.items() for r in releases]
        together = np.concatenate(every)
        return [
            *(
                size_check(np.concatenate(n), kind, cost if kind == costs else None)
                for kind, n in noises.items()
            ),
            parts_check(parts_of(every, exact, names), cost),
            mean_check(together),
            law_check(together),
            tails_check(together),
            reuse_check(together, where),
            link_check(self.parties, "parties"),
            link_check(self.steps, steps),
            distances_check(every),
            patterns_check(every, exact),
        ]


def audit_source(make: Maker, what: str, discrete: bool = False) -> list[Check]:
    """Examine one kind of source: ``docs/privacy.md#the-audit``."""
    numbers, uniforms = _at_all_sizes(make, discrete)
    noises, zeros = [n for _, n in numbers], [np.zeros(len(n)) for _, n in numbers]
    source, engine, times = make(0), Engine(1), _TIMES // 4 if discrete else _TIMES
    side = np.array([_draw(source, _SIDE, t, engine, _SIGMAS[t % 3]) for t in range(times)])
    checks = [
        _key_check(make, discrete),
        *([] if discrete else [_nonce_check(make)]),
        parts_check(parts_of(noises, zeros, [name for name, _ in numbers])),
        law_check(np.concatenate(noises)),
        tails_check(np.concatenate([*noises, side.ravel()])),
        reuse_check(np.concatenate(noises), "releases of every size"),
        distances_check(noises),
        patterns_check(noises, zeros),
        directions_check(side),
        uniform_check(np.concatenate(uniforms), "of every size"),
        distances_check([_normal_of(u) for u in uniforms], "uniform numbers of a call"),
        _process_check(make),
    ]
    return [replace(check, name=f"source of {what}, {check.name}") for check in checks]


def _normal_of(uniforms: Array) -> Array:
    from scipy.special import ndtri

    # A middle between two of the 2**53 numbers, so that none is infinite.
    found: Array = ndtri(uniforms + 2.0**-54)
    return found


def _draw(source: Any, n: int, number: int, engine: Engine, sigma: float = 1.0, stream: int = 0) -> Array:
    """Noise in units of its standard deviation."""
    level: Calibration = calibrate(sigma, 1.0, 1)
    values: Array = source.release(np.zeros(n), level, number, engine, stream).values / level.sigma
    return values


def _key_check(make: Maker, discrete: bool) -> Check:
    engine = Engine(1)

    def drawn() -> Array:
        source = make(1)  # discrete noise has no key of ours, its uniform numbers have
        return _normal_of(source.uniform(8, 1, engine)) if discrete else _draw(source, 8, 1, engine)

    wrong = "a source can be stored or sent, with its key" if _leaves(make(1)) else ""
    return key_check("key", "every number", drawn, np.all, wrong)


def _leaves(source: Any) -> bool:
    """Whether a source, and so its key, can leave the process."""
    import pickle

    try:
        pickle.dumps(source)
    except (TypeError, pickle.PicklingError):
        return False
    return True


def _nonce_check(make: Maker) -> Check:
    """Draws under one key, which differ by party, round and stream alone; and a draw that is asked twice."""
    given, engine = os.urandom(64), Engine(1)
    drawn: list[Array] = []
    again = 0
    for party in _PARTIES:
        with from_system(lambda size: given[:size]):
            source = make(party)
            drawn += [_draw(source, 24, t, engine, stream=stream) for t in _ROUNDS for stream in (0, 1)]
            try:
                _draw(source, 24, _ROUNDS[1], engine)
                again += 1
            except RuntimeError:
                pass
    check = reuse_check(np.concatenate(drawn), "parties, rounds, streams under one key")
    found = f"{again} sources draw the noise of a round twice" if again else check.found
    return Check(check.name, found, check.flagged or again > 0)


def _at_all_sizes(make: Maker, discrete: bool) -> tuple[list[tuple[str, Array]], list[Array]]:
    """Noise and uniform numbers by size, on one and on two threads; the same bits on both, or none at all."""
    engines = Engine(1), _TwoThreads()
    numbers: list[tuple[str, Array]] = []
    uniforms: list[Array] = []
    for k, n in enumerate(_SIZES[:_FEW_SIZES] if discrete else _SIZES):
        given, both = os.urandom(64), []
        times = max(1, min(30 if discrete else 300, 1_500 // n))
        for engine in engines if n > 8_192 else engines[:1]:
            with from_system(lambda size, given=given: given[:size]):  # type: ignore[misc]
                source = make(k % 3)
                for t in range(times):
                    sigma = _SIGMAS[(k + t) % len(_SIGMAS)]
                    noise = _draw(source, n, t, engine, sigma)
                    both.append((noise, source.uniform(n, t, engine, 1)))
        same = len(both) < 2 or n <= 8_192 or all(map(np.array_equal, both[0], both[1]))
        for noise, uniform in both[: None if n <= 8_192 else 1]:
            numbers.append((f"releases of {n} numbers", noise))
            uniforms.append(uniform)
        if not same and not discrete:
            # Another number of threads, another noise: it counts as none, which every test notices.
            numbers.append((f"{n} numbers on two threads, which are others than on one", np.zeros(n)))
            uniforms.append(np.zeros(n))
    return numbers, uniforms


def _process_check(make: Maker) -> Check:
    """Sources of this process and of its children, made before the fork and after."""
    engine = Engine(1)
    before = make(1)
    _draw(before, 1, 0, engine)  # it has its key when the process forks

    def drawn() -> Array:
        return np.concatenate([_draw(before, 256, 1, engine), _draw(make(1), 256, 1, engine)])

    children = [drawn_in_a_child(drawn) for _ in range(2)]
    found = [child for child in children if child is not None]
    numbers = np.concatenate([*found, drawn(), *(_draw(make(1), 256, 1, engine) for _ in range(4))])
    where = "sources, and processes after fork" if found else "sources; no fork on this system"
    return reuse_check(numbers, where)
