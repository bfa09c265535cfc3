"""What a party does not answer: refused by a code, in its audit log, and the run goes on unchanged."""

import datetime
import json
import os
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from fastadmm.between import schema
from fastadmm.between.agent import Agent, agent_status
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.audit import AuditLog, read_audit
from fastadmm.between.consent import asked_file, asked_lines, keep_asked
from fastadmm.between.journal import Journal
from fastadmm.between.schema import (
    Refusal,
    Request,
    answer_of,
    encoded,
    most_bytes,
    open_envelope,
    request_of,
    task_request,
)
from fastadmm.between.session import PartyState
from fastadmm.between.socket import Lost
from fastadmm.errors import FormatError, InputError, StorageError, WaitingError
from fastadmm.runs.folder import RunFolder

from federation_tools import CALLER, Killing, Parties, advance, federated, lost, train_with
from rounds_tools import data_of, separate
from run_tools import model_digests, refuses

pytestmark = pytest.mark.usefixtures("quiet")

N = 90
VALUES = {"lambda": 1e-3, "rounds": 3, "directions": "both"}


@pytest.fixture
def folder(parties):
    return parties.begin(**VALUES)


def opened(raw):
    return request_of(open_envelope(raw, most_bytes(N), "test"), N, "test")


def refusal(agent, raw, caller=CALLER, party="party-1"):
    """Code of the refusal, which is in the log as well."""
    answer = agent.handle(caller, party, raw)
    found = answer_of(open_envelope(answer, most_bytes(N), "test"), ("start", {}), N, "test")
    assert isinstance(found, Refusal)
    entries, _ = read_audit(agent.state / "audit.jsonl")
    assert entries[-1]["code"] == found.code
    assert entries[-1]["caller"] == caller
    assert entries[-1]["request"] == found.request
    assert "answer" not in entries[-1]
    return found.code


def edited(agent, directory, /, **changes):
    """The owner edits the approval."""
    path = agent.state / directory / "approval.toml"
    write_approval(replace(open_approval(path), **changes), force=True)


