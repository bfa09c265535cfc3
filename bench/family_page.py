"""The blocks of ``docs/performance.md`` and its picture, from the measured numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from page import replace_block

__all__ = ["best_by_hindsight", "profile", "ratios", "sure_tolerance", "write_page"]

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs" / "performance.md", ROOT / "docs" / "img" / "family.svg"

TARGET = 1e-6

#: Share of problems on which a tolerance must reach the target before its user can be sure of it.
SURE = 0.95

#: One point of a peer: tolerance, seconds, relative suboptimality.
Curve = list[list[float]]
#: Seconds of each solver on each problem, infinite where it did not reach the target.
Times = dict[str, dict[int, float]]


def best_by_hindsight(curve: Curve | None) -> float:
    """Seconds at the fastest tolerance that reached the target."""
    return min((seconds for _, seconds, value in curve or () if value <= TARGET), default=math.inf)


def sure_tolerance(curves: list[Curve]) -> float | None:
    """The loosest tolerance that reached the target on nearly all problems; None where there is none.

    Parameters
    ----------
    curves : list
        Of one peer, one for each problem that it could read.
    """
    tolerances = sorted({point[0] for curve in curves for point in curve}, reverse=True)
    for tolerance in tolerances:
        reached = [_at(curve, tolerance)[1] <= TARGET for curve in curves]
        if sum(reached) >= SURE * len(reached):
            return tolerance
    return None


def _at(curve: Curve, tolerance: float) -> tuple[float, float]:
    """Seconds and value at a tolerance.

    A curve that ended because it was exact goes on as it ended, in the peer's favour; one that ended
    because it took too long never arrives.
    """
    for at, seconds, value in curve:
        if at <= tolerance * (1 + 1e-9):
            return seconds, value
    return (curve[-1][1], curve[-1][2]) if curve[-1][2] <= TARGET else (math.inf, math.inf)


def seconds_of_all(problems: Mapping[int, Any], sure: bool) -> tuple[Times, dict[str, float | None]]:
    """Seconds of every solver on every problem, and each peer's tolerance where ``sure``.

    Tolerances that make sure are chosen on the problems of even numbers.
    """
    times: Times = {"fastadmm": {k: p["ours"]["fastadmm"]["seconds"] for k, p in problems.items()}}
    chosen: dict[str, float | None] = {}
    for name in sorted({name for p in problems.values() for name in p["peers"]}):
        curves = {k: p["peers"].get(name) for k, p in problems.items()}
        if not sure:
            times[name] = {k: best_by_hindsight(curve) for k, curve in curves.items()}
            continue
        tolerance = sure_tolerance([curve for k, curve in curves.items() if curve and k % 2 == 0])
        chosen[name] = tolerance
        times[name] = dict.fromkeys(curves, math.inf)
        for k, curve in curves.items():
            if curve and tolerance is not None:
                seconds, value = _at(curve, tolerance)
                times[name][k] = seconds if value <= TARGET else math.inf
    return times, chosen


def ratios(times: Times) -> dict[int, float]:
    """Our time over that of the fastest peer, by problem; where no peer arrived, zero."""
    found = {}
    for k, ours in times["fastadmm"].items():
        peer = min((t[k] for name, t in times.items() if name != "fastadmm"), default=math.inf)
        found[k] = ours / peer
    return found


def profile(times: Times, within: float) -> dict[str, float]:
    """Share of the problems that each solver solves within a multiple of the fastest time."""
    fastest = {k: min(t[k] for t in times.values()) for k in times["fastadmm"]}
    return {name: float(np.mean([t[k] <= within * fastest[k] for k in fastest])) for name, t in times.items()}


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
            f"| {_time(ours['seconds'])} | {best}, {_time(peers[best])} | {found[k]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _draw(hindsight: Times, sure: Times) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    taus = np.geomspace(1.0, 30.0, 120)
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
    for panel, times, title in (
        (panels[0], hindsight, "tolerance chosen by hindsight"),
        (panels[1], sure, "tolerance that makes sure"),
    ):
        shares = [profile(times, tau) for tau in taus]
        for name in sorted(times, key=lambda name: name != "fastadmm"):
            line = {"lw": 2.2, "zorder": 3} if name == "fastadmm" else {"lw": 1.0}
            panel.plot(taus, [100 * share[name] for share in shares], label=name, **line)
        panel.set(xscale="log", xlabel="multiple of the fastest time", title=title, ylim=(0, 102))
        panel.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        panel.minorticks_off()
    panels[0].set_ylabel("problems solved, %")
    panels[1].legend(fontsize=7, frameon=False)
    plt.rcParams["svg.hashsalt"] = "fastadmm"
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def write_page(measured: dict[str, Any]) -> None:
    """Write all blocks and the picture."""
    problems = {int(k): p for k, p in measured["problems"].items()}
    hindsight, _ = seconds_of_all(problems, sure=False)
    sure, _ = seconds_of_all(problems, sure=True)
    machine = measured["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    replace_block("halves", _halves(hindsight), PAGE)
    replace_block("worst", _worst(problems, hindsight), PAGE)
    replace_block(
        "family-machine",
        f"{len(problems)} problems, measured on {machine['cores']} cores ({machine['processor']}), "
        f"{versions}; revision {measured['revision']}.\n",
        PAGE,
    )
    _draw(hindsight, sure)
