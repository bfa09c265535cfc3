"""Standard errors between parties: as in one process, and nothing leaves that a rotation changes."""

import datetime
import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastadmm.between.agent import agent_status
from fastadmm.between.approval_file import TaskApproval, open_task_approval, write_approval
from fastadmm.between.consent import agent_approve, asked_files, inference_words
from fastadmm.between.coordinator import Coordinator
from fastadmm.between.predict import ask_inference
from fastadmm.between.schema import (
    Refusal,
    answer_of,
    encoded,
    open_envelope,
    request_of,
    task_request,
)
from fastadmm.blocks.block import as_block
from fastadmm.conversation.exchange import Threads, converse
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, WaitingError
from fastadmm.inference.between import InferenceParty, inferring
from fastadmm.inference.table import infer
from fastadmm.problem.problem import make_problem
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import infer_run
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.train import start_run

from federation_tools import Parties, confirmed
from rounds_tools import NAMES, begin, data_of, separate, train
from run_tools import refuses, run, write_blocks

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
        talk = inferring(made, intercept, covariance, 0.95, engine)
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
    refuses(InputError, r"'p0\.\d' is a combination of other columns", again, twice, second)
    with pytest.raises(InputError, match=r"a column of p[01] is a combination of other columns"):
        again(first, np.column_stack([second[:, :3], first[:, 0]]))


def test_what_a_coordinator_says_is_looked_at():
    made, weights = problem("squared", (3, 4), True, 1e-4)
    with Engine(1) as engine:
        party = InferenceParty("p0", made.blocks[0], weights[0], list("abc"), np.ones(3), engine)
        good = {"ridge": 0.0, "covariance": np.eye(3), "step": np.zeros(3), "about": "{}"}
        refuses(FormatError, "before call 'span'", party.answer, "learn", good)
        for first, last in ((2, 2), (3, 1), (0, 4)):
            refuses(FormatError, "of 3", party.answer, "span", {"ridge": 0.0, "first": first, "last": last})
        party.answer("span", {"ridge": 0.0, "first": 0, "last": 3})
        refuses(FormatError, "not about 3 columns", party.answer, "learn", {**good, "covariance": np.eye(2)})
        fit = dict.fromkeys(vars(between(made, weights, 0.0, "model")[0].fit), 1.0)
        told = {"loss": "squared", "covariance": "model", "shrunk": False, "fit": fit, "overall": None}
        wrong = [
            *({"loss": "x"}, {"loss": 5}, {"fit": {**fit, "n": 1e400}}, {"fit": fit}),
            *({"fit": {}}, {"fit": []}),
        ]
        texts = [json.dumps({**told, **change}) for change in wrong]
        for about in ("", "[]", "[" * 2000, "{}", *texts):
            refuses(FormatError, "no description of a fit", party.answer, "learn", {**good, "about": about})
    assert party.found is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory, quiet):
    folder = tmp_path_factory.mktemp("whole")
    start_run(make_config({**TIGHT, "data": str(data_of(folder))}, "test"), folder / "run")
    return infer_run(folder / "run", covariance="HC1")


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory, quiet):
    """A run by files in and out; its parties' states are put where an agent has them."""
    return trained_by_hand(data_of(folder := tmp_path_factory.mktemp("files")), folder)


def trained_by_hand(data, folder):
    separate(data, folder)
    begin(folder, **TIGHT)
    train(folder)
    identifier = Coordinator(RunFolder(folder / "labels" / "run", EXCHANGE)).run
    for name in NAMES:
        (folder / name / "agent").mkdir()
        (folder / name / "state").rename(folder / name / "agent" / identifier)
    return folder


def approved(folder, name, **how):
    """What the party's owner is shown, and approves."""
    state = folder / name / "agent"
    (asked,) = asked_files(state)
    return confirmed(agent_approve, asked, folder / name / f"{name}.h5", state, **how)


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


ASK = {"covariance": "HC1", "level": 0.95}


def inferred(folder, out):
    """What all parties answer once their owners have approved, and where these find their own."""
    run = folder / "labels" / "run"
    with closing(Parties(folder)) as parties:
        refuses(WaitingError, "have not approved", ask_inference, parties.ask, run, out, **ASK)
        for name in NAMES:
            with pytest.raises(ConfigError, match="--data"):
                agent_approve(asked_files(folder / name / "agent")[0], None, folder / name / "agent")
            assert "asks for what standard errors need" in "\n".join(agent_status(folder / name / "agent"))
            lines, path = approved(folder, name)
            assert path.name == "infer.toml"
            assert any("up to a rotation" in line for line in lines)
        own = ask_inference(parties.ask, run, out, **ASK)
        status = "\n".join(agent_status(folder / NAMES[0] / "agent"))
        assert "standard errors: 2 of at most 4 answered or refused" in status
        # Another task is another request, and beyond what was approved.
        with pytest.raises(InputError, match=r"refused \(amount\)"):
            ask_inference(parties.ask, run, out.with_name("more"), **ASK)
    return own, [next(folder.glob(f"{name}/agent/*/inference.csv")).parent for name in NAMES]


