"""Training on answers: exact at infinite epsilon, as printed, charged once, resumed bit for bit."""

from __future__ import annotations

import json
import math
import shutil
import signal

import numpy as np
import pytest
from fastadmm.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, InputError, PrivacyBudgetError
from fastadmm.owners.collection import open_owners
from fastadmm.owners.learner import Learner
from fastadmm.owners.owner_file import OwnerWriter
from fastadmm.owners.run import resume_owner_run, start_owner_run
from fastadmm.owners.settings import make_settings
from fastadmm.owners.setup import make_setup

from owners_data import write_owners
from run_tools import result_of, run, start, wait_for


def settings_of(path, **options):
    return make_settings({"data": str(path), **options})


def plain_descent(parts, loss, lam, theta_max, rounds, step, average=None):
    """Projected (sub)gradient descent on all rows at once, in NumPy; iterates from the first."""
    X = np.concatenate([np.column_stack([X, np.ones(len(X))]) for X, _ in parts])
    y = np.concatenate([y for _, y in parts])
    theta, thetas = np.zeros(X.shape[1]), []
    for k in range(1, rounds + 1):
        thetas.append(theta)
        z = X @ theta
        slope = {
            "squared": lambda z=z: z - y,
            "hinge": lambda z=z: np.where(y * z < 1, -y, 0.0),
            "logistic": lambda z=z: -y / (1 + np.exp(y * z)),
        }[loss]()
        theta = np.clip(theta - step(k) * (X.T @ slope / len(y) + lam * theta), -theta_max, theta_max)
    return [*thetas, theta]


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_infinite_epsilon_is_plain_projected_descent(tmp_path, loss):
    path, parts = write_owners(tmp_path / "o", task="regression" if loss == "squared" else "classification")
    result = start_owner_run(
        settings_of(
            path,
            epsilon="inf",
            loss=loss,
            method="constant",
            step=0.05,
            rounds=30,
            theta_max=0.3,
            **{"lambda": 0.1},
        ),
        tmp_path / "run",
    )
    expected = plain_descent(parts, loss, 0.1, 0.3, 30, lambda k: 0.05)[-1]
    assert result["parameters"] == pytest.approx(expected, abs=1e-12)
    assert not result["statement"]["claimed"]


def test_bounded_features_give_the_same_with_and_without_moments(tmp_path):
    path, parts = write_owners(tmp_path / "o", task="regression")
    options = {"epsilon": "inf", "bound": "features:2", "target_bound": 1.5, "theta_max": 5.0, "rounds": 10}
    setup = make_setup(settings_of(path, **options), open_owners(path), Engine(1))
    scaled = []
    for X, y in parts:
        factor = np.minimum(1, 2 / np.abs(X).sum(axis=1))
        scaled.append((X * factor[:, None], np.clip(y, -1.5, 1.5)))
    learner = setup.learner()
    for _ in range(10):
        assert setup.owners[0].uses_moments
        direct = sum(
            owner._piece(next(owner.rows.pieces())[0], owner.rows.y, learner.theta) for owner in setup.owners
        )
        answer = setup.weights @ np.stack([owner.answer(learner.theta) for owner in setup.owners])
        assert answer == pytest.approx(direct / setup.n_samples, abs=1e-10)
        learner.receive(answer)
    expected = plain_descent(scaled, "squared", 0.0, 5.0, 10, lambda k: setup.step)[-1]
    assert learner.theta == pytest.approx(expected, abs=1e-10)
    everything = np.concatenate([np.column_stack([X, np.ones(len(X))]) for X, _ in scaled])
    targets = np.concatenate([y for _, y in scaled])
    assert setup.objective(expected) == pytest.approx(0.5 * np.mean((everything @ expected - targets) ** 2))
    # the public smoothness is a bound on the true one
    assert setup.smoothness >= np.linalg.eigvalsh(everything.T @ everything / len(targets))[-1]


