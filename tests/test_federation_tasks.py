"""What a party does not compare or score: refused by a code, in its audit log, and nothing is spent."""

import datetime
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from fastadmm.between.agent import Agent, agent_status
from fastadmm.between.approval_file import open_approval, open_task_approval, write_approval
from fastadmm.between.audit import read_audit
from fastadmm.between.consent import agent_approve, asked_file, shown_digest
from fastadmm.between.predict import ask_predictions
from fastadmm.between.schema import (
    Refusal,
    Request,
    answer_of,
    digest_of,
    encoded,
    open_envelope,
    task_request,
)
from fastadmm.between.train import Setup
from fastadmm.data_tools.alignment import canonical_order, file_ids, psi_request, write_alignment
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.runs.predict import predict_partition, summand_of_file
from fastadmm.store.model import open_shared_part
from fastadmm.store.partition import create_partition
from fastadmm.store.party_file import open_party

from federation_tools import CALLER, Parties, confirmed, train_with
from problems import make_vertical_classification
from rounds_tools import NAMES, data_of, separate
from run_tools import flipped, refuses, run

NAME = NAMES[1]
TASK = "0123456789abcdef"


def new_rows(folder, first, n=20):
    """Features of rows with these ids; of :data:`NAME`."""
    blocks, _, _ = make_vertical_classification(90, (3, 4))
    with create_partition(folder, task="classification") as writer:
        for name, block in zip(NAMES, blocks):
            party = writer.party(name, n_features=block.shape[1], kind="dense")
            party.append(block[:n] + 0.5, np.arange(first, first + n))
    return folder / f"{NAME}.h5"


def trained(folder, **values):
    """A run that has ended; the agents are closed."""
    separate(data_of(folder), folder)
    private = "privacy" in values
    fusion = private and values["privacy"]["mode"] == "fusion"
    options = {name: {"ledger": folder / name / "ledger.jsonl"} for name in NAMES} if private else {}
    parties = Parties(folder, NAMES[1:] if fusion else NAMES, **options)
    train_with(parties, own=folder / NAMES[0] / f"{NAMES[0]}.h5" if fusion else None, **values)
    parties.close()
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory, quiet):
    folder = trained(tmp_path_factory.mktemp("whole"), **{"lambda": 1e-3, "rounds": 1})
    new_rows(folder / "new.parts", 1000)
    return folder


class Party:
    """The agent of one party whose run has ended, and a coordinator that asks it."""

    def __init__(self, folder, **options):
        self.folder, self.options = folder, options
        self.run = json.loads((folder / "labels" / "run" / "run.json").read_text())["run"]
        self.model = open_shared_part(folder / "labels" / "run")[0].model_id
        self.rows = folder / "new.parts" / f"{NAME}.h5"
        self.state = folder / NAME / "agent"
        self.said, self.agent = [], None
        self.data = folder / NAME / f"{NAME}.h5"
        self.restart()

    def restart(self):
        if self.agent is not None:
            self.agent.close()
        more = {"name": NAME, "threads": 1, "say": self.said.append, **self.options}
        self.agent = Agent(self.data, self.state, **more)

    @property
    def approval(self):
        return self.state / self.run / "predict.toml"

    def predict(self, **changes):
        data = open_party(self.rows)
        arguments = {"run": self.run, "model_id": self.model}
        arguments |= {"n_samples": data.n_samples, "row_digest": data.row_digest}
        return task_request(TASK, NAME, "contribute", {**arguments, **changes})

    def ask(self, task, caller=CALLER, party=NAME):
        """The answer's values, or the code of the refusal, which is in the log as well."""
        raw = task if isinstance(task, bytes) else encoded(task)
        said = self.agent.handle(caller, party, raw)
        sent = task if isinstance(task, Request) else self.predict()
        found = answer_of(open_envelope(said, len(said), "t"), sent.calls[0], -1, "t")
        last = read_audit(self.state / "audit.jsonl")[0][-1]
        assert (last["caller"], last["request"]) == (caller, digest_of(raw))
        if isinstance(found, Refusal):
            assert last["code"] == found.code
            assert "answer" not in last
            return found.code
        assert last["answer"] == digest_of(said)
        return found.answer

    def approve(self, file=None, **options):
        asked = asked_file(options.pop("task", TASK), self.state)
        confirmed(agent_approve, asked, None, self.state, rows=file or self.rows, **options)

    def edit(self, path=None, **changes):
        path = path or self.approval
        write_approval(replace(open_task_approval(path), **changes), force=True)


