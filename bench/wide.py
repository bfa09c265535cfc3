"""Rounds and passes over wide sparse data, where parties cannot factorise.

    python -P bench/wide.py

Writes ``bench/wide.json`` (what was measured) and the block between ``<!-- wide:begin -->`` and
``<!-- wide:end -->`` in ``docs/convergence.md`` (made from that file alone); ``--redraw`` only the latter.
Nothing here depends on the clock.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import datasets  # noqa: E402
from rounds import PAGE, find_data, replace_block  # noqa: E402

MEASURED = ROOT / "bench" / "wide.json"
BEGIN, END = "<!-- wide:begin -->", "<!-- wide:end -->"
KINDS = ("one", "auto", "both")
LAMBDAS = (1e-3, 1e-4, 1e-5)
TARGET, LIMIT = 1e-6, 200
ROWS, COLUMNS = 5_000, 20_000


def made(kind: str, density: float) -> tuple[Any, np.ndarray]:
    """5,000 x 20,000 entries and labels: words (frequencies of a power law), or equal columns."""
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    entries = rng.poisson(density * COLUMNS, ROWS) + 1
    power = 0.8 if kind == "words" else 0.0
    shares = np.cumsum(1.0 / np.arange(1, COLUMNS + 1) ** power)
    columns = np.searchsorted(shares / shares[-1], rng.random(entries.sum())).clip(0, COLUMNS - 1)
    values = np.ones(entries.sum()) if kind == "words" else rng.normal(size=entries.sum())
    X = sp.csr_matrix((values, (np.repeat(np.arange(ROWS), entries), columns)), (ROWS, COLUMNS))
    if kind == "words":
        X.data = np.log1p(X.data)
    X = X.tocsc()[:, rng.permutation(COLUMNS)]
    z = X @ (rng.normal(size=COLUMNS) * (rng.random(COLUMNS) < 0.1))
    return X, (z / z.std() + 0.5 * rng.logistic(size=ROWS) > 0) * 1.0


def sets(data: Path) -> Iterator[tuple[str, Any, np.ndarray, tuple[int, ...]]]:
    """Name, features, labels and numbers of parties."""
    import scipy.sparse as sp

    for kind, density in (("words", 0.003), ("equal columns", 0.001), ("equal columns", 0.01)):
        yield f"{kind}, {density:.1%}", *made(kind, density), (2, 4)
    text = datasets.imdb(data)
    yield text.name, text.X, text.y, (4,)
    archive = np.load(data / "imdb_counts_train.npz")
    counts = (archive["data"].astype(float), archive["indices"], archive["indptr"])
    yield "IMDB counts", sp.csr_matrix(counts, shape=text.X.shape), text.y, (4,)


def count_passes(problem: Any) -> list[int]:
    """Let every sparse block count the passes over it."""
    passes = [0] * problem.n_parties

    def counted(of: Any, m: int) -> Any:
        def work(*arguments: Any) -> Any:
            passes[m] += 1
            return of(*arguments)

        return work

    for m, block in enumerate(problem.blocks):
        for name in ("product_into", "transposed_products", "column_squares"):
            setattr(block, name, counted(getattr(block, name), m))
    return passes


def measure(data: Path) -> Iterator[dict[str, Any]]:
    """Rounds and a party's passes of each case."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import SolverOptions, solve

    for name, X, y, numbers in sets(data):
        for parties in numbers:
            bounds = [X.shape[1] * k // parties for k in range(parties + 1)]
            for lam in LAMBDAS:
                case: dict[str, Any] = {"data": name, "parties": parties, "lambda": lam}
                for kind in KINDS:
                    problem = make_problem(datasets.cut(X, bounds), y, lam=lam)
                    passes = count_passes(problem)
                    options = SolverOptions(gap=TARGET, max_rounds=LIMIT, directions=kind)
                    result = solve(problem, options)
                    case[kind] = [len(result.history) if result.gap <= TARGET else None, max(passes)]
                yield case


def _mean(cases: list[dict[str, Any]], kind: str, which: int) -> float:
    return math.exp(sum(math.log(c[kind][which]) for c in cases) / len(cases))


def block(measured: dict[str, Any]) -> str:
    """The page's table."""
    lines = [
        f"Rounds until {measured['target']:g} is certified, geometric means over λ = 1e-3 to 1e-5, and in "
        "brackets "
        "the passes over a party's data (5,000 × 20,000 if made; logistic loss with an intercept):",
        "",
        '| data | M | `directions = "one"` | `"auto"`, in one process | `"both"` |',
        "|---|---:|---:|---:|---:|",
    ]
    for data, parties in dict.fromkeys((c["data"], c["parties"]) for c in measured["cases"]):
        own = [c for c in measured["cases"] if (c["data"], c["parties"]) == (data, parties)]
        cells = [f"{_mean(own, kind, 0):.0f} ({_mean(own, kind, 1):.0f})" for kind in KINDS]
        lines.append(f"| {data} | {parties} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure unless told to redraw, then write the page."""
    if "--redraw" not in sys.argv[1:]:
        cases = []
        for case in measure(find_data()):
            cases.append(case)
            print(case, flush=True)
        MEASURED.write_text(json.dumps({"target": TARGET, "cases": cases}, indent=1) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    PAGE.write_text(
        replace_block(PAGE.read_text(encoding="utf-8"), block(measured), BEGIN, END), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
