"""Whole fits on a9a to 1e-6, beside scikit-learn's solvers on the pooled columns, in one run.

Needs the public data sets: set FASTADMM_DATA to the directory that holds a9a.bz2.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

OPTIMUM = {1e-3: 0.333340752069, 1e-4: 0.324506924714}


@pytest.fixture(scope="module")
def a9a():
    """Features as CSR with 32-bit indices and labels 0/1 of a9a."""
    from sklearn.datasets import load_svmlight_file

    named = os.environ.get("FASTADMM_DATA")
    directory = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (directory / "a9a.bz2").exists():
        pytest.skip("a9a.bz2 not found: set FASTADMM_DATA to its directory")
    X, y = load_svmlight_file(str(directory / "a9a.bz2"), n_features=123)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, (y > 0) * 1.0


def relative(X, y, lam, x):
    """Suboptimality of pooled weights."""
    z = X @ x
    return (float(np.mean(np.logaddexp(0.0, z) - y * z)) + 0.5 * lam * float(x @ x)) / OPTIMUM[lam] - 1.0


@pytest.mark.parametrize("lam", sorted(OPTIMUM))
@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def bench_fastadmm(benchmark, a9a, lam, scheme):
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    X, y = a9a
    benchmark.group = f"a9a, lambda {lam:g}, to 1e-6"
    blocks = [X[:, :66], X[:, 66:]]

    def fit():
        return solve(make_problem(blocks, y, lam=lam, fit_intercept=False), SolverOptions(scheme=scheme))

    result = benchmark.pedantic(fit, rounds=5, warmup_rounds=1)
    benchmark.extra_info["rounds"] = len(result.history)
    assert relative(X, y, lam, np.concatenate(result.weights)) <= result.gap <= 1e-6


@pytest.mark.parametrize("lam", sorted(OPTIMUM))
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky", "newton-cg", "liblinear"])
def bench_scikit_learn(benchmark, a9a, lam, solver):
    from sklearn.linear_model import LogisticRegression

    X, y = a9a
    benchmark.group = f"a9a, lambda {lam:g}, to 1e-6"
    data = X.toarray() if solver == "newton-cholesky" else X
    # the loosest tolerance that reaches the same accuracy
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        model = LogisticRegression(
            C=1.0 / (len(y) * lam), fit_intercept=False, solver=solver, tol=tol, max_iter=5000
        )
        if relative(X, y, lam, model.fit(data, y).coef_[0]) <= 1e-6:
            break
    benchmark.extra_info["tol"] = tol
    benchmark.pedantic(lambda: model.fit(data, y), rounds=5, warmup_rounds=1)
    assert relative(X, y, lam, model.coef_[0]) <= 1e-6
