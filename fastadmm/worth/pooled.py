"""The model that scikit-learn fits on all columns in one place: the reference for what splitting costs."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.problem.regularizers import ElasticNet


def fit_pooled(problem: Problem, test: TestSet) -> dict[str, Any]:
    """Fit scikit-learn on all parties' columns, where it minimises the same objective."""
    try:
        model = _estimator(problem)
        X, X_test = _joined(problem.blocks), _joined(test.blocks)
    except _NoModel as none:
        return {"reason": str(none)}
    from sklearn.exceptions import ConvergenceWarning

    from fastadmm.solver.metrics import evaluation_metrics

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, problem.y, sample_weight=problem.weight)
    z = _score(model, X_test, problem)
    every = evaluation_metrics(problem.loss, test.y, z, test.weight)
    return {
        "estimator": " ".join(repr(model).split()),
        "converged": not any(issubclass(w.category, ConvergenceWarning) for w in said),
        "metrics": {name: value for name, value in every.items() if not isinstance(value, dict | list)},
    }


class _NoModel(Exception):
    """Why scikit-learn has none."""


def _estimator(problem: Problem) -> Any:
    """The scikit-learn estimator of this objective, not fitted."""
    from sklearn.linear_model import ElasticNet as SklearnElasticNet
    from sklearn.linear_model import (
        GammaRegressor,
        Lasso,
        LogisticRegression,
        PoissonRegressor,
        Ridge,
        TweedieRegressor,
    )

    loss, first = problem.loss.name, problem.party_regularizers[0]
    for constraint in problem.party_constraints:
        if constraint.text != "all":
            raise _NoModel(f"scikit-learn has no model for the constraint {constraint.text}")
    if problem.offset.any():
        raise _NoModel("scikit-learn's linear models take no offset")
    total, lam, intercept = problem.total_weight, problem.lam, problem.fit_intercept
    if first.text == "l2":
        if loss in ("logistic", "multinomial") and np.isin(problem.y, np.unique(problem.y.astype(int))).all():
            # newton-cholesky factorises a d x d matrix, lbfgs does not.
            wide = sum(block.shape[1] for block in problem.blocks) > 2000
            solver = "lbfgs" if wide or loss == "multinomial" else "newton-cholesky"
            return LogisticRegression(
                C=1.0 / (total * lam), fit_intercept=intercept, solver=solver, tol=1e-9, max_iter=10000
            )
        if loss == "squared":
            return Ridge(alpha=total * lam, fit_intercept=intercept, tol=1e-9)
        tight = {"alpha": lam, "fit_intercept": intercept, "tol": 1e-9, "max_iter": 10000}
        if loss in ("poisson", "gamma"):
            return (PoissonRegressor if loss == "poisson" else GammaRegressor)(**tight)
        if loss == "tweedie":
            return TweedieRegressor(power=problem.loss.parameters["power"], link="log", **tight)
    elif loss == "squared" and first.text == "l1":
        return Lasso(alpha=lam, fit_intercept=intercept, tol=1e-8, max_iter=100000)
    elif loss == "squared" and isinstance(first, ElasticNet):
        return SklearnElasticNet(
            alpha=lam, l1_ratio=first.l1_ratio, fit_intercept=intercept, tol=1e-8, max_iter=100000
        )
    raise _NoModel(f"scikit-learn minimises no such objective: loss {loss} with regularizer {first.text}")


def _joined(blocks: list[FeatureBlock]) -> Any:
    """All parties' columns side by side."""
    if any(isinstance(block, DenseBlock | CSRBlock) and not block.in_memory for block in blocks):
        raise _NoModel("the columns do not fit in memory side by side: some are streamed")
    matrices = []
    for block in blocks:
        if isinstance(block, CSRBlock):
            matrices.append(block.to_scipy())
        else:
            assert isinstance(block, DenseBlock)  # there is no other kind
            matrices.append(block.matrix)
    if any(sp.issparse(matrix) for matrix in matrices):
        joined = sp.csr_array(sp.hstack(matrices, format="csr"))
        # scikit-learn takes 32-bit indices only.
        joined.indices, joined.indptr = joined.indices.astype(np.int32), joined.indptr.astype(np.int32)
        return joined
    return np.hstack(matrices)


def _score(model: Any, X: Any, problem: Problem) -> np.ndarray:
    """Linear predictor of a fitted model."""
    if problem.loss.vector:
        coef, intercept = model.coef_, np.broadcast_to(model.intercept_, len(model.coef_))
        if len(coef) == 1:  # two classes: log-odds of the second
            coef, intercept = np.vstack([-coef, coef]) / 2.0, np.array([-intercept[0], intercept[0]]) / 2.0
        return np.asarray(X @ coef.T + intercept)
    return np.asarray(X @ np.ravel(model.coef_) + float(np.ravel(model.intercept_)[0]))
