"""Rounds of parties on tables with few rows and many columns: with l1 or elastic net, and with ridge.

Half of the problems with ridge were not looked at while the method was made.

    python -P bench/few_rows.py

Writes ``bench/few_rows.json`` and the block ``few-rows`` of ``docs/performance.md``, made from that file
alone; ``--redraw`` only the latter. Rounds do not depend on the clock.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PAGE = ROOT / "bench" / "few_rows.json", ROOT / "docs" / "performance.md"

LOSSES = ("squared", "logistic", "hinge", "quantile", "huber")
REGULARIZERS = ("l1", "elastic_net")
SEEDS, GAP = range(10), 1e-6
RIDGE_LOSSES = ("logistic", "squared", "huber", "squared_hinge", "poisson", "hinge")
RIDGE_SEEDS, LIMIT = (*range(30), *range(200, 230)), 150


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


def generate_ridge(seed: int) -> tuple[dict[str, Any], list[np.ndarray], np.ndarray, dict[str, Any]]:
    """As :func:`generate`, with squared l2: plain, correlated, sparse, badly scaled and doubled columns."""
    rng = np.random.default_rng([99, seed])
    loss, kind = RIDGE_LOSSES[seed % len(RIDGE_LOSSES)], int(rng.integers(5))
    n, parties = int(np.exp(rng.uniform(np.log(40), np.log(400)))), int(rng.choice([2, 3, 4, 8, 16]))
    d = parties * (int(np.exp(rng.uniform(np.log(max(2 * n, 800)), np.log(8000)))) // parties)
    X = rng.normal(size=(n, d))
    if kind == 1:
        X = 0.3 * X + rng.normal(size=(n, 5)) @ rng.normal(size=(5, d))
    elif kind == 2:
        X = X * (rng.random((n, d)) < 0.1) * 3
    elif kind == 3:
        X *= np.exp(rng.normal(size=d) * rng.uniform(1, 3))
        X[:, d // 2 :] = X[:, : d - d // 2] + 0.01 * X[:, d // 2 :]
    elif kind == 4:
        sizes = (1.0 + np.arange(n // 2)) ** -rng.uniform(0.3, 1.0)
        X = rng.normal(size=(n, n // 2)) * sizes @ rng.normal(size=(n // 2, d)) + 0.05 * X
    X /= np.sqrt((X**2).mean())
    z = X @ (rng.normal(size=d) * (rng.random(d) < 0.1))
    z *= 2.0 / z.std()
    sign = loss in ("logistic", "hinge", "squared_hinge")
    noise = rng.logistic(size=n) if sign else rng.standard_t(3, size=n)
    if sign:
        y = (z + 0.5 * noise > 0) * 1.0
    else:
        y = rng.poisson(np.exp(np.clip(z, -5, 3))) * 1.0 if loss == "poisson" else z + 0.5 * noise
    given: dict[str, Any] = {"loss": loss, "regularizer": "l2", "lam": 10.0 ** rng.uniform(-5, -1)}
    about = {"seed": seed, "loss": loss, "n": n, "d": d, "parties": parties, "lam": given["lam"]}
    return about, list(np.split(X, parties, axis=1)), y, given


def measure(made: Callable[[int], tuple[Any, ...]], seed: int) -> dict[str, Any]:
    """A problem and its rounds by default; None where they are not enough."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    case, blocks, y, given = made(seed)
    problem = make_problem([np.ascontiguousarray(b) for b in blocks], y, **given)
    result = solve(problem, SolverOptions(gap=GAP, max_rounds=LIMIT, n_threads=1))
    return {**case, "rounds": len(result.history) if result.gap <= GAP else None}


def told(rounds: list[int | None]) -> str:
    """A cell of the table, of rounds or None."""
    known = [k for k in rounds if k is not None]
    mean = f"{math.exp(sum(map(math.log, known)) / len(known)):.0f}, {max(known)}" if known else "–"
    return f"{mean} ({len(rounds) - len(known)} of {len(rounds)})" if rounds else ""


def block(measured: dict[str, list[dict[str, Any]]]) -> str:
    """The page's table."""
    lines = [
        "| loss | `l1`, `elastic_net`; 30 to 120 rows, λ 1e-4 to 1e-2 | `l2`; 40 to 400 rows, λ 1e-5 to 0.1 |",
        "|---|---:|---:|",
    ]
    for loss in (*dict.fromkeys((*LOSSES, *RIDGE_LOSSES)), "all"):
        cells = [
            told([c["rounds"] for c in cases if loss in (c["loss"], "all")]) for cases in measured.values()
        ]
        lines.append(f"| {loss if loss == 'all' else f'`{loss}`'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    sys.path.insert(0, str(ROOT / "bench"))
    from page import replace_block

    if "--redraw" not in sys.argv[1:]:
        measured = {}
        for name, made, seeds in (("l1", generate, SEEDS), ("ridge", generate_ridge, RIDGE_SEEDS)):
            measured[name] = [measure(made, seed) for seed in seeds]
        parts = [
            f'"{name}": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]" for name, cases in measured.items()
        ]
        MEASURED.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    replace_block("few-rows", block(json.loads(MEASURED.read_text(encoding="utf-8"))), PAGE)


if __name__ == "__main__":
    main()
