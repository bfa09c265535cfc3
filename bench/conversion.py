"""Measure what reading text costs, beside scikit-learn and PyArrow, for ``docs/converting.md``.

    python bench/conversion.py [--megabytes 60] [--write]

Ways take turns, each in a process of its own, which warms up on a small file. What counts is the processor's
time of all threads, in megabytes of text per second of it, so that other programs on the machine matter less:

* *convert*: a LIBSVM file to a partition of three parties, from text to checked files on the disk;
* *load_svmlight_file*: the same text to a matrix in memory, by scikit-learn;
* *parse*: our compiled reader alone, a block at a time;
* *convert, CSV*: a table of numbers to a partition;
* *pyarrow*: the same table to columns in memory.

With ``--write`` the numbers replace those in ``bench/conversion.json`` and the block on the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from page import replace_block

MEASURED = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "converting.md"
MARK = "conversion"
WAYS = ("convert", "load_svmlight_file", "parse", "convert, CSV", "pyarrow")


def write_text(folder: Path, megabytes: float) -> None:
    """A LIBSVM file of 40 entries a row, and a CSV table of 30 numbers."""
    rng = np.random.default_rng(0)
    for name, header in (("a.svm", ""), ("a.csv", ",".join([*(f"v{j}" for j in range(30)), "y"]) + "\n")):
        with open(folder / name, "w", encoding="ascii") as file:
            file.write(header)
            while file.tell() < megabytes * 1e6:
                lines = []
                for label in rng.integers(0, 2, 500):
                    if header:
                        lines.append(",".join(f"{v:.6g}" for v in rng.standard_normal(30)) + f",{label}")
                        continue
                    columns = np.unique(rng.integers(1, 2001, 40)).tolist()
                    entries = zip(columns, rng.standard_normal(len(columns)).tolist())
                    lines.append(f"{2 * label - 1} " + " ".join(f"{j}:{v:.6g}" for j, v in entries))
                file.write("\n".join(lines) + "\n")


def work_of(way: str, folder: Path) -> tuple[Path, Callable[[], Any]]:
    """What is read, and a way of reading it."""
    from fastadmm.data_tools.convert import convert
    from fastadmm.data_tools.libsvm import LibsvmSource
    from fastadmm.data_tools.opening import SourceFile

    svm, csv = folder / "a.svm", folder / "a.csv"
    if way == "convert":
        return svm, lambda: convert(svm, folder / "svm.parts", parties=3, force=True)
    if way == "convert, CSV":
        return csv, lambda: convert(csv, folder / "csv.parts", parties=3, label="y", force=True)
    if way == "parse":
        return svm, lambda: sum(len(b.labels) for b in LibsvmSource([SourceFile(svm)]).blocks())
    if way == "pyarrow":
        import pyarrow.csv

        return csv, lambda: pyarrow.csv.read_csv(csv)
    from sklearn.datasets import load_svmlight_file

    return svm, lambda: load_svmlight_file(str(svm))


def alone(way: str, small: Path, large: Path) -> float:
    """Megabytes of text per second of the processor, in this process."""
    work_of(way, small)[1]()
    text, work = work_of(way, large)
    begin = time.process_time()
    work()
    return text.stat().st_size / 1e6 / (time.process_time() - begin)


def measured(megabytes: float, repeats: int) -> dict[str, Any]:
    """Medians of every way, and of its ratios to its peer in the same turn."""
    from machine import describe_machine, revision

    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        for folder, size in ((small, 5.0), (large, megabytes)):
            folder.mkdir()
            write_text(folder, size)
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(repeats):
            for way in WAYS:
                command = [sys.executable, __file__, "--alone", way, str(small), str(large)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found[way].append(float(done.stdout))
    peers = {"convert": "load_svmlight_file", "parse": "load_svmlight_file", "convert, CSV": "pyarrow"}
    return {
        "machine": describe_machine(),
        "revision": revision(),
        "megabytes": megabytes,
        "rates": {way: statistics.median(rates) for way, rates in found.items()},
        "ratios": {
            way: statistics.median(a / b for a, b in zip(found[way], found[peer]))
            for way, peer in peers.items()
        },
    }


def render(document: dict[str, Any]) -> str:
    """The block of the page."""
    rates, ratios = document["rates"], document["ratios"]
    told = {
        "convert": "`convert` of LIBSVM text, to files on the disk",
        "parse": "our reader of LIBSVM text alone",
        "load_svmlight_file": "scikit-learn's `load_svmlight_file`, to memory",
        "convert, CSV": "`convert` of a CSV table, to files on the disk",
        "pyarrow": "PyArrow's `read_csv`, to memory",
    }
    lines = [
        f"{document['megabytes']:.0f} MB of text each; what counts is the processor's time of all threads.\n",
        "| | MB of text per second of a core | times the peer |",
        "|---|---:|---:|",
    ]
    for way, words in told.items():
        ratio = f"{ratios[way]:.2f}" if way in ratios else ""
        lines.append(f"| {words} | {rates[way]:.0f} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--alone", nargs=3, metavar=("WAY", "SMALL", "LARGE"))
    given = parser.parse_args()
    if given.alone:
        print(alone(given.alone[0], *map(Path, given.alone[1:])))
        return
    document = measured(given.megabytes, given.repeats)
    print(render(document))
    if given.write:
        MEASURED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        replace_block(MARK, render(document), PAGE)


if __name__ == "__main__":
    main()
