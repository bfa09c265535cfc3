"""What a private run takes as public: numbers per record that labels or rows made are refused everywhere."""

import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier, Privacy, SolverOptions, make_problem
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.message import MessageSolver
from fastadmm.problem.losses import get_loss
from fastadmm.runs.config import make_config

from problems import make_vertical_classification
from run_tools import refused, refuses, write_blocks

OPTIONS = SolverOptions(n_threads=1)
SOLVERS = {"message": MessageSolver, "fusion": FusionSolver}


def data(n=400):
    blocks, y, _ = make_vertical_classification(n, (3, 2))
    y[: n // 3] = 0.0  # unequal classes, so that balancing gives them different weights
    return blocks, y


def balanced(y):
    return np.where(y > 0.5, 0.5 / y.mean(), 0.5 / (1.0 - y.mean()))


def settings(mode="message", **changes):
    return Privacy(**{"mode": mode, "epsilon": 4.0, "label_epsilon": 0.5, **changes})


@pytest.mark.parametrize("mode", SOLVERS)
def test_estimators_refuse_numbers_per_record(mode):
    blocks, y = data()
    X, chosen = np.hstack(blocks), settings(mode)
    model = ADMMSharingClassifier([3, 2], privacy=chosen)
    for given in ({"sample_weight": balanced(y)}, {"offset": y - 0.5}):
        refuses(ConfigError, "public targets would give away", model.fit, X, y, **given)
    for changes in ({"class_weight": "balanced"}, {"early_stopping": True}):
        with pytest.raises(ConfigError, match="does not go with a private run"):
            ADMMSharingClassifier([3, 2], privacy=chosen, **changes).fit(X, y)
    with pytest.raises(ConfigError, match="warm_start: does not go"):
        ADMMSharingClassifier([3, 2], warm_start=True).fit(X, y).set_params(privacy=chosen).fit(X, y)


@pytest.mark.parametrize("mode", SOLVERS)
@pytest.mark.parametrize("name", ["sample_weight", "offset"])
def test_runs_refuse_numbers_per_record_of_a_partition(tmp_path, capsys, mode, name):
    blocks, y = data()
    write_blocks(tmp_path / "t.parts", blocks, y, **{name: balanced(y)})
    out = tmp_path / "run"
    asked = ("--privacy", mode, "--epsilon", 1, "--set", "privacy.label_epsilon=1", "--quiet")
    error = refused(capsys, ExitCode.CONFIG, "train", tmp_path / "t.parts", *asked, "-o", out)
    assert "public targets would give away" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("validation", 0.2), ("path", True), ("class_weight", "balanced"), ("warm_start", "model")),
        *(("party_lambda", {"party-1": 1e-3}),),
        *(("party_constraint", {"party-1": "nonnegative"}), ("directions", "both")),
    ],
)
def test_settings_that_would_make_labels_or_rows_public(key, value):
    with pytest.raises(ConfigError, match=f"key '{key}'"):
        make_config({"data": "t.parts", "privacy": {"mode": "message", "epsilon": 1.0}, key: value})


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_no_public_number_depends_on_labels_that_are_protected(loss):
    """Penalty, modulus, sensitivity and noise are the same whatever the labels."""
    blocks, y = data()
    found = []
    for labels in (y, 1.0 - y, np.resize([0.0, 1.0], len(y))):
        made = MessageSolver(make_problem(blocks, labels, loss=loss), OPTIONS, settings())
        found.append({"penalty": made.penalty, **made.mechanism()})
        made.close()
    assert found[0] == found[1] == found[2]
    # The losses that randomised labels go with have a curvature of their own.
    assert get_loss(loss).penalty_unit(y[:0], y[:0], y[:0], 1.0) > 0.0
