"""The transcript of a private run: every value before its noise, and what was sent of it.

A :class:`Tap` stands in every source of noise of this thread and keeps both sides of every call. With
:func:`replayed` a neighbour's run gets the recorded noisy values: the exact values may then differ by the
sensitivity, and nothing else may differ at all.

What releases cost is computed by formulas of the audit's own: it must not believe the accountant that it
examines (``docs/privacy.md#t5-composition``).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.privacy import message
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.solver.options import SolverOptions

Array = np.ndarray

#: Budget of the audit's own runs.
UNLIMITED = 1e9

#: What is written in double precision may be this share more than the claim.
ROUNDING = 1e-6

#: What an audit sends in place of noise: number of the call, exact value, level; None draws.
Script = Callable[[int, Array, Calibration], Any]


@dataclass(frozen=True)
class Release:
    """One call for noise. Shapes: exact (n,)."""

    exact: Array  # of shape (n,): the value before noise
    level: Calibration  # the noise that was asked for
    sent: GridMessage  # what came back
    party: int  # whose source it was
    round: int

    @property
    def noise(self) -> Array:
        """The noise in units of the sigma that was asked for, of shape (n,)."""
        steps = self.sent.integers - np.rint(self.exact / self.sent.grid)
        return steps * (self.sent.grid / self.level.sigma)

    @property
    def on_grid(self) -> bool:
        """Whether no digit, which would be the exact value's, is below the grid (Mironov 2012)."""
        return self.sent.grid == self.level.grid


@dataclass(frozen=True)
class Drawn:
    """One call for uniform numbers. Shapes: numbers (n,)."""

    numbers: Array  # of shape (n,)
    party: int  # whose source it was


class Tap:
    """Keeps every draw of this thread while it is open, from whatever source of noise."""

    def __init__(
        self, release: Script | None = None, uniform: Callable[[int, int], Any] | None = None
    ) -> None:
        self.scripted = release is not None
        self._script, self._numbers = release, uniform
        self.releases: list[Release] = []
        self.uniforms: list[Drawn] = []

    def __enter__(self) -> Tap:
        here = threading.get_ident()
        # Looked up now: the audit is of what a run would call now.
        self._own = NoiseSource.release, NoiseSource.uniform
        release, uniform = self._own

        def tapped(
            source: NoiseSource, values: Array, level: Calibration, round: int, *more: Any, **named: Any
        ) -> GridMessage:
            if threading.get_ident() != here:
                return release(source, values, level, round, *more, **named)
            exact, number = np.array(values, dtype=np.float64), len(self.releases)
            chosen = None if self._script is None else self._script(number, exact, level)
            sent = release(source, values, level, round, *more, **named) if chosen is None else chosen
            self.releases.append(Release(exact, level, sent, source.party, round))
            return sent

        def numbers(source: NoiseSource, n_values: int, *more: Any, **named: Any) -> Array:
            if threading.get_ident() != here:
                return uniform(source, n_values, *more, **named)
            chosen = None if self._numbers is None else self._numbers(len(self.uniforms), n_values)
            drawn = uniform(source, n_values, *more, **named) if chosen is None else chosen
            self.uniforms.append(Drawn(np.array(drawn), source.party))
            return drawn

        patched: Any = NoiseSource
        patched.release, patched.uniform = tapped, numbers
        return self

    def __exit__(self, *exc: Any) -> None:
        patched: Any = NoiseSource
        patched.release, patched.uniform = self._own


def many_rows(most: int, delta: float) -> int:
    """As many rows as a claim with this delta may be about, at most ``most``."""
    return int(min(most, 0.8 / delta))


def enough_labels(label_epsilon: float) -> int:
    """Labels whose soft targets surely have a mean between 0 and 1."""
    return math.ceil(50.0 / math.tanh(label_epsilon / 2.0) ** 2)


def on_grid(chosen: Array, level: Calibration) -> GridMessage:
    """A chosen value as a message on the grid of its noise."""
    return GridMessage(np.rint(chosen / level.grid).astype(np.int64), level.grid)


def replayed(record: Tap) -> Tap:
    """A tap that gives what another has recorded, call by call; zeros where that has none of the size."""

    def release(call: int, exact: Array, level: Calibration) -> GridMessage:
        found = record.releases[call] if call < len(record.releases) else None
        if found is None or len(found.exact) != len(exact):
            return GridMessage(np.zeros(len(exact), dtype=np.int64), level.grid)
        return found.sent

    def uniform(call: int, n_values: int) -> Array:
        found = record.uniforms[call].numbers if call < len(record.uniforms) else None
        return np.zeros(n_values) if found is None or len(found) != n_values else found

    return Tap(release, uniform)


def compare_transcripts(first: Tap, second: Tap) -> tuple[float, float, str]:
    """What the releases of two neighbours cost by T5, what they declare, and what differs that must not.

    Both have the same past: ``docs/privacy.md#the-audit``.
    """
    one, other = first.releases, second.releases
    sizes, others = ([len(drawn.numbers) for drawn in tap.uniforms] for tap in (first, second))
    public = len(one) == len(other) and sizes == others
    square, beyond, declared = 0.0, 0.0, dict[int, float]()
    for a, b in zip(one, other):
        declared[a.party] = declared.get(a.party, 0.0) + a.level.gdp**2
        if not a.on_grid or len(a.exact) != len(b.exact) or a.level != b.level or a.round != b.round:
            public = False
            continue
        distance = float(np.linalg.norm(a.exact - b.exact))
        square += (distance / a.level.sigma) ** 2
        if distance > 0.0:
            allowed = a.level.sensitivity
            beyond = max(beyond, distance / allowed if allowed > 0.0 else math.inf)
    far = f"a release moves {beyond:.3g} times as far as declared" * (beyond > 1.0 + ROUNDING)
    wrong = far if public else "number, size or noise of the releases is another"
    return math.sqrt(square), math.sqrt(max(declared.values(), default=0.0)), wrong


