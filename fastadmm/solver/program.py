"""Which of the two programs ran, and whether the other would have been much faster."""

from __future__ import annotations

from fastadmm.engine.engine import Engine
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.method import ways_of
from fastadmm.problem.problem import Problem

#: Shorter runs are not worth a line; nor is what would not be faster by this factor.
_SECONDS, _FASTER = 1.0, 2.0

#: Fits take this many times what the cost of a minimiser says, at most: proof, copies, hard problems.
_ON_TOP = 3.0


def program_line(scheme: str) -> str:
    """One line on which program a run is, by its scheme."""
    return (
        "pooled: all columns are in this process"
        if scheme == "pooled"
        else (f"parties: {scheme}, as between organisations")
    )


def pooled_hint(problem: Problem, engine: Engine, seconds: float) -> str:
    """One line where a run of parties would be much faster pooled; else empty."""
    if seconds < _SECONDS or not (problem.convex and problem.traits.a_sum):
        return ""
    goal = Goal(problem, engine)
    ways = ways_of(goal)
    about = _ON_TOP * 1e-9 * ways[0].cost(goal) / engine.n_threads if ways else seconds
    if not about * _FASTER < seconds:
        return ""
    took = f"some {about:.1g} s instead of {seconds:.1f}"
    return f"pooled, this would take {took}: all columns are in this process (--pooled, scheme = 'pooled')"
