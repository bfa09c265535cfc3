"""Standard errors between parties: as in one process, and nothing leaves that a rotation changes."""

import datetime
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastadmm.between.agent import agent_status, party_infer
from fastadmm.between.approval_file import TaskApproval, open_task_approval, write_approval
from fastadmm.between.consent import agent_approve
from fastadmm.between.letters import open_letter, sealed
from fastadmm.between.predict import ask_inference, coordinator_infer
from fastadmm.between.scoring import inference_words
from fastadmm.between.task import encode_task, task_of
from fastadmm.blocks.block import as_block
from fastadmm.conversation.exchange import converse
from fastadmm.conversation.threads import Threads
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, WaitingError
from fastadmm.inference.between import Asked, InferenceParty, inferring
from fastadmm.inference.table import Inference, infer
from fastadmm.problem.problem import make_problem
from fastadmm.runs.config import make_config
from fastadmm.runs.infer import infer_run
from fastadmm.runs.train import start_run

from federation_tools import Parties, begin_run, confirmed, federated
from rounds_tools import NAMES, begin, data_of, separate, train
from run_tools import run, write_blocks

TIGHT = {"lambda": 1e-3, "gap": 1e-10}


def problem(loss, widths, intercept, lam):
    """Columns of very different sizes, and weights near those that made the targets."""
    rng = np.random.default_rng(3)
    blocks = [rng.standard_normal((120, d)) * 10.0 ** rng.integers(-3, 3, d) for d in widths]
    weights = [0.3 * rng.standard_normal(block.shape[1]) / np.abs(block).max(axis=0) for block in blocks]
    z = sum(block @ x for block, x in zip(blocks, weights))
    y = {
        "logistic": (rng.random(120) < 1.0 / (1.0 + np.exp(-z))).astype(float),
        "poisson": rng.poisson(np.exp(z)).astype(float),
        "squared": z + rng.standard_normal(120),
    }[loss]
    names = [f"p{m}" for m in range(len(blocks))]
    weight = rng.integers(0, 3, 120).astype(float)
    more = {"fit_intercept": intercept, "sample_weight": weight, "names": names}
    made = make_problem([as_block(block) for block in blocks], y, loss=loss, lam=lam, **more)
    return made, weights


def between(made, weights, intercept, covariance):
    """What each party learns, and what the coordinator does."""
    with Engine(1) as engine:
        parties = [
            InferenceParty(name, block, x, [f"{name}.{k}" for k in range(len(x))], np.ones(len(x)), engine)
            for name, block, x in zip(made.names, made.blocks, weights)
        ]
        talk = inferring(Asked(made, intercept, covariance, 0.95), engine)
        own = converse(talk, Threads(engine, parties).carry)
    assert own is not None
    found = [party.found for party in parties if party.found is not None]
    return [*found, own]


def assert_same(tables, whole):
    for name in ("weight", "standard_error", "statistic", "p_value", "low", "high"):
        shown = np.concatenate([table.columns[name] for table in tables])
        np.testing.assert_allclose(shown, whole.columns[name], rtol=1e-8, atol=1e-12)
    for table in tables:
        figures = [(k, v) for k, v in vars(whole.fit).items() if v is not None]
        np.testing.assert_allclose(
            [getattr(table.fit, k) for k, _ in figures], [v for _, v in figures], rtol=1e-8
        )
    assert [test.name for test in tables[-1].tests] == [test.name for test in whole.tests]
    own = [table.tests[-1] for table in tables[:-1]]  # each party's Wald test
    for test, other in [*zip(tables[-1].tests, whole.tests), *zip(own, whole.tests[-len(own) :])]:
        assert test.df == pytest.approx(other.df, rel=1e-8)
        assert (test.statistic, test.p_value) == pytest.approx(
            (other.statistic, other.p_value), rel=1e-7, nan_ok=True
        )