#: Looked up when it is called, as a run does.
_MODES: Any = message


#: A call or an answer: party, name, values.
Said = tuple[int, str, dict[str, Any]]


class Watched:
    """A driver that keeps what was asked and answered."""

    def __init__(self, inner: Any, look: Callable[[], None] | None = None) -> None:
        self.inner, self.look, self.local = inner, look, inner.local
        self.calls, self.answers = list[Said](), list[Said]()

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers of the driver inside, to the calls of an exchange."""
        for call in exchange.calls:
            self.calls.append((call.party, call.name, _copied(call.made())))
        answers = self.inner.carry(exchange)
        for call, answer in zip(exchange.calls, answers or []):
            self.answers.append((call.party, call.name, _copied(answer)))
        if self.look is not None:
            self.look()
        return answers


def made_run(
    settings: DifferentialPrivacy,
    problem: Problem,
    *,
    threads: int = 1,
    look: Callable[[], None] | None = None,
    **common: Any,
) -> Any:
    """A run of the product's own code, watched."""
    # A penalty of 1: the modulus of an x-update is then the problem's own.
    options = SolverOptions(penalty=1.0, n_threads=threads)
    solver = _MODES.private_solver(problem, options, settings, **{"run": "audit", **common})
    solver.driver = Watched(solver.driver, look)
    return solver


def whole_run(settings: DifferentialPrivacy, problem: Problem, **how: Any) -> Any:
    """A run of :func:`made_run` that made all its rounds, and is closed."""
    with contextlib.closing(made_run(settings, problem, **how)) as solver:
        for _ in range(settings.exchanges):
            solver.round()
    return solver


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in values.items()}


def same_calls(one: Sequence[Said], other: Sequence[Said]) -> str:
    """What differs between two lists of calls or answers, bit for bit; empty for nothing."""
    if [(m, name) for m, name, _ in one] != [(m, name) for m, name, _ in other]:
        return "number or order of the exchanges"
    for (m, name, values), (_, _, others) in zip(one, other):
        if values.keys() != others.keys():
            return f"what party {m} is sent with {name!r}"
        for key, value in values.items():
            if not np.array_equal(np.asarray(value), np.asarray(others[key])):
                return f"{key!r} of call {name!r}, party {m}"
    return ""


#: Pure mechanisms of one record whose signs are enumerated; more are added to epsilon plainly.
_MOST_SIGNS = 10


def delta_spent(mu: float, epsilon: float, pure: Sequence[float] = ()) -> float:
    """Delta at epsilon of Gaussian releases with mu in all, and of pure mechanisms."""
    from scipy.special import log_ndtr, ndtr

    signed = sorted((p for p in pure if p > 0.0), reverse=True)
    epsilon -= math.fsum(signed[_MOST_SIGNS:])
    total = 0.0
    for signs in itertools.product((1.0, -1.0), repeat=min(len(signed), _MOST_SIGNS)):
        probability, e = 1.0, epsilon
        for sign, p in zip(signs, signed):
            probability *= 1.0 / (1.0 + math.exp(-sign * p))
            e -= sign * p
        if mu > 0.0:
            excess = float(ndtr(-e / mu + 0.5 * mu)) - math.exp(
                min(e + float(log_ndtr(-e / mu - 0.5 * mu)), 0.0)
            )
        else:
            excess = -math.expm1(e) if e < -1e-11 else 0.0
        total += probability * max(excess, 0.0)
    return min(total, 1.0)


def discrete_delta_spent(mu: float, epsilon: float) -> float:
    r"""The same of discrete Gaussian noise, by zCDP with :math:`\rho = \mu^2/2`."""
    more = np.exp(np.linspace(-12.0, 12.0, 240_001))
    alpha = 1.0 + more
    logs = more * (alpha * 0.5 * mu * mu - epsilon) - np.log(more) + alpha * (np.log(more) - np.log(alpha))
    return float(min(1.0, math.exp(min(float(logs.min()), 0.0))))


def epsilon_spent(mu: float, delta: float, pure: Sequence[float] = (), discrete: bool = False) -> float:
    """Epsilon that all of it costs at delta, by bisection."""
    if not math.isfinite(mu):
        return math.inf
    allowed = delta * (1.0 + ROUNDING)
    rest = math.fsum(pure) if discrete else 0.0

    def spent(epsilon: float) -> float:
        return discrete_delta_spent(mu, epsilon) if discrete else delta_spent(mu, epsilon, pure)

    if (mu == 0.0 and not pure) or spent(0.0) <= allowed:
        return rest
    return bisected(lambda epsilon: spent(epsilon) <= allowed, 1e6)[1] + rest


def bisected(holds: Callable[[float], bool], most: float) -> tuple[float, float]:
    """Positive numbers just below and above the least one for which something holds."""
    low, high = 0.0, 1.0
    while not holds(high) and high < most:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high
