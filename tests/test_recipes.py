"""The recipes of CONTRIBUTING.md: a toy loss and a toy regulariser, each a class and an entry in a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from fastadmm.data_tools.synthetic import make_vertical_regression
from fastadmm.problem.loss import Kernels, Loss
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS, Regularizer
from scipy.optimize import minimize

from run_tools import result_of, run, write_blocks


@dataclass(frozen=True)
class Lopsided(Loss):
    """Squared residuals that count less below zero, by their linear growth beyond ``low``."""

    name: ClassVar[str] = "lopsided"
    task: ClassVar[str] = "regression"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"low": (0.0, np.inf)}
    low: float = 0.5

    def kernels(self) -> Kernels:
        from fastadmm.kernels import residual as k

        return Kernels(
            k.residual_evaluate,
            k.residual_curvature,
            k.residual_prox,
            k.residual_conjugate,
            k.residual_advance,
        )

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


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    blocks, y, _ = make_vertical_regression(80, (2, 3))
    path = write_blocks(tmp_path_factory.mktemp("recipes") / "d.parts", blocks, y, task="regression")
    return path, np.hstack(blocks), y


def objective(X: np.ndarray, y: np.ndarray, lam: float, low: float) -> float:
    def value(w: np.ndarray) -> float:
        e = X @ w[:-1] + w[-1] - y
        inside = np.clip(e, -low, 2.0)
        return float(np.mean(inside * e - inside**2 / 2) + lam / 2 * w[:-1] @ w[:-1])

    return minimize(value, np.zeros(X.shape[1] + 1), tol=1e-12).fun


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def test_a_loss_is_a_class_and_an_entry(scheme, problem, tmp_path, monkeypatch) -> None:
    data, X, y = problem
    monkeypatch.setitem(LOSSES, "lopsided", Lopsided())
    line = f"train {data} --loss lopsided:0.3 --lambda 1e-2 --scheme {scheme} -q -o {tmp_path / 'run'}"
    assert run(*line.split()) == 0  # certified
    assert result_of(tmp_path / "run")["loss"] == "lopsided"
    assert result_of(tmp_path / "run")["objective"] == pytest.approx(objective(X, y, 1e-2, 0.3), rel=2e-6)
    assert run("predict", tmp_path / "run", data, "-o", tmp_path / "predicted.csv") == 0


def test_a_regularizer_is_a_class_and_an_entry(problem, tmp_path, monkeypatch) -> None:
    data, *_ = problem
    monkeypatch.setitem(REGULARIZERS, "tenth", Tenth())
    common = f"train {data} --lambda 1e-1 -q"
    for scheme in ("proximal", "sharing"):
        mine, known = tmp_path / f"mine-{scheme}", tmp_path / f"known-{scheme}"
        assert run(*f"{common} --scheme {scheme} --regularizer tenth -o {mine}".split()) == 0
        ratio = "--regularizer elastic_net --l1-ratio 0.1"
        assert run(*f"{common} --scheme {scheme} {ratio} -o {known}".split()) == 0
        assert result_of(mine)["objective"] == result_of(known)["objective"]
        assert result_of(mine)["rounds"] == result_of(known)["rounds"]
