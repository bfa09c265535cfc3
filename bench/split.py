"""Where a subspace round spends its time: at the parties (the data pass) or at the coordinator.

    python -P bench/split.py

Writes ``bench/split.json`` (what was measured) and the block between
``<!-- split:begin -->`` and ``<!-- split:end -->`` in ``docs/convergence.md``.
One thread, so that the two add up to the round; medians of three runs, in processor time. Memory is
counted in N-vectors per party: the messages that the coordinator holds at the end.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "convergence.md"
MEASURED = ROOT / "bench" / "split.json"
BEGIN, END = "<!-- split:begin -->", "<!-- split:end -->"
REPEATS = 3


def cases(data: Path) -> Iterator[tuple[Any, float]]:
    """Data sets and lambda."""
    from datasets import a9a, gisette_like, imdb

    for make, lambdas in ((a9a, (1e-3, 1e-4)), (gisette_like, (1e-2, 1e-3)), (imdb, (1e-4,))):
        dataset = make(data)
        for lam in lambdas:
            yield dataset, lam


class _Clock:
    """Adds up the time that the parties' methods take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, party: Any, name: str) -> None:
        """Time every call of a method of a party."""
        original = getattr(party, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            begin = time.process_time()
            try:
                return original(*arguments, **named)
            finally:
                self.seconds += time.process_time() - begin

        setattr(party, name, timed)


def run(problem: Any) -> dict[str, float]:
    """One fit to a certified gap of 1e-6: seconds at the parties, elsewhere; rounds; messages kept."""
    from fastadmm.solver.solver import Solver, SolverOptions

    solver = Solver(problem, SolverOptions(n_threads=1))
    solver.prepare()
    passes, factorisations = _Clock(), _Clock()
    for party in solver.parties:
        passes.watch(party, "respond")
        factorisations.watch(party, "_factorise")
    begin = time.process_time()
    while solver.round().gap > 1e-6:
        pass
    total = time.process_time() - begin
    solver.close()
    kept = len(solver.coordinator.owner) / problem.n_parties
    return {
        "rounds": solver.n_rounds,
        "parties": passes.seconds,
        "factorisations": factorisations.seconds,
        "coordinator": total - passes.seconds - factorisations.seconds,
        "vectors": kept,
    }


def measure(data: Path) -> list[dict[str, Any]]:
    """All cases."""
    from fastadmm.problem.problem import make_problem

    found = []
    for dataset, lam in cases(data):
        problem = make_problem(dataset.blocks, dataset.y, lam=lam)
        runs = [run(problem) for _ in range(REPEATS + 1)][1:]
        case = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        found.append({"data": dataset.name, "parties_count": problem.n_parties, "lambda": lam, **case})
        print(found[-1], flush=True)
    return found


def block(measured: list[dict[str, Any]]) -> str:
    """The page's table: shares of the whole, so that machines can be compared."""
    lines = [
        "| data | M | λ | rounds | data passes | factorisations | coordinator "
        "| coordinator / data passes | N-vectors per party |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in measured:
        total = c["parties"] + c["factorisations"] + c["coordinator"]
        shares = " | ".join(
            f"{100 * c[k] / total:.0f} %" for k in ("parties", "factorisations", "coordinator")
        )
        lines.append(
            f"| {c['data']} | {c['parties_count']} | {c['lambda']:.0e} | {c['rounds']:.0f} | {shares} "
            f"| {c['coordinator'] / c['parties']:.2f} | {c['vectors']:.0f} |"
        )
    return "\n".join(lines)


def replace_block(text: str, new: str) -> str:
    """The page with its generated block replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def main() -> None:
    """Measure unless told to redraw, then write the page's block."""
    if "--redraw" not in sys.argv[1:]:
        sys.path.insert(0, str(ROOT / "bench"))
        from rounds import find_data

        MEASURED.write_text(json.dumps(measure(find_data()), indent=1) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    PAGE.write_text(replace_block(PAGE.read_text(encoding="utf-8"), block(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
