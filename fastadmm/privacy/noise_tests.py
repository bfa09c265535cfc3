"""Tests of the noise itself, each at the level :data:`LEVEL` from an exact or a dominating distribution.

An audit of honest noise with up to fifty of them raises a false alarm in at most one case in a thousand.
Every test says which fault it would notice in 99 of 100 audits, by the same distributions.
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

#: Share of the audits that notice what a power is stated for.
POWER = 0.99

#: Two noises are the same number if they are as near as two roundings to a grid can bring them.
_SAME = 2.0**-28


@dataclass(frozen=True)
class Check:
    """One line of an audit."""

    name: str
    found: str  # in words
    flagged: bool  # whether the claim is refuted
    epsilon: float | None = None  # a lower bound on epsilon that was found, where there is one
    power: str = ""  # what the check would notice; empty where that has no number

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite epsilon, which JSON does not have, is a text."""
        values = asdict(self)
        if self.epsilon is not None and math.isinf(self.epsilon):
            values["epsilon"] = "infinity"
        return values


def exact_check(name: str, wrong: str, right: str) -> Check:
    """A check without chance: what is wrong, or that nothing is."""
    return Check(name, wrong or right, bool(wrong), power="exact")


def _often(what: str) -> str:
    return f"would notice {what} in {100 * POWER:.0f} % of audits"


def noticed_share(n: int) -> float:
    """Largest share of its size that noise may keep to be noticed as too small."""
    return math.sqrt(chi2.ppf(LEVEL, n) / chi2.ppf(POWER, n))


def size_check(noise: Array, what: str, cost: Callable[[float], float] | None = None) -> Check:
    """Is the noise as large as declared, or larger? ``docs/privacy.md#the-audit``. Shapes: noise (n,)."""
    n, square = len(noise), float(noise @ noise)
    flagged = not square >= chi2.ppf(LEVEL, n)
    # What it can be at most, at the level of the test.
    most = math.sqrt(square / chi2.ppf(LEVEL, n))
    epsilon = cost(most) if flagged and cost is not None else None
    found = f"{math.sqrt(square / n):.4f} of the declared sigma in {n} numbers"
    if epsilon is not None:
        found += f": epsilon >= {epsilon:.4g}"
    power = _often(f"noise {100 * (1 - noticed_share(n)):.2g} % too small")
    return Check(f"size of the noise, {what}", found, flagged, epsilon, power)


def mean_check(noise: Array) -> Check:
    """Has the noise mean zero? Normal test. Shapes: noise (n,)."""
    n, limit = len(noise), float(norm.isf(LEVEL / 2))
    root = math.sqrt(n)
    mean = float(noise.sum()) / n
    power = _often(f"a mean of {(limit + norm.ppf(POWER)) / root:.2g} sigma")
    return Check("mean of the noise", f"{mean:+.4f} sigma", not abs(mean) * root <= limit, power=power)


def law_check(noise: Array) -> Check:
    """Is the noise normal? Kolmogorov's test with its exact law. Shapes: noise (n,)."""
    return _kolmogorov("law of the noise", norm.cdf(np.sort(noise)))


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


def uniform_check(uniforms: Array, what: str) -> Check:
    """Are uniform numbers uniform, and is none drawn twice? Shapes: uniforms (n,)."""
    if not len(uniforms):
        return Check(f"uniform numbers {what}", "none was drawn", True)
    ordered = np.sort(uniforms)
    check = _kolmogorov(f"uniform numbers {what}", ordered)
    again = int((np.diff(ordered) == 0.0).sum())
    most = int(poisson.isf(LEVEL, len(ordered) ** 2 / 2.0**54))
    found = f"{check.found}, {again} of them drawn twice"
    return Check(check.name, found, check.flagged or again > most, power=check.power)


def _kolmogorov(name: str, ordered: Array) -> Check:
    n = len(ordered)
    if not n:
        return Check(name, "no number was drawn", True)
    steps = np.arange(n + 1) / n
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    limit = float(kstwo.isf(LEVEL, n))
    power = _often(f"a law that is {limit + float(kstwo.isf(1.0 - POWER, n)):.2g} away")
    found = f"distribution function {distance:.2g} away at most, in {n} numbers"
    return Check(name, found, not distance <= limit, power=power)


