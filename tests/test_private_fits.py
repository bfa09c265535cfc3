"""Private fits of estimators: every one is charged to the ledger, a search is composition, and says so."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier, ADMMSharingRegressor, Privacy
from fastadmm.errors import ConfigError, FormatError, PrivacyBudgetError, PrivacyWarning
from fastadmm.privacy.accounting import compose_gdp, epsilon_of, gdp_of
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.private_run import _FEATURES, _LABELS
from joblib import parallel_config
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from run_tools import refuses, within

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(240, 5))
Y = (X[:, 0] + 0.2 * RNG.normal(size=240) > 0).astype(int)


def made(ledger, mode="fusion", parties=(3, 2), **changes):
    settings = Privacy(mode=mode, **{"epsilon": 1.0, "delta": 1e-4, **changes})
    return ADMMSharingClassifier(parties=list(parties), alpha=1e-2, privacy=settings, ledger=ledger)


def fitted(*args, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "at N = ")  # messages are mostly noise at this size
        return made(*args, **options).fit(X, Y)


@pytest.mark.parametrize("mode", ["fusion", "message"])
def test_a_second_fit_is_refused_unless_the_budget_allows_it(tmp_path, mode):
    path = tmp_path / "ledger.jsonl"
    model = fitted(path, mode)
    assert model.privacy_.epsilon == pytest.approx(1.0)
    assert model.privacy_.tuning == ""
    assert Ledger(path).spent(_FEATURES).epsilon(1e-4) == pytest.approx(1.0)
    refuses(PrivacyBudgetError, "releases of 1 run", fitted, path, mode)
    model = fitted(path, mode, total_epsilon=2.0)
    assert "1 other run(s) in this ledger; all together epsilon 1." in model.privacy_.tuning
    assert 1.4 < Ledger(path).spent(_FEATURES).epsilon(1e-4) < 1.8  # between two Gaussians and two numbers
    refuses(PrivacyBudgetError, "", fitted, path, mode, total_epsilon=1.5)  # no epsilon is left over


def test_a_grid_search_costs_what_composition_says(tmp_path):
    path = tmp_path / "ledger.jsonl"
    grid = {"alpha": np.logspace(-4, -1, 5).tolist()}
    search = GridSearchCV(made(path, "message", total_epsilon=20.0), grid, cv=3, error_score="raise")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "at N = ")
        search.fit(X, Y)
    spent = Ledger(path).spent(_FEATURES)
    assert spent.runs == 16  # five values, three folds, and the best value once more
    expected = epsilon_of(compose_gdp([gdp_of(1.0, 1e-4)] * 16), 1e-4)
    assert spent.epsilon(1e-4) == pytest.approx(expected, rel=1e-6)
    assert expected > 4.9
    assert (
        "15 other run(s) in this ledger; all together epsilon 4.99" in search.best_estimator_.privacy_.tuning
    )
    refuses(PrivacyBudgetError, "16 run", fitted, path, "message", total_epsilon=1.0)


def test_without_a_ledger_a_fit_warns_and_says_that_it_alone_counts():
    with pytest.warns(PrivacyWarning, match="private fit: only this fit is counted") as caught:
        model = fitted(None)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "\n" not in str(caught[0].message)
    assert model.privacy_.epsilon == pytest.approx(1.0)
    assert "only this fit is counted" in model.privacy_.tuning
    assert "only this fit is counted" in str(model.privacy_.table())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ADMMSharingClassifier(parties=[3, 2]).fit(X, Y)  # without privacy there is nothing to count


def test_arrays_have_one_account_whatever_they_hold(tmp_path):
    path = tmp_path / "l"
    fitted(path)
    with pytest.raises(PrivacyBudgetError):  # other rows, other columns, another division among parties
        made(path, parties=(1, 2)).fit(X[:100, ::-1][:, :3] * 2.0, Y[:100])
    with pytest.raises(PrivacyBudgetError):
        made(path, parties=([0, 4], [1], [2, 3])).fit(X, Y)
    made(tmp_path / "other").fit(X, Y)


def test_labels_have_an_account_of_their_own(tmp_path):
    path = tmp_path / "l"
    fitted(path, label_epsilon=2.0, total_epsilon=3.0)
    assert Ledger(path).spent(_LABELS).epsilon(0.0) == 2.0
    fitted(path, label_epsilon=2.0, total_epsilon=3.0)
    refuses(PrivacyBudgetError, "randomised labels", fitted, path, label_epsilon=2.5, total_epsilon=2.5)


@pytest.mark.parametrize("first", ["partition", "arrays"])
def test_runs_on_partitions_in_the_same_ledger_are_added(first):
    ledger = Ledger()
    on_partition = Charge.to(Account("rows", "party-7", columns="digest"), "run", "message 1", gdp=0.3)
    if first == "partition":
        ledger.charge(on_partition, 1.0, 1e-4)
        refuses(PrivacyBudgetError, "", fitted, ledger)
    else:
        fitted(ledger)
        refuses(PrivacyBudgetError, "", ledger.charge, on_partition, 1.0, 1e-4)


def test_copies_and_threads_share_the_account(tmp_path):
    memory, path = Ledger(), tmp_path / "l"
    for ledger in (memory, path, str(path), Ledger(path)):
        model = made(ledger)
        assert model.get_params()["ledger"] is ledger
        copied = clone(model).ledger
        assert copied is ledger if isinstance(ledger, Ledger) else copied == ledger
    assert clone(made(memory)).ledger is memory
    assert copy.deepcopy(memory) is memory
    fitted(memory)
    with pytest.raises(PrivacyBudgetError):
        clone(made(memory)).fit(X, Y)
    opened = Ledger(path)
    fitted(opened)
    for again in (clone(made(opened)), pickle.loads(pickle.dumps(made(opened))), made(path)):
        refuses(PrivacyBudgetError, "", again.fit, X, Y)
    with pytest.raises(TypeError, match="give it a file"):
        pickle.dumps(made(memory))
    # Threads of a search charge one file.
    tmp_path = within(tmp_path)
    path = tmp_path / "l"
    search = GridSearchCV(made(path, total_epsilon=30.0), {"alpha": [1e-3, 1e-2]}, cv=2, n_jobs=2)
    with parallel_config(backend="threading"):
        search.fit(X, Y)
    assert Ledger(path).spent(_FEATURES).runs == 5


def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="neither a path nor"):
        made(3).fit(X, Y)
    with pytest.raises(ConfigError, match="charges nothing; leave it out"):
        ADMMSharingRegressor(parties=[3, 2], ledger=tmp_path / "l").fit(X, Y)
    (tmp_path / "no").write_text("something else")
    with pytest.raises(FormatError, match="not a privacy ledger"):
        made(tmp_path / "no").fit(X, Y)
    assert (tmp_path / "no").read_text() == "something else"
    seeded = made(tmp_path / "l", sampler="insecure_test", seed=1)
    assert seeded.fit(X, Y).privacy_.epsilon == np.inf
    assert not (tmp_path / "l").exists()
