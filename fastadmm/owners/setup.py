"""Owners, who answer gradient queries with noise and nothing else; and from settings and files to them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.errors import ConfigError, InputError
from fastadmm.owners import mechanism
from fastadmm.owners.learner import PRINTED, Learner
from fastadmm.owners.mechanism import Bound, OwnerLoss
from fastadmm.settings.owners import OwnerSettings, parse_epsilons
from fastadmm.store.owner_file import Owners


class Rows:
    """The rows of an owner, in memory or read from its file in every pass. Shapes: X (n, d); y (n,)."""

    def __init__(self, X: Any, y: np.ndarray | None = None, *, in_memory: bool = True) -> None:
        self.y = X.targets() if y is None else np.ascontiguousarray(y, dtype=np.float64)
        self.n_samples, self.n_features = len(self.y), X.n_features if y is None else X.shape[1]
        self._file = X if y is None and not in_memory else None
        if self._file is None:
            self._rows = _compiled_form(X if y is not None else next(iter(X.iter_rows(self.n_samples)))[1])

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Blocks of rows in the form kernels take, with their targets, in order."""
        if self._file is None:
            yield self._rows, self.y
            return
        for start, block in self._file.iter_rows():
            yield _compiled_form(block), self.y[start : start + block.shape[0]]


def _compiled_form(X: Any) -> Any:
    """Dense rows as they are; CSR as (indptr, indices, data) with unsigned indices."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X)
    indices = X.indices.astype(np.uint32 if X.indices.dtype.itemsize <= 4 else np.uint64)
    return X.indptr.astype(np.int64), indices, X.data


@dataclass(eq=False)
class Owner:
    """One owner: its rows, the enforced bound and its calibrated answers."""

    name: str
    rows: Rows
    settings: OwnerSettings
    loss: OwnerLoss
    bound: Bound
    epsilon: float  # what its answers may cost; where one record is with kappa owners, the kappa-th part
    kappa: int = 1
    engine: Engine = field(default_factory=lambda: Engine(1))

    def __post_init__(self) -> None:
        self.n_samples = self.rows.n_samples
        self.n_parameters = self.rows.n_features + self.settings.intercept
        delta = None if self.settings.delta is None else self.settings.delta / self.kappa
        shape = self.n_samples, self.n_parameters
        self.answers = mechanism.make_answers(self.settings, self.bound, shape, self.epsilon, delta)

    def answer(self, theta: np.ndarray) -> np.ndarray:
        """Answer one query: the noisy mean of bounded gradients. Shapes: theta, the result (p,)."""
        theta = np.ascontiguousarray(theta, dtype=np.float64)
        if theta.shape != (self.n_parameters,) or not np.isfinite(theta).all():
            raise InputError(f"{self.name}: a query must be {self.n_parameters} finite numbers")
        boxed = self.bound.kind == "features"  # clipped gradients are bounded wherever they are asked for
        if boxed and np.abs(theta).max() > self.bound.theta_max * (1.0 + 1e-12):
            said = f"the query leaves the box of {self.bound.theta_max:g} that the bound rests on"
            raise InputError(f"{self.name}: {said}")
        total = self.total(theta)
        if not np.isfinite(total).all():  # a NaN in an answer would tell about a record
            raise InputError(f"{self.name}: gradients overflow; scale the features, or bound them")
        return self.answers.answer(total) / self.n_samples

    def total(self, theta: np.ndarray) -> np.ndarray:
        """Exact sum of bounded gradients, which never leaves. Shapes: theta, the result (p,)."""
        from fastadmm.kernels.owner_gradient import owner_csr_gradient, owner_dense_gradient

        bound, p = self.bound, self.n_parameters
        unit = mechanism.lattice_unit(self.n_samples, bound.xi)
        less = 1.0 - (p + 8) * 2.0**-52  # what kernels clip at: rounding cannot lead beyond the bounds
        target_limit = bound.target_limit if self.loss.name == "squared" else math.inf
        limits = bound.row_limit * less, target_limit, bound.xi * less
        asked = self.loss.code, int(self.settings.intercept), bound.euclidean, *limits, unit
        total = np.zeros(p)
        for X, y in self.rows.pieces():
            kernel: Any = owner_csr_gradient if isinstance(X, tuple) else owner_dense_gradient

            def work(piece: tuple[int, int], kernel: Any = kernel, X: Any = X, y: Any = y) -> np.ndarray:
                out = np.zeros(p)
                kernel(X, y, theta, asked, out, *piece)
                return out

            total += sum(self.engine.map(work, row_ranges(len(y))), np.zeros(p))
        return total


# --- from settings and files to owners that can answer and a learner that can ask


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything of a run but its progress."""

    settings: OwnerSettings
    loss: OwnerLoss
    bound: Bound
    owners: list[Owner]
    epsilons: list[float]  # as given, before division by kappa; infinite for a learner among the owners
    kappa: int
    weights: np.ndarray  # of the owners' mean answers; they sum to 1
    method: str
    step: float
    noise_variance: float  # V: expected squared norm of the noise on the weighted answer

    @property
    def n_parameters(self) -> int:
        """p."""
        return self.owners[0].n_parameters

    def learner(self) -> Learner:
        """A learner before its first query."""
        settings, noise = self.settings, math.sqrt(self.noise_variance / self.n_parameters)
        sizes = {"step": self.step, "lam": settings.lambda_, "theta_max": settings.theta_max, "noise": noise}
        return Learner(self.method, self.n_parameters, settings.rounds, **sizes)


