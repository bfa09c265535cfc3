"""Private runs with parties elsewhere: the same bits as in one process; a party's noise is drawn once."""

import json
import os
import signal
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from fastadmm.between.agent import agent_status
from fastadmm.between.audit import read_audit
from fastadmm.between.journal import Journal
from fastadmm.between.schema import unapproved
from fastadmm.between.socket import Lost
from fastadmm.cli import federate as cli
from fastadmm.cli.app import _command, main
from fastadmm.cli.options import seconds_of
from fastadmm.errors import ConfigError, InputError, StorageError, WaitingError
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run

from federation_tools import Killing, Parties, advance, begin_run, federated, lost
from rounds_tools import NAMES, assert_same_release, data_of, part_of, separate
from run_tools import printed, refused, refuses, run, start

TEST = {"sampler": "insecure_test", "seed": 7, "delta": 1e-3}
FUSION = {"lambda": 1e-2, "privacy": {"mode": "fusion", "epsilon": 4.0, **TEST}}
MESSAGE = {"lambda": 1e-2, "privacy": {"mode": "message", "epsilon": 4.0, "rounds": 2, **TEST}}
REAL = {"lambda": 1e-2, "privacy": {"mode": "message", "epsilon": 2.0, "delta": 1e-3, "rounds": 2}}


@pytest.fixture
def parties(tmp_path):
    separate(data_of(tmp_path), tmp_path)
    options = {name: {"ledger": tmp_path / name / "ledger.jsonl"} for name in NAMES}
    made = Parties(tmp_path, **options)
    yield made
    made.close()


@pytest.mark.parametrize("values", [FUSION, MESSAGE], ids=["fusion", "message"])
def test_the_same_bits_as_one_process(parties, tmp_path, values):
    start_run(make_config({"data": str(tmp_path / "d.parts"), **values}), tmp_path / "reference")
    own = tmp_path / NAMES[0] / f"{NAMES[0]}.h5" if values is FUSION else None
    parties.names = NAMES[1:] if values is FUSION else NAMES
    folder = begin_run(tmp_path, own=own, **values)
    parties.approve(folder.path)
    ask = Killing(parties, 3, "party after")  # both sides begin anew
    with pytest.raises(Lost):
        advance(folder, ask)
    with federated(folder, ask) as training:
        training.advance()
    directory, reference = folder.path, tmp_path / "reference"
    for name in parties.names:
        part = parties.home(name) / "agent" / training.run / f"{name}.h5"
        assert run("import", part, directory) == 0
        assert part_of(directory / "model" / f"{name}.h5") == part_of(reference / "model" / f"{name}.h5")
    assert_same_release(directory, reference)


def test_noise_is_drawn_and_charged_once(parties, tmp_path, monkeypatch):
    folder = parties.begin(**REAL)
    ledger = tmp_path / NAMES[0] / "ledger.jsonl"
    sent = []
    append, fails = Journal.append, [3]

    def failing(self, parts):
        """A disk that is full just after the release was stored and charged."""
        if NAMES[0] in str(self.path):
            fails[0] -= 1
            if fails[0] == 0:
                raise StorageError("disk full")
        append(self, parts)

    monkeypatch.setattr("fastadmm.between.journal.Journal.append", failing)
    sources = []
    monkeypatch.setattr(
        "fastadmm.between.host.NoiseSource",
        lambda *how: sources.append(how[:2]) or NoiseSource(*how),
    )

    def ask(name, raw, seconds):
        answer = parties.ask(name, raw, seconds)
        if name == NAMES[0]:
            sent.append(answer)
            if len(sent) == 5:
                parties.kill(name)
                raise Lost("the answer was lost")
        return answer

    with federated(folder, ask) as training, pytest.raises(InputError, match=r"refused \(failed\)"):
        training.advance()  # the message of round 2 is stored and charged, but not given
    assert len(Ledger(ledger).charges) == 2
    settings = make_config({"data": str(tmp_path / "d.parts"), **REAL}).privacy
    assert set(sources) == {(settings.sampler, None)}  # nothing that anybody could draw again
    lost(folder, ask)
    with federated(folder, ask) as training:
        training.advance()
    assert len(Ledger(ledger).charges) == 2
    assert sent[4] == sent[5]  # the end of the run, once more
    state = tmp_path / NAMES[0] / "agent"
    entries, _ = read_audit(state / "audit.jsonl")
    spent = [entry["spent"]["gdp"] for entry in entries if "spent" in entry]
    assert spent == sorted(spent)
    assert spent[0] == 0.0 < spent[-1]
    assert any("epsilon" in line for line in agent_status(state))
    statement = json.loads((state / training.run / "privacy.json").read_text())
    assert statement["run"] == training.run
    assert str(tmp_path) not in json.dumps(statement)


@pytest.fixture
def home():
    """A directory with a short name: that of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as folder:
        separate(data_of(Path(folder)), Path(folder))
        yield Path(folder)


def test_an_agent_says_where_it_answers(tmp_path, capsys, monkeypatch):
    separate(data_of(tmp_path), tmp_path)
    data = ("--data", tmp_path / "party-1" / "party-1.h5", "--state", tmp_path / "state")
    monkeypatch.setattr("fastadmm.between.hub.Folder.wait", lambda self, say: None)
    assert run("agent", "run", *data, "--socket", tmp_path, "--threads", 1) == 0
    assert f"party-1 answers requests in {tmp_path}" in capsys.readouterr().out


def test_waiting_for_owners_is_no_error(home, capsys, monkeypatch):
    """One line with the command to send, a code of its own, and ``--wait`` asks again."""
    asked = []

    def go(*arguments):
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
    refuses(ConfigError, "no time; write seconds, or 30m", seconds_of, "soon", "--wait")
    for kind, named in (("infer", "DIR --data FILE"), ("align", "DIR --rows FILE --id NAME")):
        with pytest.raises(WaitingError, match=f"{named}$"):
            raise unapproved(["a"], "1", kind)
    for what in ("predict", "infer", "worth"):
        given = ["x.toml", *([] if what == "worth" else ["run"]), *([] if what == "infer" else ["rows"])]
        assert run("federate", what, *given, "-o", "task", "--wait", "soon") == 5
        assert "--wait 'soon': no time" in capsys.readouterr().err


def test_both_names_of_a_side_have_its_verbs_and_one_command_its_state(home, capsys):
    for names in (("party", "agent"), ("coordinator", "federate")):
        verbs = [set(_command(name).commands[name].commands) for name in names]
        assert verbs[0] == verbs[1]
    folder = begin_run(home, **{"lambda": 1e-2, "rounds": 1})
    said = printed(capsys, "status", folder.path)
    assert "of party-1, party-2: 0 rounds\n" in said
    assert "send them: fastadmm agent approve" in said
    with closing(Parties(home)) as parties:
        parties.approve(folder.path)
        advance(folder, parties.ask)
    for verb in (["status"], ["coordinator", "status"]):
        assert "stopped at the round limit after 1 round" in printed(capsys, *verb, folder.path)
    assert "exchanges answered, ended" in printed(capsys, "party", "status", home / "party-1" / "agent")
    assert "no directory of an agent" in refused(capsys, 6, "status", home / "none")
    assert "--state: name the agent's directory" in refused(capsys, 5, "party", "approve", "0" * 16)


@pytest.mark.parametrize("verb", ["train", "align"])
def test_ctrl_c_ends_the_wait_for_who_is_lost(home, verb):
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
