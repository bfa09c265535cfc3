"""The audit of randomised labels: how often they are true, what decides it, and what else tells of them.

One label is changed, the same randomised labels come out, and everything that leaves the label holder has to
be the same, bit for bit: targets of every round, and whatever else a party is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy import modes
from fastadmm.privacy.accounts import LABELS, Account
from fastadmm.privacy.audit_paths import Watched, same_calls
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message_audit import UNLIMITED, many_rows
from fastadmm.privacy.noise_tests import LEVEL, Check, drawn_in_a_child, frequency_check, least_and_most
from fastadmm.privacy.public_labels import label_payment
from fastadmm.privacy.source_audit import flipped_draws
from fastadmm.privacy.stored import Store
from fastadmm.privacy.transcript import Tap, replayed
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy
from fastadmm.solver.options import SolverOptions

__all__ = ["audit_labels"]

Array = np.ndarray

#: Looked up when it is called, as a run does.
_MODES: Any = modes

#: Labels of a run whose one label is changed, and the one that is.
_ROWS, _CHANGED = 300, 7

#: Flipped labels are looked at by these distances.
_DISTANCES = (1, 2, 3, 4, 16, 64, 128, 1_024, 8_192)


def audit_labels(settings: DifferentialPrivacy, trials: int, publish: Callable[..., Any]) -> list[Check]:
    """Are randomised labels random enough? None without randomised labels.

    ``docs/privacy.md#the-audit``.
    """
    claim = settings.label_epsilon
    if claim is None:
        return []
    settings = settings.of_any_parties().with_(total_epsilon=UNLIMITED)
    # Enough labels for soft targets whose mean is surely between 0 and 1.
    n = max(trials, math.ceil(50.0 / math.tanh(claim / 2.0) ** 2))
    y = (np.arange(n) % 2).astype(np.float64)
    due = 1.0 / (1.0 + math.exp(claim))

    def draw(labels: Array = y, threads: int = 1) -> Array:
        paid = label_payment(settings, Ledger(), "audit", Account("labels", "label holder", LABELS))
        found: Array = publish(labels, settings, Store(), paid, Engine(threads)).classes != labels
        return found

    flips = [draw(), draw(threads=2)]
    checks = [_class_check(flips[0][y == k], k, due, claim) for k in (0, 1)]
    checks.append(_parts_check(flips, y, due))
    checks.append(_key_check(draw, due, min(n, 400) if claim > 0.5 else n, y))
    checks.append(_independence_check(flips, draw, due))
    checks.append(_what_leaves(settings))
    return checks


def _class_check(flipped: Array, k: int, due: float, claim: float) -> Check:
    return frequency_check(
        int((~flipped).sum()),
        len(flipped),
        1.0 - due,
        f"randomised labels of class {k}",
        lambda p: math.log(p / (1.0 - p)) if p < 1.0 else math.inf,
        claim,
    )


def _parts_check(flips: Sequence[Array], y: Array, due: float) -> Check:
    """Flips of parts of the labels, by place and class: as often as is due, neither more nor less."""
    n = len(y)
    at = np.arange(n)
    parts = {f"labels {a} to {a + 2_047}": at // 2_048 == a // 2_048 for a in range(0, n, 2_048)}
    parts |= {f"label {k} of every 16": at % 16 == k for k in range(16)}
    parts |= {"class 0": y == 0.0, "class 1": y == 1.0, "all": at >= 0}
    level, odd = LEVEL / (2 * len(parts)), ""
    for name, mask in parts.items():
        drawn = sum(int(flip[mask].sum()) for flip in flips)
        total = len(flips) * int(mask.sum())
        low, high = least_and_most(total, due, level)
        if not low <= drawn <= high:
            odd = odd or f"{name}: {drawn / total:.4f} of {total} are flipped, {due:.4f} are due"
    found = odd or f"{due:.4f} of every part are flipped, in {len(parts)} parts"
    return Check("flips of the labels in every part", found, bool(odd))


def _key_check(draw: Callable[..., Array], due: float, n: int, y: Array) -> Check:
    """The system's randomness decides the flips, all of it, and nothing else does; no sampling."""
    # Two independent draws of n labels are the same with a chance that n makes as small as a key's.
    if (due * due + (1.0 - due) ** 2) ** n * 256.0 > LEVEL:
        return Check("key of the labels", "too few labels are flipped to see it", False)
    same, flipped = flipped_draws(lambda: draw(y[:n]))
    bits = sum(not equal.all() for equal in flipped)
    found = f"{bits} of 256 bits of the operating system's randomness decide the flips"
    if not same:
        found = "other randomness than the operating system's decides the flips"
    return Check("key of the labels", found, not same or bits < 256, power="exact")


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
    level, odd = LEVEL / (2 * len(pairs)), ""
    for name, one, other in pairs:
        # Among those whose partner is flipped; too many or too few both say that one knows of the other.
        both, given = int((one & other).sum()), int(other.sum())
        low, high = least_and_most(given, due, level)
        if not low <= both <= high:
            odd = odd or f"flips {name} know of each other: {both} of {given}, {due * given:.0f} are due"
    return Check("independence of the labels' flips", odd or f"{len(pairs)} kinds of pairs", bool(odd))


def _what_leaves(settings: DifferentialPrivacy) -> Check:
    """Runs on labels that differ in one, with the same randomised labels: is all that leaves the same?"""
    name = "what is public, on labels that differ in one"
    n = many_rows(_ROWS, settings.delta)
    claim = settings.label_epsilon or 0.0
    if n <= _CHANGED or 50.0 / math.tanh(claim / 2.0) ** 2 > 1e6:
        return Check(name, "too few records", False)
    n = max(n, min(math.ceil(50.0 / math.tanh(claim / 2.0) ** 2), many_rows(10**6, settings.delta)))
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
    found = (
        f"{differ} depends on a true label"
        if differ
        else "given the randomised labels, all calls are the same"
    )
    if not first:
        found = "no call was made"
    return Check(name, found, bool(differ) or not first, power="exact")


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
    if isinstance(
        settings, MessagePrivacy
    ):  # the first target is of labels alone, the second of messages, too
        settings = settings.with_(rounds=max(2, settings.rounds))
    solver = _MODES.private_solver(problem, SolverOptions(n_threads=1), settings)
    solver.driver = watched = Watched(solver.driver)
    try:
        for _ in range(settings.exchanges):
            solver.round()
    finally:
        solver.close()
    return watched.calls
