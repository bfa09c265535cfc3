"""Bins and points from Python: the numbers of the command line, and what scikit-learn asks for."""

import json
import pickle
import re

import fastadmm
import numpy as np
import pandas as pd
import pytest
from fastadmm import JointClassifier, Scorecard, WoeTransformer
from fastadmm.data_tools.per_table import TableRows
from fastadmm.errors import ConfigError, InputError
from fastadmm.runs.points import apply_card
from fastadmm.store.partition import open_partition
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from run_tools import refuses, run

OWN = {"city": [["Rome", "O'Hara, IL"], ["Oslo"]], "orders": [1, 3.5]}


@pytest.fixture(scope="module")
def tables():
    """A bank's and a shop's columns with missing cells and a column of noise, and labels of a known pair."""
    rng = np.random.default_rng(7)
    n = 1500
    late = rng.integers(0, 6, n).astype(float)
    city = rng.choice(["Rome", "Oslo", "O'Hara, IL", "Paris"], n, p=[0.4, 0.3, 0.2, 0.1]).astype(object)
    bank = pd.DataFrame({"late": late, "income": np.exp(rng.normal(8, 0.5, n)), "city": city})
    shop = pd.DataFrame({"orders": rng.poisson(4, n), "noise": [f"L{k}" for k in rng.integers(0, 60, n)]})
    z = 0.5 * late - 0.9 * (np.log(bank["income"]) - 8) + 0.8 * (city == "Oslo") - 0.2 * shop["orders"] - 1.5
    bad = rng.random(n) < 1 / (1 + np.exp(-z))
    bank.loc[rng.random(n) < 0.1, "late"] = np.nan
    bank.loc[rng.random(n) < 0.05, "city"] = None
    return bank, shop, np.where(bad, "bad", "good")


@pytest.fixture(scope="module")
def home(tables, tmp_path_factory):
    """The same at the command line, with bins that it chooses and with given ones."""
    home = tmp_path_factory.mktemp("woe")
    bank, shop, y = tables
    bank.assign(id=range(len(y)), state=y).to_csv(home / "bank.csv", index=False)
    shop.assign(id=range(len(y))).to_csv(home / "shop.csv", index=False)
    command = ("--guest", home / "bank.csv", "--host", home / "shop.csv", "--id", "id", "--label", "state")
    assert not run("convert", *command, "--missing", "indicator", "-o", home / "p")
    limits = ("--set", "max_bins=4", "--set", "min_events=9")
    given = ("--bins", "city=Rome|O'Hara, IL,Oslo", "--bins", "orders=1,3.5", *limits)
    for name, options in (("found", ()), ("given", (*given, "--monotone", "late=rising"))):
        assert not run("scorecard", "bins", home / "p", "-o", home / name, *options)
    assert not run("train", home / "found", "--lambda", "1e-4", "--gap", "1e-13", "-q", "-o", home / "run")
    assert not run("scorecard", "points", home / "run", "-o", home / "card", "--decimals", 6)
    return home


@pytest.mark.parametrize(
    ("name", "woe"),
    [
        ("found", WoeTransformer(min_iv=0)),
        ("given", WoeTransformer(4, min_events=9, min_iv=0, bins=OWN, monotone={"late": "rising"})),
    ],
)
def test_the_numbers_are_those_of_the_command_line(tables, home, capsys, name, woe):
    bank, shop, y = tables
    X = {"guest": bank, "host": shop}
    features = woe.fit_transform(X, y)
    partition = open_partition(home / name)
    for party in partition.parties:
        own, theirs = woe.encoders_[party.name], party.encoder
        assert [column.bins for column in own.columns] == [column.bins for column in theirs.columns]
        assert list(features[party.name].columns) == theirs.feature_names
        np.testing.assert_array_equal(features[party.name], party.load())
    assert "noise" not in woe.get_feature_names_out()
    if name == "found":
        capsys.readouterr()
        assert not run("scorecard", "bins", home / "p", "-o", home / "again", "--json")
        assert json.loads(capsys.readouterr().out)["columns"] == woe.columns_.to_dict("records")
        new = ("--guest", home / "bank.csv", "--host", home / "shop.csv", "--id", "id", "--label", "state")
        assert not run("convert", *new, "--like", home / "found", "-o", home / "like")
        for party in open_partition(home / "like").parties:
            np.testing.assert_array_equal(woe.transform(X)[party.name], party.load())
    whole = clone(woe).set_params(min_iv=None).fit(pd.concat([bank, shop], axis=1), y)
    assert list(whole.get_feature_names_out()) == [*bank.columns, *shop.columns]
    assert {"rows", "events", "woe", "iv", "iv_cross"} <= set(whole.bins_.columns)
    assert whole.bins_["events"][whole.bins_["column"] == "late"].sum() == (y == "bad").sum()


