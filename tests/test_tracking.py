"""Runs in TensorBoard and MLflow: what was logged is read back; private runs log nothing measured."""

import json
import math
import shutil
import signal
import struct

import pytest
from fastadmm.errors import ConfigError, StorageError
from fastadmm.privacy.published import round_numbers, settings_of
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.solver.history import RoundRecord
from fastadmm.tracking import Target, parse_target, tracked

from run_tools import CrashAfter, Notes, SignalAfter, assert_same_run, refused, result_of, run, write_problem

pytest.importorskip("tensorboardX")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    home = tmp_path_factory.mktemp("tracking")
    write_problem(home / "a.parts")
    write_problem(home / "t.parts", n=80, seed=9)
    return home


def a_config(data, **options):
    many = {} if "privacy" in options else {"directions": "both"}
    return make_config({"data": str(data / "a.parts"), "test": str(data / "t.parts"), **many, **options})


def events(directory):
    """All events of a directory, oldest file first, by the record format and TensorBoard's own messages."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(directory.glob("events.out.*"), key=lambda path: path.stat().st_mtime_ns):
        raw, at = file.read_bytes(), 0
        while at < len(raw):
            (length,) = struct.unpack_from("<Q", raw, at)
            found.append(Event.FromString(raw[at + 12 : at + 12 + length]))
            at += 12 + length + 4
    return found


def scalars(directory):
    """Value by step of every tag, as TensorBoard shows them: a new file purges steps from its first on."""
    shown: dict[str, dict[int, float]] = {}
    for event in events(directory):
        if event.session_log.status == event.session_log.START:
            for steps in shown.values():
                for step in [step for step in steps if step >= event.step]:
                    del steps[step]
        for value in event.summary.value:
            if value.HasField("simple_value"):
                shown.setdefault(value.tag, {})[event.step] = value.simple_value
    return shown


def texts(directory):
    return {
        value.tag.removesuffix("/text_summary"): value.tensor.string_val[0].decode()
        for event in events(directory)
        for value in event.summary.value
        if value.HasField("tensor")
    }


def rounds_of(place):
    return [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]


# --- TensorBoard ---------------------------------------------------------------------------------
def test_tensorboard_has_the_round_log(data, tmp_path):
    place = tmp_path / "run"
    with tracked(place, ["tensorboard"]) as tracking:
        result = tracking.finish(start_run(a_config(data), place, display=tracking))
    shown = scalars(place / "tensorboard")
    for record in rounds_of(place):
        number = record["round"]
        for name in ("objective", "gap", "seconds"):
            if record[name] is not None:
                assert shown[name][number] == pytest.approx(record[name], rel=1e-6)
        for name, value in record["test"].items():
            assert shown[f"test/{name}"][number] == pytest.approx(value, rel=1e-6)
        for m, norm in enumerate(record["weight_norms"], start=1):
            assert shown[f"weight_norm/party-{m}"][number] == pytest.approx(norm, rel=1e-6)
    assert set(shown["objective"]) == set(range(1, result["rounds"] + 1))
    assert shown["final/objective"][result["rounds"]] == pytest.approx(result["objective"], rel=1e-6)
    said = texts(place / "tensorboard")
    assert "| lambda | 0.0001 |" in said["settings"]
    assert "| data | a.parts |" in said["settings"]
    assert "epsilon = infinity" in said["privacy"]
    assert "| status | converged |" in said["result"]
    assert "sha256" not in "".join(said.values())


@pytest.mark.representatives(1)
@pytest.mark.parametrize("stop", [SignalAfter(3, signal.SIGINT), CrashAfter(4)])
def test_a_resumed_run_goes_on_in_the_same_log(data, tmp_path, stop):
    whole, place = tmp_path / "whole", tmp_path / "run"
    config = a_config(data, checkpoint_rounds=3)
    start_run(config, whole)
    try:
        with tracked(place, ["tensorboard"], stop) as tracking:
            assert tracking.finish(start_run(config, place, display=tracking))["status"] == "interrupted"
    except KeyboardInterrupt:
        pass
    with tracked(place) as tracking:  # the log needs not be named again
        tracking.finish(resume_run(place, display=tracking))
    assert_same_run(whole, place)
    shown = scalars(place / "tensorboard")["objective"]
    expected = {r["round"]: r["objective"] for r in rounds_of(whole)}
    assert shown == pytest.approx(expected, rel=1e-6)


def test_a_log_inside_the_run_moves_with_it(data, tmp_path):
    place, moved = tmp_path / "run", data / "moved"
    with tracked(place, ["tensorboard"]) as tracking:
        tracking.finish(start_run(a_config(data, rounds=2), place, display=tracking))
    shutil.move(place, moved)
    text = (moved / "run.toml").read_text()
    (moved / "run.toml").write_text(text.replace(text.split('data = "')[1].split('"')[0], "../a.parts", 1))
    config = (moved / "run.toml").read_text()
    (moved / "run.toml").write_text(
        config.replace(config.split('test = "')[1].split('"')[0], "../t.parts", 1)
    )
    with tracked(moved) as tracking:
        tracking.finish(resume_run(moved, changes={"rounds": 4}, display=tracking))
    assert set(scalars(moved / "tensorboard")["objective"]) == {1, 2, 3, 4}
    assert not place.exists()


# --- privacy -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings",
    [{"mode": "fusion", "epsilon": 1.0}, {"mode": "message", "epsilon": 2.0, "rounds": 2}],
    ids=["fusion", "message"],
)
def test_of_a_private_run_nothing_measured_is_logged(data, tmp_path, settings):
    config, logged = a_config(data, privacy=settings), []
    for place in (tmp_path / "run", tmp_path / "again"):
        with tracked(place, ["tensorboard"]) as tracking:
            result = tracking.finish(start_run(config, place, display=tracking))
        assert rounds_of(place)[0]["objective"] is not None  # the run itself knows it
        assert set(scalars(place / "tensorboard")) == {"final/rounds"}
        said = texts(place / "tensorboard")
        assert f"| privacy.mode | {settings['mode']} |" in said["settings"]
        assert "| epsilon | " in said["privacy"]
        assert set(said) == {"settings", "privacy", "result"}
        assert "message" not in said["result"]
        logged.append((said, result["objective"]))
    # Whatever is measured follows the noise, which another run draws anew: not a digit of it is logged.
    assert logged[0][0] == logged[1][0]
    assert logged[0][1] != logged[1][1]


def test_every_field_of_a_round_is_withheld_or_known():
    """A field that is added to the rounds is not published by accident: private runs publish none."""
    record = RoundRecord(1, 0.5, 1.0, 0.1, 0.2, 3.0, 4.0, 5.0, 6.0, 7.0, [8.0], test={"auc": 0.9, "x": None})
    assert round_numbers(record, ["bank"], private=True) == {}
    shown = round_numbers(record, ["bank"], private=False)
    assert shown["weight_norm/bank"] == 8.0
    assert shown["test/auc"] == 0.9
    assert "test/x" not in shown
    assert all(map(math.isfinite, shown.values()))


def test_settings_hold_no_digests_and_no_directories():
    config = {
        "data": "/secret/place/a.parts",
        "lambda": 1.0,
        "privacy": {"mode": "fusion"},
        "provenance": {"labels": "sha256:x", "content": {"bank": "sha256:y"}},
    }
    assert settings_of(config) == {"data": "a.parts", "lambda": 1.0, "privacy.mode": "fusion"}


# --- mistakes ------------------------------------------------------------------------------------
def test_targets():
    assert parse_target("tensorboard") == Target("tensorboard", "")
    assert parse_target("mlflow=http://host:5000") == Target("mlflow", "http://host:5000")
    assert parse_target("tensorboard=a=b") == Target("tensorboard", "a=b")
    for text, said in (
        ("wandb", "choose mlflow or tensorboard"),
        ("mlflow=", "nothing behind the equals sign"),
        ("mlflow=https://me:secret@host", "MLFLOW_TRACKING_PASSWORD"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            parse_target(text)
        assert "secret" not in str(caught.value)


def test_command(data, tmp_path, capsys):
    place = tmp_path / "run"
    arguments = ("train", data / "a.parts", "-o", place, "-q", "--log-to", f"tensorboard={tmp_path / 'logs'}")
    arguments += ("--gap", 0)
    assert run(*arguments, "--rounds", 3) == 7
    assert set(scalars(tmp_path / "logs")["objective"]) == {1, 2, 3}
    assert run("resume", place, "-q", "--rounds", 5) == 7
    assert set(scalars(tmp_path / "logs")["objective"]) == {1, 2, 3, 4, 5}
    assert run(*arguments, "--rounds", 2, "--force") == 7  # takes the place of a run with a log
    (place / "tracking.json").write_text("[]")
    assert "tracking.json" in refused(capsys, 4, "resume", place, "-q", "--rounds", 6)


def test_a_log_that_fails_does_not_stop_training(data, tmp_path):
    notes, place = Notes(), tmp_path / "run"
    with tracked(place, ["tensorboard"], notes) as tracking:
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
    with tracked(place, display=CrashAfter(5)) as tracking, pytest.raises(KeyboardInterrupt):
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
