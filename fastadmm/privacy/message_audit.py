"""The audit of mode "message": its own code on the worst neighbours, and its noise.

Neighbours are found by search: those that the bounds are about, and for every clip those that would be
farthest apart without it. The theorems hold for any public target, so the audit chooses the targets; all else
is the code of a run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock
from fastadmm.coordinator.admm.order import SHARING
from fastadmm.errors import FastadmmError, InputError
from fastadmm.privacy.adversary import concrete_rows, find_worst_pair
from fastadmm.privacy.noise_tests import Check, directions_check, exact_check
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.source_audit import DrawnNoise, audit_source
from fastadmm.privacy.transcript import (
    ROUNDING,
    UNLIMITED,
    Comparison,
    Release,
    Tap,
    compare_transcripts,
    epsilon_spent,
    made_run,
    many_rows,
    replayed,
    same_calls,
    share_cost,
)
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy
from fastadmm.solver.options import SolverOptions

Array = np.ndarray

#: Records of the neighbours, of a run whose noise is tested, and of the run whose directions are.
_ROWS, _MANY_ROWS, _SIDE = 4_000, 20_000, 64

#: Rounds of the run whose directions are tested.
_SIDE_ROUNDS = 400

#: Numbers of records at which the noise level is asked for; none may be below what the claim needs.
_LADDER = (2, 17, 300, 1_000, 5_001, 8_193, 20_001, 50_001, 131_073, 300_001)

#: How much longer than allowed are rows and targets that have to be clipped.
_BEYOND = 10.0

#: All that is drawn is of one kind.
_ALL = "all messages"

#: How rows are held.
STORED = {"dense": DenseBlock, "sparse": lambda rows: CSRBlock(sp.csr_array(rows))}


@dataclass(frozen=True)
class Pair:
    """Neighbours, and what an adversary asks for. Shapes: first, second (N, d); target (N,)."""

    name: str
    first: Array  # of shape (N, d): rows before clipping
    second: Array  # of shape (N, d): rows before clipping
    target: Array | None  # of shape (N,): none for the run's own

    def made(
        self, name: str, of_rows: Callable[[Array], Array], of_target: Callable[[Array], Array] = np.copy
    ) -> Pair:
        """The same neighbours with rows and target changed. Shapes: as of the pair's."""
        target = None if self.target is None else of_target(self.target)
        return Pair(f"{self.name}, {name}", of_rows(self.first), of_rows(self.second), target)


def cost_of_messages(gdp: float, settings: MessagePrivacy) -> float:
    """Epsilon of all messages of a party together."""
    return epsilon_spent(gdp, settings.delta, (), settings.sampler == "discrete")


def declared_cost(settings: MessagePrivacy, mu: float, sigma: float) -> Check:
    """Is a noise level enough for the claim, according to the theorems?"""
    bound = message_sensitivity(settings, mu, 1)
    cost = cost_of_messages(math.sqrt(settings.rounds) * bound.value / sigma, settings)
    where = f"for {settings.rounds} message(s) with sigma {sigma:.4g} and sensitivity {bound.value:.4g}"
    return cost_check("cost of the noise on record", cost, settings, f"{where} ({bound.theorem})", "")


def audit_message_code(
    settings: MessagePrivacy, mu: float, trials: int, note: Callable[[str], None]
) -> list[Check]:
    """Replay worst neighbours, and test noise: ``docs/privacy.md#the-audit``."""
    if settings.adjacency == "column":
        raise InputError("audit: the search covers adjacency replace_one and zero_out, not column")
    # What leaves a party is looked at as it is, labels have a check of their own, and the ledger shall not
    # stop what is to be measured.
    shrinks = settings.shrink
    settings = settings.with_(shrink=False, label_epsilon=None, total_epsilon=UNLIMITED)
    with contextlib.closing(_Code(settings, mu, shrinks)) as code:
        note("searching for the worst neighbours")
        pairs = worst_pairs(settings, mu)
        note("replaying messages on neighbours")
        code.replay_all(pairs)
        code.clip_rows()
        note("drawing noise")
        code.draw(trials)
        name, worst = max(code.found, key=lambda each: each[1].gdp)

        def cost(gdp: float, share: float = 1.0) -> float:
            return cost_of_messages(share_cost(gdp, share), settings)

        def named(kind: str, release: Release) -> str:
            return f"round {release.round} of party {release.party}"

        where = f"{name}, {worst.n_releases} message(s)"
        source = code.solver([DenseBlock(np.ones((2, 1)))] * 2, 1).noise_source
        return [
            replay_check("all messages", cost(worst.gdp), cost(code.found[0][1].gdp), settings, where),
            code.level_check(worst),
            public_check(code.differ, "targets, sizes and noise levels are the same"),
            *code.noise.checks("rounds, parties, runs", "rounds", named, partial(cost, worst.gdp), _ALL),
            directions_check(code.side),
            *audit_source(source, "messages", settings.sampler == "discrete"),
        ]


