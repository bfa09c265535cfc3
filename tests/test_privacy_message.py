"""Mode "message": what is sent, charged, stored and said; noise on the grid; killed runs."""

import json
import math
import pickle
import shutil
import tomllib
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingClassifier, Privacy, SolverOptions, make_problem
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, ExitCode, FormatError, PrivacyBudgetError
from fastadmm.privacy.accounting import epsilon_of
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import MessageSolver
from fastadmm.privacy.message_party import MessageParty, clipped_block, fixed_ball_solution
from fastadmm.privacy.noise import NoiseSource, calibrate
from fastadmm.privacy.releases import Books
from fastadmm.privacy.sensitivity import clip_rows, message_sensitivity
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.store.model import open_model
from scipy.stats import kstest, norm

from problems import make_vertical_classification
from run_tools import printed, refuses, run, write_blocks

ENGINE = Engine(1)
SETTINGS = Privacy(mode="message", epsilon=4.0, rounds=2)


def problem(n=400, widths=(4, 3), **options):
    blocks, y, _ = make_vertical_classification(n, widths)
    return make_problem(blocks, y, **{"lam": 1e-2, **options})


def solver(settings=SETTINGS, given=None, **options):
    return MessageSolver(given or problem(), SolverOptions(n_threads=1), settings, **options)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_rows_are_clipped_to_norm_one_each_by_itself(wrap):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * rng.choice([0.1, 1.0, 10.0], size=(50, 1))
    rows[3] = 0.0
    clipped = clip_rows(wrap(rows))
    clipped = clipped.toarray() if sp.issparse(clipped) else clipped
    expected = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(clipped, expected, rtol=1e-15)
    assert np.linalg.norm(clipped, axis=1).max() <= 1.0 + 1e-15


def test_ball_solution_in_constant_time_is_optimal():
    rng = np.random.default_rng(1)
    for _ in range(200):
        values = 10.0 ** rng.uniform(-3, 6, size=5)
        right = rng.normal(size=5) * 10.0 ** rng.uniform(-3, 6)
        radius = 10.0 ** rng.uniform(-2, 2)
        x, nu = fixed_ball_solution(values, right, radius)
        assert nu == 0.0 or (nu > 0.0 and np.linalg.norm(x) >= radius * (1 - 1e-8))
        assert np.linalg.norm(x) <= radius * (1 + 1e-15)
        residual = values * x + nu * x - right
        assert np.linalg.norm(residual) <= 1e-12 * np.linalg.norm((values + nu) * np.abs(x)) + 1e-300


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.999999999, 7.46, 1e5])
def test_calibration_contains_the_growth_by_rounding(sigma):
    level = calibrate(1.0, sigma, 10**6)
    assert level.gdp == pytest.approx(1.0 / sigma, rel=1e-14)
    assert level.sensitivity == 1.0 + level.grid * 1000.0
    assert level.grid == 2.0 ** (math.floor(math.log2(level.sigma)) - 28)


@pytest.mark.parametrize("sampler", ["grid", "discrete"])
def test_noise_is_gaussian_of_full_rank_on_the_grid(sampler):
    if sampler == "discrete":
        pytest.importorskip("opendp")
    n = 20_000 if sampler == "grid" else 3_000
    level = calibrate(2.0, 3.0, n)
    values = np.linspace(-2, 2, n)
    source = NoiseSource(sampler)
    sent = [source.release(values, level, t, ENGINE) for t in (1, 2)]
    assert all(message.integers.dtype == np.int64 for message in sent)
    noise = [(message.values - values) / level.sigma for message in sent]
    assert all(kstest(x, norm.cdf).pvalue > 1e-6 for x in noise)
    assert abs(np.corrcoef(*noise)[0, 1]) < 6 / math.sqrt(n)  # rounds are independent
    assert (sent[0].values / level.grid == sent[0].integers).all()