@pytest.fixture
def party(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "own")
    made = Party(tmp_path / "own")
    yield made
    made.agent.close()


def test_predictions_are_limited(party):
    assert [party.ask(party.predict()) for _ in range(2)] == ["task", "task"]
    assert len(party.said) == 1  # who waits asks again, and the owner reads it once
    assert party.said[0].endswith(f"agent approve {TASK} --state {party.state} --rows FILE --id NAME")
    status = "\n".join(agent_status(party.state))
    assert f"'coordinator' asks for scores of rows ({TASK})" in status
    party.approve()
    assert not [*(party.state / "asked").glob(f"{TASK}.*")]
    party.edit(requests=4)
    other = party.predict(row_digest="sha256:" + "0" * 64)
    for task, caller, name, code in [
        (party.predict(n_samples=21), CALLER, NAME, "amount"),
        (party.predict(n_samples=2**40), CALLER, NAME, "values"),
        (other, CALLER, NAME, "rows"),
        (party.predict(n_samples=19), CALLER, NAME, "rows"),
        (party.predict(model_id="another"), CALLER, NAME, "terms"),
        (party.predict(run="f" * 16), CALLER, NAME, "task"),
        (party.predict(run="../../x"), CALLER, NAME, "damaged"),
        (party.predict(), "somebody", NAME, "caller"),
        (party.predict(), CALLER, NAMES[0], "party"),
        (replace(party.predict(), calls=[("weights", {})]), CALLER, NAME, "call"),
        (encoded(party.predict())[:-1], CALLER, NAME, "damaged"),
    ]:
        assert party.ask(task, caller, name) == code
    party.edit(last_day=datetime.date(2020, 1, 1))
    assert party.ask(party.predict()) == "expired"
    party.edit(last_day=None)

    expected = summand_of_file(party.state / party.run / f"{NAME}.h5", open_party(party.rows)).values
    answer = party.ask(party.predict())
    assert answer["scores"].tobytes() == expected.tobytes()
    raw = encoded(party.predict())
    first = party.agent.handle(CALLER, NAME, raw)
    party.agent.close()
    party.rows.write_bytes(b"gone")  # nothing is computed again
    party.restart()
    assert party.agent.handle(CALLER, NAME, raw) == first
    new_rows(party.folder / "other.parts", 2000)
    shutil.copy(party.folder / "other.parts" / f"{NAME}.h5", party.rows)
    assert party.ask(party.predict()) == "exchanges"
    assert [*(party.state / "asked").glob(f"{TASK}.*")]  # to be approved as well
    party.edit(requests=5)
    assert party.ask(party.predict()) == "amount"
    party.edit(rows=40)
    assert len(party.ask(party.predict())["scores"]) == 20
    assert "predictions: 5 of at most 5 answered or refused, 40 of 40 rows" in "\n".join(
        agent_status(party.state)
    )
    assert not [*(party.state / "asked").glob(f"{TASK}.*")]
    assert party.ask(replace(party.predict(), run="f" * 16)) == "exchanges"
    party.approve(task="f" * 16, force=True)
    agreed = open_task_approval(party.approval)
    assert (agreed.requests, agreed.rows) == (7, 60)


def table_of(party, first, n):
    """A table of rows that all have, as the party was told, and an approval of one of their scores."""
    data = open_party(party.folder / NAME / f"{NAME}.h5")
    table = party.folder / "rows.csv"
    ids = [str(i) for i in range(first, first + n)]
    numbers = "".join(",0.5" for _ in data.feature_names)
    table.write_text(f"id,{','.join(data.feature_names)}\n" + "".join(f"{i}{numbers}\n" for i in [*ids, "x"]))
    (party.state / "alignments").mkdir()
    write_alignment(party.state / "alignments" / "a.json", canonical_order([*ids, "x"]))
    return table


