"""Wide tables with l1 in one process beside celer (one predictor) and scikit-learn's saga (several classes).

    python -P bench/coordinates.py

Writes ``bench/coordinates.json`` and the block ``coordinates`` of ``docs/performance.md``, made from that
file alone; ``--redraw`` only the latter. Each pair of times is of one turn on one thread, without copies that
are made of the input before. celer is asked for the gap that our objective makes 1e-6; saga, which proves
nothing, for as many passes as bring its objective within 1e-6 of ours: 200, or else 1,000.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import replace_block  # noqa: E402
from rounds import PAGE  # noqa: E402

MEASURED = ROOT / "bench" / "coordinates.json"
MARK = "coordinates"
GAP = 1e-6
KINDS = ("plain", "chained", "factors", "sparse", "sparse pairs")
#: Of the largest lambda; with the smallest one celer takes minutes for some logistic problems.
SHARES = {"squared": (0.3, 0.1, 0.01, 0.001), "logistic": (0.3, 0.1, 0.01)}
SHAPES = ((150, 6000), (400, 1500), (1200, 3000), (4000, 800))
CLASSES = (((100, 3000), 5), ((500, 2000), 3), ((3000, 500), 4))
PASSES = (200, 1000)


def made(kind: str, n: int, d: int, seed: int, classes: int = 1) -> tuple[Any, np.ndarray]:
    """Features, and predictors with noise of each class."""
    rng = np.random.default_rng([31, seed])
    if kind.startswith("sparse"):
        X = sp.random_array((n, d), density=0.02, rng=rng, format="csc", data_sampler=rng.standard_normal)
        if kind == "sparse pairs":
            X = sp.hstack([X[:, : d // 2], X[:, : d - d // 2] + 0.3 * X[:, d // 2 :]], format="csc")
    else:
        X = rng.normal(size=(n, d))
        if kind == "chained":
            for j in range(1, d):
                X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(0.19) * X[:, j]
        elif kind == "factors":
            X = 0.5 * X + rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) / math.sqrt(10)
        X = np.asfortranarray(X)
    weights = np.zeros((d, classes))
    weights[rng.choice(d, max(5, min(n, d) // 20), replace=False)] = rng.normal(size=classes)
    weights *= rng.normal(size=weights.shape)
    z = X @ weights
    return X, z / z.std() + 0.3 * rng.normal(size=z.shape)


def ours(X: Any, y: np.ndarray, **more: Any) -> tuple[float, float]:
    """Seconds, and the objective."""
    from fastadmm import SolverOptions, make_problem, solve

    rows = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
    given = make_problem([rows], y, regularizer="l1", fit_intercept=False, **more)
    begun = time.perf_counter()
    result = solve(given, SolverOptions(gap=GAP, n_threads=1))
    seconds = time.perf_counter() - begun
    if not result.certified:
        raise SystemExit(f"not certified: {X.shape}, {more}")
    return seconds, result.objective


def celer_seconds(X: Any, y: np.ndarray, loss: str, lam: float, objective: float) -> float:
    """What celer takes to the same gap."""
    from celer import Lasso, LogisticRegression

    most = {"fit_intercept": False, "max_iter": 200, "max_epochs": 200_000}
    if loss == "squared":
        model: Any = Lasso(alpha=lam, tol=GAP * objective / float(np.mean(y**2)), **most)
    else:
        model = LogisticRegression(C=1.0 / (len(y) * lam), tol=GAP * objective / math.log(2.0), **most)
        y = 2.0 * y - 1.0
    begun = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begun


def saga_seconds(X: Any, y: np.ndarray, lam: float, objective: float) -> float | None:
    """What saga takes to our objective; None where its last passes do not get there."""
    from sklearn.linear_model import LogisticRegression

    for passes in PASSES:
        own = {"solver": "saga", "l1_ratio": 1.0, "tol": 0.0, "random_state": 0, "fit_intercept": False}
        model = LogisticRegression(C=1.0 / (len(y) * lam), max_iter=passes, **own)
        begun = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - begun
        z = X @ model.coef_.T
        top = z.max(axis=1)
        loss = np.mean(
            top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - z[np.arange(len(y)), y.astype(int)]
        )
        if loss + lam * np.abs(model.coef_).sum() <= objective * (1.0 + GAP):
            return seconds
    return None


def measure() -> Iterator[dict[str, Any]]:
    """Seconds of each case, after one that loads and compiles."""
    for turn in ("warm", "measured"):
        for loss in ("squared", "logistic"):
            for kind in KINDS:
                for seed, shape in enumerate(SHAPES if turn == "measured" else ((100, 200),)):
                    X, z = made(kind, *shape, seed)
                    y = z[:, 0] if loss == "squared" else (z[:, 0] > 0.0) * 1.0
                    largest = float(np.abs(X.T @ (y if loss == "squared" else y - 0.5)).max()) / len(y)
                    for share in SHARES[loss]:
                        own, objective = ours(X, y, loss=loss, lam=share * largest)
                        other = celer_seconds(X, y, loss, share * largest, objective)
                        if turn == "measured":
                            yield {
                                "loss": loss,
                                "kind": kind,
                                "shape": shape,
                                "share": share,
                                "seconds": [own, other],
                            }
    for kind in ("plain", "sparse"):
        ours(*_classes(kind, 100, 200, 0, 3), loss="multinomial", lam=1e-2)
        for seed, (shape, classes) in enumerate(CLASSES):
            X, y = _classes(kind, *shape, seed, classes)
            for lam in (1e-2, 1e-3, 1e-4):
                own, objective = ours(X, y, loss="multinomial", lam=lam)
                rows = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)
                other = saga_seconds(rows, y, lam, objective)
                yield {
                    "loss": "multinomial",
                    "kind": kind,
                    "shape": shape,
                    "lambda": lam,
                    "seconds": [own, other],
                }


def _classes(kind: str, n: int, d: int, seed: int, classes: int) -> tuple[Any, np.ndarray]:
    X, z = made(kind, n, d, seed, classes)
    return X, z.argmax(axis=1).astype(float)


def block(cases: list[dict[str, Any]]) -> str:
    """The page's tables."""
    lines = ["Seconds of ours over celer's, geometric mean and worst:", ""]
    lines += [
        "| loss | λ = 0.3, 0.1 of the largest | λ = 0.01 | λ = 0.001 |",
        "|---|---:|---:|---:|",
    ]
    for loss in ("squared", "logistic"):
        cells = []
        for shares in ((0.3, 0.1), (0.01,), (0.001,)):
            own = [c for c in cases if c["loss"] == loss and c["share"] in shares]
            ratios = [c["seconds"][0] / c["seconds"][1] for c in own]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0
            cells.append(f"{mean:.2f}, {max(ratios):.2f}" if ratios else "–")
        lines.append(f"| `{loss}` | {' | '.join(cells)} |")
    lines += ["", "Several classes, seconds of ours and of saga:", ""]
    lines += ["| table | λ = 1e-2 | λ = 1e-3 | λ = 1e-4 |", "|---|---:|---:|---:|"]
    for kind in ("plain", "sparse"):
        for shape, classes in CLASSES:
            own = [c for c in cases if c["loss"] == "multinomial" and c["kind"] == kind]
            own = [c["seconds"] for c in own if tuple(c["shape"]) == shape]
            if not own:  # a run that was stopped before
                continue
            cells = [f"{a:.2f}, " + (f"{b:.1f}" if b else "not reached") for a, b in own]
            cells += ["–"] * (3 - len(cells))
            lines.append(f"| {kind}, {shape[0]:,} × {shape[1]:,}, {classes} classes | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    warnings.filterwarnings("ignore")
    if "--redraw" not in sys.argv[1:]:
        cases = []
        for case in measure():
            cases.append(case)
            print(case, flush=True)
        MEASURED.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    cases = json.loads(MEASURED.read_text(encoding="utf-8"))
    replace_block(MARK, f"{block(cases)}\n", PAGE)


if __name__ == "__main__":
    main()
