"""The campaign of ``make prove``: its arithmetic, a share of its problems, faults planted in the prover."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import diff, mp, mpf

from prove.campaign import CLAIMS, counts, table
from prove.check import check
from prove.draws import LOSSES, draw
from prove.exact import PRECISION, Exact, Point, whole
from prove.formulas import KINKED, formula, softmax_bend, softmax_slope, softmax_value
from prove.references import Upper

PARAMETERS = {"huber": {"delta": 0.7}, "tweedie": {"power": 1.3}, "negative_binomial": {"alpha": 0.4}}


def test_numbers_and_claims_are_whole():
    values = np.array([0.1, -3e-17, 0.0, 7.5e300, 5e-324])
    ints, exponent = whole(values)
    assert [Fraction(int(m)) * Fraction(2) ** exponent for m in ints] == [Fraction(v) for v in values]
    # Every claim has a column.
    text = table(counts([]))
    assert all(claim.replace("_", " ") in text for claim in CLAIMS)
    # A point outside is moved into the set.
    for seed in range(60):
        drawn = draw(seed, small=True)
        with mp.workprec(PRECISION):
            exact = Exact(drawn)
            far = Point([[mpf(7)] * exact.d] * exact.n_classes, [mpf(1)] * exact.n_classes)
            assert exact.outside(exact.into_set(far)) == 0, drawn.text


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "multinomial"])
def test_slopes_are_those_of_the_values(loss):
    with mp.workprec(PRECISION):
        own = formula(loss, PARAMETERS.get(loss, {}))
        y = mpf(1)
        for z in (mpf("-2.37"), mpf("0.41"), mpf("3.19")):
            assert abs(diff(lambda t: own.value(t, y), z) - own.slope(z, y)) < mpf(10) ** -25
            if loss not in KINKED:
                assert abs(diff(lambda t: own.slope(t, y), z) - own.bend(z, y)) < mpf(10) ** -25


def test_slopes_and_references():
    with mp.workprec(PRECISION):
        z = [mpf("0.3"), mpf("-1.2"), mpf("2.5")]
        for c in range(3):

            def moved(t, c=c):
                return [v + t * (k == c) for k, v in enumerate(z)]

            assert (
                abs(diff(lambda t: softmax_value(moved(t), 1), 0) - softmax_slope(z, 1)[c]) < mpf(10) ** -25
            )
            for k in range(3):
                bend = diff(lambda t, k=k: softmax_slope(moved(t), 1)[k], 0)
                assert abs(bend - softmax_bend(z)[c][k]) < mpf(10) ** -25
    # The reference of least squares is the exact optimum.
    seeds = (s for s in range(10000) if LOSSES[s % len(LOSSES)] == "squared")
    drawn = (draw(s, small=True) for s in seeds)
    chosen = [d for d in drawn if d.regularizer == "l2" and d.constraint == "all" and len(d.y) < 20][:6]
    for one in chosen:
        with mp.workprec(PRECISION):
            found = Upper(Exact(one))
            found.solve(1.0)
            best = normal_equation(one)
            value = mpf(best.numerator) / best.denominator
            assert abs(found.value - value) <= mpf(10) ** -50 * value + mpf(10) ** -100, one.text


def normal_equation(drawn):
    """Least squares with a ridge, in fractions: the least F."""
    X = [[Fraction(v) for v in row] + [Fraction(drawn.fit_intercept)] for row in drawn.matrix()]
    s = [Fraction(v) for v in (np.ones(len(X)) if drawn.weight is None else drawn.weight)]
    o = [Fraction(v) for v in (np.zeros(len(X)) if drawn.offset is None else drawn.offset)]
    t = [Fraction(v) - shift for v, shift in zip(drawn.y, o)]
    total, d, lam = sum(s), len(X[0]), Fraction(drawn.lam)
    A = [[sum(w * x[j] * x[k] for w, x in zip(s, X)) / total for k in range(d)] for j in range(d)]
    g = [sum(w * x[j] * v for w, x, v in zip(s, X, t)) / total for j in range(d)]
    for j in range(d - 1):
        A[j][j] += lam
    keep = range(d if drawn.fit_intercept else d - 1)
    B = [[A[j][k] for k in keep] + [g[j]] for j in keep]
    for j in keep:
        B[j] = [v / B[j][j] for v in B[j]]
        for k in keep:
            if k != j:
                B[k] = [a - B[k][j] * b for a, b in zip(B[k], B[j])]
    x = [row[-1] for row in B] + [Fraction(0)] * (not drawn.fit_intercept)
    errors = [sum(a * b for a, b in zip(row, x)) - v for row, v in zip(X, t)]
    fit = sum(w * e * e for w, e in zip(s, errors)) / total / 2
    return fit + lam * sum(v * v for v in x[:-1]) / 2


@pytest.mark.repeats
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_false_of_some_problems():
    for seed in range(12):  # many more: make prove
        outcome = check(draw(seed, small=True))
        assert not outcome.false, [false.text for false in outcome.false]
        assert not outcome.exceptions, outcome.exceptions


#: Problems for the planted faults: every penalty, several losses and sets.
PLANTED = (3, 5, 8, 15, 20, 25, 40)


@pytest.mark.filterwarnings("ignore")
def test_planted_faults_end_without_a_false_claim():
    planted = pytest.importorskip("prove.planted")
    ends, seen = {name: set() for name in planted.FAULTS}, set()
    for seed in PLANTED:
        for share in (1.0, 0.5):
            case = planted.fitted(draw(seed, small=True), share=share)
            plain, outcome = planted.plant(case, None)
            assert not outcome.false, [false.text for false in outcome.false]
            for name, fault in planted.FAULTS.items():
                if share < 1.0 and name in planted.NEAR_THE_BEST:
                    continue
                end, outcome = planted.plant(case, fault)
                assert not outcome.false, (name, [false.text for false in outcome.false])
                ends[name].add(end == plain)
            for name, fault in planted.SEEN_BY_REFERENCES.items():
                seen |= {name} if planted.plant(case, fault)[1].false else set()
    assert seen == set(planted.SEEN_BY_REFERENCES)
    assert not {name for name, same in ends.items() if False not in same}, "without any effect"
