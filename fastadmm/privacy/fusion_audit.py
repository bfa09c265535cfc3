r"""The audit of ``mode="fusion"``: its own code on the worst neighbours, its noise, symbols and labels.

The worst neighbours of a party: all rows are zero but one record's, which turns from a long row into its
opposite (so that rows have to be shortened), or, where the row norm is found with noise, into the opposite
row of the smallest norm (so that nearly every count differs as well). Theorems hold for every past, so the
audit chooses the noisy values: they drive the local model to where one record moves gradient, moments and
symbol farthest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy import fusion, fusion_party, label_response
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.budget import FusionBudget
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.privacy.levels import MAX_EPSILON
from fastadmm.privacy.message_audit import ROUNDING, UNLIMITED
from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.noise_tests import (
    Check,
    drawn_in_a_child,
    frequency_check,
    law_check,
    link_check,
    mean_check,
    reuse_check,
    size_check,
    uniform_check,
)
from fastadmm.privacy.public_labels import PublicLabels
from fastadmm.privacy.transcript import Comparison, Recorder, Replay, Scripted, compare_transcripts
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import Privacy
from fastadmm.solver.options import SolverOptions

__all__ = ["audit_fusion_code", "audit_labels", "recorded_cost"]

Array = np.ndarray

#: Records of the neighbours, and rows and columns of the messages whose noise is tested.
_ROWS, _SHAPE = 2_000, (200, 999)

#: Shares of sigma by which the chosen past pushes every gradient.
_PUSHES = (0.3, 1.0, 3.0, 10.0)

#: What a party calls, looked up when it is called, as the party does.
_PARTY: Any = fusion_party

#: The record that is replaced.
_RECORD = 4

#: Sizes of the records' rows: the longer one has to be shortened.
_LONG, _SHORT = 1e6, 2.0**-8


@dataclass(frozen=True)
class _Cost:
    """What a replay on neighbours showed."""

    name: str
    compared: Comparison
    symbol: float
    epsilon: float
    public: bool


def recorded_cost(settings: Privacy, budget: FusionBudget) -> Check:
    """The exact total cost of the releases that a run recorded.

    Parameters
    ----------
    settings : Privacy
        The claim.
    budget : FusionBudget
        What each release was given.
    """
    cost = epsilon_of(budget.gdp, settings.delta, (budget.symbol,))
    found = f"epsilon = {cost:.4g} at delta {settings.delta:g}, claim {settings.epsilon:.4g}"
    refuted = cost > settings.epsilon * (1.0 + ROUNDING)
    return Check("cost of the releases on record, exact", found, refuted, cost)


def audit_fusion_code(settings: Privacy, trials: int, note: Callable[[str], None]) -> list[Check]:
    """Replay worst neighbours with fastadmm's own code, and test its noise and its symbols.

    Parameters
    ----------
    settings : Privacy
        Of mode "fusion": the claim.
    trials : int
        Numbers of noise to test, at least.
    note : callable
        Told what comes next.

    Notes
    -----
    ``docs/privacy.md#the-audit``.
    """
    settings = settings.with_(label_party=None, total_epsilon=UNLIMITED)
    engine = Engine(1)
    with engine.limited():
        note("replaying messages on neighbours")
        costs = [_replay(settings, *pair) for pair in _pairs(settings)]
        worst = max(costs, key=lambda cost: cost.epsilon)
        note("drawing noise and symbols")
        noise = _drawn_noise(settings, trials)
        return [
            _cost(worst, settings),
            _public(costs),
            *_noise_checks(noise, worst, settings),
            *_symbol_checks(settings, trials, engine),
        ]


def audit_labels(settings: Privacy, trials: int, publish: Callable[..., Any]) -> list[Check]:
    """Are randomised labels random enough? None without randomised labels.

    Parameters
    ----------
    settings : Privacy
    trials : int
        Labels, at least.
    publish : callable
        The mode's :func:`fastadmm.privacy.public_labels.publish_labels`.
    """
    from fastadmm.privacy.accounts import LABELS, Account
    from fastadmm.privacy.ledger import Ledger
    from fastadmm.privacy.public_labels import label_payment
    from fastadmm.privacy.stored import Store

    claim = settings.label_epsilon
    if claim is None:
        return []
    # Enough labels for soft targets whose mean is surely between 0 and 1.
    n = max(trials, math.ceil(50.0 / math.tanh(claim / 2.0) ** 2))
    y = (np.arange(n) % 2).astype(np.float64)
    paid = label_payment(settings, Ledger(), "audit", Account("labels", "label holder", LABELS))
    labels = publish(y, settings, Store(), paid, Engine(1))
    true = 1.0 / (1.0 + math.exp(-claim))
    return [
        frequency_check(
            int((labels.classes == y)[y == k].sum()),
            int((y == k).sum()),
            true,
            f"randomised labels of class {k}",
            lambda p: math.log(p / (1.0 - p)) if p < 1.0 else math.inf,
            claim,
        )
        for k in (0, 1)
    ]


def _labels(settings: Privacy, n: int) -> PublicLabels:
    """Public labels of which the replaced record alone is of class 1."""
    classes = np.zeros(n)
    classes[_RECORD] = 1.0
    if settings.label_epsilon is None:
        return PublicLabels(classes, classes)
    return PublicLabels(classes, label_response.soft_targets(classes, settings.label_epsilon))


def _solver(settings: Privacy, blocks: list[Array]) -> Any:
    """A run of a label holder and one or more other parties."""
    n = len(blocks[0])
    y = (np.arange(n) % 2).astype(np.float64)
    problem = make_problem([np.ones((n, 1)), *blocks], y, lam=1.0)
    return fusion.FusionSolver(problem, SolverOptions(n_threads=1), settings)


def _received(solver: Any, m: int, labels: PublicLabels) -> Any:
    """What party m answers, as the label holder reads it."""
    return FusionMessage.from_arrays(solver.parties[m].fuse(labels.target, labels.classes))


def _message(settings: Privacy, block: Array, labels: PublicLabels, source: Any) -> tuple[Any, Recorder]:
    """A party's message by the code of a run, with a source of the audit's in place of its own."""
    solver, recorder = _solver(settings, [block]), Recorder(source)
    solver.noise_source = lambda m: recorder
    try:
        return _received(solver, 1, labels), recorder
    finally:
        solver.close()


def _pairs(settings: Privacy) -> list[tuple[str, float, float]]:
    """Name, and row of the record (of one column) in each of two neighbours."""
    norm = settings.row_norm
    if norm is not None:
        return [("opposite rows longer than the row norm", _LONG * norm, -_LONG * norm)]
    return [
        ("opposite rows, both long", _LONG, -_LONG),
        ("opposite rows, one of them long", _LONG, -_SHORT),
    ]


def _replay(settings: Privacy, name: str, first: float, second: float) -> _Cost:
    """What neighbours cost, in the worst past."""
    n = int(min(_ROWS, 0.8 / settings.delta))
    n = max(n, _RECORD + 1)
    labels = _labels(settings, n)
    blocks = []
    for value in (first, second):
        rows = np.zeros((n, 1))
        rows[_RECORD, 0] = value
        blocks.append(rows)
    made = []
    for push in _PUSHES:
        one, record = _message(settings, blocks[0], labels, Scripted(_past(push)))
        other, replayed = _message(settings, blocks[1], labels, Replay(record))
        made.append((compare_transcripts(record, replayed), _same_but_one(one, other), one.channel))
    worst, _, channel = max(made, key=lambda each: each[0].gdp)
    symbol = _symbol_epsilon(channel)
    public = all(same and compared.public for compared, same, _ in made)
    return _Cost(name, worst, symbol, epsilon_of(worst.gdp, settings.delta, (symbol,)), public)


def _past(push: float) -> Callable[[int, Array, Calibration], Array]:
    """Noisy values that lead to the smallest row norm and to a large, saturated local model.

    Counts (one number) come out as zero but for the first, gradients (of one column and the constant) push
    the weight up and the intercept far down, moments are as they are.
    """

    def script(call: int, exact: Array, level: Calibration) -> Array:
        if len(exact) == 1:
            return exact if call == 0 else np.zeros(1)
        if len(exact) == 2:
            return exact + push * level.sigma * np.array([-1.0, 8.0])
        return exact

    return script


def _symbol_epsilon(channel: Any, n: int = 1_000_000) -> float:
    """Largest log-likelihood ratio of a symbol, by the channel's own code on evenly spaced randomness."""
    engine = Engine(1)
    counts = []
    for end in (-1.0, 1.0):
        levels = channel.release(np.full(n, end * 1e9), Scripted(lambda *_: np.zeros(0)), 0, engine)
        counts.append(np.bincount(levels, minlength=channel.n_levels).astype(np.float64))
    # Each frequency is a probability, but for one more or one fewer at each end of an interval.
    low, high = counts
    ratios = np.maximum((low - 2.0) / (high + 2.0), (high - 2.0) / (low + 2.0))
    return math.log(max(float(ratios.max()), 1.0))


