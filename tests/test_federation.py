"""Parties elsewhere train what one process trains, to the last bit, through kills on both sides."""

import json
import re
import shutil
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.audit import read_audit
from fastadmm.between.consent import approve_fingerprints
from fastadmm.between.journal import Journal
from fastadmm.errors import ConfigError, InputError, StorageError, WaitingError
from fastadmm.runs.config import make_config
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.train import start_run

from federation_tools import Killing, Parties, SocketParties, advance, begin_run, federated, lost, train_with
from rounds_tools import NAMES, assert_same_course, data_of, part_of, separate
from run_tools import refuses, run

pytestmark = pytest.mark.usefixtures("quiet")


def reference(folder, data, **values):
    start_run(make_config({"data": str(data), **values}), folder / "reference")
    return folder / "reference"


def assert_like_in_process(parties, directory, other):
    run_id = json.loads((directory / "run.json").read_text())["run"]
    for name in NAMES:
        own = parties.home(name) / "agent" / run_id / f"{name}.h5"
        assert part_of(own) == part_of(other / "model" / f"{name}.h5")
        assert run("import", own, directory) == 0
    assert_same_course(directory, other)


CASES = [
    pytest.param({"lambda": 1e-3, "rounds": 3}, id="subspace"),
    pytest.param({"lambda": 1e-5, "history": 2, "rounds": 4}, id="directions are forgotten"),
    pytest.param({"scheme": "subspace", "directions": "both", "lambda": 1e-3, "rounds": 3}, id="pairs"),
    pytest.param({"scheme": "subspace", "secrecy": "sums", "lambda": 1e-3, "rounds": 3}, id="sums"),
    pytest.param({"scheme": "gauss-seidel", "lambda": 1e-1, "rounds": 2}, id="one after the other"),
]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("values", CASES)
def test_the_same_bits_as_one_process(tmp_path, values):
    separate(data_of(tmp_path), tmp_path)
    with closing(SocketParties(tmp_path)) as parties:
        directory = train_with(parties, **values)
    assert_like_in_process(parties, directory, reference(tmp_path, tmp_path / "d.parts", **values))


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("who", "at"),
    [("party before", 4), ("party after", 9), ("coordinator", 10)],
)
def test_a_kill_costs_nothing(parties, tmp_path, who, at, whole):
    folder = parties.begin(**KILLED)
    ask = Killing(parties, at, who)
    lost(folder, ask)
    advance(folder, ask)
    assert_like_in_process(parties, folder.path, whole[0])


def test_a_party_that_was_killed_keeps_its_key(parties, tmp_path):
    """With sums only masks cancel to the bit, whatever one side had to begin again."""
    values = {"secrecy": "sums", "lambda": 1e-3, "rounds": 2}
    folder = parties.begin(**values)
    ask = Killing(parties, 6, "party after")
    lost(folder, ask)
    advance(folder, ask)
    assert_like_in_process(parties, folder.path, reference(tmp_path, tmp_path / "d.parts", **values))
    run_id = json.loads((folder.path / "run.json").read_text())["run"]
    shown = [(parties.home(name) / "agent" / run_id / "keys.txt").read_text() for name in NAMES]
    assert len({text.replace(" (this party)", "") for text in shown}) == 1


def test_a_masked_answer_waits_for_the_others_fingerprints(parties, tmp_path):
    folder = parties.begin(**{"scheme": "subspace", "secrecy": "sums", "lambda": 1e-3, "rounds": 1})
    run_id = json.loads((folder.path / "run.json").read_text())["run"]
    path = parties.home(NAMES[0]) / "agent" / run_id / "approval.toml"
    agreed = open_approval(path)
    assert agreed.fingerprints is not None
    write_approval(replace(agreed, fingerprints=["0" * 32]), force=True)  # another key than the one told
    refuses(InputError, r"refused \(keys\)", advance, folder, parties.ask)
    assert any("see 'fastadmm agent approve --fingerprint'" in line for line in parties.said)
    spoken = [text.replace(" ", "").upper() for text in agreed.fingerprints]
    approve_fingerprints(run_id, spoken, parties.home(NAMES[0]) / "agent")
    advance(folder, parties.ask)
    with pytest.raises(ConfigError, match="not 32 hexadecimal digits"):
        approve_fingerprints(run_id, ["abc"], parties.home(NAMES[0]) / "agent")


KILLED = {"lambda": 1e-4, "rounds": 5}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    data = data_of(folder)
    return reference(folder, data, **KILLED), data


