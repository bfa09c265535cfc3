"""Epsilon over rounds, as one figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from fastadmm.figures.figure import DASHES, SERIES_COLOURS, TEXT, write_figure
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.plan import BudgetPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_privacy_plot(path: Path, plan: BudgetPlan, n_parties: int) -> Path:
    """Draw how epsilon grows with the rounds at the plan's noise."""
    last = max(2 * plan.rounds, 10)
    step = max(1, last // 200)
    rounds = sorted({*range(1, last + 1, step), plan.rounds})
    mu = 1.0 / plan.multiplier

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot(
            rounds,
            [epsilon_of(math.sqrt(t) * mu, plan.delta) for t in rounds],
            color=SERIES_COLOURS[0],
            label="one party",
        )
        if n_parties > 1:
            joint = [epsilon_of(math.sqrt(t * n_parties) * mu, plan.delta) for t in rounds]
            label = f"one person in all {n_parties} parties"
            axes.plot(rounds, joint, color=SERIES_COLOURS[1], linestyle=DASHES[1], label=label)
        axes.plot([plan.rounds], [plan.epsilon], "o", color=TEXT)
        axes.set_xlabel("rounds")
        axes.set_ylabel(f"epsilon at delta = {plan.delta:g}")
        axes.set_ylim(bottom=0)
        axes.legend()

    return write_figure(path, draw, width=7.0, height=4.0)
