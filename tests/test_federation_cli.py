"""Agents and a coordinator by the command line, over sockets."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastadmm.between.schema import unapproved
from fastadmm.cli.app import _command, main

from federation_tools import Parties, advance, begin_run
from rounds_tools import data_of, separate
from run_tools import refused, run, start


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name: that of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as folder:
        separate(data_of(Path(folder)), Path(folder))
        yield Path(folder)


@pytest.mark.repeats
def test_an_agent_serves_alone_until_it_is_interrupted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, socket = home / "party-1" / "party-1.h5", home / "party-1.sock"
    agent = ("agent", "run", "--data", data, "--state", home / "agent", "--threads", 1, "--socket", socket)
    with start(*agent) as process:
        assert "listens" in process.stdout.readline()
        again = ("agent", "run", "--data", data, "--state", home / "other", "--socket", socket)
        assert "somebody serves" in refused(capsys, 6, *again)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert not socket.exists()


def test_an_agent_says_where_it_answers(tmp_path, capsys, monkeypatch) -> None:
    separate(data_of(tmp_path), tmp_path)
    data = ("--data", tmp_path / "party-1" / "party-1.h5", "--state", tmp_path / "state")
    monkeypatch.setattr("fastadmm.between.hub.Folder.wait", lambda self, say: None)
    assert run("agent", "run", *data, "--socket", tmp_path, "--threads", 1) == 0
    assert f"party-1 answers requests in {tmp_path}" in capsys.readouterr().out


def test_waiting_for_owners_is_no_error(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """One line with the command to send, a code of its own, and ``--wait`` asks again."""
    from fastadmm.between.socket import Lost
    from fastadmm.cli import federate as cli
    from fastadmm.cli.options import seconds_of
    from fastadmm.errors import ConfigError, WaitingError

    asked: list[int] = []

    def go(*arguments: object) -> dict[str, object]:
        asked.append(1)
        if len(asked) == 3:
            raise Lost("party 'b' is lost: there is no such socket")
        if len(asked) < 4:
            raise unapproved(["a", "b"], "3c77", "run")
        return {"status": "converged", "message": "certified", "rounds": 1}

    monkeypatch.setattr("fastadmm.between.train.federate", go)
    with pytest.raises(SystemExit) as stop:
        main(["federate", "train", "x.toml", "-o", "run"])
    assert stop.value.code == 11
    assert capsys.readouterr().err == (
        "fastadmm: waiting: a, b have not approved 3c77; give the same command again once they have; "
        "send them: fastadmm agent approve 3c77 --state DIR --data FILE\n"
    )
    monkeypatch.setattr(cli, "_PAUSE", 0.01)
    with pytest.raises(SystemExit) as stop:
        main(["federate", "train", "x.toml", "-o", "run", "--wait", "1h"])
    assert stop.value.code == 0
    assert capsys.readouterr().err.count("waiting") == 2  # each thing once
    assert [seconds_of(text, "--wait") for text in ("90", "30m", "1.5h", "2 d")] == [90, 1800, 5400, 172800]
    with pytest.raises(ConfigError, match="no time; write seconds, or 30m"):
        seconds_of("soon", "--wait")
    for kind, named in (("infer", "DIR --data FILE"), ("align", "DIR --rows FILE --id NAME")):
        with pytest.raises(WaitingError, match=f"{named}$"):
            raise unapproved(["a"], "1", kind)
    for what in ("predict", "infer", "worth"):
        given = ["x.toml", *([] if what == "worth" else ["run"]), *([] if what == "infer" else ["rows"])]
        assert run("federate", what, *given, "-o", "task", "--wait", "soon") == 5
        assert "--wait 'soon': no time" in capsys.readouterr().err


def test_both_names_of_a_side_have_its_verbs_and_one_command_its_state(home: Path, capsys) -> None:
    for names in (("party", "agent"), ("coordinator", "federate")):
        verbs = [set(_command(name).commands[name].commands) for name in names]  # type: ignore[attr-defined]
        assert verbs[0] == verbs[1]
    folder = begin_run(home, **{"lambda": 1e-2, "rounds": 1})
    assert run("status", folder.path) == 0
    said = capsys.readouterr().out
    assert "of party-1, party-2: 0 rounds\n" in said
    assert "send them: fastadmm agent approve" in said
    with closing(Parties(home)) as parties:
        parties.approve(folder.path)
        advance(folder, parties.ask)
    for verb in (["status"], ["coordinator", "status"]):
        assert run(*verb, folder.path) == 0
        assert "stopped at the round limit after 1 round" in capsys.readouterr().out
    assert run("party", "status", home / "party-1" / "agent") == 0
    assert "exchanges answered, ended" in capsys.readouterr().out
    assert "no directory of an agent" in refused(capsys, 6, "status", home / "none")
    assert "--state: name the agent's directory" in refused(capsys, 5, "party", "approve", "0" * 16)


@pytest.mark.parametrize("verb", ["train", "align"])
def test_ctrl_c_ends_the_wait_for_who_is_lost(home: Path, verb: str) -> None:
    config, table = home / "project.toml", home / "ids.csv"
    addresses = "".join(f'party-{k} = "unix:{k}"\n' for k in (1, 2))
    config.write_text(f'data = "labels/labels.h5"\nlambda = 1\n[federation.parties]\n{addresses}')
    table.write_text("id\n1\n2\n")
    more = {"train": (config,), "align": (config, table, "--id", "id")}[verb]
    if verb == "align":
        pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    with start("federate", verb, *more, "-o", home / "out") as process:
        while "next attempt in 4 s" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=40)  # attempts go on for 80 s
    assert process.returncode == 130
    assert "Traceback" not in error


@pytest.mark.parametrize("given", ["", "active"])
def test_threads_leave_cores_to_others_between_exchanges(tmp_path, monkeypatch, given):
    monkeypatch.setenv("OMP_WAIT_POLICY", given)  # put back at the end, whatever a command sets
    if not given:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert run("federate", "train", tmp_path / "no.toml", "-o", tmp_path / "run")
    assert os.environ["OMP_WAIT_POLICY"] == (given or "passive")