def attacks():
    """The code that is wanted, and what gives one of the agent, its next request and all before."""

    def sent(a, asked, **changes):
        return refusal(a, encoded(replace(asked, **changes)))

    def but(r, **changes):
        (*_, (name, arguments)) = r.calls
        assert name == "respond_pair"
        return [(name, {**arguments, **changes})]

    nan, ones, other, long = np.full(N, np.nan), np.ones(N), "0" * 64, np.ones(most_bytes(N) // 8)
    step = ("step", {"w": ones, "scaled_penalty": 1.0})
    return {
        "of an older number": ("order", lambda a, r, raw, old: sent(a, opened(old[0]), calls=but(r))),
        "reordered": ("order", lambda a, r, *_: sent(a, r, number=r.number + 2, previous=r.number + 1)),
        "changed": ("changed", lambda a, r, raw, old: sent(a, opened(old[-1]), calls=but(r))),
        "another answer taken": ("changed", lambda a, r, *_: sent(a, r, answered=f"sha256:{other}")),
        "truncated": ("damaged", lambda a, r, raw, old: refusal(a, raw[:-8])),
        "longer than it says": ("damaged", lambda a, r, raw, old: refusal(a, raw + bytes(8))),
        "oversized": ("damaged", lambda a, r, *_: sent(a, r, calls=but(r, gradient=long))),
        "noise": ("damaged", lambda a, *_: refusal(a, b"\0" * 500)),
        "NaN": ("values", lambda a, r, *_: sent(a, r, calls=but(r, gradient=nan))),
        "too long": ("values", lambda a, r, *_: sent(a, r, calls=but(r, gradient=np.ones(N + 1)))),
        "coefficients of no direction": (
            "call", lambda a, r, *_: sent(a, r, calls=but(r, coefficients=np.ones(500)))),
        "a call of another family": ("call", lambda a, r, *_: sent(a, r, calls=[step])),
        "begun again": ("call", lambda a, r, raw, old: sent(a, r, calls=opened(old[0]).calls)),
        "for another party": ("party", lambda a, r, *_: sent(a, r, party="party-2")),
        "carried to another party": ("party", lambda a, r, raw, old: refusal(a, raw, party="party-2")),
        "of another run": ("run", lambda a, r, *_: sent(a, r, run="0" * 16)),
        "another caller": ("caller", lambda a, r, raw, old: refusal(a, raw, caller="mallory")),
    }  # fmt: skip


def test_what_is_refused_changes_nothing(parties, folder, honest):
    old = []
    codes = {}

    def ask(party, raw, seconds):
        if party == "party-1" and len(old) == 2:
            agent, asked = parties.agent(party), opened(raw)
            codes.update({name: attack(agent, asked, raw, old) for name, (_, attack) in attacks().items()})
        if party == "party-1":
            old.append(raw)
        return parties.ask(party, raw, seconds)

    advance(folder, ask)
    assert codes == {name: wanted for name, (wanted, _) in attacks().items()}
    assert model_digests(folder.path) == honest
    assert not any(str(parties.folder).encode() in raw for raw in old)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    home = tmp_path_factory.mktemp("honest")
    separate(data_of(home), home)
    with closing(Parties(home)) as made:
        return model_digests(train_with(made, **VALUES))


YESTERDAY = datetime.date.today() - datetime.timedelta(days=1)


#: In an order in which each is asked about: the first begins the run, the second lets it go on to exchange 2.
LIMITS = [
    ({"protocol": 2}, "version"),
    ({"exchanges": 2}, "exchanges"),
    ({"least_lambda": 1e-2}, "lambda"),
    ({"last_day": YESTERDAY}, "expired"),
    ({"numbers": 300}, "directions"),
    ({"loss": "squared"}, "terms"),
    ({"terms": f"sha256:{'0' * 64}"}, "terms"),
    ({"regularizer": "l1"}, "terms"),
    ({"family": "admm"}, "terms"),
    ({"data": f"sha256:{'0' * 64}"}, "terms"),
    ({"fastadmm": "0.0.1"}, "version"),
    ({"callers": ["another"]}, "caller"),
    ({"run": "0" * 16}, "run"),
]


def test_limits_of_the_approval(parties, folder):
    run_id = json.loads((folder.path / "run.json").read_text())["run"]
    agent = parties.agent("party-1")
    path = agent.state / run_id / "approval.toml"
    agreed, said = path.read_bytes(), {"run": rf"party-1 has not approved {run_id}"}
    for changes, code in LIMITS:
        edited(agent, run_id, **changes)
        words = said.get(code, rf"exchange [012]: refused \({code}\)")
        refuses((InputError, WaitingError), words, advance, folder, parties.ask)
        assert read_audit(agent.state / "audit.jsonl")[0][-1]["code"] == code
        assert any(f"{code} (" in line for line in agent_status(agent.state))
        path.write_bytes(agreed)
    path.rename(path.with_name("away"))
    refuses(WaitingError, said["run"], advance, folder, parties.ask)
    path.with_name("away").rename(path)
    assert advance(folder, parties.ask)["rounds"] == 3
    assert "ended" in agent_status(agent.state)[0]


def test_one_run_at_a_time(parties, folder, monkeypatch):
    lost(folder, Killing(parties, 5, "coordinator"))
    folder.path.rename(folder.path.with_name("first"))
    other = parties.begin(**VALUES)
    refuses(InputError, r"refused \(busy\)", advance, other, parties.ask)
    monkeypatch.setattr("fastadmm.between.agent._HELD", 0.0)
    assert advance(other, parties.ask)["rounds"] == 3
    assert advance(RunFolder(folder.path.with_name("first"), folder.kind), parties.ask)["rounds"] == 3


def test_a_refused_caller_holds_nobody_up(parties, folder):
    """Another run has just ended, when somebody whom the party does not answer asks about a second one."""
    advance(folder, parties.ask)
    folder.path.rename(folder.path.with_name("first"))
    held = parties.begin(**VALUES)
    begun = []

    def gone(name, raw, seconds):
        begun.append(raw)
        raise Lost("gone")

    lost(held, gone)
    first = next(raw for raw in begun if opened(raw).party == "party-1")
    assert refusal(parties.agent("party-1"), first, caller="mallory") == "caller"
    held.path.rename(held.path.with_name("second"))
    free = parties.begin(**VALUES)
    assert advance(free, parties.ask)["rounds"] == 3


@pytest.mark.representatives(1)
@pytest.mark.parametrize("changes", [{"run": "0" * 16}, {"content": f"sha256:{'0' * 64}"}])
def test_a_snapshot_of_something_else_is_refused(parties, folder, changes, monkeypatch):
    monkeypatch.setattr("fastadmm.between.session._EXCHANGES", 2)
    lost(folder, Killing(parties, 9, "coordinator"))
    parties.kill("party-1")
    agent = parties.agent("party-1")
    (path,) = agent.state.glob("*/state.h5")
    own = PartyState.read(path)
    replace(own, **changes).write(path)
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        refuses(InputError, r"refused \(terms\)", advance, folder, parties.ask)
    assert len(os.listdir("/proc/self/fd")) == files
    assert next(iter(changes.values())) in parties.said[-1]
    own.write(path)
    assert advance(folder, parties.ask)["rounds"] == 3


def test_answers_that_are_none_or_make_no_round_are_not_kept(parties, folder, monkeypatch):
    def ask(name, raw, seconds):
        answer = parties.ask(name, raw, seconds)
        return answer[:-1] if opened(raw).number == 2 else answer

    refuses(FormatError, "party party-1: exchange 2: cut", advance, folder, ask)

    def another(name, raw, seconds):
        return parties.ask("party-1", encoded(replace(opened(raw), party="party-1")), seconds)

    refuses((FormatError, InputError), "party party-2", advance, folder, another)

    def fails(*arguments):
        raise ArithmeticError("no such span")

    with monkeypatch.context() as patch, federated(folder, parties.ask) as run:
        patch.setattr("fastadmm.coordinator.subspace.subspace.minimise_over_span", fails)
        refuses(FormatError, "no round can be made: no such span", run.advance)
    assert len(Journal(folder.path / "answers.journal")) == 0
    assert advance(folder, parties.ask)["rounds"] == 3


def test_an_audit_log_names_the_line_that_was_changed(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for k in range(3):
        log.add({"k": k, "request": str(k)})
    log.close()
    entries, digest = read_audit(path)
    assert [entry["k"] for entry in entries] == [0, 1, 2]
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (
        [*lines[:2], lines[2].replace(b"1", b"7", 1), lines[3]],
        [lines[0], lines[2], lines[1], lines[3]],
        [lines[0], lines[2], lines[3]],
        lines[1:],
    ):
        path.write_bytes(b"".join(changed))
        for use in (AuditLog, read_audit):
            refuses(FormatError, r"audit.jsonl: line \d: changed", use, path)
    path.write_bytes(b"".join(lines) + b'{"k": 3, "dig')  # a kill
    log = AuditLog(path)
    assert log.digest == digest
    log.add({"k": 3, "request": "3"})
    log.close()
    assert len(read_audit(path)[0]) == 4


def test_who_asks_without_end_fills_no_disk(parties, folder, monkeypatch):
    """A day has lines for some refusals and repetitions."""
    monkeypatch.setattr("fastadmm.between.audit._OF_DAY", 20)
    today = ["2026-01-01T00:00:00"]
    monkeypatch.setattr("fastadmm.between.agent.moment", lambda: today[0])
    last = []

    def ask(name, raw, seconds):
        if name == "party-1":
            last.append(raw)
        return parties.ask(name, raw, seconds)

    advance(folder, ask)
    agent, path = parties.agent("party-1"), parties.home("party-1") / "agent" / "audit.jsonl"
    begun, said = path.stat().st_size, len(parties.said)
    for k in range(100):
        agent.handle(f"mallory {k}", "party-1", last[-1][:100] + bytes([k % 256]) * 900)
        assert agent.handle(CALLER, "party-1", last[-1])
    assert path.stat().st_size - begun < 20 * 600
    assert len(parties.said) - said <= 20
    today[0] = "2026-01-02T00:00:00"
    agent.handle("x" * 9999, "party-1", b"")
    assert read_audit(path)[0][-1]["code"] == "damaged"


def test_one_agent_works_in_a_directory_and_nothing_leaves_that_cannot_be_audited(
    parties, folder, monkeypatch
):
    with pytest.raises(StorageError, match="another process"):
        Agent(parties.agent("party-1").data.path, parties.agent("party-1").state)

    def full(self, entry):
        raise StorageError("disk full")

    monkeypatch.setattr("fastadmm.between.audit.AuditLog.add", full)
    refuses(StorageError, "disk full", advance, folder, parties.ask)


def test_a_line_that_a_kill_kept_from_the_audit_log_is_made_up_for(parties, folder, monkeypatch):
    """The answer is in the journal by then, and may have left."""
    add, left = AuditLog.add, [3]

    def killed(self, entry):
        mine = self.path.parent.parent.name == "party-1"
        left[0] -= mine
        if mine and left[0] == 0:
            raise KeyboardInterrupt
        add(self, entry)

    def ask(name, raw, seconds):
        try:
            return parties.ask(name, raw, seconds)
        except KeyboardInterrupt:
            parties.kill(name)
            raise Lost("killed") from None

    monkeypatch.setattr("fastadmm.between.audit.AuditLog.add", killed)
    lost(folder, ask)
    assert advance(folder, ask)["rounds"] == 3
    entries, _ = read_audit(parties.home("party-1") / "agent" / "audit.jsonl")
    assert [(entry["number"], entry["repeated"]) for entry in entries] == [
        *((0, False), (1, False), (2, False), (2, True), (3, False), (4, False), (5, False))
    ]


def test_what_nobody_may_ask_is_not_read(parties, folder, monkeypatch):
    agent, long = parties.agent("party-1"), np.zeros(1 << 19)
    read = []
    digest_of = schema.digest_of

    def counted(raw):
        read.append(len(raw))
        return digest_of(raw)

    monkeypatch.setattr(schema, "digest_of", counted)
    monkeypatch.setattr("fastadmm.between.agent.digest_of", counted)
    arguments = {"gradient": long, "coefficients": np.zeros(0)}
    known = json.loads((folder.path / "run.json").read_text())["run"]
    unknown = "0123456789abcdef"
    for run, caller, code in ((unknown, CALLER, "run"), (known, "somebody", "caller")):
        request = Request(run, "party-1", 1, 0, [("respond_pair", arguments)])
        assert refusal(agent, encoded(request), caller) == code
    table = {"n_ids": 1, "request": long.view(np.uint8)}
    assert refusal(agent, encoded(task_request(unknown, "party-1", "intersect", table))) == "task"
    assert not read


def test_what_one_caller_asks_pushes_out_its_own(tmp_path):
    def ask(caller, number):
        keep_asked(tmp_path, f"{number:016x}", {"format": "fastadmm-run", "coordinator": caller})

    def kept(caller):
        return sum(f"'{caller}' asks" in line for line in asked_lines(tmp_path))

    ask("coordinator", 0)
    for number in range(1, 30):
        ask("somebody", number)
    assert (kept("coordinator"), kept("somebody")) == (1, 20)
    ask("somebody", 0)
    with pytest.raises(InputError, match="2 different things were asked for as 0000000000000000"):
        asked_file(f"{0:016x}", tmp_path)
    for number in range(20):
        ask(f"caller {number}", number)
    assert len(asked_lines(tmp_path)) == 10
