"""How many reductions workers make: a block of ``docs/scaling.md``.

    mpiexec -n 2 python -P bench/reductions.py

Needs ``fastadmm[mpi]``, and as many workers as a power of two, which share the rows of every problem. Rank 0
counts the sums, largest numbers and gathered vectors, and the numbers that these carry, and writes the block.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from page import replace_block  # noqa: E402

PAGE, ROWS = ROOT / "docs" / "scaling.md", 20_011

#: Beside lambda 1e-3 and squared l2.
PROBLEMS: dict[str, dict[str, Any]] = {
    "logistic": {"loss": "logistic"},
    "logistic, `history` 64": {"loss": "logistic", "history": 64},
    "logistic, `l1`": {"loss": "logistic", "regularizer": "l1"},
    "logistic, `l1`, `history` 64": {"loss": "logistic", "regularizer": "l1", "history": 64},
    "logistic, box": {"loss": "logistic", "constraint": "box:-0.1,0.1"},
    "squared, `group_lasso`": {"loss": "squared", "regularizer": "group_lasso"},
    "huber, ball": {"loss": "huber", "constraint": "ball:0.5"},
    "hinge": {"loss": "hinge"},
    "quantile": {"loss": "quantile"},
    "hinge, `l1`, `history` 64": {"loss": "hinge", "regularizer": "l1", "history": 64},
    "multinomial": {"loss": "multinomial"},
    "multinomial, `l1`": {"loss": "multinomial", "regularizer": "l1"},
    "multinomial, ball": {"loss": "multinomial", "constraint": "ball:0.5"},
}

KINDS = ("dense", "sparse", "mixed")


def generate(kind: str, about: dict[str, Any]) -> tuple[Any, int | None]:
    """A problem of three parties, and its history."""
    import scipy.sparse as sp
    from fastadmm.problem.problem import make_problem

    rng = np.random.default_rng(1)
    dense = [rng.normal(size=(ROWS, 3)) for _ in range(3)]
    sparse = [sp.random(ROWS, 12, density=0.2, format="csr", random_state=k) for k in range(3)]
    blocks = {"dense": dense, "sparse": sparse, "mixed": [dense[0], sparse[0], sparse[1]]}[kind]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    given = dict(about)
    history, loss = given.pop("history", None), given["loss"]
    y = z + rng.logistic(size=ROWS)
    if loss == "multinomial":
        y = np.argmax(np.c_[z, -z, 0.5 * z * z] + rng.gumbel(size=(ROWS, 3)), axis=1) * 1.0
    elif loss in ("hinge", "logistic"):
        y = (y > 0.0) * 1.0
    return make_problem(blocks, y, lam=1e-3, **given), history


def counted(comm: Any, kind: str, about: dict[str, Any]) -> tuple[int, int, int]:
    """Rounds, reductions, and numbers that these carry, of a fit by all workers."""
    from fastadmm.cluster.rows import solve_rows
    from fastadmm.solver.options import SolverOptions

    sizes: list[int] = []
    add_up, gather = comm.sum, comm.gather

    def add(nodes: dict[Any, np.ndarray]) -> np.ndarray:
        sizes.append(len(next(iter(nodes.values()))))
        return add_up(nodes)

    def gathered(v: np.ndarray) -> list[np.ndarray]:
        sizes.append(len(v))
        return gather(v)

    problem, history = generate(kind, about)
    comm.sum, comm.gather = add, gathered
    try:
        options = SolverOptions(gap=1e-6, max_rounds=50, n_threads=1, history=history)
        found = solve_rows(problem, comm, options)
    finally:
        comm.sum, comm.gather = add_up, gather
    return len(found.history), len(sizes), sum(sizes)


def main() -> None:
    """Command line."""
    from fastadmm.cluster.mpi import MpiComm

    comm = MpiComm()
    if comm.size < 2:
        raise SystemExit("bench/reductions.py: start it under mpiexec with 2 workers or more")
    lines = ["| problem | " + " | ".join(KINDS) + " | bytes in one |", "|---|" + "---:|" * (len(KINDS) + 1)]
    for name, about in PROBLEMS.items():
        found = [counted(comm, kind, about) for kind in KINDS]
        cells = [f"{sums / rounds:.0f} × {rounds}" for rounds, sums, _ in found]
        mean = 8 * sum(own[2] for own in found) // sum(own[1] for own in found)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {mean} |")
    if comm.rank == 0:
        replace_block("reductions", "\n".join(lines) + "\n", PAGE)


if __name__ == "__main__":
    main()
