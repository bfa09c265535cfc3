"""What a Python user meets beside the fit: tables by name, what is printed, types, hints."""

import inspect
import pickle
import re
import subprocess
import sys
import textwrap

import fastadmm
import numpy as np
import pytest
from fastadmm import JointClassifier, JointRegressor, JointRegressorCV
from fastadmm.errors import ConfigError, InputError
from fastadmm.privacy.paper_noise import inverse_root, noisy_weights
from fastadmm.settings import privacy as settings_privacy
from fastadmm.settings.privacy import MessagePrivacy
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import scale

from run_tools import refuses


def test_tables_by_name():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = X.add_prefix("f ")
    tables = {"bank": X.iloc[:, :4], "shop": X.iloc[:, 4:]}
    model = JointRegressor(alpha=1e-12, tol=1e-12).fit(tables, y)
    apart = JointRegressor(alpha=1e-12, tol=1e-12).fit(list(tables.values()), y)
    np.testing.assert_array_equal(model.coef_, apart.coef_)
    assert (model.party_names_, apart.party_names_) == (["bank", "shop"], ["party-1", "party-2"])
    turned = dict(reversed(tables.items()))
    for given in (tables, turned):  # names say whose a table is, wherever it stands
        np.testing.assert_array_equal(model.predict(given), apart.predict(list(tables.values())))
        assert model.score(given, y) == apart.score(list(tables.values()), y)
    named = {"bank": [*range(4)], "shop": [*range(4, 10)]}
    for other, given in (
        (model, turned),
        (model, X),
        (JointRegressor(named, 1e-12, tol=1e-12).fit(X, y), tables),
    ):
        found = other.inference(given, y).to_frame()
        assert found["party"].tolist() == ["bank"] * 4 + ["shop"] * 6 + [""]
        np.testing.assert_allclose(found["standard_error"], apart.inference(X, y).columns["standard_error"])
        assert other.coefficients(given).columns["party"] == found["party"].tolist()
    for wrong, message in (
        ({"bank": X}, "tables of parties ['bank'], but expected one of each of ['bank', 'shop']"),
        (tables | {"x": X}, "['bank', 'shop', 'x'], but expected"),
        ({1: X}, "X: the key 1 is not the name of a party"),
        ({"bank": X["f age"], "shop": X}, "X['bank']: not an array"),
        (tables | {"shop": X}, "X: blocks of [4, 10] columns, but"),
    ):
        for call in (model.predict, lambda X: model.score(X, y), lambda X: model.inference(X, y)):
            refuses(ValueError, re.escape(message), call, wrong)
    with pytest.raises(InputError, match=r"row 0 has the index 0 in X\['bank'\], but 441 in X\['shop'\]"):
        model.fit({"bank": X.iloc[:, :4], "shop": X.iloc[::-1, 4:]}, y)
    both = model.fit({"bank": X, "shop": X.iloc[:, :4] ** 2}, y)
    assert list(both.feature_names_in_[3:6]) == ["bank.f bp", "f s1", "f s2"]  # two tables may have one name
    with pytest.raises(ConfigError, match="parties: must be None where X is a list or dict"):
        JointRegressor(2).fit(tables, y)


def test_a_fitted_model_says_what_is_proved_of_it():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = JointRegressor(alpha=1e-2)
    assert str(model) == repr(model) == "JointRegressor(alpha=0.01)"
    model.fit({"bank": X.iloc[:, :4], "shop": X.iloc[:, 4:]}, y)
    assert repr(model) == "JointRegressor(alpha=0.01)"
    said = rf"JointRegressor\(alpha=0.01\): certified in {model.n_rounds_} rounds?, gap \de-\d+, "
    assert re.fullmatch(said + "bank 4, shop 6, 442 rows", str(model))
    with pytest.warns(ConvergenceWarning):
        model.set_params(scheme="sharing", max_rounds=1).fit([X, X.add_prefix("b") ** 2], y)
    said = r": not certified, max rounds after 1 round, gap \de-\d+, party-1 10, party-2 10, 442 rows$"
    assert re.search(said, str(model))
    free = JointRegressor(regularizer="none")
    with pytest.warns(ConvergenceWarning):
        free.fit(X, y)
    assert "): certified among bounded models in 1 round, party-1 10, 442 rows" in str(free)
    chosen = JointRegressorCV(alphas=2, cv=2).fit(X, y)
    assert ": certified in " in str(chosen)


