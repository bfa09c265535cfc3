"""``fastadmm verify`` proves what was written, and refuses what was changed; what prints a claim compares."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.files.reading import read_toml
from fastadmm.problem.losses import LOSSES
from fastadmm.runs import fit
from fastadmm.runs.recompute import Columns, Rows, recompute
from fastadmm.runs.verify import verify_run
from fastadmm.store import create_partition
from fastadmm.store.model import PartyModel, open_model, write_model

from run_tools import in_file, result_of, run

#: Targets that a loss takes, from a predictor.
TARGETS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "classes": lambda rng, z: (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z))).astype(float),
    "real": lambda rng, z: z + rng.normal(size=len(z)),
    "counts": lambda rng, z: rng.poisson(np.exp(z / 2.0)).astype(float),
    "positive": lambda rng, z: np.exp(z / 2.0) * rng.gamma(2.0, size=len(z)),
    "shares": lambda rng, z: rng.integers(0, 5, len(z)) / 4.0,
    "three": lambda rng, z: rng.integers(0, 3, len(z)).astype(float),
}
KIND = {
    **dict.fromkeys(("logistic", "hinge", "smoothed_hinge", "squared_hinge"), "classes"),
    **dict.fromkeys(("squared", "huber", "quantile"), "real"),
    **dict.fromkeys(("poisson", "negative_binomial", "tweedie"), "counts"),
    "gamma": "positive",
    "binomial": "shares",
    "multinomial": "three",
}
SMOOTH = [name for name in KIND if LOSSES[name].smooth]
PENALTIES: list[dict[str, object]] = [
    {"regularizer": "l2"},
    {"regularizer": "l1", "constraint": "nonnegative"},
    {"regularizer": "elastic_net", "l1_ratio": 0.3, "constraint": "box:-0.3,0.4"},
    {"regularizer": "l2", "constraint": "ball:0.5"},
]


@dataclass(frozen=True)
class Proof:
    """What stands for a proof of the solver: the gradient, and the gap that the rounds have proved."""

    objective: float
    gap: float
    gap_absolute: float
    dual: np.ndarray
    claim: str = "certified"
    asked: float = 1e-7
    within: Any = None

    @property
    def bound(self) -> float:
        return self.objective - self.gap_absolute


@pytest.fixture(autouse=True)
def proved(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = fit.run_rounds

    def rounds(solver: Any, *rest: Any) -> Any:
        found, problem, engine = inner(solver, *rest), solver.problem, Engine(1)
        if found.proof is None and problem.convex and not solver.private:
            z = problem.offset + np.repeat(np.atleast_1d(found.intercept), problem.n_samples)
            for block, x in zip(problem.blocks, found.weights, strict=True):
                z = z + np.concatenate([block.product(np.ascontiguousarray(one), engine) for one in np.atleast_2d(x.T)])
            u = np.empty_like(z)
            problem.loss.evaluate(z, problem.y, problem.weight, u, engine)
            last = found.record
            found.proof = Proof(last.objective, last.gap, last.gap_absolute, u, asked=solver.options.gap)
        return found

    monkeypatch.setattr(fit, "run_rounds", rounds)


def write_data(path: Path, kind: str = "classes", n: int = 90, shift: float = 0.0, **labels: Any) -> Path:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 5))
    y = TARGETS[kind](rng, X @ [1.0, -1.0, 0.5, 0.3, 0.0])
    X[:, 0] += shift
    with create_partition(path, task="classification" if kind in ("classes", "three") else "regression") as whole:
        whole.party("near", n_features=3, kind="dense").append(X[:, :3])
        whole.party("far", n_features=2).append(np.where(abs(X[:, 3:]) > 0.5, X[:, 3:], 0.0))
        names = {"classes": ("no", "yes"), "three": ("a", "b", "c")}.get(kind)
        whole.labels(classes=names).append(y, **labels)
    return path


def train(tmp_path: Path, *options: object, kind: str = "classes", gap: float = 1e-7, **labels: Any) -> Path:
    data = write_data(tmp_path / "d.parts", kind, **labels)
    out = tmp_path / "run"
    assert run("train", data, "-o", out, "-q", "--lambda", 0.02, "--gap", gap, "--force", *options) == 0
    return out


def holds(out: Path, *more: object) -> bool:
    code = run("verify", out, *more)
    assert code in (0, 7)
    return code == 0


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: "-".join(map(str, p.values())))
@pytest.mark.parametrize("loss", SMOOTH)
def test_every_loss(tmp_path: Path, loss: str, penalty: dict[str, object]) -> None:
    weight = np.random.default_rng(5).random(90) + 0.1
    extra = {} if loss == "multinomial" else {"offset": 0.1 * weight}
    out = train(tmp_path, "--loss", loss, *in_file(**penalty), kind=KIND[loss], sample_weight=weight, **extra)
    found = verify_run(out)
    assert found.holds, found.line
    written = result_of(out)["certificate"]
    assert found.objective == pytest.approx(written["objective"], rel=1e-12)
    assert found.gap is not None
    assert found.gap <= 1e-7
    assert verify_run(out, digits=40).gap_absolute == pytest.approx(found.gap_absolute, rel=1e-2, abs=1e-12)