def test_keys_and_noise_are_never_used_again():
    level = calibrate(1.0, 1.0, 100)
    one, two = (NoiseSource().release(np.zeros(100), level, 1, ENGINE) for _ in range(2))
    assert (one.integers != two.integers).all()
    source = NoiseSource()
    assert "key" not in repr(source)
    refuses(TypeError, "must not leave", pickle.dumps, source)
    seeded = [NoiseSource("insecure_test", 7).release(np.zeros(9), level, 1, ENGINE) for _ in range(2)]
    assert (seeded[0].integers == seeded[1].integers).all()
    refuses(ConfigError, "never seeded", NoiseSource, "grid", 7)
    # Noise is never drawn twice.
    source, level = NoiseSource(), calibrate(1.0, 1.0, 3)
    source.release(np.zeros(3), level, 1, ENGINE)
    source.release(np.zeros(3), level, 1, ENGINE, stream=1)
    refuses(RuntimeError, "never redrawn", source.release, np.ones(3), level, 1, ENGINE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_out_of_range_leaves_with_noise_all_the_same(bad):
    source, level = NoiseSource(), calibrate(1.0, 1.0, 3)
    sent = source.release(np.array([0.0, bad, 1.0]), level, 1, ENGINE)
    end = math.copysign(2.0**51 * level.grid, 1.0 if np.isnan(bad) else bad)
    assert np.abs(sent.values - [0.0, end, 1.0]).max() < 10.0


def test_messages_are_certified_or_zeros_with_noise(monkeypatch):
    made = solver()
    made.prepare()
    party = made.parties[0]
    rng = np.random.default_rng(0)
    w = rng.normal(size=400) * 20
    exact = party.solve(w)
    matrix = party.block.matrix
    x = party.weights
    clipped = np.clip(w, -8, 8)
    # an independent projected gradient reaches the same message
    y, step = np.zeros_like(x), 1.0 / (np.linalg.norm(matrix, 2) ** 2 + made.mu)
    for _ in range(20_000):
        y = y - step * (matrix.T @ (matrix @ y - clipped) + made.mu * y)
        y *= min(1.0, 8.0 / np.linalg.norm(y))
    np.testing.assert_allclose(exact, matrix @ y, atol=1e-7)
    sent = party.noised(w, 1)
    assert np.abs(sent.values - np.clip(exact, -2, 2)).max() < 6.5 * made.level.sigma
    # A party subtracts its noisy message.
    made = solver()
    made.prepare()
    made.round()
    m, r, tau = made.messages, made.penalty, made.tau
    for k in range(2):
        target = m[k] - (m.sum(axis=0) - made.z) / tau - made.u / (tau * r)
        np.testing.assert_allclose(made._target(k), target)
    assert not any(
        np.allclose(m[k], party.block.product(party.weights, ENGINE)) for k, party in enumerate(made.parties)
    )
    # A solver that fails answers all the same.
    made = solver(SETTINGS)

    def fails(*_, **__):
        raise np.linalg.LinAlgError("no convergence")

    monkeypatch.setattr("scipy.linalg.eigh", fails)
    made.prepare()
    assert not made.parties[0].exact(np.ones(400)).any()
    assert not made.parties[0].weights.any()


def test_an_answer_without_a_certificate_is_a_charged_release_of_zeros(monkeypatch):
    made = solver()
    monkeypatch.setattr("fastadmm.privacy.message_party.solver_error", lambda *_: math.nan)
    assert run_rounds(made).status is Status.COMPLETED
    sent = made.messages
    assert np.abs(sent).max() < 6.5 * made.level.sigma
    assert np.abs(sent.mean(axis=1)).max() < 5.0 * made.level.sigma / math.sqrt(sent.shape[1])
    spent = made.ledger.spent(made.accounts[0], made.run)
    assert spent.gdp == pytest.approx(made.level.gdp * math.sqrt(made.settings.rounds))


def test_the_slack_is_never_less_than_rounding_takes():
    """Certificates hold on rows of all kinds: nobody can choose a slack by which they fail."""
    rng = np.random.default_rng(3)
    settings = SETTINGS.with_(ball=8.0)
    for n, d, mu in [(40, 4, 1e-6), (400, 30, 1e-3), (3000, 60, 1.0), (3000, 3, 1e4)]:
        for rows in (rng.normal(size=(n, d)), rng.normal(size=(n, 1)) * np.ones(d), np.zeros((n, d))):
            matrix = np.where(rng.random((n, 1)) < 0.2, 1e3, 1e-3) * rows
            books = Books(settings, Ledger(), "run", Account("a", "a"), "a", None, NoiseSource)
            with Engine(1) as engine:
                block = clipped_block(as_block(matrix, "a"), "a")
                party = MessageParty("a", block, books, mu, engine)
                for w in (rng.normal(size=n) * 8, np.sign(matrix[:, 0]) * 1e30, np.zeros(n), np.eye(n)[0]):
                    values, vectors = party.eigen
                    right = vectors.T @ block.transposed_product(party.public_target(w), engine)
                    coordinates, nu = fixed_ball_solution(values + mu, right, 8.0)
                    x = vectors @ coordinates
                    message = block.product(x, engine)
                    error = party._certify(x, nu, message, party.public_target(w))
                    assert error <= 0.1 * party.slack
                    assert np.array_equal(party.solve(w), message)


def test_everything_the_coordinator_uses_is_noisy(monkeypatch):
    """A run whose parties lie about everything but what they send is bit for bit the same."""
    seeded = SETTINGS.with_(sampler="insecure_test", seed=3)
    honest = solver(seeded)
    records = run_rounds(honest).history
    messages = honest.messages.copy()
    other = solver(seeded)
    other.prepare()
    for party in other.parties:
        party.weights = np.full_like(party.weights, np.nan)
    for _ in range(2):
        other.round()
        for party in other.parties:
            party.weights = np.full_like(party.weights, np.nan)
    np.testing.assert_array_equal(other.messages, messages)
    assert [r.objective for r in records] == pytest.approx([r.objective for r in records])
    assert math.isinf(records[-1].gap)
    assert all(math.isinf(norm) for norm in records[-1].weight_norms)


def test_small_messages_shrink_by_their_share_of_noise():
    told = SimpleNamespace(level=SimpleNamespace(sigma=0.01))
    assert MessageSolver._shrunk(told, np.full(2, 0.1)) == pytest.approx(np.full(2, 0.1 * (1.0 - 0.01)))


def test_rounds_are_fixed_charged_and_stop_at_the_ledger(tmp_path):
    ledger = Ledger()
    made = solver(ledger=ledger)
    result = run_rounds(made)
    assert result.status is Status.COMPLETED
    assert len(result.history) == 2
    assert [c.release.split(",")[0] for c in ledger.charges] == ["message 1"] * 2 + ["message 2"] * 2
    for name in made.problem.names:
        assert ledger.spent(Account(name, name)).epsilon(1e-5) == pytest.approx(4.0, rel=1e-9)
    statement = made.statement()
    assert statement.epsilon == pytest.approx(4.0, rel=1e-9)
    assert statement.joint_epsilon > 4.0
    guarantee = statement.parties[0]
    assert guarantee.theorem == "T3"
    exact = message_sensitivity(SETTINGS, made.mu, 400).value
    assert guarantee.sensitivity == pytest.approx(exact, rel=1e-6)
    assert guarantee.sensitivity > exact  # rounding to the grid
    assert guarantee.sigma * guarantee.gdp == pytest.approx(guarantee.sensitivity * math.sqrt(2))
    assert epsilon_of(guarantee.gdp, 1e-5) <= 4.0 + 1e-9
    refuses(ConfigError, "all 2 rounds are spent", made.round)
    # Ledger stops a run before its message leaves.
    ledger = Ledger()
    run_rounds(solver(ledger=ledger, run="first"))
    second = solver(ledger=ledger, releases=tmp_path / "messages", run="second")
    refuses(PrivacyBudgetError, r"1 run\(s\) have spent epsilon 4", second.round)
    assert not (tmp_path / "messages").exists()
    allowed = solver(SETTINGS.with_(total_epsilon=8.0), ledger=ledger, run="third")
    run_rounds(allowed)
    assert "1 other run(s) in this ledger; all together epsilon 5.99" in allowed.statement().tuning


def test_seeded_and_discrete_noise():
    made = solver(SETTINGS.with_(sampler="insecure_test", seed=1))
    run_rounds(made)
    assert made.statement().epsilon == math.inf
    assert made.ledger.charges == []
    # Discrete noise runs and is accounted.
    pytest.importorskip("opendp")
    made = solver(SETTINGS.with_(sampler="discrete", rounds=1))
    run_rounds(made)
    assert made.statement().epsilon == pytest.approx(4.0, rel=1e-6)
    assert made.ledger.charges[0].rho > 0
    assert made.ledger.spent(made.accounts[1]).epsilon(1e-5) == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out", "column"])
def test_every_adjacency_trains(adjacency):
    made = solver(SETTINGS.with_(adjacency=adjacency))
    run_rounds(made)
    assert made.statement().adjacency == adjacency
    assert made.sensitivity.theorem == ("T4" if adjacency == "column" else "T3")


def test_a_label_budget_is_claimed_with_randomised_labels_only():
    chosen, X = SETTINGS.with_(label_epsilon=1.0), np.eye(400)[:, :2]
    private = solver(chosen, problem(2000))
    true = private.problem.y
    run_rounds(private)
    assert set(private.problem.y.round(3)) == {-0.582, 1.582}
    assert 0.22 < ((private.problem.y > 0.5) != (true > 0.5)).mean() < 0.32
    labels = [c for c in private.ledger.charges if c.release.startswith("randomised labels")]
    assert [c.pure for c in labels] == [1.0]
    assert private.statement().label_epsilon == 1.0
    assert "labels" not in private.statement().not_covered
    assert "labels" in solver().statement().not_covered
    with pytest.raises(ConfigError, match="takes it with logistic or squared"):
        solver(chosen, make_problem([X, X + 1.0], np.arange(400) % 2, loss="squared_hinge"))
    with pytest.raises(ConfigError, match="labels of two classes"):
        solver(chosen, make_problem([X, X + 1.0], np.arange(400) % 2 + 0.25, loss="squared")).round()


def test_estimator():
    blocks, y, _ = make_vertical_classification(600, (4, 3))
    X = np.hstack(blocks)
    model = ADMMSharingClassifier(parties=[4, 3], alpha=1e-2, privacy=Privacy(mode="message", epsilon=200.0))
    model.fit(X, y)
    assert model.privacy_.epsilon == pytest.approx(200.0, rel=1e-9)
    assert model.status_ is Status.COMPLETED
    assert model.score(X, y) > 0.6
    scores = sum(clip_rows(b) @ c for b, c in zip(blocks, model.party_coefs_)) + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores)
    np.testing.assert_allclose(model.decision_function(blocks), scores)
    with pytest.warns(UserWarning, match="messages carry noise of standard deviation"):
        ADMMSharingClassifier(parties=[4, 3], privacy=Privacy(mode="message", epsilon=1.0)).fit(X, y)
    plain = ADMMSharingClassifier(parties=[4, 3]).fit(X, y)
    assert plain.privacy_.epsilon == math.inf
    with pytest.raises(ConfigError, match=r"not a fastadmm\.Privacy"):
        ADMMSharingClassifier(privacy=1.0).fit(X, y)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    for name, seed in (("train", 0), ("test", 1)):
        blocks, y, _ = make_vertical_classification(300, (4, 3), seed=seed)
        write_blocks(folder / f"{name}.parts", [clip_rows(b) for b in blocks], y)
    return folder


