"""The generated parts of ``docs/performance.md`` and its picture, from the measured numbers alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from fits import best_peer
from readme import FAINT, INK, _exponent, _table

__all__ = ["TARGET", "draw", "render", "replace_blocks"]

FITS = ("a9a", "gisette", "imdb", "mnist", "synthetic")

#: In place of a section that was not measured.
ABSENT = "Not measured."

#: Our time over the best peer's that is aimed at.
TARGET = 0.5


def replace_blocks(text: str, blocks: dict[str, str]) -> str:
    """The page with each named block between its markers replaced."""
    for name, block in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        head, rest = text.split(begin, 1)
        _, tail = rest.split(end, 1)
        text = f"{head}{begin}\n{block}\n{end}{tail}"
    return text


def render(measured: dict[str, Any]) -> dict[str, str]:
    """Markdown of every block; of sections that were not measured it says so."""
    sections = measured["sections"]
    cases = [case for name in FITS if name in sections for case in sections[name]["found"]]
    missing = [name for name in FITS if name not in sections]
    blocks = {"fits": _fits(cases) if cases else ABSENT}
    if cases and missing:
        blocks["fits"] += f"\n\nNot measured: {', '.join(missing)}."
    found = sections["startup"]["found"] if "startup" in sections else None
    blocks["startup"] = _startup(found) if found else ABSENT
    blocks["machine"] = _machine(sections)
    return blocks


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _fits(cases: list[dict[str, Any]]) -> str:
    rows = []
    for case in cases:
        ours = case["seconds"]["fastadmm"]
        name, theirs = best_peer(case)
        ratio = f"{ours / theirs:.2f}"
        rows.append(
            [
                f"{case['data']}, M = {case['parties']}",
                _exponent(case["lambda"]),
                _time(ours),
                _parties(case) if "apart" in case else "not measured",
                _time(case["ready"]) if "ready" in case else "in the clock",
                f"{name}, {_time(theirs)}",
                ratio if ours <= TARGET * theirs else f"**{ratio}**",
            ]
        )
    header = [
        "data",
        "λ",
        "pooled",
        "as parties",
        "blocks",
        "fastest peer",
        "pooled / peer",
    ]
    met = sum(case["seconds"]["fastadmm"] <= TARGET * best_peer(case)[1] for case in cases)
    slower = sum(case["seconds"]["fastadmm"] > best_peer(case)[1] for case in cases)
    apart = [case["apart"]["seconds"] > best_peer(case)[1] for case in cases if "apart" in case]
    verdict = (
        f"The target is a ratio of at most {TARGET:g}. It is met in {met} of {len(cases)} cases (the others "
        f"are in bold). Pooled, fastadmm is slower than the fastest peer in {slower} of the {len(cases)}; as "
        f"parties, in one process, in {sum(apart)} of {len(apart)}."
    )
    return _table(header, rows, right_from=7) + "\n\n" + verdict


def _parties(case: dict[str, Any]) -> str:
    """The same fit by parties: time, rounds, exchanges, bytes."""
    apart, rows = case["apart"], case["rows"]
    cost = f"{apart['exchanges']} exchanges, {apart['bytes'] / rows:,.0f} bytes a row"
    return f"{_time(apart['seconds'])}, {apart['rounds']} rounds: {cost}"


def _startup(found: dict[str, Any]) -> str:
    rows = [
        ["`fastadmm --help`", _time(found["help"]), "0.3 s"],
        ["`import fastadmm`, with Python's own start", _time(found["import"]), ""],
        ["Python's own start", _time(found["python"]), ""],
        ["`fastadmm demo`, nothing compiled yet", _time(found["demo_cold"]), "30 s"],
        ["`fastadmm demo`, everything compiled", _time(found["demo_warm"]), ""],
        [
            "start of `train` to the end of its first round, compiled",
            _time(found["first_round_warm"]),
            "1.5 s",
        ],
        [
            f"compiling the default path ({found['compiled']} kernels)",
            _time(found["compile_default"]),
            "15 s",
        ],
    ]
    return _table(["", "measured", "limit"], rows)


def _machine(sections: dict[str, Any]) -> str:
    if not sections:
        return ""
    versions = [section["machine"]["versions"] for section in sections.values()]
    same = {
        name: given
        for name in versions[0]
        if len(found := {one.get(name) for one in versions} - {None}) == 1 and (given := found.pop())
    }
    measured: dict[str, list[str]] = {}
    for name, section in sections.items():
        measured.setdefault(_on(section, same), []).append(name)
    return f"With {', '.join(f'{name} {version}' for name, version in same.items())}. " + " ".join(
        f"Sections {', '.join(names)}: {where}." for where, names in measured.items()
    )


def _on(section: dict[str, Any], same: Collection[str]) -> str:
    machine = section["machine"]
    own = [f"{name} {v}" for name, v in machine["versions"].items() if v and name not in same]
    absent = [name for name, v in machine["versions"].items() if not v]
    where = f"{machine['cores']} cores ({machine['processor']})"
    without = [f"without {', '.join(absent)}"] if absent else []
    return ", ".join([where, *own, f"revision {section['revision']}", *without])


# --- the picture ---------------------------------------------------------------------------------------

#: Okabe and Ito's palette, ours first.
COLOURS = {
    "fastadmm": "#d55e00",
    "scikit-learn lbfgs": "#0072b2",
    "scikit-learn newton-cholesky": "#009e73",
    "scikit-learn newton-cg": "#56b4e9",
    "scikit-learn liblinear": "#cc79a7",
    "scikit-learn saga": "#e69f00",
    "LIBLINEAR -s 0": "#8c6bb1",
    "LIBLINEAR -s 7": "#999999",
    "snapml": "#000000",
}


def curves(case: dict[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds and relative suboptimality of every solver, only where it got better."""
    points = {"fastadmm": [(t, v) for t, v, _ in case["curve"]]}
    points |= {name: [tuple(p) for p in t["curve"]] for name, t in case["tuned"].items() if t}
    found = {}
    for name, pairs in points.items():
        best, kept = np.inf, []
        for t, v in sorted(pairs):
            if v < best:
                best = v
                kept.append((t, max(v, 1e-13)))
        found[name] = ([t for t, _ in kept], [v for _, v in kept])
    return found


