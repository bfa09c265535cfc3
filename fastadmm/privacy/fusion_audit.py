"""The audit of mode "fusion": its own code on the worst neighbours, its noise and its symbols.

The worst neighbours of a party: one record turns from a long row into its opposite, or, where the row norm is
found with noise, into the opposite row of the smallest norm, so that nearly every count differs as well.
Theorems hold for every past, so the audit chooses the noisy values: they drive the local model to where one
record moves gradient, moments and symbol farthest. Of every symbol and every kind of score theorem F4 says
how often it comes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.privacy import fusion_party, public
from fastadmm.privacy.fusion_mechanisms import MAX_EPSILON
from fastadmm.privacy.fusion_party import FusionBudget, FusionMessage
from fastadmm.privacy.message_audit import STORED, cost_check, public_check, replay_check
from fastadmm.privacy.noise import Calibration, NoiseSource
from fastadmm.privacy.noise_tests import (
    Check,
    counts_check,
    distances_check,
    frequency_check,
    reuse_check,
    uniform_check,
)
from fastadmm.privacy.public import PublicLabels
from fastadmm.privacy.source_audit import DrawnNoise, audit_source
from fastadmm.privacy.transcript import (
    UNLIMITED,
    Comparison,
    Release,
    Tap,
    compare_transcripts,
    epsilon_spent,
    made_run,
    many_rows,
    on_grid,
    replayed,
    same_calls,
    share_cost,
)
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import FusionPrivacy
from fastadmm.solver.options import SolverOptions

Array = np.ndarray

#: Records of the neighbours, and rows and columns of the messages whose noise is tested.
_ROWS, _SHAPE = 2_000, (200, 999)

#: Shares of sigma by which the chosen past pushes every gradient.
_PUSHES = (0.3, 1.0, 3.0, 10.0)

#: What a party calls, looked up when it is called, as the party does.
_PARTY: Any = fusion_party

#: Sizes of the records' rows: the longer one has to be shortened.
_LONG, _SHORT = 1e6, 2.0**-8


@dataclass(frozen=True)
class _Case:
    """Neighbours, and how their party holds and answers them."""

    name: str
    first: float  # length of the record's row in each, with its sign
    second: float  # length of the record's row in each, with its sign
    rows: int = _ROWS
    columns: int = 1
    place: int = 4  # of the record; from the end where negative
    stored: str = "sparse"
    path: str = "solver"
    threads: int = 1
    pushes: tuple[float, ...] = _PUSHES  # of the past; none takes the noise as it is drawn
    others: float = 0.0  # size of the other rows
    label: int = 1  # the record's class
    moments: float = 0.0  # what the past adds to the moments, in units of sigma


@dataclass(frozen=True)
class _Cost:
    """What a replay on neighbours showed."""

    name: str
    compared: Comparison
    symbol: float
    epsilon: float
    differ: str


def recorded_cost(settings: FusionPrivacy, budget: FusionBudget) -> Check:
    """The exact total cost of the releases that a run recorded."""
    gdp = math.sqrt(budget.norm**2 + budget.model**2 + budget.moments**2)
    cost = epsilon_spent(gdp, settings.delta, (budget.symbol,))
    return cost_check("cost of the releases on record, exact", cost, settings, "by the record", "")


def audit_fusion_code(settings: FusionPrivacy, trials: int, note: Callable[[str], None]) -> list[Check]:
    """Replay worst neighbours, test noise and symbols: ``docs/privacy.md#the-audit``."""
    settings = settings.of_any_parties().with_(total_epsilon=UNLIMITED)
    engine = Engine(1)
    with engine.limited():
        note("replaying messages on neighbours")
        costs = [_replay(settings, case) for case in _cases(settings)]
        worst = max(costs, key=lambda cost: cost.epsilon)
        note("drawing noise and symbols")
        noise = _drawn_noise(settings, trials)

        def cost(share: float) -> float:
            return epsilon_spent(share_cost(worst.compared.gdp, share), settings.delta, (worst.symbol,))

        idle, epsilon = _idle(settings), worst.epsilon
        where = f"{worst.name}, {worst.compared.n_releases} releases and a symbol of {worst.symbol:.4g}"
        differ = next((f"{found.differ}, {found.name}" for found in costs if found.differ), "")
        return [
            replay_check("a whole message", epsilon, epsilon, settings, where),
            public_check(differ, "all but the record's own symbol is the same"),
            *noise.checks("steps, releases, parties, runs", "steps", _name_of, cost, "gradients"),
            *symbol_checks(settings, idle.budget.symbol, trials),
            *audit_source(idle.noise_source, "messages"),
        ]


