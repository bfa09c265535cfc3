"""Sums only: who remembers what, so that no difference of two sums or two masked answers shows one party."""

import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.between.agent import Agent
from fastadmm.between.approval import privacy_text
from fastadmm.between.approval_file import open_approval, write_approval
from fastadmm.between.consent import approve_fingerprints, consent_to_run, run_description, shown_digest
from fastadmm.between.memory import memory_folder
from fastadmm.errors import FormatError
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.secrecy.keys import fingerprint, kept_private_key, keys_of
from fastadmm.secrecy.masks import add_up, from_grid

from test_consent import CALLER, Consenting, party_file, terms_of

pytest.importorskip("cryptography", reason='needs cryptography: pip install "fastadmm[secrecy]"')

N, STEP = 40, 2.0**-50
FEATURES = {
    name: np.random.default_rng(k).normal(size=(N, d))
    for k, (name, d) in enumerate((("A", 3), ("B", 4), ("C", 2)))
}


class Member(Consenting):
    """One party of a run with sums only, and a coordinator that asks it by hand."""

    def __init__(self, home, name, run, names, **files):
        home.mkdir(parents=True)
        self.home, self.name, self.run, self.names = home, name, run, names
        self.state, self.said = home / "state", list[str]()
        self.data = party_file(home / f"{name}.h5", files.get("features", FEATURES.get(name)))
        self.previous, self.answered = -1, ""
        self.restart()

    def restart(self):
        self.agent = Agent(self.data.path, self.state, threads=1, say=self.said.append)

    def terms(self):
        return {
            "family": "subspace_sums",
            "parties": ",".join(self.names),
            "position": self.names.index(self.name),
        }

    def start(self, **limits):
        begin = ("start", terms_of(self.data, **self.terms()))
        assert self.ask(begin)[1] == "run"
        self.look(self.run, confirm=shown_digest(self.look(self.run)))
        path = self.state / self.run / "approval.toml"
        write_approval(replace(open_approval(path), **limits), force=True)
        return self.ask(begin)[1]


def introduced(members):
    keys = np.concatenate([member.ask(("show_key", {}))[0]["key"] for member in members])
    prints = [fingerprint(key) for key in keys_of(keys)]
    for k, member in enumerate(members):
        approve_fingerprints(member.run, [p for m, p in enumerate(prints) if m != k], member.state)
        assert member.ask(("introduce", {"keys": keys}), ("sum_squares", {"exchange": 1}))[1] == ""


def direction(members, gradient):
    arguments = {"exchange": 2, "gradient": gradient, "coefficients": np.zeros(0), "step": STEP}
    arguments |= {"measured": 0}
    calls = ("set_metric", {"curvature": np.ones(N)}), ("respond_masked", {**arguments, "units": np.ones(2)})
    found = [member.ask(*calls) for member in members]
    assert [code for _, code in found] == [""] * len(members)
    return [answer for answer, _ in found]


@pytest.fixture
def opened():
    made: list[Member] = []
    yield made
    for member in made:
        member.agent.close()


def begun(opened, home, run, names, **files):
    members = [Member(home / run / name, name, run, names, **files) for name in names]
    opened += members
    return members


FIRST, SECOND = "a" * 16, "b" * 16


def test_a_sum_among_others_is_refused_unless_the_owner_agrees(tmp_path, opened):
    """Two honest runs, one with A and one without: their difference would be A's message."""
    three = begun(opened, tmp_path, FIRST, "ABC")
    assert [member.start() for member in three] == ["", "", ""]
    introduced(three)
    whole = from_grid(add_up(direction(three, np.ones(N))).rows, STEP)
    two = begun(opened, tmp_path, SECOND, "BC")
    assert two[0].start() == "members"
    assert f"added up among A, B, C in run {FIRST}, and now among B, C" in two[0].said[-1]
    assert "other_members = true" in two[0].said[-1]
    assert two[1].start(other_members=True) == ""
    # The same members again are no news, whatever the order, and what else was agreed to.
    again = begun(opened, tmp_path, "c" * 16, "CBA")
    assert [member.start() for member in again] == ["", "", ""]
    assert len(whole) == 2 * N