@pytest.mark.representatives(1)
@pytest.mark.parametrize("side", ["coordinator", "parties"])
def test_a_snapshot_takes_the_journals_place(parties, tmp_path, whole, side, monkeypatch):
    if side == "parties":
        monkeypatch.setattr("fastadmm.between.session._EXCHANGES", 2)
    else:
        monkeypatch.setattr("fastadmm.between.coordinator._BYTES", 1)
    folder = parties.begin(**KILLED)
    for at in (3, 4, 5):  # each attempt begins anew
        lost(folder, Killing(parties, at, "party after"))
        log = folder.path / "rounds.jsonl"
        if side == "coordinator":  # a flipped bit: the snapshot has the log too
            log.write_text(log.read_text().replace("objective", "objectivd"))
    advance(folder, parties.ask)
    assert_like_in_process(parties, folder.path, whole[0])


def test_after_a_failure_a_party_begins_with_what_its_snapshot_held(parties, tmp_path, monkeypatch):
    """In the same process: a disk that is full again and again."""
    monkeypatch.setattr("fastadmm.between.session._EXCHANGES", 3)
    append, asked = Journal.append, Counter[Path]()

    def failing(journal, parts):
        asked[journal.path] += 1
        if journal.path.name == "requests.journal" and asked[journal.path] % 5 == 0:
            raise StorageError("disk full")
        append(journal, parts)

    monkeypatch.setattr(Journal, "append", failing)
    values = {"scheme": "proximal", "regularizer": "l1", "history": 3, "lambda": 1e-3, "rounds": 8}
    whole = reference(tmp_path, tmp_path / "d.parts", **values)
    folder = parties.begin(**values)
    for _ in range(20):
        with federated(folder, parties.ask) as run, suppress(InputError):
            run.advance()
    assert_like_in_process(parties, folder.path, whole)


def test_a_kill_between_checkpoint_and_journal_costs_nothing(parties, tmp_path, whole, monkeypatch):
    monkeypatch.setattr("fastadmm.between.coordinator._BYTES", 1)
    honest = Journal.restart
    monkeypatch.setattr(Journal, "restart", lambda self: None if len(self) else honest(self))
    folder = parties.begin(**KILLED)
    lost(folder, Killing(parties, 9, "coordinator"))
    advance(folder, parties.ask)
    assert_like_in_process(parties, folder.path, whole[0])


def test_a_coordinator_restored_from_a_backup_is_told_again(parties, tmp_path, whole):
    folder = parties.begin(**KILLED)
    for at in (4, 6):
        lost(folder, Killing(parties, at, "coordinator"))
        if at == 4:
            shutil.copytree(folder.path, tmp_path / "backup")
    shutil.rmtree(folder.path)
    shutil.copytree(tmp_path / "backup", folder.path)
    with federated(folder, parties.ask) as run:
        run.advance()
    assert_like_in_process(parties, folder.path, whole[0])


def test_an_unapproved_run_is_refused_and_goes_on_once_it_is(parties, tmp_path, monkeypatch):
    folder = begin_run(tmp_path, **{"lambda": 1e-3, "rounds": 1})
    with (
        federated(folder, parties.ask) as run,
        pytest.raises(WaitingError, match=r"party-1, party-2.* not approved [0-9a-f]+;.* agent approve"),
    ):
        run.advance()
    entries, _ = read_audit(parties.home("party-1") / "agent" / "audit.jsonl")
    assert [entry["code"] for entry in entries] == ["run"]
    parties.approve(folder.path)
    said = []
    monkeypatch.setattr("fastadmm.between.hub._PATIENT", 0.01)

    def slow(name, raw, seconds):
        while name == "party-2" and not said:
            sleep(0.001)
        return parties.ask(name, raw, seconds)

    with federated(folder, slow) as run:
        run.tell = said.append
        assert run.advance()["rounds"] == 1
    assert re.fullmatch(r"exchange 0, waiting for (party-1, )?party-2", said[0])
    assert advance(RunFolder(folder.path, EXCHANGE), parties.ask)["rounds"] == 1  # it is over


def test_features_that_stay_on_disk(parties, tmp_path):
    parties.options = {"party-1": {"streamed": True}}
    values = {"lambda": 1e-3, "rounds": 2}
    other = reference(tmp_path, tmp_path / "d.parts", **values)
    assert_like_in_process(parties, train_with(parties, **values), other)


def test_the_directory_can_be_moved(parties, tmp_path, whole):
    folder = parties.begin(**KILLED)
    lost(folder, Killing(parties, 5, "coordinator"))
    parties.close()
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in (*NAMES, "labels"):
        shutil.move(tmp_path / name, other / name)
    moved = Parties(other)
    advance(RunFolder(other / "labels" / "run", EXCHANGE), moved.ask)
    assert_like_in_process(moved, other / "labels" / "run", whole[0])
    moved.close()
