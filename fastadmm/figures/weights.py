"""Weights with their confidence intervals, party by party."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.figures.figure import MUTED, SERIES_COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Weights that can be told apart; of more, those that are most standard errors from zero.
_MOST = 60


def height_of_weights(table: dict[str, Any]) -> float:
    """Inches that :func:`draw_weights` needs."""
    return 1.2 + 0.22 * min(len(table["weight"]), _MOST)


def draw_weights(figure: Figure, table: dict[str, Any]) -> None:
    """Draw a line per weight of ``Inference.columns``, the first on top; the intercept is of no party."""
    party, weight = np.array(table["party"], dtype=object), np.asarray(table["weight"])
    own = np.flatnonzero(party != "")
    far = np.argsort(-np.abs(table["statistic"])[own], kind="stable")
    shown = own[np.sort(far[:_MOST])]
    ax = figure.subplots()
    for number, name in enumerate(dict.fromkeys(party[shown])):
        at = np.flatnonzero(party[shown] == name)
        rows, colour = shown[at], SERIES_COLOURS[number % len(SERIES_COLOURS)]
        ax.hlines(at, np.asarray(table["low"])[rows], np.asarray(table["high"])[rows], color=colour)
        ax.plot(weight[rows], at, "o", color=colour, label=name)
    classes = table.get("class")
    labels = [table["feature"][k] + ("" if classes is None else f" [{classes[k]}]") for k in shown]
    ax.set_yticks(range(len(shown)), labels)
    ax.invert_yaxis()
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    ax.set_xlabel("weight" if len(shown) == len(own) else f"weight; the {_MOST} most certain of {len(own)}")
    ax.legend()