def test_scores_count_as_many_as_leave(party):
    table = table_of(party, 1000, 5)
    digest = canonical_order([*map(str, range(1000, 1005)), "x"]).digest
    one = party.predict(n_samples=1, row_digest=digest)
    party.ask(one)
    party.approve(table, id="id")
    assert party.ask(one) == "rows"
    party.edit(rows=6)  # what was refused counts as one of two questions
    assert len(party.ask(party.predict(n_samples=6, row_digest=digest))["scores"]) == 6


@pytest.mark.parametrize("killed", [False, True])
def test_what_could_not_be_logged_counts(party, monkeypatch, killed):
    error = ZeroDivisionError if killed else StorageError

    def full(self, entry):
        raise error("the disk is full")

    party.ask(party.predict())
    party.approve()
    with monkeypatch.context() as patch:
        patch.setattr("fastadmm.between.audit.AuditLog.add", full)
        with pytest.raises(error):
            party.agent.handle(CALLER, NAME, encoded(party.predict()))
    if killed:
        party.restart()
        assert "predictions: 1 of at most 2 answered" in "\n".join(agent_status(party.state))
    assert len(party.ask(party.predict())["scores"]) == 20
    assert party.ask(replace(party.predict(), run="f" * 16)) == "amount"


def test_what_a_journal_lost_counts(party):
    party.ask(party.predict())
    party.approve()
    journal = party.state / "tasks.journal"
    party.agent.close()
    before = journal.read_bytes()
    party.restart()
    assert len(party.ask(party.predict())["scores"]) == 20
    party.agent.close()
    whole = journal.read_bytes()
    for at in range(len(before), len(whole) - 8, 7):  # a changed record is no record that a kill cut
        journal.write_bytes(flipped(whole, 8 * at + 4))
        refuses(FormatError, r"tasks\.journal: record 1, at byte 12, is damaged", party.restart)
    journal.write_bytes(before)  # cut off: the audit log has it
    party.restart()
    assert party.ask(replace(party.predict(), run="f" * 16)) == "amount"
    assert party.ask(party.predict()) == "ended"
    party.agent.close()
    journal.unlink()
    party.restart()
    assert party.ask(replace(party.predict(), run="f" * 16)) == "amount"


def test_the_end_of_a_run_comes_first(party):
    part = party.state / party.run / f"{NAME}.h5"
    party.ask(party.predict())
    party.approve()
    part.rename(part.with_suffix(".away"))
    assert party.ask(party.predict()) == "call"
    part.with_suffix(".away").rename(part)
    (party.state / party.run / "approval.toml").unlink()
    assert party.ask(party.predict()) == "call"


def test_all_runs_of_a_set_are_shown(party, capsys):
    about = json.loads((party.folder / "labels" / "run" / "run.json").read_text())["parties"][NAME]
    told = (party.state / party.run / "approval.toml").read_bytes()
    weak = about | {"regularization": about["regularization"] / 1000}
    mixed = {"a" * 16: weak, "b" * 16: about, party.run: weak}
    raw = np.frombuffer(json.dumps(mixed).encode(), dtype=np.uint8)
    assert party.ask(task_request("e" * 16, NAME, "join", {"runs": raw, "n_samples": 20})) == "task"
    data = ("--data", party.folder / NAME / f"{NAME}.h5", "--rows", party.rows)
    assert run("agent", "approve", "e" * 16, "--state", party.state, *data) == 4
    assert "runs of different kinds" in capsys.readouterr().err
    alone = about | {"position": 0, "parties": NAME}
    runs = {"a" * 16: about, "b" * 16: alone, "c" * 16: about, party.run: weak}
    raw = np.frombuffer(json.dumps(runs).encode(), dtype=np.uint8)
    task = task_request(TASK, NAME, "join", {"runs": raw, "n_samples": 20})
    for odd in ("[" * 500 + "0" + "]" * 500, "NaN", '{"x": 1}'):  # kept for the owner it would be far longer
        nested = np.frombuffer(f'{{"{"d" * 16}": {{"family": {odd}}}}}'.encode(), dtype=np.uint8)
        assert party.ask(replace(task, calls=[(task.call, {**task.arguments, "runs": nested})])) == "values"
    assert party.ask(task, "a\nwith noise\x1b[8m") == "task"
    assert run("agent", "approve", TASK, "--state", party.state, *data) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{NAME} for 3 runs, " in lines[0]
    assert sum("lambda 0.001" in line for line in lines) == 1
    assert not any(line.startswith("with noise") or "\x1b" in line for line in lines)
    assert party.ask(task, "a\nwith noise\x1b[8m") == "task"
    confirm = ("--confirm", shown_digest(lines))
    assert run("agent", "approve", TASK, "--state", party.state, *data, *confirm) == 0
    assert (party.state / party.run / "approval.toml").read_bytes() == told  # what was approved stays
    assert party.ask(task) == {"n_runs": 4}


