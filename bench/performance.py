"""Measure what ``docs/performance.md`` shows: fits beside their peers, start-up.

    make bench        or        python -P bench/performance.py [SECTION ...] [--quick] [--redraw]

Writes ``bench/performance.json``, the blocks between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` in
``docs/performance.md``. With names of sections only those are
measured anew. ``--quick`` measures small problems of its own and writes to the file that ``--out`` names, no
page. ``--redraw`` measures nothing. All in all some minutes on an otherwise idle machine.

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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

MEASURED = ROOT / "bench" / "performance.json"
PAGE = ROOT / "docs" / "performance.md"

SEED = 0


def fits(name: str, data: Path | None, quick: bool) -> Any:
    """Whole fits of one data set beside the peers."""
    from fits import cases, measure_case

    return [measure_case(*case, say=log) for case in cases(data or Path(), quick, name)]


def startup(data: Path | None, quick: bool) -> Any:
    """Seconds of commands in processes of their own, with and without compiled kernels."""
    program = "from fastadmm.cli.app import main; main()"
    first = (
        "import sys, time, pathlib\n"
        "begin = float(sys.argv[1])\n"
        "from fastadmm.runs.config import make_config\n"
        "from fastadmm.runs.folder import Display\n"
        "from fastadmm.runs.train import start_run\n"
        "class Rounds(Display):\n"
        "    def round(self, record):\n"
        "        if record.round == 1:\n"
        "            print(time.time() - begin)\n"
        "config, out = make_config({'data': sys.argv[2]}), pathlib.Path(sys.argv[3])\n"
        "start_run(config, out, force=True, display=Rounds())\n"
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
        warm = "import json; from fastadmm.cli.warmup_run import warm_up; print(json.dumps(warm_up()))"
        cold = subprocess.run(
            [sys.executable, "-P", "-c", warm],
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


SECTIONS: dict[str, Callable[[Path | None, bool], Any]] = {
    "startup": startup,
    "a9a": lambda data, quick: fits("a9a", data, quick),
    "imdb": lambda data, quick: fits("imdb", data, quick),
    "mnist": lambda data, quick: fits("mnist", data, quick),
    "gisette": lambda data, quick: fits("gisette", data, quick),
    "synthetic": lambda data, quick: fits("synthetic", data, quick),
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
        from page import write_blocks
        from performance_page import render

        write_blocks(PAGE, render(measured))


if __name__ == "__main__":
    main()
