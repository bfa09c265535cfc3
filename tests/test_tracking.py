"""Runs in MLflow: what was logged is read back; private runs log nothing measured."""

import json
import math
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.privacy.published import round_numbers, settings_of
from fastadmm.solver.history import RoundRecord
from fastadmm.tracking import EXPERIMENT, uri_of

from run_tools import refused, result_of, run, write_problem


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    home = tmp_path_factory.mktemp("tracking")
    write_problem(home / "a.parts")
    write_problem(home / "t.parts", n=80, seed=9)
    return home


class Client:
    """What MLflow would be told, by run; its server may be down once a run has begun."""

    runs: dict[str, SimpleNamespace]
    down = False

    def __init__(self, tracking_uri):
        self.uri = tracking_uri

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment, run_name):
        if self.down:
            raise OSError("the disk\nis full")
        info = SimpleNamespace(run_id=str(len(self.runs)))
        self.runs[info.run_id] = SimpleNamespace(name=run_name, params={}, metrics={}, tags={}, status=None)
        return SimpleNamespace(info=info)

    def log_batch(self, run_id, params=(), metrics=(), tags=()):
        assert max(len(params), len(tags)) <= 100
        own = self.runs[run_id]
        own.params |= dict(params)
        own.tags |= dict(tags)
        own.metrics |= {(step, key): value for key, value, _, step in metrics}

    def set_terminated(self, run_id, status):
        self.runs[run_id].status = status


@pytest.fixture
def logged(monkeypatch):
    """The runs of an MLflow that is not needed."""
    for name in ("mlflow", "mlflow.tracking", "mlflow.entities"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name in ("Metric", "Param", "RunTag"):
        monkeypatch.setattr(sys.modules["mlflow.entities"], name, lambda *what: what, raising=False)
    monkeypatch.setattr(sys.modules["mlflow.tracking"], "MlflowClient", Client, raising=False)
    monkeypatch.setattr(Client, "runs", {}, raising=False)
    return Client.runs


def train(data, place, *options, target="mlflow=x", code=ExitCode.OK):
    arguments = ("train", data / "a.parts", "--test", data / "t.parts", "-o", place, "-q", "--log-to", target)
    assert run(*arguments, *options) == code


def rounds_of(place):
    return [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]


def check_log(place, params, metrics, tags):
    """That a log is what a run has: ``metrics`` by round and name."""
    for record in rounds_of(place):
        found = {key: value for (number, key), value in metrics.items() if number == record["round"]}
        for name in ("objective", "gap", "seconds"):
            assert record[name] is None or found[name] == record[name]
        for name, value in record["test"].items():
            assert found[f"test/{name}"] == value
        for m, norm in enumerate(record["weight_norms"], start=1):
            assert found[f"weight_norm/party-{m}"] == norm
    result = result_of(place)
    assert {number for number, _ in metrics} == set(range(result["rounds"] + 1))
    assert metrics[0, "final/objective"] == result["objective"]
    assert metrics[0, "final/test/auc"] == result["test"]["auc"]
    assert params["lambda"] == "0.0001"
    assert params["data"] == "a.parts"
    assert "epsilon = infinity" in tags["fastadmm.privacy.statement"]
    assert tags["fastadmm.status"] == result["status"]
    assert "sha256" not in str((params, metrics, tags))


def test_each_part_of_a_run_is_logged_once_it_has_ended(data, tmp_path, logged, capsys):
    place = tmp_path / "run"
    train(data, place, "--gap", 0, "--rounds", 3, code=7)
    assert run("resume", place, "-q", "--rounds", 5, "--log-to", "mlflow", "--log-to", "mlflow=y") == 7
    for own, rounds in zip(logged.values(), (3, 5, 5), strict=True):
        assert (own.name, own.status) == ("run", "FINISHED")
        assert max(number for number, _ in own.metrics) == rounds
    check_log(place, own.params, own.metrics, own.tags)
    assert not (place / "tracking.json").exists()


def test_an_interrupted_run_is_logged(data, tmp_path, logged, monkeypatch):
    monkeypatch.setattr("fastadmm.runs.fit.stop_on_signal", lambda: nullcontext(lambda: True))
    train(data, tmp_path / "run", code=130)
    assert [own.status for own in logged.values()] == ["KILLED"]


def test_a_log_that_fails_does_not_undo_a_run(data, tmp_path, logged, monkeypatch, capsys):
    monkeypatch.setattr(Client, "down", True)
    place = tmp_path / "run"
    assert run("train", data / "a.parts", "-o", place, "--log-to", "mlflow") == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "log-to" in line]
    assert said == [f"warning: log-to: mlflow: the disk is full; the run itself is in {place}"]
    assert (result_of(place)["status"], logged) == ("converged", {})


