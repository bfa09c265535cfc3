"""The tables of wide data and of short histories are what their scripts make of the measurements."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["wide"])
def test_page_is_made_of_the_measurements(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    measured = json.loads(bench.MEASURED.read_text(encoding="utf-8"))
    assert f"{bench.BEGIN}\n{bench.block(measured)}\n{bench.END}" in bench.PAGE.read_text(encoding="utf-8")