@pytest.mark.parametrize("kind", ["part of the rows", "scaled", "another name"])
def test_the_same_data_are_recognised(tmp_path, opened, kind):
    assert begun(opened, tmp_path, FIRST, "ABC")[1].start() == ""
    name = "D" if kind == "another name" else "B"
    features = FEATURES["B"] * (2.0 if kind == "scaled" else 1.0)
    features = features[: N // 2] if kind == "part of the rows" else features
    opened.append(Member(tmp_path / "other", name, SECOND, f"{name}C", features=features))
    assert opened[-1].start() == "members"


def test_the_owner_is_told_of_earlier_sums(tmp_path, opened):
    members = begun(opened, tmp_path, FIRST, "ABC")
    assert [member.start() for member in members] == ["", "", ""]
    alone = begun(opened, tmp_path, SECOND, "BC")[0]
    for family, told in (("subspace", True), ("subspace_sums", True), ("fusion", False)):
        private = {"privacy": privacy_text(Privacy(mode="fusion", epsilon=1.0, delta=1e-6))}
        more = private if family == "fusion" else {}
        terms = terms_of(alone.data, family=family, parties="B,C", **more)
        document = run_description(SECOND, CALLER, {"B": terms})
        words = " ".join(" ".join(consent_to_run(document, "x", alone.data.path, alone.state).words).split())
        assert (f"part of a sum of 3 parties in run '{FIRST}'" in words) == told
    same = terms_of(members[1].data, family="subspace_sums", parties="A,B,C", position=1)
    document = run_description(SECOND, CALLER, {"B": same})
    assert "part of a sum" not in " ".join(consent_to_run(document, "x", alone.data.path, alone.state).words)


def test_a_mask_hides_one_answer(tmp_path, opened, monkeypatch):
    """A state from a backup, and data that are not what they were."""
    members = begun(opened, tmp_path, FIRST, "AB")
    assert [member.start() for member in members] == ["", ""]
    introduced(members)
    direction(members, np.arange(float(N)) / N)
    first = members[0]
    first.agent.close()
    shutil.copytree(first.state, tmp_path / "backup")
    about = {"exchange": 3, "u": np.ones(N), "eps": 0.1, "scale": 1.0, "kept": False, "step": STEP}
    about["coefficients"] = np.array([1.0, 0.0])
    before = first.previous, first.answered

    def asked_again():
        first.previous, first.answered = before
        first.restart()
        try:
            return first.ask(("prove_masked", about))
        finally:
            first.agent.close()
            shutil.rmtree(first.state)
            shutil.copytree(tmp_path / "backup", first.state)

    one, code = asked_again()
    assert code == ""
    same, code = asked_again()
    assert code == ""
    assert same["rows"].tobytes() == one["rows"].tobytes()
    # Whatever an answer may depend on: no mask leaves with two answers.
    honest = MaskedDirectionParty.share_of

    def other(self, *about):
        message, share = honest(self, *about)
        return message + 1.0, share

    with monkeypatch.context() as patch:
        patch.setattr(MaskedDirectionParty, "share_of", other)
        assert asked_again() == (None, "changed")
    assert "answered under the same mask, with other data" in first.said[-1]
    assert asked_again()[1] == ""
    first.restart()


def test_a_run_has_a_key_for_each_of_its_parties(tmp_path, opened):
    """Named as three, it could be a sum of two."""
    members = begun(opened, tmp_path, FIRST, "ABC")
    assert [member.start() for member in members] == [""] * 3
    keys = np.concatenate([member.ask(("show_key", {}))[0]["key"] for member in members])
    two = keys[4:]
    members[1].agent.close()
    members[1].restart()
    own = [fingerprint(key) for key in keys_of(two)]
    approve_fingerprints(FIRST, own, members[1].state)
    begin = ("introduce", {"keys": two}), ("sum_squares", {"exchange": 1})
    assert members[1].ask(*begin) == (None, "call")
    assert "2 keys in a run of 3 parties" in members[1].said[-1]
    lines = (members[1].state / FIRST / "keys.txt").read_text().splitlines()
    assert lines[0].startswith("key of party 1, A: ")


def test_other_data_have_another_key(tmp_path):
    path = tmp_path / "private.key"
    key = kept_private_key(path, "x")
    assert kept_private_key(path, "x") == key
    for digest, size in (("y", None), ("x", 40)):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(FormatError, match="not a key of a run on these data"):
            kept_private_key(path, digest)


def test_the_memory_lies_outside_and_is_its_owners(tmp_path, opened, monkeypatch):
    monkeypatch.delenv("FASTADMM_MEMORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert memory_folder() == tmp_path / "xdg" / "fastadmm"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert memory_folder() == tmp_path / ".local" / "state" / "fastadmm"
    monkeypatch.setenv("FASTADMM_MEMORY", str(tmp_path / "kept"))
    first, second = begun(opened, tmp_path, FIRST, "AB")
    assert first.start() == ""
    path = tmp_path / "kept" / "sums.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    whole = path.read_bytes()
    # A line that a kill cut goes; a whole one that was changed does not.
    path.write_bytes(whole + b"0123")
    assert second.start() == ""
    assert path.read_bytes().startswith(whole)
    assert path.read_bytes().count(b"\n") == 2
    changed = bytearray(path.read_bytes())
    changed[-20] ^= 1
    path.write_bytes(changed)
    third = begun(opened, tmp_path, SECOND, "AB")[0]
    with pytest.raises(FormatError, match=r"sums\.jsonl: line 2 is damaged"):
        third.start()