def test_points_are_those_of_the_command_line(tables, home):
    bank, shop, y = tables
    card = Scorecard(model=JointClassifier(tol=1e-13), digits=6).fit({"guest": bank, "host": shop}, y)
    document = json.loads((home / "card/card.json").read_text())
    assert (document["good"], document["bad"]) == (card.good_, card.bad_) == ("good", "bad")
    assert card.base_points_ == pytest.approx(document["base_points"], abs=2e-6)
    theirs = pd.concat([pd.read_csv(home / f"card/{name}.csv") for name in ("guest", "host")])
    assert list(theirs.columns) == list(card.points_.columns)
    for column in theirs.columns:
        if theirs[column].dtype == float:
            np.testing.assert_allclose(card.points_[column], theirs[column], rtol=1e-6, atol=2e-6)
        else:
            assert card.points_[column].astype(str).tolist() == theirs[column].astype(str).tolist()
    header, rows, _ = apply_card(home / "card", [home / "bank.csv", home / "shop.csv"], TableRows(id=["id"]))
    points = [row[header.index("points")] for row in rows]
    mine = card.score({"guest": bank, "host": shop})
    np.testing.assert_allclose(mine, points, atol=1e-5)
    X = {"guest": bank, "host": shop}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(card)).score(X), mine)
    with pytest.raises(ValueError, match="feature names should match"):
        card.score({"guest": bank[["late", "city"]], "host": shop})
    assert Scorecard().fit(X, y).score(X).dtype == np.int64


def test_the_class_that_counts_decides_signs_not_points(tables):
    X, _, y = tables
    cards = {
        counted: Scorecard(model=JointClassifier(tol=1e-13), digits=4, positive=counted).fit(X, y)
        for counted in (None, "bad", "good")
    }
    np.testing.assert_array_equal(cards[None].score(X), cards["bad"].score(X))
    np.testing.assert_allclose(cards["good"].score(X), cards["bad"].score(X), atol=1e-3)
    for counted in ("bad", "good"):
        woe, label = cards[counted].woe_, y == counted
        assert (woe.positive_, list(woe.classes_)) == (counted, ["bad", "good"])
        late = woe.bins_[woe.bins_["column"] == "late"]
        np.testing.assert_allclose(late["rate"] * late["rows"], late["events"])
        assert late["events"].sum() == label.sum()
    risen = Scorecard(good="bad").fit(X, y)
    assert (risen.good_, risen.bad_) == ("bad", "good")
    numbers = Scorecard().fit(X, (y == "bad").astype(int))
    assert (numbers.good_, numbers.bad_, numbers.woe_.positive_) == (0, 1, 1)