def reuse_check(noise: Array, where: str) -> Check:
    """Is noise used twice, anywhere and with any sign? Pairs of equal numbers, against a Poisson law.

    Within s = 2**-28 of a point of a grid of 1/s steps per sigma, or up to twice as many, are others with a
    share of at most 3 s of the density: the point itself and one on either side. Shapes: noise (n,).
    """
    if not len(noise):
        return Check(f"noise used twice ({where})", "no noise was drawn", True)
    n = len(noise)
    pairs = int((np.diff(np.sort(np.abs(noise))) <= _SAME).sum())
    by_chance = 0.5 * n * n * 3.0 * _SAME / math.sqrt(math.pi)
    most = int(poisson.isf(LEVEL, by_chance))
    more = most + 1 - int(poisson.ppf(1.0 - POWER, by_chance))
    return Check(
        f"noise used twice ({where})",
        f"{pairs} of {n} numbers come twice, by chance {by_chance:.0f} would",
        pairs > most,
        power=_often(f"{more} numbers that are used again"),
    )


def link_check(pairs: Sequence[tuple[Array, Array]], what: str) -> Check:
    """Are two noises independent? Normal test of the correlation, given one of them."""
    if not pairs:
        return Check(f"independence of the noise between {what}", "there are none to compare", True)
    one, other = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
    size = float(np.linalg.norm(other))
    score = float(one @ other) / size if size > 0.0 else math.inf
    limit, root = float(norm.isf(LEVEL / 2)), math.sqrt(len(one))
    power = _often(f"a correlation of {(limit + norm.ppf(POWER)) / root:.2g}")
    return Check(
        f"independence of the noise between {what}",
        f"correlation {score / root:+.4f} of {len(one)} pairs",
        not abs(score) <= limit,
        power=power,
    )


def parts_check(parts: Mapping[str, Array], cost: Callable[[float], float] | None = None) -> Check:
    """Is the noise as large as declared in every part of what was drawn? Chi-squared tests of all of them."""
    names = [name for name, noise in parts.items() if len(noise)]
    sizes = np.array([len(parts[name]) for name in names])
    squares = np.array([float(parts[name] @ parts[name]) for name in names])
    level = LEVEL / max(len(names), 1)
    least = chi2.ppf(level, sizes)
    k = int(np.argmin(squares / least)) if names else 0
    flagged = not names or not bool((squares >= least).all())
    if not names:
        return Check("size of the noise in every part", "no noise was drawn", True, math.inf)
    share = math.sqrt(squares[k] / sizes[k])
    epsilon = cost(math.sqrt(squares[k] / least[k])) if flagged and cost is not None else None
    found = f"of {len(names)} parts, {names[k]} has the least: {share:.4f} of the declared sigma"
    found += f" in {sizes[k]} numbers" + (f": epsilon >= {epsilon:.4g}" if epsilon is not None else "")
    return Check("size of the noise in every part", found, flagged, epsilon)


#: Distances within a release: neighbours, lanes, groups and pieces of the generator, and those beside.
_DISTANCES = sorted(
    {k + near for k in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024) for near in (-1, 0, 1)} - {0}
)
_FAR = (4096, 8191, 8192, 8193, 16384, 32768)


