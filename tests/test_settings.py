"""Declarations of settings against what they tell of: solver, losses, estimators."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest
from fastadmm import ADMMSharingClassifier, ADMMSharingClassifierCV, ADMMSharingRegressor
from fastadmm.coordinator.choice import DIRECTIONS, SCHEME_NAMES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import LARGEST_FACTOR
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.settings.checks import LARGEST_FACTOR as DECLARED_FACTOR
from fastadmm.settings.keys import DECISIVE, LIMITS, OBJECTIVE, PENALTY, SETTINGS
from fastadmm.solver.early_stopping import METRICS
from fastadmm.solver.solver import SolverOptions


def test_what_decides_is_what_it_was() -> None:
    """Comparisons, models and fingerprints of older runs were made with these keys."""
    assert PENALTY == (
        "party_lambda",
        "regularizer",
        "l1_ratio",
        "groups",
        "constraint",
        "party_constraint",
    )
    more = ("loss", "lambda", "intercept", "class_weight", "validation", "seed")
    assert set(OBJECTIVE) == {*PENALTY, *more}
    assert {"directions", "warm_start", "path", "gap"} <= set(DECISIVE)
    assert not {"data", "privacy", "threads", "memory", "checkpoint_rounds"} & set(DECISIVE)
    assert LIMITS == ("gap", "stationarity", "rounds", "time")


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("scheme", ("auto", *SCHEME_NAMES)),
        ("directions", DIRECTIONS),
        ("x_update", ("auto", *X_UPDATES)),
        ("validation_metric", tuple(METRICS)),
    ],
)
def test_choices_are_those_of_the_solver(key: str, choices: tuple[str, ...]) -> None:
    assert SETTINGS[key].choices == choices


@pytest.mark.parametrize(("key", "names"), [("loss", LOSSES), ("regularizer", REGULARIZERS)])
def test_help_lists_every_name(key: str, names: dict[str, object]) -> None:
    listed = re.findall(r"\w+", SETTINGS[key].help)
    # The loss for several classes is what auto takes.
    assert set(names) - {"multinomial"} <= set(listed)


def test_the_solver_takes_every_setting_of_its_own_with_the_same_default() -> None:
    options = {field.name: field.default for field in fields(SolverOptions)}
    taken = {s.solver: s.default for s in SETTINGS.values() if s.solver}
    assert taken == {name: default for name, default in options.items() if name != "gap_absolute"}
    assert DECLARED_FACTOR == LARGEST_FACTOR


@pytest.mark.parametrize("estimator", [ADMMSharingClassifier, ADMMSharingRegressor, ADMMSharingClassifierCV])
def test_estimators_have_the_same_defaults(estimator: type) -> None:
    parameters = inspect.signature(estimator).parameters
    told = {s.estimator: s for s in SETTINGS.values() if s.estimator}
    found = {name for name in parameters if name in told}
    assert len(found) >= 8
    for name in found:
        assert parameters[name].default == told[name].default, name
    # What only estimators have, and what they take in another form.
    other = {"parties", "callbacks", "random_state", "privacy", "l1_ratio", "constraint", "alphas"}
    other |= {"warm_start", "early_stopping", "validation_fraction"}
    assert set(parameters) <= set(told) | other