def configured(data, **changes):
    table = {"mode": "message", "epsilon": 4.0, "delta": 1e-4, "rounds": 3} | changes.pop("privacy", {})
    values = {"data": str(data / "train.parts"), "lambda": 1e-2, "privacy": table, "threads": 1}
    return make_config({**values, **changes})


def test_run_from_the_command_line(data, tmp_path, capsys):
    out = tmp_path / "run"
    code = run(
        "train", data / "train.parts", "-o", out, "--lambda", "1e-2", "--privacy", "message",
        "--epsilon", "1", "--delta", "1e-4", "--test", data / "test.parts", "-q",
    )  # fmt: skip
    shown = capsys.readouterr()
    assert code == ExitCode.OK
    assert "private round(s) done; no certificate" in shown.out
    assert "late fusion of local models (nothing sent)" in shown.out
    assert "privacy: epsilon = 1 at delta = 0.0001 per party and record" in shown.out
    result = json.loads((out / "result.json").read_text())
    private, *others = result["comparison"]["test_loss"].values()  # almost always the others are better
    assert ("sending nothing was better" in shown.err) == (private >= min(others))
    assert result["gap"] is None
    assert result["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert result["comparison"]["covered"] is False
    assert all(party["weight_norm"] is None for party in result["parties"])
    assert tomllib.loads((out / "run.toml").read_text())["privacy"]["epsilon"] == 1.0
    assert len((out / "privacy-ledger.jsonl").read_text().splitlines()) == 3  # header and two parties
    assert {p.name for p in (out / "messages").iterdir()} == {
        "round-000001-party-1.npz",
        "round-000001-party-2.npz",
    }
    model = open_model(out)
    assert model.privacy.epsilon == pytest.approx(1.0, rel=1e-9)
    assert all(party.clipped for party in model.parties)
    with h5py.File(out / "model" / "party-1.h5") as file:
        assert file.attrs["privacy"].startswith("weights: epsilon = infinity")
        assert file.attrs["encoding-version"] == "1.2"
    assert run("report", out) == ExitCode.OK
    assert "No duality gap was recorded" in (out / "report.html").read_text()
    record = json.loads((out / "privacy.json").read_text())
    record["mechanism"]["sigma"] /= 4.0  # less noise than its claim needs
    (out / "privacy.json").write_text(json.dumps(record))
    found = printed(capsys, "audit", out, "--trials", 1000, code=ExitCode.PRIVACY)
    assert "FLAGGED  cost of the noise on record" in found


def test_other_targets_and_scalings_are_refused(data, tmp_path):
    start_run(configured(data), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    messages = tmp_path / "run" / "messages"
    shutil.copy(messages / "round-000002-party-1.npz", messages / "round-000003-party-1.npz")
    refuses(FormatError, "answers another target", resume_run, tmp_path / "run")
    (messages / "round-000003-party-1.npz").write_bytes(b"x")
    refuses(FormatError, r"not a released message.*none is drawn again", resume_run, tmp_path / "run")
    # Scaling by private constants is not private.
    from fastadmm.runs.result import unproved_parties
    from fastadmm.store.partition import open_partition
    from fastadmm.store.transform import Transform

    partition = open_partition(data / "train.parts")
    object.__setattr__(partition.parties[0], "transform", Transform(scale=np.ones(4)))
    unproved = unproved_parties(configured(data).privacy, partition)
    assert list(unproved) == ["party-1"]
    assert unproved_parties(SETTINGS.with_(public_scaling=True), partition) == {}
    with pytest.raises(PrivacyBudgetError, match="party-1: epsilon 4 was asked for, but none is proved"):
        solver(unproved=unproved)
    made = solver(SETTINGS.with_(allow_infinite_epsilon=True), unproved=unproved)
    assert made.statement().epsilon == math.inf
    assert "private rows" in made.statement().reason