def test_new_cells_and_kinds_of_tables(tables):
    X, _, y = tables
    woe = WoeTransformer().fit(X, y)
    new = X.head(4).assign(city=["Rome", "Nowhere", None, ""])
    with pytest.warns(
        UserWarning, match="'city': 1 cells with unseen categories, such as 'Nowhere': they say"
    ):
        found = woe.transform(new)[:, 2]
    bins = {c.name: c.bins for c in woe.encoders_["party-1"].columns}
    assert found[1] == 0.0
    assert (found[2:] == bins["city"].woe[-1]).all()
    as_array = WoeTransformer().fit(X.to_numpy(dtype=object), y)
    np.testing.assert_array_equal(as_array.transform(X.to_numpy(dtype=object)), woe.transform(X))
    assert list(as_array.get_feature_names_out()) == ["x0", "x1", "x2"]
    typed = X.astype({"city": "category", "late": "Int64"}).assign(
        city=lambda f: f["city"].astype("category")
    )
    np.testing.assert_array_equal(woe.transform(typed), woe.transform(X))
    codes = X.assign(late=X["late"].astype("category"))
    (levels, *_) = [own.levels for own in WoeTransformer().fit(codes, y).encoders_["party-1"].columns]
    assert levels == tuple("012345")
    weight = np.arange(len(y)) % 3
    frame = clone(woe).set_output(transform="pandas").fit_transform(X, y, sample_weight=weight)
    assert list(frame.columns) == list(X.columns)
    with pytest.raises(InputError, match="row 0 has the index"):
        woe.fit(X, pd.Series(y).sample(frac=1, random_state=0))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            WoeTransformer(bins={"city": [["Rom"], ["Oslo"]]}),
            "bins city=Rom,Oslo: 'Rom' is no category of the ",
        ),
        (WoeTransformer(bins={"town": [1]}), "bins town: no party has a column of that name"),
        (WoeTransformer(bins={"late": [3, 2]}), "bins late=3,2: late has numbers: edges that rise"),
        (WoeTransformer(bins={"late": 3}), "bins: {'late': 3}: a dict of lists is needed"),
        (WoeTransformer(max_bins=1), "max_bins 1: choose from 2 to 1000"),
        (WoeTransformer(monotone={"late": "up"}), "monotone 'up': choose one of auto, rising"),
        (WoeTransformer(min_iv=9), "no column of party-1 says anything about the labels beyond luck"),
        (WoeTransformer(positive="ugly"), "positive: 'ugly' is none of the labels 'bad', 'good'"),
        (Scorecard(pdo=0), "pdo 0: is not positive"),
        (Scorecard(good="ugly"), "good 'ugly': the classes are good, bad"),
        (Scorecard(model=JointClassifier(loss="hinge")), "model: is no logistic model of two classes"),
        (Scorecard(model=JointClassifier(privacy=fastadmm.Privacy())), "model: a private fit"),
    ],
)
def test_mistakes_name_parameter_and_column(tables, made, message):
    X, _, y = tables
    refuses((ConfigError, InputError), re.escape(message), made.fit, X, y)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pd.Timestamp("2024-01-01"), "X: column 'd': has dates"),
        (None, "X: column 'd': no value in any row"),
        (np.inf, "X: column 'd', row 0: is infinite"),
        (2**53 + np.arange(1500), "X: column 'd', row 1: is above 2**53"),
        ([1, "a"] * 750, "X: column 'd', row 0: 1: argument must be a string or a number, as other cells"),
    ],
)
def test_cells_that_no_bin_takes(tables, cells, message):
    X, _, y = tables
    with pytest.raises(InputError, match=re.escape(message)):
        WoeTransformer().fit(X.assign(d=cells), y)
    with pytest.raises(InputError, match="row 2, column 'late': 'many' is not a number"):
        WoeTransformer().fit(X, y).transform(X.assign(late=["1", "2", *["many"] * (len(y) - 2)]))
    with pytest.raises(NotFittedError):
        Scorecard().score(X)


def _by_choice(_):
    """Checks that bins which tell signal from luck do not pass."""
    other = "rows of training have the weights of evidence of the other folds, as TargetEncoder's"
    relative = "weights count relative to their mean, and folds are of rows, as at the command line"
    return {
        "check_transformer_general": other,
        "check_transformer_data_not_an_array": other,
        "check_sample_weight_equivalence_on_dense_data": relative,
    }


@pytest.mark.representatives(40)
@parametrize_with_checks([WoeTransformer()], expected_failed_checks=_by_choice)
@pytest.mark.filterwarnings("ignore:.*parts the classes only in bins:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
