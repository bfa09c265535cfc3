"""The measured numbers of owners of rows: what they must hold, and that the pages show them."""

import json
from pathlib import Path

import pytest

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script():
    return script_of("bench/owners.py")


@pytest.fixture(scope="module")
def measured():
    return json.loads((ROOT / "bench" / "owners.json").read_text(encoding="utf-8"))


def test_pages_show_the_measured_numbers(script, measured):
    page = (ROOT / "docs" / "owners.md").read_text(encoding="utf-8")
    assert script.render(measured, page) == page, "run: python -P bench/owners.py --redraw"


def test_slopes_are_what_theory_says_where_noise_dominates(measured):
    slopes = {
        name: [value for key in ("slopes_epsilon", "slopes_n") for value in problem[key].values()]
        for name, problem in measured["problems"].items()
    }
    assert sum(map(len, slopes.values())) >= 12
    # A parabola for least squares; a kink that nearly all cards sit at flattens, large noise steepens.
    ends = {"synthetic SVM": (-2.3, -2.1), "card fraud": (-1.9, -1.5)}
    for name, found in slopes.items():
        for value, low, high in found:
            least, largest = ends.get(name, (-2.1, -1.9))
            assert least <= value <= largest
            assert low <= value <= high
    share = measured["problems"]["card fraud"]["detection"]["at_kink"]
    page = (ROOT / "docs" / "owners.md").read_text(encoding="utf-8")
    assert f"({100 * share:.0f} % of them within 0.1 of it)" in page


def test_forecast_is_within_fifteen_percent(measured):
    found = measured["forecast"]
    assert {(f["mechanism"], f["rounds"]) for f in found} == {
        (m, T) for m in ("laplace", "gaussian") for T in (10, 40)
    }
    for f in found:
        assert abs(f["ratio"] - 1) <= 0.15
        assert f["measured"] <= f["bound"]


def test_speed_is_above_the_bandwidth_floor(measured):
    speed = measured["speed"]
    assert (speed["rows"], speed["rounds"], speed["repetitions"]) == (750_000, 100, 100)
    assert speed["floor_seconds"] / speed["seconds"]["squared, bounded features"] >= 0.7
