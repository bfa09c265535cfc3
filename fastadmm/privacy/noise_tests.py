"""The audit of noise: what a source draws, what whole runs drew, and what decides every number of it.

Each test has the level :data:`LEVEL`, by an exact or a dominating distribution: an audit of honest noise with
up to fifty of them raises a false alarm in at most one case in a thousand.
"""

import io
import math
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise, product
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom, chi2, kstest, norm, poisson

from fastadmm.engine.engine import Engine
from fastadmm.privacy.game import Check, Release, Tap, exact_check
from fastadmm.privacy.noise import calibrate

Array = np.ndarray

#: False alarms of a whole audit, and of each of its tests.
FALSE_ALARMS, MOST_TESTS = 1e-3, 50
LEVEL = FALSE_ALARMS / MOST_TESTS

#: Two noises are the same number if they are as near as two roundings to a grid can bring them.
_SAME = 2.0**-28


def size_check(parts: Mapping[str, Array], cost: Callable[[float], float] | None = None) -> Check:
    """Is the noise as large as declared, or larger, in every part? ``docs/privacy.md#the-audit``.

    One-sided tests of chi-squared: more noise refutes no claim.
    """
    names = [name for name, noise in parts.items() if len(noise)]
    if not names:
        return Check("size of the noise", "no noise was drawn", True, math.inf)
    sizes = np.array([len(parts[name]) for name in names])
    squares = np.array([float(parts[name] @ parts[name]) for name in names])
    level = LEVEL / len(names)
    least = chi2.ppf(level, sizes)
    k, flagged = int(np.argmin(squares / least)), not bool((squares >= least).all())
    # What it can be at most, at the level of the test.
    epsilon = cost(math.sqrt(squares[k] / least[k])) if flagged and cost is not None else None
    found = f"of {len(names)} parts, {names[k]} has the least: {math.sqrt(squares[k] / sizes[k]):.4f} of the "
    found += f"declared sigma in {sizes[k]} numbers" + (f": epsilon >= {epsilon:.4g}" if epsilon else "")
    return Check("size of the noise", found, flagged, epsilon)


def law_check(noise: Array) -> Check:
    """Is the noise normal? Kolmogorov's test with its exact law. Shapes: noise (n,)."""
    if not len(noise):
        return Check("law of the noise", "no number was drawn", True)
    test = kstest(noise, "norm", method="exact")
    found = f"distribution function {test.statistic:.2g} away at most, in {len(noise)} numbers"
    return Check("law of the noise", found, not test.pvalue >= LEVEL)


def tails_check(noise: Array) -> Check:
    """Are large numbers as frequent as normal ones, and none without noise? Shapes: noise (n,)."""
    n, sizes, limits = len(noise), np.abs(noise), (1.0, 2.0, 2.5, 3.0, 3.5, 4.0)
    parts = [
        (f"numbers beyond {limit:g} sigma", int((sizes > limit).sum()), n, float(2.0 * norm.sf(limit)))
        for limit in limits
    ]
    # On a grid of 2**28 steps per sigma or more, hardly a number is zero by chance.
    parts.append(("numbers without noise", int((sizes <= 0.25 * _SAME).sum()), n, _SAME))
    return counts_check("tails of the noise", parts, "as many numbers as are due are large")


def reuse_check(noise: Array, name: str = "noise used twice") -> Check:
    """Is noise used twice, anywhere and with any sign? Pairs of equal numbers, against a Poisson law.

    Within s = 2**-28 of a point of a grid of 1/s steps per sigma, or up to twice as many, are others with a
    share of at most 3 s of the density: the point itself and one on either side. Shapes: noise (n,).
    """
    n = len(noise)
    pairs = int((np.diff(np.sort(np.abs(noise))) <= _SAME).sum())
    by_chance = 0.5 * n * n * 3.0 * _SAME / math.sqrt(math.pi)
    most = int(poisson.isf(LEVEL, by_chance))
    found = f"{pairs} of {n} numbers come twice, by chance {by_chance:.0f} would"
    return Check(name, found, pairs > most or not n)


def links_check(
    pairs: Mapping[str, Sequence[tuple[Array, Array]]], what: str = "independence of the noise"
) -> Check:
    """Are numbers of every kind of pair independent? Normal tests of correlations, given one of them."""
    scores = dict[str, float]()
    for name, own in pairs.items():
        if sum(len(one) for one, _ in own) >= 8:
            square = math.fsum(float(other @ other) for _, other in own)
            inner = math.fsum(float(one @ other) for one, other in own)
            scores[name] = inner / math.sqrt(square) if square > 0.0 else math.inf
    if not scores:
        return Check(what, "there is nothing to compare", True)
    limit = float(norm.isf(LEVEL / (2 * len(scores))))
    worst = max(scores, key=lambda key: abs(scores[key]))
    largest = f"{worst} have the largest correlation: {scores[worst]:+.2f} deviations"
    found = f"of {len(scores)} kinds of pairs, {largest}, at most {limit:.2f} are due"
    return Check(what, found, not abs(scores[worst]) <= limit)


#: Distances within a release: neighbours, lanes, groups and pieces of the generator, and those beside.
_DISTANCES = {2**k + near for k in (0, *range(2, 11), 12, 13, 14, 15) for near in (-1, 0, 1)} - {0}


def apart(numbers: Array, distance: int) -> tuple[Array, Array]:
    """Pairs of numbers at a distance, each number once. Shapes: numbers (n,)."""
    whole = len(numbers) // (2 * distance) * 2 * distance
    cut = numbers[:whole].reshape(-1, 2, distance)
    return cut[:, 0].ravel(), cut[:, 1].ravel()


