"""Whether, how and how often a party of a protected run answers does not depend on its rows."""

import ast
import json
import secrets
from pathlib import Path

import numpy as np
import pytest
from fastadmm import Privacy
from fastadmm.between.agent import Agent
from fastadmm.between.approval import privacy_text
from fastadmm.conversation import gate
from fastadmm.errors import FormatError, InputError
from fastadmm.privacy.ledger import Ledger
from fastadmm.store.party_file import PartyWriter

import neighbours
from neighbours import Coordinator, first_terms, try_all

#: Eight sequences: each mode between agents once and by files once.
SHARE = [range(first, first + 4) for first in (0, 12)]


@pytest.fixture(autouse=True)
def exchanges(monkeypatch):
    monkeypatch.setattr(neighbours.sessions, "_EXCHANGES", 4)  # given back after the test


@pytest.mark.parametrize("seeds", SHARE, ids=str)
def test_the_coordinator_sees_the_same_of_neighbours(seeds, tmp_path):
    assert not try_all(seeds, tmp_path)


@pytest.mark.slow
def test_two_thousand_sequences(tmp_path):
    assert not try_all(range(2000), tmp_path)


def coordinator(tmp_path, X, mode, **more):
    """Of a run that the party has approved."""
    plain = {"regularization": 1.0, "regularizer": "l2"}
    terms = first_terms(np.random.default_rng(1), mode, len(X)) | plain | more
    made = Coordinator(tmp_path / secrets.token_hex(4), X, mode, terms)
    made.ask([("start", made.terms)])
    return made


