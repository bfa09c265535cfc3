"""What compressed files cost in a streamed round, and the table in ``docs/streaming.md``.

    python bench/compression.py prepare FOLDER      partitions from the public data, FASTADMM_DATA
    python bench/compression.py measure FOLDER [--write]

Every data set is stored with every compression. A streamed round of ``subspace`` is timed on all of them in
turn, with the files in the page cache; so the page can say for which speed of a disk the bytes that are
saved outweigh the time that decompressing takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import datasets
from page import replace_block

MEASURED = Path(__file__).with_suffix(".json")
MARK = "compression"
COMPRESSIONS = ("none", "gzip", "zstd", "blosc2")
ROUNDS = 5
#: Passes of a plain round of ``subspace``.
PASSES = 2

NAMES = {
    "a9a": "a9a (sparse, indicators)",
    "imdb": "IMDB (sparse, counts)",
    "mnist": "MNIST (dense float32, pixels)",
    "reals": "random reals (dense float32)",
}


def cases(data: Path) -> Iterator[tuple[str, list[Any], np.ndarray, str]]:
    """Key, blocks, labels and type of values of each data set."""
    import scipy.sparse as sp

    a9a = datasets.a9a(data)
    yield "a9a", a9a.blocks, a9a.y, "float64"
    archive = np.load(data / "imdb_counts_train.npz")
    shape = tuple(int(n) for n in archive["shape"])
    counts = sp.csr_matrix((archive["data"], archive["indices"], archive["indptr"]), shape=shape)
    half = shape[1] // 2
    yield "imdb", datasets.cut(counts, [0, half, shape[1]]), archive["y"] > 0, "float64"
    mnist = np.load(data / "mnist.npz")
    pixels = mnist["X_train"][:20000].astype(np.float32) / 255.0
    yield "mnist", [pixels[:, :392], pixels[:, 392:]], mnist["y_train"][:20000] > 4, "float32"
    rng = np.random.default_rng(0)
    reals = rng.normal(size=(20000, 784)).astype(np.float32)
    labels = reals[:, 0] + rng.normal(size=20000) > 0
    yield "reals", [reals[:, :392], reals[:, 392:]], labels, "float32"


def prepare(data: Path, folder: Path) -> None:
    """Write every data set with every compression."""
    from fastadmm.store import create_partition

    for key, blocks, y, dtype in cases(data):
        for compression in COMPRESSIONS:
            target = folder / f"{key}-{compression}.parts"
            with create_partition(target, task="classification") as writer:
                for block in blocks:
                    kind = "dense" if isinstance(block, np.ndarray) else "csr"
                    party = writer.party(
                        n_features=block.shape[1], kind=kind, dtype=dtype, compression=compression
                    )
                    party.append(block)
                writer.labels(classes=("no", "yes")).append(y.astype(float))


def measure(folder: Path) -> list[dict[str, Any]]:
    """Bytes, and median seconds of a streamed round, for every data set and compression."""
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.solver import Solver, SolverOptions
    from fastadmm.store import open_partition
    from fastadmm.store.streamed import load_block

    found = []
    for key, name in NAMES.items():
        solvers, sizes = {}, {}
        for compression in COMPRESSIONS:
            path = folder / f"{key}-{compression}.parts"
            partition = open_partition(path)
            blocks = [load_block(party, streamed=True) for party in partition.parties]
            problem = make_problem(blocks, partition.labels.y, lam=1e-3)
            solvers[compression] = Solver(problem, SolverOptions(gap=0.0, history=8))
            sizes[compression] = sum(file.stat().st_size for file in path.glob("party-*.h5"))
        seconds: dict[str, list[float]] = {c: [] for c in COMPRESSIONS}
        records: dict[str, list[float]] = {c: [] for c in COMPRESSIONS}
        for _ in range(ROUNDS):
            for compression, solver in solvers.items():
                factorised = solver.coordinator.n_factorisations
                begin = time.perf_counter()
                records[compression].append(solver.round().objective)
                if solver.coordinator.n_factorisations == factorised:  # a plain round
                    seconds[compression].append(time.perf_counter() - begin)
        assert all(r == records["none"] for r in records.values()), "models differ"
        for solver in solvers.values():
            solver.close()
        found += [
            {"name": name, "compression": c, "bytes": sizes[c], "round": statistics.median(seconds[c])}
            for c in COMPRESSIONS
        ]
    return found


def render(found: list[dict[str, Any]]) -> str:
    """What the page shows."""
    plain = {line["name"]: line for line in found if line["compression"] == "none"}
    lines = [f"| data | {' | '.join(COMPRESSIONS[1:])} |", "|---|" + "---:|" * (len(COMPRESSIONS) - 1)]
    for name, whole in plain.items():
        cells = []
        for line in found:
            if line["name"] != name or line is whole:
                continue
            saved, longer = PASSES * (whole["bytes"] - line["bytes"]), line["round"] - whole["round"]
            pays = "any disk" if longer <= 0 else f"{saved / longer / 1e6:.0f} MB/s"
            cells.append(f"{line['bytes'] / whole['bytes']:.0%}, {pays if saved > 0 else 'never'}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(Path(os.environ["FASTADMM_DATA"]), options.folder)
        return
    found = measure(options.folder)
    print(render(found))
    if options.write:
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        replace_block(MARK, render(found))


if __name__ == "__main__":
    main()
