"""Metrics equal scikit-learn's, weights included, and survive the awkward inputs."""

import numpy as np
import pytest
from fastadmm.errors import InputError
from fastadmm.solver.metrics import classification_metrics, quick_metrics, regression_metrics
from scipy.special import expit

from sklearn import metrics as sk


def _case(weighted, ties, n=400):
    rng = np.random.default_rng(7)
    z = rng.normal(size=n) * 2
    if ties:
        z = np.round(z)
    y = (rng.random(n) < expit(z)).astype(float)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], size=n) if weighted else None
    return y, z, weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_classification_equals_scikit_learn(weighted, ties):
    y, z, w = _case(weighted, ties)
    p = expit(z)
    expected = {
        "log_loss": sk.log_loss(y, p, sample_weight=w),
        "accuracy": sk.accuracy_score(y, p > 0.5, sample_weight=w),
        "auc": sk.roc_auc_score(y, p, sample_weight=w),
        "brier": sk.brier_score_loss(y, p, sample_weight=w),
    }
    full = classification_metrics(y, p, w)
    quick = quick_metrics("classification", y, z, w)
    assert set(full) == {*expected, "calibration"}
    assert set(quick) == {"log_loss", "accuracy", "auc"}
    for name, value in expected.items():
        assert full[name] == pytest.approx(value, rel=1e-12)
    for name, value in quick.items():
        assert value == pytest.approx(expected[name], rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_regression_equals_scikit_learn(weighted):
    y, z, w = _case(weighted, ties=False)
    y = z + y
    full = regression_metrics(y, z, w)
    quick = quick_metrics("regression", y, z, w)
    assert full["rmse"] == pytest.approx(sk.root_mean_squared_error(y, z, sample_weight=w), rel=1e-12)
    assert full["mae"] == pytest.approx(sk.mean_absolute_error(y, z, sample_weight=w), rel=1e-12)
    assert full["r2"] == pytest.approx(sk.r2_score(y, z, sample_weight=w), rel=1e-12)
    assert quick == pytest.approx({k: full[k] for k in ("rmse", "r2")}, rel=1e-12)


def test_whole_number_weights_mean_repetition():
    y, z, _ = _case(weighted=False, ties=True, n=200)
    w = np.random.default_rng(1).integers(0, 4, size=200)
    repeated = np.repeat(np.arange(200), w)
    p = expit(z)
    a = classification_metrics(y, p, w)
    b = classification_metrics(y[repeated], p[repeated])
    assert a["calibration"]["expected_calibration_error"] == pytest.approx(
        b["calibration"]["expected_calibration_error"], rel=1e-12
    )
    for left, right in zip(a["calibration"]["bins"], b["calibration"]["bins"], strict=True):
        assert left["observed_rate"] == pytest.approx(right["observed_rate"])
        assert left["weight"] == pytest.approx(right["weight"])


def test_classes_weights_and_order_of_calibration():
    y, z, _ = _case(weighted=False, ties=False)
    p = expit(z)
    calibration = classification_metrics(y, p)["calibration"]
    bins = calibration["bins"]
    assert [b["count"] for b in bins] == [40] * 10
    order = np.argsort(p)
    for k, b in enumerate(bins):
        rows = order[40 * k : 40 * (k + 1)]
        assert b["mean_predicted"] == pytest.approx(p[rows].mean())
        assert b["observed_rate"] == pytest.approx(y[rows].mean())
    error = np.mean([abs(b["mean_predicted"] - b["observed_rate"]) for b in bins])
    assert calibration["expected_calibration_error"] == pytest.approx(error)
    # A constant prediction of the base rate is calibrated even when the file is sorted by class.
    y = np.repeat([0.0, 1.0], 50)
    calibration = classification_metrics(y, np.full(100, 0.5))["calibration"]
    assert calibration == {
        "bins": [{"mean_predicted": 0.5, "observed_rate": 0.5, "count": 100, "weight": 100.0}],
        "expected_calibration_error": 0.0,
    }


def test_undefined_large_and_unknown():
    quick = quick_metrics("classification", [1, 0], [-1000.0, 900.0])
    assert quick == {"log_loss": 950.0, "accuracy": 0.0, "auc": 0.0}
    # Here 1 - p rounds to 0, and the log loss must not.
    assert quick_metrics("classification", [1, 0], [50.0, -50.0])["log_loss"] == pytest.approx(np.exp(-50))
    # Undefined metrics are none.
    assert quick_metrics("classification", [1, 1], [0.5, -1.0])["auc"] is None
    assert classification_metrics([1, 1], [0.5, 0.1])["auc"] is None
    assert classification_metrics([1, 0], [0.5, 0.1], [1.0, 0.0])["auc"] is None
    assert regression_metrics([1.0], [2.0]) == {"rmse": 1.0, "mae": 1.0, "r2": None}
    assert quick_metrics("regression", [1.0], [2.0]) == {"rmse": 1.0, "r2": None}
    for bad in (np.nan, np.inf):
        assert quick_metrics("regression", [1.0, 2.0], [bad, 1.0]) == {"rmse": None, "r2": None}
    assert quick_metrics("regression", [1.0, 2.0], [1e200, 1.0]) == {"rmse": None, "r2": None}
    # Unknown task.
    with pytest.raises(InputError, match="unknown task 'ranking'"):
        quick_metrics("ranking", [0.0], [1.0])


@pytest.mark.parametrize("pred", [[2.0, 2.0], [2.0, 3.0]])
def test_constant_target_follows_scikit_learn(pred):
    expected = sk.r2_score([2.0, 2.0], pred)
    assert regression_metrics([2.0, 2.0], pred)["r2"] == expected
    assert quick_metrics("regression", [2.0, 2.0], pred)["r2"] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "at least one row"),
        (([0, 1], [0.5]), r"p has shape \(1,\) but y \(2,\)"),
        (([0, 2], [0.5, 0.5]), r"y\[1\] is 2"),
        (([0, 1], [0.5, 1.5]), r"p\[1\] is 1.5"),
        (([0, 1], [0.5, np.nan]), r"p\[1\] is nan"),
        (([0, 1], [0.5, 0.5], [1.0, -1.0]), r"sample_weight\[1\] is -1"),
        (([0, 1], [0.5, 0.5], [0.0, 0.0]), "zero for every row"),
    ],
)
def test_wrong_input(arguments, message):
    with pytest.raises(InputError, match=message):
        classification_metrics(*arguments)
