"""The game of an audit: the same past on two neighbours, and what tells them apart.

A party is asked about one data set, then about its neighbour with the noise of the first: exact values may
differ by their sensitivity, and nothing else may differ at all. The theorems hold for any questions and any
past, so the audit chooses those in which one record moves most; all else is the code of a run.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock
from fastadmm.coordinator.admm.order import SHARING
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError
from fastadmm.privacy.fusion_mechanisms import Channel
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.noise_tests import Check, exact_check
from fastadmm.privacy.transcript import (
    ROUNDING,
    Release,
    Said,
    Script,
    Tap,
    compare_transcripts,
    epsilon_spent,
    made_run,
    many_rows,
    replayed,
    same_calls,
    whole_run,
)
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy

Array = np.ndarray

#: How rows are held.
STORED = {"dense": DenseBlock, "sparse": lambda rows: CSRBlock(sp.csr_array(rows))}


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


def replay(settings: DifferentialPrivacy, case: Case, ask: Asking) -> Replay:
    """Play a case: ``docs/privacy.md#the-audit``."""
    one = ask(case, case.first, Tap(None if case.past is None else case.past()))
    other = ask(case, case.second, replayed(one.tap))
    gdp, asked_for, wrong = compare_transcripts(one.tap, other.tap)
    channels = [FusionMessage.from_arrays(said).channel for _, name, said in one.answers if name == "fuse"]
    pure, discrete = tuple(map(symbol_epsilon, channels)), settings.sampler == "discrete"
    epsilon, declared = (epsilon_spent(mu, settings.delta, pure, discrete) for mu in (gdp, asked_for))
    differ = same_calls(one.calls, other.calls) or same_calls(_others(one, case), _others(other, case))
    sent = [release.sent.values for release in one.tap.releases]
    wrong = wrong or one.wrong or other.wrong or "no noise is drawn" * (not sent)
    if differ:
        wrong = wrong or f"{differ} depends on more than what was sent"
    for _, _, said in one.answers:
        if "message" in said and not any(np.array_equal(said["message"], values) for values in sent):
            wrong = wrong or "a message is not what the noise source gave"
    if not declared <= settings.epsilon * (1.0 + ROUNDING):
        wrong = wrong or f"the noise that is asked for is that of epsilon = {declared:.4g}"
    return Replay(case.name, gdp, pure, epsilon, wrong)


def _others(asked: Asked, case: Case) -> list[Said]:
    """Answers without the record's own symbol."""
    return [
        (m, name, {k: np.delete(v, case.place) if k == "levels" else v for k, v in said.items()})
        for m, name, said in asked.answers
    ]


def replay_checks(what: str, settings: DifferentialPrivacy, found: Sequence[Replay]) -> list[Check]:
    """The cost of the worst case, and what was wrong with any."""
    worst = max(found, key=lambda each: each.epsilon)
    wrong = next((f"{each.wrong}, on {each.name}" for each in found if each.wrong), "")
    right = "given what was sent before, all but the record's own symbol is the same"
    return [
        cost_check(f"cost of {what}, replayed", worst.epsilon, settings, f"on {worst.name}"),
        exact_check(f"what is public of {what}", wrong, f"{right}, in {len(found)} replays"),
    ]


def cost_check(name: str, cost: float, settings: DifferentialPrivacy, where: str) -> Check:
    """Is a cost within the claim, but for rounding?"""
    claim = settings.epsilon
    found = f"epsilon = {cost:.4g} at delta {settings.delta:g} {where}, claim {claim:.4g}"
    return Check(name, found, not cost <= claim * (1.0 + ROUNDING), cost)


def problem_of(blocks: Sequence[Any], mu: float) -> Problem:
    """A problem whose x-updates have modulus mu."""
    n = blocks[0].shape[0]
    lam = mu * SHARING.tau(len(blocks)) / n
    return make_problem(list(blocks), (np.arange(n) % 2).astype(np.float64), lam=lam)


def run_releases(settings: DifferentialPrivacy, mu: float) -> list[Release]:
    """What four parties release in a whole run, on two threads."""
    n = many_rows(10_000, settings.delta)
    rows = 3.0 * np.random.default_rng(0).normal(size=(4, n, 10))
    with Tap() as tap:
        whole_run(settings, problem_of(list(map(DenseBlock, rows)), mu), threads=2)
    return tap.releases


def asked_in_a_run(settings: DifferentialPrivacy, mu: float) -> Asking:
    """The last party of a run in this process is asked; without questions, all rounds are made."""

    def ask(case: Case, rows: Array, tap: Tap) -> Asked:
        blocks = [DenseBlock(np.ones((len(rows), 1))), STORED[case.stored](np.ascontiguousarray(rows))]
        made = settings
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


def symbol_epsilon(channel: Channel, n: int = 200_000) -> float:
    """The larger of what a channel declares and the largest log ratio of its symbols' frequencies."""
    engine, source = Engine(1), NoiseSource()
    counts = []
    for number, end in enumerate((-1.0, 1.0)):
        with Tap(None, lambda call, size: (np.arange(size) + 0.5) / size):
            levels = channel.release(np.full(n, end * 1e9), source, number, engine)
        counts.append(np.bincount(levels, minlength=channel.n_levels).astype(np.float64))
    # Each frequency is a probability, but for one more or one fewer at each end of an interval.
    low, high = counts
    ratios = np.maximum((low - 2.0) / (high + 2.0), (high - 2.0) / (low + 2.0))
    return max(float(channel.epsilon), math.log(max(float(ratios.max()), 1.0)))
