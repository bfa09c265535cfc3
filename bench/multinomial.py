"""Multinomial regression on MNIST: fastadmm against scikit-learn, in one run on one machine.

``python bench/multinomial.py MNIST.npz`` prints one JSON document: certified rounds
and seconds, and the same objective reached by scikit-learn's L-BFGS. The file holds
``X_train`` (N x 784, 0 to 255) and ``y_train``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import SolverOptions, solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression


def objective(weights: np.ndarray, intercept: np.ndarray, X: np.ndarray, y: np.ndarray, lam: float) -> float:
    """Mean multinomial loss plus ``lam / 2 |weights|^2``; weights of shape (d, C)."""
    z = X @ weights + intercept
    top = z.max(axis=1)
    loss = top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - z[np.arange(len(y)), y]
    return float(loss.mean()) + 0.5 * lam * float(np.sum(weights**2))


def measure(X: np.ndarray, y: np.ndarray, lam: float, parties: int, gap: float) -> dict[str, Any]:
    """Train both to the same accuracy; compilation is done before."""
    blocks = np.array_split(X, parties, axis=1)
    solve(
        make_problem([b[:500] for b in blocks], y[:500], loss="multinomial", lam=lam),
        SolverOptions(max_rounds=3),
    )
    begin = time.perf_counter()
    result = solve(make_problem(blocks, y, loss="multinomial", lam=lam), SolverOptions(gap=gap))
    ours = time.perf_counter() - begin
    # scikit-learn has no certificate: its tolerance is lowered until its objective is as good.
    for tolerance in (1e-3, 1e-4, 1e-5, 1e-6):
        model = LogisticRegression(C=1.0 / (len(y) * lam), tol=tolerance, max_iter=2000)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        theirs = time.perf_counter() - begin
        reached = objective(model.coef_.T, model.intercept_, X, y, lam)
        if reached <= result.objective * (1.0 + gap):
            break
    return {
        "n_samples": len(y),
        "lambda": lam,
        "parties": parties,
        "gap": gap,
        "rounds": len(result.history),
        "certified_gap": result.gap,
        "objective": result.objective,
        "scikit_learn_objective": reached,
        "scikit_learn_tolerance": tolerance,
        "scikit_learn_iterations": int(np.max(model.n_iter_)),
        "seconds": ours,
        "scikit_learn_seconds": theirs,
        "time_ratio": ours / theirs,
    }


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--lam", type=float, default=1e-4)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--gap", type=float, default=1e-3)
    parser.add_argument("--rows", type=int, default=60000)
    arguments = parser.parse_args()
    data = np.load(arguments.data)
    X = data["X_train"][: arguments.rows].reshape(-1, 784) / 255.0
    y = data["y_train"][: arguments.rows].astype(np.int64)
    print(json.dumps(measure(X, y, arguments.lam, arguments.parties, arguments.gap), indent=2))


if __name__ == "__main__":
    main()
