"""Measure what ``docs/performance.md`` shows: fits beside their peers, rounds, bandwidth, scaling, start-up.

    make bench        or        python -P bench/performance.py [SECTION ...] [--quick] [--redraw]

Writes ``bench/performance.json``, the blocks between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` in
``docs/performance.md`` and the picture ``docs/img/performance.svg``. With names of sections only those are
measured anew. ``--quick`` measures small problems of its own and writes to the file that ``--out`` names, no
page. ``--redraw`` measures nothing. All in all about ten minutes on an otherwise idle machine.

The public data sets are those of ``FASTADMM_DATA``, or of ``../shared/data`` beside the repository.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "performance.json"
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "img" / "performance.svg"

SEED = 0


def median_seconds(call: Callable[[], object], repeats: int = 7) -> float:
    """Median of a few calls after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


# --- sections ----------------------------------------------------------------------------------------


def fits(name: str, data: Path | None, quick: bool) -> Any:
    """Whole fits of one data set beside the peers."""
    from fits import cases, measure_case

    return [measure_case(*case, say=log) for case in cases(data or Path(), quick, name)]


def kernels(data: Path | None, quick: bool) -> Any:
    """Each kernel on one thread beside what a user would call instead."""
    import kernel_ratios

    found = []
    for name, peer, items, ours, theirs in kernel_ratios.cases():
        a, b = kernel_ratios.ratio(ours, theirs, 3 if quick else 9)
        found.append({"kernel": name, "peer": peer, "items": items, "seconds": a, "peer_seconds": b})
    return found


def rounds(data: Path | None, quick: bool) -> Any:
    """Seconds of a round of each scheme."""
    from fastadmm import make_problem
    from fastadmm.solver.solver import Solver, SolverOptions

    import datasets

    dataset = datasets.synthetic(5000) if quick else datasets.a9a(data)  # type: ignore[arg-type]
    problem = make_problem(dataset.blocks, dataset.y, lam=1e-4, fit_intercept=False)
    schemes = {}
    for scheme in ("subspace", "sharing", "jacobi"):
        per_round = []
        for _ in range(2 if quick else 5):
            solver = Solver(problem, SolverOptions(scheme=scheme, gap=0.0))
            solver.prepare()
            marks = [solver.seconds]
            for _ in range(12):
                solver.round()
                marks.append(solver.seconds)
            solver.close()
            per_round.append((marks[-1] - marks[0]) / 12)
        schemes[scheme] = statistics.median(per_round)
    return {"data": dataset.name, "seconds": schemes}