def test_inference_and_signatures():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = X.rename(columns={"s1": "<b>[red]s1"})
    found = JointRegressor({"bank": [*range(4)], "shop": [*range(4, 10)]}).fit(X, y).inference(X, y)
    lines = str(found).split("\n")
    assert repr(found) == found.summary() == str(found)
    assert lines[0].strip() == "weights with standard errors and 95 % intervals"
    assert lines[2].split() == ["feature", "weight", "error", "t", "p", "low", "high"]
    assert [line.strip() for line in lines if line.strip() in ("bank", "shop")] == ["bank", "shop"]
    assert [line.split()[0] for line in lines if "intercept" in line] == ["intercept"]
    assert "note: the penalty shrinks the weights" in str(found)
    assert "<pre>" in found._repr_html_()
    assert "&lt;b&gt;[red]s1" in found._repr_html_()
    said = {name: str(inspect.signature(getattr(fastadmm, name))) for name in fastadmm.__all__}
    assert not [name for name, text in said.items() if "Annotated" in text or "**" in text]
    assert "epsilon: float = inf" in said["Privacy"]
    assert "total_epsilon: float | None = None" in str(inspect.signature(MessagePrivacy))
    assert not inspect.signature(MessagePrivacy).parameters.keys() & {"row_norm", "model_share"}
    names = ["mode", *settings_privacy._Settings.__annotations__]  # what checkers of types read
    assert sorted(names) == sorted(inspect.signature(fastadmm.Privacy).parameters)


