"""Mode "fusion" end to end: fit, statement, ledger, files, resume, estimator and one-line errors."""

import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingClassifier, Privacy, SolverOptions, make_problem
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, ExitCode, FormatError
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.fusion_fit import ClassDesign
from fastadmm.problem.problem import TestSet
from fastadmm.runs.predict import predict_partition
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.store.model import open_model
from scipy.special import expit

from run_tools import printed, refused, refuses, run, write_blocks

OPTIONS = SolverOptions(n_threads=1)


def data(n=3000, seed=0, sparse=False, parties=2):
    """Blocks whose features are correlated across parties, and labels; every feature matters."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    blocks = [(rng.normal(size=(n, 4)) + 0.7 * common) / 3 for _ in range(parties)]
    z = sum(block @ np.array([2.0, -1.0, 1.5, 1.0]) for block in blocks) - 0.8
    y = (rng.random(n) < expit(1.5 * z)).astype(float)
    return [sp.csr_array(b) for b in blocks] if sparse else blocks, y


def problem(n=3000, n_test=4000, parties=2, **options):
    blocks, y = data(n + n_test, parties=parties)
    test = TestSet([as_block(b[n:]) for b in blocks], y[n:], np.ones(n_test), np.zeros(n_test))
    return make_problem([b[:n] for b in blocks], y[:n], lam=1e-3, test=test, **options)


def settings(**changes):
    return Privacy(**{"mode": "fusion", "epsilon": 4.0, "delta": 1e-5, **changes})


@pytest.mark.parametrize(("parties", "loss"), [(2, 0.3329584598795607), (4, 0.25813138778497213)])
def test_fusion_beats_its_baselines_and_comes_near_the_joint_model(parties, loss):
    given = problem(n=12_000, parties=parties)
    seeded = settings(epsilon=4.0, sampler="insecure_test", seed=0, allow_infinite_epsilon=True)
    solver = FusionSolver(given, OPTIONS, seeded)
    result = run_rounds(solver)
    assert result.status is Status.COMPLETED
    losses = solver.losses(solver.models(solver.party_weights(), solver.intercept))
    fused, *others = losses.values()
    assert fused == pytest.approx(loss, rel=1e-5)  # what the same symbols are worth
    assert fused < min(others)
    pooled = ADMMSharingClassifier(alpha=1e-3).fit(np.hstack([b.matrix for b in given.blocks]), given.y)
    z = np.hstack([b.matrix for b in given.test.blocks]) @ pooled.coef_[0] + pooled.intercept_
    best = float(np.mean(np.logaddexp(0, z) - given.test.y * z))
    assert fused - best < 0.5 * (losses["label holder alone"] - best)


def test_labels_and_other_parties_features_stay_where_they_are():
    # The same labels and other features of the label holder: with one seed every message is the same.
    blocks, y = data()
    sent = []
    for first in (blocks[0], np.ones_like(blocks[0]) + blocks[0][::-1]):
        given = make_problem([first, blocks[1]], y, lam=1e-3)
        solver = FusionSolver(given, OPTIONS, settings(sampler="insecure_test", seed=1))
        solver.round()
        sent.append(solver.messages[1])
    np.testing.assert_array_equal(sent[0].levels, sent[1].levels)
    np.testing.assert_array_equal(sent[0].model.weights, sent[1].model.weights)
    # With private labels parties see only randomised ones.
    blocks, y = data()
    solver = FusionSolver(make_problem(blocks, y, lam=1e-3), OPTIONS, settings(label_epsilon=1.0))
    solver.round()
    shown = solver.labels
    assert 0.22 < (shown.classes != y).mean() < 0.32
    assert sorted(set(shown.target.round(3))) == [-0.582, 1.582]
    statement = solver.statement()
    assert statement.label_epsilon == 1.0
    assert statement.epsilon < statement.person_epsilon <= 5.0
    assert "every party learns all" not in " ".join(statement.not_covered)
    # The label holder may be another party and gets no message.
    given = problem()
    solver = FusionSolver(given, OPTIONS, settings(label_party=given.names[1]))
    run_rounds(solver)
    assert set(solver.messages) == {0}
    assert [p.epsilon for p in solver.statement().parties] == pytest.approx([4.0, 0.0])


def test_fresh_randomness_every_time_and_the_same_only_in_insecure_tests():
    given = problem()
    weights = []
    for chosen in (settings(), settings(), *[settings(sampler="insecure_test", seed=3)] * 2):
        solver = FusionSolver(given, OPTIONS, chosen)
        solver.round()
        weights.append(solver.messages[1].model.weights)
    assert not np.array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[2], weights[3])
    assert math.isinf(solver.statement().epsilon)
    refuses(ConfigError, "never seeded", settings, seed=3)


def test_statement_says_what_the_ledger_holds():
    solver = FusionSolver(problem(parties=3), OPTIONS, settings(epsilon=1.0))
    solver.round()
    statement = solver.statement()
    for m in (1, 2):
        spent = solver.ledger.spent(solver.accounts[m])
        party = statement.parties[m]
        assert party.gdp == pytest.approx(spent.gdp, rel=1e-12)
        assert party.pure == spent.pure
        assert party.epsilon == pytest.approx(spent.epsilon(1e-5), rel=1e-9)
        assert party.epsilon <= 1.0 + 1e-9
    joint = epsilon_of(math.hypot(*(p.gdp for p in statement.parties)), 1e-5, statement.parties[1].pure * 2)
    assert statement.joint_epsilon == pytest.approx(joint)
    assert any("every party learns all of them" in text for text in statement.not_covered)
    assert "nothing about other parties" in statement.seen["other parties"]


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_evidence_ridge_is_the_ridge_of_its_penalty(wrap):
    blocks, y = data(800)
    X = blocks[0]
    rng = np.random.default_rng(1)
    values = X @ np.array([1.0, 2, 0, 0]) + y + rng.normal(size=800)
    with Engine(1) as engine:
        slopes, penalty, explained = ClassDesign(as_block(wrap(X)), y, engine).regress(values)
    classes = np.column_stack([1 - y, y])
    centred, target = (v - classes @ np.linalg.lstsq(classes, v, rcond=None)[0] for v in (X, values))
    expected = np.linalg.solve(centred.T @ centred + penalty * np.eye(4), centred.T @ target)
    np.testing.assert_allclose(slopes, expected, rtol=1e-8)
    assert explained == pytest.approx(float(((centred @ slopes) ** 2).mean()), rel=1e-8)

    def evidence(lam):
        covariance = np.eye(800) + centred @ centred.T / lam
        _, logdet = np.linalg.slogdet(covariance)
        return 798 * math.log(target @ np.linalg.solve(covariance, target)) + logdet

    assert evidence(penalty) <= min(evidence(penalty * 2), evidence(penalty / 2))


def test_evidence_ridge_of_noise_and_scaled_weights():
    blocks, y = data(2000)
    values = np.random.default_rng(2).normal(size=2000) * 30
    with Engine(1) as engine:
        slopes, _, _ = ClassDesign(as_block(blocks[0]), y, engine).regress(values)
    assert np.linalg.norm(slopes) < 3.0
    # Joint weights are local weights times scales.
    solver = FusionSolver(problem(), OPTIONS, settings())
    run_rounds(solver)
    joint, local = solver.party_weights(), solver.local_weights()
    np.testing.assert_array_equal(joint[1], solver.scales[1] * local[1])
    np.testing.assert_array_equal(local[1], solver.messages[1].model.weights)
    assert solver.scales[0] == 1.0


@pytest.mark.repeats
def test_wide_blocks_go_through_leading_directions():
    rng = np.random.default_rng(3)
    X = sp.random_array((400, 1600), density=0.02, rng=rng).tocsr()
    y = (rng.random(400) < 0.5).astype(float)
    values = X @ rng.normal(size=1600) + y
    with Engine(1) as engine:
        slopes, _, explained = ClassDesign(as_block(X), y, engine).regress(values)
    assert slopes.shape == (1600,)
    assert np.corrcoef(X @ slopes, values)[0, 1] > 0.8
    assert explained > 0


def test_a_stored_message_is_used_again_and_another_question_refused(tmp_path):
    given, directory = problem(), tmp_path / "messages"
    first = FusionSolver(given, OPTIONS, settings(label_epsilon=1.0), releases=directory)
    first.round()
    charged = list(first.ledger.charges)
    common = {"ledger": first.ledger, "releases": directory}
    again = FusionSolver(given, OPTIONS, settings(label_epsilon=1.0), **common)
    again.round()
    np.testing.assert_array_equal(first.party_weights()[0], again.party_weights()[0])
    np.testing.assert_array_equal(first.messages[1].levels, again.messages[1].levels)
    assert again.messages[1].channel == first.messages[1].channel
    assert again.ledger.charges == charged  # nothing new was released
    other = FusionSolver(given, OPTIONS, settings(epsilon=2.0, label_epsilon=1.0), releases=directory)
    refuses(FormatError, "other labels or settings", other.round)
    (directory / f"fusion-{given.names[1]}.npz").write_bytes(b"PK broken")
    with pytest.raises(FormatError, match="not a released message"):
        FusionSolver(given, OPTIONS, settings(label_epsilon=1.0), releases=directory).round()


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fusion")
    blocks, y = data(2500, sparse=True)
    write_blocks(folder / "train.parts", [b[:2000] for b in blocks], y[:2000])
    write_blocks(folder / "test.parts", [b[2000:] for b in blocks], y[2000:])
    return folder


def train(parts, out, *options):
    return run("train", parts / "train.parts", "--privacy", "fusion", "--epsilon", 4, *options, "-o", out)


def test_command_line_end_to_end(parts, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(parts, out, "--set", "privacy.label_epsilon=2", "--test", parts / "test.parts") == 0
    shown = capsys.readouterr().out
    assert "label holder alone" in shown
    assert "no symbols" in shown
    assert "epsilon = 4 at delta = 1e-05" in shown
    assert "label epsilon = 2" in shown
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "completed"
    assert result["comparison"]["test_loss"]["fusion"] == pytest.approx(result["test"]["log_loss"])
    for command in (["evaluate", out, parts / "test.parts"], ["inspect", out], ["report", out]):
        assert run(*command) == 0
    evaluated = json.loads((out / "evaluation.json").read_text())
    assert evaluated["metrics"]["log_loss"] == pytest.approx(result["test"]["log_loss"])
    # A party's file holds what it released; the scale stays with the coordinator.
    model = open_model(out)
    assert model.parties[0].scale == 1.0
    assert model.parties[1].scale != 1.0
    with np.load(out / "messages" / "fusion-party-2.npz") as released:
        np.testing.assert_array_equal(model.parties[1].weights, released["weights"])
    score = predict_partition(out, parts / "test.parts").score
    assert np.isfinite(score).all()
    assert len((out / "privacy-ledger.jsonl").read_text().splitlines()) == 4


def test_audit_of_what_a_fusion_run_has_on_record(parts, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(parts, out, "--epsilon", 1, "--set", "privacy.label_epsilon=2") == 0
    # a run whose record says that the symbols cost more than was claimed
    path = out / "privacy.json"
    record = json.loads(path.read_text())
    record["mechanism"]["symbol_epsilon"] = 12.0
    path.write_text(json.dumps(record))
    shown = printed(capsys, "audit", out, "--trials", 1000, code=ExitCode.PRIVACY)
    assert "FLAGGED  cost of the releases on record" in shown
    assert shown.count("FLAGGED") == 1
    for damaged in ({"symbol_epsilon": 1.0}, {**record["mechanism"], "model_gdp": -1.0}, 3):
        path.write_text(json.dumps({**record, "mechanism": damaged}))
        assert "key 'mechanism' is damaged" in refused(capsys, ExitCode.FORMAT, "audit", out)