def test_a_certificate_that_cannot_hold_is_no_oracle(tmp_path):
    """The slack that decided was the requester's, and so was mu; a refusal told whether a record is zero."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 4))
    X[rng.random(24) < 0.3] = 0.0
    private = {"mode": "message", "epsilon": 0.1, "delta": 1e-6, "adjacency": "zero_out"}
    chosen = json.dumps({**json.loads(privacy_text(Privacy(**private))), "slack": 1e-300})
    with pytest.raises(FormatError, match="unknown key 'slack'"):  # its owner cannot even approve it
        coordinator(tmp_path, X, "message", penalty=1.0, privacy=chosen)
    # mu as small as anybody may choose it: the noise grows with what rounding may do, nobody is refused.
    asked = coordinator(tmp_path, X, "message", penalty=1e20, privacy=privacy_text(Privacy(**private)))
    assert asked.seen[-1][0] == "answer"
    for row in np.eye(24)[:9]:  # as many as the approval has room for
        asked.ask([("settle", {"target": row}), ("noisy", {"target": row, "round": 99})])
        assert asked.seen[-1][0] == "call"
    asked.ask([("settle", {"target": np.eye(24)[0]}), ("noisy", {"target": np.eye(24)[0], "round": 1})])
    assert asked.seen[-1][0] == "answer"
    assert [c.release for c in Ledger(asked.ledger).charges] == ["message 1"]
    asked.close()


def test_the_range_of_the_grid_is_no_oracle(tmp_path):
    """Bisecting the scale at which a party refused read the inner products of its rows."""
    X = np.random.default_rng(2).normal(size=(12, 3))
    asked = coordinator(tmp_path, X, "subspace_sums")
    asked.ask([("show_key", {})])
    neighbours.approve_fingerprints(
        neighbours.RUN, [neighbours.fingerprint(key) for key in asked.keys[1:]], asked.home / "state"
    )
    asked.ask([("introduce", {"keys": np.zeros(12, "<i8")}), ("sum_squares", {"exchange": 1})])
    assert asked.seen[-1][0] == "answer"
    units, none = np.array([1e-300, 1e-300]), np.zeros(0)
    for power in range(-60, 101, 4):
        said = {"gradient": np.eye(12)[0] * 2.0**power, "units": units, "measured": 0, "step": 2.0**-200}
        calls = [
            ("set_metric", {"curvature": np.ones(12)}),
            ("respond_masked", {"exchange": 2, "coefficients": none, **said}),
            ("respond_masked", {"exchange": 77, "coefficients": np.zeros(2), **said}),
        ]
        asked.ask(calls)
        assert asked.seen[-1][0] == "call"  # by the number of the exchange, at every scale
    asked.ask(calls[:2])
    assert asked.seen[-1] == ("answer", asked.seen[-1][1])
    asked.close()


def test_a_session_that_refuses_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("fastadmm.between.approval.MOST_REFUSALS", 5)
    asked = coordinator(tmp_path, np.eye(6), "message", penalty=1.0)
    target = np.zeros(6)
    for _ in range(5):
        asked.ask([("noisy", {"target": target, "round": 99})])
        asked.wake()  # it is on disk
    assert [code for code, _ in asked.seen[-5:]] == ["call"] * 5
    asked.ask([("noisy", {"target": target, "round": 1})])
    assert asked.seen[-1][0] == "ended"
    asked.close()


def test_settings_of_a_private_run_are_those_that_were_approved(tmp_path):
    settings = Privacy(mode="message", epsilon=1.0, delta=1e-6)
    for change in (
        {"ball": 9.0},
        {"message_clip": 1.0},
        {"rounds": 2},
        {"target_clip": 2.0},
        {"label_epsilon": 1.0},
    ):
        asked = coordinator(tmp_path, np.eye(6), "message", penalty=1.0, privacy=privacy_text(settings))
        other = privacy_text(settings.with_(**change))
        asked.close()
        asked = Coordinator(tmp_path / secrets.token_hex(4), np.eye(6), "message", asked.terms)
        asked.ask([("start", {**asked.terms, "privacy": other})])
        assert asked.seen[-1][0] == "privacy"
        asked.ask([("start", {**asked.terms, "penalty": 2.0})])
        assert asked.seen[-1][0] == "privacy"
        asked.ask([("start", asked.terms)])
        assert asked.seen[-1][0] == "answer"
        asked.close()


@pytest.mark.parametrize("value", [1e30, -1e200])
def test_features_that_are_too_large_are_their_owners_error(value, tmp_path):
    X = np.eye(5)
    X[3, 2] = value
    with PartyWriter(tmp_path / "a.h5", name="a", n_features=5, kind="dense") as writer:
        writer.append(X, ids=np.arange(5))
    with pytest.raises(InputError, match=r"a\.h5: holds a value of .* too large .* rescale its column"):
        Agent(tmp_path / "a.h5", tmp_path / "state", say=lambda _: None)


def test_what_counts_as_out_of_range():
    given = np.array([-3.0, 0.5, 2.0])
    assert gate.saturated(given, 3.0) is given
    assert gate.saturated(given, 1.0).tolist() == [-1.0, 0.5, 1.0]
    assert gate.saturated(np.array([np.nan, np.inf, -np.inf]), 1.0).tolist() == [1.0, 1.0, -1.0]
    assert gate.certified(given, 1.0, 1.0) is given
    assert gate.certified(given, np.nan, 1.0).tolist() == [0.0] * 3


#: What is computed from rows in a protected run.
_FROM_ROWS = {
    "parties": ("masked_direction",),
    "secrecy": ("masks",),
    "privacy": ("message_party", "fusion_party", "fusion_mechanisms", "noise", "sensitivity"),
}

#: By arguments, settings or a state that was read; a nonce that is used twice; a source that is pickled.
_PUBLIC = {"Unanswerable", "ConfigError", "ValueError", "RuntimeError", "TypeError"}


def test_nothing_that_is_computed_from_rows_ends_in_an_error():
    root = Path(gate.__file__).parents[1]
    for path in (root / room / f"{name}.py" for room, names in _FROM_ROWS.items() for name in names):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                assert ast.unparse(raised) in _PUBLIC, f"{path.name}, line {node.lineno}: decided in the gate"
