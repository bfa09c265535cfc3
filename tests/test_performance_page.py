"""The performance page is made from the measured numbers."""

import json
from pathlib import Path

import pytest

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "bench" / "performance.json"


def load(name):
    return script_of(f"bench/{name}.py")


@pytest.fixture(scope="module")
def measured():
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def test_page_equals_what_the_script_makes_of_the_measurements(measured):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert load("page").with_blocks(page, load("performance_page").render(measured)) == page


def test_fits_reach_what_the_page_says(measured):
    """Ours is certified and truly there; a peer's chosen tolerance is the loosest that got there."""
    sections = measured["sections"]
    cases = [c for name in load("performance").FITS if name in sections for c in sections[name]["found"]]
    assert len(cases) >= 3
    for case in cases:
        assert case["gap"] <= 1e-6
        assert -1e-9 <= case["suboptimality"] <= case["gap"] + 1e-10
        assert case["repeats"] >= 3
        for tuned in case["tuned"].values():
            if tuned is None:
                continue
            values = [value for _, value in tuned["curve"]]
            reached = [value <= 1e-6 for value in values]
            assert any(reached) == (tuned["tolerance"] is not None)
            if any(reached):
                first = 10.0 ** (-(reached.index(True) + 1) / 2)
                assert tuned["tolerance"] == pytest.approx(first)
