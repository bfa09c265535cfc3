"""What mode "fusion" is worth at each epsilon: table and JSON of docs/fusion.md.

    python -P bench/private_utility.py [--redraw]

Writes ``bench/private_utility.json`` (what was measured), the block between
``<!-- numbers:begin -->`` and ``<!-- numbers:end -->`` of ``docs/fusion.md``
(made from that file alone, which a test checks).
Noise is drawn from the operating system, so that a second run differs within
the printed deviations. Nothing is tuned on the test rows: every data set runs
with the defaults and lambda = 1e-4.

The data (see ``CASES``) are in the directory that the environment variable
``FASTADMM_DATA`` names, or in ``../shared/data`` beside the repository.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import DOCS, keep, measured, write_blocks

PAGE, MARK = DOCS / "fusion.md", "numbers"

LAMBDA, DELTA = 1e-4, 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
RUNS = 10
BASELINES = ("pooled", "alone", "late_exact")


@dataclass(frozen=True)
class Case:
    """A data set split between parties; the first holds the labels."""

    title: str
    source: str
    widths: tuple[int, ...]
    epsilons: tuple[float, ...] = EPSILONS
    label_epsilons: tuple[float | None, ...] = (None, 1.0)
    runs: int = RUNS


CASES = {
    "a9a": Case("a9a, 66 + 57 columns", "a9a.bz2", (66, 57)),
    "a9a_4": Case("a9a, 40 + 26 + 29 + 28", "a9a.bz2", (40, 26, 29, 28)),
    "credit": Case("default of credit, 13 + 10", "fate/default_credit_hetero_guest.csv", (13, 10)),
    "mnist": Case("MNIST 4/9, upper + lower half", "mnist_4v9.npz", (392, 392), runs=5),
    "imdb": Case("IMDB, 5000 + 5000 words", "imdb_counts_train.npz", (5000, 5000), (1.0, 8.0), (None,), 5),
}


def load(name: str, data: Path) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Features and labels 0/1 of training and test rows; row by row, so that no scaling needs a charge."""
    if name.startswith("a9a"):
        from sklearn.datasets import load_svmlight_file

        sets = [load_svmlight_file(str(data / f), n_features=123) for f in ("a9a.bz2", "a9a.t.bz2")]
        return sets[0][0], (sets[0][1] > 0) * 1.0, sets[1][0], (sets[1][1] > 0) * 1.0
    if name == "credit":
        # Published in standardised form: its constants count as public. Every fifth record is for testing.
        tables = [
            np.loadtxt(data / "fate" / f"default_credit_hetero_{who}.csv", delimiter=",", skiprows=1)
            for who in ("guest", "host")
        ]
        guest, host = (table[np.argsort(table[:, 0])] for table in tables)
        X, y = np.column_stack([guest[:, 2:], host[:, 1:]]), guest[:, 1]
        order = np.random.default_rng(0).permutation(len(y))
        held = np.zeros(len(y), dtype=bool)
        held[order[: len(y) // 5]] = True
        return X[~held], y[~held], X[held], y[held]
    if name == "mnist":
        found = np.load(data / "mnist_4v9.npz")
        scale = [found[key].reshape(len(found[key]), -1) / 255.0 for key in ("X", "Xt")]
        return scale[0], (found["y"] > 0) * 1.0, scale[1], (found["yt"] > 0) * 1.0
    sets = []
    for part in ("train", "test"):
        found = np.load(data / f"imdb_counts_{part}.npz")
        counts = sp.csr_array((found["data"], found["indices"], found["indptr"]), shape=tuple(found["shape"]))
        words = sp.csr_array((np.log1p(counts.data), counts.indices, counts.indptr), shape=counts.shape)
        # The vocabulary is a public list, ordered by frequency: its first 10 000 words in turn.
        columns = np.concatenate([np.arange(0, 10_000, 2), np.arange(1, 10_000, 2)])
        sets.append((words[:, columns], (found["y"] > 0) * 1.0))
    return sets[0][0], sets[0][1], sets[1][0], sets[1][1]


def split(X: Any, widths: tuple[int, ...]) -> list[Any]:
    """Consecutive blocks of columns."""
    from fastadmm.blocks.block import as_block

    edges = np.cumsum((0, *widths))
    return [as_block(X[:, a:b]) for a, b in itertools.pairwise(edges)]


def measure(data: Path) -> dict[str, Any]:
    """All cases: baselines, and mean, deviation and mean accuracy over fresh runs."""
    return {
        "lambda": LAMBDA,
        "delta": DELTA,
        "cases": {name: measure_case(name, case, data) for name, case in CASES.items()},
    }


def measure_case(name: str, case: Case, data: Path) -> dict[str, Any]:
    """One case; see :func:`measure`."""
    from fastadmm import Privacy, SolverOptions, make_problem
    from fastadmm.privacy.fusion import FusionSolver
    from fastadmm.privacy.private_run import late_fusion
    from fastadmm.problem.problem import TestSet
    from fastadmm.solver.early_stopping import mean_loss
    from fastadmm.solver.solver import solve

    X, y, Xt, yt = load(name, data)
    test = TestSet(split(Xt, case.widths), yt, np.ones(len(yt)), np.zeros(len(yt)))
    problem = make_problem(split(X, case.widths), y, lam=LAMBDA, test=test)
    result = solve(problem, SolverOptions(gap=1e-4))
    late = late_fusion(problem)
    runs = []
    alone = 0.0
    for epsilon in case.epsilons:
        for label_epsilon in case.label_epsilons:
            losses, lates = [], []
            for _ in range(case.runs):
                settings = Privacy(mode="fusion", epsilon=epsilon, delta=DELTA, label_epsilon=label_epsilon)
                solver = FusionSolver(problem, SolverOptions(), settings)
                solver.round()
                models = solver.models(solver.party_weights(), solver.intercept)
                fused, alone, zero = solver.losses(models).values()
                losses.append(fused)
                lates.append(zero)
                solver.close()
            runs.append(
                {
                    "epsilon": epsilon,
                    "label_epsilon": label_epsilon,
                    "runs": case.runs,
                    "fusion": round(float(np.mean(losses)), 5),
                    "deviation": round(float(np.std(losses, ddof=1)), 5),
                    "late_released": round(float(np.mean(lates)), 5),
                }
            )
            print(name, runs[-1], flush=True)
    with solver.engine.limited():
        pooled = mean_loss(problem, test, result.weights, result.intercept, solver.engine)
        exact = mean_loss(problem, test, *late, solver.engine)
    return {
        "title": case.title,
        "n_train": len(y),
        "n_test": len(yt),
        "pooled": round(pooled, 5),
        "alone": round(alone, 5),
        "late_exact": round(exact, 5),
        "runs": runs,
    }


#: Budgets of the tables.
SHOWN = (1.0, 8.0)


def block(found: dict[str, Any]) -> str:
    """The page's tables."""
    lines = [""]
    for case in found["cases"].values():
        lines += [
            f"**{case['title']}** ({case['n_train']} records, {case['n_test']} for testing). "
            "Without privacy: "
            f"all columns together {case['pooled']:.4f}, label holder alone {case['alone']:.4f}, "
            f"exact local models added up {case['late_exact']:.4f}.",
            "",
            "| ε | labels public | labels at ε = 1 |",
            "|---:|---|---|",
        ]
        for epsilon in SHOWN:
            at = {run["label_epsilon"]: run for run in case["runs"] if run["epsilon"] == epsilon}
            cells = (_cell(case, at[label]) if label in at else "–" for label in (None, 1.0))
            lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
        lines.append("")
    count = sorted({run["runs"] for case in found["cases"].values() for run in case["runs"]})
    lines += [
        "Test log loss ± its deviation between runs, in brackets that of the released models added up; bold "
        "where fusion beats these, the label holder alone and the exact models. Means of "
        f"{' or '.join(map(str, count))} runs with fresh noise, δ = {found['delta']:g}, "
        f"λ = {found['lambda']:g}, replace-one, ε per party.",
        "",
    ]
    return "\n".join(lines)


def _cell(case: dict[str, Any], run: dict[str, Any]) -> str:
    fusion = f"{run['fusion']:.4f}"
    if run["fusion"] < min(case["alone"], run["late_released"], case["late_exact"]):
        fusion = f"**{fusion}**"
    return f"{fusion} ± {run['deviation']:.4f} ({run['late_released']:.4f})"


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    if "--redraw" not in sys.argv[1:]:
        data = find_data(*(case.source for case in CASES.values()))
        keep("private_utility", measure(data))
    write_blocks(PAGE, {MARK: block(measured("private_utility"))})


if __name__ == "__main__":
    main()
