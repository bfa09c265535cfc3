"""Rounds to a certified 1e-4 and 1e-6 where regularisers or losses have kinks.

    python -P bench/nonsmooth.py

Writes ``bench/nonsmooth.json`` (what was measured) and the block between
``<!-- nonsmooth:begin -->`` and ``<!-- nonsmooth:end -->`` in
``docs/performance.md`` (made from that file alone). ``--redraw`` only makes
the page again; ``--continue`` keeps the cases that are measured already.
Default options, an intercept; nothing here depends on the clock.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import replace_block

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
MEASURED = ROOT / "bench" / "nonsmooth.json"
MARK = "nonsmooth"

LAMBDAS = (1e-3, 1e-4)
PARTIES = (2, 5, 8)
LEVELS = (1e-4, 1e-6)
LIMIT = 150
REGULARIZERS = ("l1", "elastic_net", "group_lasso")
#: Columns in a group of the group lasso.
GROUP = 4


def datasets(data: Path) -> Iterator[tuple[str, tuple[str, ...], Any, np.ndarray]]:
    """Name, losses, features and targets of each data set."""
    from sklearn.datasets import load_svmlight_file
    from sklearn.preprocessing import scale

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    a9a = X.tocsc(), (y > 0) * 1.0
    yield "a9a", ("logistic",), *a9a
    X, y = load_svmlight_file(str(data / "mushrooms.bz2"))
    yield "mushrooms", ("logistic", "hinge"), X.tocsc(), (y > 1) * 1.0
    table = np.loadtxt(data / "cal_housing.data", delimiter=",", skiprows=1)
    columns = scale(table[:, :-1])
    products = [
        columns[:, i] * columns[:, j] for i, j in itertools.combinations_with_replacement(range(8), 2)
    ]
    X = scale(np.column_stack([columns, *products]))
    yield "housing", ("squared", "huber", "quantile"), X, scale(table[:, -1])
    yield "a9a", ("hinge",), *a9a  # the slowest


def parameters(regularizer: str, widths: list[int]) -> dict[str, Any] | None:
    """Groups of neighbouring columns of each party; of another regulariser None."""
    if regularizer != "group_lasso":
        return None
    return {"groups": [[list(range(a, min(a + GROUP, d))) for a in range(0, d, GROUP)] for d in widths]}


def first_below(values: list[float], level: float) -> int | None:
    """Number of the first round at or below a level; None if there is none."""
    return next((k + 1 for k, value in enumerate(values) if value <= level), None)


def measure(data: Path, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds of every case; what is known already is kept, and each case is on disk when it is done."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    cases = list(known)
    done = {_key(case) for case in known}
    for name, losses, X, y in datasets(data):
        for parties in PARTIES:
            bounds = [X.shape[1] * k // parties for k in range(parties + 1)]
            blocks = [X[:, a:b] for a, b in itertools.pairwise(bounds)]
            widths = [b - a for a, b in itertools.pairwise(bounds)]
            for loss, regularizer, lam in itertools.product(losses, REGULARIZERS, LAMBDAS):
                if (name, loss, regularizer, lam, parties) in done:
                    continue
                problem = make_problem(
                    blocks,
                    y,
                    loss=loss,
                    lam=lam,
                    regularizer=regularizer,
                    regularizer_parameters=parameters(regularizer, widths),
                )
                gaps = [
                    r.gap for r in solve(problem, SolverOptions(gap=LEVELS[-1], max_rounds=LIMIT)).history
                ]
                case = {
                    "data": name,
                    "loss": loss,
                    "regularizer": regularizer,
                    "lambda": lam,
                    "parties": parties,
                    "certified": [first_below(gaps, level) for level in LEVELS],
                }
                cases.append(case)
                print(*case.values(), flush=True)
                found = {"limit": LIMIT, "levels": list(LEVELS), "group": GROUP, "cases": cases}
                MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return cases


def _key(case: dict[str, Any]) -> tuple[Any, ...]:
    return case["data"], case["loss"], case["regularizer"], case["lambda"], case["parties"]


def _mean(cases: list[dict[str, Any]], level: int = 1) -> float:
    reached = [c["certified"][level] for c in cases if c["certified"][level] is not None]
    return math.exp(sum(map(math.log, reached)) / len(reached))


def _cell(counts: list[int | None]) -> str:
    return " / ".join("–" if n is None else str(n) for n in counts)


def _summary(cases: list[dict[str, Any]], level: int) -> str:
    reached = [c["certified"][level] for c in cases if c["certified"][level] is not None]
    return f"{_mean(cases, level):.1f}, at most {max(reached)}" + (
        f" ({len(cases) - len(reached)} not in time)" if len(reached) < len(cases) else ""
    )


def block(measured: dict[str, Any]) -> str:
    """The page's tables."""
    cases = measured["cases"]
    lines = [
        f"{len(cases)} cases with an intercept, default options, at most {measured['limit']} rounds; groups "
        f"of {measured['group']} neighbouring columns. Rounds until the relative gap is certified:",
        "",
        "| loss | cases | 1e-4: geometric mean | 1e-6: geometric mean |",
        "|---|---:|---|---|",
    ]
    for loss in dict.fromkeys(c["loss"] for c in cases):
        own = [c for c in cases if c["loss"] == loss]
        lines.append(f"| `{loss}` | {len(own)} | {_summary(own, 0)} | {_summary(own, 1)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    if "--redraw" not in sys.argv[1:]:
        going_on = "--continue" in sys.argv[1:] and MEASURED.exists()
        known = json.loads(MEASURED.read_text(encoding="utf-8"))["cases"] if going_on else []
        measure(find_data("a9a.bz2"), known)
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    replace_block(MARK, f"{block(measured)}\n", PAGE)


if __name__ == "__main__":
    main()
