"""The table of other directions and bounds is what its script makes of the measurements."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("bench_directions", ROOT / "bench" / "directions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_page_is_made_of_the_measurements(bench: ModuleType) -> None:
    measured = json.loads(bench.MEASURED.read_text(encoding="utf-8"))
    assert f"{bench.BEGIN}\n{bench.block(measured)}\n{bench.END}" in bench.PAGE.read_text(encoding="utf-8")
    assert len(measured["cases"]) == 40
