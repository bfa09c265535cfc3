"""The game of an audit: the same past on two neighbours, and what tells them apart.

A party is asked about one data set, then about its neighbour with the noise of the first: exact values may
differ by their sensitivity, and nothing else may differ at all. The theorems hold for any questions and any
past, so the audit chooses those in which one record moves most; all else is the code of a run, in whose
sources of noise a :class:`Tap` stands.

What releases cost is computed by formulas of the audit's own: it must not believe the accountant that it
examines (``docs/privacy.md#t5-composition``).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.coordinator.admm.penalty_rule import SHARING
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError
from fastadmm.files.atomic import plain
from fastadmm.privacy.fusion_mechanisms import Channel
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.message import private_solver
from fastadmm.privacy.noise import Calibration, GridMessage, NoiseSource
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy
from fastadmm.solver.options import SolverOptions

Array = np.ndarray

#: Budget of the audit's own runs.
UNLIMITED = 1e9

#: What is written in double precision may be this share more than the claim.
ROUNDING = 1e-6

#: What an audit sends in place of noise: by the call's number, what it was given, and the level; None draws.
Script = Callable[[int, Any, Any], Any]

#: A call or an answer: party, name, values.
Said = tuple[int, str, dict[str, Any]]

#: How rows are held.
STORED = {"dense": DenseBlock, "sparse": lambda rows: CSRBlock(sp.csr_array(rows))}


@dataclass(frozen=True)
class Check:
    """One line of an audit."""

    name: str
    found: str  # in words
    flagged: bool  # whether the claim is refuted
    epsilon: float | None = None  # a lower bound on epsilon that was found, where there is one

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite epsilon, which JSON does not have, is a text."""
        return dict(plain(asdict(self), "infinity"))


def exact_check(name: str, wrong: str, right: str) -> Check:
    """A check without chance: what is wrong, or that nothing is."""
    return Check(name, wrong or right, bool(wrong))


# --- what is drawn
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


class Tap:
    """Keeps every draw of this thread while it is open, from whatever source of noise."""

    def __init__(self, release: Script | None = None, uniform: Script | None = None) -> None:
        self.scripted = release is not None
        self._scripts = {"release": release, "uniform": uniform}
        self.releases: list[Release] = []
        self.uniforms: list[Array] = []  # each of shape (n,)

    def __enter__(self) -> Tap:
        # Looked up now: the audit is of what a run would call now.
        tapped: dict[str, Any] = {
            name: self._tapped(getattr(NoiseSource, name), name) for name in self._scripts
        }
        self._patch = patch.multiple(NoiseSource, **tapped)
        self._patch.start()
        return self

    def _tapped(self, honest: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A way to draw that keeps what is drawn, or what its script gives in its place."""
        here, script = threading.get_ident(), self._scripts[name]

        def draw(source: NoiseSource, what: Any, *given: Any, **named: Any) -> Any:
            if threading.get_ident() != here:
                return honest(source, what, *given, **named)
            asked = np.array(what, dtype=np.float64) if name == "release" else what
            number = len(self.releases if name == "release" else self.uniforms)
            drawn = None if script is None else script(number, asked, given[0])
            drawn = honest(source, what, *given, **named) if drawn is None else drawn
            if name == "release":
                self.releases.append(Release(asked, given[0], drawn, source.party, given[1]))
            else:
                self.uniforms.append(np.array(drawn))
            return drawn

        return draw

    def __exit__(self, *exc: Any) -> None:
        self._patch.stop()


def on_grid(chosen: Array, level: Calibration) -> GridMessage:
    """A chosen value as a message on the grid of its noise."""
    return GridMessage(np.rint(chosen / level.grid).astype(np.int64), level.grid)


def replayed(record: Tap) -> Tap:
    """A tap that gives what another has recorded, call by call; zeros where that has none of the size."""

    def release(call: int, exact: Array, level: Calibration) -> GridMessage:
        found = [r.sent for r in record.releases[call : call + 1] if len(r.exact) == len(exact)]
        return found[0] if found else on_grid(np.zeros(len(exact)), level)

    def uniform(call: int, n_values: int, _: int) -> Array:
        found = [numbers for numbers in record.uniforms[call : call + 1] if len(numbers) == n_values]
        return found[0] if found else np.zeros(n_values)

    return Tap(release, uniform)


def many_rows(most: int, delta: float) -> int:
    """As many rows as a claim with this delta may be about, at most ``most``."""
    return int(min(most, 0.8 / delta))


def enough_labels(label_epsilon: float) -> int:
    """Labels whose soft targets surely have a mean between 0 and 1."""
    return math.ceil(50.0 / math.tanh(label_epsilon / 2.0) ** 2)


# --- runs of the product's own code
class Watched:
    """A driver that keeps what was asked and answered."""

    def __init__(self, inner: Any, look: Callable[[], None]) -> None:
        self.inner, self.look, self.local = inner, look, inner.local
        self.calls, self.answers = list[Said](), list[Said]()

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers of the driver inside, to the calls of an exchange."""
        self.calls += [(call.party, call.name, _copied(call.made())) for call in exchange.calls]
        answers = self.inner.carry(exchange)
        told = zip(exchange.calls, answers or [])
        self.answers += [(call.party, call.name, _copied(answer)) for call, answer in told]
        self.look()
        return answers


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in values.items()}


