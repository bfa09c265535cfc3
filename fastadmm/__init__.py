"""Joint generalised linear models over vertically split features by ADMM sharing.

Nothing heavy is imported here: each name below loads its module on first use.
"""

from typing import TYPE_CHECKING

from fastadmm.lazy import adopt, load_on_use
from fastadmm.version import __version__ as __version__

if TYPE_CHECKING:  # "as" says to checkers of types that a name is exported
    from fastadmm.figures.progress import Progress as Progress
    from fastadmm.problem.problem import make_problem as make_problem
    from fastadmm.settings.privacy import Privacy as Privacy
    from fastadmm.sklearn.estimators import ADMMSharingClassifier as ADMMSharingClassifier
    from fastadmm.sklearn.estimators import ADMMSharingRegressor as ADMMSharingRegressor
    from fastadmm.sklearn.estimators import JointClassifier as JointClassifier
    from fastadmm.sklearn.estimators import JointRegressor as JointRegressor
    from fastadmm.sklearn.estimators_cv import ADMMSharingClassifierCV as ADMMSharingClassifierCV
    from fastadmm.sklearn.estimators_cv import ADMMSharingRegressorCV as ADMMSharingRegressorCV
    from fastadmm.sklearn.estimators_cv import JointClassifierCV as JointClassifierCV
    from fastadmm.sklearn.estimators_cv import JointRegressorCV as JointRegressorCV
    from fastadmm.sklearn.inference import report as report
    from fastadmm.sklearn.woe import Scorecard as Scorecard
    from fastadmm.sklearn.woe import WoeTransformer as WoeTransformer
    from fastadmm.solver.cross_validation import cross_validate as cross_validate
    from fastadmm.solver.cross_validation import make_folds as make_folds
    from fastadmm.solver.options import SolverOptions as SolverOptions
    from fastadmm.solver.regularization_path import lambda_grid as lambda_grid
    from fastadmm.solver.regularization_path import path as path
    from fastadmm.solver.solver import solve as solve
    from fastadmm.solver.warm_start import StartingPoint as StartingPoint
    from fastadmm.store.partition import open_partition as open_partition

_MODULE_OF = {
    **dict.fromkeys(("JointClassifier", "JointRegressor"), "sklearn.estimators"),
    **dict.fromkeys(("JointClassifierCV", "JointRegressorCV"), "sklearn.estimators_cv"),
    # Their names until version 0.2.
    **dict.fromkeys(("ADMMSharingClassifier", "ADMMSharingRegressor"), "sklearn.estimators"),
    **dict.fromkeys(("ADMMSharingClassifierCV", "ADMMSharingRegressorCV"), "sklearn.estimators_cv"),
    "Privacy": "settings.privacy",
    "Progress": "figures.progress",
    "SolverOptions": "solver.options",
    "StartingPoint": "solver.warm_start",
    "cross_validate": "solver.cross_validation",
    "lambda_grid": "solver.regularization_path",
    "make_folds": "solver.cross_validation",
    "make_problem": "problem.problem",
    "open_partition": "store",
    "report": "sklearn.inference",
    "Scorecard": "sklearn.woe",
    "WoeTransformer": "sklearn.woe",
    "path": "solver.regularization_path",
    "solve": "solver.solver",
}
__all__ = list(_MODULE_OF)

__getattr__, __dir__ = load_on_use(globals(), _MODULE_OF)

# In a clone these lie beside this folder; an installation puts them into it.
adopt(globals(), "kernels", "data_tools")
