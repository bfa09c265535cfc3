"""Joint generalised linear models over vertically split features by ADMM sharing.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastadmm.cross_validation import cross_validate, make_folds
    from fastadmm.estimators import ADMMSharingClassifier, ADMMSharingRegressor
    from fastadmm.estimators_cv import ADMMSharingClassifierCV, ADMMSharingRegressorCV
    from fastadmm.privacy.settings import Privacy
    from fastadmm.problem import make_problem
    from fastadmm.regularization_path import lambda_grid, path
    from fastadmm.solver import SolverOptions, solve
    from fastadmm.store import open_partition
    from fastadmm.warm_start import StartingPoint

__version__ = "0.1.0"

__all__ = [
    "ADMMSharingClassifier",
    "ADMMSharingClassifierCV",
    "ADMMSharingRegressor",
    "ADMMSharingRegressorCV",
    "Privacy",
    "SolverOptions",
    "StartingPoint",
    "cross_validate",
    "lambda_grid",
    "make_folds",
    "make_problem",
    "open_partition",
    "path",
    "solve",
]

_MODULE_OF = {
    "ADMMSharingClassifier": "estimators",
    "ADMMSharingRegressor": "estimators",
    "ADMMSharingClassifierCV": "estimators_cv",
    "ADMMSharingRegressorCV": "estimators_cv",
    "Privacy": "privacy.settings",
    "SolverOptions": "solver",
    "StartingPoint": "warm_start",
    "cross_validate": "cross_validation",
    "lambda_grid": "regularization_path",
    "make_folds": "cross_validation",
    "make_problem": "problem",
    "open_partition": "store",
    "path": "regularization_path",
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
