"""Class weights, warm starts and early stopping of runs on disk."""

import json
import signal
from typing import Any

import numpy as np
import pytest
from fastadmm import make_problem
from fastadmm.errors import InputError
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from run_tools import (
    CrashAfter,
    SignalAfter,
    assert_same_run,
    logged,
    result_of,
    run,
    within,
    write_blocks,
    write_problem,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    write_problem(folder / "a.parts", n=240, seed=3)
    write_problem(folder / "v.parts", n=120, seed=4)
    return folder


def train(data, out, display=None, **keys):
    return start_run(make_config({"data": str(data / "a.parts"), **keys}), out, display=display)


def test_class_weights(data, tmp_path, capsys):
    train(data, tmp_path / "run", class_weight={"yes": 3.0}, **{"lambda": 0.01})
    partition = open_partition(data / "a.parts")
    blocks = [party.load() for party in partition.parties]
    weight = np.where(partition.labels.y == 1.0, 3.0, 1.0)
    problem = make_problem(blocks, partition.labels.y, lam=0.01, sample_weight=weight)
    from fastadmm import solve

    expected = solve(problem)
    model = open_model(tmp_path / "run")
    for party, weights in zip(model.parties, expected.weights):
        np.testing.assert_array_equal(party.weights, weights)
    # Class weights of the command line.
    assert run("train", data / "a.parts", "-o", tmp_path / "b", "--set", "class_weight=balanced", "-q") == 0
    assert 'class_weight = "balanced"' in (tmp_path / "b" / "run.toml").read_text(encoding="utf-8")
    assert run("train", data / "a.parts", "-o", tmp_path / "c", "--set", "class_weight={maybe=2}", "-q") == 5
    assert "key 'class_weight': unknown class 'maybe'; the classes are 'no', 'yes'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_run_begins_at_another_model_and_says_so(data, tmp_path):
    cold = train(data, tmp_path / "cold", directions="both", **{"lambda": 0.01})
    warm = train(
        data, tmp_path / "warm", warm_start=str(tmp_path / "cold"), directions="both", **{"lambda": 0.009}
    )
    fresh = train(data, tmp_path / "fresh", directions="both", **{"lambda": 0.009})
    assert warm["status"] == "converged"
    assert warm["rounds"] < cold["rounds"]
    assert abs(warm["objective"] - fresh["objective"]) <= 1e-6 * fresh["objective"]
    # The same once more, from its own configuration, and after an interruption.
    given = {"warm_start": str(tmp_path / "cold"), "lambda": 0.009, "directions": "both"}
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "killed", CrashAfter(1), **given)
    resume_run(tmp_path / "killed")
    assert_same_run(tmp_path / "warm", tmp_path / "killed")
    # Another start is noticed.
    train(data, tmp_path / "one", **{"lambda": 0.01})
    more = {"lambda": 0.001, "history": 2}
    train(data, tmp_path / "two", SignalAfter(1), warm_start=str(tmp_path / "one"), **more)
    start_run(make_config({"data": str(data / "a.parts"), "lambda": 0.1}), tmp_path / "one", force=True)
    with pytest.raises(InputError, match="the model to start at is not what"):
        resume_run(tmp_path / "two")


def test_a_start_with_other_columns_or_classes_is_refused(data, tmp_path):
    rng = np.random.default_rng(0)
    train(data, tmp_path / "run")
    write_problem(tmp_path / "wide.parts", n=100, widths=(4, 7, 3))
    write_problem(tmp_path / "two.parts", n=100, widths=(4, 6))
    write_blocks(
        tmp_path / "r.parts",
        [rng.normal(size=(50, w)) for w in (4, 6, 3)],
        rng.normal(size=50),
        task="regression",
    )
    for name, message in (
        ("wide", "other features of"),
        ("two", "a model of the parties"),
        ("r", "other classes"),
    ):
        with pytest.raises(InputError, match=message):
            start_run(
                make_config({"data": str(tmp_path / f"{name}.parts"), "warm_start": str(tmp_path / "run")}),
                tmp_path / "no",
            )


@pytest.mark.representatives(1)
@pytest.mark.parametrize("source", ["share", "partition"])
def test_early_stopping_and_its_resumption(data, tmp_path, source):
    validation: Any = 0.3 if source == "share" else str(data / "v.parts")
    keys = {"lambda": 1e-7, "validation": validation, "patience": 3, "seed": 2}
    result = train(data, tmp_path / "run", **keys)
    values = [line["validation"] for line in logged(tmp_path / "run")]
    assert result["status"] == "early_stopped"
    assert result["kept_round"] == int(np.argmin(values)) + 1 == result["rounds"] - 3
    assert result["validation"] == min(values)
    kept = logged(tmp_path / "run")[result["kept_round"] - 1]
    assert result["objective"] == pytest.approx(kept["objective"], rel=1e-6)  # of messages, which are rounded
    assert open_model(tmp_path / "run").certificate["rounds"] == result["kept_round"]
    for round_ in (1, result["kept_round"] + 1):
        train(data, tmp_path / f"s{round_}", SignalAfter(round_, signal.SIGTERM), **keys)
        assert result_of(tmp_path / f"s{round_}")["status"] == "interrupted"
        resume_run(tmp_path / f"s{round_}")
        assert_same_run(tmp_path / "run", tmp_path / f"s{round_}")
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "k", CrashAfter(4), checkpoint_rounds=1, **keys)
    resume_run(tmp_path / "k")
    assert_same_run(tmp_path / "run", tmp_path / "k")
    assert run("resume", tmp_path / "k", "-q") == 0


def test_the_kept_model_is_the_better_round_s(data, tmp_path):
    """On a partition of its own the value is what evaluating the model gives."""
    train(
        data, tmp_path / "run", validation=str(data / "v.parts"), validation_metric="auc", **{"lambda": 1e-7}
    )
    assert run("evaluate", tmp_path / "run", data / "v.parts", "--json") == 0
    evaluated = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["metrics"]
    assert result_of(tmp_path / "run")["validation"] == pytest.approx(evaluated["auc"], abs=1e-12)
    # A finished run with a better round before keeps that.
    tmp_path = within(tmp_path)
    keys = {"lambda": 1e-5, "validation": 0.3, "patience": 1000}
    result = train(data, tmp_path / "run", **keys)
    best = min(logged(tmp_path / "run"), key=lambda line: line["validation"])
    assert result["kept_round"] == best["round"]
    assert result["status"] == ("converged" if best["round"] == result["rounds"] else "early_stopped")
    # A share too small to stop by is refused.
    tmp_path = within(tmp_path)
    with pytest.raises(InputError, match="cannot be parted") as caught:
        train(data, tmp_path / "no", validation=0.001)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "no").exists()
