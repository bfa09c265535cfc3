"""The game of mode "fusion": the worst neighbours, in the worst past, and its symbols.

The worst neighbours of a party: one record turns from a long row into its opposite, or, where the row norm is
found with noise, into the opposite row of the smallest norm, so that nearly every count differs as well.
Noisy values are chosen that drive the local model to where one record moves gradient, moments and symbol
farthest.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastadmm.privacy import public
from fastadmm.privacy.fusion_party import FusionMessage, fusion_budget
from fastadmm.privacy.game import Asking, Case, Script, Tap, many_rows, on_grid
from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.noise_audit import normal_of
from fastadmm.privacy.noise_tests import Check, at_distances, links_check, outcomes_check, reuse_check
from fastadmm.privacy.public import PublicLabels
from fastadmm.settings.privacy import FusionPrivacy

Array = np.ndarray

#: Shares of sigma by which the chosen past pushes every gradient.
_PUSHES = (0.3, 1.0, 3.0, 10.0)

#: Sizes of the records' rows: the longer one has to be shortened.
_LONG, _SHORT = 1e6, 2.0**-8


def fusion_cases(settings: FusionPrivacy) -> Iterator[Case]:
    """Neighbours by columns, storage, class, place, rows and past: ``docs/privacy.md#the-audit``."""
    norm = settings.row_norm
    pairs = [(_LONG, -_LONG), (_LONG, -_SHORT)] if norm is None else [(_LONG * norm, -_LONG * norm)]
    one, last = pairs[0], pairs[-1]
    short = _SHORT if norm is None else norm
    many = many_rows(40_000, settings.delta)

    def cases(
        record: tuple[float, float],
        rows: int = 2_000,
        columns: int = 1,
        *,
        place: int = 4,
        stored: str = "sparse",
        others: float = 0.0,
        label: int = 1,
        pushes: tuple[float | None, ...] = (3.0,),
        moments: float = 0.0,
    ) -> Iterator[Case]:
        """Neighbours whose record lies along a direction in which every column has a share."""
        if rows > many:
            return
        rng, along = np.random.default_rng(5), np.random.default_rng(6).normal(size=columns)
        along = along / np.linalg.norm(along) if columns > 1 else np.ones(1)
        first = others * rng.normal(size=(rows, columns))
        second = first.copy()
        first[place], second[place] = record[0] * along, record[1] * along
        classes = np.full(rows, 1.0 - label)
        classes[place] = float(label)  # the replaced record alone is of its class
        labels = public_labels(settings, classes)
        calls = [("fuse", {"target": labels.target, "classes": labels.classes})]
        for push in pushes:
            past = None if push is None else _past(along, label, push, moments)
            name = f"rows {record[0]:.3g} and {record[1]:.3g} long, {rows} rows of {columns} columns"
            yield Case(name, first, second, calls, past, stored, 1 + columns % 2, place)

    for pair in pairs:
        yield from cases(pair, pushes=_PUSHES)
    yield from cases(last, columns=6, stored="dense", pushes=_PUSHES)
    yield from cases(last, columns=5, place=-1, label=0, pushes=_PUSHES)
    yield from cases(one, columns=2, place=0, stored="dense")
    yield from cases(last, many, 2, place=-1, stored="dense")
    yield from cases(last, 40, 700)
    yield from cases(last, 12, 5_001)
    yield from cases(last, 9)
    yield from cases((1.9 * short, -1.9 * short), 400, 2)
    yield from cases((3.9 * short, -3.9 * short), 400, 2, stored="dense")
    yield from cases(last, 301, 4, stored="dense", others=1.0, pushes=(None,))
    yield from cases(one, 300, 6, others=30.0, pushes=(None,), label=0)
    yield from cases(one, 500, stored="dense", others=1e-3, pushes=(1.0,))
    for label, moments in ((1, -9.0), (0, 9.0)):
        yield from cases(last, 200, 2, others=2.0, pushes=(0.0, 0.1), moments=moments, label=label)


def _past(along: Array, label: int, push: float, moments: float) -> Callable[[], Script]:
    """Noisy values that lead to the smallest row norm and to a large, saturated local model."""
    away = np.append(-along, 8.0 if label else -8.0)

    def script(call: int, exact: Array, level: Calibration) -> Any:
        if len(exact) == 1:
            return on_grid(exact if call == 0 else np.zeros(1), level)
        if len(exact) == len(away):
            return on_grid(exact + push * level.sigma * away, level)
        return on_grid(exact + level.sigma * moments, level)

    return lambda: script


def public_labels(settings: FusionPrivacy, classes: Array) -> PublicLabels:
    """Classes of shape (n,) as everybody may know them, with the targets that they make."""
    epsilon = settings.label_epsilon
    return PublicLabels(classes, classes if epsilon is None else public.soft_targets(classes, epsilon))


#: Places of the scores in units of the range: beyond its ends, at them, and inside.
_PLACES = np.array([-3.0, -1.0, -0.9, -0.7, -0.5, -0.31, -0.1, 0.0, 0.13, 0.4, 0.55, 0.8, 0.99, 1.0, 2.0])


def symbol_checks(settings: FusionPrivacy, ask: Asking, trials: int) -> list[Check]:
    """Is no symbol beyond e^epsilon times as frequent as of another score? ``docs/privacy.md#the-audit``."""
    n = max(many_rows(max(trials // 3, 300), settings.delta), 2)
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
        numbers += map(normal_of, tap.uniforms)
    return [
        outcomes_check("symbols", tables, fusion_budget(settings).symbol),
        links_check(at_distances(numbers), "independence of the symbols"),
        reuse_check(np.concatenate([*numbers, np.zeros(0)]), "symbols' randomness used twice"),
    ]


def _moderate(n: int) -> Script:
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