PRIVATE = {"epsilon": 2.0, "delta": 1e-3}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("mode", ["sums", "message", "fusion"])
def test_what_was_protected_does_not_leave_by_scores(tmp_path, quiet, mode):
    values = {
        "sums": {"scheme": "subspace", "secrecy": "sums", "rounds": 1},
        "message": {"privacy": {"mode": "message", "rounds": 1, **PRIVATE}},
        "fusion": {"privacy": {"mode": "fusion", **PRIVATE}},
    }
    trained(tmp_path, **{"lambda": 1e-2, **values[mode]})
    new_rows(tmp_path / "new.parts", 1000)
    party = Party(tmp_path, **({} if mode == "sums" else {"ledger": tmp_path / NAME / "ledger.jsonl"}))
    party.ask(party.predict())
    party.approve()
    party.edit(requests=9)
    if mode == "fusion":  # the weights are a release: other rows are the owner's to score
        data = tmp_path / NAME / f"{NAME}.h5"
        party.edit(file=str(data), rows=200, requests=9)
        old = open_party(data)
        of_training = party.predict(n_samples=old.n_samples, row_digest=old.row_digest)
        assert party.ask(of_training) == "privacy"
        assert "rows of training" in party.said[-1]
        statement = party.state / party.run / "privacy.json"
        text = statement.read_text()
        party.edit(file=str(party.rows))
        statement.write_text(text.replace('"epsilon": 2.0', '"epsilon": "inf"'))
        assert text != statement.read_text()
        assert party.ask(party.predict()) == "privacy"
        statement.write_text(text)
        # Among rows with other ids a number is a text.
        ids = [*map(str, old.ids().tolist()), "x"]
        table = table_of(party, int(ids[0]), len(ids) - 1)
        party.edit(file=str(table), id="id")
        by_text = party.predict(n_samples=len(ids), row_digest=canonical_order(ids).digest)
        assert party.ask(by_text) == "privacy"
        party.edit(file=str(party.rows))
    else:
        assert party.ask(party.predict()) == "privacy"
        reason = "not weights" if mode == "message" else "sums over all parties"
        assert reason in party.said[-1]
        # An approval of the same run in other words does not change what the run was.
        path = party.state / party.run / "approval.toml"
        agreed = path.read_text()
        write_approval(replace(open_approval(path), family="subspace", protection=None), force=True)
        options, party.options = party.options, {}
        party.restart()
        assert party.ask(party.predict()) == "privacy"
        assert reason in party.said[-1]
        path.write_text(agreed)
        party.options = options
        party.restart()
        party.edit(**{"unmasked" if mode == "sums" else "allow_infinite_epsilon": True})
    assert len(party.ask(party.predict())["scores"]) == 20
    if mode == "fusion":
        add_up_with_own_columns(tmp_path, party)
    party.agent.close()


def add_up_with_own_columns(folder, party):
    """The label holder's own columns are scored in its process."""
    write_alignment(folder / "rows.json", canonical_order([str(i) for i in range(1000, 1020)]))
    own = folder / NAMES[0] / f"{NAMES[0]}.h5"
    setup = Setup({}, "test", list(NAMES), CALLER, {}, None, own, NAMES[0])
    run, own = folder / "labels" / "run", folder / "new.parts" / f"{NAMES[0]}.h5"

    def ask(name, raw, seconds):
        return party.agent.handle(CALLER, name, raw)

    with pytest.raises(ConfigError, match="--own"):
        ask_predictions(setup, ask, run, folder / "rows.json", folder / "out", None)
    found = ask_predictions(setup, ask, run, folder / "rows.json", folder / "out", own)
    shutil.copy(party.state / party.run / f"{NAME}.h5", run / "model")
    expected = predict_partition(run, folder / "new.parts")
    assert found.score.tobytes() == expected.score.tobytes()
    assert found.ids.tolist() == expected.ids.tolist()


