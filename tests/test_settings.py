"""Declarations of settings against what they tell of: solver, losses, estimators."""

import inspect
import json
import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
from fastadmm import ADMMSharingClassifier, ADMMSharingClassifierCV, ADMMSharingRegressor
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import LARGEST_FACTOR
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.schemes.registry import SCHEMES
from fastadmm.settings.checks import LARGEST_FACTOR as DECLARED_FACTOR
from fastadmm.settings.keys import DECISIVE, LIMITS, OBJECTIVE, PENALTY, SETTINGS
from fastadmm.solver.early_stopping import METRICS
from fastadmm.solver.solver import SolverOptions

from run_tools import python, write_problem
from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


def test_the_solver_takes_what_is_declared():
    """Comparisons, models and fingerprints of older runs were made with these keys."""
    assert PENALTY == ("party_lambda", "regularizer", "l1_ratio", "groups", "constraint", "party_constraint")
    more = ("loss", "lambda", "intercept", "class_weight", "validation", "seed")
    assert set(OBJECTIVE) == {*PENALTY, *more}
    assert {"directions", "warm_start", "path", "gap"} <= set(DECISIVE)
    assert not {"data", "privacy", "threads", "memory", "checkpoint_rounds"} & set(DECISIVE)
    assert LIMITS == ("gap", "stationarity", "rounds", "time")
    # The solver takes every setting of its own with the same default.
    options = {field.name: field.default for field in fields(SolverOptions)}
    taken = {s.solver: s.default for s in SETTINGS.values() if s.solver}
    assert taken == options
    assert DECLARED_FACTOR == LARGEST_FACTOR
    # From the command line to the solver; each is a place that a change of it may touch.
    modules = [
        path
        for path in (ROOT / "fastadmm").rglob("*.py")
        if re.search(r"\bconfig: RunConfig\b", path.read_text(encoding="utf-8"))
    ]
    assert 5 < len(modules) < 17


@pytest.mark.parametrize(
    ("key", "choices"), [("x_update", ("auto", *X_UPDATES)), ("validation_metric", tuple(METRICS))]
)
def test_choices_are_those_of_the_solver(key, choices):
    assert SETTINGS[key].allowed == choices


@pytest.mark.parametrize(
    ("key", "names"), [("loss", LOSSES), ("regularizer", REGULARIZERS), ("scheme", SCHEMES)]
)
def test_help_lists_every_name(key, names):
    listed = re.findall(r"[\w-]+", SETTINGS[key].help)
    # The loss for several classes is what auto takes.
    assert set(names) - {"multinomial"} <= set(listed)


@pytest.mark.parametrize("estimator", [ADMMSharingClassifier, ADMMSharingRegressor, ADMMSharingClassifierCV])
def test_estimators_have_the_same_defaults(estimator):
    parameters = inspect.signature(estimator).parameters
    told = {s.estimator: s for s in SETTINGS.values() if s.estimator}
    found = {name for name in parameters if name in told}
    assert len(found) >= 8
    for name in found:
        assert parameters[name].default == told[name].default, name
    # What only estimators have, and what they take in another form.
    other = {"parties", "callbacks", "random_state", "privacy", "l1_ratio", "constraint", "alphas"}
    other |= {"warm_start", "early_stopping", "validation_fraction", "verbose", "positive"}
    assert set(parameters) <= set(told) | other


#: The one declaration that a new setting needs.
TOY = """
    toy: float = declare("objective", "a toy", "A toy.", sign="positive", default=1.0)

"""

PROGRAM = """
import sys
from dataclasses import replace
from importlib.util import find_spec, module_from_spec
from pathlib import Path

name = "fastadmm.settings.run"
module = module_from_spec(find_spec(name))
source = Path(module.__file__).read_text(encoding="utf-8")
sys.modules[name] = module
assert source.count("    def to_toml") == 1
exec(source.replace("    def to_toml", sys.argv[1] + "    def to_toml"), module.__dict__)

import io, tomllib
from contextlib import redirect_stderr, redirect_stdout
from fastadmm.cli.app import main
from fastadmm.reports import compare_runs
from fastadmm.runs.config import make_config
from fastadmm.runs.claim import problem_digest
from fastadmm.worth.coalitions import _fingerprint

def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(a) for a in arguments])
        except SystemExit as stop:
            return int(stop.code or 0), out.getvalue(), err.getvalue()

data, home = Path(sys.argv[2]), Path(sys.argv[3])
code, shown, _ = run("train", "--help")
assert "--toy" in shown and "A toy. (default: 1.0)" in shown, shown
for option, code in (("2", 0), ("-1", 5), ("x", 2)):
    found = run("train", data, "--toy", option, "-q", "-o", home / f"toy{option}")
    assert found[0] == code, found
assert run("train", data, "-q", "-o", home / "usual")[0] == 0
written = tomllib.loads((home / "toy2" / "run.toml").read_text())
assert written["toy"] == 2.0
(home / "toy.toml").write_text("tyo = 2")
assert "did you mean 'toy'?" in run("train", data, "--config", home / "toy.toml", "-o", home / "no")[2]
(home / "toy.toml").write_text("toy = 'much'")
assert "key 'toy': 'much' is not a number" in run("train", data, "--config", home / "toy.toml")[2]

comparison = compare_runs([home / "usual", home / "toy2"])
assert comparison.differing == ["toy"]
assert any("toy differs" in note for note in comparison.notes)
one = make_config({"data": str(data), "test": str(data)})
other = replace(one, toy=2.0)
assert problem_digest(one, {}) != problem_digest(other, {})
assert _fingerprint(one, None, home) != _fingerprint(other, None, home)
for changed in ({"groups": [[[0]]]}, {"seed": 3}, {"party_constraint": {"a": "all"}}):
    assert _fingerprint(one, None, home) != _fingerprint(replace(one, **changed), None, home), changed
print("seen by all")
"""


@pytest.mark.repeats
def test_a_setting_more_is_one_declaration(tmp_path):
    """Reader, writer, command line, comparison, resuming and worth see it; nothing else was told."""
    data = write_problem(tmp_path / "a.parts", n=60, widths=(2, 2))
    done = python(PROGRAM, TOY, data, tmp_path, env={**os.environ, "COLUMNS": "200"})
    assert done.stdout == "seen by all\n", done.stderr


def test_tables_of_the_documentation_are_made_of_the_declarations():
    tables = script_of("website/tables.py")
    for name in tables.PAGES:
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert page.count("<!-- settings of") == 1
        assert tables.filled(page) == page, "run: python website/tables.py"
    schema = (ROOT / "docs" / tables.SCHEMA).read_text(encoding="utf-8")
    assert schema == tables.schema_text(), "run: python website/tables.py"
    assert set(json.loads(schema)["properties"]) == set(SETTINGS)
