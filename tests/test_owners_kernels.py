"""Gradient kernels and noise of owners of rows, against slow twins and exact laws."""

import math

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.kernels.owner_gradient import discrete_laplace, owner_csr_gradient, owner_dense_gradient
from fastadmm.owners.mechanism import (
    LOSSES,
    discrete_laplace_integers,
    lattice_unit,
    make_answers,
    make_bound,
)
from fastadmm.owners.setup import Owner, Rows
from fastadmm.privacy.accounting import noise_multiplier
from fastadmm.settings.owners import OwnerSettings
from scipy import sparse, stats


def naive_slope(loss, z, y):
    if loss == "squared":
        return z - y
    if loss == "hinge":
        return -y if y * z < 1 else 0.0
    return -y / (1.0 + math.exp(y * z))


def naive_gradient(X, y, theta, loss, intercept, euclidean, row_limit, target_limit, limit):
    """Sum of bounded gradients, one record after the other; also the largest norm."""
    total, largest = np.zeros(len(theta)), 0.0
    order = 2 if euclidean else 1
    for row, target in zip(X, y, strict=True):
        row = np.asarray(row, dtype=float)
        row = row * min(1.0, row_limit / max(np.linalg.norm(row, order), 1e-300))
        u = np.append(row, 1.0) if intercept else row
        if loss == "squared":
            target = min(max(target, -target_limit), target_limit)
        gradient = naive_slope(loss, float(u @ theta), target) * u
        size = np.linalg.norm(gradient, order)
        if size > limit:
            gradient = gradient * (limit / size)
        largest = max(largest, float(np.linalg.norm(gradient, order)))
        total += gradient
    return total, largest


def words_of(seed):
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, size=count, dtype=np.uint64)


def problem(seed, n=60, d=7, loss="squared"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.choice([0.0, 0.3, 4.0], size=(n, d))
    y = rng.normal(size=n) * 3 if loss == "squared" else np.sign(rng.normal(size=n))
    return X, y, rng


@pytest.mark.representatives(12)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("euclidean", "intercept"), [(False, 1), (True, 0), (True, 1)])
@pytest.mark.parametrize(("row_limit", "limit"), [(math.inf, math.inf), (math.inf, 0.7), (1.5, 2.0)])
def test_gradient_kernels_are_their_twin(loss, euclidean, intercept, row_limit, limit):
    X, y, rng = problem(1, loss=loss)
    theta = rng.normal(size=X.shape[1] + intercept)
    expected, _ = naive_gradient(X, y, theta, loss, intercept, euclidean, row_limit, 2.0, limit)
    limits = row_limit, 2.0 if loss == "squared" else math.inf, limit
    tail = LOSSES[loss].code, intercept, euclidean, *limits
    S, dense = sparse.csr_array(X), owner_dense_gradient
    csr = S.indptr.astype(np.int64), S.indices.astype(np.uint32), S.data
    for kernel, rows in ((dense, X), (owner_csr_gradient, csr)):
        found = np.zeros(len(theta))
        kernel(rows, y, theta, (*tail, 0.0), found, 0, len(y))
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    # On the lattice the sum is exact, so that pieces in any order give the same bits.
    unit = lattice_unit(len(y), 50.0)
    whole, pieces = np.zeros(len(theta)), np.zeros(len(theta))
    dense(X, y, theta, (*tail, unit), whole, 0, len(y))
    for start in range(50, -10, -10):
        dense(X, y, theta, (*tail, unit), pieces, start, start + 10)
    assert (whole == pieces).all()
    assert (whole / unit == np.rint(whole / unit)).all()
    assert whole == pytest.approx(expected, abs=len(y) * unit)


def test_published_answers_have_the_stated_law():
    X = np.array([[1e300, 1e300], [1.0, 2.0]])
    out = np.zeros(2)
    with np.errstate(over="ignore", invalid="ignore"):  # said aloud only without the compiler
        asked = 0, 0, False, math.inf, math.inf, 1.0, 0.0
        owner_dense_gradient(X, np.zeros(2), np.array([1e300, 0.0]), asked, out, 0, 2)
    assert np.isfinite(out).all()
    # Kolmogorov-Smirnov on what an owner really publishes, with the operating system's noise.
    X, y, _ = problem(4, n=500, d=40)
    n, rounds, epsilon = 500, 20, 0.5
    for mechanism, law in (("laplace", "laplace"), ("gaussian", "norm")):
        noise = {"mechanism": mechanism, "delta": 1e-6, "rounds": rounds}
        settings, loss = OwnerSettings("", bound="clip:1.5", intercept=False, **noise), LOSSES["squared"]
        owner = Owner("a", Rows(X, y), settings, loss, make_bound(settings, loss, 40), epsilon)
        theta = np.full(40, 0.1)
        exact = owner.total(theta) / n
        noise = np.concatenate([owner.answer(theta) - exact for _ in range(100)])
        if mechanism == "laplace":
            scale = 2 * 1.5 * rounds / (n * epsilon)  # the paper's b
            # what one answer costs: two sums 2 Xi apart, and half a step of rounding in each of the numbers
            moved = (2 * 1.5 + 40 * lattice_unit(n, 1.5)) / owner.answers.step + 40
            assert moved / owner.answers.scale * rounds <= epsilon
            assert math.sqrt(owner.answers.variance / 2) / n == pytest.approx(scale, rel=1e-6)
        else:
            scale = 2 * 1.5 * math.sqrt(rounds) * noise_multiplier(epsilon, 1e-6) / n
            assert math.sqrt(owner.answers.variance) / n == pytest.approx(scale, rel=1e-6)
        assert stats.kstest(noise / scale, law).pvalue > 1e-4
        steps = (noise + np.tile(exact, 100)) * n / owner.answers.step
        assert np.abs(steps - np.rint(steps)).max() < 1e-3


