"""Randomised labels and symbols: how often they are true, what decides it, and what else tells of them.

One label is changed, the same randomised labels come out, and everything that leaves the label holder has to
be the same, bit for bit.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy import game, noise_tests
from fastadmm.privacy.accounts import LABELS, Account
from fastadmm.privacy.adversary import public_labels
from fastadmm.privacy.fusion_party import FusionMessage, fusion_budget
from fastadmm.privacy.game import Array, Case, Check, Tap
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.public import label_payment
from fastadmm.privacy.releases import Releases
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy

#: Labels of a run whose one label is changed, and the one that is.
_ROWS, _CHANGED = 300, 7

#: Flipped labels are looked at by these distances.
_DISTANCES = (1, 2, 3, 4, 16, 64, 128, 1_024, 8_192)


def audit_labels(settings: DifferentialPrivacy, trials: int, publish: Callable[..., Any]) -> list[Check]:
    """Are randomised labels, where there are any, random enough? ``docs/privacy.md#the-audit``."""
    claim = settings.label_epsilon
    if claim is None:
        return []
    n, due = max(trials, game.enough_labels(claim)), 1.0 / (1.0 + math.exp(claim))
    rows, y = np.arange(n), (np.arange(n) % 2).astype(np.float64)

    def draw(labels: Array = y, threads: int = 1) -> Array:
        paid = label_payment(settings, Ledger(), "audit", Account("labels", "label holder", LABELS))
        found: Array = publish(labels, settings, Releases(), paid, Engine(threads)).classes != labels
        return found

    flips = [draw(), draw(threads=2)]
    parts = {f"labels {a} to {a + 2_047}": rows // 2_048 == a // 2_048 for a in range(0, n, 2_048)}
    parts |= {f"labels {2 * k} and {2 * k + 1} of every 16": rows // 2 % 8 == k for k in range(8)}
    parts["all labels"] = rows >= 0

    def count(of: Array, label: int, flipped: bool) -> int:
        return sum(int((flip[of & (y == label)] == flipped).sum()) for flip in flips)

    tables = {
        name: np.array([[count(of, k, bool(k ^ out)) for out in (0, 1)] for k in (0, 1)])
        for name, of in parts.items()
    }
    return [
        noise_tests.outcomes_check("randomised labels", tables, claim),
        _key_check(draw, due, y[: min(n, 400) if claim > 0.5 else n]),
        _independence_check(flips[0], flips[1], due),
        _what_leaves(settings, claim),
    ]


def _key_check(draw: Callable[..., Array], due: float, y: Array) -> Check:
    name = "key of the labels"
    # Two independent draws of n labels are the same with a chance that n makes as small as a key's.
    if (due * due + (1.0 - due) ** 2) ** len(y) * 256.0 > noise_tests.LEVEL:
        return Check(name, "too few labels are flipped to see it", False)
    return noise_tests.key_check(name, "the flips", lambda: draw(y), np.any)


def _independence_check(first: Array, second: Array, due: float) -> Check:
    """Flips at a distance, and of two draws: given the one, the other is as ever."""
    pairs = {f"flips at distance {distance}": noise_tests.apart(first, distance) for distance in _DISTANCES}
    pairs["flips of two draws"] = first, second
    # Among those whose partner is flipped; too many or too few both say that one knows of the other.
    found = [(name, int((a & b).sum()), int(b.sum()), due) for name, (a, b) in pairs.items()]
    return noise_tests.counts_check(
        "independence of the labels' flips", found, "flips know nothing of each other"
    )


def _what_leaves(settings: DifferentialPrivacy, claim: float) -> Check:
    """Runs on labels that differ in one, with the same randomised labels: is all that leaves the same?"""
    name = "what is public, on labels that differ in one"
    n = game.many_rows(_ROWS, settings.delta)
    if n <= _CHANGED or game.enough_labels(claim) > 1e6:
        return Check(name, "too few records", False)
    n = max(n, min(game.enough_labels(claim), game.many_rows(10**6, settings.delta)))
    if isinstance(settings, MessagePrivacy):
        # The first target is of labels alone, the second of messages, too.
        settings = settings.with_(rounds=max(2, settings.rounds))
    rng = np.random.default_rng(4)
    blocks = rng.normal(size=(3, n, 3))
    y = (rng.random(n) < 0.5).astype(np.float64)
    y[:2] = 0.0, 1.0
    other = y.copy()
    other[_CHANGED] = 1.0 - y[_CHANGED]

    def asked(labels: Array) -> list[game.Said]:
        calls: list[game.Said] = game.whole_run(settings, game.problem_of(blocks, y=labels)).driver.calls
        return calls

    try:
        with Tap() as record:
            first = asked(y)
        due = 1.0 / (1.0 + math.exp(claim))
        for numbers in record.uniforms[:1]:
            if len(numbers) == n:  # the changed label is flipped where it was not, and the other way round
                numbers[_CHANGED] = 0.5 * (1.0 + due) if numbers[_CHANGED] < due else 0.5 * due
        with game.replayed(record):
            second = asked(other)
    except ConfigError as error:
        return Check(name, f"no run: {error}", False)
    differ = game.same_calls(first, second)
    wrong = f"{differ} depends on a true label" if differ else "" if first else "no call was made"
    return game.exact_check(name, wrong, "given the randomised labels, all calls are the same")


# --- symbols
#: Places of the scores in units of the range: beyond its ends, at them, and inside.
_PLACES = np.array([-3.0, -1.0, -0.9, -0.7, -0.5, -0.31, -0.1, 0.0, 0.13, 0.4, 0.55, 0.8, 0.99, 1.0, 2.0])


def symbol_checks(settings: FusionPrivacy, ask: game.Asking, trials: int) -> list[Check]:
    """Is no symbol beyond e^epsilon times as frequent as of another score? ``docs/privacy.md#the-audit``."""
    n = max(game.many_rows(max(trials // 3, 300), settings.delta), 2)
    labels = public_labels(settings, ((np.arange(n) // 2) % 2).astype(np.float64))
    calls = [("fuse", {"target": labels.target, "classes": labels.classes})]

    def message(rows: Array, threads: int) -> tuple[FusionMessage, Tap]:
        tap = Tap(_moderate(n))
        asked = ask(Case("symbols", rows, rows, calls, threads=threads), rows, tap)
        return FusionMessage.from_arrays(asked.answers[0][2]), tap

    # Scores lie at the places: the model of these noisy values does not depend on rows.
    probe, _ = message(np.ones((n, 2)), 1)
    weights, channel, place = probe.model.weights, probe.channel, np.arange(n) % len(_PLACES)
    wanted = channel.center + channel.clip * _PLACES[place] - probe.model.intercept
    rows = np.outer(wanted, weights / float(weights @ weights))
    parts = [("all rows", np.ones(n, dtype=bool)), ("the last rows", np.arange(n) >= n - 300)]
    parts += [(f"rows {a} to {a + 4_095}", np.arange(n) // 4_096 == a // 4_096) for a in range(0, n, 4_096)]
    tables = {name: np.zeros((len(_PLACES), channel.n_levels), dtype=np.int64) for name, _ in parts}
    numbers: list[Array] = []
    for turn in range(max(2, math.ceil(trials / n))):
        found, tap = message(rows, 1 + turn % 2)
        if found.channel != channel:
            return [Check("symbols", "the channel is another although the past is the same", True)]
        for name, of in parts:
            np.add.at(tables[name], (place[of], found.levels[of].astype(np.int64)), 1)
        numbers += map(noise_tests.normal_of, tap.uniforms)
    return [
        noise_tests.outcomes_check("symbols", tables, fusion_budget(settings).symbol),
        noise_tests.links_check(noise_tests.at_distances(numbers), "independence of the symbols"),
        noise_tests.reuse_check(np.concatenate([*numbers, np.zeros(0)]), "symbols' randomness used twice"),
    ]


def _moderate(n: int) -> game.Script:
    """Noisy values of moderate size: a row norm, weights, and a mean square of the scores of about 1."""
    ends = [0, 255]

    def script(call: int, exact: Array, level: Calibration) -> Any:
        if len(exact) == 1:
            middle = sum(ends) // 2
            long = call > 0 and middle < 80
            if call > 0:
                ends[0 if long else 1] = middle + long
            return game.on_grid(np.array([float(n) if call == 0 or long else 0.0]), level)
        if len(exact) == 4:
            return game.on_grid(np.array([0.0, 0.0, n / 32.0, n / 32.0]), level)
        return game.on_grid(np.array([-1.0, -0.5, 0.0]) * 1e-3 * n, level)

    return script
