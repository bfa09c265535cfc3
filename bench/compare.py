"""Compare two files of timings, as ratios to the reference kernel that was timed in the same run.

    python -P bench/compare.py old.json new.json [--limit 1.2]

Reads ``bench/performance.json`` and its like, and files that pytest-benchmark writes
(``--benchmark-json``; its reference is ``bench_reference``). A timing counts as a regression where
new / old, each divided by its own run's reference, is above the limit. Prints every timing, worst first;
exit code 1 where one regressed, 2 where the files have nothing in common.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["compare", "timings"]

#: Name of the reference among pytest-benchmark's.
REFERENCE = "bench_reference"


def timings(document: dict[str, Any]) -> dict[str, float]:
    """Every timing of a file in units of its reference kernel.

    Parameters
    ----------
    document : dict
        Of ``performance.py`` or of pytest-benchmark.

    Returns
    -------
    dict
        Ratio by name.

    Raises
    ------
    ValueError
        If there is no reference.
    """
    if "benchmarks" in document:
        return _of_pytest_benchmark(document["benchmarks"])
    found: dict[str, float] = {}
    for name, section in document["sections"].items():
        for key, seconds in _seconds(name, section["found"]):
            found[key] = seconds / section["reference"]
    return found


def _of_pytest_benchmark(benchmarks: list[dict[str, Any]]) -> dict[str, float]:
    medians = {b["fullname"]: b["stats"]["median"] for b in benchmarks}
    reference = [medians.pop(name) for name in list(medians) if name.endswith(REFERENCE)]
    if not reference:
        raise ValueError(f"no timing of the reference kernel, {REFERENCE}")
    return {name: seconds / reference[0] for name, seconds in medians.items()}


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


def compare(old: dict[str, float], new: dict[str, float]) -> list[tuple[float, str]]:
    """``new / old`` of every timing that both have, largest first, with its name."""
    return sorted(((new[name] / old[name], name) for name in old.keys() & new.keys()), reverse=True)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--limit", type=float, default=1.2, help="largest ratio that is no regression")
    options = parser.parse_args(argv)
    try:
        old, new = (timings(json.loads(path.read_text("utf-8"))) for path in (options.old, options.new))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"compare.py: error: {error!s}", file=sys.stderr)
        return 2
    ratios = compare(old, new)
    if not ratios:
        print("compare.py: error: the files have no timing in common", file=sys.stderr)
        return 2
    for ratio, name in ratios:
        print(f"{ratio:7.2f}  {'REGRESSION  ' if ratio > options.limit else ''}{name}")
    missing = sorted(old.keys() - new.keys())
    if missing:
        print(f"not in {options.new.name}: {', '.join(missing)}")
    regressions = sum(ratio > options.limit for ratio, _ in ratios)
    print(f"{len(ratios)} timings, {regressions} above {options.limit:g}")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main())
