"""The measured numbers of owners of rows: what they must hold, and that the pages show them."""

import json
from pathlib import Path

import numpy as np
import pytest

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script():
    return script_of("bench/owners.py")


@pytest.fixture(scope="module")
def measured():
    return json.loads((ROOT / "bench" / "owners.json").read_text(encoding="utf-8"))


def test_pages_and_forecasts(script, measured):
    from page import DOCS, block

    for page, blocks in script.BLOCKS.items():
        for name, make in blocks.items():
            shown = block(f"owners-{name}", DOCS / page)
            assert shown == f"\n{make(measured)}\n", "run: python -P bench/owners.py --redraw"
    # Claims are judged at the best step and told for the others.
    rows = script.claims(measured)
    assert [agrees for claim, _, agrees in rows if claim.startswith(("Theorem 2", "Theorem 3"))] == [
        "**no**"
    ] * 2
    for name, p in measured["problems"].items():
        assert [step["c1"] for step in p["steps"]] == list(script.STEPS)
        levels = [np.log(np.maximum(step["means"][-1], 1e-9)).mean() for step in p["steps"]]
        assert p["c1"] == script.STEPS[int(np.argmin(levels))], name
    # What no step makes true is said to be so.
    worse = json.loads(json.dumps(measured))
    cards = worse["problems"]["card fraud"]
    for step in (cards, *cards["steps"]):
        for at in step["named"]:
            at["psi"] = 1.0
    card = next(agrees for claim, _, agrees in script.claims(worse) if claim.startswith("Cards, "))
    assert card == "**no**, at every c₁"
    cards["steps"][1]["named"][0]["psi"] = 0.01
    card = next(agrees for claim, _, agrees in script.claims(worse) if claim.startswith("Cards, "))
    assert card == f"**no** at the best c₁; yes at {script.STEPS[1]:g}"


def test_slopes_are_what_theory_says_where_noise_dominates(script, measured):
    for name, problem in measured["problems"].items():
        found = [value for _, key in script.SLOPES for value in problem[key].values()]
        assert found
        # A parabola for least squares; a kink that nearly all cards sit at flattens, large noise steepens.
        least, largest = (-2.3, -1.5) if script.PROBLEMS[name]["loss"] == "hinge" else (-2.1, -1.9)
        for value, low, high in found:
            assert least <= value <= largest
            assert low <= value <= high
    share = measured["problems"]["card fraud"]["detection"]["at_kink"]
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert f"{100 * share:.0f} % of the margins lie within 0.1 of" in page


def test_forecast_is_within_fifteen_percent(measured):
    found = measured["forecast"]
    assert {(f["mechanism"], f["rounds"]) for f in found} == {
        (m, T) for m in ("laplace", "gaussian") for T in (10, 40)
    }
    for f in found:
        assert abs(f["ratio"] - 1) <= 0.15
        assert f["measured"] <= f["bound"]
