"""Standard errors, tests and fit statistics, against statsmodels, closed forms and simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingClassifier, ADMMSharingRegressor
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.likelihood import joint_gram, joint_products
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning

from run_tools import refuses, run, told

sm = pytest.importorskip("statsmodels.api")

#: Hardly any penalty: the fit is the maximum of the likelihood to many digits.
FREE = {"alpha": 1e-12, "tol": 1e-12, "n_threads": 1}


def columns(table, *names):
    return table[list(names)].to_numpy()


def generated(rng, family):
    X = rng.standard_normal((300, 5)) @ np.diag([1.0, 0.1, 10.0, 1.0, 3.0])
    z = 0.3 + X @ np.array([0.4, -3.0, 0.05, 0.0, 0.1])
    if family == "poisson":
        return X, rng.poisson(np.exp(z)).astype(float)
    return X, (rng.random(300) < 1.0 / (1.0 + np.exp(-z))).astype(float)


def data(name):
    rng = np.random.default_rng(1)
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return X * 10.0, y
    if name == "iris width":
        X, _ = load_iris(return_X_y=True)
        return X[:, :3], X[:, 3]
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X[:, [0, 1, 4, 20, 21]], y
    return generated(rng, name)


CASES = [
    ("diabetes", "squared"),
    ("iris width", "squared"),
    ("breast cancer", "logistic"),
    ("logistic", "logistic"),
    ("poisson", "poisson"),
]


@pytest.mark.representatives(8)
@pytest.mark.parametrize("covariance", ["model", "HC0", "HC1"])
@pytest.mark.parametrize(("name", "loss"), CASES)
def test_agrees_with_statsmodels(name, loss, covariance):
    X, y = data(name)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kind = ADMMSharingClassifier if loss == "logistic" else ADMMSharingRegressor
    model = kind(parties=2, loss=loss, **FREE).fit(X, y)
    found = model.inference(X, y, covariance=covariance, level=0.9)
    design = sm.add_constant(X, prepend=False)
    peer_class = {"squared": sm.OLS, "logistic": sm.Logit, "poisson": sm.Poisson}[loss]
    options = {} if loss == "squared" else {"disp": 0, "method": "newton", "tol": 1e-13, "maxiter": 100}
    robust = {} if covariance == "model" else {"cov_type": covariance, "use_t": loss == "squared"}
    peer = peer_class(y, design).fit(**options, **robust)
    if covariance == "HC1" and loss != "squared":  # there it is HC0, without the factor
        n, p = design.shape
        plain = model.inference(X, y, covariance="HC0", level=0.9)
        np.testing.assert_allclose(found.covariance, plain.covariance * n / (n - p), rtol=1e-8)
        found = plain
    table = found.to_frame()
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(table.weight, peer.params, **close)
    np.testing.assert_allclose(table.standard_error, peer.bse, **close)
    np.testing.assert_allclose(table.statistic, peer.tvalues, rtol=2e-6, atol=1e-8)
    np.testing.assert_allclose(table.p_value, peer.pvalues, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(columns(table, "low", "high"), peer.conf_int(0.1), **close)
    np.testing.assert_allclose(found.fit.log_likelihood, peer.llf, rtol=1e-9)
    np.testing.assert_allclose([found.fit.aic, found.fit.bic], [peer.aic, peer.bic], rtol=1e-8)
    if loss == "squared":
        fit = [found.fit.pseudo_r2, found.fit.adjusted_r2, found.fit.deviance, found.fit.dispersion]
        np.testing.assert_allclose(fit, [peer.rsquared, peer.rsquared_adj, peer.ssr, peer.scale], rtol=1e-8)
        if covariance == "model":
            assert found.tests[0].statistic == pytest.approx(peer.fvalue, rel=1e-7)
    else:
        glm = sm.GLM(y, design, getattr(sm.families, {"logistic": "Binomial"}.get(loss, "Poisson"))()).fit()
        deviances = [found.fit.deviance, found.fit.null_deviance]
        np.testing.assert_allclose(deviances, [glm.deviance, glm.null_deviance], rtol=1e-8)
        assert found.fit.pseudo_r2 == pytest.approx(peer.prsquared, rel=1e-7)
        assert found.tests[0].statistic == pytest.approx(peer.llr, rel=1e-7)
    # One party's weights: a joint Wald test.
    d = len(model.party_coefs_[1])
    wald = peer.wald_test(np.eye(design.shape[1])[-1 - d : -1], scalar=True)
    assert found.tests[-1].statistic == pytest.approx(float(wald.statistic), rel=1e-5)
    assert found.tests[-1].p_value == pytest.approx(float(wald.pvalue), rel=1e-3, abs=1e-12)
    # Of a classifier what its sign means; nothing about shrinkage or the gap.
    assert len(found.notes) == (covariance != "model") + hasattr(model, "classes_")


@pytest.mark.parametrize("covariance", ["model", "HC0"])
@pytest.mark.parametrize("loss", ["gamma", "tweedie:1.6", "negative_binomial:0.7"])
def test_families_agree_with_statsmodels(loss, covariance):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((250, 4))
    mean = np.exp(0.4 + X @ np.array([0.5, -0.3, 0.0, 0.2]))
    amount = mean * rng.gamma(2.0, 0.5, 250)
    y, family = {
        "gamma": (amount, sm.families.Gamma(sm.families.links.Log())),
        "tweedie:1.6": (amount * (rng.random(250) < 0.7), sm.families.Tweedie(var_power=1.6, eql=False)),
        "negative_binomial:0.7": (rng.poisson(amount).astype(float), sm.families.NegativeBinomial(alpha=0.7)),
    }[loss]
    offset = 0.2 * rng.standard_normal(250)
    model = ADMMSharingRegressor(parties=2, loss=loss, **FREE).fit(X, y, offset=offset)
    assert model.certified_
    found = model.inference(X, y, offset=offset, covariance=covariance)
    design, dispersed = sm.add_constant(X, prepend=False), not loss.startswith("negative")
    peer = sm.GLM(y, design, family, offset=offset).fit(
        tol=1e-14, maxiter=200, use_t=dispersed, cov_type="nonrobust" if covariance == "model" else "HC0"
    )
    table, fit = found.to_frame(), found.fit
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(table.weight, peer.params, **close)
    np.testing.assert_allclose(table.standard_error, peer.bse, **close)
    np.testing.assert_allclose(table.p_value, peer.pvalues, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(columns(table, "low", "high"), peer.conf_int(0.05), **close)
    figures = [fit.log_likelihood, fit.aic, fit.deviance, fit.null_deviance, fit.dispersion]
    expected = [peer.llf, peer.aic, peer.deviance, peer.null_deviance, peer.scale]
    if loss.startswith("tweedie"):
        expected[:2] = [np.nan, np.nan]
    np.testing.assert_allclose(figures, expected, rtol=1e-8)
    assert found.columns["ratio"][0] == pytest.approx(np.exp(peer.params[0]))
    if dispersed:
        assert fit.pseudo_r2 == pytest.approx(1.0 - peer.deviance / peer.null_deviance, rel=1e-7)


@pytest.mark.filterwarnings("ignore:at the limit of double precision:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["squared", "gamma", "tweedie:1.5"])
def test_a_model_without_residuals_has_no_standard_errors(loss):
    X, y = np.random.default_rng(10).standard_normal((20, 2)), np.ones(20)
    model = ADMMSharingRegressor(parties=2, loss=loss, n_threads=1).fit(X, y)
    refuses(InputError, "meets every target exactly", model.inference, X, y)


def test_successes_of_trials_agree_with_statsmodels():
    rng = np.random.default_rng(9)
    X, trials = rng.standard_normal((120, 3)), rng.integers(1, 30, 120).astype(float)
    trials[:5] = 0.0
    successes = rng.binomial(trials.astype(int), 1.0 / (1.0 + np.exp(-(0.2 + X @ [0.5, 0.0, -0.4]))))
    y = successes / np.maximum(trials, 1.0)
    model = ADMMSharingRegressor(parties=2, loss="binomial", **FREE).fit(X, y, sample_weight=trials)
    used = trials > 0.0
    design, endog = sm.add_constant(X, prepend=False), np.column_stack([successes, trials - successes])
    for covariance in ("model", "HC0"):
        found = model.inference(X, y, sample_weight=trials, covariance=covariance)
        peer = sm.GLM(endog[used], design[used], sm.families.Binomial()).fit(
            tol=1e-14, cov_type="nonrobust" if covariance == "model" else "HC0"
        )
        close = {"rtol": 1e-6, "atol": 1e-9}
        np.testing.assert_allclose(found.estimate.weights, peer.params, **close)
        np.testing.assert_allclose(found.estimate.standard_errors, peer.bse, **close)
        fit = found.fit
        figures = [fit.log_likelihood, fit.deviance, fit.null_deviance, fit.aic]
        np.testing.assert_allclose(
            figures, [peer.llf, peer.deviance, peer.null_deviance, peer.aic], rtol=1e-8
        )
    np.testing.assert_allclose(model.predict(X)[used], peer.fittedvalues, rtol=1e-6)
    # A row of n trials is n rows of one; lambda is per trial.
    few = ADMMSharingRegressor(parties=2, loss="binomial", alpha=0.1, tol=1e-12, n_threads=1)
    rows = np.repeat(np.arange(120), trials.astype(int))
    hits = np.concatenate([np.arange(int(n)) < k for n, k in zip(trials, successes)])
    one = ADMMSharingClassifier(parties=2, alpha=0.1, tol=1e-12, n_threads=1).fit(X[rows], hits)
    grouped, single = (
        few.fit(X, y, sample_weight=trials).inference(X, y, sample_weight=trials),
        one.inference(X[rows], hits),
    )
    np.testing.assert_allclose(grouped.covariance, single.covariance, rtol=1e-5, atol=1e-12)
    assert grouped.fit.df == pytest.approx(single.fit.df, rel=1e-8)


def test_intervals_under_a_penalty_cover_the_expected_weights():
    # Linear in y, so mean and covariance of the shrunk weights are known exactly.
    rng = np.random.default_rng(2)
    X, truth, lam, sigma = rng.standard_normal((60, 4)), np.array([1.0, -1.0, 0.5, 0.0]), 0.2, 0.7
    y = X @ truth + sigma * rng.standard_normal(60)
    model = ADMMSharingRegressor(parties=2, alpha=lam, fit_intercept=False, tol=1e-13, n_threads=1).fit(X, y)
    found = model.inference(X, y)
    inverse = np.linalg.inv(X.T @ X + 60 * lam * np.eye(4))
    hat = np.trace(inverse @ X.T @ X)
    np.testing.assert_allclose(found.fit.df, hat, rtol=1e-10)
    variance = ((y - X @ model.coef_) ** 2).sum() / (60 - hat)
    np.testing.assert_allclose(
        found.covariance, variance * inverse @ X.T @ X @ inverse, rtol=1e-6, atol=1e-12
    )
    assert any("shrinks" in note for note in found.notes)
    assert all("likelihood" not in test.name for test in found.tests)


def test_a_lambda_of_each_party_and_an_offset():
    rng = np.random.default_rng(3)
    X, y = generated(rng, "logistic")
    offset, weight = 0.1 * rng.standard_normal(300), rng.integers(0, 3, 300).astype(float)
    model = ADMMSharingClassifier(parties=[2, 3], alpha=[1e-2, 1e-3], tol=1e-13, n_threads=1)
    model.fit(X, y, sample_weight=weight, offset=offset)
    found = model.inference(X, y, sample_weight=weight, offset=offset)
    n = int((weight > 0).sum())
    s = weight * n / weight.sum()
    p = 1.0 / (1.0 + np.exp(-(X @ model.coef_[0] + model.intercept_[0] + offset)))
    A = np.column_stack([X, np.ones(300)])
    H = (A.T * (s * p * (1.0 - p))) @ A
    inverse = np.linalg.inv(H + n * np.diag([1e-2] * 2 + [1e-3] * 3 + [0.0]))
    np.testing.assert_allclose(found.covariance, inverse @ H @ inverse, rtol=1e-6, atol=1e-12)
    assert found.fit.n == n


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_joint_gram_against_dense_algebra(storage):
    rng = np.random.default_rng(4)
    D = [rng.standard_normal((50, d)) * (rng.random((50, d)) < 0.5) for d in (1, 40, 7)]
    weight = rng.random(50)
    A = np.column_stack([*D, np.ones(50)])
    blocks = [as_block(storage(own), "p") for own in D]
    with Engine(2) as engine:
        np.testing.assert_allclose(joint_gram(blocks, weight, True, engine), (A.T * weight) @ A, atol=1e-12)
        np.testing.assert_allclose(joint_products(blocks, weight, True, engine), A.T @ weight, atol=1e-12)
        np.testing.assert_allclose(
            joint_gram(blocks, weight, False, engine), ((A.T * weight) @ A)[:-1, :-1], atol=1e-12
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "no log-likelihood"),
        ({"regularizer": "l1"}, "columns were chosen by the data"),
        ({"constraint": "nonnegative"}, "inside a set"),
        ({"regularizer": "none", "duplicate": True}, "'twin' is a combination of other columns; drop it"),
        ({"alpha": 1e-12, "separated": True, "tol": 1e-3}, "tell the classes apart completely"),
    ],
)
def test_what_has_no_standard_errors_is_refused(options, message):
    rng = np.random.default_rng(6)
    X = pd.DataFrame(rng.standard_normal((80, 3)), columns=["a", "b", "c"])
    y = (rng.random(80) < 0.5).astype(float)
    if options.pop("duplicate", False):
        X["twin"] = X["a"] - 2.0 * X["b"]
    if options.pop("separated", False):
        y = (X["a"] > 0).to_numpy().astype(float)
        X["a"] += np.where(y > 0, 50.0, -50.0)
    model = ADMMSharingClassifier(parties=2, max_rounds=30, n_threads=1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one without a penalty has no certificate
        model.fit(X, y)
    refuses((ConfigError, InputError), message, model.inference, X, y)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("columns", ["r0 r1 r2 sum x", "sum r0 x r1 r2", "r0 r1 r2"])
def test_the_last_column_of_a_combination_is_named(columns, intercept):
    # Whichever of equal columns a factorisation leaves over: rounding decides that. The r's add up to one.
    rng = np.random.default_rng(7)
    one_hot = np.eye(3)[rng.integers(0, 3, 90)]
    every = {"r0": one_hot[:, 0], "r1": one_hot[:, 1], "r2": one_hot[:, 2], "x": rng.standard_normal(90)}
    every["sum"] = 1e3 * (every["r0"] - every["r1"])
    kinds = columns.split()
    X = pd.DataFrame({name: every[name] for name in kinds})
    y = rng.integers(0, 3, 90)
    taking_part = [name for name in kinds if name != "x" and (intercept or name != "r2")]
    for seen in (y, y > 0):
        model = ADMMSharingClassifier(parties=2, regularizer="none", fit_intercept=intercept, max_rounds=30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, seen)
        if not intercept and "sum" not in kinds:
            model.inference(X, seen)
            continue
        with pytest.raises(InputError, match=f"'{taking_part[-1]}' is a combination of other columns"):
            model.inference(X, seen)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on standardised columns of a table, with a party each for two and three columns."""
    home = tmp_path_factory.mktemp("infer")
    X, y = data("breast cancer")
    frame = pd.DataFrame(X, columns=["radius", "texture", "smoothness", "worst radius", "worst texture"])
    frame.insert(0, "benign", np.where(y > 0, "yes", "no"))
    frame.to_csv(home / "t.csv", index=False)
    convert = ["convert", home / "t.csv", "--label", "benign", "--parties", 2, "--standardize"]
    assert run(*convert, "-o", home / "t.parts") == 0
    train = ["train", home / "t.parts", "--lambda", 1e-13, "--gap", 1e-12, "-q", "-o", home / "run"]
    assert run(*train) == 0
    return home


