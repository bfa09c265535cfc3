"""The table of rounds with kinks is what its script makes of the measurements."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_nonsmooth", ROOT / "bench" / "nonsmooth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_made_of_the_measurements(bench: ModuleType) -> None:
    measured = json.loads(bench.MEASURED.read_text(encoding="utf-8"))
    text = bench.PAGE.read_text(encoding="utf-8")
    assert bench.replace_block(text, bench.block(measured)) == text
    assert len({bench._key(case) for case in measured["cases"]}) == len(measured["cases"]) == 126


def test_smooth_losses_are_certified_within_sixty_rounds(bench: ModuleType) -> None:
    cases = json.loads(bench.MEASURED.read_text(encoding="utf-8"))["cases"]
    smooth = [case for case in cases if case["loss"] in ("logistic", "squared", "huber")]
    assert len(smooth) == 72
    assert max(case["certified"][0] for case in smooth) <= 60
