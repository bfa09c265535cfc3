"""What a collaboration will achieve, before anybody trains: theorems in ``docs/owners.md``.

Near its minimum the objective is a quadratic; the learner's iteration is linear there, so that mean and
variance of every coordinate obey an exact recursion. To optimisation and noise comes what a finite sample
costs, :math:`s^2 p / (2 n)`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import plain, shown
from fastadmm.owners.learner import PRINTED, average_weight, step_of
from fastadmm.owners.mechanism import Bound, OwnerLoss, get_loss, make_answers, make_bound, owner_weights
from fastadmm.owners.setup import check_asked, default_step, refuse_others
from fastadmm.privacy.sensitivity import clip_rows
from fastadmm.problem.problem import make_problem
from fastadmm.settings.owners import OwnerSettings, make_settings, parse_epsilons
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve
from fastadmm.store.owner_file import Owners, open_owners, record_digests, shared_rows


# --- what has to be known about the data: from public rows as they are, or assumed
@dataclass(frozen=True, eq=False)
class Pilot:
    """Local form of the objective. Shapes: h, e (p,)."""

    h: np.ndarray  # of shape (p,): eigenvalues of the Hessian at the minimum, regularisation included
    e: np.ndarray  # of shape (p,): start (zero) minus minimum, in the eigenvectors
    residual: float
    source: str  # where it is from, for people
    quadratic: bool = True  # whether the objective is a quadratic everywhere


def fit_pilot(data: Owners, loss: OwnerLoss, bound: Bound, lam: float, intercept: bool) -> Pilot:
    """Pilot from public rows: everything in the directory is read without noise."""
    from scipy.special import expit

    if loss.name == "hinge":
        said = (
            "the hinge has no curvature to forecast with; forecast with --loss logistic, or give --curvature"
        )
        raise ConfigError(f"loss: {said}")
    blocks = [block for file in data.owners for _, block in file.iter_rows()]
    dense = [block if isinstance(block, np.ndarray) else block.toarray() for block in blocks]
    X = clip_rows(np.concatenate(dense), bound.row_limit, l1=not bound.euclidean)
    X = np.column_stack([X, np.ones(len(X))]) if intercept else X
    y = np.concatenate([file.targets() for file in data.owners])
    if not X.any():
        raise ConfigError("pilot: no curvature is left; its rows are all zeros")
    squared = loss.name == "squared"
    y = np.clip(y, -bound.target_limit, bound.target_limit) if squared else (y > 0.0).astype(float)
    theta, curvature = np.zeros(X.shape[1]), np.ones(len(y))
    if not squared:
        problem = make_problem([X], y, lam=max(lam, 1e-8), fit_intercept=False)
        theta = solve(problem, SolverOptions(gap=1e-12)).weights[0]
        curvature = expit(X @ theta) * expit(-(X @ theta))
    h, vectors = np.linalg.eigh((X.T * curvature) @ X / len(y) + lam * np.eye(X.shape[1]))
    coordinates = vectors.T @ theta
    if squared:  # exactly, however small the columns are
        sure = h > 1e-12 * h.max()
        coordinates = np.where(sure, vectors.T @ (X.T @ y) / len(y) / np.where(sure, h, 1.0), 0.0)
    residual = float(np.mean((X @ (vectors @ coordinates) - y) ** 2)) if squared else 1.0
    return Pilot(np.maximum(h, 0.0), -coordinates, residual, f"{len(y)} public rows", squared)


def assumed_pilot(low: float, high: float, n_parameters: int, distance: float) -> Pilot:
    """Pilot without data: eigenvalues spread evenly on a logarithmic scale, the distance evenly over them."""
    if not 0 < low <= high < math.inf or n_parameters < 1 or not distance >= 0:
        said = f"{low:g},{high:g} with {n_parameters} parameters at distance {distance:g}"
        wanted = "give 0 < L <= beta, at least one parameter, a distance that is not negative"
        raise ConfigError(f"curvature: {said}: {wanted}")
    h = np.geomspace(low, high, n_parameters) if n_parameters > 1 else np.array([high])
    e = np.full(n_parameters, distance / math.sqrt(n_parameters))
    return Pilot(h, e, 1.0, f"assumed curvature {low:g} to {high:g}")


# --- the forecast
@dataclass(frozen=True)
class Member:
    """An owner as the forecast sees it."""

    name: str
    n_samples: int
    epsilon: float  # infinite for exact answers


@dataclass(frozen=True)
class Gap:
    """Forecast distance from the best possible model, in units of the objective."""

    optimisation: float  # left by too few or too short steps
    noise: float  # from the answers
    statistical: float  # from the finite number of records
    rounds: int

    @property
    def training(self) -> float:
        """What training leaves: optimisation and noise."""
        return self.optimisation + self.noise

    @property
    def total(self) -> float:
        """All three terms."""
        return self.training + self.statistical

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary with the sums."""
        return {**asdict(self), "total": self.total}