def draw(measured: dict[str, Any], path: Path) -> None:
    """Suboptimality against time, a panel per case, a curve per solver."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    cases = [c for name in FITS if name in measured["sections"] for c in measured["sections"][name]["found"]]
    if not cases:
        return
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(
        {
            "font.family": ["DejaVu Sans"],
            "font.size": 9,
            "svg.hashsalt": "fastadmm",
            "svg.fonttype": "path",
            "text.color": INK,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": FAINT,
            "xtick.color": FAINT,
            "ytick.color": FAINT,
            "axes.spines.right": False,
            "axes.spines.top": False,
        }
    )
    columns = min(4, len(cases))
    lines = -(-len(cases) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.8, 2.7 * lines + 1.0), facecolor="white")
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for ax, case in zip(panels.flat, cases):
        for name, (times, values) in curves(case).items():
            width = 2.4 if name == "fastadmm" else 1.1
            ax.plot(times, values, color=COLOURS[name], linewidth=width, marker=".", markersize=3)
        ax.axhline(1e-6, color=FAINT, linewidth=0.8, linestyle=(0, (6, 3)))
        ax.set(xscale="log", yscale="log", ylim=(1e-10, 2))
        ax.set_title(f"{case['data']}, λ = {_exponent(case['lambda'])}", loc="left", fontsize=9)
        ax.grid(color="#e6eaef", linewidth=0.7)
        ax.set_axisbelow(True)
    for ax in panels.flat[len(cases) :]:
        ax.set_visible(False)
    for ax in panels[:, 0]:
        ax.set_ylabel("(F − F*) / F*")
    for ax in panels.flat[max(0, len(cases) - columns) : len(cases)]:
        ax.set_xlabel("seconds")
    shown = [name for name in COLOURS if any(name in curves(case) for case in cases)]
    handles = [
        Line2D([], [], color=COLOURS[n], linewidth=2.4 if n == "fastadmm" else 1.1, label=n) for n in shown
    ]
    figure.legend(handles=handles, loc="lower center", ncol=min(5, len(shown)), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    # matplotlib leaves spaces at the ends of lines
    path.write_text(re.sub(r"[ \t]+\n", "\n", path.read_text("utf-8")), encoding="utf-8")