def worst_pairs(settings: MessagePrivacy, mu: float) -> list[Pair]:
    """Neighbours of the bounds, and for each clip those that need it most."""
    ball, target, clip = settings.ball, settings.clip_of_targets, settings.message_clip
    rows = min(float(_ROWS), 0.8 / settings.delta)

    def search(name: str, b: float, w: float, m: float, clip: float | None, longer: float = 1.0) -> Pair:
        limits = {"rows": rows, "longest": 1.0 if clip is None else min(1.0, clip / b)}
        searched = {"adjacency": settings.adjacency, "center": settings.message_center, "starts": 1}
        pair = find_worst_pair(b, w, m, clip, **searched, **limits)
        first, second, asked = concrete_rows(pair, w, limits["longest"])
        return Pair(name, longer * first, longer * second, asked)

    pairs = [search("the worst neighbours", ball, target, mu, clip)]
    if clip is not None:
        pairs.append(search("neighbours that need clipped messages", ball, target, mu, None))
    pairs.append(search("neighbours that need clipped targets", ball, _BEYOND * target, mu, clip))
    # Rows that are longer by a factor are the same as a larger ball and a smaller ridge.
    far = _BEYOND * ball, target, mu / _BEYOND**2
    pairs.append(search("neighbours that need clipped rows", *far, clip, longer=_BEYOND))
    return [pair for pair in pairs if len(pair.first) * settings.delta < 1.0] or pairs[:1]


def replay_check(
    what: str, epsilon: float, declared: float, settings: DifferentialPrivacy, where: str
) -> Check:
    """Is what a replay on the worst neighbours cost within the claim, of which the bounds use so much?"""
    claim, power = settings.epsilon, "exact"
    if 0.0 < declared <= claim:
        power = f"exact: would notice every fault that makes epsilon {claim / declared:.3f} times as large"
    return cost_check(f"cost of {what}, replayed", epsilon, settings, f"on {where}", power)


def cost_check(
    name: str, cost: float, settings: DifferentialPrivacy, where: str, power: str = "exact"
) -> Check:
    """Is a cost within the claim, but for rounding?"""
    claim = settings.epsilon
    found = f"epsilon = {cost:.4g} at delta {settings.delta:g} {where}, claim {claim:.4g}"
    return Check(name, found, not cost <= claim * (1.0 + ROUNDING), cost, power)


def public_check(differ: str, right: str) -> Check:
    """What replays showed besides distances."""
    return exact_check("what is public, on neighbours", differ, f"given what was sent before, {right}")