def distances_check(noises: Sequence[Array], what: str = "numbers of a release") -> Check:
    """Are numbers of one release independent that lie at the same distance? Normal tests, as of a link."""
    scores: dict[str, float] = {}
    pairs = 0
    for distance in (*_DISTANCES, *_FAR, 0):
        inner = square = 0.0
        count = 0
        for noise in noises:
            step = distance or len(noise) // 2  # 0: the first half, and the second
            whole = len(noise) // (2 * step) * 2 * step if step else 0
            if not whole:
                continue
            cut = noise[:whole].reshape(-1, 2, step)
            inner += float(np.einsum("ij,ij->", cut[:, 0], cut[:, 1]))
            square += float(np.einsum("ij,ij->", cut[:, 1], cut[:, 1]))
            count += whole // 2
        if count >= 8:
            scores["half of its length" if not distance else str(distance)] = (
                inner / math.sqrt(square) if square > 0.0 else math.inf
            )
            pairs = max(pairs, count)
    name = f"independence of the {what}"
    if not scores:
        return Check(name, "no release is long enough", False)
    limit = float(norm.isf(LEVEL / (2 * len(scores))))
    worst = max(scores, key=lambda key: abs(scores[key]))
    power = _often(f"a correlation of {(limit + norm.ppf(POWER)) / math.sqrt(pairs):.2g} at a distance")
    return Check(
        name,
        f"of {len(scores)} distances, {worst} has the largest correlation: {scores[worst]:+.2f} deviations, "
        f"at most {limit:.2f} are due",
        not abs(scores[worst]) <= limit,
        power=power,
    )


def patterns_check(noises: Sequence[Array], exact: Sequence[Array]) -> Check:
    """Has every release the declared noise along fixed patterns, and along its own exact value?"""

    def along(pattern: Callable[[Array], Array]) -> tuple[float, int]:
        square, count = 0.0, 0
        for noise, value in zip(noises, exact):
            direction = pattern(value)
            size = float(np.linalg.norm(direction))
            if len(noise) > 1 and 0.0 < size < math.inf:
                square += (float(noise @ direction) / size) ** 2
                count += 1
        return square, count

    patterns: dict[str, Callable[[Array], Array]] = {
        "the sum": np.ones_like,
        "the alternating sum": lambda v: 1.0 - 2.0 * (np.arange(len(v)) % 2),
        "the halves' difference": lambda v: np.where(np.arange(len(v)) < len(v) // 2, 1.0, -1.0),
        "every fourth number": lambda v: (np.arange(len(v)) % 4 == 0).astype(np.float64),
        "the exact value": lambda v: v / max(float(np.abs(v).max()), 1e-300),
    }
    level, found, flagged = LEVEL / (2 * len(patterns)), [], False
    for name, pattern in patterns.items():
        square, count = along(pattern)
        if not count:
            continue
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
        power=f"notices a direction with less than {low / math.sqrt(times):.2f} of its noise",
    )


def rank_bounds(n_values: int, n_draws: int) -> tuple[float, float]:
    """Bounds on singular values of (draws, values) independent normals (Davidson and Szarek 2001)."""
    t = math.sqrt(-2.0 * math.log(LEVEL / 2))
    return math.sqrt(n_draws) - math.sqrt(n_values) - t, math.sqrt(n_draws) + math.sqrt(n_values) + t


def frequency_check(
    count: int, n: int, probability: float, name: str, epsilon_at: Callable[[float], float], claim: float
) -> Check:
    """Is a randomised answer true too often? Exact binomial test."""
    if not n:
        return Check(name, "there are no answers", True)
    most = int(binom.isf(LEVEL, n, probability))
    flagged = count > most
    # Clopper and Pearson: where the test is passed in one case of a hundred, and what was seen is no chance.
    high = float(beta.ppf(POWER, most + 1, n - most))
    least = epsilon_at(float(beta.ppf(LEVEL, count, n - count + 1))) if flagged else None
    found = f"{count / n:.4f} of {n} answers are true, {probability:.4f} are due"
    if least is not None:
        found += f": epsilon >= {least:.4g}"
    return Check(name, found, flagged, least, _often(f"{epsilon_at(high):.4g} in place of {claim:.4g}"))


def counts_check(name: str, parts: Iterable[tuple[str, int, int, float]], right: str) -> Check:
    """Are as many of the trials of every part (its name, successes, trials, probability) as is due?"""
    parts = [part for part in parts if part[2]]
    level, odd = LEVEL / max(2 * len(parts), 1), ""
    for part, count, trials, due in parts:
        # Trials of several biases with this mean spread no more, as far out as these are (Hoeffding 1956).
        low = min(binom.ppf(level, trials, due), trials * due - 1.0)
        high = max(binom.isf(level, trials, due), trials * due + 1.0)
        if not low <= count <= high:
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
