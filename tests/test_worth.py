"""What parties add: the Shapley axioms exactly, every coalition against a model of its own, interruption."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.problem.problem import TestSet, make_problem
from fastadmm.reports import write_report
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.solver.metrics import evaluation_metrics
from fastadmm.solver.solver import SolverOptions
from fastadmm.worth import measure_worth, shapley_values
from fastadmm.worth.coalitions import PARTIAL, coalitions_done, plan_coalitions, worth_of_run
from hypothesis import given
from hypothesis import strategies as st

from problems import make_vertical_classification
from run_tools import refused, refuses, write_problem

games = st.integers(1, 5).flatmap(
    lambda m: st.lists(
        st.floats(-1e3, 1e3, allow_nan=False, allow_subnormal=False), min_size=2**m, max_size=2**m
    )
)


def by_permutations(values):
    """Mean of what each player adds over all orders, one by one."""
    n = len(values).bit_length() - 1
    added = [Fraction(0)] * n
    for order in itertools.permutations(range(n)):
        mask = 0
        for player in order:
            added[player] += Fraction(values[mask | 1 << player]) - Fraction(values[mask])
            mask |= 1 << player
    return [total / math.factorial(n) for total in added]


@given(games)
def test_shapley_is_the_mean_over_all_orders(values):
    assert shapley_values(values) == by_permutations(values)


@given(games, st.floats(-10, 10))
def test_who_adds_nothing_or_the_same_to_everybody_gets_that(values, extra):
    # One player more, who adds `extra` to every coalition.
    joined = [*map(Fraction, values), *(Fraction(value) + Fraction(extra) for value in values)]
    shares = shapley_values(joined)
    assert shares[-1] == Fraction(extra)
    assert shares[:-1] == shapley_values(values)


def test_games_and_plans():
    refuses(ValueError, "power of two", shapley_values, [0.0, 1.0, 2.0])
    refuses((ValueError, OverflowError), "", shapley_values, [0.0, math.nan])
    # Plan has every coalition once.
    for n in (1, 2, 3, 5):
        plan = plan_coalitions(n)
        assert len(plan) == len(set(plan)) == 2**n
    # Many parties are left out one by one.
    problem, *_ = a_problem(n_parties=11, n=120)
    worth = measure_worth(problem, SolverOptions(gap=1e-2))
    assert len(worth.coalitions) == 2 * 11 + 2
    assert worth.shapley() is None
    assert "2048 coalitions" in worth.reason


def a_problem(n_parties=3, n=240, loss="logistic", **options):
    """Train and test halves of synthetic rows."""
    blocks, y, _ = make_vertical_classification(n, (3,) * n_parties, **options)
    y = y if loss != "squared" else y + 0.3 * blocks[0][:, 0] + 0.2 * blocks[1][:, 1]
    half = n // 2
    test = TestSet(
        make_problem([b[half:] for b in blocks], y[half:], loss=loss).blocks,
        y[half:],
        np.ones(n - half),
        np.zeros(n - half),
    )
    problem = make_problem([b[:half] for b in blocks], y[:half], loss=loss, lam=1e-2, test=test)
    return problem, [b[:half] for b in blocks], [b[half:] for b in blocks], y[:half], y[half:]


def test_every_coalition_is_a_model():
    from sklearn.linear_model import LogisticRegression

    problem, train, held, y, y_test = a_problem()
    worth = measure_worth(problem, SolverOptions(gap=1e-9))
    assert sorted(worth.coalitions) == list(range(8))
    assert worth.metric == "auc"
    for mask in range(1, 8):
        members = [m for m in range(3) if mask >> m & 1]
        model = LogisticRegression(C=1 / (len(y) * 1e-2), tol=1e-10, solver="newton-cholesky")
        model.fit(np.hstack([train[m] for m in members]), y)
        z = model.decision_function(np.hstack([held[m] for m in members]))
        expected = evaluation_metrics(problem.loss, y_test, z)
        for name in ("log_loss", "auc", "accuracy", "brier"):
            assert worth.of(mask, name) == pytest.approx(expected[name], abs=2e-5), (mask, name)
    rate = y.mean()
    assert worth.of(0, "log_loss") == pytest.approx(
        -np.mean(y_test * np.log(rate) + (1 - y_test) * np.log(1 - rate)), abs=1e-9
    )
    assert worth.of(0, "auc") == 0.5
    # Table says what the coalitions say.
    problem, *_ = a_problem()
    worth = measure_worth(problem, label_party=1, metric="log_loss")
    for m, row in enumerate(worth.table()):
        assert row["alone"] == worth.of(1 << m)
        assert row["without"] == worth.of(7 - (1 << m))
        # A smaller log loss is a better one, so adding is a fall.
        assert row["adds_alone"] == worth.of(0) - worth.of(1 << m)
        assert row["adds_last"] == worth.of(7 - (1 << m)) - worth.of(7)
        assert row["label_party"] == (m == 1)
    for metric in worth.metrics:
        total = worth.better(7, 0, metric)
        assert math.fsum(worth.shapley(metric)) == pytest.approx(total, abs=1e-15)
    document = worth.to_json()
    assert document["joining_adds"] == worth.of(2) - worth.of(7)
    assert type(worth).from_json(json.loads(json.dumps(document))) == worth


@pytest.mark.parametrize(("loss", "metric"), [("squared", "r2"), ("hinge", "auc"), ("huber", "r2")])
def test_the_metric_follows_the_loss(loss, metric):
    problem, train, held, y, y_test = a_problem(loss=loss)
    worth = measure_worth(problem, SolverOptions(gap=1e-5))
    assert worth.metric == metric
    assert math.fsum(worth.shapley()) == pytest.approx(worth.better(7, 0), abs=1e-14)
    if loss == "squared":
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=len(y) * 1e-2).fit(np.hstack(train), y)
        expected = evaluation_metrics(problem.loss, y_test, model.predict(np.hstack(held)))["r2"]
        assert worth.of(7) == pytest.approx(expected, abs=1e-4)
    refuses(ConfigError, "log_loss is undefined", measure_worth, problem, metric="log_loss")


def test_multinomial_coalitions():
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(200, 2)), rng.normal(size=(200, 2))]
    y = np.argmax(np.column_stack([blocks[0][:, 0], blocks[1][:, 1], np.zeros(200)]), axis=1).astype(float)
    test = TestSet(
        make_problem([b[100:] for b in blocks], y[100:], loss="multinomial").blocks,
        y[100:],
        np.ones(100),
        np.zeros(300),
    )
    problem = make_problem([b[:100] for b in blocks], y[:100], loss="multinomial", lam=1e-2, test=test)
    worth = measure_worth(problem, SolverOptions(gap=1e-8))
    counts = np.bincount(y[:100].astype(int)) / 100
    assert worth.of(0, "log_loss") == pytest.approx(-np.log(counts[y[100:].astype(int)]).mean(), abs=1e-6)
    assert all(share > 0 for share in worth.shapley("log_loss"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("worth")
    write_problem(home / "a.parts", n=200)
    write_problem(home / "t.parts", n=100, seed=3)
    config = make_config({"data": str(home / "a.parts"), "test": str(home / "t.parts"), "lambda": 1e-2})
    start_run(config, home / "run")
    return home


def copy_of(trained, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "home")
    return tmp_path / "home" / "run"


class StopAfter:
    """Sends Ctrl-C once so many coalitions are done."""

    def __init__(self, n):
        self.n, self.seen, self.told = n, [], []

    def note(self, text):
        self.told.append(text)

    def round(self, told):
        import os
        import signal

        self.seen.append(told.partition(" · ")[2])
        if len(self.seen) == self.n:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("n", [1, 4, 7])
def test_interrupted_it_goes_on_to_the_same_result(trained, tmp_path, n):
    place = copy_of(trained, tmp_path)
    whole = worth_of_run(place)
    (place / "worth.json").rename(tmp_path / "whole.json")
    first = StopAfter(n)
    assert worth_of_run(place, display=first) is None
    assert not (place / "worth.json").exists()
    assert len(coalitions_done(place)) == n
    second = StopAfter(99)
    assert worth_of_run(place, display=second) == whole
    assert len(first.seen) + len(second.seen) == 8
    assert f"{n} coalitions are done already" in second.told
    assert (place / "worth.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not (place / PARTIAL).exists()
    # Finished: nothing is trained again, and another metric is only another view.
    third = StopAfter(99)
    assert worth_of_run(place, metric="log_loss", display=third).metric == "log_loss"
    assert third.seen == []


def test_other_data_or_settings_begin_anew(trained, tmp_path):
    place = copy_of(trained, tmp_path)
    worth_of_run(place, display=StopAfter(3))
    lines = (place / "run.toml").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("settings = "))  # a digest of the rest
    (place / "run.toml").write_text(text.replace("lambda = 0.01", "lambda = 0.1"))
    display = StopAfter(99)
    assert worth_of_run(place, display=display) is not None
    assert len(display.seen) == 8
    assert f"{PARTIAL}: of other data or settings: begun anew" in display.told
    write_problem(tmp_path / "home" / "other.parts", n=200, seed=8)
    (place / "run.toml").write_text(text.replace("a.parts", "other.parts"))
    refuses(InputError, "not the data", worth_of_run, place)


@pytest.mark.repeats
def test_a_run_with_a_path_or_early_stopping(trained, tmp_path):
    common = {"data": str(trained / "a.parts"), "test": str(trained / "t.parts")}
    path, early = tmp_path / "path", tmp_path / "early"
    start_run(make_config({**common, "path": True, "path_values": [0.1, 0.01], "folds": 2}), path)
    chosen = json.loads((path / "result.json").read_text())["lambda"]
    plain = tmp_path / "plain"
    start_run(make_config({**common, "lambda": chosen}), plain)
    expected = worth_of_run(plain)
    assert worth_of_run(path) == expected
    start_run(make_config({**common, "lambda": chosen, "validation": 0.2, "patience": 2}), early)
    assert worth_of_run(early) == expected


def test_a_damaged_file_is_one_line(trained, tmp_path, capsys):
    place = copy_of(trained, tmp_path)
    (place / "worth.json").write_text('{"parties": 3}')
    assert "worth.json: not what" in refused(capsys, 4, "worth", place, "-q")
    refuses(FormatError, r"worth\.json", write_report, place)
