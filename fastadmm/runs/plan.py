"""What a training run will do and need, before it starts: memory, what is streamed, bytes and seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastadmm.coordinator.admm.coordinator import acceleration_memory
from fastadmm.coordinator.admm.schemes import get_scheme
from fastadmm.coordinator.choice import PROXIMAL, SUBSPACE, choose_scheme
from fastadmm.coordinator.metric_limits import directions_per_party
from fastadmm.coordinator.multinomial.multinomial import class_directions_per_party
from fastadmm.engine.engine import MAX_PIECES
from fastadmm.errors import ConfigError, InputError
from fastadmm.parties.direction import choose_metric_solver
from fastadmm.parties.xupdate.choose import preparation_bytes, update_name
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.penalty import is_ridge
from fastadmm.problem.problem import MOST_PROXIMAL
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.runs.calibration import Calibration
from fastadmm.runs.config import party_constraints, penalty_arguments
from fastadmm.runs.memory import BASE_BYTES
from fastadmm.settings.amounts import format_bytes
from fastadmm.settings.run import RunConfig, is_convex
from fastadmm.store.party_file import PartyData
from fastadmm.store.streamed import buffer_bytes

__all__ = ["PartyPlan", "Plan", "check_limit", "format_bytes", "make_plan"]

#: N-vectors that a round works with besides state and history: targets, weights, gradients, residuals.
_WORK_VECTORS = 18

#: Copies of the state (messages, z and u) that live at once in a round of ADMM.
_STATES = 7

#: Fewest directions per party that the scheme still works well with.
_LEAST_DIRECTIONS = 8

#: Conjugate gradient steps of a round, as far as a plan can know.
_CG_STEPS = 10

#: Seconds per sample and round at the coordinator: a handful of passes through loss and prox kernels.
_SECONDS_PER_SAMPLE = 4e-7


@dataclass(frozen=True)
class PartyPlan:
    """What one party's block will cost.

    Attributes
    ----------
    name : str
    n_features : int
    storage : {"dense", "csr"}
    streamed : bool
        Whether the block stays on disk and is read in every pass.
    solver : str
        "gram", "kernel", "gradient", "cg" and so on: Gram matrix, kernel side or matrix-free.
    memory_bytes : int
        What the block holds in memory: all of it, or row pointers.
    pass_bytes : int
        Bytes that one pass over the block reads, from memory or from the file.
    passes : int
        Passes of a round.
    lam : float or None
        The party's lambda, where parties have their own.
    """

    name: str
    n_features: int
    storage: str
    streamed: bool
    solver: str
    memory_bytes: int
    pass_bytes: int
    passes: int
    lam: float | None = None


@dataclass(frozen=True)
class Plan:
    """Estimated memory of a run, in bytes, and what follows from its limit.

    Attributes
    ----------
    scheme : str
    parties : list of PartyPlan
    data : int
        Feature blocks in memory, of the training and the test partition.
    buffers : int
        What is read ahead of the computation.
    factorisation : int
        Preparing the x-updates.
    state : int
        Messages, z, u and work vectors.
    acceleration : int
        Anderson history.
    limit : int or None
        What the run may take; None where neither the user nor the system says.
    history : int
        Directions per party, or differences of the acceleration.
    reduced : bool
        Whether the limit made the history shorter.
    test_streamed : bool
        Whether some block of the test partition is streamed.
    setup_seconds, round_seconds : float or None
        Estimates from a calibration; None without one.
    """

    scheme: str
    parties: list[PartyPlan]
    data: int
    buffers: int
    factorisation: int
    state: int
    acceleration: int
    limit: int | None
    history: int
    reduced: bool
    test_streamed: bool = False
    setup_seconds: float | None = None
    round_seconds: float | None = None
    streamed_tests: list[bool] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Sum of the parts and the interpreter."""
        return self.data + self.buffers + self.factorisation + self.state + self.acceleration + BASE_BYTES

    @property
    def limited(self) -> bool:
        """Whether the limit changes how the run works."""
        return self.reduced or self.test_streamed or any(p.streamed for p in self.parties)

    @property
    def round_bytes(self) -> int:
        """Bytes of feature blocks that a round reads, from memory and from files."""
        return sum(p.passes * p.pass_bytes for p in self.parties)

    @property
    def parts(self) -> str:
        """The summands, in words."""
        return (
            f"data {format_bytes(self.data)}, buffers {format_bytes(self.buffers)}, "
            f"factorisation {format_bytes(self.factorisation)}, state {format_bytes(self.state)}, "
            f"acceleration {format_bytes(self.acceleration)}, program {format_bytes(BASE_BYTES)}"
        )

    def sentence(self) -> str:
        """One line for the log."""
        limit = f"; limit {format_bytes(self.limit)}" if self.limit is not None else ""
        return f"memory: about {format_bytes(self.total)} ({self.parts}){limit}"

    def lines(self) -> list[str]:
        """The whole plan, for people."""
        lines = [self.sentence()]
        for p in self.parties:
            place = "streamed" if p.streamed else "in memory"
            lines.append(
                f"{p.name}: {p.storage}, {p.n_features} features, {place}, {p.solver}; "
                f"{p.passes} passes of {format_bytes(p.pass_bytes)} a round"
                + ("" if p.lam is None else f"; lambda {p.lam:g}")
            )
        if self.reduced:
            what = "directions per party" if self.scheme == SUBSPACE else "rounds of acceleration history"
            lines.append(f"{self.history} {what}, fewer than usual, to stay within the limit")
        if self.test_streamed:
            lines.append("test partition: streamed")
        if self.round_seconds is not None and self.setup_seconds is not None:
            lines.append(
                f"about {self.setup_seconds:.2g} s of set-up and {self.round_seconds:.2g} s a round, "
                f"which reads {format_bytes(self.round_bytes)} of features"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        document = asdict(self)
        del document["streamed_tests"]
        for party in document["parties"]:
            own = party.pop("lam")
            if own is not None:
                party["lambda"] = own
        return {
            **document,
            "program": BASE_BYTES,
            "total": self.total,
            "round_bytes": self.round_bytes,
        }

    def timed(self, rates: Calibration, n_samples: int, n_threads: int) -> Plan:
        """The plan with its seconds.

        Parameters
        ----------
        rates : Calibration
        n_samples : int
        n_threads : int

        Returns
        -------
        Plan
        """
        streamed = sum(p.passes * p.pass_bytes for p in self.parties if p.streamed)
        work = prepare = first = 0.0
        for p in self.parties:
            entries = p.pass_bytes / 12.0
            once = entries / rates.sparse if p.storage == "csr" else p.pass_bytes / rates.stream
            work += p.passes * once
            first += p.pass_bytes / rates.read + 2.0 * once
            side = p.n_features if p.solver not in ("kernel", "gradient", "cg", "proximal") else 0
            # A sparse row adds the square of its entries to the Gram matrix, at the price of a scatter.
            if p.storage == "csr":
                pairs = entries * entries / (2.0 * max(n_samples, 1))
                prepare += pairs / rates.sparse if side else 0.0
            else:
                prepare += float(n_samples) * side * side / rates.flops
            prepare += 9.0 * side**3 / rates.flops
        columns = self.history * len(self.parties) if self.scheme == SUBSPACE else 2 * self.history
        span = 2.0 * n_samples * columns**2 / rates.flops if self.scheme == SUBSPACE else 0.0
        share = 1.0 / max(1, min(n_threads, os.cpu_count() or 1))
        per_round = max(work * share, streamed / rates.read)
        per_round += (n_samples * _SECONDS_PER_SAMPLE + span) * share
        return replace(self, setup_seconds=first + prepare * share, round_seconds=per_round)


def make_plan(
    parties: Sequence[PartyData],
    test: Sequence[PartyData],
    n_samples: int,
    config: RunConfig,
    n_outputs: int = 1,
    limit: int | None = None,
    n_threads: int = 1,
) -> Plan:
    """Plan a run from the partition's headers.

    Parameters
    ----------
    parties, test : sequence of PartyData
        Of the training partition, and of the test partition (empty without one).
    n_samples : int
    config : RunConfig
    n_outputs : int
        Classes C of the multinomial loss; 1 for the others.
    limit : int or None
        Bytes that the process may take; None plans without a limit.
    n_threads : int
        Of the engine.

    Returns
    -------
    Plan
        Its ``total`` exceeds ``limit`` where not even a run that streams everything fits.
    """
    m = len(parties)
    smooth = config.loss == "auto" or parse_loss(config.loss).smooth
    penalty = penalty_arguments(config)
    regularizer = get_regularizer(penalty["regularizer"])
    own = party_constraints(config, [p.name for p in parties])
    sets = [own] if isinstance(own, str) else own
    ridge = all(is_ridge(regularizer, get_constraint(one)) for one in sets)
    convex = is_convex(config)
    scheme, _ = choose_scheme(
        config.scheme,
        config.penalty,
        config.acceleration,
        config.x_update,
        smooth,
        ridge,
        convex,
        convex and n_outputs == 1 and m <= MOST_PROXIMAL,
    )
    shapes = [(n_samples, p.n_features) for p in parties]
    if scheme == SUBSPACE:
        densities = [1.0 if p.nnz is None else p.nnz / max(1, n_samples * p.n_features) for p in parties]
        solvers = [choose_metric_solver(*block)[0] for block in zip(shapes, densities)]
        passes = [3 if s == "kernel" else 2 for s in solvers]
        matrices = _metric_bytes(shapes, solvers, min(n_threads, m))
        most, least = directions_per_party(m), _LEAST_DIRECTIONS
        if n_outputs > 1:
            most = class_directions_per_party(m, n_samples, n_outputs)
            least = min(least, most)
    elif scheme == PROXIMAL:
        solvers = [update_name(*shape, config.x_update, ridge) for shape in shapes]
        passes = [5 + (2 * _CG_STEPS if s == "proximal" else 0) for s in solvers]
        matrices = sum(preparation_bytes(*shape, config.x_update, ridge) for shape in shapes)
        most = least = directions_per_party(m)
    else:
        solvers = [update_name(*shape, config.x_update, ridge) for shape in shapes]
        # One for the messages; one for the certificate together with the next x-update, where parties work
        # in parallel and from D'w; see fastadmm.parties.proximal.Party.look_ahead.
        parallel = get_scheme(scheme).parallel
        passes = [
            2 + (not parallel or s == "kernel") + (2 * _CG_STEPS if s in ("cg", "proximal") else 0)
            for s in solvers
        ]
        matrices = sum(preparation_bytes(*shape, config.x_update, ridge) for shape in shapes)
        asked = get_scheme(scheme)
        accelerate = asked.accelerated if config.acceleration == "auto" else config.acceleration == "anderson"
        most, least = (acceleration_memory(m, n_samples * n_outputs) if accelerate and convex else 0), 0
    if config.history is not None:
        most = least = min(most, config.history)
    blocks = [*parties, *test]
    held = [_memory_bytes(p) for p in blocks]
    plan = Plan(
        scheme=scheme,
        parties=[],
        data=sum(held),
        buffers=0,
        factorisation=matrices,
        state=0,
        acceleration=0,
        limit=limit,
        history=most,
        reduced=False,
    )
    streamed = [False] * len(blocks)

    def place(history: int) -> Plan:
        """The plan for one length of history: blocks stay in memory, the largest first, while they fit."""
        state, acceleration = _state_bytes(scheme, m, n_samples * n_outputs, history, n_threads)
        fixed = replace(plan, state=state, acceleration=acceleration, history=history)
        if limit is None or fixed.total <= limit:
            streamed[:] = [False] * len(blocks)
            return fixed
        buffers = max(buffer_bytes(p, n_threads) for p in blocks)
        data = sum(_pointer_bytes(p) for p in blocks)
        fixed = replace(fixed, buffers=buffers, data=data)
        streamed[:] = [True] * len(blocks)
        room = limit - fixed.total
        for k in sorted(range(len(blocks)), key=lambda k: -held[k]):
            more = held[k] - _pointer_bytes(blocks[k])
            if more <= room:
                streamed[k], room, data = False, room - more, data + more
        return replace(fixed, data=data)

    placed = place(most)
    history = most
    while limit is not None and placed.total > limit and history > least:
        history = max(least, history - 1)
        if scheme != SUBSPACE and history < 3:
            history = 0  # fewer differences are not worth their memory
        placed = place(history)
    return replace(
        placed,
        reduced=history < most,
        parties=[
            PartyPlan(
                p.name,
                p.n_features,
                p.kind,
                away,
                solver,
                _held(p, away),
                _pass_bytes(p),
                count,
                None if config.party_lambda is None else config.party_lambda.get(p.name, config.lambda_),
            )
            for p, away, solver, count in zip(parties, streamed, solvers, passes)
        ],
        test_streamed=any(streamed[m:]),
        streamed_tests=streamed[m:],
    )


def check_limit(plan: Plan, given: bool, free: int | None, place: str) -> None:
    """Refuse a plan that does not fit, in one line that says what it would need and for what.

    Parameters
    ----------
    plan : Plan
    given : bool
        Whether the limit is the user's, not the machine's.
    free : int or None
        What the machine has.
    place : str
        The partition, for the message.

    Raises
    ------
    ConfigError
        If it does not fit the user's limit.
    InputError
        If it does not fit the machine.
    """
    if plan.limit is None or plan.total <= plan.limit:
        return
    if given:
        raise ConfigError(
            f"memory: {format_bytes(plan.limit, math.floor)} is too little: training {place} needs at least "
            f"{format_bytes(plan.total, math.ceil)} even when it streams every block ({plan.parts}); "
            "raise the limit"
        )
    if free is not None and plan.total > free:
        raise InputError(
            f"{place}: training needs about {format_bytes(plan.total, math.ceil)} of memory, "
            f"but only {format_bytes(free, math.floor)} is free; use a larger machine or fewer rows"
        )


def _state_bytes(scheme: str, m: int, n: int, history: int, n_threads: int) -> tuple[int, int]:
    work = 8 * (_WORK_VECTORS + m) * n
    if scheme == PROXIMAL:
        # The store doubles when it is full; beside it the parts of it on faces, and the points of the hull.
        return work + 8 * n * m * (3 * (history + 1) + 12), 0
    if scheme == SUBSPACE:
        columns = m * (history + 1)
        # The span's Newton system weights a piece of all messages in each thread.
        pieces = 8 * columns * -(-n // MAX_PIECES) * n_threads
        return work + 8 * columns * n + pieces, 0
    state = 8 * (m + 2) * n
    return work + _STATES * state, (2 * history + 3) * state if history else 0


def _metric_bytes(shapes: list[tuple[int, int]], solvers: list[str], together: int) -> int:
    """Factors of the parties, which are made again in each metric, by so many parties at once."""
    sides = sorted(({"gram": d, "kernel": n}.get(s, 0) for (n, d), s in zip(shapes, solvers)), reverse=True)
    # The kernel side is kept beside its factor; a Gram matrix is summed from up to four parts.
    return 16 * sum(side * side for side in sides) + 5 * 8 * sum(side * side for side in sides[:together])


def _memory_bytes(party: PartyData) -> int:
    if party.nnz is None:
        # Narrower values are held twice while they are widened.
        return (8 + party.dtype.itemsize % 8) * party.n_samples * party.n_features
    return (12 + 2 * (party.dtype.itemsize % 8)) * party.nnz + 8 * party.n_samples


def _pointer_bytes(party: PartyData) -> int:
    return 0 if party.nnz is None else 16 * party.n_samples


def _held(party: PartyData, streamed: bool) -> int:
    return _pointer_bytes(party) if streamed else _memory_bytes(party)


def _pass_bytes(party: PartyData) -> int:
    if party.nnz is None:
        return party.dtype.itemsize * party.n_samples * party.n_features
    return party.nnz * (party.dtype.itemsize + party.index_bytes)
