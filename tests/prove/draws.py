"""Generated problems of every awkward kind; the same seed is always the same problem."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from fastadmm.problem.problem import make_problem

Array = np.ndarray

CLASSES = ("logistic", "hinge", "smoothed_hinge", "squared_hinge", "multinomial", "binomial")
LOG_LINKS = ("poisson", "gamma", "tweedie", "negative_binomial")
RESIDUALS = ("squared", "huber", "quantile")
LOSSES = (*CLASSES, *LOG_LINKS, *RESIDUALS)

PENALTIES = ("l2", "l1", "elastic_net", "group_lasso", "none")
SETS = ("all", "nonnegative", "box", "ball")

#: Schemes with their directions.
SCHEMES = (
    *(("subspace", "auto"), ("subspace", "one"), ("subspace", "both"), ("proximal", "auto")),
    *(("sharing", "auto"), ("gauss-seidel", "auto")),
)
COLUMNS = (
    *("plain", "plain", "shifted", "scaled", "shifted and scaled"),
    *("copies", "constant", "sparse", "whole"),
)

#: Share of small problems with nothing awkward about them: a ridge, an intercept, some columns and rows.
_ORDINARY = 0.25


@dataclass(frozen=True)
class Fit:
    """How a problem is fitted: scheme, directions and the gap that is asked for."""

    scheme: str
    directions: str
    gap: float


@dataclass(frozen=True)
class Draw:
    """One problem as a user would state it, and the fits that are tried on it."""

    seed: int
    blocks: list[Any]
    y: Array
    loss: str
    loss_parameters: dict[str, float]
    lam: float
    fit_intercept: bool
    weight: Array | None
    offset: Array | None
    regularizer: str
    regularizer_parameters: dict[str, Any]
    constraint: Any
    fits: list[Fit]
    kinds: tuple[str, ...]

    def problem(self):
        """What the product makes of it; raises its own error where it refuses."""
        names = ("loss", "loss_parameters", "lam", "fit_intercept", "offset", "regularizer", "constraint")
        given = {name: getattr(self, name) for name in names}
        more = self.regularizer_parameters or None
        return make_problem(
            self.blocks, self.y, sample_weight=self.weight, regularizer_parameters=more, **given
        )

    def matrix(self):
        """All columns side by side, dense."""
        dense = [b.toarray() if scipy.sparse.issparse(b) else np.asarray(b) for b in self.blocks]
        return np.hstack(dense).astype(np.float64)

    @property
    def text(self):
        parts = [
            f"seed {self.seed}: {self.loss} N={len(self.y)}",
            f"columns={'+'.join(str(b.shape[1]) for b in self.blocks)} lambda={self.lam:.3g}",
            f"{self.regularizer} {self.constraint}",
            "intercept" if self.fit_intercept else "no intercept",
            *(["weights"] if self.weight is not None else []),
            *(["offset"] if self.offset is not None else []),
            *self.kinds,
        ]
        return ", ".join(parts)


def draw(seed, *, small=False):
    """The problem of a seed; a small one has at most 50 rows."""
    rng = np.random.default_rng([42, seed])
    loss = LOSSES[seed % len(LOSSES)]
    ordinary = rng.random() < _ORDINARY
    n = int(rng.integers(4, 21)) if ordinary else _rows(rng, small)
    widths = [1, int(rng.integers(1, 4))] if ordinary else _widths(rng, loss)
    base, columns, kind = _columns(rng, n, sum(widths), ordinary)
    z = base @ (rng.normal(size=sum(widths)) * 10.0 ** rng.uniform(-1.0, 0.7)) + rng.normal()
    n_classes = int(rng.integers(2, 5)) if loss == "multinomial" else 1
    offset = None if ordinary else _offset(rng, n, n_classes)
    if offset is not None and offset.ndim == 1 and loss not in LOG_LINKS and rng.random() < 0.7:
        z = z + offset
    parameters = _loss_parameters(rng, loss)
    y, target = _targets(rng, loss, z, n_classes)
    blocks = np.split(columns, np.cumsum(widths)[:-1], axis=1)
    if kind == "sparse":
        blocks = [scipy.sparse.csr_matrix(b) if rng.random() < 0.7 else b for b in blocks]
    penalty = "l2" if ordinary else str(rng.choice(PENALTIES, p=(0.36, 0.22, 0.14, 0.14, 0.14)))
    tiny = not ordinary and rng.random() < 0.4
    return Draw(
        seed,
        list(blocks),
        y,
        loss,
        parameters,
        float(10.0 ** (rng.uniform(-12.0, 1.0) if tiny else rng.uniform(-4.0, 0.0))),
        bool(ordinary or rng.random() < 0.7),
        None if ordinary else _weights(rng, n),
        offset,
        penalty,
        _penalty_parameters(rng, penalty, widths),
        "all" if ordinary else _constraint(rng, len(widths)),
        _fits(rng),
        (kind, target),
    )


def _rows(rng, small):
    chance = rng.random()
    if not small and chance < 0.04:
        return 1000
    if not small and chance < 0.043:
        return 3000
    return int(rng.integers(1, 51)) if rng.random() < 0.6 else int(rng.integers(2, 16))


def _widths(rng, loss):
    most = 2 if loss == "multinomial" else 3
    return [int(rng.integers(1, most + 1)) for _ in range(int(rng.integers(1, 5)))]


def _columns(rng, n, d, ordinary):
    """Columns near the size one that the targets depend on, and the same as the problem has them."""
    kind = str(rng.choice(("plain", "whole") if ordinary else COLUMNS))
    base = rng.normal(size=(n, d))
    some = rng.random(d) < 0.6
    if not some.any():
        some[rng.integers(d)] = True
    if kind == "copies":
        base[:, some] = base[:, [0]]
        if rng.random() < 0.3:
            base[:, -1] = base[:, 0] * rng.normal()
    elif kind == "constant":
        base[:, some] = rng.choice([0.0, 1.0, 1e6])
    elif kind == "sparse":
        base[rng.random(base.shape) < 0.7] = 0.0
    elif kind == "whole":
        base = np.floor(3.0 * base) if rng.random() < 0.5 else (base > 0.3).astype(float)
    columns = base.copy()
    if "scaled" in kind:
        columns[:, some] *= 10.0 ** rng.uniform(-12.0, 12.0, size=int(some.sum()))
    if "shifted" in kind:
        size = np.maximum(np.abs(columns[:, some]).max(axis=0), 1e-300) if "scaled" in kind else 1.0
        columns[:, some] += 10.0 ** rng.uniform(3.0, 14.0, size=int(some.sum())) * size
    return base, columns, kind


def _offset(rng, n, n_classes):
    if rng.random() < 0.7:
        return None
    shape = (n, n_classes) if n_classes > 1 else (n,)
    return rng.normal(size=shape) * 10.0 ** rng.choice([-2.0, 0.0, 0.0, 1.0])


def _weights(rng, n):
    kind = rng.choice(["none", "near", "zeros", "ratio", "counts"], p=(0.5, 0.1, 0.15, 0.15, 0.1))
    if kind == "none":
        return None
    weight = rng.uniform(0.1, 2.0, n)
    if kind == "zeros":
        weight[rng.random(n) < 0.4] = 0.0
    elif kind == "ratio":
        weight = 10.0 ** rng.uniform(-9.0, 3.0, n)
    elif kind == "counts":
        weight = rng.integers(0, 5, n).astype(float)
    if not weight.any():
        weight[rng.integers(n)] = 1.0
    return weight


def _loss_parameters(rng, loss):
    if rng.random() < 0.4:
        return {}
    size = float(10.0 ** rng.uniform(-2.0, 1.0))
    share = float(rng.uniform(0.05, 0.95))
    of = {
        "huber": {"delta": size},
        "quantile": {"tau": share},
        "smoothed_hinge": {"gamma": size},
        "tweedie": {"power": 1.0 + share},
        "negative_binomial": {"alpha": size},
    }
    return of.get(loss, {})


def _targets(rng, loss, z, n_classes):
    """Targets of the loss's domain, and what is special about them."""
    if rng.random() < 0.08:
        return _all_equal(rng, loss, len(z)), "targets all equal"
    clipped = np.clip(z, -4.0, 4.0)
    if loss == "multinomial":
        return rng.permutation(np.arange(len(z)) % n_classes).astype(float) if rng.random() < 0.5 else (
            np.clip(np.round(clipped + (n_classes - 1) / 2.0), 0, n_classes - 1)
        ), "plain"
    if loss == "binomial" or (loss == "logistic" and rng.random() < 0.15):
        trials = int(rng.integers(1, 12))
        return rng.binomial(trials, 1.0 / (1.0 + np.exp(-clipped))) / trials, "shares"
    if loss in CLASSES:
        separable = rng.random() < 0.3
        noise = 0.0 if separable else rng.logistic(size=len(z))
        y = (z - np.median(z) + noise > 0.0).astype(float)
        if len(z) > 1 and y.min() == y.max():
            y[rng.integers(len(z))] = 1.0 - y[0]
        return y, "separable" if separable else "plain"
    mean = np.exp(clipped)
    if loss == "poisson":
        return rng.poisson(mean).astype(float), "counts"
    if loss == "negative_binomial":
        return rng.poisson(mean * rng.gamma(1.0, 1.0, len(z))).astype(float), "counts"
    if loss == "gamma":
        return mean * np.maximum(rng.gamma(2.0, 0.5, len(z)), 1e-6), "amounts"
    if loss == "tweedie":
        return mean * rng.gamma(2.0, 0.5, len(z)) * (rng.random(len(z)) > 0.2), "amounts"
    exact = rng.random() < 0.4
    spread = 10.0 ** -rng.uniform(0.0, 18.0) if exact else 10.0 ** rng.uniform(-1.0, 1.0)
    size = 10.0 ** rng.uniform(-6.0, 6.0) if rng.random() < 0.15 else 1.0
    return size * (z + spread * rng.normal(size=len(z))), f"noise {spread:.0e}"