@pytest.mark.repeats
def test_a_script_under_strict_types(tmp_path):
    pytest.importorskip("mypy")
    script = """
        from fastadmm import ADMMSharingRegressor, JointClassifier, JointClassifierCV, JointRegressor, Privacy
        parties = {"bank": ["age"], "shop": slice("orders", "late")}
        model = JointClassifier(parties, alpha=[1e-2, 1e-3], class_weight="balanced").fit([[1.0]], [1])
        reveal_type(model)
        reveal_type(model.duality_gap_)
        reveal_type(model.status_)
        reveal_type(model.inference([[1.0]], [1]))
        reveal_type(model.party_names_)
        reveal_type(JointClassifierCV(alphas=[0.1]).fit([[1.0]], [1]).alpha_)
        reveal_type(Privacy(mode="fusion", epsilon=1.0))
        JointRegressor(parties=2.5, alpha="x"); Privacy(epsilom=1)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "mypy", "--strict", "--ignore-missing-imports", "script.py"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    revealed = re.findall(r'Revealed type is "(?:[\w.]*\.)?(\w+(?:\[str\])?)"', told)
    expected = ["JointClassifier", "float", "Status", "Inference", "list[str]", "float", "Privacy"]
    assert revealed == expected, told
    errors = re.findall(r"script.py:(\d+): error: .*\[([\w-]+)\]", told)
    assert errors == [("12", "arg-type"), ("12", "arg-type"), ("12", "call-arg")], told


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"C": 1.0}, r"unknown parameter 'C'; did you mean 'alpha'\? It is 1 / \(N C\) for N rows"),
        ({"max_iter": 9}, "unknown parameter 'max_iter'; did you mean 'max_rounds'"),
        ({"solver": "saga"}, "unknown parameter 'solver'; did you mean 'scheme'"),
        ({"n_jobs": 1}, "did you mean 'n_threads'"),
        ({"tolerance": 1e-3}, "did you mean 'tol'"),
        ({"penalty": "l1"}, "penalty: 'l1' is not a number, the r of ADMM; did you mean regularizer='l1'"),
        ({"penalty": "elasticnet"}, "did you mean regularizer='elastic_net'"),
    ],
)
def test_parameters_of_other_libraries(given, meant):
    X, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ValueError, match=meant) as told:
        JointClassifier(**given).fit(X, y)
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match=meant):
        JointClassifier().set_params(**given).fit(X, y)
    refuses(TypeError, "unexpected keyword argument 'zzzz'", JointClassifier, zzzz=1)


@pytest.mark.parametrize("more", [{"loss": "sigmoid"}, {"scheme": "sharing"}, {"regularizer": "l1"}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warm_start_goes_on_where_rounds_ended(more):
    X, y = load_breast_cancer(return_X_y=True)
    X, given = scale(X), {"parties": 3, "alpha": 1e-4, "n_threads": 1, **more}
    whole = JointClassifier(**given, max_rounds=5).fit(X, y)
    parts = pickle.loads(pickle.dumps(JointClassifier(**given, max_rounds=2, warm_start=True).fit(X, y)))
    parts.set_params(max_rounds=3).fit(X, y)
    assert [record.round for record in parts.history_] == [3, 4, 5]
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    parts.set_params(max_rounds=1).fit(X[::-1], y[::-1])  # other data: only their model is begun with
    assert parts.history_[0].round == 1


def test_pages_and_metrics(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, y = (X - X.mean()) / X.std(), y.map({0: "yes", 1: "no"})
    tables = {"a": X.iloc[:400, :20], "b": X.iloc[:400, 20:]}
    others = {"b": X.iloc[400:, 20:], "a": X.iloc[400:, :20]}
    model = JointClassifier(alpha=1e-2).fit(tables, y[:400].to_numpy(), eval_set=(others, y[400:]))
    plain = JointClassifier(alpha=1e-2).fit(tables, y[:400].to_numpy())
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert all(record.test.keys() >= {"accuracy", "log_loss"} for record in model.history_)
    assert model.history_[-1].test["accuracy"] == pytest.approx(model.score(others, y[400:]))
    own = JointRegressor([4, 6], alpha=[1e-2, 1e-3])
    X, y = load_diabetes(return_X_y=True)
    own.fit(X, y, eval_set=(X[:50], y[:50]))
    expected = np.sqrt(np.mean((own.predict(X[:50]) - y[:50]) ** 2))
    assert own.history_[-1].test["rmse"] == pytest.approx(expected)
    for wrong, message in (
        ((X[:5, :9], y[:5]), "10 features"),
        ((X[:5], y[:4]), "eval_set: 5 rows of X, but 4"),
    ):
        refuses(ValueError, message, own.fit, X, y, eval_set=wrong)
    with pytest.raises(InputError, match="eval_set: y has classes other than"):
        JointClassifier().fit(X, y > 100, eval_set=(X, y))
    # The page of an estimator.
    X, y = load_diabetes(return_X_y=True)
    model = JointRegressor({"bank": [*range(4)], "<shop>": [*range(4, 10)]}, alpha=1e-2)
    page = fastadmm.report(model.fit(X, y, eval_set=(X, y)), tmp_path / "a.html").read_text(encoding="utf-8")
    for told in ("JointRegressor", "Certified", "bank", "&lt;shop&gt;", "442", "Test metrics"):
        assert told in page
    model.set_params(alpha=[1e-2, 1e-3]).fit(X, y)
    assert "0.001" in fastadmm.report(model, tmp_path / "b.html").read_text(encoding="utf-8")
    refuses(ConfigError, "a report is an HTML page", fastadmm.report, model, tmp_path / "b.txt")
    with pytest.raises(NotFittedError):
        fastadmm.report(JointRegressor(), tmp_path / "c.html")


def test_noise_of_the_paper():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(30, 3)) @ [[1.0, 0, 0, 1], [0, 2, 0, 0], [0, 0, 3, 3]]
    shape, zero = inverse_root(D), np.zeros(4)
    np.testing.assert_allclose(shape @ shape.T, np.linalg.pinv(D.T @ D), atol=1e-12)
    drawn = np.array([noisy_weights(zero, 0.5, rng, shape) for _ in range(4000)])
    np.testing.assert_allclose(np.cov(drawn.T), 0.25 * shape @ shape.T, atol=2e-3)
    assert np.std(noisy_weights(np.zeros(10000), 0.5, rng)) == pytest.approx(0.5, rel=0.05)