@pytest.mark.parametrize("scale", [1, 2, 3, 7])
def test_discrete_laplace_has_the_exact_probabilities(scale):
    sample = discrete_laplace_integers(scale, 200_000, words_of(scale))
    q = math.exp(-1.0 / scale)
    reach = 6 * scale
    support = np.arange(-reach, reach + 1)
    expected = (1 - q) / (1 + q) * q ** np.abs(support)
    counts = np.array([(sample == k).sum() for k in support], dtype=float)
    rest = len(sample) - counts.sum()
    probability = np.append(expected, 1 - expected.sum())
    assert stats.chisquare(np.append(counts, rest), probability * len(sample)).pvalue > 1e-4


def test_discrete_laplace_far_above_and_at_the_worst_lattice_point():
    scale = 2**33 + 12345
    sample = discrete_laplace_integers(scale, 100_000, words_of(0)) / scale
    assert stats.kstest(sample, "laplace").pvalue > 1e-3
    # low-order bits are those of the law: uniform
    odd = discrete_laplace_integers(scale, 100_000, words_of(1)) & 1
    assert abs(odd.mean() - 0.5) < 0.01
    # Laplace is pure at the worst lattice point.
    settings = OwnerSettings("", bound="clip:1", intercept=False, rounds=7)
    answers = make_answers(settings, make_bound(settings, LOSSES["hinge"], 3), (1000, 3), 0.3, None)
    # two sums 2 Xi apart, plus rounding of records and of the sum
    steps = math.floor((2.0 + 3 * lattice_unit(1000, 1.0)) / answers.step) + 3
    assert 7 * steps / answers.scale <= 0.3 * (1 + 1e-9)
    # Kernel stops before words run out.
    out = np.zeros(1000, dtype=np.int64)
    done = discrete_laplace(words_of(5)(5000), 100, out, 0)
    assert 0 < done < 1000
    assert discrete_laplace(words_of(5)(100), 100, out, 0) == 0


@pytest.mark.representatives(4)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("text", ["clip:0.8", "features:1.3"])
@pytest.mark.parametrize("euclidean", [False, True])
def test_no_neighbour_moves_an_answer_by_more_than_the_bound(loss, text, euclidean):
    """Adversarial search: hill climbing over the replaced record, its target and the query."""
    rng = np.random.default_rng(7)
    d, theta_max, target_bound = 4, 2.0, 1.7
    limits = {"theta_max": theta_max, "target_bound": target_bound}
    settings = OwnerSettings("", bound=text, mechanism="gaussian" if euclidean else "laplace", **limits)
    bound = make_bound(settings, LOSSES[loss], d)
    order = 2 if euclidean else 1
    X, y, _ = problem(8, n=5, d=d, loss=loss)

    def owner(X, y):
        return Owner("a", Rows(X, y), settings, LOSSES[loss], bound, math.inf)

    def moved(point):
        first, second, theta = point[:d], point[d : 2 * d], point[2 * d : 3 * d + 1]
        theta = np.clip(theta, -theta_max, theta_max)
        ends = point[-2:] if loss == "squared" else np.sign(point[-2:] + 1e-300)
        A, B, a, b = X.copy(), X.copy(), y.copy(), y.copy()
        A[2], B[2], a[2], b[2] = first, second, ends[0], ends[1]
        return float(np.linalg.norm(owner(A, a).total(theta) - owner(B, b).total(theta), order))

    best = 0.0
    for _ in range(6):
        point = rng.normal(size=3 * d + 3) * 3
        value, size = moved(point), 3.0
        for _ in range(120):
            other = point + size * rng.normal(size=len(point)) * (rng.random(len(point)) < 0.4)
            found = moved(other)
            if found > value:
                point, value = other, found
            else:
                size = max(size * 0.97, 1e-2)
        best = max(best, value)
    unit = lattice_unit(5, bound.xi)
    assert best <= 2 * bound.xi + 1e-9 + (d + 1) * unit
    assert best >= 0.8 * 2 * bound.xi / (math.sqrt(d + 1) if text[0] == "f" else 1.0)


def test_answers_do_not_depend_on_threads_or_reading(tmp_path):
    from fastadmm.store.owner_file import OwnerWriter, open_owner

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30_000, 6)), np.sign(rng.normal(size=30_000))
    for kind in ("dense", "csr"):
        path = tmp_path / f"{kind}.h5"
        with OwnerWriter(
            path, name="a", kind=kind, task="classification", feature_names=list("abcdef"),
            classes=("no", "yes"),
        ) as writer:  # fmt: skip
            writer.append(X if kind == "dense" else sparse.csr_array(X), y)
        settings, loss = OwnerSettings("", bound="clip:1", rounds=2), LOSSES["logistic"]
        bound = make_bound(settings, loss, 6)
        totals = [
            Owner(
                "a", Rows(open_owner(path), in_memory=in_memory), settings, loss, bound, 1.0,
                engine=Engine(threads),
            ).total(np.linspace(-1, 1, 7))
            for threads, in_memory in ((1, True), (2, True), (2, False))
        ]  # fmt: skip
        assert (totals[0] == totals[1]).all()
        assert (totals[0] == totals[2]).all()
        expected, _ = naive_gradient(
            X, y, np.linspace(-1, 1, 7), "logistic", 1, False, math.inf, math.inf, 1.0
        )
        assert totals[0] == pytest.approx(expected, rel=1e-9)