def made_run(
    settings: DifferentialPrivacy,
    problem: Problem,
    *,
    threads: int = 1,
    look: Callable[[], None] = lambda: None,
    **common: Any,
) -> Any:
    """A run, watched."""
    # A penalty of 1: the modulus of an x-update is then the problem's own.
    options = SolverOptions(penalty=1.0, n_threads=threads)
    solver: Any = private_solver(problem, options, settings, **{"run": "audit", **common})
    solver.driver = Watched(solver.driver, look)
    return solver


def whole_run(settings: DifferentialPrivacy, problem: Problem, **how: Any) -> Any:
    """A run of :func:`made_run` that made all its rounds, and is closed."""
    with contextlib.closing(made_run(settings, problem, **how)) as solver:
        for _ in range(settings.exchanges):
            solver.round()
    return solver


def problem_of(blocks: Iterable[Any], mu: float | None = None, y: Array | None = None) -> Problem:
    """A problem, with every other label 1, whose x-updates have modulus mu where one is given."""
    held = [DenseBlock(block) if isinstance(block, np.ndarray) else block for block in blocks]
    n = held[0].shape[0]
    lam = 0.1 if mu is None else mu * SHARING.tau(len(held)) / n
    return make_problem(held, (np.arange(n) % 2).astype(np.float64) if y is None else y, lam=lam)


def run_releases(settings: DifferentialPrivacy, mu: float) -> list[Release]:
    """What four parties release in a whole run, on two threads."""
    rows = 3.0 * np.random.default_rng(0).normal(size=(4, many_rows(10_000, settings.delta), 10))
    with Tap() as tap:
        whole_run(settings, problem_of(rows, mu), threads=2)
    return tap.releases


# --- the game
@dataclass(frozen=True, eq=False)
class Case:
    """Neighbours, what their party is asked, and how it holds its rows. Shapes: first, second (N, d)."""

    name: str
    first: Array  # of shape (N, d): rows before clipping
    second: Array  # of shape (N, d): rows before clipping
    calls: Sequence[tuple[str, dict[str, Any]]] = ()  # empty: whole rounds
    past: Callable[[], Script] | None = None  # noisy values in place of those that are drawn
    stored: str = "dense"
    threads: int = 1
    place: int = 0  # of the record, whose own symbol is its own


@dataclass
class Asked:
    """What a party answered about its rows, and what was drawn for it."""

    tap: Tap
    answers: list[Said] = field(default_factory=list)
    calls: list[Said] = field(default_factory=list)
    wrong: str = ""  # what else was wrong; empty for nothing

    def but_for_symbol(self, place: int) -> list[Said]:
        """Answers without one record's symbol."""
        return [
            (m, name, {k: np.delete(v, place) if k == "levels" else v for k, v in said.items()})
            for m, name, said in self.answers
        ]


#: Asks a party that holds these rows what a case says.
Asking = Callable[[Case, Array, Tap], Asked]


@dataclass(frozen=True)
class Replay:
    """What a case showed."""

    name: str
    gdp: float
    pure: tuple[float, ...]
    epsilon: float  # what it cost
    wrong: str  # what differs that must not; empty for nothing


def asked_in_a_run(settings: DifferentialPrivacy, mu: float) -> Asking:
    """The last party of a run in this process is asked; without questions, all rounds are made."""

    def ask(case: Case, rows: Array, tap: Tap) -> Asked:
        made, blocks = settings, [np.ones((len(rows), 1)), STORED[case.stored](np.ascontiguousarray(rows))]
        if isinstance(made, MessagePrivacy) and not case.calls:
            made = made.with_(rounds=max(2, made.rounds))  # the second target is of messages, too
        solver = made_run(made, problem_of(blocks, mu), threads=case.threads)
        with contextlib.closing(solver), tap:
            party = solver.senders[-1]
            answers = [(1, name, party.answer(name, dict(values))) for name, values in case.calls]
            for _ in () if case.calls else range(made.exchanges):
                solver.round()
            if not case.calls:
                with contextlib.suppress(FastadmmError):
                    solver.round()  # one more than is charged
        return Asked(tap, [*answers, *solver.driver.answers], solver.driver.calls)

    return ask