def stream_rate(n_threads: int, megabytes: int = 512) -> float:
    """Bytes per second that so many threads read from memory together, best of five."""
    from concurrent.futures import ThreadPoolExecutor

    from numba import njit

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def read(a):  # type: ignore[no-untyped-def]
        # Whole cache lines as integers: sums of these are vectorised without changing the result.
        total = np.int64(0)
        for k in range(len(a)):
            total += a[k]
        return total

    parts = [np.ones(megabytes * 2**20 // 8 // n_threads, dtype=np.int64) for _ in range(n_threads)]
    read(parts[0][:8])
    with ThreadPoolExecutor(n_threads) as pool:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(read, parts))
            times.append(time.perf_counter() - begin)
    return sum(p.nbytes for p in parts) / min(times)


def roofline(data: Path | None, quick: bool) -> Any:
    """Bytes that a data pass moves, and how fast, beside a plain read of memory in the same run."""
    import scipy.sparse as sp
    from fastadmm.blocks.block import CSRBlock, DenseBlock
    from fastadmm.engine.engine import Engine

    rng = np.random.default_rng(SEED)
    n = 20_000 if quick else 1_000_000
    per_row, d = 20, 200
    columns = np.sort(rng.integers(0, d // per_row, (n, per_row)) + d // per_row * np.arange(per_row))
    matrix = sp.csr_matrix(
        (
            rng.normal(size=n * per_row),
            columns.ravel().astype(np.int32),
            np.arange(0, n * per_row + 1, per_row),
        ),
        shape=(n, d),
    )
    dense = rng.normal(size=(n // 5, d))
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {"cores": cores, "passes": []}
    for threads in (1, cores):
        rate = stream_rate(threads, 16 if quick else 512)
        engine = Engine(threads)
        for kind, block, size in (
            ("sparse", CSRBlock(matrix), matrix.nnz * 12 + n * 8),
            ("dense", DenseBlock(dense), dense.nbytes),
        ):
            x, v = rng.normal(size=d), rng.normal(size=block.shape[0])
            vector = 8 * block.shape[0]
            for what, call in (
                ("D x", lambda block=block, x=x, engine=engine: block.product(x, engine)),
                ("Dᵀ v", lambda block=block, v=v, engine=engine: block.transposed_product(v, engine)),
            ):
                with engine.limited():
                    seconds = median_seconds(call)
                found["passes"].append(
                    {
                        "kind": kind,
                        "what": what,
                        "threads": threads,
                        "bytes": size + vector,
                        "seconds": seconds,
                        "stream": rate,
                        "items": matrix.nnz if kind == "sparse" else dense.size,
                    }
                )
        engine.close()
    return found


def scaling(data: Path | None, quick: bool) -> Any:
    """Seconds of a run of six rounds against the number of non-zeros."""
    import scipy.sparse as sp
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.runs.environment import available_memory

    rng = np.random.default_rng(SEED)
    found: dict[str, Any] = {"rounds": 6, "runs": [], "left_out": []}
    for nonzeros in (10**5, 3 * 10**5) if quick else (10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8, 3 * 10**8):
        per_row, parties, d = 10, 2, 100
        n = nonzeros // (per_row * parties)
        # Blocks, their copy by the generator, directions and vectors.
        if (available_memory() or 0) < 30 * nonzeros + 8 * n * 60:
            found["left_out"].append(nonzeros)
            continue
        log(f"{nonzeros:.0e} non-zeros")
        blocks, z = [], np.zeros(n)
        for _ in range(parties):
            indices = rng.integers(0, d // per_row, (n, per_row), dtype=np.int32)
            indices += (d // per_row * np.arange(per_row)).astype(np.int32)
            values = rng.standard_normal((n, per_row))
            indptr = np.arange(0, n * per_row + 1, per_row, dtype=np.int64)
            blocks.append(sp.csr_matrix((values.ravel(), indices.ravel(), indptr), shape=(n, d)))
            z += blocks[-1] @ rng.normal(size=d)
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))) * 1.0
        del z, values, indices

        def run(blocks: list[Any] = blocks, y: np.ndarray = y) -> float:
            begin = time.perf_counter()
            problem = make_problem(blocks, y, lam=1e-4, fit_intercept=False)
            solve(problem, SolverOptions(gap=0.0, max_rounds=6))
            return time.perf_counter() - begin

        # The first run of a size also pays for memory that this process has never touched.
        run()
        repeats = 5 if nonzeros <= 10**7 else 3 if nonzeros <= 10**8 else 1
        found["runs"].append(
            {"nonzeros": nonzeros, "seconds": statistics.median(run() for _ in range(repeats))}
        )
        del blocks, y, run
    return found


def startup(data: Path | None, quick: bool) -> Any:
    """Seconds of commands in processes of their own, with and without compiled kernels."""
    program = "from fastadmm.cli.app import main; main()"
    first = (
        "import sys, time, pathlib\n"
        "begin = float(sys.argv[1])\n"
        "from fastadmm.runs.config import make_config\n"
        "from fastadmm.runs.display import Silent\n"
        "from fastadmm.runs.train import start_run\n"
        "class Display(Silent):\n"
        "    def round(self, record):\n"
        "        if record.round == 1:\n"
        "            print(time.time() - begin)\n"
        "config, out = make_config({'data': sys.argv[2]}), pathlib.Path(sys.argv[3])\n"
        "start_run(config, out, force=True, display=Display())\n"
    )

    def seconds(*arguments: str, text: str = program, **environment: str) -> float:
        begin = time.perf_counter()
        command = [sys.executable, "-P", "-c", text, *arguments]
        subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = {
            "python": statistics.median(seconds(text="pass") for _ in range(7)),
            "help": statistics.median(seconds("--help") for _ in range(7)),
            "import": statistics.median(seconds(text="import fastadmm") for _ in range(7)),
            "demo_cold": seconds("demo", "-o", f"{folder}/cold", NUMBA_CACHE_DIR=str(place / "a")),
            "demo_warm": seconds("demo", "-o", f"{folder}/warm", NUMBA_CACHE_DIR=str(place / "a")),
        }
        cold = subprocess.run(
            [sys.executable, "-P", "-c", program, "warmup", "--json"],
            env={**os.environ, "NUMBA_CACHE_DIR": str(place / "b")},
            capture_output=True,
            check=True,
        )
        compiled = json.loads(cold.stdout)["compiled"]
        found["compile_default"] = sum(kernel["seconds"] for kernel in compiled)
        found["compiled"] = len(compiled)
        waits = []
        for _ in range(5):
            command = [sys.executable, "-P", "-c", first, repr(time.time()), f"{folder}/warm/train.parts"]
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(place / "b")}
            done = subprocess.run(
                [*command, f"{folder}/run"], env=environment, capture_output=True, text=True, check=True
            )
            waits.append(float(done.stdout))
        found["first_round_warm"] = statistics.median(waits)
    return found


def conversion(data: Path | None, quick: bool) -> Any:
    """Reading LIBSVM text: ``convert`` beside scikit-learn's reader; and the peak memory of a run on it."""

    from fastadmm.data_tools.convert import convert
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    import datasets

    with tempfile.TemporaryDirectory() as folder:
        dataset = datasets.synthetic(2000 if quick else 100_000)
        source = Path(folder) / "data.libsvm"
        dump_svmlight_file(dataset.X, dataset.y, str(source), zero_based=False)
        repeats = 1 if quick else 3
        ours = median_seconds(
            lambda: convert(source, Path(folder) / "data.parts", columns="50,50,50,50", force=True), repeats
        )
        theirs = median_seconds(
            lambda: load_svmlight_file(str(source), n_features=dataset.X.shape[1]), repeats
        )
        train = (
            "import sys, pathlib\n"
            "from fastadmm.runs.environment import peak_memory\n"
            "from fastadmm.runs.config import make_config\n"
            "from fastadmm.runs.train import start_run\n"
            "config = make_config({'data': sys.argv[1], 'rounds': 8, 'gap': 0})\n"
            "start_run(config, pathlib.Path(sys.argv[2]))\n"
            "print(peak_memory())\n"
        )
        command = [sys.executable, "-P", "-c", train, f"{folder}/data.parts", f"{folder}/run"]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {
            "bytes": source.stat().st_size,
            "nonzeros": int(dataset.X.nnz),
            "seconds": ours,
            "peer_seconds": theirs,
            "peak": int(peak),
            "data_bytes": int(dataset.X.nnz) * 12,
        }


SECTIONS: dict[str, Callable[[Path | None, bool], Any]] = {
    "startup": startup,
    "kernels": kernels,
    "roofline": roofline,
    "rounds": rounds,
    "conversion": conversion,
    "a9a": lambda data, quick: fits("a9a", data, quick),
    "imdb": lambda data, quick: fits("imdb", data, quick),
    "mnist": lambda data, quick: fits("mnist", data, quick),
    "gisette": lambda data, quick: fits("gisette", data, quick),
    "synthetic": lambda data, quick: fits("synthetic", data, quick),
    "scaling": scaling,
}
FITS = ("a9a", "gisette", "imdb", "mnist", "synthetic")


def log(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


def measure(names: list[str], quick: bool, data: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each section with the reference kernel's seconds before and after it, and what it ran on."""
    from machine import describe_machine, revision
    from reference import reference_seconds

    for name in names:
        log(f"--- {name}")
        begin = time.perf_counter()
        before = reference_seconds()
        found = SECTIONS[name](data, quick)
        reference = 0.5 * (before + reference_seconds())
        log(f"    {time.perf_counter() - begin:.0f} s")
        yield (
            name,
            {
                "revision": revision(),
                "reference": reference,
                "seed": SEED,
                "machine": describe_machine(),
                "found": found,
            },
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--redraw", action="store_true")
    parser.add_argument("--out", type=Path, default=MEASURED)
    options = parser.parse_args()
    if set(options.sections) - set(SECTIONS):
        parser.error(f"a section is one of {', '.join(SECTIONS)}")
    if options.quick and options.out == MEASURED:
        parser.error("--quick: name another file with --out")
    measured = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {"sections": {}}
    if not options.redraw:
        data = None
        if not options.quick:
            from datasets import find_data

            data = find_data("a9a.bz2")
        # In quick mode all data sets are one and the same.
        everything = [s for s in SECTIONS if not options.quick or s not in FITS[:-1]]
        for name, section in measure(options.sections or everything, options.quick, data):
            measured["sections"][name] = section
            measured["sections"] = {s: measured["sections"][s] for s in SECTIONS if s in measured["sections"]}
            options.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if options.out == MEASURED:
        from performance_page import draw, render, replace_blocks

        PAGE.write_text(replace_blocks(PAGE.read_text("utf-8"), render(measured)), encoding="utf-8")
        draw(measured, PICTURE)


if __name__ == "__main__":
    main()
