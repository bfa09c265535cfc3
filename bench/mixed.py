"""Dense columns of some parties and sparse ones of others, beside peers: a block of ``docs/performance.md``.

    python -P bench/mixed.py [--problems 20] [--redraw]

A problem is drawn by its number: 1e3 to 4e5 rows, 5 to 500 dense columns of correlated normal numbers, 30 to
50,000 sparse ones with 2 to 80 ones in a row, 2 to 8 parties, lambda. All are logistic with squared l2. Peers
are given the pooled columns as one sparse matrix. Writes ``bench/mixed.json`` after every problem, and goes
on where it was (remove the file to begin anew).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from family import ONE_THREAD, measure_on  # noqa: E402
from family_page import ratios, seconds_of_all  # noqa: E402

MEASURED, PAGE = ROOT / "bench" / "mixed.json", ROOT / "docs" / "performance.md"

FEWEST, MOST = 1e5, 1e7


def generate(number: int) -> tuple[Any, np.ndarray, list[Any], float]:
    """Pooled features, labels 0/1, the features of each party, and lambda."""
    import scipy.sparse as sp

    rng = np.random.default_rng([22, number])
    n, dense, sparse, per_row = 0, 0, 0, 0
    while not (3 * per_row < sparse and FEWEST < n * (dense + per_row) < MOST):
        ranges = ((3.0, 5.6), (0.7, 2.7), (1.5, 4.7), (0.3, 1.9))
        n, dense, sparse, per_row = (int(10.0 ** rng.uniform(*own)) for own in ranges)
    lam, parties = 10.0 ** rng.uniform(-5, -2), int(rng.choice([2, 2, 3, 4, 8]))
    D = rng.normal(size=(n, dense))
    D[:, 1:] += rng.uniform(0.0, 0.8) * D[:, :-1]
    D *= 3.0 ** rng.uniform(-1, 1, dense)
    places = (sparse * rng.random((n, per_row)) ** rng.uniform(1, 3)).astype(np.int32)
    ends = np.arange(n + 1, dtype=np.int32) * per_row
    S = sp.csr_matrix((np.ones(n * per_row), places.ravel(), ends), (n, sparse))
    S.sum_duplicates()
    z = D @ rng.normal(size=dense) / math.sqrt(dense) + S @ rng.normal(size=sparse) / math.sqrt(per_row)
    y = (z + rng.logistic(size=n) > 0.0) * 1.0
    count = parties // 2
    parts = [np.ascontiguousarray(own) for own in np.array_split(D, min(count, dense), axis=1)]
    for own in np.array_split(np.arange(sparse), parties - count):
        parts.append(S[:, own[0] : own[-1] + 1])
    return sp.hstack([sp.csr_matrix(D), S]).tocsr(), y, parts, lam


def render(measured: dict[str, Any]) -> str:
    """The page's block."""
    problems = {int(k): p for k, p in measured["problems"].items()}
    times, _ = seconds_of_all(problems, sure=False)
    found = {k: ratio for k, ratio in ratios(times).items() if ratio > 0}
    values = list(found.values())
    mean = math.exp(statistics.fmean(map(math.log, values)))
    machine, versions = measured["machine"], measured["machine"]["versions"]
    slowest = sorted(found.items(), key=lambda pair: -pair[1])[:3]
    about = "; ".join(f"{problems[k]['about']}: {ratio:.2f}" for k, ratio in slowest)
    return (
        f"| problems | geometric mean | median | worst | above 1 |\n| ---: | ---: | ---: | ---: | ---: |\n"
        f"| {len(problems)} | {mean:.2f} | {statistics.median(values):.2f} | {max(values):.2f} "
        f"| {sum(v > 1 for v in values)} of {len(values)} |\n\n"
        f"Measured on {machine['cores']} cores ({machine['processor']}), fastadmm {versions['fastadmm']}; "
        f"revision {measured['revision']}. The slowest beside a peer: {about}.\n"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        X, y, parts, lam = generate(options.one)
        dense = sum(part.shape[1] for part in parts if isinstance(part, np.ndarray))
        about = f"{X.shape[0]:,} × {dense} dense and {X.shape[1] - dense:,} sparse columns, M = {len(parts)}"
        print(json.dumps(measure_on(X, y, parts, lam, 1.0, {}) | {"about": about}))
        return
    from machine import describe_machine, revision
    from page import replace_block

    measured = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {"problems": {}}
    for number in range(options.problems) if not options.redraw else ():
        if str(number) in measured["problems"]:
            continue
        print(number, file=sys.stderr, flush=True)
        command = [sys.executable, "-P", __file__, "--one", str(number)]
        environment = {**os.environ, **ONE_THREAD}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        measured["problems"][str(number)] = json.loads(done.stdout)
        measured |= {"machine": describe_machine(), "revision": revision()}
        MEASURED.write_text(json.dumps(measured) + "\n", encoding="utf-8")
    replace_block("mixed", render(measured), PAGE)


if __name__ == "__main__":
    main()
