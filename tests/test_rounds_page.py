"""The convergence page is made from the measured numbers, not by hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load_script(name="rounds"):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_equals_what_the_script_makes_of_the_measurements():
    script = load_script()
    measured = json.loads((ROOT / "bench" / "rounds.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "convergence.md").read_text(encoding="utf-8")
    assert script.replace_block(page, script.block(measured)) == page
    marks = script.VARIANTS_BEGIN, script.VARIANTS_END
    assert script.replace_block(page, script.variants_block(measured["variants"]), *marks) == page


def test_what_the_page_says_in_words_is_true():
    measured = json.loads((ROOT / "bench" / "rounds.json").read_text(encoding="utf-8"))
    cases = measured["cases"]
    assert all(c["certified"][1] <= 40 for c in cases)
    assert all(c["both"][1] <= 30 for c in cases)
    mean = load_script().geometric_mean([c["both"][1] for c in cases])
    assert mean <= 10.0
    for k in range(3):  # "about a quarter fewer"
        both, one = (
            load_script().geometric_mean(
                [c[key][k] for c in cases if None not in (c["both"][k], c["certified"][k])]
            )
            for key in ("both", "certified")
        )
        assert 0.7 <= both / one <= 0.78
    reached = sum(c["rounds"]["sharing"][1] is not None for c in cases) / len(cases)
    assert 0.8 < reached < 0.95
    # the certificate never comes before the accuracy it certifies
    proved = [(c["certified"][k], c["rounds"]["subspace"][k]) for c in cases for k in range(3)]
    assert all(certified >= reached for certified, reached in proved if certified is not None)
    # A perfect fit ends where double precision does.
    assert all(c["data"] == "leukemia" for c in cases if None in c["certified"] + c["both"])


def test_what_a_round_costs_equals_what_the_script_makes_of_the_measurements():
    script = load_script("split")
    measured = json.loads((ROOT / "bench" / "split.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "convergence.md").read_text(encoding="utf-8")
    assert script.replace_block(page, script.block(measured)) == page
    assert all(case["vectors"] <= 64 for case in measured)
