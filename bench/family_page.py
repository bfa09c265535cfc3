"""The blocks of ``docs/performance.md``, from the measured numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from page import DOCS, seconds_text, write_blocks

PAGE = DOCS / "performance.md"

TARGET = 1e-6

#: One point of a peer: tolerance, seconds, relative suboptimality.
Curve = list[list[float]]
#: Seconds of each solver on each problem, infinite where it did not reach the target.
Times = dict[str, dict[int, float]]


def best_by_hindsight(curve: Curve | None) -> float:
    """Seconds at the fastest tolerance that reached the target."""
    return min((seconds for _, seconds, value in curve or () if value <= TARGET), default=math.inf)


def seconds_of_all(problems: Mapping[int, Any]) -> Times:
    """Seconds of every solver on every problem; of peers at the tolerance that is best by hindsight."""
    times: Times = {"fastadmm": {k: p["ours"]["fastadmm"]["seconds"] for k, p in problems.items()}}
    for name in sorted({name for p in problems.values() for name in p["peers"]}):
        times[name] = {k: best_by_hindsight(p["peers"].get(name)) for k, p in problems.items()}
    return times


def ratios(times: Times) -> dict[int, float]:
    """Our time over that of the fastest peer, by problem; where no peer arrived, zero."""
    found = {}
    for k, ours in times["fastadmm"].items():
        peer = min((t[k] for name, t in times.items() if name != "fastadmm"), default=math.inf)
        found[k] = ours / peer
    return found


def _geometric(values: list[float]) -> float:
    return math.exp(float(np.mean([math.log(v) for v in values]))) if values else math.nan


def _halves(times: Times) -> str:
    found = ratios(times)
    lines = [
        "| problems | geometric mean | median | worst | above 1 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for label, parity in (("even: fitted on", 0), ("odd: held out", 1)):
        half = [ratio for k, ratio in found.items() if k % 2 == parity and ratio > 0]
        if half:
            lines.append(
                f"| {label} | {_geometric(half):.2f} | {np.median(half):.2f} | {max(half):.2f} "
                f"| {sum(r > 1 for r in half)} of {len(half)} |"
            )
    return "\n".join(lines) + "\n"


def _worst(problems: Mapping[int, Any], times: Times, count: int = 3) -> str:
    found = ratios(times)
    lines = [
        "| problem | rows × columns, parties | non-zeros | λ | rounds | fastadmm | fastest peer | ratio |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for k in sorted(found, key=lambda k: -found[k])[:count]:
        drawn, ours = problems[k]["drawn"], problems[k]["ours"]["fastadmm"]
        peers = {name: t[k] for name, t in times.items() if name != "fastadmm"}
        best = min(peers, key=lambda name: peers[name])
        lines.append(
            f"| {k} | {drawn['rows']:,} × {drawn['columns']:,}, M = {drawn['parties']} "
            f"| {problems[k]['nonzeros']:.1e} | {drawn['lam']:.0e} | {ours['rounds']} "
            f"| {seconds_text(ours['seconds'])} | {best}, {seconds_text(peers[best])} | {found[k]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def write_page(measured: dict[str, Any]) -> None:
    """Write all blocks."""
    problems = {int(k): p for k, p in measured["problems"].items()}
    hindsight = seconds_of_all(problems)
    machine = measured["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    where = f"{machine['cores']} cores ({machine['processor']}), {versions}"
    blocks = {
        "halves": _halves(hindsight).rstrip(),
        "worst": _worst(problems, hindsight).rstrip(),
        "family-machine": f"{len(problems)} problems, measured on {where}; revision {measured['revision']}.",
    }
    write_blocks(PAGE, blocks)
