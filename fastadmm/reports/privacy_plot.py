"""Epsilon over rounds, as one figure."""

from __future__ import annotations

import math
from pathlib import Path

from fastadmm.errors import ConfigError
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.plan import BudgetPlan
from fastadmm.reports.figure import INSTALL_HINT
from fastadmm.store.atomic import atomic_file, shown

__all__ = ["write_privacy_plot"]

_SUFFIXES = (".svg", ".png", ".pdf")


def write_privacy_plot(path: Path, plan: BudgetPlan, n_parties: int) -> Path:
    """Draw how epsilon grows with the rounds at the plan's noise.

    Parameters
    ----------
    path : Path
        Ends in .svg, .png or .pdf; replaced, never left half-written.
    plan : BudgetPlan
    n_parties : int
        For the curve of a person in all of them.

    Returns
    -------
    Path

    Raises
    ------
    ConfigError
        If Matplotlib is missing or the name has another ending.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(f"{shown(path)}: a plot ends in {', '.join(_SUFFIXES)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(INSTALL_HINT) from error
    last = max(2 * plan.rounds, 10)
    step = max(1, last // 200)
    rounds = sorted({*range(1, last + 1, step), plan.rounds})
    mu = 1.0 / plan.multiplier
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(rounds, [epsilon_of(math.sqrt(t) * mu, plan.delta) for t in rounds], label="one party")
    if n_parties > 1:
        joint = [epsilon_of(math.sqrt(t * n_parties) * mu, plan.delta) for t in rounds]
        axes.plot(rounds, joint, linestyle="--", label=f"one person in all {n_parties} parties")
    axes.plot([plan.rounds], [plan.epsilon], "o", color="black")
    axes.set_xlabel("rounds")
    axes.set_ylabel(f"epsilon at delta = {plan.delta:g}")
    axes.set_ylim(bottom=0)
    axes.legend()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=suffix[1:])
    return path
