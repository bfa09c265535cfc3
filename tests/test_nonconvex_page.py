"""The measured part of the page on non-convex problems is made from the measurements, not by hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load_script():
    spec = importlib.util.spec_from_file_location("bench_nonconvex", ROOT / "bench" / "nonconvex.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured():
    return json.loads((ROOT / "bench" / "nonconvex.json").read_text(encoding="utf-8"))


def test_page_equals_what_the_script_makes_of_the_measurements(measured):
    script = load_script()
    page = (ROOT / "docs" / "nonconvex.md").read_text(encoding="utf-8")
    assert script.replace_block(page, script.block(measured)) == page


def test_what_the_page_says_in_words_is_true(measured):
    for case in measured["cases"]:
        assert case["descends"]
        assert case["rounds"]["subspace"][-1] <= (20 if case["regularizer"] == "l2" else 25)
        reached = [t for t in case["rate"] if t is not None]
        # rounds grow by less than the factor by which epsilon falls
        assert reached[-1] <= reached[0] * 10 ** (len(reached) - 1)
    for row in measured["outliers"]:
        if row["share"] >= 0.1:
            assert row["squared"] > row["huber"] > row["tukey"]
            assert row["tukey"] < 1.01 * measured["outliers"][0]["squared"]