@pytest.mark.parametrize("options", [["fusion", "--epsilon", 1], ["message", "--epsilon", 2, "--rounds", 2]])
def test_of_a_private_run_nothing_measured_is_logged(data, tmp_path, logged, options):
    for name in ("run", "again"):
        train(data, tmp_path / name, "--privacy", *options)
        assert rounds_of(tmp_path / name)[0]["objective"] is not None  # the run itself knows it
    one, again = logged.values()
    for own in (one, again):
        assert own.metrics.keys() == {(0, "final/rounds")}
        assert own.params["privacy.mode"] == options[0]
        assert "fastadmm.privacy.epsilon" in own.tags
        assert "fastadmm.message" not in own.tags
        own.name = ""
    # Whatever is measured follows the noise, which another run draws anew: not a digit of it is logged.
    assert one == again
    assert result_of(tmp_path / "run")["objective"] != result_of(tmp_path / "again")["objective"]


def test_every_field_is_known():
    """A field that is added to the rounds is not published by accident: private runs publish none."""
    kept = RoundRecord(1, 0.5, 1.0, 0.1, 0.2, 3.0, 4.0, 5.0, 6.0, 7.0, [8.0], test={"auc": 0.9, "x": None})
    record = kept.to_json()
    assert round_numbers(record, ["bank"], private=True) == {}
    shown = round_numbers(record, ["bank"], private=False)
    assert shown["weight_norm/bank"] == 8.0
    assert shown["test/auc"] == 0.9
    assert "test/x" not in shown
    assert all(map(math.isfinite, shown.values()))
    # Settings hold no digests and no directories.
    config = {
        "data": "/secret/place/a.parts",
        "lambda": 1.0,
        "privacy": {"mode": "fusion"},
        "provenance": {"labels": "sha256:x", "content": {"bank": "sha256:y"}},
    }
    assert settings_of(config) == {"data": "a.parts", "lambda": 1.0, "privacy.mode": "fusion"}


def test_targets():
    assert uri_of("mlflow") == ""
    assert uri_of("mlflow=http://host:5000") == "http://host:5000"
    assert uri_of("mlflow=a=b") == "a=b"
    for text, said in (
        ("wandb", "choose mlflow"),
        ("mlflow=", "nothing behind the equals sign"),
        ("mlflow=https://me:secret@host", "MLFLOW_TRACKING_PASSWORD"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            uri_of(text)
        assert "secret" not in str(caught.value)


@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_round_log(data, tmp_path):
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    uri, place = f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "run"
    train(data, place, target=f"mlflow={uri}")
    client = tracking.MlflowClient(tracking_uri=uri)
    (own,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    every = (client.get_metric_history(own.info.run_id, key) for key in own.data.metrics)
    metrics = {(one.step, one.key): one.value for history in every for one in history}
    check_log(place, own.data.params, metrics, own.data.tags)
    assert (own.info.status, own.info.run_name) == ("FINISHED", "run")


def test_an_mlflow_server_that_is_down_is_one_line(data, tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    target = "mlflow=http://127.0.0.1:9"
    err = refused(capsys, 6, "train", data / "a.parts", "-o", tmp_path / "run", "-q", "--log-to", target)
    assert "log-to: mlflow:" in err
    assert not (tmp_path / "run").exists()
