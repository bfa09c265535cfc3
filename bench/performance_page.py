"""The generated parts of ``docs/performance.md``, from the measured numbers alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fits import best_peer
from page import exponent, seconds_text, table

FITS = ("a9a", "gisette", "imdb", "mnist", "synthetic")

#: In place of a section that was not measured.
ABSENT = "Not measured."

#: Our time over the best peer's that is aimed at.
TARGET = 0.5


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


def _fits(cases: list[dict[str, Any]]) -> str:
    rows = []
    for case in cases:
        ours = case["seconds"]["fastadmm"]
        name, theirs = best_peer(case)
        ratio = f"{ours / theirs:.2f}"
        rows.append(
            [
                f"{case['data']}, M = {case['parties']}",
                exponent(case["lambda"]),
                seconds_text(ours),
                _parties(case) if "apart" in case else "not measured",
                seconds_text(case["ready"]) if "ready" in case else "in the clock",
                f"{name}, {seconds_text(theirs)}",
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
    return table(header, rows, right_from=7) + "\n\n" + verdict


def _parties(case: dict[str, Any]) -> str:
    """The same fit by parties: time, rounds, exchanges, bytes."""
    apart, rows = case["apart"], case["rows"]
    cost = f"{apart['exchanges']} exchanges, {apart['bytes'] / rows:,.0f} bytes a row"
    return f"{seconds_text(apart['seconds'])}, {apart['rounds']} rounds: {cost}"


def _startup(found: dict[str, Any]) -> str:
    rows = [
        ["`fastadmm --help`", seconds_text(found["help"]), "0.3 s"],
        ["`import fastadmm`, with Python's own start", seconds_text(found["import"]), ""],
        ["Python's own start", seconds_text(found["python"]), ""],
        ["`fastadmm demo`, nothing compiled yet", seconds_text(found["demo_cold"]), "30 s"],
        ["`fastadmm demo`, everything compiled", seconds_text(found["demo_warm"]), ""],
        [
            "start of `train` to the end of its first round, compiled",
            seconds_text(found["first_round_warm"]),
            "1.5 s",
        ],
        [
            f"compiling the default path ({found['compiled']} kernels)",
            seconds_text(found["compile_default"]),
            "15 s",
        ],
    ]
    return table(["", "measured", "limit"], rows)


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
