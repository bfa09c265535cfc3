"""Errors: one line each, the right class and exit code; and the documented table of codes."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from fastadmm import errors
from fastadmm.errors import ConfigError, ExitCode, FastadmmError, InputError
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions

from run_tools import refuses

DOCUMENT = Path(__file__).parents[1] / "docs" / "cli.md"


def test_documented_exit_codes_and_exceptions():
    rows = re.findall(
        r"^\| (\d+) \| `([A-Z_]+)` \| .+ \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: int(code) for code, name in rows} == {code.name: code.value for code in ExitCode}
    # Documented exceptions are the ones of the program.
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \|$", text, re.MULTILINE)
    classes = {
        name: cls
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, FastadmmError) and cls is not FastadmmError
    }
    assert {name for name, *_ in rows} == set(classes)
    for name, base, code in rows:
        assert classes[name].__mro__[2].__name__ == base
        assert classes[name].exit_code == int(code)
    # The base class is an internal error.
    assert FastadmmError("x").exit_code is ExitCode.INTERNAL


X = np.arange(12.0).reshape(6, 2)
Y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])


def changed(values, i, value):
    values = np.array(values, dtype=float)
    values[i] = value
    return values


I, C = InputError, ConfigError
PROBLEMS = {
    "no party": ({"blocks": []}, I, "at least one feature block"),
    "names": ({"names": ["a", "b"]}, I, "1 feature blocks but 2 names"),
    "rows of a party": ({"blocks": [X, X[:5]]}, I, r"party-2: 5 rows, but y has 6; align the rows"),
    "rows of y": ({"y": Y[:4]}, I, r"y: 4 values, but party-1 has 6 rows; align"),
    "y of two dimensions": ({"y": Y[:, None]}, I, r"y: expected one dimension, got shape \(6, 1\)"),
    "y of text": ({"y": ["a"] * 6}, I, "y: not numbers"),
    "NaN in y": ({"y": changed(Y, 3, np.nan)}, I, "y: value nan in row 3; remove or impute"),
    "labels -1 and 1": ({"y": 2 * Y - 1}, I, r"y: target -1.0 in row 0 is outside \[0, 1\]; map"),
    "one class": ({"y": np.ones(6)}, I, r"y: only one class is present \(1\); two are needed"),
    "lambda too large": ({"lam": 1e160}, C, r"lambda: 1e\+160 must be .* at most 1e\+100"),
    "ball too large": ({"constraint": "ball:1e160"}, C, r"ball of radius 1e\+160: it is above 1e\+100"),
    "negative weight": (
        {"sample_weight": changed(np.ones(6), 4, -1)},
        I,
        "sample_weight: negative value -1.0 in row 4",
    ),
    "zero weights": ({"sample_weight": np.zeros(6)}, I, "sample_weight: all weights are zero"),
    "length of weights": ({"sample_weight": np.ones(5)}, I, "sample_weight: 5 values, but y has 6"),
    "NaN in weights": ({"sample_weight": changed(np.ones(6), 1, np.nan)}, I, "sample_weight: .* row 1"),
    "infinity in offset": ({"offset": changed(np.ones(6), 5, -np.inf)}, I, "offset: value -inf in row 5"),
    **{
        f"lambda {value!r}": ({"lam": value}, C, "lambda: .* must be a positive finite number")
        for value in (0, -1.0, np.inf, np.nan)
    },
    "lambda of text": ({"lam": "much"}, C, "lambda: 'much' is not a number"),
}


@pytest.mark.parametrize(("arguments", "kind", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem_errors(arguments, kind, message):
    arguments = {"blocks": [X], "y": Y, **arguments}
    with pytest.raises(kind, match=message) as caught:
        make_problem(**arguments)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_problems_keep_their_own_copies_and_the_documented_defaults():
    assert make_problem([X], np.full(6, 0.3)).loss is LOSSES["logistic"]
    assert make_problem([X], np.ones(6), loss="squared").n_parties == 1
    problem = make_problem([X, X], Y, lam="0.5", sample_weight=[1, 2, 3, 0, 0, 0])
    assert problem.total_weight == 6.0
    np.testing.assert_array_equal(problem.weight, [1, 2, 3, 0, 0, 0])
    assert problem.regularization == 3.0
    assert problem.names == ["party-1", "party-2"]
    # A problem keeps its own copy of the vectors.
    y, s = Y.copy(), np.ones(6)
    problem = make_problem([X], y, sample_weight=s)
    y[:] = 0.0
    s[:] = 9.0
    np.testing.assert_array_equal(problem.y, Y)
    np.testing.assert_array_equal(problem.weight, 1.0)
    # The default problem is the documented one.
    problem = make_problem([X], Y)
    assert problem.lam == 1e-4
    assert problem.fit_intercept
    np.testing.assert_array_equal(problem.offset, 0.0)
    assert problem.n_samples == 6


OPTIONS = {
    "scheme": ({"scheme": "newton"}, "scheme: unknown choice 'newton'; choose auto, "),
    "gap of all": ({"gap": 2.0}, "gap: 2.0 must be below 1"),
    "negative gap": ({"gap": -1e-3}, "gap: -0.001 must be a finite number, not negative"),
    "no rounds": ({"max_rounds": 0}, "max_rounds: 0 must be positive and finite"),
    "no time": ({"max_seconds": 0.0}, "max_seconds: 0.0 must be positive and finite"),
    "zero penalty": ({"penalty": 0.0}, "penalty: 0.0 must be positive and finite"),
    "acceleration": ({"acceleration": "nesterov"}, "acceleration: unknown choice 'nesterov'; choose auto,"),
    "threads": ({"n_threads": 0}, "n_threads: 0 must be positive and finite"),
    "x_update": ({"x_update": "lu"}, "x_update: unknown choice 'lu'; choose auto, gram, kernel, cg"),
}


@pytest.mark.parametrize(("arguments", "message"), OPTIONS.values(), ids=OPTIONS)
def test_option_errors(arguments, message):
    refuses(ConfigError, re.escape(message), lambda: Solver(make_problem([X], Y), SolverOptions(**arguments)))
