"""The audit of symbols: what a whole message says of scores at the ends of its range, inside, and beyond.

Rows of a few known kinds go through the code of a run, with noisy values that the audit chooses (the local
model is then known) and with the run's own random numbers. Of every symbol and every kind theorem F4 says how
often it comes; exact binomial tests compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.privacy import label_response
from fastadmm.privacy.levels import MAX_EPSILON
from fastadmm.privacy.message_audit import many_rows
from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.noise_tests import (
    LEVEL,
    Check,
    distances_check,
    frequency_check,
    least_and_most,
    reuse_check,
    uniform_check,
)
from fastadmm.privacy.public_labels import PublicLabels
from fastadmm.privacy.transcript import Tap, on_grid
from fastadmm.settings.privacy import FusionPrivacy

__all__ = ["symbol_checks"]

Array = np.ndarray

#: Places of the scores in units of the range: beyond its ends, at them, and inside.
_PLACES = np.array([-3.0, -1.0, -0.9, -0.7, -0.5, -0.31, -0.1, 0.0, 0.13, 0.4, 0.55, 0.8, 0.99, 1.0, 2.0])

#: Makes one message: rows, public labels, script of the noisy values, threads.
Maker = Callable[[Array, PublicLabels, Any, int], tuple[Any, Tap]]


def symbol_checks(message: Maker, settings: FusionPrivacy, claimed: float, trials: int) -> list[Check]:
    """Compare symbols with the law that the claim allows.

    ``docs/privacy.md#the-audit``.
    """
    claimed = min(claimed, MAX_EPSILON)
    n = many_rows(max(trials // 3, 300), settings.delta)
    n = max(n, 2)
    kinds = np.arange(n) % len(_PLACES)
    symbols, scores, uniforms, channels = [], [], [], []
    rows = _rows_at(message, settings, kinds)
    for turn in range(max(2, math.ceil(trials / n))):
        found, tap = message(rows, _labels(settings, n), _script(n), 1 + turn % 2)
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


def _labels(settings: FusionPrivacy, n: int) -> PublicLabels:
    classes = ((np.arange(n) // 2) % 2).astype(np.float64)
    epsilon = settings.label_epsilon
    return PublicLabels(
        classes, classes if epsilon is None else label_response.soft_targets(classes, epsilon)
    )


def _rows_at(message: Maker, settings: FusionPrivacy, kinds: Array) -> Array:
    """Rows of two columns whose scores lie at the places: the script's model does not depend on rows."""
    n = len(kinds)
    probe, _ = message(np.ones((n, 2)), _labels(settings, n), _script(n), 1)
    weights, channel = probe.model.weights, probe.channel
    wanted = channel.center + channel.clip * _PLACES[kinds] - probe.model.intercept
    found: Array = np.outer(wanted, weights / float(weights @ weights))
    return found


def _script(n: int) -> Callable[[int, Array, Calibration], Any]:
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
    level = LEVEL / (2 * levels * len(parts))
    worst: tuple[float, str] = (1.0, "")
    for name, mask in parts:
        total = messages * int(mask.sum())
        if not total:
            continue
        for j in range(levels):
            count, due = int((symbols[:, mask] == j).sum()), float(law[mask, j].mean())
            # A sum of coins of several biases spreads no more than one of equal ones (Hoeffding 1956).
            low, high = least_and_most(total, due, level)
            if not low <= count <= high:
                found = abs(count / total - due) / due
                if not worst[1] or found > worst[0]:
                    worst = found, f"{name}: symbol {j} comes in {count / total:.4f}, {due:.4f} is due"
    tests = 2 * levels * len(parts)
    text = worst[1] or f"{levels} symbols of {len(parts)} kinds of scores come as often as the law says"
    return Check("law of the symbols", f"{text} ({messages * n} symbols, {tests} tests)", bool(worst[1]))


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
