"""The recipes of CONTRIBUTING.md: a toy loss, regulariser and scheme, each an entry in a table."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.method.scheme import Needs, Scheme
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import REGULARIZERS, Regularizer
from fastadmm.schemes.registry import SCHEMES
from fastadmm.solver.solver import SolverOptions, solve
from scipy.optimize import minimize

from problems import make_vertical_regression
from rounds_tools import begin, separate
from rounds_tools import train as train_by_files
from run_tools import in_file, refused, result_of, run, write_blocks


@dataclass(frozen=True)
class Lopsided(Loss):
    """Squared residuals that count less below zero, by their linear growth beyond ``low``."""

    name: ClassVar[str] = "lopsided"
    compiled: ClassVar[str] = "piecewise.residual"
    task: ClassVar[str] = "regression"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"low": (0.0, np.inf)}
    low: float = 0.5

    def kernel_arguments(self):
        return 1.0, -self.low, 2.0

    def check_targets(self, y, weight, fit_intercept):
        pass

    def penalty_unit(self, y, weight, offset, lam):
        return 1.0


@dataclass(frozen=True)
class Tenth(Regularizer):
    """The elastic net whose ratio is a tenth."""

    name: ClassVar[str] = "tenth"
    shares = (0.1, 0.9)


class Steepest(SubspaceMethod):
    """Minimises over the span of block gradients."""

    name = "steepest"

    def __init__(self, problem, engine, directions=None):
        super().__init__(problem, engine, directions)
        self.asks_newton = lambda: False


class SteepestScheme(Scheme):
    """Its declaration."""

    name, rounds, remarks = "steepest", "many", "block gradients alone"
    needs = Needs(smooth=True, ridge=True, convex=True, one_predictor=True, most_parties=20)

    def why(self, traits, given):
        return "for a test"

    def method(self, traits):
        return Steepest

    def history(self, shape, options):
        return 16

    def state_bytes(self, shape, history):
        return 8 * shape.message_size * shape.n_parties * history, 0


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    blocks, y, _ = make_vertical_regression(80, (2, 3))
    path = write_blocks(tmp_path_factory.mktemp("recipes") / "d.parts", blocks, y, task="regression")
    return path, np.hstack(blocks), y


def objective(X, y, lam, low):
    def value(w):
        e = X @ w[:-1] + w[-1] - y
        inside = np.clip(e, -low, 2.0)
        return float(np.mean(inside * e - inside**2 / 2) + lam / 2 * w[:-1] @ w[:-1])

    return minimize(value, np.zeros(X.shape[1] + 1), tol=1e-12).fun


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def test_a_loss_is_a_class_and_an_entry(scheme, problem, tmp_path, monkeypatch):
    data, X, y = problem
    monkeypatch.setitem(LOSSES, "lopsided", Lopsided())
    line = f"train {data} --loss lopsided:0.3 --lambda 1e-2 --scheme {scheme} -q -o {tmp_path / 'run'}"
    assert run(*line.split()) == 0  # certified
    assert result_of(tmp_path / "run")["loss"] == "lopsided"
    assert result_of(tmp_path / "run")["objective"] == pytest.approx(objective(X, y, 1e-2, 0.3), rel=2e-6)
    assert run("predict", tmp_path / "run", data, "-o", tmp_path / "predicted.csv") == 0


def test_a_regularizer_is_a_class_and_an_entry(problem, tmp_path, monkeypatch):
    data, *_ = problem
    monkeypatch.setitem(REGULARIZERS, "tenth", Tenth())
    common = f"train {data} --lambda 1e-1 -q"
    for scheme in ("proximal", "sharing"):
        mine, known = tmp_path / f"mine-{scheme}", tmp_path / f"known-{scheme}"
        assert run(*f"{common} --scheme {scheme} --regularizer tenth -o {mine}".split()) == 0
        ratio = "--regularizer elastic_net --set l1_ratio=0.1"
        assert run(*f"{common} --scheme {scheme} {ratio} -o {known}".split()) == 0
        assert result_of(mine)["objective"] == result_of(known)["objective"]
        assert result_of(mine)["rounds"] == result_of(known)["rounds"]


@pytest.mark.repeats
def test_a_scheme_is_a_module_and_a_line_of_the_registry(tmp_path, monkeypatch, capsys):
    blocks, y, _ = make_vertical_regression(90, (6, 7))
    data = write_blocks(tmp_path / "d.parts", blocks, y, task="regression")
    usual = f"train {data} --lambda 1e-1 -q -o {tmp_path}"
    assert run(*f"{usual}/none --scheme steepest".split()) == 5
    assert run(*f"{usual}/auto".split()) == 0
    monkeypatch.setitem(SCHEMES, "steepest", SteepestScheme())

    made = make_problem(blocks, y, loss="squared", lam=1e-1)
    found = solve(made, SolverOptions(scheme="steepest", n_threads=1))
    best = result_of(tmp_path / "auto")
    assert found.status.value == "converged"
    usual_rounds = [record.objective for record in solve(made).history]
    assert usual_rounds != [
        record.objective for record in found.history
    ]  # not the usual scheme by another name
    assert found.objective == pytest.approx(best["objective"], rel=1e-5)

    # options and files, the plan and what it says where memory is short
    assert run(*f"{usual}/run --scheme steepest".split()) == 0
    assert run(*f"{usual}/same".split(), *in_file(scheme="steepest")) == 0
    for name in ("run", "same"):
        assert result_of(tmp_path / name)["objective"] == pytest.approx(found.objective, rel=1e-12)
    capsys.readouterr()
    assert run(*f"{usual}/plan --dry-run --scheme steepest".split()) == 0
    assert "party-1: dense, 6 features" in capsys.readouterr().out

    # refusals
    error = refused(capsys, 5, *f"{usual}/no --scheme steepest --regularizer l1".split())
    assert "'steepest' needs a convex problem with a smooth loss, regularizer l2 without" in error
    assert "one predictor per sample and at most 20 parties; choose 'auto'" in error

    # the calls are those of a family that goes by files
    separate(data, tmp_path)
    begin(tmp_path, scheme="steepest", **{"lambda": 1e-1})
    directory, _ = train_by_files(tmp_path)
    assert (result_of(directory)["scheme"], result_of(directory)["rounds"]) == (
        "steepest",
        len(found.history),
    )
