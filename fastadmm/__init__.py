"""Joint generalised linear models over vertically split features by ADMM sharing.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastadmm.lazy import adopt, load_on_use, stand_in
from fastadmm.version import __version__ as __version__

if TYPE_CHECKING:
    from fastadmm.figures.progress import Progress
    from fastadmm.problem.problem import make_problem
    from fastadmm.settings.privacy import Privacy
    from fastadmm.sklearn.estimators import ADMMSharingClassifier, ADMMSharingRegressor
    from fastadmm.sklearn.estimators_cv import ADMMSharingClassifierCV, ADMMSharingRegressorCV
    from fastadmm.solver.cross_validation import cross_validate, make_folds
    from fastadmm.solver.options import SolverOptions
    from fastadmm.solver.regularization_path import lambda_grid, path
    from fastadmm.solver.solver import solve
    from fastadmm.solver.warm_start import StartingPoint
    from fastadmm.store import open_partition

__all__ = [
    "ADMMSharingClassifier",
    "ADMMSharingClassifierCV",
    "ADMMSharingRegressor",
    "ADMMSharingRegressorCV",
    "Privacy",
    "Progress",
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
    "ADMMSharingClassifier": "sklearn.estimators",
    "ADMMSharingRegressor": "sklearn.estimators",
    "ADMMSharingClassifierCV": "sklearn.estimators_cv",
    "ADMMSharingRegressorCV": "sklearn.estimators_cv",
    "Privacy": "settings.privacy",
    "Progress": "figures.progress",
    "SolverOptions": "solver.options",
    "StartingPoint": "solver.warm_start",
    "cross_validate": "solver.cross_validation",
    "lambda_grid": "solver.regularization_path",
    "make_folds": "solver.cross_validation",
    "make_problem": "problem.problem",
    "open_partition": "store",
    "path": "solver.regularization_path",
    "solve": "solver.solver",
}


__getattr__, __dir__ = load_on_use(globals(), _MODULE_OF)

# In a clone these lie beside this folder; an installation puts them into it.
adopt(globals(), "kernels", "data_tools")

# Where fitted estimators of version 0.1.0 have their classes.
stand_in(
    globals(),
    "estimators",
    dict.fromkeys(["ADMMSharingClassifier", "ADMMSharingRegressor"], "sklearn.estimators"),
)
stand_in(globals(), "history", dict.fromkeys(["RoundRecord", "Status"], "solver.history"))