def test_that_labels_chose_bins_is_told(tmp_path, quiet):
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.5).astype(float)
    write_blocks(tmp_path / "d.parts", [rng.normal(size=(400, 2)) + y[:, np.newaxis] for _ in NAMES], y)
    assert run("scorecard", "bins", tmp_path / "d.parts", "-o", tmp_path / "w.parts") == 0
    _, found = inferred(trained_by_hand(tmp_path / "w.parts", tmp_path / "own"), tmp_path / "out")
    for folder in found:
        told = json.loads((folder / "inference.json").read_text())["notes"]
        assert "labels chose these columns and the bins of" in told[-1]


def test_between_agents(whole, by_hand, tmp_path, quiet):
    shutil.copytree(by_hand, tmp_path / "own")
    own, found = inferred(tmp_path / "own", tmp_path / "out")
    assert_as_whole([pd.read_csv(folder / "inference.csv") for folder in found], own, whole)
    kept = json.loads((tmp_path / "out" / "inference.json").read_text())
    assert kept["weights"] == json.loads(json.dumps(own.to_dict()))["weights"]


@pytest.fixture
def asked(by_hand, tmp_path, quiet):
    """A party whose owner has approved an inference, and what answers a request or says a refusal."""
    folder = tmp_path / "own"
    shutil.copytree(by_hand, folder)
    sent = []

    def keep(name, raw, seconds):
        if name == NAMES[0]:
            sent.append(raw)
        return parties.ask(name, raw, seconds)

    with closing(Parties(folder)) as parties:
        refuses(WaitingError, "", ask_inference, keep, folder / "labels" / "run", tmp_path / "out", **ASK)
        _, path = approved(folder, NAMES[0])
        task = request_of(open_envelope(sent[0], len(sent[0]), "t"), -1, "t")

        def ask(again="", **changes):
            one = task_request(again or task.run, task.party, task.call, {**task.arguments, **changes})
            raw = encoded(one)
            said = parties.ask(NAMES[0], raw, 1.0)
            found = answer_of(open_envelope(said, len(said), "t"), one.calls[0], -1, "t")
            return found.code if isinstance(found, Refusal) else found.answer

        yield folder, path, ask


def edit(path, **changes):
    write_approval(replace(open_task_approval(path), **changes), force=True)


def test_limits_and_one_penalty(asked):
    folder, path, ask = asked
    agreed = open_task_approval(path)
    for changes, code in (
        ({"callers": ["nobody"]}, "caller"),
        ({"rows": 1}, "amount"),
        ({"last_day": datetime.date(2020, 1, 1)}, "expired"),
        ({"file": agreed.file.replace(NAMES[0], NAMES[1])}, "terms"),  # which counts
    ):
        write_approval(replace(agreed, **changes), force=True)
        assert ask() == code
    edit(path, file=agreed.file)
    first = ask()
    np.testing.assert_array_equal(ask()["basis"], first["basis"])  # the same question again is free
    assert ask("f" * 16) == "amount"
    approved(folder, NAMES[0], force=True)
    assert ask("f" * 16)["basis"].shape == first["basis"].shape
    # Another penalty would show more of the rows than one basis does.
    edit(path, rows=99, requests=99)
    assert ask(ridge=0.25) == "terms"


def test_private_runs_and_sums_only_have_none(asked, tmp_path, monkeypatch):
    folder, path, ask = asked
    run, parties = folder / "labels" / "run", Parties(folder)
    settings = (run / "run.toml").read_text()
    private = settings + '\n[privacy]\nmode = "message"\nepsilon = 1.0\nrounds = 1\n'
    for text, words in (
        ('secrecy = "sums"\n' + settings, "saw sums over all parties only"),
        (private, "a private run: standard errors are exact"),
    ):
        (run / "run.toml").write_text(text)
        refuses(ConfigError, words, ask_inference, parties.ask, run, tmp_path / "none", **ASK)
    # A party does not rely on the coordinator to know it.
    edit(path, requests=9)
    for which in ("PRIVATE", "SUMS"):
        with monkeypatch.context() as patch:
            patch.setattr(f"fastadmm.between.host.{which}", ("subspace",))
            assert ask() == "privacy"


def test_an_owner_of_one_column_is_told_that_it_leaves():
    approval = TaskApproval(Path("infer.toml"), "a", ["b"], "a.h5", 2, 1, None)
    said = [" ".join(inference_words(approval, "b asks a", "r", d)) for d in (1, 2)]
    assert ["Your ONE column leaves" in text for text in said] == [True, False]
