"""Training on answers: exact at infinite epsilon, as printed, charged once, resumed bit for bit."""

import json
import math
import re
import shutil

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, ExitCode, FastadmmError, InputError, PrivacyBudgetError
from fastadmm.owners.learner import Learner
from fastadmm.owners.run import resume_owner_run, start_owner_run
from fastadmm.owners.setup import Owner, make_setup
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.releases import Releases
from fastadmm.runs.folder import RoundLog
from fastadmm.settings.owners import make_settings
from fastadmm.store.owner_file import OwnerWriter, open_owners

from owners_data import write_owners
from run_tools import Killed, refused, refuses, result_of, run, within


def settings_of(path, **options):
    return make_settings({"data": str(path), **options})


@pytest.fixture
def path(tmp_path):
    """Two owners of rows with two classes."""
    return write_owners(tmp_path / "o")[0]


def options_of(settings):
    """As the command line has them."""
    return [word for key, value in settings.items() if value is not None for word in (f"--{key}", value)]


def plain_descent(parts, loss, lam, theta_max, rounds, step):
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
    options = {"epsilon": "inf", "loss": loss, "method": "constant", "step": 0.05, "rounds": 30}
    result = start_owner_run(settings_of(path, **options, theta_max=0.3, **{"lambda": 0.1}), tmp_path / "run")
    expected = plain_descent(parts, loss, 0.1, 0.3, 30, lambda k: 0.05)[-1]
    assert result["parameters"] == pytest.approx(expected, abs=1e-12)
    assert not result["statement"]["claimed"]


def test_bounded_features_are_those_of_scaled_rows(tmp_path):
    path, parts = write_owners(tmp_path / "o", task="regression")
    options = {"epsilon": "inf", "bound": "features:2", "target_bound": 1.5, "theta_max": 5.0, "rounds": 10}
    setup = make_setup(settings_of(path, **options), open_owners(path), Engine(1))
    scaled = []
    for X, y in parts:
        factor = np.minimum(1, 2 / np.abs(X).sum(axis=1))
        scaled.append((X * factor[:, None], np.clip(y, -1.5, 1.5)))
    learner = setup.learner()
    for _ in range(10):
        learner.receive(setup.weights @ np.stack([owner.answer(learner.theta) for owner in setup.owners]))
    expected = plain_descent(scaled, "squared", 0.0, 5.0, 10, lambda k: setup.step)[-1]
    assert learner.theta == pytest.approx(expected, abs=1e-10)
    everything = np.concatenate([np.column_stack([X, np.ones(len(X))]) for X, _ in scaled])
    # the public smoothness is a bound on the true one
    assert 1.0 / setup.step >= np.linalg.eigvalsh(everything.T @ everything / len(everything))[-1]


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
    # Strongly convex average weighs by k.
    learner = Learner("strongly_convex", 1, 5, step=0.5)
    seen = []
    for k in range(5):
        seen.append(learner.theta[0])
        learner.receive(np.array([1.0 if k % 2 else -2.0]))
    expected = sum(k * v for k, v in enumerate(seen, start=1)) / 15
    assert learner.model[0] == pytest.approx(expected)
    # Adaptive step beats a timid one without noise.
    curvature = np.array([1.0, 0.1])
    gaps = {}
    for method in ("constant", "adaptive"):
        learner = Learner(method, 2, 40, step=0.05)
        for _ in range(40):
            learner.receive(curvature * (learner.theta - 1.0))
        gaps[method] = float(curvature @ (learner.theta - 1.0) ** 2)
    assert gaps["adaptive"] < 0.1 * gaps["constant"]


PRIVATE = {"epsilon": "1,2", "bound": "clip:1", "step": 0.05, "rounds": 8, "loss": "logistic"}


def test_all_rounds_are_charged_before_the_first_answer(path, tmp_path, monkeypatch):
    original, seen = Owner.answer, []

    def watched(self, theta):
        seen.append([c.pure for c in Ledger(tmp_path / "run" / "ledger.jsonl").charges if c.pure])
        return original(self, theta)

    monkeypatch.setattr(Owner, "answer", watched)
    start_owner_run(settings_of(path, **PRIVATE), tmp_path / "run")
    assert seen == [[1.0, 2.0]] * 16


def killed_in_round(monkeypatch, path, out, number, place="answer", **options):
    """A run that is killed in a round: while owners answer, or with the answers in its hand."""
    original, calls = (Owner.answer, Releases._use), []

    def answer(self, theta):
        calls.append(theta)
        if place == "answer" and len(calls) > 2 * (number - 1):
            raise Killed
        return original[0](self, theta)

    def use(self, pending, path, draw, payment):
        if place == "use" and path.name == f"round-{number:06d}.npz":
            raise Killed
        return original[1](self, pending, path, draw, payment)

    with monkeypatch.context() as patched:
        patched.setattr(Owner, "answer", answer)
        patched.setattr(Releases, "_use", use)
        with pytest.raises(Killed):
            start_owner_run(settings_of(path, **{**PRIVATE, **options}), out)


