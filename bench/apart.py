"""Exchanges between organisations until a gap of 1e-6 is certified, beside L-BFGS and ADMM.

    python -P bench/apart.py [--redraw | KIND ...]

Writes ``bench/apart.json`` (what was measured) and the block ``apart`` of ``docs/performance.md``, which is
made from that file alone; with kinds of fits, only those are measured again. Nothing here depends on the
clock. Exchanges and bytes are those of ``result.json``, less the exchanges before the first round.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from datasets import find_data  # noqa: E402
from page import DOCS, keep, measured, replace_block  # noqa: E402
from rounds import datasets, geometric_mean  # noqa: E402

PAGE = DOCS / "performance.md"
ROWS, GAP, MOST = 4000, 1e-6, 400

#: Bounds that a part of the weights are at.
BOX = "box:-0.05,0.05"

#: Losses and regularisers of a row of the table.
KINDS = {
    "smooth, ridge": [("logistic", "l2"), ("squared", "l2"), ("huber", "l2")],
    "kinks, ridge": [("hinge", "l2"), ("quantile", "l2")],
    "four classes, ridge": [("multinomial", "l2")],
    "smooth, l1": [("logistic", "l1"), ("squared", "l1")],
    "kinks, l1": [("hinge", "l1"), ("quantile", "l1")],
    "four classes, l1": [("multinomial", "l1")],
    "smooth, ridge in a box": [("logistic", "l2"), ("squared", "l2")],
    "kinks, ridge in a box": [("hinge", "l2"), ("quantile", "l2")],
    "sums only, smooth, ridge": [("logistic", "l2"), ("squared", "l2"), ("huber", "l2")],
    "sums only, kinks, ridge": [("hinge", "l2"), ("quantile", "l2")],
}


def cases(data: Path) -> Any:
    """Name, blocks and labels; parties have at most 40 columns, or more. Of pictures every fifth point."""
    for name, X, y in datasets(data):
        if name not in ("a9a", "mushrooms", "mnist 4/9", "breast cancer"):
            continue
        rows = np.random.default_rng(0).permutation(len(y))[:ROWS]
        X, y = (X.tocsr()[rows].toarray() if hasattr(X, "tocsr") else X[rows]), y[rows]
        X = X[:, np.ptp(X, axis=0) > 0.0]
        X = X[:, ::5] if name == "mnist 4/9" else X
        d = X.shape[1]
        for parties in (1 + d // 90, -(-d // 40), 2 * -(-d // 40)):
            if parties > 1:
                yield name, np.array_split(X, parties, axis=1), y


def target(loss: str, blocks: list[Any], y: np.ndarray) -> np.ndarray:
    """Labels, or for losses of numbers and several classes a noisy score of the columns."""
    if loss in ("logistic", "hinge"):
        return y
    rng = np.random.default_rng(1)
    z = sum(b @ rng.normal(size=b.shape[1]) / math.sqrt(b.shape[1]) for b in blocks)
    z = z / z.std() + 2.0 * y + 0.5 * rng.standard_t(3, size=len(y))
    return np.digitize(z, np.quantile(z, [0.25, 0.5, 0.75])) * 1.0 if loss == "multinomial" else z


def ours(problem: Any, **options: Any) -> tuple[int, float] | None:
    """Exchanges, the proof's included, and bytes a row of the party with the most; None if not certified."""
    n = problem.n_samples
    solver = Solver(problem, SolverOptions(gap=GAP, max_rounds=MOST, n_threads=1, **options))
    traffic = solver.traffic
    assert traffic is not None
    with solver.engine:
        nothing = traffic.exchanges
        solver.prepare()
        opening = traffic.exchanges - nothing
        while solver.stop_reason(solver.round()) is None:
            pass
        exchanges = traffic.exchanges - opening
        return (
            (exchanges, max(traffic.bytes_by_party(n)) / n) if solver.proof and solver.proof.settled else None
        )


