"""What a short history costs: rounds with 8 directions per party over rounds with as many as are useful.

    nice python -P bench/few_directions.py [--into FILE] [--redraw]

Data, splits and lambdas of ``bench/rounds.py``, and MNIST's ten classes. Writes
``bench/few_directions.json`` after every case and goes on after what the file holds, then the block of
docs/convergence.md. Rounds do not depend on the clock. ``--into FILE`` measures, and draws nothing: so
another version can be measured with the same cases (with its sources in PYTHONPATH).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import replace_block  # noqa: E402
from rounds import LAMBDAS, PARTIES, datasets, find_data, split  # noqa: E402

MEASURED, PAGE = ROOT / "bench" / "few_directions.json", ROOT / "docs" / "convergence.md"

FEW, MANY, GAP, LIMIT = 8, 64, 1e-6, 300

#: Rows of MNIST's classes.
_ROWS = 10_000


def cases(data: Path) -> Iterator[tuple[dict[str, Any], list[Any], np.ndarray, dict[str, Any]]]:
    """Key, blocks, targets and arguments of each case; cheap data first."""
    sets = sorted(datasets(data), key=lambda each: getattr(each[1], "nnz", each[1].size))
    for (name, X, y), parties, lam in itertools.product(sets, PARTIES, LAMBDAS):
        yield {"data": name, "parties": parties, "lambda": lam}, split(name, X, parties), y, {}
    archive = np.load(data / "mnist.npz")
    pixels = archive["X_train"][:_ROWS].reshape(_ROWS, -1) / 255.0
    y = archive["y_train"][:_ROWS].astype(np.int64)
    for parties, lam in itertools.product((2, 4), (*LAMBDAS, 1e-6)):
        key = {"data": "mnist, ten classes", "parties": parties, "lambda": lam}
        yield key, np.array_split(pixels, parties, axis=1), y, {"loss": "multinomial"}


def measure(data: Path, path: Path) -> list[dict[str, Any]]:
    """Rounds of every case, which are written after each."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.history import Status
    from fastadmm.solver.solver import SolverOptions, solve

    found = json.loads(path.read_text("utf-8"))["cases"] if path.exists() else []
    known = [{name: case[name] for name in ("data", "parties", "lambda")} for case in found]
    for key, blocks, y, arguments in cases(data):
        if key in known:
            continue
        problem = make_problem(blocks, y, lam=key["lambda"], fit_intercept=False, **arguments)
        case: dict[str, Any] = dict(key)
        for directions in ("one",) if arguments else ("one", "both"):
            case[directions] = []
            for history in (FEW, MANY):
                options = SolverOptions(
                    gap=GAP, max_rounds=LIMIT, history=history, directions=directions, n_threads=1
                )
                result = solve(problem, options)
                rounds = len(result.history) if result.status is Status.CONVERGED else None
                case[directions].append(rounds)
        found.append(case)
        print(case, file=sys.stderr, flush=True)
        lines = ",\n".join(map(json.dumps, found))
        path.write_text(f'{{"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    return found


def block(found: list[dict[str, Any]]) -> str:
    """The page's table."""
    lines = [
        f"Rounds to a certified {GAP:g} with {FEW} directions per party over those with {MANY}, geometric "
        f"mean and worst, over M, λ = 1e-2 to 1e-5 and both kinds of directions; at most {LIMIT} rounds. Ten "
        f"classes: {_ROWS:,} rows, λ down to 1e-6.",
        "",
        "| data | M | cases | geometric mean | worst | not in time |",
        "|---|---|---:|---:|---:|---:|",
    ]
    names = list(dict.fromkeys(case["data"] for case in found))
    for name in (*names, "**together**"):
        own = [case for case in found if name in (case["data"], "**together**")]
        ratios, parties = _ratios(own), sorted({case["parties"] for case in own})
        done = [ratio for ratio in ratios if ratio is not None]
        mean = statistics.geometric_mean(done)
        told = ", ".join(map(str, parties)), len(ratios), f"{mean:.2f}", f"{max(done):.2f}"
        lines.append(f"| {name} | {' | '.join(map(str, told))} | {len(ratios) - len(done)} |")
    return "\n".join(lines) + "\n"


def _ratios(found: list[dict[str, Any]]) -> list[float | None]:
    """Of every case and kind of directions; None where few directions are not done in time."""
    pairs = [case[kind] for case in found for kind in ("one", "both") if kind in case]
    return [None if few is None else few / many for few, many in pairs if many is not None]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--into", type=Path, help="measure into this file, and draw nothing")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    given = parser.parse_args()
    if not given.redraw:
        measure(find_data(), given.into or MEASURED)
    if given.into is None:
        replace_block("few-directions", block(json.loads(MEASURED.read_text("utf-8"))["cases"]), PAGE)


if __name__ == "__main__":
    main()