def test_algorithms_are_as_printed():
    rng = np.random.default_rng(0)
    T, answers = 12, rng.normal(size=(12, 3))
    one = Learner("algorithm1", 3, T, step=5.0, lam=0.3, theta_max=0.01)
    two = Learner("algorithm2", 3, T, step=0.7, lam=0.3, theta_max=0.4)
    assert one.queries == two.queries == T - 1
    theta1 = theta2 = average = np.zeros(3)
    for k in range(1, T):
        one.receive(answers[k])
        two.receive(answers[k])
        theta1 = theta1 - 5.0 / (T**2 * k) * (0.3 * theta1 + answers[k])
        root = math.sqrt(T)
        average = (k - 1) / (1 / root + k) * average + (1 / root + 1) / (1 / root + k) * theta2
        theta2 = np.clip(theta2 - 0.7 / math.sqrt(k) * (0.3 * theta2 + answers[k]), -0.4, 0.4)
        assert one.model == pytest.approx(theta1, abs=1e-14)
        assert two.model == pytest.approx(average, abs=1e-14)
        assert two.theta == pytest.approx(theta2, abs=1e-14)


def test_strongly_convex_average_weighs_by_k():
    learner = Learner("strongly_convex", 1, 5, step=0.5)
    seen = []
    for k in range(5):
        seen.append(learner.theta[0])
        learner.receive(np.array([1.0 if k % 2 else -2.0]))
    expected = sum(k * v for k, v in enumerate(seen, start=1)) / 15
    assert learner.model[0] == pytest.approx(expected)


def test_step_of_theorem_two_does_not_move():
    """The counter-example to the paper's Theorem 2: no noise, f = |theta - 1|^2 / 2."""
    for rounds, least in ((10, 0.94), (100, 0.998), (1000, 0.9999)):
        learner = Learner("algorithm1", 1, rounds, step=1.0)
        for _ in range(learner.queries):
            learner.receive(learner.theta - 1.0)
        gap = float((learner.theta[0] - 1.0) ** 2)
        assert gap > least  # the theorem says: to 0 as T grows


def test_adaptive_step_beats_a_timid_one_without_noise():
    curvature = np.array([1.0, 0.1])
    gaps = {}
    for method in ("constant", "adaptive"):
        learner = Learner(method, 2, 40, step=0.05)
        for _ in range(40):
            learner.receive(curvature * (learner.theta - 1.0))
        gaps[method] = float(curvature @ (learner.theta - 1.0) ** 2)
    assert gaps["adaptive"] < 0.1 * gaps["constant"]


PRIVATE = {"epsilon": "1,2", "bound": "clip:1", "step": 0.05, "rounds": 8, "loss": "logistic"}


def test_all_rounds_are_charged_before_the_first_answer(tmp_path, monkeypatch):
    path, _ = write_owners(tmp_path / "o")
    from fastadmm.owners import owner as module
    from fastadmm.privacy.ledger import Ledger

    original, seen = module.Owner.answer, []

    def watched(self, theta):
        seen.append([c.pure for c in Ledger(tmp_path / "run" / "ledger.jsonl").charges])
        return original(self, theta)

    monkeypatch.setattr(module.Owner, "answer", watched)
    start_owner_run(settings_of(path, **PRIVATE), tmp_path / "run")
    assert seen == [[1.0, 2.0]] * 16


def test_runs_that_share_a_ledger_share_a_budget(tmp_path, capsys):
    path, _ = write_owners(tmp_path / "o")
    options = {**PRIVATE, "ledger": str(tmp_path / "ledger")}
    start_owner_run(settings_of(path, **options), tmp_path / "one")
    with pytest.raises(PrivacyBudgetError, match="nothing was sent"):
        start_owner_run(settings_of(path, **options), tmp_path / "two")
    assert not (tmp_path / "two").exists()
    start_owner_run(settings_of(path, **options, budget="2,4"), tmp_path / "three")


def test_a_resumed_run_uses_stored_answers_and_charges_once(tmp_path):
    path, _ = write_owners(tmp_path / "o")
    whole = start_owner_run(settings_of(path, **PRIVATE), tmp_path / "run")
    other = tmp_path / "cut"
    shutil.copytree(tmp_path / "run", other)
    # killed in round 6
    for k in (6, 7, 8):
        (other / "answers" / f"round-{k:06d}.npy").unlink()
    (other / "result.json").unlink()
    kept = [(other / "answers" / f"round-{k:06d}.npy").read_bytes() for k in range(1, 6)]
    resumed = resume_owner_run(other)
    assert kept == [(other / "answers" / f"round-{k:06d}.npy").read_bytes() for k in range(1, 6)]
    # charged once: a header and two owners
    assert len((other / "ledger.jsonl").read_text().splitlines()) == 3
    logged = [json.loads(line)["round"] for line in (other / "rounds.jsonl").read_text().splitlines()]
    assert logged == list(range(1, 9))
    assert resumed["rounds"] == 8
    # with all answers there, nothing is drawn and the result is bit-identical
    (tmp_path / "run" / "result.json").unlink()
    assert resume_owner_run(tmp_path / "run")["parameters"] == whole["parameters"]
    # and other data are refused
    shutil.rmtree(path)
    write_owners(path, seed=9)
    (other / "result.json").unlink()
    with pytest.raises(InputError, match="not the data"):
        resume_owner_run(other)


