"""What private messages are worth on a9a, beside sending nothing: the table of docs/privacy.md.

    python bench/private_messages.py DATA      (DATA: a directory with a9a.bz2 and a9a.t.bz2, LIBSVM format)

Two parties with columns 1-66 and 67-123, replace-one adjacency, delta = 1e-5, all settings at their defaults.
Mean test log loss over seeds of the operating system's noise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm import Privacy, SolverOptions, make_problem, solve
from fastadmm.blocks.block import as_block
from fastadmm.privacy.message import MessageSolver
from fastadmm.privacy.sensitivity import clip_rows
from fastadmm.problem.problem import TestSet
from fastadmm.solver.loop import run_rounds
from sklearn.datasets import load_svmlight_file

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORD = ROOT / "docs" / "privacy.md", ROOT / "bench" / "private_messages.json"
BEGIN, END = "<!-- private-messages:begin -->\n", "<!-- private-messages:end -->"
EPSILONS, RUNS, LAM = (1.0, 4.0, 16.0, 64.0), 3, 1e-4


def load(folder: Path) -> Any:
    """The training problem with its test set, rows clipped."""
    X, y = load_svmlight_file(str(folder / "a9a.bz2"), n_features=123)
    Xt, yt = load_svmlight_file(str(folder / "a9a.t.bz2"), n_features=123)
    held = [as_block(clip_rows(part)) for part in (Xt[:, :66], Xt[:, 66:])]
    n = len(yt)
    test = TestSet(held, (yt > 0).astype(float), np.ones(n), np.zeros(n))
    blocks = [clip_rows(X[:, :66]), clip_rows(X[:, 66:])]
    return make_problem(blocks, (y > 0).astype(float), lam=LAM, test=test)


def measure(problem: Any) -> dict[str, Any]:
    """Losses of the pooled model, of every budget and of the baselines."""
    from fastadmm.engine.engine import Engine
    from fastadmm.solver.early_stopping import mean_loss

    pooled = solve(problem, SolverOptions(gap=1e-6))
    with Engine() as engine:
        record: dict[str, Any] = {
            "lambda": LAM,
            "pooled": mean_loss(problem, problem.test, pooled.weights, pooled.intercept, engine),
        }
    rows = []
    for epsilon in EPSILONS:
        for rounds in (1, 3):
            losses = []
            for _ in range(RUNS):
                solver = MessageSolver(
                    problem, SolverOptions(), Privacy(mode="message", epsilon=epsilon, rounds=rounds)
                )
                result = run_rounds(solver)
                found = solver.compare(result.weights, result.intercept).losses
                solver.close()
                own, late, start = found.values()
                losses.append(own)
            rows.append(
                {
                    "epsilon": epsilon,
                    "rounds": rounds,
                    "sigma": solver.level.sigma,
                    "loss": float(np.mean(losses)),
                    "spread": float(np.ptp(losses)),
                }
            )
            record |= {"late_fusion": late, "start": start}
    return {**record, "rows": rows}


def table(record: dict[str, Any]) -> str:
    """The record as Markdown."""
    rows = [
        f"| {row['epsilon']:g} | {row['rounds']} | {row['sigma']:.2f} | {row['loss']:.4f} |"
        for row in record["rows"]
    ]
    lines = [
        "| ε per party | T | noise σ | test log loss |",
        "|---:|---:|---:|---:|",
        *rows,
        "",
        f"Late fusion of local models (nothing sent): **{record['late_fusion']:.4f}**; answers to labels",
        f"alone (T = 0): {record['start']:.4f}; pooled data without privacy: {record['pooled']:.4f}. "
        f"λ = {record['lambda']:g}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write record and table."""
    record = measure(load(Path(sys.argv[1])))
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + table(record) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
