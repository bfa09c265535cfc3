"""Tests of the noise itself, each at the level :data:`LEVEL` from an exact or a dominating distribution.

An audit of honest noise with up to fifty of them raises a false alarm in at most one case in a thousand.
"""

import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, binom, chi2, kstwo, norm, poisson

Array = np.ndarray

#: False alarms of a whole audit, and of each of its tests.
FALSE_ALARMS, MOST_TESTS = 1e-3, 50
LEVEL = FALSE_ALARMS / MOST_TESTS

#: Two noises are the same number if they are as near as two roundings to a grid can bring them.
_SAME = 2.0**-28


@dataclass(frozen=True)
class Check:
    """One line of an audit."""

    name: str
    found: str  # in words
    flagged: bool  # whether the claim is refuted
    epsilon: float | None = None  # a lower bound on epsilon that was found, where there is one

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite epsilon, which JSON does not have, is a text."""
        values = asdict(self)
        if self.epsilon is not None and math.isinf(self.epsilon):
            values["epsilon"] = "infinity"
        return values


def exact_check(name: str, wrong: str, right: str) -> Check:
    """A check without chance: what is wrong, or that nothing is."""
    return Check(name, wrong or right, bool(wrong))


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
    n, ordered = len(noise), norm.cdf(np.sort(noise))
    if not n:
        return Check("law of the noise", "no number was drawn", True)
    steps = np.arange(n + 1) / n
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    limit = float(kstwo.isf(LEVEL, n))
    found = f"distribution function {distance:.2g} away at most, in {n} numbers"
    return Check("law of the noise", found, not distance <= limit)


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
    for name, found in pairs.items():
        if sum(len(one) for one, _ in found) >= 8:
            square = math.fsum(float(other @ other) for _, other in found)
            inner = math.fsum(float(one @ other) for one, other in found)
            scores[name] = inner / math.sqrt(square) if square > 0.0 else math.inf
    if not scores:
        return Check(what, "there is nothing to compare", True)
    limit = float(norm.isf(LEVEL / (2 * len(scores))))
    worst = max(scores, key=lambda key: abs(scores[key]))
    return Check(
        what,
        f"of {len(scores)} kinds of pairs, {worst} have the largest correlation: {scores[worst]:+.2f} "
        f"deviations, at most {limit:.2f} are due",
        not abs(scores[worst]) <= limit,
    )


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
    return Check(
        "directions of the noise",
        f"from {least:.3f} to {most:.3f} of the declared sigma in {n} directions",
        not (low <= values[-1] and values[0] <= high),
    )


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