class _Code:
    """Runs of the product's own code, and what their transcripts show."""

    def __init__(self, settings: MessagePrivacy, mu: float, shrinks: bool) -> None:
        self.settings, self.mu, self.shrinks = settings, mu, shrinks
        self.solvers: list[Any] = []
        self.noise = DrawnNoise()
        self.found: list[tuple[str, Comparison]] = []
        self.differ = ""
        self.side = np.zeros((0, _SIDE))

    def close(self) -> None:
        """End all runs."""
        for solver in self.solvers:
            solver.close()

    def solver(
        self, blocks: list[Any], rounds: int, threads: int = 1, path: str = "solver", shrinks: bool = False
    ) -> Any:
        """A run whose x-update has modulus mu."""
        n, tau = blocks[0].shape[0], SHARING.tau(len(blocks))
        y = (np.arange(n) % 2).astype(np.float64)
        problem = make_problem(blocks, y, lam=1.0)
        problem = make_problem(blocks, y, lam=self.mu * tau * problem.lam / problem.regularization)
        options = SolverOptions(penalty=1.0, n_threads=threads)
        settings = self.settings.with_(rounds=rounds, shrink=shrinks)
        made = made_run(settings, problem, options, path)
        self.solvers.append(made)
        return made

    def replay_all(self, pairs: list[Pair]) -> None:
        """Every pair in two columns and in five, asked in both ways; some among many rows, and at the end."""
        turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 2)))[0].T
        for pair in pairs:
            wide = pair.made("in 5 columns", lambda rows: rows @ turn)
            self.replay(pair)
            self.replay(wide, stored="sparse")
            self.replay(wide, path="agent")
        for pair in (pairs[0], pairs[-1]):
            last = pair.made("the record last", lambda rows: rows[::-1].copy(), lambda w: w[::-1].copy())
            self.replay(last, stored="sparse", path="agent", threads=2)
        most = max(many_rows(40_000, self.settings.delta), len(pairs[0].first))
        more = most - len(pairs[0].first)  # rows of zeros move nothing
        many = pairs[0].made(
            f"among {most} rows", lambda r: np.pad(r, ((0, more), (0, 0))), lambda w: np.pad(w, (0, more))
        )
        self.replay(many, threads=2)
        # Neighbours whose other rows are any; the record turns from one side to the other.
        first = np.random.default_rng(2).normal(size=(many_rows(500, self.settings.delta), 4))
        second = first.copy()
        first[3], second[3] = 50.0, 0.0 if self.settings.adjacency == "zero_out" else -50.0
        others = Pair("any neighbours", first, second, None)
        self.replay(pairs[0], own_targets=True)
        self.replay(others, path="agent", own_targets=True)
        self.replay(others, stored="sparse", own_targets=True, threads=2)

    def replay(
        self,
        pair: Pair,
        stored: str = "dense",
        path: str = "solver",
        threads: int = 1,
        own_targets: bool = False,
    ) -> None:
        """One run on a data set, and the same past on its neighbour."""
        rounds = max(2, self.settings.rounds) if own_targets else self.settings.rounds
        made: list[Any] = []
        taps: list[Tap] = []
        for rows in (pair.first, pair.second):
            blocks = [STORED[stored](np.ascontiguousarray(each)) for each in (rows, pair.first)]
            solver = self.solver(blocks, rounds, threads, path, own_targets and self.shrinks)
            if not own_targets and pair.target is not None:
                solver._target = lambda m: pair.target
            with replayed(taps[0]) if taps else Tap() as tap:
                for number in range(1, rounds + 1):
                    solver.round()
                    self._look_at(solver, tap, number, not own_targets)
                self._one_round_more(solver, tap)
            made.append(solver)
            taps.append(tap)
        compared, other = (compare_transcripts(taps[0], taps[1], m) for m in (0, 1))
        one, again = (solver.driver for solver in made)
        wrong = compared.wrong or other.wrong
        if not compared.n_releases == other.n_releases == rounds or other.gdp > 0.0:
            wrong = "releases differ in number, or are another party's"
        elif differ := same_calls(one.calls, again.calls) or same_calls(one.answers, again.answers):
            wrong = f"{differ} depends on more than what was sent"
        if wrong:
            self.differ = self.differ or f"{wrong} on {pair.name}"
        self.noise.keep(_ALL, taps[0].releases)
        if not own_targets:
            self.found.append((pair.name, compared))

    def _look_at(self, solver: Any, tap: Tap, number: int, chosen: bool) -> None:
        """Is a message what the source gave, from within its interval?"""
        b, c = self.settings.message_clip, self.settings.message_center
        answered = {m: said["message"] for m, name, said in solver.driver.answers if name == "noisy"}
        for m, given in answered.items():
            sent = [r for r in tap.releases if (r.party, r.round) == (m, number)]
            if len(sent) != 1 or not np.array_equal(given, sent[0].sent.values):
                self.differ = self.differ or "a message is not what the noise source gave"
            elif b is not None and float(np.abs(sent[0].exact - c).max()) > b * (1.0 + ROUNDING):
                self.differ = self.differ or "a message is beyond its interval before noise is added"
            elif chosen and bool((sent[0].exact == c).all()):
                self.differ = self.differ or "an x-update has no certificate: a message is its centre alone"

    def _one_round_more(self, solver: Any, tap: Tap) -> None:
        """No round is made that was not charged beforehand."""
        drawn = len(tap.releases)
        with contextlib.suppress(FastadmmError):
            solver.round()
        if len(tap.releases) > drawn:
            self.differ = self.differ or f"more messages are sent than the {drawn} that are declared"

    def clip_rows(self) -> None:
        """Rows of every length and storage, as the parties hold them: none is longer than 1."""
        rng = np.random.default_rng(3)
        for columns in (1, 2, 5, 40, 300):
            n = many_rows(9_001 if columns < 40 else 300, self.settings.delta)
            lengths = np.resize([1e-3, 0.5, 1.0 + 1e-6, 2.0, 4.0, 7.0, 1e3, 1e20], n)
            rows = rng.normal(size=(n, columns))
            rows *= (lengths / np.linalg.norm(rows, axis=1))[:, None]
            for stored, wrap in STORED.items():
                for path in ("solver", "agent"):
                    solver = self.solver([wrap(rows), wrap(rows)], 1, path=path)
                    own = solver.driver.inner.parties
                    held = [own[m].block.columns(np.arange(columns), solver.engine) for m in range(2)]
                    longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in held)
                    if longest > 1.0 + 1e-9:
                        where = f"{columns} column(s), {stored}"
                        self.differ = self.differ or f"a row of norm {longest:.3g} is not clipped ({where})"

    def level_check(self, worst: Comparison) -> Check:
        """Is the noise at every number of records enough for the worst that was replayed?"""
        settings, found = self.settings, []
        for n in sorted({many_rows(n, settings.delta) for n in _LADDER} - {0}):
            blocks = [DenseBlock(np.ones((n, 1)))] * 3
            agents = self.solver(blocks, settings.rounds, path="agent").driver.inner.parties.values()
            for party in (*self.solver(blocks, settings.rounds).parties, *agents):
                # Distances of the worst pair in units of its own noise, which is that of few records.
                found.append((party.level.sigma, n, party.level.gdp))
        sigma, n, _ = min(found)
        declared = max(gdp for _, _, gdp in found) * math.sqrt(settings.rounds)
        cost = cost_of_messages(max(worst.gdp * worst.sigma / sigma, declared), settings)
        where = f"as replayed with sigma of {sigma:.4g} at least, for {n} records"
        return cost_check("noise at every number of records", cost, settings, where)

    def draw(self, trials: int) -> None:
        """Noise of long messages on two threads, of three parties, by both paths; and of many short ones."""
        rng = np.random.default_rng(0)
        n = many_rows(min(_MANY_ROWS, max(trials // 6, 100)), self.settings.delta)
        drawn = sum(len(release.exact) for release in self.noise.kinds[_ALL])
        rounds = max(2, math.ceil((trials - drawn) / (6 * n)))
        for path in ("solver", "agent"):
            blocks = [DenseBlock(3.0 * rng.normal(size=(n, 2))) for _ in range(3)]
            solver = self.solver(blocks, rounds, threads=2, path=path)
            targets = [10.0 * blocks[m].matrix.sum(axis=1) for m in range(3)]
            solver._target = lambda m, targets=targets: targets[m]
            with Tap() as tap:
                for _ in range(rounds):
                    solver.round()
            self.noise.keep(_ALL, tap.releases)
        side = self.solver([DenseBlock(rng.normal(size=(_SIDE, 2))) for _ in range(2)], _SIDE_ROUNDS)
        # Asked directly: to charge so many messages would take longer than to make them.
        with Tap() as tap, side.engine.limited():
            for number in range(1, _SIDE_ROUNDS + 1):
                for party in side.parties:
                    party.noised(np.sin(np.arange(_SIDE)), number)
        self.side = np.array([release.noise for release in tap.releases] or np.zeros((1, _SIDE)))
        self.noise.keep(_ALL, tap.releases)
