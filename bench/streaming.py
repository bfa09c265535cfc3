"""Measure training on partitions larger than memory, and write the block in ``docs/streaming.md``.

    python bench/streaming.py prepare --folder FOLDER [--megabytes 1200]
    python bench/streaming.py base|CASE ... --folder FOLDER [--sizes] [--write]

Makes synthetic partitions (dense and sparse) in a folder, then, each
in a process of its own so that its peak memory is its own:

* a run on a few rows with an empty compiler cache: what the program itself takes;
* streamed runs (the cases) under a limit of less than half of the partition, beside reading the same
  files raw, as often as a round reads them, in the same process and cache state.

Without a name all of them. With ``--sizes`` only amounts of memory are measured, and times stay, for a
machine that others use. With ``--write`` the numbers replace those in ``bench/streaming.json``
and the block ``numbers`` of ``docs/streaming.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from page import DOCS, replace_block

MEASURED = Path(__file__).with_suffix(".json")
MARK = "numbers"
ROUNDS = 8
MB = 10**6

#: Data, scheme, history, and the limit as a share of the data.
CASES: dict[str, tuple[str, str, str, float]] = {
    "sparse-subspace": ("wide", "subspace", "8", 0.33),
    "dense-subspace": ("dense", "subspace", "8", 0.33),
    "sparse-sharing": ("sparse", "sharing", "4", 0.5),
    "dense-sharing": ("dense", "sharing", "4", 0.4),
}

#: What a run says of memory.
SIZES = ("file_bytes", "limit", "streamed", "planned", "peak")

#: Columns of a party, and entries of a row.
SHAPES = {"dense": (400, 400), "sparse": (1000, 200), "wide": (20000, 300)}


def make_partition(path: Path, kind: str, megabytes: int, n_parties: int = 2) -> None:
    """A classification problem whose files together have about so many megabytes."""
    import scipy.sparse as sp
    from fastadmm.store.partition import create_partition

    rng = np.random.default_rng(0)
    d, per_row = SHAPES[kind]
    row_bytes = per_row * (8 if kind == "dense" else 12)
    n = megabytes * MB // (row_bytes * n_parties)
    x = rng.normal(size=(n_parties, d)) / np.sqrt(per_row)
    with create_partition(path, task="classification") as writer:
        parties = [writer.party(n_features=d, kind="dense" if kind == "dense" else "csr") for _ in x]
        labels = writer.labels(classes=("no", "yes"))
        for start in range(0, n, 5000):
            k = min(5000, n - start)
            z = rng.normal(size=k)
            for party, own in zip(parties, x):
                if kind == "dense":
                    block: Any = rng.normal(size=(k, d))
                else:
                    columns = np.sort(rng.integers(0, d - per_row, (k, per_row)), axis=1) + np.arange(per_row)
                    indptr = np.arange(0, k * per_row + 1, per_row)
                    block = sp.csr_array((rng.normal(size=k * per_row), columns.ravel(), indptr), (k, d))
                party.append(block)
                z += block @ own
            labels.append((z > 0).astype(float))


def in_process(name: str, *arguments: object, **environment: str) -> Any:
    """Result of a function of this file, run in a process of its own."""
    command = [sys.executable, __file__, "--child", name, json.dumps([str(a) for a in arguments])]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def read_raw(path: Path) -> float:
    """Seconds to read the parties' files of a partition once, in pieces of 2 MB."""
    buffer = bytearray(2 * 2**20)
    begin = time.perf_counter()
    for file in sorted(path.glob("party-*.h5")):
        with open(file, "rb", buffering=0) as raw:
            while raw.readinto(buffer):
                pass
    return time.perf_counter() - begin