def costs(run):
    return [c.pure for c in Ledger(run / "ledger.jsonl").charges if c.pure]


def files(run):
    return {path.name: path.read_bytes() for path in (run / "answers").iterdir()}


@pytest.mark.parametrize("place", ["answer", "use"])
def test_a_resumed_run_uses_stored_answers_and_charges_once(path, tmp_path, monkeypatch, place):
    out = tmp_path / "run"
    killed_in_round(monkeypatch, path, out, 6, place)
    kept = files(out)
    assert len(kept) == (5 if place == "answer" else 6)
    resumed = resume_owner_run(out)
    names = sorted(files(out))
    assert names == [f"round-{k:06d}.npz" for k in range(1, 9)]
    # also what a kill had kept from its name
    assert set(kept.values()) <= set(files(out).values())
    assert costs(out) == [1.0, 2.0]
    logged = [json.loads(line)["round"] for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert logged == list(range(1, 9))
    assert resumed["rounds"] == 8
    # with all answers there, nothing is drawn and the result is bit-identical
    (out / "result.json").unlink()
    assert resume_owner_run(out)["parameters"] == resumed["parameters"]
    assert costs(out) == [1.0, 2.0]
    # and other data are refused
    shutil.rmtree(path)
    write_owners(path, seed=9)
    (out / "result.json").unlink()
    refuses(InputError, "not the data", resume_owner_run, out)


@pytest.mark.parametrize("lost", [[3], [8], list(range(1, 9))])
def test_lost_answers_are_not_drawn_again(path, tmp_path, capsys, lost):
    out = tmp_path / "run"
    start_owner_run(settings_of(path, **PRIVATE, budget="9,9"), out)
    for k in lost:
        (out / "answers" / f"round-{k:06d}.npz").unlink()
    (out / "result.json").unlink()
    if len(lost) == 8:
        (out / "answers").rmdir()
    before = [*(out / "answers").glob("*")]
    error = refused(capsys, ExitCode.PRIVACY, "owners", "resume", out, "-q")
    assert f"answers to query {lost[0]}: was answered before, and that answer is lost" in error
    assert [*(out / "answers").glob("*")] == before
    assert costs(out) == [1.0, 2.0]


def test_copies_and_answers_of_other_rounds_do_not_go_on(path, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    start_owner_run(settings_of(path, **PRIVATE), out)
    (out / "result.json").unlink()
    shutil.copy(out / "answers" / "round-000004.npz", out / "answers" / "round-000003.npz")
    assert "answers another target" in refused(capsys, ExitCode.FORMAT, "owners", "resume", out, "-q")
    # Settings of an older version may say a whole batch.
    assert settings_of(path, **PRIVATE, batch=1.0) == settings_of(path, **PRIVATE)
    refuses(ConfigError, "key 'batch': answers are of all records", settings_of, path, **PRIVATE, batch=0.5)
    # Of two copies of a run one goes on.
    options = {"ledger": str(tmp_path / "ledger.jsonl"), "budget": "3,3"}
    killed_in_round(monkeypatch, path, tmp_path / "one", 5, **options)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    resume_owner_run(tmp_path / "one")
    refuses(PrivacyBudgetError, "answers to query 5: was answered before", resume_owner_run, tmp_path / "two")
    assert sum(c.pure for c in Ledger(tmp_path / "ledger.jsonl").charges) == 3.0


def test_answers_of_older_versions_are_refused(path, tmp_path, capsys):
    out = tmp_path / "run"
    start_owner_run(settings_of(path, **PRIVATE), out)
    (out / "answers" / "round-000002.npz").rename(out / "answers" / "round-000002.npy")
    assert run("owners", "resume", out, "-q") == ExitCode.OK  # it is over
    (out / "result.json").unlink()
    error = refused(capsys, ExitCode.CONFIG, "owners", "resume", out, "-q")
    assert "round-000002.npy: answers of an older version; start a new run" in error


def test_a_full_disk_is_one_line(path, tmp_path, capsys, monkeypatch):
    out, append = tmp_path / "run", RoundLog.append

    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def close(self):
            raise OSError(28, "No space left on device")

    def filling(self, record):
        if record["round"] == 4:
            self._file.close()
            self._file = Full()
        append(self, record)

    arguments = ["owners", "train", path, "-o", out, "-q", *options_of(PRIVATE)]
    with monkeypatch.context() as patched:
        patched.setattr(RoundLog, "append", filling)
        assert run(*arguments) == ExitCode.STORAGE
    error = capsys.readouterr().err
    assert "rounds.jsonl: cannot write: No space left on device" in error
    assert error.count("\n") == 1
    assert resume_owner_run(out)["rounds"] == 8
    assert costs(out) == [1.0, 2.0]


def test_what_a_run_logs(path, tmp_path):
    """Nothing that the data decide, other than through answers."""
    result = start_owner_run(settings_of(path, **PRIVATE), tmp_path / "run")
    assert result["statement"]["claimed"]
    logged = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert all(record.keys() == {"round", "step", "gradient_norm", "noise", "seconds"} for record in logged)
    # an unfinished run that logged the true objective
    (tmp_path / "run" / "result.json").unlink()
    settings = tmp_path / "run" / "owners-run.toml"
    text = re.sub(r'settings = "sha256.*', "", settings.read_text())  # as of older versions
    settings.write_text("objective = true\n" + text)
    refuses(ConfigError, "key 'objective' is of an older version", resume_owner_run, tmp_path / "run")


def test_everything_a_run_writes_follows_from_its_answers(tmp_path, monkeypatch):
    """Other data behind the same answers change no figure: nothing is computed from the data themselves."""
    first, _ = write_owners(tmp_path / "one", seed=0)
    second, _ = write_owners(tmp_path / "two", seed=5)
    rng = np.random.default_rng(0)
    answers = [rng.normal(size=5) for _ in range(16)]
    documents = []
    for path in (first, second):
        left = iter(answers)
        monkeypatch.setattr(Owner, "answer", lambda self, theta, left=left: next(left))
        out = tmp_path / f"run-{path.name}"
        result = start_owner_run(settings_of(path, **PRIVATE), out)
        rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        for record in rounds:
            del record["seconds"]
        documents.append((result, rounds, json.loads((out / "statement.json").read_text())))
    assert documents[0] == documents[1]


def test_weights_kappa_and_learners(tmp_path):
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
    exact = {**PRIVATE, "bound": None, "epsilon": "inf", "step": 0.1}
    statement = start_owner_run(settings_of(path, **exact), tmp_path / "exact")["statement"]
    assert (statement["claimed"], statement["bound"]["enforced"]) == (False, False)
    assert [o["epsilon"] for o in statement["owners"]] == [None, None]
    assert "No epsilon is claimed" in statement["sentence"]
    tmp_path = within(tmp_path)
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


def test_labels_that_are_not_classes(tmp_path, capsys):
    path, _ = write_owners(tmp_path / "o", task="regression")
    asked = ("owners", "train", path, "--loss", "hinge", "--epsilon", 1, "-o", tmp_path / "run")
    assert "needs labels of two classes (-1 and 1)" in refused(capsys, 5, *asked)


def test_queries_and_owners_that_do_not_fit(path, tmp_path):
    setup = make_setup(
        settings_of(path, **{**PRIVATE, "bound": "features:1", "theta_max": 1.0}),
        open_owners(path),
        Engine(1),
    )
    refuses(InputError, "leaves the box", setup.owners[0].answer, np.full(setup.n_parameters, 2.0))
    refuses(InputError, "finite numbers", setup.owners[0].answer, np.full(setup.n_parameters, np.nan))
    # Owners with other features are refused.
    with OwnerWriter(
        path / "b.h5", name="b", kind="dense", task="classification", feature_names=["u", "v"],
        classes=("no", "yes")
    ) as writer:  # fmt: skip
        writer.append(np.ones((2, 2)), np.ones(2))
    refuses(FastadmmError, "features differ", open_owners, path)


def test_model_predicts(tmp_path, capsys):
    path, parts = write_owners(tmp_path / "o", kind="csr")
    start_owner_run(
        settings_of(path, epsilon="inf", method="constant", step=0.2, rounds=50), tmp_path / "run"
    )
    X = np.concatenate([X for X, _ in parts])
    y = np.concatenate([y for _, y in parts])
    np.savez(tmp_path / "t.npz", X=X, y=np.where(y > 0, 1, 0))
    assert not run(
        "convert", tmp_path / "t.npz", "--parties", 1, "--names", "features", "-o", tmp_path / "t.parts"
    )
    from fastadmm.runs.predict import predict_partition

    theta = result_of(tmp_path / "run")["parameters"]
    predictions = predict_partition(tmp_path / "run", tmp_path / "t.parts")
    assert predictions.score == pytest.approx(X @ theta[:-1] + theta[-1])
