"""Compare two files of timings, as ratios to the reference kernel that was timed in the same run.

    python -P bench/compare.py OLD.json NEW.json [--limit 1.2]
    python -P bench/compare.py bench/baselines.json NEW.json --keep

Reads ``bench/performance.json`` and its like, files that pytest-benchmark writes (``--benchmark-json``), and
``bench/baselines.json``: what was kept for each model of processor. ``--keep`` writes the new timings there.

A timing counts as a regression where new / old, each in units of its own run's reference, is above the limit,
and where the middle halves of its repetitions lie apart by as much. So does a fit that takes more rounds than
the limit allows, and one more. Prints every timing, worst first; exit code 1 where one regressed, 2 where the
files have nothing in common. On a processor of which nothing was kept, timings are shown and not judged.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Timing", "compare", "timings"]


class Timing(NamedTuple):
    """A timing in units of the reference kernel: its median and quartiles; and the rounds of a fit."""

    ratio: float
    low: float
    high: float
    rounds: int | None = None


def timings(document: dict[str, Any]) -> dict[str, Timing]:
    """Every timing of a file.

    Parameters
    ----------
    document : dict
        Of ``performance.py``, of pytest-benchmark, or of a processor in the file of baselines.

    Returns
    -------
    dict
        By name.

    Raises
    ------
    ValueError
        If nothing was timed in turn with the reference kernel.
    """
    if "kept" in document:
        return {name: Timing(*values) for name, values in document["kept"].items()}
    if "benchmarks" in document:
        return _of_pytest_benchmark(document["benchmarks"])
    found: dict[str, Timing] = {}
    for name, section in document["sections"].items():
        for key, seconds in _seconds(name, section["found"]):
            ratio = seconds / section["reference"]
            found[key] = Timing(ratio, ratio, ratio)
    return found


def _of_pytest_benchmark(benchmarks: list[dict[str, Any]]) -> dict[str, Timing]:
    found = {
        b["fullname"]: Timing(*(b["extra_info"].get(field) for field in Timing._fields))
        for b in benchmarks
        if "ratio" in b.get("extra_info", {})
    }
    if not found:
        raise ValueError("no timing in turn with the reference kernel: run bench/bench_tracked.py")
    return found


def _seconds(name: str, found: Any) -> list[tuple[str, float]]:
    """Our own timings of a section, by name; those of peers are not ours to watch."""
    if name == "startup":
        return [(f"startup {key}", value) for key, value in found.items() if isinstance(value, float)]
    if name == "kernels":
        return [(f"kernel {k['kernel']}", k["seconds"]) for k in found]
    if name == "rounds":
        return [(f"round {scheme}", value) for scheme, value in found["seconds"].items()]
    if name == "roofline":
        return [(f"{p['kind']} {p['what']} {p['threads']} thread(s)", p["seconds"]) for p in found["passes"]]
    if name == "scaling":
        return [(f"run, {run['nonzeros']:.0e} non-zeros", run["seconds"]) for run in found["runs"]]
    if name == "conversion":
        return [("convert", found["seconds"])]
    return [(f"fit {c['data']} {c['lambda']:g}", c["seconds"]["fastadmm"]) for c in found]


def compare(old: dict[str, Timing], new: dict[str, Timing]) -> list[tuple[float, str]]:
    """``new / old`` of every timing that both have, largest first, with its name."""
    return sorted(
        ((new[name].ratio / old[name].ratio, name) for name in old.keys() & new.keys()), reverse=True
    )


def regressed(old: Timing, new: Timing, limit: float) -> bool:
    """Whether a timing, or the rounds of a fit, grew by more than ``limit`` and the noise of both runs."""
    slower = new.ratio > limit * old.ratio and new.low > old.high
    more = old.rounds is not None and new.rounds is not None and new.rounds > limit * old.rounds + 1
    return slower or more


def read(path: Path) -> Any:
    """Content of a file of timings; ValueError names one that is absent or damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except ValueError as error:
        raise ValueError(f"{path}: truncated, or no JSON: {error}") from None


def timings_in(path: Path, document: Any) -> dict[str, Timing]:
    """As :func:`timings`; ValueError names a file that has none."""
    try:
        return timings(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no timings in it: {type(error).__name__}: {error}") from None


def baseline(path: Path, processor: str) -> tuple[dict[str, Timing], bool]:
    """Timings of a file, and whether they may be judged on this processor."""
    document = read(path)
    kept = document.get("baselines") if isinstance(document, dict) else None
    if not kept:
        return timings_in(path, document), True
    known = processor in kept
    return timings_in(path, kept[processor if known else next(iter(kept))]), known


def keep(path: Path, document: dict[str, Any]) -> None:
    """Write a run's timings as the baseline of its processor."""
    kept = read(path)["baselines"] if path.exists() else {}
    found = timings(document)
    kept[document["machine_info"]["processor"]] = {
        "revision": document["commit_info"]["id"],
        "versions": document["machine_info"]["versions"],
        "kept": {
            name: [*(float(f"{value:.4g}") for value in found[name][:3]), found[name].rounds]
            for name in sorted(found)
        },
    }
    path.write_text(json.dumps({"baselines": kept}, indent=1) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--limit", type=float, default=1.2, help="largest ratio that is no regression")
    parser.add_argument("--keep", action="store_true", help="write NEW into OLD, the file of baselines")
    options = parser.parse_args(argv)
    try:
        document = read(options.new)
        new = timings_in(options.new, document)
        if options.keep:
            keep(options.old, document)
            return 0
        old, judged = baseline(options.old, document.get("machine_info", {}).get("processor", ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"compare.py: error: {error!s}", file=sys.stderr)
        return 2
    ratios = compare(old, new)
    if not ratios:
        print("compare.py: error: the files have no timing in common", file=sys.stderr)
        return 2
    bad = {name for _, name in ratios if regressed(old[name], new[name], options.limit)}
    for ratio, name in ratios:
        rounds = "" if new[name].rounds is None else f" ({old[name].rounds} rounds, now {new[name].rounds})"
        print(f"{ratio:7.2f}  {'REGRESSION  ' if name in bad else ''}{name}{rounds}")
    missing = sorted(old.keys() - new.keys())
    if missing:
        print(f"not in {options.new.name}: {', '.join(missing)}")
    print(f"{len(ratios)} timings, {len(bad)} above {options.limit:g}")
    if not judged:
        print(f"{options.old.name} has no baseline of this processor: ratios to another's, not judged")
    return 1 if bad and judged else 0


if __name__ == "__main__":
    sys.exit(main())
