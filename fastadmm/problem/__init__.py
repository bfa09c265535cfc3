"""The problem: losses, regularisers, constraints, targets, weights.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from typing import TYPE_CHECKING

from fastadmm.lazy import load_on_use

if TYPE_CHECKING:
    from fastadmm.problem.problem import Problem, make_problem

__all__ = ["Problem", "make_problem"]

__getattr__, __dir__ = load_on_use(globals(), dict.fromkeys(__all__, "problem"))