def _same_but_one(one: Any, other: Any) -> bool:
    """Whether two messages agree in all but the record's own symbol."""
    others = np.arange(len(one.levels)) != _RECORD
    return (
        one.row_norm == other.row_norm
        and np.array_equal(one.model.weights, other.model.weights)
        and one.model.intercept == other.model.intercept
        and np.array_equal(one.moments.mean, other.moments.mean)
        and np.array_equal(one.moments.square, other.moments.square)
        and one.channel == other.channel
        and np.array_equal(one.levels[others], other.levels[others])
    )


def _cost(worst: _Cost, settings: Privacy) -> Check:
    power = "exact"
    if worst.epsilon <= settings.epsilon:
        factor = settings.epsilon / worst.epsilon
        power = f"exact: would notice every fault that makes epsilon {factor:.3f} times as large"
    return Check(
        "cost of a whole message, replayed",
        f"epsilon = {worst.epsilon:.4g} at delta {settings.delta:g} on {worst.name}, "
        f"{worst.compared.n_releases} releases and a symbol of {worst.symbol:.4g}, "
        f"claim {settings.epsilon:.4g}",
        not worst.epsilon <= settings.epsilon * (1.0 + ROUNDING),
        worst.epsilon,
        power,
    )


def _public(costs: list[_Cost]) -> Check:
    found = "given what was sent before, all but the record's own symbol is the same"
    differ = [cost.name for cost in costs if not cost.public]
    if differ:
        found = f"more than the noisy values depends on the record: {differ[0]}"
    return Check("what is public, on neighbours", found, bool(differ))


