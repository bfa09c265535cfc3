"""Metrics equal scikit-learn's, weights included, and survive the awkward inputs."""

import numpy as np
import pytest
from fastadmm.errors import InputError
from fastadmm.problem.losses import get_loss
from fastadmm.solver.metrics import evaluation_metrics, quick_of
from scipy.special import expit

from sklearn import metrics as sk

LOGISTIC, SQUARED = get_loss("logistic"), get_loss("squared")


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
    full = evaluation_metrics(LOGISTIC, y, z, w)
    quick = quick_of(LOGISTIC, y, z, w)
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
    full = evaluation_metrics(SQUARED, y, z, w)
    quick = quick_of(SQUARED, y, z, w)
    assert full["rmse"] == pytest.approx(sk.root_mean_squared_error(y, z, sample_weight=w), rel=1e-12)
    assert full["mae"] == pytest.approx(sk.mean_absolute_error(y, z, sample_weight=w), rel=1e-12)
    assert full["r2"] == pytest.approx(sk.r2_score(y, z, sample_weight=w), rel=1e-12)
    assert quick == pytest.approx({k: full[k] for k in ("rmse", "r2")}, rel=1e-12)


def test_whole_number_weights_mean_repetition():
    y, z, _ = _case(weighted=False, ties=True, n=200)
    w = np.random.default_rng(1).integers(0, 4, size=200)
    repeated = np.repeat(np.arange(200), w)
    a = evaluation_metrics(LOGISTIC, y, z, w)
    b = evaluation_metrics(LOGISTIC, y[repeated], z[repeated])
    assert a["calibration"]["expected_calibration_error"] == pytest.approx(
        b["calibration"]["expected_calibration_error"], rel=1e-12
    )
    for left, right in zip(a["calibration"]["bins"], b["calibration"]["bins"], strict=True):
        assert left["observed_rate"] == pytest.approx(right["observed_rate"])
        assert left["weight"] == pytest.approx(right["weight"])


def test_classes_weights_and_order_of_calibration():
    y, z, _ = _case(weighted=False, ties=False)
    p = expit(z)
    calibration = evaluation_metrics(LOGISTIC, y, z)["calibration"]
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
    calibration = evaluation_metrics(LOGISTIC, y, np.zeros(100))["calibration"]
    assert calibration == {
        "bins": [{"mean_predicted": 0.5, "observed_rate": 0.5, "count": 100, "weight": 100.0}],
        "expected_calibration_error": 0.0,
    }


def test_undefined_large_and_unknown():
    quick = quick_of(LOGISTIC, [1, 0], [-1000.0, 900.0])
    assert quick == {"log_loss": 950.0, "accuracy": 0.0, "auc": 0.0}
    # Here 1 - p rounds to 0, and the log loss must not.
    assert quick_of(LOGISTIC, [1, 0], [50.0, -50.0])["log_loss"] == pytest.approx(np.exp(-50))
    # Undefined metrics are none.
    assert quick_of(LOGISTIC, [1, 1], [0.5, -1.0])["auc"] is None
    assert evaluation_metrics(LOGISTIC, [1, 1], [0.5, 0.1])["auc"] is None
    assert evaluation_metrics(LOGISTIC, [1, 0], [0.5, 0.1], [1.0, 0.0])["auc"] is None
    assert evaluation_metrics(SQUARED, [1.0], [2.0]) == {"rmse": 1.0, "mae": 1.0, "r2": None}
    assert quick_of(SQUARED, [1.0], [2.0]) == {"rmse": 1.0, "r2": None}
    for bad in (np.nan, np.inf):
        assert quick_of(SQUARED, [1.0, 2.0], [bad, 1.0]) == {"rmse": None, "r2": None}
    assert quick_of(SQUARED, [1.0, 2.0], [1e200, 1.0]) == {"rmse": None, "r2": None}
    # No row counts, soft targets.
    assert quick_of(LOGISTIC, [0.0, 1.0], [0.5, 0.5], [0.0, 0.0])["auc"] is None
    with pytest.raises(InputError, match="zero for every row"):
        evaluation_metrics(LOGISTIC, [0.0, 1.0], [0.5, 0.5], [0.0, 0.0])
    with pytest.raises(InputError, match="classes must be given as 0 and 1"):
        quick_of(LOGISTIC, [0.5], [1.0])


@pytest.mark.parametrize("pred", [[2.0, 2.0], [2.0, 3.0]])
def test_constant_target_follows_scikit_learn(pred):
    expected = sk.r2_score([2.0, 2.0], pred)
    assert evaluation_metrics(SQUARED, [2.0, 2.0], pred)["r2"] == expected
    assert quick_of(SQUARED, [2.0, 2.0], pred)["r2"] == expected
