"""The loop of rounds, and what is built on it: paths, cross-validation, early stopping.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from typing import TYPE_CHECKING

from fastadmm.lazy import load_on_use

if TYPE_CHECKING:
    from fastadmm.solver.solver import Solver, SolverOptions, solve

__all__ = ["Solver", "SolverOptions", "solve"]

__getattr__, __dir__ = load_on_use(globals(), dict.fromkeys(__all__, "solver"))
