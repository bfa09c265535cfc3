"""Rounds on tables with few rows and many columns: by columns, the default in one process, and by directions.

    python -P bench/few_rows.py

Writes ``bench/few_rows.json`` and the block ``few-rows`` of ``docs/convergence.md``, which is made from that
file alone; ``--redraw`` only the latter. Rounds do not depend on the clock.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PAGE = ROOT / "bench" / "few_rows.json", ROOT / "docs" / "convergence.md"

LOSSES = ("squared", "logistic", "hinge", "quantile", "huber")
REGULARIZERS = ("l1", "elastic_net")
SEEDS, LIMIT, GAP = 10, 100, 1e-6


def generate(seed: int) -> tuple[dict[str, Any], list[np.ndarray], np.ndarray, dict[str, Any]]:
    """A problem of each loss and regulariser: what it is, blocks, targets and arguments."""
    rng = np.random.default_rng([77, seed])
    loss, regularizer = LOSSES[seed % 5], REGULARIZERS[seed // 5 % 2]
    n, parties = int(np.exp(rng.uniform(np.log(30), np.log(120)))), int(rng.integers(2, 5))
    width = int(n * rng.uniform(5, 20)) // parties
    d, kind = parties * width, int(rng.integers(3))
    X = rng.normal(size=(n, d))
    if kind == 1:
        X = 0.5 * X + 0.5 * rng.normal(size=(n, 5)) @ rng.normal(size=(5, d))
    elif kind == 2:
        X *= 2.0 * (rng.random((n, d)) < 0.2)
    z = X @ (rng.normal(size=d) * (rng.random(d) < rng.uniform(0.05, 1.0) * n / d))
    z *= 2.0 / z.std()
    noise = rng.logistic(size=n) if loss in ("logistic", "hinge") else rng.standard_t(3, size=n)
    y = (z + 0.5 * noise > 0.0) * 1.0 if loss in ("logistic", "hinge") else z + 0.5 * noise
    given: dict[str, Any] = {"loss": loss, "regularizer": regularizer, "lam": 10.0 ** rng.uniform(-4, -2)}
    about = {"seed": seed, "loss": loss, "regularizer": regularizer, "n": n, "d": d, "parties": parties}
    return about, list(np.split(X, parties, axis=1)), y, given


def measure(seed: int) -> dict[str, Any]:
    """Rounds both ways; None where they are not enough."""
    from fastadmm.coordinator.metric_limits import directions_for_faces
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    case, blocks, y, given = generate(seed)
    problem = make_problem([np.ascontiguousarray(b) for b in blocks], y, **given)
    usual = directions_for_faces(len(blocks), len(y), problem.loss.smooth)
    for name, history in (("columns", None), ("directions", usual)):
        result = solve(problem, SolverOptions(gap=GAP, max_rounds=LIMIT, history=history, n_threads=1))
        case[name] = len(result.history) if result.gap <= GAP else None
    return case


def block(cases: list[dict[str, Any]]) -> str:
    """The page's table."""
    lines = [
        f"{len(cases)} made problems, 30 to 120 rows, 2 to 4 parties, λ = 1e-4 to 1e-2; rounds until {GAP:g} "
        f"is certified, geometric mean over those that take at most {LIMIT}, worst, and in brackets how many "
        "do not:",
        "",
        "| loss | by columns | by directions |",
        "|---|---:|---:|",
    ]
    for loss in (*LOSSES, "all"):
        cells = []
        for name in ("columns", "directions"):
            rounds = [case[name] for case in cases if loss in (case["loss"], "all")]
            known = [k for k in rounds if k is not None]
            mean = f"{math.exp(sum(map(math.log, known)) / len(known)):.0f}, {max(known)}" if known else "–"
            cells.append(f"{mean} ({len(rounds) - len(known)})")
        lines.append(f"| {loss if loss == 'all' else f'`{loss}`'} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    sys.path.insert(0, str(ROOT / "bench"))
    from page import replace_block

    if "--redraw" not in sys.argv[1:]:
        cases = []
        for seed in range(SEEDS):
            cases.append(measure(seed))
            print(cases[-1], flush=True)
            lines = ",\n".join(json.dumps(case) for case in cases)
            MEASURED.write_text(f'{{"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    replace_block("few-rows", block(json.loads(MEASURED.read_text(encoding="utf-8"))["cases"]), PAGE)


if __name__ == "__main__":
    main()
