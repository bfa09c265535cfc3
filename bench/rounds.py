"""Rounds to 1e-3, 1e-6 and 1e-9 for every scheme, over data sets, lambda and number of parties.

    python -P bench/rounds.py

Writes ``bench/rounds.json`` (what was measured), the block between
``<!-- rounds:begin -->`` and ``<!-- rounds:end -->`` in ``docs/performance.md``
(made from that file alone). Nothing here depends on the clock: the same versions give the same numbers.

`--subspace` measures that scheme alone and keeps the other numbers, `--redraw`
keeps all. Ours run with their default options. The paper's schemes get the best of a grid
of penalties, chosen for each case and accuracy by looking at the result.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from page import DOCS, first_below, keep, measured, write_blocks

PAGE, MARK = DOCS / "performance.md", "rounds"

LAMBDAS = (1e-2, 1e-3, 1e-4, 1e-5)
PARTIES = (2, 8)
LEVELS = (1e-3, 1e-6, 1e-9)
LIMIT = 200
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SCHEMES = ("subspace", "sharing", "gauss-seidel", "jacobi")


def datasets(data: Path) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Name, features and labels 0/1 of each data set; ``near`` (near-identical parties) has no matrix."""
    from sklearn.datasets import load_breast_cancer, load_svmlight_file
    from sklearn.preprocessing import scale

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    yield "a9a", X.tocsc(), (y > 0) * 1.0
    X, y = load_svmlight_file(str(data / "mushrooms.bz2"))
    yield "mushrooms", X.tocsc(), (y > 1) * 1.0
    archive = np.load(data / "mnist_4v9.npz")
    yield "mnist 4/9", archive["X"] / 255.0, (archive["y"] > 0) * 1.0
    X, y = load_svmlight_file(str(data / "leukemia.bz2"))
    yield "leukemia", X.toarray(), (y > 0) * 1.0
    X, y = load_svmlight_file(str(data / "dorothea.bz2"))
    yield "dorothea", X.tocsc(), (y > 0) * 1.0
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", scale(X), y * 1.0
    rng = np.random.default_rng(0)
    base = rng.normal(size=(5000, 20))
    y = base @ rng.normal(size=20) + rng.logistic(size=5000) > 0
    yield "near-identical", base, y * 1.0


def split(name: str, X: Any, parties: int) -> list[Any]:
    """Blocks of the parties: the paper's 66 + 57 for a9a, copies with noise of 1e-3, else equal widths."""
    if name == "near-identical":
        rng = np.random.default_rng(1)
        return [X + 1e-3 * rng.normal(size=X.shape) for _ in range(parties)]
    d = X.shape[1]
    bounds = [0, 66, 123] if (name, parties) == ("a9a", 2) else [d * k // parties for k in range(parties + 1)]
    return [X[:, a:b] for a, b in itertools.pairwise(bounds)]


def run(problem: Any, limit: int, **options: Any) -> tuple[list[float], list[float]]:
    """Objective and certified gap of every round, until 1e-10 is certified or the scheme diverges."""
    from fastadmm.solver.solver import SolverOptions, solve

    result = solve(problem, SolverOptions(gap=1e-10, max_rounds=limit, **options))
    return [r.objective for r in result.history], [r.gap for r in result.history]


def measure(data: Path, known: list[dict[str, Any]], again: tuple[str, ...]) -> dict[str, Any]:
    """Rounds of every case and scheme; of a known case, of `subspace` and the schemes `again` alone."""
    from fastadmm.problem.problem import make_problem

    cases = []
    earlier = {(c["data"], c["parties"], c["lambda"]): c["rounds"] for c in known}
    for name, X, y in datasets(data):
        for parties in PARTIES:
            blocks = split(name, X, parties)
            for lam in LAMBDAS:
                problem = make_problem(blocks, y, lam=lam, fit_intercept=False)
                objectives, gaps = run(problem, LIMIT, directions="one")
                optimum = min(objectives)
                case: dict[str, Any] = {"data": name, "parties": parties, "lambda": lam, "rounds": {}}
                case["certified"] = [first_below(gaps, level) for level in LEVELS]
                _, gaps = run(problem, LIMIT, directions="both")
                case["both"] = [first_below(gaps, level) for level in LEVELS]
                for scheme in SCHEMES:
                    if scheme not in ("subspace", *again) and (name, parties, lam) in earlier:
                        case["rounds"][scheme] = earlier[name, parties, lam][scheme]
                        continue
                    grid = PENALTIES if scheme in ("jacobi", "gauss-seidel") else (None,)
                    best: list[int | None] = [None] * len(LEVELS)
                    for penalty in grid:
                        values = (
                            objectives
                            if scheme == "subspace"
                            else run(problem, LIMIT, scheme=scheme, penalty=penalty)[0]
                        )
                        relative = [(value - optimum) / optimum for value in values]
                        for k, level in enumerate(LEVELS):
                            found = first_below(relative, level)
                            if found is not None:
                                best[k] = min(found, best[k] or found)
                    case["rounds"][scheme] = best
                cases.append(case)
                print(name, parties, lam, case["certified"], case["rounds"], flush=True)
    return {"limit": LIMIT, "penalties": list(PENALTIES), "levels": list(LEVELS), "cases": cases}


def geometric_mean(values: list[int]) -> float:
    """Geometric mean; NaN of nothing."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def block(found: dict[str, Any]) -> str:
    """The page's tables."""
    cases = found["cases"]
    lines = [
        f"{len(cases)} cases: {len({c['data'] for c in cases})} data sets, M = 2 and 8, λ = 1e-2 to 1e-5, "
        f"logistic loss, no intercept, at most {found['limit']} rounds. `jacobi` and `gauss-seidel`: for "
        f"each case and accuracy the best of {len(found['penalties'])} penalties from "
        f"{found['penalties'][0]:g} to {found['penalties'][-1]:g}; "
        "`subspace` and `sharing`: default settings.",
        "",
        "Rounds to a relative suboptimality of 1e-3 / 1e-6 / 1e-9:",
        "",
        "| scheme | geometric mean over the cases reached | worst | not reached |",
        "|---|---|---|---|",
    ]
    rows = [
        ("`subspace`, until *certified*", [c["certified"] for c in cases]),
        ("the same with both directions in a round", [c["both"] for c in cases]),
    ]
    rows += [(f"`{s}`", [c["rounds"][s] for c in cases]) for s in SCHEMES]
    for name, counts in rows:
        columns = [[c[k] for c in counts] for k in range(len(LEVELS))]
        reached = [[v for v in column if v is not None] for column in columns]
        means = " / ".join(f"{geometric_mean(v):.1f}" if v else "–" for v in reached)
        worst = " / ".join(str(max(v)) if v else "–" for v in reached)
        missed = " / ".join(str(len(column) - len(v)) for column, v in zip(columns, reached, strict=True))
        lines.append(f"| {name} | {means} | {worst} | {missed} |")
    lines += [
        "",
        "Runs of `leukemia` with small λ, which fit perfectly, end before 1e-9 is certified: double "
        "precision proves no more.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page.

    ``--subspace`` measures this scheme alone again, ``--sharing`` both.
    """
    arguments, found = sys.argv[1:], measured("rounds")
    if "--redraw" not in arguments:
        again = ("sharing",) if "--sharing" in arguments else ()
        known = found["cases"] if {"--subspace", "--sharing"} & set(arguments) else []
        found |= measure(find_data("a9a.bz2"), known, again)
    keep("rounds", found)
    write_blocks(PAGE, {MARK: block(found)})


if __name__ == "__main__":
    main()
