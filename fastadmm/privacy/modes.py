"""The solver of a privacy mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.message import MessageSolver
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy
from fastadmm.solver.options import SolverOptions

__all__ = ["private_solver"]


def private_solver(
    problem: Problem,
    options: SolverOptions,
    settings: DifferentialPrivacy,
    messages: Path | None = None,
    data: Sequence[str] | None = None,
    **common: Any,
) -> FusionSolver | MessageSolver:
    """The solver of a mode that is not "none"."""
    if isinstance(settings, FusionPrivacy):
        return FusionSolver(problem, options, settings, releases=messages, data=data, **common)
    assert isinstance(settings, MessagePrivacy)
    return MessageSolver(problem, options, settings, releases=messages, **common)
