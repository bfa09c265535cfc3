"""Curves, separation, lift, intervals and drift, against scikit-learn, naive twins and simulation."""

import json

import numpy as np
import pytest
from fastadmm.errors import ConfigError
from fastadmm.judging.judgement import auc_interval, event_in, judgement
from fastadmm.judging.looks import rank_rows, say
from fastadmm.problem.losses import get_loss
from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.runs.scorecard import bin_edges, bin_weights, score_drift, stability_index

from run_tools import refused, refuses, run, write_blocks
from sklearn import metrics


def sample(n=300, seed=0):
    """Classes, scores with many ties, and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    score = np.round(1.0 / (1.0 + np.exp(-(rng.normal(size=n) + 1.2 * y))), 2)
    return y, score, rng.integers(0, 4, n) * 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_those_of_scikit_learn(weighted):
    y, score, weight = sample()
    weight = weight if weighted else np.ones(len(y))
    found, close = rank_rows(y, score, weight), {"rtol": 1e-13, "atol": 1e-15}
    roc = metrics.roc_curve(y, score, sample_weight=weight, drop_intermediate=False)
    for ours, theirs in zip((*found.rates, found.scores), roc, strict=True):
        np.testing.assert_allclose(ours, theirs[1:], **close)
    precision, recall, threshold = metrics.precision_recall_curve(y, score, sample_weight=weight)
    curve = found.hits / found.total, found.rates[1], found.scores
    for ours, theirs in zip(curve, (precision[:-1], recall[:-1], threshold), strict=True):
        np.testing.assert_allclose(ours[::-1], theirs, **close)
    average = metrics.average_precision_score(y, score, sample_weight=weight)
    assert found.average_precision() == pytest.approx(average, rel=1e-13)
    assert found.auc() == pytest.approx(metrics.roc_auc_score(y, score, sample_weight=weight), rel=1e-13)
    assert found.kolmogorov_smirnov()[0] == pytest.approx(np.max(roc[1] - roc[0]), rel=1e-13)
    document = judgement(get_loss("logistic"), y, np.log(score / (1.0 - score)), weight, 0.375)
    matrix = metrics.confusion_matrix(y, score > 0.375, sample_weight=weight)
    np.testing.assert_array_equal(document["confusion"]["matrix"], matrix)
    assert document["confusion"]["f1"] == pytest.approx(
        metrics.f1_score(y, score > 0.375, sample_weight=weight)
    )


def test_the_order_of_rows_ends_of_curves_and_scales_do_not_matter():
    y, score, weight = sample()
    whole = np.round(2.0 * weight).astype(int)
    at = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), whole))
    one, other = rank_rows(y, score, 2.0 * weight), rank_rows(y[at], score[at], np.ones(len(at)))
    for name in ("scores", "hits", "false_alarms"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-13)
    for a, b in zip(one.groups(), other.groups(), strict=True):
        assert a == pytest.approx(b, rel=1e-12)
    # Thinned curves keep their ends.
    y, score, weight = sample(2000)
    whole = rank_rows(y, score + np.arange(2000) * 1e-6, weight)
    thin = whole.thinned(50)
    assert len(thin.scores) <= 51
    assert (thin.scores[0], thin.scores[-1]) == (whole.scores[0], whole.scores[-1])
    assert np.isin(thin.scores, whole.scores).all()
    assert thin.hits[-1] == whole.hits[-1]
    # Scale of weights does not matter to drift.
    rng = np.random.default_rng(5)
    old, new = rng.normal(size=500), rng.normal(1.0, 1.0, 500)
    weight = rng.uniform(0.5, 1.5, 500)
    found, tiny = (score_drift(old, new, (w, w))["psi"] for w in (weight, weight / 1e6))
    assert found > 0.5
    assert tiny == pytest.approx(found, rel=1e-9)


def test_groups():
    # 20 rows, no ties: tenths are pairs of rows
    y = np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=float)
    score = np.linspace(1.0, 0.0, 20)
    found = rank_rows(y, score, np.ones(20)).groups()
    assert [group["rate"] for group in found] == pytest.approx([1, 0.5, 0.5, 0, 0, 0.5, 0, 0, 0, 0])
    assert [group["gain"] for group in found][:3] == pytest.approx([0.4, 0.6, 0.8])
    assert found[0]["lift"] == pytest.approx(4.0)
    assert found[1]["cumulative_lift"] == pytest.approx(3.0)
    assert found[0]["lowest_score"] == score[1]
    assert found[-1]["gain"] == found[-1]["cumulative_lift"] == pytest.approx(1.0)
    # one score: every group has the base rate
    tied = rank_rows(y, np.zeros(20), np.ones(20)).groups()
    assert [group["lift"] for group in tied] == pytest.approx([1.0] * 10)


def delong(y, score):
    """Variance of the AUC by its definition, over all pairs."""
    one, zero = score[y == 1.0], score[y == 0.0]
    pairs = (one[:, None] > zero) + 0.5 * (one[:, None] == zero)
    return float(
        np.var(pairs.mean(axis=1), ddof=1) / len(one) + np.var(pairs.mean(axis=0), ddof=1) / len(zero)
    )


@pytest.mark.repeats
def test_the_interval_of_an_auc():
    y, score, _ = sample()
    found = auc_interval(y, score, np.ones(len(y)))
    assert found is not None
    low, high, error = found
    assert error == pytest.approx(np.sqrt(delong(y, score)), rel=1e-12)
    area = metrics.roc_auc_score(y, score)
    logit = np.log([low / (1 - low), area / (1 - area), high / (1 - high)])
    assert logit[1] - logit[0] == pytest.approx(logit[2] - logit[1])
    assert auc_interval(y, score, np.full(len(y), 7.0)) == pytest.approx(found, rel=1e-12)
    # a bootstrap over rows sees the same spread, also with weights
    rng, weight = np.random.default_rng(2), np.random.default_rng(3).uniform(0.2, 3.0, len(y))
    areas = []
    for _ in range(400):
        at = rng.integers(0, len(y), len(y))
        areas.append(metrics.roc_auc_score(y[at], score[at], sample_weight=weight[at]))
    weighted = auc_interval(y, score, weight)
    assert weighted[2] == pytest.approx(np.std(areas), rel=0.15)
    assert auc_interval(y, y, np.ones(len(y))) is None  # no error to learn from
    assert auc_interval(y, score, (np.cumsum(y) <= 1.0) * 1.0) is None  # one row of a class


def test_bins_and_stability():
    rng = np.random.default_rng(4)
    old, new = rng.normal(size=1000), rng.normal(0.5, 1.0, 800)
    edges = bin_edges(old)
    before, after = bin_weights(old, edges), bin_weights(new, edges)
    assert before.tolist() == [0.0, *[100.0] * 10, 0.0]  # the ends are open, for rows outside
    inside = [(new > low) & (new <= high) for low, high in zip([-np.inf, *edges], [*edges, np.inf])]
    assert after.tolist() == [float(own.sum()) for own in inside]
    p, q = np.maximum(before, 0.5), np.maximum(after, 0.5)
    p, q = p / p.sum(), q / q.sum()
    assert stability_index(before, after) == pytest.approx(float(((p - q) * np.log(p / q)).sum()), rel=1e-12)
    assert stability_index(before, before * 3.0) == pytest.approx(0.0, abs=1e-15)
    assert np.isfinite(stability_index(np.array([5.0, 0.0]), np.array([0.0, 5.0])))
    # few values have a bin each, and what is between them; weights are repeated rows
    few = np.array([0.0, 1.0, 1.0, 5.0])
    values = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 5.0, 6.0])
    assert np.searchsorted(bin_edges(few), values).tolist() == list(range(7))
    weight = rng.integers(0, 3, 1000)
    np.testing.assert_array_equal(bin_edges(old, weight.astype(float)), bin_edges(np.repeat(old, weight)))


def test_what_cannot_be_judged_is_said():
    loss, y, z = get_loss("logistic"), np.ones(6), np.linspace(-1.0, 1.0, 6)
    document = judgement(loss, y, z, None)
    assert document["looks"] == [say("one-class", label="1")]
    assert "ranking" not in document
    document = judgement(loss, np.r_[y, 0.0], np.zeros(7), None)
    assert "same score" in document["notes"][0]
    assert document["ranking"]["ks"] == 0.0
    for threshold, said in ((1.5, "no probability"), (-0.1, "no probability")):
        refuses(ConfigError, said, judgement, loss, y, z, None, threshold)
    assert judgement(get_loss("squared"), y, z, None) == {}
    with pytest.raises(ConfigError, match="two classes"):
        judgement(get_loss("squared"), y, z, None, 0.5)
    hinge = judgement(get_loss("hinge"), np.r_[y, 0.0], np.r_[z, -3.0], None)
    assert hinge["confusion"]["threshold"] == 0.0
    assert event_in({"confusion": {"classes": ["a", "b"], "matrix": [[0.0, 0.0]] * 2}}) == ("b", 0.0)
    several = judgement(
        get_loss("multinomial"), np.array([0.0, 2.0]), np.eye(3)[:2], None, None, ("a", "b", "c")
    )
    assert several["confusion"]["matrix"] == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_evaluate(tmp_path, capsys):
    rng = np.random.default_rng(5)
    blocks = [rng.normal(size=(200, 2)), rng.normal(size=(200, 1))]
    y = (blocks[0][:, 0] + blocks[1][:, 0] + rng.normal(size=200) > 0.0).astype(float)
    weight = rng.uniform(0.5, 2.0, 200)
    write_blocks(tmp_path / "a.parts", blocks, y, sample_weight=weight)
    write_blocks(tmp_path / "b.parts", [blocks[0] + 1.0, blocks[1]], y)
    assert run("train", tmp_path / "a.parts", "-q", "-o", tmp_path / "run") == 0
    given = [tmp_path / "run", tmp_path / "b.parts", "--reference", tmp_path / "a.parts"]
    assert run("evaluate", *given, "--threshold", 0.3) == 0
    document = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert document["looks"] == []  # the labels of training, with other features
    assert document["drift"]["psi"] > 0.25
    assert sum(own["reference"] for own in document["drift"]["bins"]) == pytest.approx(1.0)
    assert run("report", tmp_path / "run") == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for word in ("ROC", "average precision", "Tenths of the rows", "threshold 0.3"):
        assert word in page
    for key in ("ranking", "confusion"):
        damaged = {**document, key: {**document[key], **dict.fromkeys(("curves", "matrix"))}}
        (tmp_path / "run" / "evaluation.json").write_text(json.dumps(damaged))
        assert "evaluate again" in refused(capsys, 4, "report", tmp_path / "run")
    assert "no probability" in refused(capsys, 5, "evaluate", *given, "--threshold", 2)
    assert evaluate_partition(tmp_path / "run", tmp_path / "a.parts", reference=tmp_path / "a.parts")[
        "drift"
    ]["psi"] == pytest.approx(0.0, abs=1e-12)