@dataclass(frozen=True)
class _Noise:
    """Noise by kind of release; of parties and steps in pairs; uniforms."""

    kinds: dict[str, Array]
    parties: list[tuple[Array, Array]]
    steps: list[tuple[Array, Array]]
    uniforms: Array
    forked: bool
    on_grid: bool


def _drawn_noise(settings: Privacy, trials: int) -> _Noise:
    """Noise of whole messages of two parties, of many moments and counts, and of a forked process."""
    rng = np.random.default_rng(0)
    n, d = min(_SHAPE[0], int(0.8 / settings.delta)), _SHAPE[1]
    labels = _labels(settings, n)
    gradients: list[Array] = []
    parties: list[tuple[Array, Array]] = []
    steps: list[tuple[Array, Array]] = []
    uniforms: list[Array] = []
    on_grid = True
    while sum(map(len, gradients)) < trials:
        solver = _solver(settings, [rng.normal(size=(n, d)) for _ in range(2)])
        recorders: list[Recorder] = []
        own = solver.noise_source

        def recorded(m: int, own: Any = own, recorders: list[Recorder] = recorders) -> Recorder:
            recorders.append(Recorder(own(m)))
            return recorders[-1]

        solver.noise_source = recorded
        for m in (1, 2):
            _received(solver, m, labels)
        solver.close()
        on_grid = on_grid and all(r.on_grid for recorder in recorders for r in recorder.releases)
        both = [[r.noise for r in recorder.releases if len(r.exact) == d + 1] for recorder in recorders]
        for noises in both:
            gradients += noises
            steps += itertools.pairwise(noises)
        parties += zip(*both)
        uniforms += [drawn for recorder in recorders for drawn in recorder.uniforms]
        if not any(both):
            break
    few = max(trials // 8, 1_000)
    kinds = {"gradients": np.concatenate([*gradients, np.zeros(0)])}
    kinds["moments"] = _many(settings, few // 4, _moments)
    if settings.row_norm is None:
        kinds["counts of long rows"] = _many(settings, few // 9, _norm)
    level, source, engine = Calibration(1.0, 2.0**-28, 1.0), _source(settings), Engine(1)

    def drawn() -> Array:
        values: Array = source.release(np.zeros(512), level, 1_000_000, engine).values
        return values

    source.release(np.zeros(1), level, 0, engine)  # the source has its key when the process forks
    of_child = drawn_in_a_child(drawn)
    kinds["a forked process"] = drawn() if of_child is None else np.concatenate([of_child, drawn()])
    numbers = np.concatenate([*uniforms, np.zeros(0)])
    return _Noise(kinds, parties, steps, numbers, of_child is not None, on_grid)


def _source(settings: Privacy) -> Any:
    solver = _solver(settings, [np.zeros((2, 1))])
    solver.close()
    return solver.noise_source(1)


def _many(settings: Privacy, times: int, release: Callable[..., None]) -> Array:
    """Noise of one kind of release, made many times."""
    recorder, engine = Recorder(_source(settings)), Engine(1)
    budget = _budget(settings)
    for k in range(times):
        release(budget, recorder, 16 * k, engine)
    return np.concatenate([*(made.noise for made in recorder.releases), np.zeros(0)])


def _moments(budget: FusionBudget, source: Any, round: int, engine: Engine) -> None:
    score = np.array([-1.0, 1.0, 3.0])
    _PARTY.release_moments(score, score > 0.0, 0.0, budget.moments, source, round, engine)


def _norm(budget: FusionBudget, source: Any, round: int, engine: Engine) -> None:
    _PARTY.find_row_norm(np.array([0.0, 1.0, 2.0]), budget.norm, source, round, engine)


def _budget(settings: Privacy) -> FusionBudget:
    """The split that a run makes."""
    solver = _solver(settings, [np.zeros((2, 1))])
    solver.close()
    budget: FusionBudget = solver.budget
    return budget


def _noise_checks(noise: _Noise, worst: _Cost, settings: Privacy) -> list[Check]:
    def cost(share: float) -> float:
        return epsilon_of(worst.compared.gdp / share, settings.delta, (worst.symbol,))

    silent = [name for name, values in noise.kinds.items() if not len(values)]
    if silent:
        return [Check("size of the noise", f"no noise was drawn for {silent[0]}", True, math.inf)]
    if not noise.on_grid:
        found = "digits below the grid of the noise are those of the exact values"
        return [Check("grid of the noise", found, True, math.inf)]
    every = np.concatenate(list(noise.kinds.values()))
    where = "steps, releases, parties" + (
        ", a forked process" if noise.forked else "; no fork on this system"
    )
    checks = [
        size_check(values, name, cost if name == "gradients" else None)
        for name, values in noise.kinds.items()
        if name != "a forked process"
    ]
    checks += [mean_check(every), law_check(every), reuse_check(every, where)]
    checks.append(link_check(noise.parties, "parties"))
    checks.append(link_check(noise.steps, "steps"))
    return checks


def _symbol_checks(settings: Privacy, trials: int, engine: Engine) -> list[Check]:
    """Symbols of scores at either end of the range against the law that the claim allows."""
    source = _source(settings)
    message, recorder = _message(settings, np.zeros((40, 1)), _labels(settings, 40), source)
    channel, claimed = message.channel, min(_budget(settings).symbol, MAX_EPSILON)
    n, k = max(trials, 1_000), channel.n_levels
    ends = np.where(np.arange(n) % 2 == 0, -1e9, 1e9)
    levels = channel.release(ends, recorder, 1_000_000, engine)
    true = np.where(ends < 0.0, 0, k - 1)
    gain = math.exp(claimed)

    def epsilon_at(p: float) -> float:
        return math.log(p * (k - 1) / (1.0 - p)) if p < 1.0 else math.inf

    frequency = frequency_check(
        int((levels == true).sum()),
        n,
        gain / (gain + k - 1),
        "frequency of the symbols",
        epsilon_at,
        claimed,
    )
    return [frequency, uniform_check(np.concatenate(recorder.uniforms), "of the symbols")]