def lbfgs(problem: Any, X: np.ndarray) -> int | None:
    """Evaluations of SciPy's L-BFGS until 1e-6 above the optimum: an exchange each, and no proof."""
    from fastadmm.engine.engine import Engine
    from fastadmm.solver.solver import solve
    from scipy.optimize import minimize

    best = solve(problem, SolverOptions(gap=1e-9, max_rounds=MOST, n_threads=1)).objective
    n = problem.n_samples
    values: list[float] = []
    with Engine(1) as engine:

        def evaluate(w: np.ndarray) -> tuple[float, np.ndarray]:
            gradient, x = np.empty(n), w[1:]
            loss = problem.loss.evaluate(X @ x + w[0], problem.y, problem.weight, gradient, engine)
            values.append((loss + 0.5 * problem.regularization * float(x @ x)) / problem.total_weight)
            slope = np.append(gradient.sum(), X.T @ gradient + problem.regularization * x)
            return values[-1], slope / problem.total_weight

        minimize(evaluate, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": MOST})
    return next((k + 1 for k, value in enumerate(values) if value <= best * (1.0 + GAP)), None)


def measure(data: Path, kinds: list[str]) -> list[dict[str, Any]]:
    """One case after another, of some kinds."""
    found = []
    for (name, blocks, y), kind, lam in itertools.product(cases(data), kinds, (1e-2, 1e-4)):
        for loss, regularizer in KINDS[kind]:
            given = {"loss": loss, "regularizer": regularizer, "lam": lam}
            given |= {"constraint": BOX} if "box" in kind else {}
            problem = make_problem(blocks, target(loss, blocks, y), **given)
            wide = max(b.shape[1] for b in blocks) > 40
            case = {"data": name, "parties": len(blocks), "kind": kind, "wide": wide, **given}
            case["ours"] = ours(problem, **({"secrecy": "sums"} if kind.startswith("sums") else {}))
            if regularizer == "l2" and "box" not in kind and not kind.startswith("sums"):
                case["sharing"] = ours(problem, scheme="sharing") if loss != "multinomial" else None
                case["lbfgs"] = lbfgs(problem, np.hstack(blocks)) if kind.startswith("smooth") else None
            found.append(case)
            print(case, flush=True)
    return found


def told(counts: list[int | None]) -> str:
    """Geometric mean and worst, of those that arrived."""
    if not (reached := [count for count in counts if count is not None]):
        return "–"
    missing = f", {len(counts) - len(reached)} not" if len(reached) < len(counts) else ""
    return f"{geometric_mean(reached):.1f} ({max(reached)}{missing})"


def block(found: list[dict[str, Any]]) -> str:
    """The table, and what others took where they were measured."""
    lines = [
        f"{len(found)} fits of at most {ROWS:,} rows, λ = 1e-2 and 1e-4; exchanges, geometric mean "
        "(worst, and how many did not arrive), for parties of at most 40 columns and of more:",
        "",
        "| fits | at most 40 columns | bytes a row | more columns | bytes a row |",
        "|---|---:|---:|---:|---:|",
    ]
    others = []
    for kind in KINDS:
        halves = [[c for c in found if c["kind"] == kind and c["wide"] is wide] for wide in (False, True)]
        if not all(halves):  # not measured so far
            continue
        cells = []
        for own in halves:
            cells.append(told([case["ours"] and case["ours"][0] for case in own]))
            cells.append(f"{geometric_mean([case['ours'][1] for case in own if case['ours']]):.0f}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
        lbfgs = [told([case.get("lbfgs") for case in own]) for own in halves]
        admm = [
            told([case["sharing"] and case["sharing"][0] for case in own if "sharing" in case])
            for own in halves
        ]
        others += [
            f"{name} ({kind}) {' and '.join(took)}"
            for name, took in (("L-BFGS", lbfgs), ("ADMM", admm))
            if "–" not in took
        ]
    return "\n".join([*lines, "", f"Others: {'; '.join(others)}."]) + "\n"


def main() -> None:
    if sys.argv[1:] != ["--redraw"]:
        kinds = sys.argv[1:] or list(KINDS)
        known = measured("apart") if sys.argv[1:] else []
        found = [case for case in known if case["kind"] not in kinds] + measure(find_data("a9a.bz2"), kinds)
        keep("apart", found)
    found = measured("apart")
    replace_block("apart", block(found), PAGE)


if __name__ == "__main__":
    main()
