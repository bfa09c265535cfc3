"""Has anything become slower? Times the tree here and another revision in turn, and judges by a sign test.

    python -P bench/compare.py BASE [--only WORDS]

Both are installed into temporary directories and run ``bench/bench_tracked.py`` in processes of their own,
which take turns call by call; pytest-benchmark times them by seconds of the processor. A pair of calls counts
as slower where the one here takes more than 1.1 times the other. Whether most pairs do is decided by a sign
test at 1 % for all that is compared together. Where things lie in memory makes a process faster or slower for
good, so something is reported only if at least two pairs of processes agree; what is not decided is run again
in new processes, four at most. The same is done with peaks of memory, rounds and exchanges.

``--only`` takes a pattern of pytest's ``-k``. Exit code 1 where something is slower, one line each, 2 where
the two cannot be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from corpus import checkout, install  # noqa: E402

#: Ratio above which a pair counts as slower; risk of a false report among all measures; pairs of processes.
LIMIT, RISK, PROCESSES = 1.1, 0.01, 4

#: Ratios here / there by pair of processes, and pair of calls.
Ratios = list[list[float]]


def chance(above: int, pairs: int) -> float:
    """Probability of at least so many heads of a fair coin."""
    return sum(math.comb(pairs, k) for k in range(above, pairs + 1)) / 2**pairs


def verdict(ratios: Ratios, measures: int) -> str:
    """``slower``, ``no slower``, or ``open`` where more pairs have to decide."""
    counts = [(sum(ratio > LIMIT for ratio in process), len(process)) for process in ratios]
    above, pairs = (sum(count[k] for count in counts) for k in (0, 1))
    agreed = len(counts) > 1 and all(2 * own > n for own, n in counts)
    if agreed and chance(above, pairs) <= RISK / (measures * PROCESSES):
        return "slower"
    return "no slower" if chance(pairs - above, pairs) <= 0.05 else "open"


class Unable(Exception):
    """The two revisions cannot be compared."""


class Side:
    """A process that runs the cases with one installation, each call when it is its turn."""

    def __init__(self, site: Path, arguments: Sequence[str]) -> None:
        here, there = socket.socketpair()
        cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastadmm-bench"
        threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("FASTADMM", "PYTHON"))},
            **{"PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": str(site / "pycache"), **threads},
            **{"NUMBA_CACHE_DIR": str(cached), "FASTADMM_TURNS": str(there.fileno())},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        command = [sys.executable, "-P", "-m", "pytest", *arguments, "-q", "--import-mode=importlib"]
        command += ["-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin", "--benchmark-quiet"]
        command += ["--benchmark-only", "--benchmark-disable-gc", "-o", "python_functions=bench_*"]
        command += ["-o", "addopts=", "-o", "filterwarnings=default", "-o", "python_files=bench_*.py"]
        self._log = site.with_name(f"{site.name}.log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, pass_fds=[there.fileno()], stdout=log, stderr=log
            )
        there.close()
        self._stream = here.makefile("rw")
        here.close()

    def read(self) -> dict[str, Any]:
        """The next message."""
        line = self._stream.readline()
        if not line:
            said = [text for text in self._log.read_text().splitlines() if text.strip()]
            raise Unable("a process of timings ended: " + (said[-1] if said else "without a word"))
        return dict(json.loads(line))

    def write(self, word: str) -> None:
        """Let it run its call, or not."""
        self._stream.write(word + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._stream.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def alternate(sides: Sequence[Side]) -> tuple[str, dict[str, list[float]] | str]:
    """Let both run the calls of one case in turn: its name, and ratios by measure or why there are none."""
    told = [side.read() for side in sides]
    while all("ready" in message for message in told):
        # Always the same one first: who ran last, too, would find its data in the caches.
        for k, side in enumerate(sides):
            side.write("go")
            told[k] = side.read()
    for k, side in enumerate(sides):
        if "ready" in told[k]:
            side.write("stop")
            told[k] = side.read()
    here, there = told
    if here["why"] or there["why"]:
        return here["done"], f"here: {here['why']}" if here["why"] else f"there: {there['why']}"
    return here["done"], {
        name: [
            a / b if b else math.inf if a else 1.0 for a, b in zip(values, there["series"][name], strict=True)
        ]
        for name, values in here["series"].items()
        if name in there["series"]
    }


def one_pair(sites: Sequence[Path], arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """:func:`alternate` of every case, in new processes."""
    sides = [Side(site, arguments) for site in sites]
    try:
        cases = [side.read()["cases"] for side in sides]
        if cases[0] != cases[1]:
            raise Unable("the two have not the same cases")
        for _ in cases[0]:
            yield alternate(sides)
    finally:
        for side in sides:
            side.close()


def compare(sites: Sequence[Path], only: str) -> tuple[dict[str, Ratios], dict[str, str], dict[str, str]]:
    """Ratios and verdicts by measure, and why cases could not be compared."""
    found: dict[str, Ratios] = {}
    failed: dict[str, str] = {}
    verdicts: dict[str, str] = {}
    arguments = ["bench/bench_tracked.py", *(["-k", only] if only else [])]
    for _ in range(PROCESSES):
        for case, ratios in one_pair(sites, arguments):
            if isinstance(ratios, str):
                failed[case] = ratios
                continue
            for name, values in ratios.items():
                found.setdefault(f"{case.partition('::bench_')[2]} {name}", []).append(values)
        verdicts = {name: verdict(ratios, len(found)) for name, ratios in found.items()}
        pending = {name.rpartition(" ")[0] for name, said in verdicts.items() if said == "open"}
        arguments = [f"bench/bench_tracked.py::bench_{case}" for case in sorted(pending)]
        if not arguments:
            break
    return found, verdicts, failed


def ratio(ratios: Ratios) -> float:
    """Median of all pairs."""
    return statistics.median(value for process in ratios for value in process)


def git(*arguments: str) -> str:
    """What git says; Unable where it does not know."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unable((done.stderr.strip().splitlines() or ["git failed"])[-1])
    return done.stdout.strip()


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("base", nargs="?", default="", help="revision to compare with")
    parser.add_argument("--only", default="", help="only these cases, as pytest's -k")
    options = parser.parse_args(argv)
    try:
        there = git("rev-parse", "--verify", f"{options.base}^{{commit}}")
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            sites = [Path(folder, "here"), Path(folder, "there")]
            install(ROOT, sites[0])
            install(checkout(there, Path(folder, "source")), sites[1])
            found, verdicts, failed = compare(sites, options.only)
    except (Unable, OSError, subprocess.CalledProcessError) as error:
        print(f"compare.py: error: BASE {options.base!r}: {error}", file=sys.stderr)
        return 2
    slower = [name for name, said in verdicts.items() if said == "slower"]
    for name in sorted(found, key=lambda name: ratio(found[name]), reverse=True):
        pairs = [value for process in found[name] for value in process]
        above = sum(value > LIMIT for value in pairs)
        print(f"{ratio(found[name]):7.3f}  {above:3} of {len(pairs):3}  {verdicts[name]:9}  {name}")
    for case, why in failed.items():
        print(f"not compared: {case.partition('::bench_')[2]}: {why}")
    for name in slower:
        print(f"SLOWER: {name}: {ratio(found[name]):.2f} times that of {options.base}")
    print(f"{len(found)} measures beside {options.base}: {len(slower)} slower, {len(failed)} not compared")
    broken = [case for case, why in failed.items() if why.startswith("here")]
    return 2 if broken or not found else 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