def at_distances(noises: Sequence[Array]) -> dict[str, list[tuple[Array, Array]]]:
    """Pairs of numbers of one release at the same distance, and its halves."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    for noise in noises:
        for distance in {*_DISTANCES, len(noise) // 2}:
            if 0 < 2 * distance <= len(noise):
                name = "halves" if 2 * distance == len(noise) else f"numbers at distance {distance}"
                found.setdefault(name, []).append(apart(noise, distance))
    return found


def patterns_check(noises: Sequence[Array], exact: Sequence[Array]) -> Check:
    """Has every release the declared noise along fixed patterns, and along its own exact value?"""
    patterns: dict[str, Callable[[Array], Array]] = {
        "the sum": np.ones_like,
        "the alternating sum": lambda v: 1.0 - 2.0 * (np.arange(len(v)) % 2),
        "the halves' difference": lambda v: np.where(np.arange(len(v)) < len(v) // 2, 1.0, -1.0),
        "every fourth number": lambda v: (np.arange(len(v)) % 4 == 0).astype(np.float64),
        "the exact value": lambda v: v / max(float(np.abs(v).max()), 1e-300),
    }
    level, found, flagged = LEVEL / (2 * len(patterns)), [], False
    for name, pattern in patterns.items():
        along = [(noise, pattern(value)) for noise, value in zip(noises, exact) if len(noise) > 1]
        sums = [float(noise @ v) ** 2 / float(v @ v) for noise, v in along if v.any()]
        if sums:
            square, count = math.fsum(sums), len(sums)
            inside = chi2.ppf(level, count) <= square <= chi2.isf(level, count)
            flagged = flagged or not inside
            found.append((inside, f"{math.sqrt(square / count):.3f} of the declared sigma along {name}"))
    found.sort(key=lambda each: each[0])
    text = ", ".join(text for _, text in found) or "no release has several numbers"
    return Check("noise along patterns", f"{text}, in {len(noises)} releases", flagged)


def directions_check(draws: Array) -> Check:
    """Is there noise in all directions? ``docs/privacy.md#noise-on-parameters``. Shapes: draws (K, n)."""
    times, n = draws.shape
    if times < 4 * n:
        return Check("directions of the noise", f"{times} releases of {n} numbers are too few", True)
    values = np.linalg.svd(draws, compute_uv=False)
    low, high = rank_bounds(n, times)
    least, most = (float(value) / math.sqrt(times) for value in (values[-1], values[0]))
    found = f"from {least:.3f} to {most:.3f} of the declared sigma in {n} directions"
    return Check("directions of the noise", found, not (low <= values[-1] and values[0] <= high))


def rank_bounds(n_values: int, n_draws: int) -> tuple[float, float]:
    """Bounds on singular values of (draws, values) independent normals (Davidson and Szarek 2001)."""
    t = math.sqrt(-2.0 * math.log(LEVEL / 2))
    return math.sqrt(n_draws) - math.sqrt(n_values) - t, math.sqrt(n_draws) + math.sqrt(n_values) + t


def outcomes_check(name: str, tables: Mapping[str, Array], claim: float) -> Check:
    """Is an outcome likelier for one input than e^epsilon times its chance for another? Clopper and Pearson.

    Each part of what was drawn has a table of counts. Shapes: each table (inputs, outcomes).
    """
    level = LEVEL / (2 * max(sum(table.size for table in tables.values()), 1))
    worst, where, total = 0.0, "none", sum(int(table.sum()) for table in tables.values())
    for part, table in tables.items():
        n = table.sum(axis=1, keepdims=True)
        low = np.where(table > 0, beta.ppf(level, table, n - table + 1), 0.0)
        high = np.where(table < n, beta.isf(level, table + 1, n - table), 1.0)
        with np.errstate(divide="ignore"):
            bound = float(np.log(low.max(axis=0) / high.min(axis=0)).max())
        worst, where = max((worst, where), (bound, part))
    found = f"epsilon >= {worst:.4g} in {total} outcomes ({where}), claim {claim:.4g}"
    return Check(name, found, not worst <= claim or not total, worst)


def counts_check(name: str, parts: Iterable[tuple[str, int, int, float]], right: str) -> Check:
    """Are as many of the trials of every part (its name, successes, trials, probability) as is due?"""
    parts = [part for part in parts if part[2]]
    level, odd = LEVEL / max(2 * len(parts), 1), ""
    for part, count, trials, due in parts:
        if not binom.ppf(level, trials, due) <= count <= binom.isf(level, trials, due):
            odd = odd or f"{part}: {count} of {trials}, {due * trials:.0f} are due"
    return Check(name, odd or f"{right}, in {len(parts)} parts", bool(odd))


def drawn_in_a_child(draw: Callable[[], Array], seconds: float = 30.0) -> Array | None:
    """What a child process draws after ``fork``; None where there is no fork, or no answer."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("fork")
    inlet, outlet = context.Pipe(duplex=False)
    child = context.Process(target=lambda: outlet.send_bytes(draw().astype(np.float64).tobytes()))
    with warnings.catch_warnings():
        # The child draws and ends: it takes no lock that another thread could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    outlet.close()
    try:
        return np.frombuffer(inlet.recv_bytes()) if inlet.poll(seconds) else None
    except EOFError:
        return None
    finally:
        child.kill()
        child.join()


# --- the audit of a source
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
    flat = np.concatenate(uniforms)
    of_uniforms = law_check(flat), reuse_check(flat), links_check(at_distances(uniforms))
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

    with patch.object(os, "urandom", urandom):
        yield


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
