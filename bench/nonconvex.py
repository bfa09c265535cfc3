"""Non-convex losses and penalty: rounds to a stationary point, the rate of Theorem 2, and outliers.

    python -P bench/nonconvex.py

Writes ``bench/nonconvex.json`` (what was measured), the block between
``<!-- nonconvex:begin -->`` and ``<!-- nonconvex:end -->`` in ``docs/losses.md``
(made from that file alone); ``--redraw`` only makes the page again. Nothing here depends on the clock.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import DOCS, first_below, keep, measured, write_blocks

PAGE, MARK = DOCS / "losses.md", "nonconvex"

LIMIT = 1000
LEVELS = (1e-2, 1e-3, 1e-4, 1e-5)
EPSILONS = tuple(10.0**-k for k in range(1, 7))
PARTIES = (2, 8)
LAM = 1e-3


def housing(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """California housing, features and target standardised."""
    from sklearn.preprocessing import scale

    table = np.loadtxt(data / "cal_housing.data", delimiter=",", skiprows=1)
    return scale(table[:, :-1]), scale(table[:, -1])


def corrupt(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Targets of which a random share is replaced by 20 standard deviations."""
    hit = np.random.default_rng(seed).random(len(y)) < share
    return np.where(hit, 20.0, y)


def cases(data: Path) -> Iterator[tuple[str, str, str, Any, np.ndarray]]:
    """Data set, loss, regulariser, features and targets."""
    for name, X, y, bounded, convex in data_sets(data):
        for loss in bounded:
            yield name, loss, "l2", X, y
        yield name, convex, "log_sum:0.3", X, y


def data_sets(data: Path) -> Iterator[tuple[str, Any, np.ndarray, tuple[str, ...], str]]:
    """Name, features, targets, losses that are not convex, and one that is."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_svmlight_file
    from sklearn.preprocessing import scale

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    yield "a9a", X.tocsc(), (y > 0) * 1.0, ("sigmoid",), "logistic"
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", scale(X), y * 1.0, ("sigmoid",), "logistic"
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), corrupt(scale(y), 0.1, 0)
    yield "diabetes", X, y, ("tukey", "welsch"), "huber"
    X, y = housing(data)
    y = corrupt(y, 0.1, 0)
    yield "housing", X, y, ("tukey", "welsch"), "huber"


def measure_rounds(data: Path) -> list[dict[str, Any]]:
    """Rounds to each level of stationarity, by scheme; and of ``sharing`` its V."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    found = []
    for name, loss, regularizer, X, y in cases(data):
        for parties in PARTIES:
            d = X.shape[1]
            bounds = [d * k // parties for k in range(parties + 1)]
            blocks = [X[:, a:b] for a, b in itertools.pairwise(bounds)]
            problem = make_problem(blocks, y, loss=loss, lam=LAM, regularizer=regularizer)
            case: dict[str, Any] = {
                "data": name,
                "loss": loss,
                "regularizer": regularizer,
                "parties": parties,
                "rounds": {},
            }
            for scheme in ("subspace", "sharing"):
                options = SolverOptions(scheme=scheme, stationarity=LEVELS[-1], max_rounds=LIMIT)
                history = solve(problem, options).history
                values = [float(r.stationarity or 0.0) for r in history]
                case["rounds"][scheme] = [first_below(values, level) for level in LEVELS]
                case[f"objective_{scheme}"] = history[-1].objective
                if scheme == "sharing":
                    lagrangian = [r.augmented_lagrangian for r in history]
                    case["descends"] = bool(np.all(np.diff(lagrangian) <= 1e-12 * abs(lagrangian[0])))
                    case["penalty"] = history[-1].penalty
                    v = [r.lyapunov for r in history]
                    case["rate"] = [first_below(v, eps * v[0]) for eps in EPSILONS]
                    smallest = np.minimum.accumulate(v)
                    case["constant"] = float(np.max(smallest * np.arange(1, len(v) + 1)) / v[0])
            found.append(case)
            print(case, flush=True)
    return found


def measure_outliers(data: Path) -> list[dict[str, Any]]:
    """Test error of housing models whose training targets are partly corrupted."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    X, y = housing(data)
    train = np.random.default_rng(1).random(len(y)) < 0.7
    found = []
    for share in (0.0, 0.05, 0.1, 0.2, 0.3):
        target = corrupt(y, share, 2)
        row: dict[str, Any] = {"share": share}
        for loss in ("squared", "huber", "quantile", "tukey", "welsch"):
            problem = make_problem(np.array_split(X[train], 2, axis=1), target[train], loss=loss, lam=LAM)
            result = solve(problem, SolverOptions(gap=1e-4))
            z = X[~train] @ np.concatenate(result.weights) + result.intercept
            row[loss] = float(np.sqrt(np.mean((z - y[~train]) ** 2)))
        found.append(row)
        print(row, flush=True)
    return found


def cell(value: int | None) -> str:
    """A number of rounds; a dash where the limit came first."""
    return "–" if value is None else str(value)


def block(found: dict[str, Any]) -> str:
    """The page's tables."""
    shown = range(1, len(LEVELS), 2)
    levels = " / ".join(f"{LEVELS[k]:.0e}" for k in shown)
    lines = [
        f"λ = {LAM:g}, with intercept, default options, at most {found['limit']} rounds. Rounds to a "
        f"relative stationarity of {levels} (–: not reached):",
        "",
        "| data | loss | regulariser | M | `subspace` | `sharing` | objective, `sharing` over `subspace` |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for c in found["cases"]:
        if c["parties"] < max(case["parties"] for case in found["cases"]):
            continue
        rounds = [" / ".join(cell(c["rounds"][s][k]) for k in shown) for s in ("subspace", "sharing")]
        ratio = c["objective_sharing"] / c["objective_subspace"]
        lines.append(
            f"| {c['data']} | `{c['loss']}` | `{c['regularizer']}` | {c['parties']} "
            f"| {rounds[0]} | {rounds[1]} | {ratio:.4f} |"
        )
    lines += [
        "",
        "An O(1/ε) rate bounds T·min Vᵗ/V¹; over all rounds T of these runs of `sharing` it is at most "
        f"{max(c['constant'] for c in found['cases']):.1f}.",
    ]
    names = ("squared", "huber", "quantile", "tukey", "welsch")
    lines += [
        "",
        "California housing, two parties, some training targets replaced by 20 standard deviations: "
        "root mean squared error on untouched test rows, in standard deviations of the target, losses with "
        "their default parameters:",
        "",
        "| corrupted | " + " | ".join(f"`{name}`" for name in names) + " |",
        "|---:|" + "---:|" * len(names),
    ]
    for row in found["outliers"]:
        lines.append(f"| {row['share']:.0%} | " + " | ".join(f"{row[name]:.3f}" for name in names) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    found = measured("nonconvex")
    if "--redraw" not in sys.argv[1:]:
        data = find_data("cal_housing.data")
        found = {"limit": LIMIT, "cases": measure_rounds(data), "outliers": measure_outliers(data)}
    keep("nonconvex", found)
    write_blocks(PAGE, {MARK: block(found)})


if __name__ == "__main__":
    main()