def _all_equal(rng, loss, n):
    if loss in CLASSES:
        share = float(rng.choice([0.0, 1.0, 0.3])) if loss in ("logistic", "binomial") else 1.0
        return np.full(n, share)
    return np.full(n, float(rng.choice([1.0, 3.0])) if loss in LOG_LINKS else float(rng.choice([0.0, 2.5])))


def _penalty_parameters(rng, penalty, widths):
    if penalty == "elastic_net":
        return {"l1_ratio": float(rng.uniform(0.02, 1.0))}
    if penalty == "group_lasso" and rng.random() < 0.4:
        return {"groups": [[[j] for j in range(d)] if rng.random() < 0.5 else None for d in widths]}
    return {}


def _constraint(rng, parties):
    def one():
        name = str(rng.choice(SETS, p=(0.55, 0.17, 0.14, 0.14)))
        if name == "box":
            low, high = np.sort(rng.normal(size=2) * 10.0 ** rng.uniform(-2.0, 1.0))
            low, high = (
                (-np.inf, high) if (side := rng.random()) < 0.15 else (low, np.inf if side > 0.85 else high)
            )
            return f"box:{float(low)!r},{float(high)!r}"
        return f"ball:{float(10.0 ** rng.uniform(-2.0, 1.0))!r}" if name == "ball" else name

    return [one() for _ in range(parties)] if parties > 1 and rng.random() < 0.1 else one()


def _fits(rng):
    """``auto`` and ``pooled`` always, and some others."""
    gap = float(rng.choice([1e-3, 1e-6, 1e-6, 1e-8, 1e-10]))
    chosen = [("auto", "auto"), ("pooled", "auto"), *(scheme for scheme in SCHEMES if rng.random() < 0.5)]
    return [Fit(scheme, directions, gap) for scheme, directions in chosen]
