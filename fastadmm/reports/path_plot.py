"""The picture of a path for the page of its run."""

from __future__ import annotations

from typing import Any

from fastadmm.figures.figure import render
from fastadmm.figures.numbers import format_number
from fastadmm.figures.path import draw_path
from fastadmm.reports.plots import Plot


def path_plot(table: dict[str, Any]) -> Plot:
    """The picture for the page of a run."""
    rows, with_folds = table["values"], table["rule"] is not None
    name = "held_out_loss" if with_folds else "objective"
    caption = (
        "Mean loss on the rows that a fit did not see, with its standard error over the folds, and the "
        "number of weights that are not zero. The line marks the chosen value."
        if with_folds
        else "Objective and number of weights that are not zero. Without folds nothing chooses: the model is "
        "that of the smallest value."
    )
    return Plot(
        key="path",
        title="Held-out loss over λ" if with_folds else "Objective over λ",
        caption=caption,
        alt="; ".join(
            f"λ {format_number(row['lambda'], 4)}: {name.replace('_', ' ')} "
            f"{format_number(row[name], 5, zeros=True)}, {row['nonzero']} weights not zero"
            for row in rows
        ),
        svg=render("path", lambda figure: draw_path(figure, table), wide=True, height=5.0),
        wide=True,
    )