def test_a_run_in_raw_units(trained, capsys):
    X, y = data("breast cancer")
    peer = sm.Logit(y, sm.add_constant(X, prepend=False)).fit(disp=0, method="newton", tol=1e-13)
    document = told(capsys, "infer", trained / "run")
    rows = document["weights"]
    assert [row["feature"] for row in rows][-2:] == ["worst texture", "intercept"]
    np.testing.assert_allclose([row["weight"] for row in rows], peer.params, rtol=1e-5)
    np.testing.assert_allclose([row["standard_error"] for row in rows], peer.bse, rtol=1e-5)
    ratios, weights = zip(*((row["ratio"], row["weight"]) for row in rows))
    np.testing.assert_allclose(ratios, np.exp(weights), rtol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
def test_several_classes_agree_with_statsmodels(intercept):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((250, 4)) * np.array([1.0, 10.0, 0.1, 1.0])
    scores = X @ (rng.standard_normal((4, 3)) / np.array([[1.0], [10.0], [0.1], [1.0]])) + [0.0, 0.5, -0.5]
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    labels = np.array(["ash", "elm", "oak"])[y]
    model = ADMMSharingClassifier(parties=[1, 3], fit_intercept=intercept, **FREE)
    model.fit(X, labels)
    design = sm.add_constant(X, prepend=False) if intercept else X
    peer = sm.MNLogit(y, design).fit(disp=0, method="newton", tol=1e-14)
    found = model.inference(X, labels)
    table = found.to_frame()
    assert table["party"].tolist() == ["party-1"] * 2 + ["party-2"] * 6 + [""] * 2 * intercept
    assert table["class"].tolist() == ["elm", "oak", *["elm"] * 3, *["oak"] * 3, *["elm", "oak"] * intercept]
    assert "less those of ash" in found.notes[0]
    order = [0, 5, 1, 2, 3, 6, 7, 8, 4, 9] if intercept else [0, 4, 1, 2, 3, 5, 6, 7]
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(table.weight, peer.params.T.ravel()[order], **close)
    np.testing.assert_allclose(table.standard_error, peer.bse.T.ravel()[order], **close)
    np.testing.assert_allclose(table.p_value, peer.pvalues.T.ravel()[order], rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(
        found.covariance, peer.cov_params()[np.ix_(order, order)], rtol=1e-5, atol=1e-10
    )
    figures = [found.fit.log_likelihood, found.fit.aic, found.fit.bic]
    np.testing.assert_allclose(figures, [peer.llf, peer.aic, peer.bic], rtol=1e-9)
    if intercept:
        assert found.fit.pseudo_r2 == pytest.approx(peer.prsquared, rel=1e-8)
        assert found.tests[0].statistic == pytest.approx(peer.llr, rel=1e-8)
    assert found.tests[0].df == (8,)
    # Robust: the sum of squared gradients of all contrasts.
    robust = model.inference(X, labels, covariance="HC0").covariance
    scored = peer.model.score_obs(peer.params.ravel(order="F"))
    inverse = peer.cov_params()
    expected = (inverse @ (scored.T @ scored) @ inverse)[np.ix_(order, order)]
    np.testing.assert_allclose(robust, expected, rtol=1e-5, atol=1e-9)