def run_streamed(path: str, limit: str, scheme: str, history: str) -> dict[str, Any]:
    """A run under a limit: seconds of a round and of raw reading, in turn, and the peak of memory."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.folder import Display
    from fastadmm.runs.plan import peak_memory
    from fastadmm.runs.train import start_run
    from fastadmm.settings.checks import parse_bytes

    raw: list[float] = []
    marks: list[float] = []

    class Rounds(Display):
        def start(self, target: float, max_rounds: int) -> None:
            marks.append(0.0)

        def round(self, record: Any) -> None:
            marks.append(record.seconds)
            raw.append(read_raw(Path(path)))

    values: dict[str, Any] = {"data": path, "scheme": scheme, "rounds": ROUNDS, "gap": 0.0}
    if limit:
        values["memory"] = limit
    if history:
        values["history"] = int(history)
    from fastadmm.runs.train import plan_run

    config = make_config(values)
    plan = plan_run(config)
    start_run(config, Path(path).with_name(f"run-{scheme}-{limit}"), display=Rounds(), force=True)
    rounds = list(np.diff(marks[2:]))  # without set-up and first factorisation
    passes = 3  # of a round of `subspace`, where parties have Gram matrices
    return {
        "scheme": scheme,
        "file_bytes": sum(f.stat().st_size for f in Path(path).glob("party-*.h5")),
        "limit": parse_bytes(limit) if limit else None,
        "streamed": sum(p.streamed for p in plan.parties),
        "planned": plan.total,
        "peak": peak_memory(),
        "passes": passes,
        "round": float(statistics.median(rounds)),
        "raw": statistics.median(raw),
    }


def base() -> dict[str, Any]:
    """Peak of a run on a few rows."""
    from fastadmm.runs.config import make_config
    from fastadmm.runs.plan import peak_memory
    from fastadmm.runs.train import start_run

    with tempfile.TemporaryDirectory() as folder:
        make_partition(Path(folder) / "a.parts", "wide", 1)
        config = make_config({"data": f"{folder}/a.parts", "rounds": 20, "gap": 1e-3})
        start_run(config, Path(folder) / "run")
    return {"peak": peak_memory()}


CHILDREN = {"run_streamed": run_streamed, "base": base}


def measure(names: list[str], folder: Path, sizes: bool) -> dict[str, Any]:
    """Those of the given names, as plain values, beside the older numbers of the others."""
    from fastadmm.blocks.tiles import TILE_BYTES

    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    found |= {"cores": os.cpu_count(), "tile_bytes": TILE_BYTES}
    for name in names:
        if name == "base":
            with tempfile.TemporaryDirectory() as cache:
                found["base"] = in_process("base", NUMBA_CACHE_DIR=cache)
            continue
        kind, scheme, history, share = CASES[name]
        path = folder / f"{kind}.parts"
        read_raw(path)
        size = sum(f.stat().st_size for f in path.glob("party-*.h5"))
        limit = str(int(share * size) // MB * MB)
        run = in_process("run_streamed", path, limit, scheme, history)
        if sizes:
            found["runs"][name] |= {key: run[key] for key in SIZES}
        else:
            in_memory = in_process("run_streamed", path, "", scheme, history)
            found["runs"][name] = {"kind": kind, **run, "round_in_memory": in_memory["round"]}
        print(name, found["runs"][name], file=sys.stderr)
    found["runs"] = {name: found["runs"][name] for name in CASES if name in found["runs"]}
    return found


def render(found: dict[str, Any]) -> str:
    """What the page shows of the measured numbers."""
    lines = [
        f"On {found['cores']} cores, files in the page cache, in one run, with tiles of "
        f"{found['tile_bytes'] / 2**20:g} MB. The program alone takes "
        f"{found['base']['peak'] / 2**20:.0f} MB (peak of a run on a few rows, everything compiled afresh).",
        "",
        "| blocks | scheme | files | limit | planned | peak | round in memory | round streamed | raw reads "
        "| streamed / raw |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in found["runs"].values():
        raw, once = run["passes"] * run["raw"], run["raw"]
        blocks = run["kind"].replace("wide", "sparse")
        sizes = [run[key] / MB for key in ("file_bytes", "limit", "planned", "peak")]
        lines.append(
            f"| {blocks} | `{run['scheme']}` | "
            + " | ".join(f"{size:.0f} MB" for size in sizes)
            + f" | {run['round_in_memory']:.2f} s | {run['round']:.2f} s | {run['passes']} × {once:.2f} s "
            f"| {run['round'] / raw:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="prepare, base, " + ", ".join(CASES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=1200)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child[0]](*json.loads(options.child[1]))))
        return
    if options.folder is None:
        parser.error("--folder: needed")
    if options.names == ["prepare"]:
        for kind in SHAPES:
            make_partition(options.folder / f"{kind}.parts", kind, options.megabytes)
        return
    found = measure(options.names or ["base", *CASES], options.folder, options.sizes)
    print(json.dumps(found, indent=2))
    if options.write:
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        replace_block(MARK, render(found), DOCS / "streaming.md")


if __name__ == "__main__":
    main()