@pytest.mark.parametrize("widths", [(3, 4), (2, 1, 3)])
@pytest.mark.parametrize(
    ("loss", "intercept", "lam", "covariance"),
    [
        ("logistic", True, 1e-12, "model"),
        ("logistic", False, 1e-2, "HC0"),
        ("poisson", True, 1e-2, "model"),
        ("poisson", False, 1e-12, "HC1"),
        ("squared", True, 1e-12, "HC1"),
        ("squared", False, 1e-2, "model"),
    ],
)
def test_same_as_in_one_process(loss, intercept, lam, covariance, widths):
    made, weights = problem(loss, widths, intercept, lam)
    b = 0.1 if intercept else 0.0
    features = [f"{name}.{k}" for name, x in zip(made.names, weights) for k in range(len(x))]
    whole = infer(made, weights, b, features, covariance, 0.95, 1)
    assert_same(between(made, weights, b, covariance), whole)


def test_many_columns_leave_in_batches(monkeypatch):
    made, weights = problem("squared", (3, 7), True, 1e-4)
    whole = between(made, weights, 0.0, "model")
    monkeypatch.setattr("fastadmm.inference.between._COLUMNS", 3)
    parts = between(made, weights, 0.0, "model")
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-10)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_a_rotation_of_the_columns_changes_nothing_that_leaves(ridge):
    rng = np.random.default_rng(4)
    # Columns that are orthogonal already: what is made from them is still none of them.
    block = np.linalg.qr(rng.standard_normal((50, 4)))[0] * np.array([1.0, 2.0, 3.0, 4.0])
    rotation, x = np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.standard_normal(4)
    with Engine(1) as engine:

        def shown(matrix, weights):
            party = InferenceParty("a", as_block(matrix), weights, list("abcd"), np.ones(4), engine)
            return party.answer("span", {"ridge": ridge, "first": 0, "last": 4})

        plain, turned = shown(block, x), shown(np.ascontiguousarray(block @ rotation), rotation.T @ x)
    np.testing.assert_allclose(plain["basis"], turned["basis"], atol=1e-12)
    np.testing.assert_allclose(plain["weights"], turned["weights"], atol=1e-12)
    np.testing.assert_allclose(plain["basis"].T @ plain["weights"], block @ x, atol=1e-12)
    cosines = np.abs(plain["basis"] @ block) / np.linalg.norm(plain["basis"], axis=1)[:, None]
    assert np.max(cosines / np.linalg.norm(block, axis=0)) < 0.999


def test_combinations_are_refused_where_they_are_seen():
    made, weights = problem("squared", (3, 4), True, 1e-12)
    first, second = (
        np.asarray(block.matrix_product(np.eye(block.shape[1]), Engine(1)).T) for block in made.blocks
    )

    def again(a, b):
        blocks = [as_block(np.ascontiguousarray(block)) for block in (a, b)]
        other = make_problem(blocks, made.y, loss="squared", lam=1e-18, names=made.names)
        return between(other, weights, 0.0, "model")

    twice = np.column_stack([first[:, :2], first[:, 0] + first[:, 1]])
    with pytest.raises(InputError, match=r"'p0\.\d' is a combination of other columns"):
        again(twice, second)
    with pytest.raises(InputError, match=r"a column of p[01] is a combination of other columns"):
        again(first, np.column_stack([second[:, :3], first[:, 0]]))


def test_what_a_coordinator_says_is_looked_at():
    made, weights = problem("squared", (3, 4), True, 1e-4)
    with Engine(1) as engine:
        party = InferenceParty("p0", made.blocks[0], weights[0], list("abc"), np.ones(3), engine)
        good = {"ridge": 0.0, "covariance": np.eye(3), "step": np.zeros(3), "about": "{}"}
        with pytest.raises(FormatError, match="before call 'span'"):
            party.answer("learn", good)
        for first, last in ((2, 2), (3, 1), (0, 4)):
            with pytest.raises(FormatError, match="of 3"):
                party.answer("span", {"ridge": 0.0, "first": first, "last": last})
        party.answer("span", {"ridge": 0.0, "first": 0, "last": 3})
        with pytest.raises(FormatError, match="not about 3 columns"):
            party.answer("learn", {**good, "covariance": np.eye(2)})
        fit = dict.fromkeys(vars(between(made, weights, 0.0, "model")[0].fit), 1.0)
        told = {"loss": "squared", "covariance": "model", "shrunk": False, "fit": fit, "overall": None}
        wrong = [
            *({"loss": "x"}, {"loss": 5}, {"fit": {**fit, "n": 1e400}}, {"fit": fit}),
            *({"fit": {}}, {"fit": []}),
        ]
        texts = [json.dumps({**told, **change}) for change in wrong]
        for about in ("", "[]", "[" * 2000, "{}", *texts):
            with pytest.raises(FormatError, match="no description of a fit"):
                party.answer("learn", {**good, "about": about})
    assert party.found is None