def test_an_agent_with_a_ledger_gives_no_exact_scores_of_a_run_without_noise(party):
    party.options = {"ledger": party.folder / "ledger.jsonl"}
    party.restart()
    party.ask(party.predict())
    party.approve()
    assert party.ask(party.predict()) == "privacy"


@pytest.fixture
def alone(tmp_path, quiet):
    """A party that has a table and no features yet, and what asks it to compare ids."""
    pytest.importorskip("nacl", reason='needs pynacl: pip install "fastadmm[psi]"')
    party = Party.__new__(Party)
    party.state, party.said, party.agent, party.data = tmp_path / "agent", [], None, None
    party.options = {}
    party.restart()
    (tmp_path / "own.csv").write_text("id,a\n" + "".join(f"c{i},1\n" for i in range(10)))
    (tmp_path / "guest.csv").write_text("id,y\n" + "".join(f"c{i},1\n" for i in range(5, 20)))
    ids = file_ids(tmp_path / "guest.csv", "id")
    psi_request(ids, tmp_path / "request", tmp_path / "key")
    raw = np.frombuffer((tmp_path / "request").read_bytes(), dtype=np.uint8)

    def ask(request=raw, n_ids=15, task=TASK):
        return task_request(task, NAME, "intersect", {"request": request, "n_ids": n_ids})

    yield party, ask
    party.agent.close()


def told(folder, ids, task=TASK):
    write_alignment(folder / "rows.json", canonical_order(ids), force=True)
    raw = np.frombuffer((folder / "rows.json").read_bytes(), dtype=np.uint8)
    return task_request(task, NAME, "align", {"alignment": raw})


def test_alignments_are_limited(tmp_path, alone):
    party, ask = alone
    raw = ask().arguments["request"]
    assert party.ask(told(tmp_path, ["c5"])) == "task"
    assert party.ask(ask()) == "task"
    party.approve(tmp_path / "own.csv", id="id")
    party.edit(party.state / "align.toml", requests=5)
    assert party.ask(told(tmp_path, ["c5"])) == "order"
    for task, code in [
        (ask(raw[:-3]), "damaged"),
        (ask(raw[:0]), "damaged"),
        (ask(n_ids=16), "amount"),
        (ask(n_ids=14), "values"),
        (ask(np.zeros(10**6, dtype=np.uint8)), "amount"),
    ]:
        assert party.ask(task) == code
    assert party.ask(ask(), "somebody") == "caller"
    sent = encoded(ask())
    first = party.agent.handle(CALLER, NAME, sent)
    party.restart()
    assert party.agent.handle(CALLER, NAME, sent) == first  # with the same key of its own
    assert party.ask(ask(task="f" * 16)) == "exchanges"
    assert party.ask(told(tmp_path, ["c5"], "f" * 16)) == "order"
    assert party.ask(told(tmp_path, ["c5", "c77"])) == "rows"
    assert party.ask(told(tmp_path, ["c5", "c77"])) == "rows"
    # Which ids it has cannot be tried out, also not at an agent that begins anew.
    assert party.ask(told(tmp_path, ["c5"])) == "changed"
    party.restart()
    assert party.ask(told(tmp_path, ["c5"])) == "changed"
    assert party.ask(told(tmp_path, ["c5", "c77"])) == "rows"

    party.edit(party.state / "align.toml", requests=99, rows=45)
    damaged = told(tmp_path, ["c5", "c6"], "e" * 16)
    damaged.arguments["alignment"] = damaged.arguments["alignment"][:-9]
    party.ask(ask(task="e" * 16))
    assert party.ask(damaged) == "damaged"
    assert not list(party.state.glob("alignments/*"))
    party.ask(ask(task="f" * 16))
    good = told(tmp_path, ["c5", "c6"], "f" * 16)
    assert party.ask(good) == {"n_samples": 2}
    assert party.ask(good) == {"n_samples": 2}
    assert party.ask(told(tmp_path, ["c6"], "f" * 16)) == "changed"
    (kept,) = party.state.glob("alignments/*")
    assert kept.read_bytes() == good.arguments["alignment"].tobytes()
    assert not [path for path in party.state.iterdir() if path.name.startswith(".")]