def _run(settings: FusionPrivacy, blocks: list[Any], path: str = "solver", threads: int = 1) -> Any:
    """A run of a label holder and one or more other parties."""
    n = blocks[0].shape[0]
    problem = make_problem([np.ones((n, 1)), *blocks], (np.arange(n) % 2).astype(np.float64), lam=1.0)
    return made_run(settings, problem, SolverOptions(n_threads=threads), path)


def _idle(settings: FusionPrivacy) -> Any:
    """A run that is over: its budget, and what its parties' noise comes from."""
    made = _run(settings, [DenseBlock(np.zeros((2, 1)))])
    made.close()
    return made


def _answers(
    settings: FusionPrivacy, blocks: list[Any], labels: PublicLabels, path: str = "solver", threads: int = 1
) -> list[Any]:
    """What the parties answer."""
    asked = {"target": labels.target, "classes": labels.classes}
    made = _run(settings, blocks, path, threads)
    try:
        parties = (made.driver.inner if path == "agent" else made).parties
        return [party.answer("fuse", asked) for party in parties.values()]
    finally:
        made.close()


def _cases(settings: FusionPrivacy) -> list[_Case]:
    """Neighbours in one column and in several, by storage, path, class, place and number of rows."""
    norm = settings.row_norm
    if norm is not None:
        pairs = [("opposite rows longer than the row norm", _LONG * norm, -_LONG * norm)]
    else:
        pairs = [
            ("opposite rows, both long", _LONG, -_LONG),
            ("opposite rows, one of them long", _LONG, -_SHORT),
        ]
    cases = [_Case(*pair) for pair in pairs]
    one, last = pairs[0], pairs[-1]
    few, many = (3.0,), many_rows(40_000, settings.delta)
    short = _SHORT if norm is None else norm
    little, longer = (1.9 * short, -1.9 * short), (3.9 * short, -3.9 * short)
    cases += [
        _Case(*last, columns=6, stored="dense", path="agent"),
        _Case(*last, columns=5, place=-1, threads=2, label=0),
        _Case(*one, columns=2, place=0, path="agent", stored="dense", pushes=few),
        _Case(*last, rows=many, columns=2, place=-1, threads=2, stored="dense", pushes=few),
        _Case(*last, rows=6_007, columns=2, path="agent", pushes=few),
        _Case(*last, rows=40, columns=700, pushes=few),
        _Case(*last, rows=12, columns=5_001, pushes=few),
        _Case(*last, rows=9, columns=1, pushes=few),
        _Case("opposite rows, a little long", *little, rows=400, columns=2, pushes=few),
        _Case("opposite rows, four times as long", *longer, rows=400, columns=2, stored="dense", pushes=few),
        _Case(*last, rows=301, columns=4, stored="dense", others=1.0, pushes=()),
        _Case(*one, rows=300, columns=6, path="agent", others=30.0, pushes=(), label=0),
        _Case(*one, rows=500, columns=1, stored="dense", others=1e-3, pushes=(1.0,)),
        _Case(*last, rows=200, columns=2, stored="dense", others=2.0, pushes=(0.0, 0.1), moments=-9.0),
        _Case(*last, rows=200, columns=2, others=2.0, pushes=(0.0, 0.1), moments=9.0, label=0),
    ]
    return [case for case in cases if case.rows <= many_rows(case.rows, settings.delta)]


def _direction(case: _Case) -> Array:
    """Of the record's row; of as many columns as moments have numbers there is no case."""
    direction = np.random.default_rng(6).normal(size=case.columns) if case.columns > 1 else np.ones(1)
    found: Array = direction / np.linalg.norm(direction)
    return found


def _neighbours(case: _Case) -> tuple[Array, Array]:
    """Both data sets: the record lies along a direction in which every column has a share."""
    rng, direction = np.random.default_rng(5), _direction(case)
    others = case.others * rng.normal(size=(case.rows, case.columns))
    found = []
    for length in (case.first, case.second):
        rows = others.copy()
        rows[case.place] = length * direction
        found.append(rows)
    return found[0], found[1]


def _replay(settings: FusionPrivacy, case: _Case) -> _Cost:
    """What neighbours cost, in the worst past."""
    classes = np.full(case.rows, 1.0 - case.label)
    classes[case.place] = float(case.label)  # the replaced record alone is of its class
    labels = public_labels(settings, classes)
    blocks = list(map(STORED[case.stored], _neighbours(case)))
    made: list[tuple[Comparison, Any]] = []
    differ = ""
    for push in case.pushes or (None,):
        answers, taps = [], list[Tap]()
        for block in blocks:
            past = Tap(None if push is None else _past(case, push))
            with replayed(taps[0]) if taps else past as tap:
                answers += _answers(settings, [block], labels, case.path, case.threads)
            taps.append(tap)
        compared = compare_transcripts(taps[0], taps[1])
        made.append((compared, FusionMessage.from_arrays(answers[0]).channel))
        for answer in answers:
            answer["levels"] = np.delete(answer["levels"], case.place)
        one, other = ([(1, "fuse", answer)] for answer in answers)
        differ = differ or compared.wrong or same_calls(one, other)
    worst, channel = max(made, key=lambda each: each[0].gdp)
    symbol = _symbol_epsilon(channel)
    cost = epsilon_spent(worst.gdp, settings.delta, (symbol,))
    where = f"{case.name}, {case.rows} rows of {case.columns} columns"
    return _Cost(where, worst, symbol, cost, differ)