# --- by files, and between agents -------------------------------------------------------------------------
@pytest.fixture(scope="module")
def whole(tmp_path_factory, quiet):
    folder = tmp_path_factory.mktemp("whole")
    start_run(make_config({**TIGHT, "data": str(data_of(folder))}, "test"), folder / "run")
    return infer_run(folder / "run", standardized=True, covariance="HC1")


@pytest.fixture(scope="module")
def by_files(tmp_path_factory, quiet):
    folder = tmp_path_factory.mktemp("files")
    separate(data_of(folder), folder)
    begin(folder, **TIGHT)
    train(folder)
    return folder


def party_files(folder, name):
    return {"data": folder / name / f"{name}.h5", "state": folder / name / "state"}


def answers(folder, requests):
    found = []
    for request in requests:
        name = request.stem.split("-", 2)[2]
        own = party_files(folder, name)
        if not (own["state"] / "infer.toml").exists():
            with pytest.raises(ConfigError, match="not approved"):
                party_infer(request, **own, out=folder / "x")
            said = party_infer(request, **own, out=None, approve=True)
            assert "epsilon is infinite" in "\n".join(said)
        out = folder / name / f"{request.stem}.answer"
        where = ["--data", own["data"], "--state", own["state"], "-o", out, "--force"]
        assert run("party", "infer", request, *where) == 0
        found.append(out)
    return found


def assert_as_whole(tables, own, whole):
    shown = pd.concat([*tables, own.to_frame()], ignore_index=True)
    expected = whole.to_frame()
    assert shown.feature.tolist() == expected.feature.tolist()
    # Two models, each within the gap: weights differ by up to the root of it.
    numbers = ["weight", "standard_error", "statistic", "p_value", "low", "high"]
    np.testing.assert_allclose(shown[numbers], expected[numbers], rtol=1e-6, atol=1e-14)
    # The loss alone is not least at the optimum: it differs as the weights do, by the root of the gap.
    assert own.fit.bic == pytest.approx(whole.fit.bic, rel=1e-8)
    assert [t.statistic for t in own.tests] == pytest.approx([t.statistic for t in whole.tests], rel=1e-6)


def test_that_labels_chose_bins_is_told(tmp_path, quiet):
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.5).astype(float)
    write_blocks(tmp_path / "d.parts", [rng.normal(size=(400, 2)) + y[:, np.newaxis] for _ in NAMES], y)
    assert run("scorecard", "bins", tmp_path / "d.parts", "-o", tmp_path / "w.parts") == 0
    separate(tmp_path / "w.parts", tmp_path / "own")
    begin(tmp_path / "own", **TIGHT)
    train(tmp_path / "own")
    started, messages = tmp_path / "own" / "labels" / "run", []
    for _ in range(2):
        asked = coordinator_infer(started, tmp_path / "infer", messages, covariance="model", level=0.95)
        messages = answers(tmp_path / "own", asked)
    for name in NAMES:
        told = json.loads((tmp_path / "own" / name / "state" / "inference.json").read_text())["notes"]
        assert "labels chose these columns and the bins of" in told[-1]


def test_by_files(by_files, whole, tmp_path, capsys):
    folder, out = by_files, tmp_path / "infer"
    ask = {"covariance": "HC1", "level": 0.95}
    started = folder / "labels" / "run"
    first = coordinator_infer(started, out, [], **ask)
    assert isinstance(first, list)
    assert [path.name for path in first] == [f"request-1-{name}.msg" for name in NAMES]
    messages = answers(folder, first)
    assert coordinator_infer(started, out, messages[:1], **ask) == first[1:]
    second = coordinator_infer(started, out, messages, **ask)
    assert isinstance(second, list)
    with pytest.raises(InputError, match="answers none of the requests"):
        coordinator_infer(started, out, [second[0]], **ask)
    own = coordinator_infer(started, out, answers(folder, second), **ask)
    assert isinstance(own, Inference)
    capsys.readouterr()
    assert run("coordinator", "infer", started, "-o", out, "--covariance", "HC1") == 0
    text = capsys.readouterr().out
    assert f"Wald test of {NAMES[1]}" in text
    assert "intercept" in text
    again = coordinator_infer(started, out, [], **ask)
    assert isinstance(again, Inference)
    assert again.to_dict() == own.to_dict()
    kept = json.loads((out / "inference.json").read_text())
    assert kept["weights"] == own.to_dict()["weights"]
    tables = [pd.read_csv(folder / name / "state" / "inference.csv") for name in NAMES]
    assert_as_whole(tables, own, whole)
    with pytest.raises(ConfigError, match="began as another task"):
        coordinator_infer(started, out, [], covariance="model", level=0.9)


