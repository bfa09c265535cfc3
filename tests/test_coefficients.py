"""The table of coefficients: raw units, references, one party alone, several classes."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fastadmm import ADMMSharingClassifier, Privacy
from fastadmm.cli.columns import coefficient_table
from fastadmm.runs.evaluate import infer_run
from fastadmm.runs.export import read_coefficients
from fastadmm.runs.predict import predict_partition
from fastadmm.store.coefficients import Coefficients, coefficients, units_of
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.model import PartyModel, open_model
from fastadmm.store.transform import Transform

from run_tools import refused, run, told


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A logistic run on two tables with a category, standardised."""
    home = tmp_path_factory.mktemp("coefficients")
    rng = np.random.default_rng(1)
    n = 200
    bank = pd.DataFrame(
        {
            "id": np.arange(n),
            "income": rng.normal(50.0, 9.0, n),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
        }
    )
    shop = pd.DataFrame({"id": np.arange(n), "visits": rng.poisson(4.0, n).astype(float)})
    z = 0.1 * (bank.income - 50.0) + (bank.job == "nurse") - 0.3 * shop.visits + 1.0
    bank["bad"] = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), "yes", "no")
    bank.to_csv(home / "bank.csv", index=False)
    shop.to_csv(home / "shop.csv", index=False)
    tables = [
        *("convert", "--guest", home / "bank.csv", "--host", home / "shop.csv", "--id", "id"),
        *("--label", "bad"),
    ]
    assert run(*tables, "--standardize", "-o", home / "d.parts") == 0
    assert run("train", home / "d.parts", "--lambda", 1e-3, "--gap", 1e-9, "-q", "-o", home / "run") == 0
    return home


def test_units_are_those_of_public_bounds_and_json_has_no_infinite_ratio():
    table = {"party": ["a"], "feature": ["x"], "weight": [800.0], "scaled_weight": [800.0], "ratio": [np.inf]}
    document = Coefficients(table, "odds ratio", []).to_dict()
    assert json.loads(json.dumps(document, allow_nan=False))["coefficients"][0]["ratio"] is None
    rng = np.random.default_rng(2)
    encoder = Encoder((ColumnEncoding("age", low=20.0, high=60.0), ColumnEncoding("w")), "described")
    scale, center = np.array([0.5, 2.0]), np.array([0.1, 3.0])
    transform = Transform(center=center, scale=scale)
    party = PartyModel("p", rng.normal(size=2), ["age", "w"], transform, encoder=encoder)
    raw = rng.uniform(20.0, 60.0, (5, 2))
    seen = raw.copy()
    seen[:, 0] = encoder.columns[0].scaled(raw[:, 0])
    units = units_of(party)
    score = raw @ (units.factor * party.weights) + units.shift @ party.weights
    np.testing.assert_allclose(score, (seen - center) / scale @ party.weights, rtol=1e-12)


def test_raw_weights_predict_raw_rows_and_categories_have_a_reference(home):
    table = read_coefficients(home / "run").to_frame().set_index(["party", "feature"])
    w = table["weight"]
    bank, shop = pd.read_csv(home / "bank.csv"), pd.read_csv(home / "shop.csv")
    z = w["", "intercept"] + w["guest", "income"] * bank.income + w["host", "visits"] * shop.visits
    z += bank.job.map({job: w["guest", f"job={job}"] for job in ("clerk", "nurse", "smith")})
    np.testing.assert_allclose(
        z, predict_partition(home / "run", home / "d.parts").score, rtol=1e-9, atol=1e-10
    )
    scaled = np.concatenate([p.weights for p in open_model(home / "run").parties])
    np.testing.assert_array_equal(table["scaled_weight"][:-1], scaled)
    np.testing.assert_allclose(table["ratio"], np.exp(w), rtol=1e-14)
    # one definition of raw units: the table with standard errors has the same weights
    inferred = infer_run(home / "run").to_frame()
    np.testing.assert_allclose(inferred["weight"], w, rtol=1e-12)
    # Categories are compared with their reference.
    for reference in ("clerk", "smith"):
        found = read_coefficients(home / "run", references={"job": reference})
        table = found.to_frame().set_index("feature")
        jobs = table.loc[[f"job={job}" for job in ("clerk", "nurse", "smith")]]
        assert set(jobs["reference"]) == {f"job={reference}"}
        expected = np.exp(jobs["weight"] - jobs["weight"][f"job={reference}"])
        np.testing.assert_allclose(jobs["ratio_to_reference"], expected, rtol=1e-14)
        assert table["reference"].isna()[["income", "visits", "intercept"]].all()
    assert found.ratio == "odds ratio"


