"""A coordinator that deviates: what is beyond the party's approval is refused before it is computed."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fastadmm.between import approval as approvals
from fastadmm.between.agent import party_approve, party_step
from fastadmm.between.approval import REFUSALS
from fastadmm.between.approval_file import in_plain_words, open_approval, write_approval
from fastadmm.between.audit import AUDIT
from fastadmm.between.hub import open_letter
from fastadmm.between.schema import Request, table_digest
from fastadmm.errors import FormatError, InputError
from fastadmm.store.party_file import open_party

from rounds_tools import values_of, write_request
from run_tools import refuses, run, within, write_blocks

N, D, RUN = 40, 3, "5f0c5f0c5f0c5f0c"


class Coordinator:
    """One that writes whatever requests it likes."""

    def __init__(self, home: Path, **settings: Any) -> None:
        rng = np.random.default_rng(3)
        self.home, self.rng, self.features = home, rng, rng.normal(size=(N, D))
        parts = write_blocks(home / "d.parts", [self.features], np.arange(N) % 2.0)
        self.data, self.state = parts / "party-1.h5", home / "state"
        party = open_party(self.data)
        self.settings = {
            "family": "admm", "regularization": 0.4, "x_update": "auto", "regularizer": "l1",
            "l1_ratio": -1.0, "constraint": "all", "n_samples": N, "row_digest": party.row_digest,
            "position": 0, "loss": "logistic", "penalty": 0.0, "table": table_digest(), "release": "1.0",
            "parties": "party-1,party-2", **settings,
        }  # fmt: skip
        self.exchanges, self.answered = 0, ""

    def request(self, *calls: tuple[str, dict[str, Any]], number: int | None = None) -> Path:
        number = self.exchanges if number is None else number
        path = self.home / f"request-{number}.h5"
        write_request(path, Request(RUN, "party-1", number, number - 1, list(calls), self.answered))
        return path

    def ask(self, *calls: tuple[str, dict[str, Any]], approval: Path | None = None) -> dict[str, Any]:
        out = self.home / f"message-{self.exchanges}.h5"
        party_step(self.data, self.state, self.request(*calls), out, approval=approval, threads=1)
        self.exchanges, self.answered = self.exchanges + 1, open_letter(out, 1 << 20).digest
        return values_of(out)[0][1]

    def begin(self, **limits: Any) -> None:
        """With an approval that the owner has edited."""
        first, path = self.request(("start", self.settings)), self.home / "approval.toml"
        party_approve(first, self.data, path)
        write_approval(replace(open_approval(path), **limits), force=True)
        self.ask(("start", self.settings), approval=path)

    def step(self, w: np.ndarray, penalty: float = 1.0) -> dict[str, Any]:
        return self.ask(("step", {"w": w, "scaled_penalty": penalty}))

    def refused(
        self, text: str, *calls: tuple[str, dict[str, Any]], error: type[Exception] = InputError
    ) -> None:
        """This is not answered, and leaves everything as it was, but that it is counted."""
        logged = (AUDIT, "requests.journal", ".lock")
        before = {p: p.read_bytes() for p in self.state.rglob("*") if p.is_file() and p.name not in logged}
        out = self.home / "refused.h5"
        refuses(error, text, party_step, self.data, self.state, self.request(*calls), out, threads=1)
        assert not out.exists()
        counted = self.state / REFUSALS  # a refusal counts, and that is all
        before[counted] = before.get(counted, b"") + b"-" * self.counts(text)
        after = {p: p.read_bytes() for p in self.state.rglob("*") if p.is_file() and p.name not in logged}
        assert after == {path: content for path, content in before.items() if content}

    @staticmethod
    def counts(text: str) -> bool:
        """Whether a refusal in these words is not of what is beyond all that counts."""
        return not any(word in text for word in ("would be", "last day", "run's end"))


def columns_read(coordinator: Coordinator, found: list[np.ndarray]) -> int:
    """How many columns of the party these are, to six digits."""
    columns = coordinator.features
    return len(
        {
            j
            for c in found
            for j in range(D)
            if min(np.abs(c - s * columns[:, j]).max() for s in (1, -1)) < 1e-6
        }
    )


def away_from(found: list[np.ndarray], w: np.ndarray) -> np.ndarray:
    """A target that columns read already do not answer to."""
    basis = np.linalg.qr(np.array(found).T)[0] if found else np.zeros((N, 0))
    return w - basis @ (basis.T @ w)


def by_penalty(coordinator: Coordinator) -> list[np.ndarray]:
    """Halve the penalty until a single column answers: no question but x-updates."""
    found: list[np.ndarray] = []
    while len(found) < D:
        w = away_from(found, coordinator.rng.normal(size=N))
        low, high = 1e-4, 1e4
        while True:
            middle = float(np.sqrt(low * high))
            answer = coordinator.step(w, middle)
            size = answer["penalty"] / coordinator.settings["regularization"]
            if size == 0.0:
                low = middle
            else:
                high = middle
                if high / low < 1.0 + 1e-3:
                    break
        found.append(answer["message"] / size)
    return found


def by_scale(coordinator: Coordinator) -> list[np.ndarray]:
    """The same with a fixed penalty: a dual scale says how large a target a single column answers to."""
    found: list[np.ndarray] = []
    while len(found) < D:
        w = away_from(found, coordinator.rng.normal(size=N))
        scale = coordinator.ask(("dual_scale", {"u": 100.0 * w}))["value"]
        answer = coordinator.step(100.0 * w * scale * (1.0 + 1e-5))
        found.append(answer["message"] / (answer["penalty"] / coordinator.settings["regularization"]))
    return found


@pytest.mark.repeats
def test_a_chosen_penalty_reads_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.begin()
    refuses(InputError, "another penalty after round 1", by_penalty, coordinator)
    assert coordinator.exchanges == 2  # the start, and one question
    # What it gave before: every column, in some thirty exchanges each.
    monkeypatch.setattr(approvals, "_count_change", lambda *_: None)
    found = by_penalty(coordinator)
    assert columns_read(coordinator, found) == D
    assert coordinator.exchanges < 2 + 40 * D


@pytest.mark.repeats
def test_a_chosen_target_reads_no_more_columns_than_exchanges_allow(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.begin(exchanges=6)
    read: list[np.ndarray] = []
    with pytest.raises(InputError, match="6 exchanges, and this would be number 7"):
        read = by_scale(coordinator)
    assert not read
    assert coordinator.exchanges == 6
    # Two columns are out by then, which is why `party approve` says so, and asks for trust.
    (tmp_path / "more").mkdir()
    other = Coordinator(tmp_path / "more")
    other.begin()
    assert columns_read(other, by_scale(other)) == D
    assert other.exchanges == 1 + 2 * D


def test_under_squared_l2_no_answer_tells_columns_from_their_rotation(tmp_path: Path) -> None:
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(D, D)))[0]
    answers = []
    for name in ("as they are", "turned"):
        (tmp_path / name).mkdir()
        one = Coordinator(tmp_path / name, regularizer="l2")
        if name == "turned":
            parts = write_blocks(tmp_path / name / "t.parts", [one.features @ turn], np.arange(N) % 2.0)
            one.data = parts / "party-1.h5"
        answers.append([one.ask(("start", one.settings)), by_hand(one)])
    for key in answers[0][1]:
        np.testing.assert_allclose(answers[0][1][key], answers[1][1][key], rtol=1e-9, atol=1e-12)


def by_hand(coordinator: Coordinator) -> dict[str, Any]:
    vector = np.random.default_rng(1).normal(size=N)
    step = coordinator.step(vector)
    return {**step, **coordinator.ask(("certify", {"gradient": vector, "pull": vector[::-1].copy()}))}


def test_what_an_approval_does_not_allow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.begin(exchanges=7, numbers=100)
    w = np.ones(N)
    other = {**coordinator.settings, "regularization": 0.04}
    coordinator.refused("unknown here", ("start", other), error=FormatError)  # lambda, midway
    coordinator.refused("unknown here", ("respond", {"gradient": w, "coefficients": w[:0], "newton": True}),
                        error=FormatError)  # fmt: skip
    coordinator.step(w)
    coordinator.refused("another penalty", ("step", {"w": w, "scaled_penalty": 2.0}))
    coordinator.refused(
        "another penalty", ("set_metric", {"curvature": 2 * w}), ("step", {"w": w, "scaled_penalty": 1.0})
    )
    coordinator.step(w)
    coordinator.refused(
        "7 exchanges, and this would be number 8, of which 4 were refused", ("dual_scale", {"u": w})
    )
    # The owner may allow more, and set an end; what is out is given again on every day.
    kept = tmp_path / "state" / "approval.toml"
    write_approval(replace(open_approval(kept), exchanges=9, numbers=100), force=True)
    beyond = "100 numbers about rows, and with this answer it would be 132"
    coordinator.refused(beyond, ("step", {"w": w, "scaled_penalty": 1.0}))
    write_approval(replace(open_approval(kept), last_day=datetime.date(2031, 5, 6)), force=True)
    coordinator.ask(("dual_scale", {"u": w}))
    monkeypatch.setattr(approvals, "_today", lambda: datetime.date(2031, 5, 7))
    coordinator.refused("last day was 2031-05-06", ("dual_scale", {"u": w}))
    out = tmp_path / "again.h5"
    assert (
        "answered before"
        in party_step(coordinator.data, coordinator.state, tmp_path / "request-2.h5", out)[0]
    )
    assert out.read_bytes() == (tmp_path / "message-2.h5").read_bytes()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"regularization": 0.39}, "lambda is at least 0.01, not 0.00975"),
        ({"regularizer": "elastic_net", "l1_ratio": 0.5}, "'regularizer' is 'l1'"),
        ({"constraint": "box:0,1"}, "'constraint' is 'all'"),
        ({"loss": "hinge"}, "'loss' is 'logistic'"),
        ({"family": "subspace"}, "'family' is 'admm'"),
        ({"n_classes": 3}, "'n_classes' is None, but the request is about 3"),
    ],
)
def test_a_run_that_is_not_the_one_approved_does_not_begin(tmp_path: Path, changed: dict, text: str) -> None:
    coordinator = Coordinator(tmp_path)
    path = tmp_path / "approval.toml"
    party_approve(coordinator.request(("start", coordinator.settings)), coordinator.data, path)
    coordinator.settings |= changed
    refuses(InputError, text, coordinator.ask, ("start", coordinator.settings), approval=path)
    assert not coordinator.state.exists()


def test_what_is_answered_for_several_classes_counts_once_for_each(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, family="multinomial_admm", n_classes=3)
    coordinator.begin(numbers=260)

    def step(classes: int, penalty: float = 1.0) -> tuple[str, dict[str, Any]]:
        return "step_classes", {"w": np.ones((classes, N)), "scaled_penalty": penalty}

    coordinator.refused("'w' is of 4 classes instead of 3", step(4), error=FormatError)
    scalar = ("step", {"w": np.ones(N), "scaled_penalty": 1.0})
    coordinator.refused("'step' is unknown here", scalar, error=FormatError)
    assert coordinator.ask(step(3))["message"].shape == (3, N)
    coordinator.refused("another penalty after round 1", step(3, 2.0))
    coordinator.ask(step(3))
    coordinator.refused("260 numbers about rows, and with this answer it would be 372", step(3))
    # A target for each class: as many columns at once, which is why `party approve` says so.
    words = " ".join(in_plain_words(open_approval(tmp_path / "approval.toml"), open_party(coordinator.data)))
    assert "loss logistic with 3 classes" in words
    assert "3 in two questions or more" in " ".join(words.split())


@pytest.mark.parametrize("family", ["multinomial_subspace", "multinomial_admm"])
@pytest.mark.parametrize("classes", [{}, {"n_classes": 1}, {"n_classes": 1001}])
def test_a_number_of_classes_that_no_run_has(tmp_path: Path, family: str, classes: dict) -> None:
    coordinator = Coordinator(tmp_path, family=family, regularizer="l2", **classes)
    with pytest.raises(FormatError, match=r"'n_classes': .* needs a number from 2 to 1000"):
        coordinator.ask(("start", coordinator.settings))


def test_coefficients_of_several_classes_are_of_the_directions_that_were_sent(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, family="multinomial_subspace", regularizer="l2", n_classes=3)
    coordinator.ask(("start", coordinator.settings))
    gradient = coordinator.rng.normal(size=(3, N))

    def respond(directions: int) -> tuple[str, dict[str, Any]]:
        coefficients = np.ones((3, directions))
        return "respond_classes", {"gradient": gradient, "class_coefficients": coefficients, "newton": True}

    sent = len(coordinator.ask(respond(0))["message"])
    coordinator.refused(f"9 coefficients for {sent} directions", respond(9), error=FormatError)
    forget = ("forget_classes", {"directions": np.ones((1, sent + 1))})
    coordinator.refused("not combinations of the directions", forget, respond(sent), error=FormatError)
    coordinator.refused(
        "'finish': family 'multinomial_subspace' needs", ("finish", {"model_id": "m"}), error=FormatError
    )
    coordinator.ask(("finish", {"model_id": "m", "class_coefficients": np.ones((3, sent))}))


def test_approvals_are_needed_and_honest_changes_pass(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    refuses(InputError, "fastadmm party approve", coordinator.ask, ("start", coordinator.settings))
    assert not coordinator.state.exists()
    coordinator.settings["regularizer"] = "l2"
    coordinator.ask(("start", coordinator.settings))
    kept = open_approval(coordinator.state / "approval.toml")
    assert (kept.run, kept.regularizer, kept.least_lambda, kept.last_day) == (RUN, "l2", 0.01, None)
    # Honest changes of the penalty pass.
    tmp_path = within(tmp_path)
    coordinator = Coordinator(tmp_path)
    coordinator.begin()
    w, penalty = np.ones(N), 1.0
    for number in range(1, 14):
        coordinator.step(w, penalty)
        if number in (3, 6, 12):
            penalty *= 2.0
    fixed = Coordinator(tmp_path / "fixed", penalty=1.0) if (tmp_path / "fixed").mkdir() is None else None
    fixed.begin()
    for _ in range(3):
        fixed.step(w)
    fixed.refused("where no honest run changes it", ("step", {"w": w, "scaled_penalty": 2.0}))
    # A metric brings a penalty of its own: one change, not two.
    terms = {"family": min(approvals._ADMM), "penalty": 0.0, "n_samples": N}
    calls = [("set_metric", {}), ("step", {"scaled_penalty": 2.0})]
    assert approvals._count(calls, terms, approvals.Answered(steps=3, penalty=1.0), "here").changes == 1


def test_a_run_by_files_has_no_words_of_its_own(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, regularizer="l2")
    path, forged = tmp_path / "forged.h5", "5f0c; 9 parties. Nothing leaves without noise"
    write_request(path, Request(forged, "party-1", 0, -1, [("start", coordinator.settings)]))
    refuses(FormatError, "no identifier of a run", party_approve, path, coordinator.data, tmp_path / "a.toml")
    loss = coordinator.settings | {"loss": "logistic, with noise"}
    write_request(tmp_path / "loss.h5", Request(RUN, "party-1", 0, -1, [("start", loss)]))
    with pytest.raises(FormatError, match="argument 'loss': 'logistic, with noise' is unknown here"):
        party_approve(tmp_path / "loss.h5", coordinator.data, tmp_path / "b.toml")
    with pytest.raises(FormatError, match="'logistic, with noise' is unknown here"):
        party_step(coordinator.data, coordinator.state, tmp_path / "loss.h5", tmp_path / "m.h5")
    assert not coordinator.state.exists()


def test_party_approve_replaces_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    coordinator = Coordinator(tmp_path)
    first = coordinator.request(("start", coordinator.settings))
    command = ["party", "approve", first, "--data", coordinator.data, "-o", tmp_path / "a.toml"]
    assert run(*command) == 0
    assert run(*command) == 6  # not replaced
    assert f'run = "{RUN}"  # this run' in (tmp_path / "a.toml").read_text()
    wrong = coordinator.request(("step", {"w": np.ones(N), "scaled_penalty": 1.0}), number=4)
    assert run("party", "approve", wrong, "--data", coordinator.data, "-o", tmp_path / "b.toml") == 3
    assert "not the first request" in capsys.readouterr().err


def test_requests_are_of_this_version_data_and_run(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, regularizer="l2")
    coordinator.ask(("start", coordinator.settings))
    words = "unknown here; install the version of fastadmm that the coordinator has"
    step = {"w": np.ones(N), "scaled_penalty": 1.0, "later": True}
    coordinator.refused(f"'later' is {words}", ("step", step), error=FormatError)
    # A request is of this data and run.
    tmp_path = within(tmp_path)
    coordinator = Coordinator(tmp_path, regularizer="l2")
    coordinator.ask(("start", coordinator.settings))
    calls = [("step", {"w": np.ones(N), "scaled_penalty": 1.0})]
    path = tmp_path / "r.h5"
    # The coordinator means another answer than the one that was given: a state from a backup.
    write_request(path, Request(RUN, "party-1", 1, 0, calls, "sha256:" + "0" * 64))
    with pytest.raises(InputError, match="took another answer to request 0"):
        party_step(coordinator.data, coordinator.state, path, tmp_path / "m.h5")
    write_request(
        path, Request(RUN, "party-1", 1, 0, calls, open_letter(tmp_path / "message-0.h5", 1 << 20).digest)
    )
    party_step(coordinator.data, coordinator.state, path, tmp_path / "m.h5")


def test_what_a_model_says_about_privacy_is_the_partys_word(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, regularizer="l2")
    coordinator.ask(("start", coordinator.settings))
    coordinator.step(np.ones(N))
    forged = ("finish", {"model_id": "m", "privacy": "epsilon = 0"})
    coordinator.refused("'privacy' is unknown here", forged, error=FormatError)
    coordinator.ask(("finish", {"model_id": "m"}))
    with h5py.File(coordinator.state / "party-1.h5") as file:
        said = file.attrs["privacy"]
    assert "epsilon = 0" not in said
    assert "honest" in said
    coordinator.refused("after the run's end", ("step", {"w": np.ones(N), "scaled_penalty": 1.0}))
