"""The game of randomised labels: how often they are true, what decides it, and what else tells of them.

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
from fastadmm.privacy.noise_audit import key_check
from fastadmm.privacy.noise_tests import LEVEL, Check, counts_check, exact_check, outcomes_check
from fastadmm.privacy.public import label_payment
from fastadmm.privacy.releases import Releases
from fastadmm.privacy.transcript import Said, Tap, enough_labels, many_rows, replayed, same_calls, whole_run
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy

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
    n, due = max(trials, enough_labels(claim)), 1.0 / (1.0 + math.exp(claim))
    y = (np.arange(n) % 2).astype(np.float64)

    def draw(labels: Array = y, threads: int = 1) -> Array:
        paid = label_payment(settings, Ledger(), "audit", Account("labels", "label holder", LABELS))
        found: Array = publish(labels, settings, Releases(), paid, Engine(threads)).classes != labels
        return found

    flips = [draw(), draw(threads=2)]
    parts = {f"labels {a} to {a + 2_047}": np.arange(n) // 2_048 == a // 2_048 for a in range(0, n, 2_048)}
    parts |= {f"labels {2 * k} and {2 * k + 1} of every 16": np.arange(n) // 2 % 8 == k for k in range(8)}
    parts["all labels"] = y >= 0.0
    tables = {
        name: np.array([[_count(flips, of & (y == k), k ^ out) for out in (0, 1)] for k in (0, 1)])
        for name, of in parts.items()
    }
    return [
        outcomes_check("randomised labels", tables, claim),
        _key_check(draw, due, min(n, 400) if claim > 0.5 else n, y),
        _independence_check(flips, due),
        _what_leaves(settings),
    ]


def _count(flips: Sequence[Array], of: Array, flipped: int) -> int:
    return sum(int((flip[of] == bool(flipped)).sum()) for flip in flips)


def _key_check(draw: Callable[..., Array], due: float, n: int, y: Array) -> Check:
    name = "key of the labels"
    # Two independent draws of n labels are the same with a chance that n makes as small as a key's.
    if (due * due + (1.0 - due) ** 2) ** n * 256.0 > LEVEL:
        return Check(name, "too few labels are flipped to see it", False)
    return key_check(name, "the flips", lambda: draw(y[:n]), np.any)


def _independence_check(flips: Sequence[Array], due: float) -> Check:
    """Flips at a distance, and of two draws: given the one, the other is as ever."""
    pairs: list[tuple[str, Array, Array]] = []
    for distance in _DISTANCES:
        whole = len(flips[0]) // (2 * distance) * 2 * distance
        cut = flips[0][:whole].reshape(-1, 2, distance)
        pairs.append((f"at distance {distance}", cut[:, 0].ravel(), cut[:, 1].ravel()))
    pairs.append(("of two draws", flips[0], flips[1]))
    # Among those whose partner is flipped; too many or too few both say that one knows of the other.
    found = [(f"flips {pair}", int((a & b).sum()), int(b.sum()), due) for pair, a, b in pairs]
    return counts_check("independence of the labels' flips", found, "flips know nothing of each other")


def _what_leaves(settings: DifferentialPrivacy) -> Check:
    """Runs on labels that differ in one, with the same randomised labels: is all that leaves the same?"""
    name = "what is public, on labels that differ in one"
    n, claim = many_rows(_ROWS, settings.delta), settings.label_epsilon or 0.0
    if n <= _CHANGED or enough_labels(claim) > 1e6:
        return Check(name, "too few records", False)
    n = max(n, min(enough_labels(claim), many_rows(10**6, settings.delta)))
    rng = np.random.default_rng(4)
    blocks = rng.normal(size=(3, n, 3))
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


def _asked(settings: DifferentialPrivacy, blocks: Array, y: Array) -> list[Said]:
    """Every call to a party in a run."""
    # Of mode "message" the first target is of labels alone, the second of messages, too.
    if isinstance(settings, MessagePrivacy):
        settings = settings.with_(rounds=max(2, settings.rounds))
    calls: list[Said] = whole_run(
        settings, make_problem(list(map(DenseBlock, blocks)), y, lam=0.1)
    ).driver.calls
    return calls