def test_a_party_alone_has_its_own_part(home, tmp_path, capsys):
    alone = tmp_path / "mine.h5"
    alone.write_bytes((home / "run" / "model" / "host.h5").read_bytes())
    whole = read_coefficients(home / "run").to_frame().query("party == 'host'")
    document = told(capsys, "coefficients", alone)
    (row,) = document["coefficients"]
    assert row["weight"] == whole["weight"].item()
    assert document["ratio"] == ""
    assert any("intercept" in note for note in document["notes"])
    own = read_coefficients(home / "run", "host")
    assert own.ratio == "odds ratio"
    assert [{k: v for k, v in held.items() if k in row} for held in own.rows()] == [row]
    assert run("coefficients", alone, "--party", "guest") == 3
    assert "guest, host" in refused(capsys, 5, "coefficients", home / "run", "--party", "nobody")


@pytest.mark.parametrize("clipped", [True, False])
def test_columns_of_clipped_or_normalised_rows_have_no_units(clipped):
    encoder = Encoder((ColumnEncoding("age", low=20.0, high=60.0),), "described")
    transform = Transform() if clipped else Transform("l2", scale=np.array([3.0]))
    party = PartyModel("p", np.ones(1), ["age"], transform, encoder=encoder, clipped=clipped)
    units = units_of(party)
    assert (units.factor.tolist(), units.shift.tolist()) == ([1.0], [0.0])
    assert "have no units" in units.note


def test_several_classes():
    party = PartyModel("p", np.arange(6.0).reshape(2, 3), ["a", "b"], Transform())
    found = coefficients(party)
    assert found.ratio == ""
    assert [row["weight"] for row in found.rows()] == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    assert found.columns["class"] == ["class 1"] * 2 + ["class 2"] * 2 + ["class 3"] * 2
    encoder = Encoder((ColumnEncoding("job", ("clerk", "nurse")),))
    found = coefficients(replace(party, feature_names=encoder.feature_names, encoder=encoder))
    assert "compared with" in coefficient_table(found).columns[-1].header


@pytest.mark.repeats
def test_report_shows_them(home):
    assert run("report", home / "run") == 0
    page = (home / "run" / "report.html").read_text(encoding="utf-8")
    assert "<td>job=smith</td>" in page
    assert "odds ratio" in page


def test_of_estimators():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(80, 3)) * [1.0, 5.0, 0.1], columns=["a", "b", "c"])
    y = (X["a"] + 0.1 * X["b"] + rng.normal(size=80) > 0.0).astype(int)
    model = ADMMSharingClassifier(parties=[1, 2], n_threads=1).fit(X, y)
    table = model.coefficients(X).to_frame()
    assert table["party"].tolist() == ["party-1", "party-2", "party-2", ""]
    assert table["feature"].tolist() == ["a", "b", "c", "intercept"]
    np.testing.assert_allclose(table["weight"][:3], model.coef_[0], rtol=1e-14)
    np.testing.assert_allclose(table["scaled_weight"][:3], model.coef_[0] * X.std(ddof=0), rtol=1e-12)
    np.testing.assert_allclose(table["scaled_weight"][3], model.decision_function(X.mean().to_frame().T)[0])
    plain = model.coefficients().to_frame()
    np.testing.assert_array_equal(plain["weight"], plain["scaled_weight"])
    np.testing.assert_allclose(plain["weight"], table["weight"], rtol=1e-12)
    # Of a private estimator weights are its own.
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(2.0, [1.0, 5.0], (60, 2)), columns=["a", "b"])
    privacy = Privacy(epsilon=5.0, delta=1e-5, mode="message")
    model = ADMMSharingClassifier(
        parties={"bank": ["a"], "shop": ["b"]}, privacy=privacy, max_rounds=3, n_threads=1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rounds, and no ledger
        model.fit(X, X["a"] > 2.0)
    found = model.coefficients(X)
    np.testing.assert_array_equal(found.columns["weight"], [*model.coef_[0], model.intercept_[0]])
    assert found.columns["party"] == ["bank", "shop", ""]
    assert any("clipped" in note for note in found.notes)