def make_setup(settings: OwnerSettings, data: Owners, engine: Engine, *, in_memory: bool = True) -> Setup:
    """Check settings against the data, bound gradients and calibrate every owner's noise."""
    loss = mechanism.get_loss(settings.loss, data.task, str(data.path))
    names = data.names
    epsilons = parse_epsilons(settings.epsilon, names)
    if settings.learner is not None:
        if settings.learner not in names:
            raise ConfigError(f"learner: {settings.learner!r} is no owner; there are {', '.join(names)}")
        epsilons[names.index(settings.learner)] = math.inf
    bound = mechanism.make_bound(settings, loss, data.owners[0].n_features)
    check_asked(settings, bound, epsilons)
    method, step = default_step(settings, loss, bound)
    kappa = data.kappa  # one record can be with so many owners: each may spend the kappa-th part
    owners = [
        Owner(file.name, Rows(file, in_memory=in_memory), settings, loss, bound, e / kappa, kappa, engine)
        for file, e in zip(data.owners, epsilons, strict=True)
    ]
    variances = np.array([owner.answers.variance / owner.n_samples**2 for owner in owners])
    if settings.weights == "budget" and (variances == 0.0).any():
        said = "'budget' weighs by inverse noise, and an owner answers without noise (epsilon = inf)"
        raise ConfigError(f"weights: {said}; use size")
    weights = mechanism.owner_weights(settings.weights, [owner.n_samples for owner in owners], variances)
    noise = float((weights**2 * variances).sum() * owners[0].n_parameters)
    return Setup(settings, loss, bound, owners, epsilons, kappa, weights, method, step, noise)


def refuse_others(settings: OwnerSettings, loss: OwnerLoss) -> None:
    """Refuse settings of another mechanism or loss, which only runs of older versions have."""
    if settings.delta is not None and settings.mechanism == "laplace":
        raise ConfigError("delta: mechanism 'laplace' has none, mechanism 'gaussian' has; remove it")
    if settings.target_bound is not None and loss.name != "squared":
        raise ConfigError(f"target_bound: loss {loss.name!r} has none, loss 'squared' has; remove it")


def check_asked(settings: OwnerSettings, bound: Bound, epsilons: Sequence[float]) -> None:
    """Refuse budgets of gradients that nothing bounds, and a method that would never ask."""
    if math.isinf(bound.xi) and not all(map(math.isinf, epsilons)):
        said = "gradients are unbounded, so no noise gives epsilon; pass --bound clip:XI or features:R"
        raise ConfigError(f"bound: {said}")
    if settings.rounds < (least := 1 + (settings.method in PRINTED)):
        raise ConfigError(f"rounds: {settings.rounds} is too few for {settings.method}; give {least} or more")


def default_step(settings: OwnerSettings, loss: OwnerLoss, bound: Bound) -> tuple[str, float]:
    """Method and step that a run uses."""
    method, beta = settings.method, settings.smoothness
    if method == "auto":
        method = "strongly_convex" if loss.name == "hinge" else "constant"
    if not beta and math.isfinite(loss.curvature) and math.isfinite(bound.row_norm):
        # With l1 norms, |[x, 1]|_2 <= sqrt(R^2 + 1), below the l1 bound R + 1.
        l1 = bound.row_limit**2 + (bound.row_norm - bound.row_limit)
        beta = loss.curvature * (bound.row_norm**2 if bound.euclidean else l1) + settings.lambda_
    if settings.step is not None:
        if beta and method in ("constant", "adaptive") and settings.step > 2 / beta:
            said = f"is above 2/beta = {2 / beta:g}, where iterates can grow; give less"
            raise ConfigError(f"step: {settings.step:g} {said}")
        return method, settings.step
    if method == "strongly_convex" and settings.lambda_ > 0:
        return method, 1.0 / settings.lambda_
    if method in ("constant", "adaptive") and beta:
        return method, 1.0 / beta
    if method == "strongly_convex":
        raise ConfigError(f"lambda: {method} steps by 1 / lambda; give a positive one, or pass --step")
    more = ", or the key smoothness, or bound features of a smooth loss with --bound features:R"
    raise ConfigError(
        f"step: {method} with the {loss.name} loss and the bound {bound.kind!r} has no default; give "
        f"--step{'' if method in PRINTED else more}"
    )


def describe_setup(setup: Setup) -> dict[str, Any]:
    """The statement of what is protected and how, as plain values, from a setup."""
    settings, bound = setup.settings, setup.bound
    gaussian = settings.mechanism == "gaussian"
    owners = [
        {
            "name": owner.name,
            "n_samples": owner.n_samples,
            "epsilon": epsilon if owner.answers.private else None,
            "noise_scale": math.sqrt(owner.answers.variance) / owner.n_samples,
            "weight": float(weight),
        }
        for owner, epsilon, weight in zip(setup.owners, setup.epsilons, setup.weights, strict=True)
    ]
    claimed = any(owner.answers.private for owner in setup.owners)
    if not claimed:
        sentence = "No epsilon is claimed: answers are exact."
    else:
        sentence = (
            "All answers of an owner together change their distribution by at most the factor e^epsilon"
            + (f" (except with probability {settings.delta:g})" if gaussian else "")
            + " when one of its records is replaced; the numbers of records are public."
        )
        if settings.learner is not None:
            sentence += f" The model is for {settings.learner} alone, whose own records it does not protect."
    return {
        "unit": "one record of one owner",
        "adjacency": "replace-one",
        "claimed": claimed,
        "sentence": sentence,
        "mechanism": settings.mechanism,
        "delta": settings.delta if gaussian else 0.0,
        "rounds": settings.rounds,
        "bound": {
            "kind": bound.kind,
            "xi": bound.xi if math.isfinite(bound.xi) else None,
            "norm": "l2" if bound.euclidean else "l1",
            "enforced": bound.enforced,
            "sentence": bound.describe(),
        },
        "kappa": setup.kappa,
        "sampler": "grid" if gaussian else "discrete, exact",
        "owners": owners,
    }
