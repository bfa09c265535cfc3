"""The audit of randomised labels: how often they are true, what decides it, and what else tells of them.

One label is changed, the same randomised labels come out, and everything that leaves the label holder has to
be the same, bit for bit.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounts import LABELS, Account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise_tests import (
    LEVEL,
    Check,
    counts_check,
    drawn_in_a_child,
    exact_check,
    frequency_check,
)
from fastadmm.privacy.public import label_payment
from fastadmm.privacy.releases import Releases
from fastadmm.privacy.source_audit import key_check
from fastadmm.privacy.transcript import (
    UNLIMITED,
    Tap,
    enough_labels,
    made_run,
    many_rows,
    replayed,
    same_calls,
)
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy
from fastadmm.solver.options import SolverOptions

Array = np.ndarray

#: Labels of a run whose one label is changed, and the one that is.
_ROWS, _CHANGED = 300, 7

#: Flipped labels are looked at by these distances.
_DISTANCES = (1, 2, 3, 4, 16, 64, 128, 1_024, 8_192)


def audit_labels(settings: DifferentialPrivacy, trials: int, publish: Callable[..., Any]) -> list[Check]:
    """Are randomised labels, where there are any, random enough? ``docs/privacy.md#the-audit``."""
    claim = settings.label_epsilon
    if claim is None:
        return []
    settings = settings.of_any_parties().with_(total_epsilon=UNLIMITED)
    n = max(trials, enough_labels(claim))
    y = (np.arange(n) % 2).astype(np.float64)
    due = 1.0 / (1.0 + math.exp(claim))

    def draw(labels: Array = y, threads: int = 1) -> Array:
        paid = label_payment(settings, Ledger(), "audit", Account("labels", "label holder", LABELS))
        found: Array = publish(labels, settings, Releases(), paid, Engine(threads)).classes != labels
        return found

    flips = [draw(), draw(threads=2)]
    checks = []
    for k in (0, 1):
        kept, name = ~flips[0][y == k], f"randomised labels of class {k}"
        checks.append(frequency_check(int(kept.sum()), len(kept), 1.0 - due, name, _log_odds, claim))
    checks.append(_parts_check(flips, y, due))
    checks.append(_key_check(draw, due, min(n, 400) if claim > 0.5 else n, y))
    checks.append(_independence_check(flips, draw, due))
    checks.append(_what_leaves(settings))
    return checks


def _log_odds(p: float) -> float:
    return math.log(p / (1.0 - p)) if p < 1.0 else math.inf


def _parts_check(flips: Sequence[Array], y: Array, due: float) -> Check:
    """Flips of parts of the labels, by place and class."""
    n = len(y)
    at = np.arange(n)
    parts = {f"labels {a} to {a + 2_047}": at // 2_048 == a // 2_048 for a in range(0, n, 2_048)}
    parts |= {f"label {k} of every 16": at % 16 == k for k in range(16)}
    parts |= {"class 0": y == 0.0, "class 1": y == 1.0, "all": at >= 0}
    found = [
        (name, sum(int(flip[mask].sum()) for flip in flips), len(flips) * int(mask.sum()), due)
        for name, mask in parts.items()
    ]
    return counts_check("flips of the labels in every part", found, f"{due:.4f} are flipped")


def _key_check(draw: Callable[..., Array], due: float, n: int, y: Array) -> Check:
    name = "key of the labels"
    # Two independent draws of n labels are the same with a chance that n makes as small as a key's.
    if (due * due + (1.0 - due) ** 2) ** n * 256.0 > LEVEL:
        return Check(name, "too few labels are flipped to see it", False)
    return key_check(name, "the flips", lambda: draw(y[:n]), np.any)


def _independence_check(flips: Sequence[Array], draw: Callable[..., Array], due: float) -> Check:
    """Flips at a distance, of two draws, and of processes: given the one, the other is as ever."""
    pairs: list[tuple[str, Array, Array]] = []
    for distance in _DISTANCES:
        whole = len(flips[0]) // (2 * distance) * 2 * distance
        if whole:
            cut = flips[0][:whole].reshape(-1, 2, distance)
            pairs.append((f"at distance {distance}", cut[:, 0].ravel(), cut[:, 1].ravel()))
    pairs.append(("of two draws", flips[0], flips[1]))
    pairs.append(("of a draw and another read backwards", flips[0], flips[1][::-1]))
    child = drawn_in_a_child(lambda: draw().astype(np.float64))
    if child is not None:
        pairs.append(("of two processes", child > 0.5, flips[0]))
    # Among those whose partner is flipped; too many or too few both say that one knows of the other.
    found = [(f"flips {pair}", int((a & b).sum()), int(b.sum()), due) for pair, a, b in pairs]
    return counts_check("independence of the labels' flips", found, "flips know nothing of each other")


def _what_leaves(settings: DifferentialPrivacy) -> Check:
    """Runs on labels that differ in one, with the same randomised labels: is all that leaves the same?"""
    name = "what is public, on labels that differ in one"
    n = many_rows(_ROWS, settings.delta)
    claim = settings.label_epsilon or 0.0
    if n <= _CHANGED or enough_labels(claim) > 1e6:
        return Check(name, "too few records", False)
    n = max(n, min(enough_labels(claim), many_rows(10**6, settings.delta)))
    rng = np.random.default_rng(4)
    blocks = [rng.normal(size=(n, 3)) for _ in range(3)]
    y = (rng.random(n) < 0.5).astype(np.float64)
    y[:2] = 0.0, 1.0
    other = y.copy()
    other[_CHANGED] = 1.0 - y[_CHANGED]
    try:
        with Tap() as record:
            first = _asked(settings, blocks, y)
        with replayed(_flipped_too(record, n, claim)):
            second = _asked(settings, blocks, other)
    except ConfigError as error:
        return Check(name, f"no run: {error}", False)
    differ = same_calls(first, second)
    wrong = f"{differ} depends on a true label" if differ else "" if first else "no call was made"
    return exact_check(name, wrong, "given the randomised labels, all calls are the same")


def _flipped_too(record: Tap, n: int, claim: float) -> Tap:
    """The same draws, but that the changed label is flipped where it was not, and the other way round."""
    due = 1.0 / (1.0 + math.exp(claim))
    for drawn in record.uniforms[:1]:
        if len(drawn.numbers) == n:
            was = drawn.numbers[_CHANGED] < due
            drawn.numbers[_CHANGED] = 0.5 * (1.0 + due) if was else 0.5 * due
    return record


def _asked(settings: DifferentialPrivacy, blocks: Sequence[Array], y: Array) -> list[Any]:
    """Every call to a party in a run."""
    problem = make_problem([DenseBlock(block) for block in blocks], y, lam=0.1)
    # Of mode "message" the first target is of labels alone, the second of messages, too.
    if isinstance(settings, MessagePrivacy):
        settings = settings.with_(rounds=max(2, settings.rounds))
    solver = made_run(settings, problem, SolverOptions(n_threads=1))
    try:
        for _ in range(settings.exchanges):
            solver.round()
    finally:
        solver.close()
    calls: list[Any] = solver.driver.calls
    return calls
