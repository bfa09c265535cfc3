"""Losses with a logarithmic link: what a model keeps, metrics, exports, refusals."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.solver.metrics import deviance_metrics, evaluation_metrics
from scipy.stats import nbinom
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import d2_tweedie_score, mean_tweedie_deviance

from run_tools import run


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A table of amounts with zeros, as two parties."""
    folder, rng = tmp_path_factory.mktemp("families"), np.random.default_rng(5)
    X = rng.normal(size=(80, 4))
    y = np.exp(0.5 * X[:, 0] - 0.3 * X[:, 3]) * rng.gamma(2.0, 0.5, 80) * (rng.random(80) > 0.3)
    pd.DataFrame(X, columns=list("abcd")).assign(amount=y).to_csv(folder / "t.csv", index=False)
    convert = ["convert", folder / "t.csv", "--label", "amount", "--task", "regression", "--parties", 2]
    assert run(*convert, "-o", folder / "t.parts") == 0
    line = ["train", folder / "t.parts", "--loss", "tweedie:1.7", "--lambda", 1e-2, "--gap", 1e-10, "-q"]
    assert run(*line, "-o", folder / "run") == 0
    return folder


def test_a_model_keeps_the_power(home, capsys):
    table = pd.read_csv(home / "t.csv")
    X, y = table[list("abcd")].to_numpy(), table["amount"].to_numpy()
    peer = TweedieRegressor(power=1.7, link="log", alpha=1e-2, tol=1e-12, max_iter=10_000).fit(X, y)
    assert tomllib.loads((home / "run" / "model" / "model.toml").read_text("utf-8"))["loss"] == "tweedie:1.7"
    capsys.readouterr()
    assert run("evaluate", home / "run", home / "t.parts", "--json") == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    mean = peer.predict(X)
    assert metrics["deviance"] == pytest.approx(mean_tweedie_deviance(y, mean, power=1.7), rel=1e-6)
    assert metrics["d2"] == pytest.approx(d2_tweedie_score(y, mean, power=1.7), rel=1e-6)
    assert run("predict", home / "run", home / "t.parts", "-o", home / "predicted.csv") == 0
    np.testing.assert_allclose(pd.read_csv(home / "predicted.csv")["prediction"], mean, rtol=1e-4)


@pytest.mark.parametrize(
    ("loss", "power"), [("poisson", 1.0), ("gamma", 2.0), ("tweedie", 1.5), ("squared", None)]
)
def test_deviance_is_that_of_scikit_learn(loss, power):
    rng = np.random.default_rng(1)
    z, s = rng.normal(size=30), rng.uniform(0.0, 2.0, 30)
    y = np.exp(z) * rng.gamma(2.0, 0.5, 30)
    found = deviance_metrics(get_loss(loss), y, z, s)
    if power is None:
        assert found == {}
        return
    own = {"power": power, "sample_weight": s}
    assert found["deviance"] == pytest.approx(mean_tweedie_deviance(y, np.exp(z), **own), rel=1e-12)
    assert found["d2"] == pytest.approx(d2_tweedie_score(y, np.exp(z), **own), rel=1e-12)
    assert deviance_metrics(get_loss(loss), -y, z) == {"deviance": None, "d2": None}
    assert deviance_metrics(get_loss(loss), np.full(30, 2.0), z)["d2"] is None
    assert list(evaluation_metrics(get_loss(loss), y, z)) == ["rmse", "mae", "r2", "deviance", "d2"]


def test_deviances_need_their_parameter():
    rng = np.random.default_rng(2)
    loss, z = get_loss("negative_binomial", alpha=0.4), rng.normal(size=40)
    y = rng.poisson(np.exp(z)).astype(float)

    def likelihood(mean):
        return float(nbinom.logpmf(y, 2.5, 2.5 / (2.5 + mean)).sum())

    with Engine(1) as engine:
        value = loss.evaluate(z, y, np.ones(40), np.empty(40), engine)
    assert value == pytest.approx(likelihood(np.maximum(y, 1e-300)) - likelihood(np.exp(z)), rel=1e-10)
    # Models name a parameter that judging needs.
    assert {name for name, loss in LOSSES.items() if loss.in_model} == {"tweedie", "negative_binomial"}
    assert get_loss("huber", delta=2.0).text == "huber"
    assert get_loss("negative_binomial", alpha=0.25).text == "negative_binomial:0.25"
