"""docs/fusion.md: its numbers are the measured ones, its theorems and the functions name each other."""

import importlib
import importlib.util
import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

from page_outputs import anchor_of

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "fusion.md").read_text(encoding="utf-8")
MEASURED = json.loads((ROOT / "bench" / "private_utility.json").read_text(encoding="utf-8"))

MODULES = ("fusion", "fusion_fit", "fusion_mechanisms", "fusion_party", "public")


def resolve(name):
    module, _, rest = name.removeprefix("fastadmm.privacy.").partition(".")
    member = importlib.import_module(f"fastadmm.privacy.{module}")
    for part in rest.split("."):
        member = getattr(member, part)
    return member


def runs(case, label=None):
    found = MEASURED["cases"][case]["runs"]
    return {run["epsilon"]: run["fusion"] for run in found if run["label_epsilon"] == label}


def test_the_page_measures_and_defaults_are_the_programs():
    assert runs("a9a")[1.0] <= 0.3270
    assert runs("a9a")[4.0] <= 0.3250
    assert runs("a9a", 1.0)[1.0] <= 0.3280
    assert runs("a9a_4")[2.0] <= 0.334
    assert all(run["runs"] >= 5 for case in MEASURED["cases"].values() for run in case["runs"])
    # Defaults of the page are the codes.
    from fastadmm.privacy import fusion_mechanisms as mechanisms
    from fastadmm.settings.privacy import Privacy

    assert f"T = {mechanisms.STEPS} steps" in TEXT
    assert f"κ = {mechanisms.CONSTANT:g}," in TEXT
    assert mechanisms.SCORE_RANGE == 4.0
    assert mechanisms.NORM_QUERIES == 9
    fields = Privacy(mode="fusion", epsilon=1.0)
    assert (fields.model_share, fields.model_epsilon_max) == (0.4, 1.0)
    assert "ε_s = ε − min(0.4 ε, 1)" in TEXT


def test_functions_and_theorems_name_each_other():
    known = {anchor_of(heading) for heading in re.findall(r"^#{2,4} (.+)$", TEXT, flags=re.MULTILINE)}
    named = {}
    for module in MODULES:
        loaded = importlib.import_module(f"fastadmm.privacy.{module}")
        source = inspect.getsource(loaded)
        for anchor in re.findall(r"docs/fusion\.md#([\w-]+)", source):
            named.setdefault(anchor, set()).add(module)
    assert set(named) <= known
    implemented = [
        name
        for names in re.findall(r"\*Implemented by:\*((?:[\s,]*`[\w.]+`)+)", TEXT)
        for name in re.findall(r"`([\w.]+)`", names)
    ]
    assert len(implemented) >= 10
    for name in implemented:
        assert inspect.getdoc(resolve(name)), name


@pytest.mark.parametrize("q", [0.0, 1.0, 1.58, -0.58, 0.3])
def test_the_bound_of_f1_in_the_page_is_the_functions(q):
    from fastadmm.privacy.fusion_mechanisms import CONSTANT, gradient_sensitivity

    expected = max(2 * abs(q), 2 * abs(1 - q), np.hypot(abs(q) + abs(1 - q), CONSTANT))
    assert gradient_sensitivity(np.array([q, q])) == pytest.approx(expected)
