"""Joint generalised linear models over vertically split features by ADMM sharing.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastadmm.estimators import ADMMSharingClassifier, ADMMSharingRegressor
    from fastadmm.privacy.settings import Privacy
    from fastadmm.problem import make_problem
    from fastadmm.solver import SolverOptions, solve
    from fastadmm.store import open_partition

__version__ = "0.1.0"

__all__ = [
    "ADMMSharingClassifier",
    "ADMMSharingRegressor",
    "Privacy",
    "SolverOptions",
    "make_problem",
    "open_partition",
    "solve",
]

_MODULE_OF = {
    "ADMMSharingClassifier": "estimators",
    "ADMMSharingRegressor": "estimators",
    "Privacy": "privacy.settings",
    "SolverOptions": "solver",
    "make_problem": "problem",
    "open_partition": "store",
    "solve": "solver",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