def replay(settings: DifferentialPrivacy, case: Case, ask: Asking) -> Replay:
    """Play a case: ``docs/privacy.md#the-audit``."""
    one = ask(case, case.first, Tap(None if case.past is None else case.past()))
    other = ask(case, case.second, replayed(one.tap))
    gdp, asked_for, wrong = compare_transcripts(one.tap, other.tap)
    channels = [FusionMessage.from_arrays(said).channel for _, name, said in one.answers if name == "fuse"]
    pure, discrete = tuple(map(symbol_epsilon, channels)), settings.sampler == "discrete"
    epsilon, declared = (epsilon_spent(mu, settings.delta, pure, discrete) for mu in (gdp, asked_for))
    differ = same_calls(one.calls, other.calls) or same_calls(
        *(asked.but_for_symbol(case.place) for asked in (one, other))
    )
    sent = [release.sent.values for release in one.tap.releases]
    messages = [said["message"] for _, _, said in one.answers if "message" in said]
    foreign = [m for m in messages if not any(np.array_equal(m, values) for values in sent)]
    wrong = wrong or one.wrong or other.wrong or "no noise is drawn" * (not sent)
    wrong = wrong or (f"{differ} depends on more than what was sent" if differ else "")
    wrong = wrong or "a message is not what the noise source gave" * bool(foreign)
    if not declared <= settings.epsilon * (1.0 + ROUNDING):
        wrong = wrong or f"the noise that is asked for is that of epsilon = {declared:.4g}"
    return Replay(case.name, gdp, pure, epsilon, wrong)


def compare_transcripts(first: Tap, second: Tap) -> tuple[float, float, str]:
    """What the releases of two neighbours cost by T5, what they declare, and what differs that must not.

    Both have the same past: ``docs/privacy.md#the-audit``.
    """
    one, other = first.releases, second.releases
    sizes, others = ([len(numbers) for numbers in tap.uniforms] for tap in (first, second))
    public = len(one) == len(other) and sizes == others
    square, beyond, declared = 0.0, 0.0, dict[int, float]()
    for a, b in zip(one, other):
        declared[a.party] = declared.get(a.party, 0.0) + a.level.gdp**2
        if not a.on_grid or len(a.exact) != len(b.exact) or a.level != b.level or a.round != b.round:
            public = False
            continue
        distance, allowed = float(np.linalg.norm(a.exact - b.exact)), a.level.sensitivity
        square += (distance / a.level.sigma) ** 2
        if distance > 0.0:
            beyond = max(beyond, distance / allowed if allowed > 0.0 else math.inf)
    far = f"a release moves {beyond:.3g} times as far as declared" * (beyond > 1.0 + ROUNDING)
    wrong = far if public else "number, size or noise of the releases is another"
    return math.sqrt(square), math.sqrt(max(declared.values(), default=0.0)), wrong


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


def replay_checks(what: str, settings: DifferentialPrivacy, found: Sequence[Replay]) -> list[Check]:
    """The cost of the worst case, and what was wrong with any."""
    worst = max(found, key=lambda each: each.epsilon)
    wrong = next((f"{each.wrong}, on {each.name}" for each in found if each.wrong), "")
    right = "given what was sent before, all but the record's own symbol is the same"
    return [
        cost_check(f"cost of {what}, replayed", worst.epsilon, settings, f"on {worst.name}"),
        exact_check(f"what is public of {what}", wrong, f"{right}, in {len(found)} replays"),
    ]


# --- what releases cost
def cost_check(name: str, cost: float, settings: DifferentialPrivacy, where: str) -> Check:
    """Is a cost within the claim, but for rounding?"""
    found = f"epsilon = {cost:.4g} at delta {settings.delta:g} {where}, claim {settings.epsilon:.4g}"
    return Check(name, found, not cost <= settings.epsilon * (1.0 + ROUNDING), cost)


def symbol_epsilon(channel: Channel, n: int = 200_000) -> float:
    """The larger of what a channel declares and the largest log ratio of its symbols' frequencies."""
    engine, source = Engine(1), NoiseSource()
    counts = []
    for number, end in enumerate((-1.0, 1.0)):
        with Tap(None, lambda call, size, _: (np.arange(size) + 0.5) / size):
            levels = channel.release(np.full(n, end * 1e9), source, number, engine)
        counts.append(np.bincount(levels, minlength=channel.n_levels).astype(np.float64))
    # Each frequency is a probability, but for one more or one fewer at each end of an interval.
    low, high = counts
    ratios = np.maximum((low - 2.0) / (high + 2.0), (high - 2.0) / (low + 2.0))
    return max(float(channel.epsilon), math.log(max(float(ratios.max()), 1.0)))


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
            tail = math.exp(min(e + float(log_ndtr(-e / mu - 0.5 * mu)), 0.0))
            excess = float(ndtr(-e / mu + 0.5 * mu)) - tail
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
    rest = math.fsum(pure) if discrete else 0.0

    def holds(epsilon: float) -> bool:
        spent = discrete_delta_spent(mu, epsilon) if discrete else delta_spent(mu, epsilon, pure)
        return spent <= delta * (1.0 + ROUNDING)

    if (mu == 0.0 and not pure) or holds(0.0):
        return rest
    low, high = 0.0, 1.0
    while not holds(high) and high < 1e6:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high + rest