def test_interrupted_process_resumes(tmp_path):
    path, _ = write_owners(tmp_path / "o")
    out = tmp_path / "run"
    process = start(
        "owners", "train", path, "--epsilon", "1", "--bound", "clip:1", "--step", "0.01", "-o", out,
        "--rounds", "100000",
    )  # fmt: skip
    assert wait_for(
        lambda: (out / "rounds.jsonl").exists() and (out / "rounds.jsonl").stat().st_size > 2000, process
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "owners resume" in err
    done = result_of(out)["rounds"]
    assert 0 < done < 100000
    assert len(list((out / "answers").iterdir())) == done


def test_statement_and_kappa(tmp_path):
    path, _ = write_owners(tmp_path / "o", kappa=2)
    setup = make_setup(settings_of(path, **PRIVATE), open_owners(path), Engine(1))
    assert [owner.epsilon for owner in setup.owners] == [0.5, 1.0]
    result = start_owner_run(settings_of(path, **PRIVATE), tmp_path / "run")
    statement = result["statement"]
    assert statement["claimed"]
    assert statement["kappa"] == 2
    assert [o["epsilon"] for o in statement["owners"]] == [1.0, 2.0]
    assert statement["bound"]["enforced"]
    # nothing is claimed where nothing is enforced
    assumed = start_owner_run(settings_of(path, **{**PRIVATE, "bound": "assumed:1"}), tmp_path / "assumed")
    assert not assumed["statement"]["claimed"]
    assert [o["epsilon"] for o in assumed["statement"]["owners"]] == [None, None]
    assert "No epsilon is claimed" in assumed["statement"]["sentence"]


def test_weights_and_learner(tmp_path):
    path, _ = write_owners(tmp_path / "o", sizes=(30, 60))
    data = open_owners(path)
    by_budget = make_setup(settings_of(path, **{**PRIVATE, "weights": "budget"}), data, Engine(1))
    ratio = (30 * 1.0) ** 2 / (60 * 2.0) ** 2
    assert by_budget.weights[0] / by_budget.weights[1] == pytest.approx(ratio, rel=1e-3)
    own = make_setup(settings_of(path, **{**PRIVATE, "learner": "b"}), data, Engine(1))
    assert own.owners[1].answers.name == "none"
    assert own.weights.tolist() == [1 / 3, 2 / 3]
    b = 2 * 8 / (30 * 1.0)
    assert own.noise_variance == pytest.approx(own.n_parameters * 2 * (b / 3) ** 2, rel=1e-6)
    with pytest.raises(ConfigError, match="use size"):
        make_setup(settings_of(path, **{**PRIVATE, "learner": "b", "weights": "budget"}), data, Engine(1))


@pytest.mark.slow  # dp-accounting takes seconds to import
def test_batches_are_accounted(tmp_path):
    pytest.importorskip("dp_accounting")
    path, _ = write_owners(tmp_path / "o", sizes=(2000, 2000))
    options = {**PRIVATE, "mechanism": "gaussian", "delta": 1e-5, "rounds": 40}
    data = open_owners(path)
    full = make_setup(settings_of(path, **options), data, Engine(1))
    part = make_setup(settings_of(path, **{**options, "batch": 0.05}), data, Engine(1))
    # noise on the sum falls with the batch; never above what leaving the sampling out would cost
    assert part.owners[0].answers.sigma < 0.5 * full.owners[0].answers.sigma
    rng = np.random.default_rng(0)
    theta = rng.normal(size=part.n_parameters)
    owner = part.owners[0]
    exact = owner.total(theta) / owner.n_samples
    answers = np.stack([owner.answer(theta) for _ in range(400)])
    spread = answers.std(axis=0) / math.sqrt(400)
    assert (np.abs(answers.mean(axis=0) - exact) < 5 * spread).all()


@pytest.mark.parametrize(
    ("options", "code", "match"),
    [
        ({"epsilon": "0"}, 5, "not positive"),
        ({"epsilon": "-1,1"}, 5, "-1 of owner 'a' is not positive"),
        ({"epsilon": "nan"}, 5, "not positive"),
        ({"epsilon": "1,1,1"}, 5, "3 budgets for 2 owners"),
        ({"epsilon": "much"}, 5, "not a list of numbers"),
        ({"rounds": 0}, 5, "at least one"),
        ({"method": "algorithm2", "rounds": 1}, 5, "asks rounds - 1 times"),
        ({"bound": None}, 5, "gradients are unbounded"),
        ({"bound": "clip:0"}, 5, "not clip:XI"),
        ({"loss": "squared", "bound": "features:1"}, 5, "bound on the targets"),
        (
            {"loss": "squared", "bound": "features:1", "target-bound": 1, "theta-max": "inf"},
            5,
            "theta_max = inf",
        ),
        ({"mechanism": "gaussian"}, 5, "need a delta"),
        ({"mechanism": "gaussian", "delta": 0.5}, 5, "at 1/n or above"),
        ({"mechanism": "magic"}, 5, "not one of laplace, gaussian"),
        ({"step": None}, 5, "needs the curvature"),
        ({"method": "algorithm1", "step": None}, 5, "leaves rho"),
        ({"batch": 0.5}, 5, "Gaussian answers only"),
        ({"learner": "z"}, 5, "no owner"),
        ({"method": "newton"}, 5, "not one of auto"),
        ({"loss": "huber"}, 5, "unknown loss"),
    ],
)
def test_bad_settings_end_with_one_line(tmp_path, capsys, options, code, match):
    path, _ = write_owners(tmp_path / "o")
    arguments = []
    for key, value in {**PRIVATE, **options}.items():
        if value is not None:
            arguments += [f"--{key}", value]
    assert run("owners", "train", path, "-o", tmp_path / "run", *arguments) == code
    err = capsys.readouterr().err
    assert match in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_labels_that_are_not_classes(tmp_path, capsys):
    path, _ = write_owners(tmp_path / "o", task="regression")
    assert run("owners", "train", path, "--loss", "hinge", "--epsilon", "1", "-o", tmp_path / "run") == 5
    assert "needs labels of two classes (-1 and 1)" in capsys.readouterr().err


def test_query_outside_the_box_is_refused(tmp_path):
    path, _ = write_owners(tmp_path / "o")
    setup = make_setup(
        settings_of(path, **{**PRIVATE, "bound": "features:1", "theta_max": 1.0}),
        open_owners(path),
        Engine(1),
    )
    with pytest.raises(InputError, match="leaves the box"):
        setup.owners[0].answer(np.full(setup.n_parameters, 2.0))
    with pytest.raises(InputError, match="finite numbers"):
        setup.owners[0].answer(np.full(setup.n_parameters, np.nan))


def test_owners_with_other_features_are_refused(tmp_path):
    path, _ = write_owners(tmp_path / "o")
    with OwnerWriter(
        path / "b.h5", name="b", n_features=2, kind="dense", task="classification", feature_names=["u", "v"],
        classes=("no", "yes"),
    ) as writer:  # fmt: skip
        writer.append(np.ones((2, 2)), np.ones(2))
    with pytest.raises(FastadmmError, match="features differ"):
        open_owners(path)


def test_model_predicts(tmp_path, capsys):
    path, parts = write_owners(tmp_path / "o", kind="csr")
    start_owner_run(
        settings_of(path, epsilon="inf", method="constant", step=0.2, rounds=50), tmp_path / "run"
    )
    X = np.concatenate([X for X, _ in parts])
    y = np.concatenate([y for _, y in parts])
    np.savez(tmp_path / "t.npz", X=X, y=np.where(y > 0, 1, 0))
    assert (
        run("convert", tmp_path / "t.npz", "--parties", 1, "--names", "features", "-o", tmp_path / "t.parts")
        == 0
    )
    from fastadmm.runs.predict import predict_partition

    theta = result_of(tmp_path / "run")["parameters"]
    predictions = predict_partition(tmp_path / "run", tmp_path / "t.parts")
    assert predictions.score == pytest.approx(X @ theta[:-1] + theta[-1])
