"""The audit of ``mode="message"``: its own code on the worst neighbours, and its noise.

Neighbours are found by search: those that the bounds are about, and for every clip those that would be
farthest apart without it (messages beyond the interval, targets beyond W, rows longer than 1). The theorems
hold for any public target, so the audit chooses the targets; all else is the code of a run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.coordinator.admm.order import SHARING
from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.privacy import message
from fastadmm.privacy.accounting import epsilon_of, zcdp_epsilon, zcdp_of
from fastadmm.privacy.adversary import concrete_rows, find_worst_pair
from fastadmm.privacy.audit import noise_rank
from fastadmm.privacy.noise_tests import (
    Check,
    drawn_in_a_child,
    law_check,
    link_check,
    mean_check,
    reuse_check,
    size_check,
)
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.transcript import Comparison, Recorder, Replay, compare_transcripts
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import Privacy
from fastadmm.solver.options import SolverOptions

__all__ = ["audit_message_code", "cost_of_messages", "declared_cost"]

Array = np.ndarray

#: Records of the neighbours, of a run whose noise is tested, and of the run whose noise's rank is.
_ROWS, _MANY_ROWS, _RANK_ROWS = 4_000, 20_000, 64

#: How much longer than allowed are rows and targets that have to be clipped.
_BEYOND = 10.0

#: Budget of the audit's own runs.
UNLIMITED = 1e9

#: What is written in double precision may be this share more than the claim.
ROUNDING = 1e-6


@dataclass(frozen=True)
class _Pair:
    """Neighbours (rows before clipping), and the target that an adversary asks for."""

    name: str
    first: Array
    second: Array
    target: Array


def cost_of_messages(gdp: float, settings: Privacy) -> float:
    """Epsilon of all messages of a party together.

    Parameters
    ----------
    gdp : float
        mu of all of them together.
    settings : Privacy
    """
    if settings.sampler == "discrete":
        return zcdp_epsilon(zcdp_of([gdp]), settings.delta)
    return epsilon_of(gdp, settings.delta)


def declared_cost(settings: Privacy, mu: float, sigma: float) -> Check:
    """Is a noise level enough for the claim, according to the theorems?

    Parameters
    ----------
    settings : Privacy
    mu : float
        Modulus of the x-update.
    sigma : float
        Noise that was used.
    """
    bound = message_sensitivity(settings, mu, 1)
    cost = cost_of_messages(math.sqrt(settings.rounds) * bound.value / sigma, settings)
    found = (
        f"epsilon = {cost:.4g} at delta {settings.delta:g} for {settings.rounds} message(s) with sigma "
        f"{sigma:.4g} and sensitivity {bound.value:.4g} ({bound.theorem}), claim {settings.epsilon:.4g}"
    )
    return Check("cost of the noise on record", found, cost > settings.epsilon * (1.0 + ROUNDING), cost)


def audit_message_code(settings: Privacy, mu: float, trials: int, note: Callable[[str], None]) -> list[Check]:
    """Replay worst neighbours with fastadmm's own code, and test its noise.

    Parameters
    ----------
    settings : Privacy
        Of mode "message": the claim.
    mu : float
        Modulus of the x-update.
    trials : int
        Numbers of noise to test, at least.
    note : callable
        Told what comes next.

    Notes
    -----
    ``docs/privacy.md#the-audit``.
    """
    if settings.adjacency == "column":
        raise InputError("audit: the search covers adjacency replace_one and zero_out, not column")
    # What leaves a party is looked at as it is, labels have a check of their own, and the ledger shall not
    # stop what is to be measured.
    settings = settings.with_(shrink=False, label_epsilon=None, total_epsilon=UNLIMITED)
    with _Code(settings, mu) as code:
        note("searching for the worst neighbours")
        pairs = _worst_pairs(settings, mu)
        note("replaying messages on neighbours")
        kinds = np.asarray, sp.csr_array
        found = [(pair.name, code.replay(pair, wrap)) for pair in pairs for wrap in kinds]
        code.replay(pairs[0], np.asarray, own_targets=True)
        note("drawing noise")
        code.draw(trials)
        return [_cost(found, settings), code.public_check(), *code.noise_checks(found)]


def _worst_pairs(settings: Privacy, mu: float) -> list[_Pair]:
    """Those of the bounds, and for each clip those that need it most."""
    ball, target, clip = settings.ball, settings.clip_of_targets, settings.message_clip
    rows = min(float(_ROWS), 0.8 / settings.delta)

    def search(name: str, b: float, w: float, m: float, clip: float | None, longer: float = 1.0) -> _Pair:
        limits = {"rows": rows, "longest": 1.0 if clip is None else min(1.0, clip / b)}
        searched = {"adjacency": settings.adjacency, "center": settings.message_center, "starts": 1}
        pair = find_worst_pair(b, w, m, clip, **searched, **limits)
        first, second, asked = concrete_rows(pair, w, limits["longest"])
        return _Pair(name, longer * first, longer * second, asked)

    pairs = [search("the worst neighbours", ball, target, mu, clip)]
    if clip is not None:
        pairs.append(search("neighbours that need clipped messages", ball, target, mu, None))
    pairs.append(search("neighbours that need clipped targets", ball, _BEYOND * target, mu, clip))
    # Rows that are longer by a factor are the same as a larger ball and a smaller ridge.
    far = _BEYOND * ball, target, mu / _BEYOND**2
    pairs.append(search("neighbours that need clipped rows", *far, clip, longer=_BEYOND))
    return pairs


def _cost(found: list[tuple[str, Comparison]], settings: Privacy) -> Check:
    name, worst = max(found, key=lambda item: item[1].gdp)
    epsilon = cost_of_messages(worst.gdp, settings)
    declared = cost_of_messages(found[0][1].gdp, settings)
    power = "exact"
    if 0.0 < declared <= settings.epsilon:
        factor = settings.epsilon / declared
        power = f"exact: would notice every fault that makes epsilon {factor:.3f} times as large"
    return Check(
        "cost of all messages, replayed",
        f"epsilon = {epsilon:.4g} at delta {settings.delta:g} on {name}, {worst.n_releases} message(s), "
        f"claim {settings.epsilon:.4g}",
        not epsilon <= settings.epsilon * (1.0 + ROUNDING),
        epsilon,
        power,
    )


class _Code:
    """Runs of the product's own code, and the transcripts of them."""

    def __init__(self, settings: Privacy, mu: float) -> None:
        self.settings, self.mu = settings, mu
        self.solvers: list[Any] = []
        self.noise: list[Array] = []
        self.rounds: list[tuple[Array, Array]] = []
        self.parties: list[tuple[Array, Array]] = []
        self.differ = ""
        self.rank: Any = None
        self.forked = True

    def __enter__(self) -> _Code:
        return self

    def __exit__(self, *exc: Any) -> None:
        for solver in self.solvers:
            solver.close()

    def solver(self, blocks: list[Any], rounds: int, threads: int = 1) -> Any:
        """A run of two parties whose x-update has modulus mu."""
        n = blocks[0].shape[0]
        y = (np.arange(n) % 2).astype(np.float64)
        problem = make_problem(blocks, y, lam=1.0)
        options = SolverOptions(penalty=1.0, n_threads=threads)
        settings = self.settings.with_(rounds=rounds)
        tau = SHARING.tau(len(blocks))
        problem = make_problem(blocks, y, lam=self.mu * tau * problem.lam / problem.regularization)
        made = message.MessageSolver(problem, options, settings)
        self.solvers.append(made)
        return made

    def replay(self, pair: _Pair, wrap: Callable[[Array], Any], own_targets: bool = False) -> Comparison:
        """One run on a data set, and the same past on its neighbour."""
        rounds = max(2, self.settings.rounds) if own_targets else self.settings.rounds
        recorders: list[Recorder] = []
        asked = []
        for rows in (pair.first, pair.second):
            solver = self.solver([wrap(rows), wrap(pair.first)], rounds)
            asked.append(_choose_targets(solver, None if own_targets else pair.target))
            for m, party in enumerate(solver.parties):
                party.noise = Recorder(Replay(recorders[m]) if len(recorders) > 1 else party.noise)
            own = [party.noise for party in solver.parties]
            for _ in range(rounds):
                solver.round()
                for m, recorder in enumerate(own):
                    last = recorder.releases[-1].sent.values if recorder.releases else None
                    if last is None or not np.array_equal(solver.messages[m], last):
                        self.differ = "a message is not what the noise source gave"
            recorders += own
        compared = [compare_transcripts(one, other) for one, other in zip(recorders[:2], recorders[2:])]
        if not all(each.public and each.n_releases == rounds for each in compared) or compared[1].gdp > 0.0:
            self.differ = self.differ or "releases differ in number, size or noise"
        if own_targets and not all(np.array_equal(*each) for each in zip(*asked, strict=True)):
            self.differ = "a target depends on more than what was sent"
        self._keep(recorders[:2])
        return compared[0]

    def _keep(self, recorders: list[Recorder]) -> None:
        noise = [[release.noise for release in recorder.releases] for recorder in recorders]
        for drawn in noise:
            self.noise += drawn
            self.rounds += itertools.pairwise(drawn)
        if len(noise) > 1:
            self.parties += zip(*noise)

    def draw(self, trials: int) -> None:
        """Noise of long messages, of short ones for the rank, and of a forked process."""
        n = int(min(_MANY_ROWS, 0.8 / self.settings.delta, max(trials // 2, 100)))
        rng = np.random.default_rng(0)
        target = rng.uniform(-1.0, 1.0, n)
        solver = self.solver([rng.normal(size=(n, 2)) for _ in range(2)], 1, threads=2)
        recorders = _recorded(solver)
        with solver.engine.limited():
            number = 1
            while sum(map(len, self.noise)) + number * 2 * n < trials or number < 3:
                for party in solver.parties:
                    party.answer(target, number)
                number += 1
        self._keep(recorders)
        small = self.solver([rng.normal(size=(_RANK_ROWS, 2)) for _ in range(2)], 1)
        party, (recorder, _) = small.parties[0], _recorded(small)

        def answer(k: int) -> Array:
            party.answer(target[:1].repeat(_RANK_ROWS), k + 1)
            return recorder.releases[-1].noise if recorder.releases else np.zeros(_RANK_ROWS)

        self.rank = noise_rank(answer, _RANK_ROWS)
        self._keep([recorder])
        # After a fork both processes hold the same source.
        level, engine = party.level, Engine(1)

        def drawn() -> Array:
            sent = party.noise.release(np.zeros(512), level, 1_000_000, engine)
            return sent.values / level.sigma

        of_child = drawn_in_a_child(drawn)
        self.forked = of_child is not None
        self.noise += [drawn()] if of_child is None else [of_child, drawn()]

    def public_check(self) -> Check:
        """What the replays showed besides distances."""
        found = self.differ or "given what was sent before, targets, sizes and noise levels are the same"
        return Check("what is public, on neighbours", found, bool(self.differ))

    def noise_checks(self, found: list[tuple[str, Comparison]]) -> list[Check]:
        """Tests of all noise that was drawn."""
        if not self.parties:
            return [Check("size of the noise", "no noise was drawn for messages", True, math.inf)]
        noise = np.concatenate(self.noise)
        gdp = max(each.gdp for _, each in found)
        source = "rounds, parties" + (", a forked process" if self.forked else "; no fork on this system")
        checks = [
            size_check(noise, "all messages", lambda share: cost_of_messages(gdp / share, self.settings)),
            mean_check(noise),
            law_check(noise),
            reuse_check(noise, source),
            link_check(self.parties, "parties"),
        ]
        if self.rounds:
            checks.append(link_check(self.rounds, "rounds"))
        found_rank = f"{self.rank.rank} of {self.rank.n_values} directions"
        return [*checks, Check("rank of the noise", found_rank, self.rank.flagged)]


def _recorded(solver: Any) -> list[Recorder]:
    """Stand between the parties and their noise."""
    for party in solver.parties:
        party.noise = Recorder(party.noise)
    return [party.noise for party in solver.parties]


def _choose_targets(solver: Any, chosen: Array | None) -> list[Array]:
    """Ask for a chosen target, or keep the solver's own; the targets asked for are listed."""
    own, asked = solver._target, []

    def target(m: int) -> Array:
        asked.append(own(m) if chosen is None else chosen)
        return asked[-1]

    solver._target = target
    return asked