def test_what_is_damaged_or_of_others_is_refused(by_files, tmp_path):
    started, out = by_files / "labels" / "run", tmp_path / "infer"
    requests = coordinator_infer(started, out, [], covariance="model", level=0.95)
    assert isinstance(requests, list)
    own, other = (party_files(by_files, name) for name in NAMES)
    with pytest.raises(InputError, match=f"for {NAMES[0]}, but"):
        party_infer(requests[0], **other, out=tmp_path / "x")
    cut = tmp_path / "cut.msg"
    cut.write_bytes(requests[0].read_bytes()[:-8])
    with pytest.raises(FormatError, match="cut"):
        party_infer(cut, **own, out=tmp_path / "x")
    state = tmp_path / "state"
    shutil.copytree(own["state"], state)
    for name in ("infer.toml", "inference-basis.h5", "audit.jsonl", "tasks.journal"):
        (state / name).unlink(missing_ok=True)
    party_infer(requests[0], own["data"], state, None, approve=True)
    # Another penalty would show more of the rows than one basis does.
    task = task_of(open_letter(requests[0], 1 << 30), "t")

    def asked(ridge):
        path = tmp_path / f"{ridge}.msg"
        path.write_bytes(sealed(encode_task(replace(task, arguments={**task.arguments, "ridge": ridge}))))
        return path

    party_infer(asked(0.5), own["data"], state, tmp_path / "first")
    with pytest.raises(InputError, match="3 more asked for"):
        party_infer(asked(0.25), own["data"], state, tmp_path / "x")
    agreed = open_task_approval(state / "infer.toml")
    write_approval(replace(agreed, rows=99, requests=99), force=True)
    with pytest.raises(InputError, match="about another penalty"):
        party_infer(asked(0.25), own["data"], state, tmp_path / "x")
    text = (state / "infer.toml").read_text()
    (state / "infer.toml").write_text(text.replace(str(own["data"]), str(other["data"])))
    with pytest.raises(InputError, match="not what it was trained on"):
        party_infer(requests[0], own["data"], state, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_private_runs_and_sums_only_have_none(by_files, tmp_path, monkeypatch):
    ask = {"covariance": "model", "level": 0.95}
    run = tmp_path / "run"
    shutil.copytree(by_files / "labels" / "run", run)
    shutil.copy(by_files / "labels" / "labels.h5", tmp_path)
    settings = (run / "run.toml").read_text()
    (run / "run.toml").write_text('secrecy = "sums"\n' + settings)
    with pytest.raises(ConfigError, match="saw sums over all parties only"):
        coordinator_infer(run, tmp_path / "sums", [], **ask)
    (run / "run.toml").write_text(settings + '\n[privacy]\nmode = "message"\nepsilon = 1.0\nrounds = 1\n')
    with pytest.raises(ConfigError, match="a private run: standard errors are exact"):
        coordinator_infer(run, tmp_path / "private", [], **ask)
    # A party does not rely on the coordinator to know it.
    requests = coordinator_infer(by_files / "labels" / "run", tmp_path / "infer", [], **ask)
    assert isinstance(requests, list)
    own = party_files(by_files, NAMES[0])
    party_infer(requests[0], **own, out=None, approve=True, force=True)
    for which, words in (("PRIVATE", "was private"), ("SUMS", "one of sums only")):
        with monkeypatch.context() as patch:
            patch.setattr(f"fastadmm.between.scoring.{which}", ("subspace",))
            with pytest.raises(InputError, match=words):
                party_infer(requests[0], **own, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_limits_hold_by_files_too(by_files, tmp_path):
    ask = {"covariance": "model", "level": 0.95}
    requests = coordinator_infer(by_files / "labels" / "run", tmp_path / "infer", [], **ask)
    assert isinstance(requests, list)
    own = party_files(by_files, NAMES[0])
    state = tmp_path / "state"
    shutil.copytree(own["state"], state)
    for path in (*state.glob("infer*"), *state.glob("tasks*"), state / "audit.jsonl"):
        path.unlink()
    own["state"] = state
    party_infer(requests[0], **own, out=None, approve=True)
    agreed = open_task_approval(state / "infer.toml")
    out = tmp_path / "out.msg"
    for changes, words in (
        ({"callers": ["nobody"]}, "callers nobody"),
        ({"rows": 1}, "infer.toml allows 1; nothing was computed"),
        ({"last_day": datetime.date(2020, 1, 1)}, "the last day was 2020-01-01"),
    ):
        write_approval(replace(agreed, **changes), force=True)
        with pytest.raises(InputError, match=words):
            party_infer(requests[0], **own, out=out)
    # What is refused counts: here the data are not what the model was trained on.
    other = str(party_files(by_files, NAMES[1])["data"])
    write_approval(replace(agreed, requests=2, file=other), force=True)
    with pytest.raises(InputError, match="not what it was trained on"):
        party_infer(requests[0], **own, out=out)
    write_approval(replace(agreed, requests=2), force=True)
    party_infer(requests[0], **own, out=out)
    first = out.read_bytes()
    party_infer(requests[0], **own, out=out, force=True)  # the same question again is free
    assert out.read_bytes() == first
    task = task_of(open_letter(requests[0], 1 << 30), "t")
    (tmp_path / "again.msg").write_bytes(sealed(encode_task(replace(task, task="f" * 16))))
    with pytest.raises(InputError, match="2 requests answered, 1 more asked for"):
        party_infer(tmp_path / "again.msg", **own, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()
    party_infer(tmp_path / "again.msg", **own, out=None, approve=True, force=True)
    party_infer(tmp_path / "again.msg", **own, out=tmp_path / "x")


def test_an_owner_of_one_column_is_told_that_it_leaves():
    approval = TaskApproval(Path("infer.toml"), "a", ["b"], "a.h5", 2, 1, None)
    said = [" ".join(inference_words(approval, "b", "r", d)) for d in (1, 2)]
    assert ["Your ONE column leaves" in text for text in said] == [True, False]


def test_between_agents(whole, tmp_path, quiet):
    separate(data_of(tmp_path), tmp_path)
    parties = Parties(tmp_path)
    folder = begin_run(tmp_path, **TIGHT)
    parties.approve(folder.path)
    with federated(folder, parties.ask) as training:
        training.advance()
    ask = {"covariance": "HC1", "level": 0.95, "say": lambda _: None}
    with pytest.raises(WaitingError, match="have not approved"):
        ask_inference(parties.ask, folder.path, tmp_path / "out", **ask)
    for name in NAMES:
        state = tmp_path / name / "agent"
        assert "asks for what standard errors need" in "\n".join(agent_status(state))
        (asked,) = (state / "asked").glob("*.json")
        with pytest.raises(ConfigError, match="--data"):
            agent_approve(asked, None, state)
        lines, path = confirmed(agent_approve, asked, tmp_path / name / f"{name}.h5", state)
        assert path.name == "infer.toml"
        assert any("up to a rotation" in line for line in lines)
    own = ask_inference(parties.ask, folder.path, tmp_path / "out", **ask)
    identifier = json.loads((folder.path / "run.json").read_text())["run"]
    tables = [pd.read_csv(tmp_path / name / "agent" / identifier / "inference.csv") for name in NAMES]
    assert_as_whole(tables, own, whole)
    status = "\n".join(agent_status(tmp_path / NAMES[0] / "agent"))
    assert "standard errors: 2 of at most 4 answered or refused, 3 of 3 vectors" in status
    # Another task is another request, and beyond what was approved.
    with pytest.raises(InputError, match=r"refused \(amount\)"):
        ask_inference(parties.ask, folder.path, tmp_path / "more", **ask)
    parties.close()
