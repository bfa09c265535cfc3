"""Held-out loss and weights over lambda, as one figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.figures.figure import DASHES, SERIES_COLOURS, TEXT, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_path_plot(path: Path, table: dict[str, Any]) -> Path:
    """Draw the mean held-out loss with its standard error, and the number of weights that are not zero."""
    return write_figure(path, lambda figure: draw_path(figure, table), height=6.5)


def draw_path(figure: Figure, table: dict[str, Any]) -> None:
    """Draw the held-out loss (the objective of a path without folds) and the weights that are not zero."""
    rows = table["values"]
    lambdas = [row["lambda"] for row in rows]
    chosen = rows[table["chosen"]]
    loss, count = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    if table["rule"] is None:
        loss.plot(
            lambdas, [row["objective"] for row in rows], color=SERIES_COLOURS[0], marker="o", markersize=4
        )
        loss.set_ylabel("objective")
    else:
        loss.errorbar(
            lambdas,
            [row["held_out_loss"] for row in rows],
            yerr=[row["standard_error"] for row in rows],
            color=SERIES_COLOURS[0],
            marker="o",
            markersize=4,
            capsize=3,
            label="mean over folds, standard error",
        )
        loss.axvline(
            chosen["lambda"], color=TEXT, linestyle=DASHES[1], label=f"chosen: {chosen['lambda']:.3g}"
        )
        loss.set_ylabel("held-out loss")
        loss.legend()
        count.axvline(chosen["lambda"], color=TEXT, linestyle=DASHES[1])
    count.step(lambdas, [row["nonzero"] for row in rows], where="mid", color=SERIES_COLOURS[1])
    count.set_ylabel("weights not zero")
    count.set_ylim(bottom=0)
    count.set_xscale("log")
    count.set_xlabel("lambda (per mean loss)")