def linear_response(
    method: str, step: float, h: np.ndarray, e: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Optimisation term, and noise term per unit of noise variance, after every query. Shapes: h, e (p,)."""
    averaged = method in ("algorithm2", "strongly_convex")
    # The average starts at theta = 0, as far from the minimum as the iterate.
    mean, average = e.astype(float), e.astype(float)
    a = b = c = np.zeros(len(e))  # var theta, cov(theta, average), var average
    found = []
    for k in range(1, (rounds - 1 if method in PRINTED else rounds) + 1):
        if averaged:
            w = average_weight(method, k, rounds)
            average = (1 - w) * average + w * mean
            c = (1 - w) ** 2 * c + 2 * w * (1 - w) * b + w * w * a
            b = (1 - w) * b + w * a
        size = step_of(method, step, k, rounds)
        factor = 1.0 - size * h
        mean, a, b = factor * mean, factor**2 * a + size**2, factor * b
        shown_mean, variance = (average, c) if averaged else (mean, a)
        found.append((0.5 * h @ shown_mean**2, 0.5 * h @ variance))
    return tuple(np.array(found).T)


def corrected_bound(
    low: float, high: float, step: float, rounds: int, start: float, variance: float
) -> float:
    """The paper's Theorem 2 corrected, for constant steps; infinite where it does not apply."""
    if low <= 0 or step > (1 + 1e-12) / high:
        return math.inf
    return (1 - step * low) ** rounds * start + step * high * variance / (2 * low)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of a set of owners under common settings."""

    members: tuple[Member, ...]
    pilot: Pilot  # spectrum, initial error and residual variance
    settings: OwnerSettings  # with the learner's method; ``adaptive`` is forecast as ``constant``
    step: float
    gradients: Bound  # on that of each record
    kappa: int = 1  # most owners with one and the same record

    def __post_init__(self) -> None:
        check_asked(self.settings, self.gradients, [member.epsilon for member in self.members])

    # --- noise ---------------------------------------------------------------------------------------------

    def answer_variance(self, member: Member, rounds: int) -> float:
        """Noise variance of each coordinate of one owner's mean answer."""
        settings, shape = replace(self.settings, rounds=rounds), (member.n_samples, len(self.pilot.h))
        delta = None if settings.delta is None else settings.delta / self.kappa
        answers = make_answers(settings, self.gradients, shape, member.epsilon / self.kappa, delta)
        return answers.variance / member.n_samples**2

    def noise_variance(self, members: Sequence[Member] | None = None, rounds: int | None = None) -> float:
        """Noise variance v of each coordinate of the weighted answer."""
        members, rounds = self.members if members is None else members, rounds or self.settings.rounds
        variances = np.array([self.answer_variance(m, rounds) for m in members])
        if self.settings.weights == "budget" and (variances == 0).any():
            return 0.0  # an exact owner takes all the weight
        weights = owner_weights(self.settings.weights, [m.n_samples for m in members], variances)
        return float((weights**2 * variances).sum())

    # --- gap -----------------------------------------------------------------------------------------------

    def gap(self, members: Sequence[Member] | None = None, rounds: int | None = None) -> Gap:
        """Forecast gap of a coalition."""
        members, rounds = self.members if members is None else members, rounds or self.settings.rounds
        method, pilot = self.settings.method, self.pilot
        optimisation, unit = linear_response(method, self.step, pilot.h, pilot.e, rounds)
        statistical = pilot.residual * len(pilot.h) / (2 * sum(m.n_samples for m in members))
        noise = float(unit[-1]) * self.noise_variance(members, rounds)
        return Gap(float(optimisation[-1]), noise, statistical, rounds)

    def best_rounds(self, most: int = 1000) -> Gap:
        """The gap at the number of rounds that makes it smallest."""
        steps = range(int(math.log(most) / math.log(1.08)) + 1)
        grid = sorted({max(2, round(1.08**k)) for k in steps} | {most})
        if self.settings.method not in PRINTED:
            grid = [1, *grid]
        return min((self.gap(rounds=rounds) for rounds in grid), key=lambda gap: gap.total)

    def bound(self) -> float:
        """The corrected theorem's bound on the training gap of all owners, at the forecast's T."""
        if self.settings.method not in ("constant", "adaptive"):
            return math.inf
        h = self.pilot.h
        variance, start = self.noise_variance() * len(h), 0.5 * float(h @ self.pilot.e**2)
        ends = float(h.min()), float(h.max())
        return corrected_bound(*ends, self.step, self.settings.rounds, start, variance)

    # --- who should join -----------------------------------------------------------------------------------

    def marginal_value(self, name: str) -> float:
        """By how much an owner lowers the total gap, which may be infinite; negative where it harms."""
        others = [member for member in self.members if member.name != name]
        return math.inf if not others else self.gap(others).total - self.gap().total

    def best_coalition(self) -> tuple[tuple[Member, ...], Gap]:
        """The owners with the smallest total gap at the forecast's T, found by leaving out one by one."""
        kept, candidates = self.members, [(self.members, self.gap())]
        while len(kept) > 1:
            options = [tuple(o for o in kept if o is not m) for m in kept]
            gaps = ((one, self.gap(one)) for one in options)
            candidates.append(min(gaps, key=lambda found: found[1].total))
            kept = candidates[-1][0]
        return min(candidates, key=lambda found: found[1].total)

    def warnings(self) -> list[str]:
        """Where the forecast itself does not apply."""
        method, weights = self.settings.method, self.settings.weights
        texts = {
            "algorithm 1 steps by rho/(T^2 k): the steps add up to about rho ln(T)/T^2, so the iterate does "
            "not move": method == "algorithm1",
            "weights by budget change the objective where owners differ: it is then their weighted mean": (
                weights == "budget"
            ),
            "the loss is not quadratic: the forecast is its second-order form at the pilot's optimum": (
                not self.pilot.quadratic
            ),
            "an adaptive step depends on the noise: forecast as the constant step it begins with": (
                method == "adaptive"
            ),
        }
        return [text for text, holds in texts.items() if holds]

    def to_json(self, most_rounds: int = 1000) -> dict[str, Any]:
        """The whole forecast as plain values; infinities become None."""
        gap, best = self.gap(), self.best_rounds(most=most_rounds)
        coalition, coalition_gap = self.best_coalition()
        chosen = {m.name for m in coalition}
        h, settings = self.pilot.h, self.settings
        document = {
            **{key: getattr(settings, key) for key in ("rounds", "method", "mechanism", "weights")},
            "step": self.step,
            "delta": settings.delta if settings.mechanism == "gaussian" else 0.0,
            "xi": self.gradients.xi,
            "n_parameters": len(h),
            "curvature": [float(h.min()), float(h.max())],
            "pilot": self.pilot.source,
            "gap": gap.to_json(),
            "bound": self.bound(),
            "best_rounds": best.to_json(),
            "warnings": self.warnings(),
            "best_coalition": {"owners": [m.name for m in coalition], "gap": coalition_gap.to_json()},
            "leave_out": [m.name for m in self.members if m.name not in chosen],
            "owners": [{**asdict(m), "marginal_value": self.marginal_value(m.name)} for m in self.members],
        }
        return dict(plain(document))


# --- from the settings of the command line
def parse_members(text: str) -> tuple[Member, ...]:
    """Owners from ``name:records:epsilon``, separated by commas."""
    members: dict[str, Member] = {}
    for part in map(str.strip, text.split(",")):
        try:
            name, records, epsilon = part.split(":")
            own = Member(name, int(records), float(epsilon))
        except ValueError:
            own = Member("", 0, 0.0)
        if not own.name or own.name in members or own.n_samples < 1 or not own.epsilon > 0:
            raise ConfigError(
                f"owners: {part!r} is not name:records:epsilon, such as north:20000:1, each name once, "
                "records and epsilon positive (inf: exact answers)"
            )
        members[own.name] = own
    return tuple(members.values())


def make_forecast(
    settings: Mapping[str, Any],
    *,
    data: Path | None = None,
    owners: str | None = None,
    pilot: Path | None = None,
    curvature: str | None = None,
    parameters: int = 10,
    distance: float = 1.0,
) -> Forecast:
    """Put a forecast together."""
    if (data is None) == (owners is None):
        raise ConfigError("forecast: give the owners' directory, or --owners name:records:epsilon,...")
    if (pilot is None) == (curvature is None):
        said = "where is the curvature from? pass --pilot DIR (public rows) or --curvature L,BETA (assumed)"
        raise ConfigError(f"forecast: {said}")
    epsilon = settings.get("epsilon")
    opened: Owners | None = open_owners(data) if data is not None else None
    kappa = 1
    if opened is not None:
        budgets = parse_epsilons(str(epsilon or ""), opened.names)
        members = tuple(Member(o.name, o.n_samples, e) for o, e in zip(opened.owners, budgets, strict=True))
        kappa = opened.kappa
    else:
        if epsilon is not None:
            raise ConfigError("epsilon: --owners already says it; leave --epsilon out")
        members = parse_members(owners or "")
    chosen = make_settings({"data": str(data or ""), **settings})
    public = open_owners(pilot) if pilot is not None else None
    assumed = "regression" if chosen.loss in ("auto", "squared") else "classification"
    loss = get_loss(chosen.loss, assumed if public is None else public.task, str(pilot or data))
    refuse_others(chosen, loss)
    n_features = public.owners[0].n_features if public is not None else max(1, parameters - chosen.intercept)
    bound = make_bound(chosen, loss, n_features)
    if opened is not None and public is not None:
        place, other = f"pilot: {shown(str(pilot))}", shown(str(data))
        _, reason = shared_rows(_digests(public), _digests(opened))
        if reason:
            said = f"{reason}, and a pilot is read without noise; give public rows"
            raise ConfigError(f"{place} holds rows of {other}: {said}")
        if opened.owners[0].feature_names != public.owners[0].feature_names:
            raise ConfigError(f"{place} has other features than {other}")
    if public is not None:
        local = fit_pilot(public, loss, bound, chosen.lambda_, chosen.intercept)
    else:
        try:
            low, high = map(float, str(curvature).split(","))
        except ValueError:
            raise ConfigError(f"curvature: {curvature!r} is not L,BETA, such as 0.1,1") from None
        local = assumed_pilot(low, high, parameters, distance)
    told = chosen.step or chosen.smoothness or loss.name == "hinge"
    if not told and math.isinf(bound.row_norm):  # the pilot knows the curvature better
        chosen = replace(chosen, smoothness=float(local.h.max()))
    method, step = default_step(chosen, loss, bound)
    return Forecast(members, local, replace(chosen, method=method), step, bound, kappa)


def _digests(owners: Owners) -> list[bytes]:
    """Of all records' features."""
    return [digest for owner in owners.owners for _, X in owner.iter_rows() for digest in record_digests(X)]
