"""Runs in MLflow: what was logged is read back; private runs log nothing measured."""

import json
import math
import signal

import pytest
from fastadmm.errors import ConfigError, StorageError
from fastadmm.privacy.published import round_numbers, settings_of
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.solver.history import RoundRecord
from fastadmm.tracking import display, tracked
from fastadmm.tracking.display import uri_of

from run_tools import CrashAfter, Notes, SignalAfter, assert_same_run, refused, result_of, run, write_problem


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    home = tmp_path_factory.mktemp("tracking")
    write_problem(home / "a.parts")
    write_problem(home / "t.parts", n=80, seed=9)
    return home


def a_config(data, **options):
    many = {} if "privacy" in options else {"directions": "both"}
    return make_config({"data": str(data / "a.parts"), "test": str(data / "t.parts"), **many, **options})


class Recorder:
    """What MLflow would be told, one JSON line each, in the file that its URI names."""

    def __init__(self, uri, name, run_id=None):
        self.uri = uri

    def _say(self, **told):
        with open(self.uri, "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")

    def begin(self, settings, privacy, first_round):
        self._say(settings=settings, privacy=privacy, first=first_round)

    def round(self, number, values):
        self._say(round=number, values=values)

    def flush(self): ...

    def end(self, status, values, texts):
        self._say(status=status, values=values, texts=texts)

    def state(self):
        return {"kind": "mlflow", "uri": self.uri, "run_id": "1"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log that needs no MLflow, and what names it."""
    monkeypatch.setattr(display, "MlflowTracker", Recorder)
    return tmp_path / "log.jsonl"


def told(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def objectives(log):
    """The objective of each round, the last that was said."""
    return {line["round"]: line["values"]["objective"] for line in told(log) if "round" in line}


def rounds_of(place):
    return [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]


def test_the_log_has_the_rounds(data, tmp_path, log):
    place = tmp_path / "run"
    with tracked(place, [f"mlflow={log}"]) as tracking:
        result = tracking.finish(start_run(a_config(data), place, display=tracking))
    begin, *rounds, end = told(log)
    for record, line in zip(rounds_of(place), rounds, strict=True):
        assert line["round"] == record["round"]
        for name in ("objective", "gap", "seconds"):
            assert record[name] is None or line["values"][name] == record[name]
        for name, value in record["test"].items():
            assert line["values"][f"test/{name}"] == value
        for m, norm in enumerate(record["weight_norms"], start=1):
            assert line["values"][f"weight_norm/party-{m}"] == norm
    assert len(rounds) == result["rounds"]
    assert end["values"]["final/objective"] == result["objective"]
    assert end["texts"]["status"] == "converged"
    assert begin["settings"]["lambda"] == 0.0001
    assert begin["settings"]["data"] == "a.parts"
    assert "epsilon = infinity" in str(begin["privacy"])
    assert "sha256" not in log.read_text()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("stop", [SignalAfter(3, signal.SIGINT), CrashAfter(4)])
def test_a_resumed_run_goes_on_in_the_same_log(data, tmp_path, log, stop):
    whole, place = tmp_path / "whole", tmp_path / "run"
    config = a_config(data, checkpoint_rounds=3)
    start_run(config, whole)
    try:
        with tracked(place, [f"mlflow={log}"], stop) as tracking:
            assert tracking.finish(start_run(config, place, display=tracking))["status"] == "interrupted"
    except KeyboardInterrupt:
        pass
    with tracked(place) as tracking:  # the log needs not be named again
        tracking.finish(resume_run(place, display=tracking))
    assert_same_run(whole, place)
    assert objectives(log) == {r["round"]: r["objective"] for r in rounds_of(whole)}


# --- privacy -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings",
    [{"mode": "fusion", "epsilon": 1.0}, {"mode": "message", "epsilon": 2.0, "rounds": 2}],
    ids=["fusion", "message"],
)
def test_of_a_private_run_nothing_measured_is_logged(data, tmp_path, log, settings):
    config, logged = a_config(data, privacy=settings), []
    for place in (tmp_path / "run", tmp_path / "again"):
        log.unlink(missing_ok=True)
        with tracked(place, [f"mlflow={log}"]) as tracking:
            result = tracking.finish(start_run(config, place, display=tracking))
        assert rounds_of(place)[0]["objective"] is not None  # the run itself knows it
        begin, *rounds, end = told(log)
        assert not any(line["values"] for line in rounds)
        assert set(end["values"]) == {"final/rounds"}
        assert begin["settings"]["privacy.mode"] == settings["mode"]
        assert "epsilon" in begin["privacy"]
        assert "message" not in end["texts"]
        logged.append((begin, rounds, end, result["objective"]))
    # Whatever is measured follows the noise, which another run draws anew: not a digit of it is logged.
    assert logged[0][:-1] == logged[1][:-1]
    assert logged[0][-1] != logged[1][-1]


def test_every_field_is_known():
    """A field that is added to the rounds is not published by accident: private runs publish none."""
    record = RoundRecord(1, 0.5, 1.0, 0.1, 0.2, 3.0, 4.0, 5.0, 6.0, 7.0, [8.0], test={"auc": 0.9, "x": None})
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


# --- mistakes ------------------------------------------------------------------------------------
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


def test_command(data, tmp_path, log, capsys):
    place = tmp_path / "run"
    arguments = ("train", data / "a.parts", "-o", place, "-q", "--log-to", f"mlflow={log}")
    arguments += ("--gap", 0)
    assert run(*arguments, "--rounds", 3) == 7
    assert set(objectives(log)) == {1, 2, 3}
    assert run("resume", place, "-q", "--rounds", 5) == 7
    assert set(objectives(log)) == {1, 2, 3, 4, 5}
    assert run(*arguments, "--rounds", 2, "--force") == 7  # takes the place of a run with a log
    (place / "tracking.json").write_text("[]")
    assert "tracking.json" in refused(capsys, 4, "resume", place, "-q", "--rounds", 6)


def test_a_log_that_fails_does_not_stop_training(data, tmp_path, log):
    notes, place = Notes(), tmp_path / "run"
    with tracked(place, [f"mlflow={log}"], notes) as tracking:
        begun = tracking._new[0]

        def fails(number, values):
            raise StorageError("log-to: the disk is full")

        begun.round = fails  # type: ignore[method-assign]
        result = tracking.finish(start_run(a_config(data), place, display=tracking))
    assert result["status"] == "converged"
    assert sum("training goes on" in line for line in notes.lines) == 1


# --- MLflow --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A database of MLflow's."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"


def mlflow_run(place):
    from mlflow.tracking import MlflowClient

    (state,) = json.loads((place / "tracking.json").read_text())["logs"]
    client = MlflowClient(tracking_uri=state["uri"])
    return client, client.get_run(state["run_id"])


def steps(client, run_id, name):
    return [metric.step for metric in client.get_metric_history(run_id, name)]


@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_round_log_and_resume_continues_its_run(data, tmp_path, server):
    place = tmp_path / "run"
    config = a_config(data, checkpoint_rounds=2)
    with tracked(place, [f"mlflow={server}"], SignalAfter(3)) as tracking:
        tracking.finish(start_run(config, place, display=tracking))
    client, half = mlflow_run(place)
    assert half.info.status == "KILLED"
    assert steps(client, half.info.run_id, "objective") == [1, 2, 3]
    # As after a crash: the rounds since the checkpoint are computed, and logged, again.
    with tracked(place, display=CrashAfter(4)) as tracking, pytest.raises(KeyboardInterrupt):
        resume_run(place, display=tracking)
    with tracked(place) as tracking:
        result = tracking.finish(resume_run(place, display=tracking))
    client, done = mlflow_run(place)
    assert done.info.run_id == half.info.run_id
    assert done.info.status == "FINISHED"
    assert done.info.run_name == "run"
    assert steps(client, done.info.run_id, "objective") == list(range(1, result["rounds"] + 1))
    objective = client.get_metric_history(done.info.run_id, "objective")
    assert [m.value for m in objective] == [r["objective"] for r in rounds_of(place)]
    assert done.data.metrics["final/objective"] == result_of(place)["objective"]
    assert done.data.metrics["final/test/auc"] == result_of(place)["test"]["auc"]
    assert done.data.params["lambda"] == "0.0001"
    assert done.data.params["data"] == "a.parts"
    assert "provenance.labels" not in done.data.params
    assert done.data.tags["fastadmm.status"] == "converged"
    assert "epsilon = infinity" in done.data.tags["fastadmm.privacy.statement"]
    with tracked(place) as tracking:
        tracking.finish(resume_run(place, changes={"gap": 1e-9}, display=tracking))
    _, more = mlflow_run(place)
    assert more.info.run_id == half.info.run_id
    assert more.data.tags["fastadmm.resumed.gap"] == "1e-09"


@pytest.mark.filterwarnings("default")
def test_mlflow_of_a_private_run(data, tmp_path, server):
    place = tmp_path / "run"
    config = a_config(data, privacy={"mode": "fusion", "epsilon": 1.0})
    with tracked(place, [f"mlflow={server}"]) as tracking:
        tracking.finish(start_run(config, place, display=tracking))
    _, logged = mlflow_run(place)
    assert set(logged.data.metrics) == {"final/rounds"}
    assert logged.data.params["privacy.epsilon"] == "1.0"
    assert float(logged.data.tags["fastadmm.privacy.epsilon"]) == pytest.approx(1.0)


def test_an_mlflow_server_that_is_down_is_one_line(data, tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    target = "mlflow=http://127.0.0.1:9"
    err = refused(capsys, 6, "train", data / "a.parts", "-o", tmp_path / "run", "-q", "--log-to", target)
    assert "log-to: mlflow:" in err
    assert not (tmp_path / "run").exists()