def _past(case: _Case, push: float) -> Callable[[int, Array, Calibration], Any]:
    """Noisy values that lead to the smallest row norm and to a large, saturated local model."""
    along = np.append(-_direction(case), 8.0 if case.label else -8.0)
    moved = np.full(4, case.moments)

    def script(call: int, exact: Array, level: Calibration) -> Any:
        if len(exact) == 1:
            return on_grid(exact if call == 0 else np.zeros(1), level)
        if len(exact) != len(along):
            return on_grid(exact + level.sigma * moved[: len(exact)], level)
        return on_grid(exact + push * level.sigma * along, level)

    return script


def _symbol_epsilon(channel: Any, n: int = 200_000) -> float:
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


def _drawn_noise(settings: FusionPrivacy, trials: int) -> DrawnNoise:
    """Noise of whole messages of three parties by both paths, and of many moments and counts."""
    rng = np.random.default_rng(0)
    n, d = many_rows(_SHAPE[0], settings.delta), _SHAPE[1]
    labels = public_labels(settings, (np.arange(n) % 3 == 0).astype(np.float64))
    noise = DrawnNoise()
    turn, drawn = 0, 0
    while drawn < trials:
        blocks = [DenseBlock(rng.normal(size=(n, d))) for _ in range(3)]
        with Tap() as tap:
            _answers(settings, blocks, labels, ("solver", "agent")[turn % 2], threads=1 + turn % 2)
        turn += 1
        gradients = [r for r in tap.releases if len(r.exact) == d + 1]
        noise.keep("gradients", gradients)
        drawn += sum(len(r.exact) for r in gradients)
        if not gradients:
            break
    few = max(trials // 8, 1_000)
    made, engine = _idle(settings), Engine(1)
    b, source, score, sizes = made.budget, made.noise_source(1), np.array([-1.0, 1.0, 3.0]), np.arange(3.0)
    with Tap() as moments:
        for k in range(few // 4):
            _PARTY.release_moments(score, score > 0.0, 0.0, b.moments, source, 16 * k, engine)
    noise.keep("moments", moments.releases, linked=False)
    if settings.row_norm is None:
        source = made.noise_source(1)
        with Tap() as counts:
            for k in range(few // 9):
                _PARTY.find_row_norm(sizes, b.norm, source, 16 * k, engine)
        noise.keep("counts of long rows", counts.releases, linked=False)
    return noise


def _name_of(kind: str, release: Release) -> str:
    same = 16 if kind != "gradients" else 1_000
    return f"{kind}, release {release.round % same} of party {release.party}"


#: Places of the scores in units of the range: beyond its ends, at them, and inside.
_PLACES = np.array([-3.0, -1.0, -0.9, -0.7, -0.5, -0.31, -0.1, 0.0, 0.13, 0.4, 0.55, 0.8, 0.99, 1.0, 2.0])


def symbol_checks(settings: FusionPrivacy, claimed: float, trials: int) -> list[Check]:
    """Compare symbols with the law that the claim allows: ``docs/privacy.md#the-audit``."""
    claimed = min(claimed, MAX_EPSILON)
    n = max(many_rows(max(trials // 3, 300), settings.delta), 2)
    labels = public_labels(settings, ((np.arange(n) // 2) % 2).astype(np.float64))

    def message(rows: Array, threads: int) -> tuple[FusionMessage, Tap]:
        with Tap(_moderate(n)) as tap:
            made = _answers(settings, [DenseBlock(rows)], labels, threads=threads)[0]
        return FusionMessage.from_arrays(made), tap

    # Scores lie at the places: the model of these noisy values does not depend on rows.
    probe, _ = message(np.ones((n, 2)), 1)
    weights, channel = probe.model.weights, probe.channel
    wanted = channel.center + channel.clip * _PLACES[np.arange(n) % len(_PLACES)] - probe.model.intercept
    rows = np.outer(wanted, weights / float(weights @ weights))
    symbols, scores, uniforms, channels = [], [], [], []
    for turn in range(max(2, math.ceil(trials / n))):
        found, tap = message(rows, 1 + turn % 2)
        scores.append(rows @ found.model.weights + found.model.intercept)
        symbols.append(found.levels.astype(np.int64))
        channels.append(found.channel)
        uniforms += [drawn.numbers for drawn in tap.uniforms]
    channel = channels[0]
    if any(other != channel for other in channels):
        return [Check("law of the symbols", "the channel is another although the past is the same", True)]
    place = (scores[0] - channel.center) / channel.clip
    checks = [
        _law_check(np.array(symbols), place, channel.n_levels, claimed),
        _truth_check(np.concatenate(symbols), np.tile(place, len(symbols)), channel.n_levels, claimed),
    ]
    if not uniforms:
        return [*checks, Check("uniform numbers of the symbols", "none was drawn", True, math.inf)]
    from scipy.special import ndtri

    normal = [ndtri(np.clip(numbers, 2.0**-54, 1.0 - 2.0**-54)) for numbers in uniforms]
    return [
        *checks,
        uniform_check(np.concatenate(uniforms), "of the symbols"),
        distances_check(normal, "uniform numbers of a message"),
        reuse_check(np.concatenate(normal), "symbols of messages"),
    ]


def public_labels(settings: FusionPrivacy, classes: Array) -> PublicLabels:
    """Classes of shape (n,) as everybody may know them, with the targets that they make."""
    epsilon = settings.label_epsilon
    return PublicLabels(classes, classes if epsilon is None else public.soft_targets(classes, epsilon))


def _moderate(n: int) -> Callable[[int, Array, Calibration], Any]:
    """Noisy values of moderate size: a row norm, weights, and a mean square of the scores of about 1."""
    ends = [0, 255]

    def script(call: int, exact: Array, level: Calibration) -> Any:
        if len(exact) == 1:
            middle = sum(ends) // 2
            long = call > 0 and middle < 80
            if call > 0:
                ends[0 if long else 1] = middle + long
            return on_grid(np.array([float(n) if call == 0 or long else 0.0]), level)
        if len(exact) == 4:
            return on_grid(np.array([0.0, 0.0, n / 32.0, n / 32.0]), level)
        return on_grid(np.array([-1.0, -0.5, 0.0]) * 1e-3 * n, level)

    return script


def _law(place: Array, levels: int, epsilon: float) -> Array:
    """Probability of each symbol by theorem F4, of shape (places, levels), in the audit's own words."""
    gain = math.exp(epsilon)
    low = np.floor(0.5 * (np.clip(place, -1.0, 1.0) + 1.0) * (levels - 1))
    low = np.minimum(low, levels - 2)
    upper = 0.5 * (np.clip(place, -1.0, 1.0) + 1.0) * (levels - 1) - low
    share = np.zeros((len(place), levels))
    rows, first = np.arange(len(place)), low.astype(np.int64)
    share[rows, first] = 1.0 - upper
    share[rows, first + 1] += upper
    return (share * (gain - 1.0) + 1.0) / (gain + levels - 1.0)


def _law_check(symbols: Array, place: Array, levels: int, claimed: float) -> Check:
    """Every symbol of every kind of score: as often as the law says, and never beyond what epsilon allows."""
    messages, n = symbols.shape
    kinds = np.arange(n) % len(_PLACES)
    # Parts of a message: by kind of score, and by piece, so that a fault of some rows is seen.
    parts: list[tuple[str, Array]] = [
        (f"scores at {p:+.2f} of the range", kinds == k) for k, p in enumerate(_PLACES)
    ]
    parts += [(f"rows {a} to {a + 4_095}", np.arange(n) // 4_096 == a // 4_096) for a in range(0, n, 4_096)]
    parts += [("the first rows", np.arange(n) < 15), ("the last rows", np.arange(n) >= n - 15)]
    inside = np.abs(place) < 1.0
    parts += [("scores inside the range", inside), ("scores at the ends and beyond", ~inside)]
    law = _law(place, levels, claimed)
    found = [
        (
            f"{name}, symbol {j}",
            int((symbols[:, mask] == j).sum()),
            messages * int(mask.sum()),
            float(law[mask, j].mean()),
        )
        for name, mask in parts
        if mask.any()
        for j in range(levels)
    ]
    return counts_check("law of the symbols", found, f"{messages * n} symbols come as the law says")


def _truth_check(symbols: Array, place: Array, levels: int, claimed: float) -> Check:
    """At the ends, where one level is the true one: is it sent more often than epsilon allows?"""
    ends = np.abs(place) >= 1.0
    if not ends.any():
        return Check("frequency of the symbols", "no score is at an end of the range", False)
    true = np.where(place[ends] < 0.0, 0, levels - 1)
    gain = math.exp(claimed)

    def epsilon_at(p: float) -> float:
        return math.log(p * (levels - 1) / (1.0 - p)) if p < 1.0 else math.inf

    count = int((symbols[ends] == true).sum())
    n = int(ends.sum())
    return frequency_check(
        count, n, gain / (gain + levels - 1), "frequency of the symbols", epsilon_at, claimed
    )
