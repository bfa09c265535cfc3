"""Measured parts of pages are what scripts make of the measurements; what is said of them is true."""

import json
import sys
from pathlib import Path

import pytest

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


def script(name):
    return script_of(f"bench/{name}.py")


def measured(name):
    return json.loads((ROOT / "bench" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["nonconvex", "rounds", "paper_a", "private_utility"])
def test_a_page_is_made_of_the_measurements(name):
    bench = script(name)
    assert script("page").block(bench.MARK, bench.PAGE) == f"\n{bench.block(measured(name))}\n"


def test_blocks_of_streaming_are_made_of_the_measurements():
    bench, page = script("streaming"), script("page")
    assert page.block(bench.MARK, page.DOCS / "streaming.md") == "\n" + bench.render(measured("streaming"))


def test_exchanges_are_those_that_were_measured(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench, found = script("apart"), measured("apart")
    page = bench.PAGE.read_text(encoding="utf-8")
    assert f"<!-- apart:begin -->\n{bench.block(found)}<!-- apart:end -->" in page
    ridge = [case for case in found if case["regularizer"] == "l2" and not case["wide"]]
    narrow = [case["ours"] for case in ridge if case["kind"] in list(bench.KINDS)[:3]]
    assert max(exchanges for exchanges, _ in narrow) <= 3


def test_what_is_said_of_problems_that_are_not_convex_is_true():
    found = measured("nonconvex")
    for case in found["cases"]:
        assert case["descends"]
        assert case["rounds"]["subspace"][-1] <= (20 if case["regularizer"] == "l2" else 25)
        reached = [t for t in case["rate"] if t is not None]
        # rounds grow by less than the factor by which epsilon falls
        assert reached[-1] <= reached[0] * 10 ** (len(reached) - 1)
    for row in found["outliers"]:
        if row["share"] >= 0.1:
            assert row["squared"] > row["huber"] > row["tukey"]
            assert row["tukey"] < 1.01 * found["outliers"][0]["squared"]


def test_what_is_said_of_rounds_is_true():
    cases, geometric_mean = measured("rounds")["cases"], script("rounds").geometric_mean
    assert all(c["certified"][1] <= 40 for c in cases)
    assert all(c["both"][1] <= 30 for c in cases)
    mean = geometric_mean([c["both"][1] for c in cases])
    assert mean <= 10.0
    for k in range(3):  # "about a quarter fewer"
        both, one = (
            geometric_mean([c[key][k] for c in cases if None not in (c["both"][k], c["certified"][k])])
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
