"""Rounds and bytes with sums only, beside those of a coordinator that sees every message: a9a.

    python -P bench/sums.py

Writes the block between ``<!-- sums:begin -->`` and ``<!-- sums:end -->`` in ``docs/between.md``. Nothing
here depends on the clock.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.solver.solver import Solver, SolverOptions, run_rounds

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import replace_block  # noqa: E402
from rounds import find_data, split  # noqa: E402

PAGE = ROOT / "docs" / "between.md"
PARTIES, LAMBDA, GAP = (2, 4, 10), 1e-4, 1e-6


class Counted:
    """Carries exchanges, and counts the bytes that come back."""

    local = True

    def __init__(self, solver: Solver) -> None:
        self.driver, self.n_bytes, self.n_exchanges = solver.driver, 0, 0

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers, counted."""
        answers = self.driver.carry(exchange)
        assert answers is not None
        arrays = [value for answer in answers for value in answer.values()]
        self.n_bytes += sum(value.nbytes if isinstance(value, np.ndarray) else 8 for value in arrays)
        self.n_exchanges += bool(arrays)
        return answers

    def notes(self) -> list[tuple[str, str, str]]:
        """Of the parties."""
        return self.driver.notes()


def problem_of(data: Path, parties: int) -> Problem:
    """The columns of a9a as in bench/rounds.py."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    return make_problem(split("a9a", X, parties), (y > 0).astype(float), lam=LAMBDA)


def measure(problem: Problem, **options: Any) -> tuple[int, int, float]:
    """Rounds, exchanges with an answer, and kilobytes from a party in a round."""
    solver = Solver(problem, SolverOptions(gap=GAP, n_threads=1, **options))
    solver.driver = counted = Counted(solver)
    rounds = len(run_rounds(solver).history)
    solver.close()
    return rounds, counted.n_exchanges, counted.n_bytes / problem.n_parties / rounds / 1000


def main() -> None:
    """Measure, and write the block."""
    data = find_data()
    lines = [
        '| parties | `directions = "one"` | `directions = "both"` | sums only | before the first round |',
        "|---|---|---|---|---|",
    ]
    for parties in PARTIES:
        problem = problem_of(data, parties)
        cells = []
        for options in ({"directions": "one"}, {"directions": "both"}, {"secrecy": "sums"}):
            rounds, exchanges, size = measure(problem, **options)
            cells.append(f"{rounds}, {size:.0f} kB")
        lines.append(f"| {parties} | {' | '.join(cells)} | {exchanges - rounds} exchanges |")
    replace_block("sums", "\n".join(lines) + "\n", PAGE)


if __name__ == "__main__":
    main()
