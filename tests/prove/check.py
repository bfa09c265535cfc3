"""One problem: fits, references, and every claim against every point that is known."""

import math
import signal
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastadmm.errors import FastadmmError
from fastadmm.schemes.registry import choose_scheme
from fastadmm.solver.solver import SolverOptions, solve
from mpmath import mp, mpf
from numba.core.compiler_lock import global_compiler_lock

from prove.draws import Fit
from prove.exact import PRECISION, Exact, Point
from prove.references import Upper, reach_of_data

#: What can be false.
KINDS = (
    *("objective below F of the model", "bound above F of a model", "gap below the true gap"),
    *("bound within above F of a bounded model", "weights outside their set"),
    *("certified with a gap above the asked one", "contradiction"),
)

#: Of the references, which have some 120, relative to F at zero weights: not held against a claim.
_LAST_DIGIT = mpf(10) ** -90

_MAX_ROUNDS, _MAX_SECONDS = 60, 1.0

#: A fit that has not looked at the clock for so long is stopped from outside, and counted.
PATIENCE = 5.0


@dataclass(frozen=True)
class Stated:
    """A model and what is claimed of it.

    Of bounded models nothing is claimed where ``within_bound`` is minus infinity; ``reach`` is the largest
    size of each column's weight among them.
    """

    fit: Fit
    point: Point
    claim: str
    objective: float = math.inf
    bound: float = -math.inf
    gap: float = math.inf
    gap_absolute: float = math.inf
    within_bound: float = -math.inf
    within_gap: float = math.inf
    reach: list[Any] | None = None


def stated(proof, fit, point, exact):
    """The claims of the prover; a run that it says nothing of diverged."""
    if proof is None:
        return Stated(fit, point, "unproved")
    numbers = (proof.objective, proof.bound, proof.gap, proof.gap_absolute)
    within = ()
    if proof.within is not None:
        within = proof.within.bound, proof.within.gap, reach_of_data(exact, proof.within.reach)
    return Stated(fit, point, str(proof.claim), *numbers, *within)


@dataclass(frozen=True)
class False_:
    """One false claim: its kind, the fit, by how much of F, and against what."""

    seed: int
    kind: str
    scheme: str
    claim: str
    excess: float
    against: str

    @property
    def text(self):
        return (
            f"seed {self.seed}: {self.scheme} ({self.claim}): {self.kind}, by {self.excess:.2g} of F "
            f"({self.against})"
        )


@dataclass
class Outcome:
    """What became of one problem."""

    seed: int
    text: str
    refused: str = ""
    claims: list[tuple[str, str]] = field(default_factory=list)
    false: list[False_] = field(default_factory=list)
    refused_fits: int = 0
    exceptions: list[str] = field(default_factory=list)
    endless: list[str] = field(default_factory=list)


def check(drawn, seconds=1.0):
    """Fit a problem by its schemes, and hold every claim against every known point."""
    outcome = Outcome(drawn.seed, drawn.text)
    try:
        problem = drawn.problem()
    except FastadmmError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
        return outcome
    except Exception:
        outcome.exceptions.append(f"make_problem:\n{traceback.format_exc()}")
        return outcome
    results = [(fit, result) for fit in drawn.fits if (result := _fitted(problem, fit, outcome)) is not None]
    if results:
        with mp.workprec(PRECISION):
            exact = Exact(drawn)
            claims = [
                stated(result.proof, fit, Point.of_model(result.weights, result.intercept), exact)
                for fit, result in results
            ]
            judge(exact, claims, outcome, seconds)
    return outcome


def _fitted(problem, fit, outcome):
    """The result, or None where the product refuses; anything unexpected is kept."""
    try:
        options = SolverOptions(
            scheme=fit.scheme, directions=fit.directions, gap=fit.gap, n_threads=1,
            max_rounds=_MAX_ROUNDS, max_seconds=_MAX_SECONDS,
        )  # fmt: skip
        choose_scheme(options, problem.traits)
        with warnings.catch_warnings(), _ended_after(PATIENCE):
            warnings.simplefilter("ignore")
            return solve(problem, options)
    except _Endless:
        outcome.endless.append(_name(fit))
    except FastadmmError:
        outcome.refused_fits += 1
    except Exception:
        outcome.exceptions.append(f"{_name(fit)}:\n{traceback.format_exc()}")
    return None


class _Endless(BaseException):
    """Not an Exception, so that nobody catches it on the way."""


@contextmanager
def _ended_after(seconds):
    """Raise in the main thread when the time is over; what is being compiled is compiled first."""

    def end(*_):
        if global_compiler_lock.is_locked():
            signal.setitimer(signal.ITIMER_REAL, seconds)
        else:
            raise _Endless

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _name(fit):
    return fit.scheme if fit.directions == "auto" else f"{fit.scheme} {fit.directions}"


def judge(exact, claims, outcome, seconds):
    """Append every false claim to the outcome; the working precision must be set."""
    usable = []
    for one in claims:
        outcome.claims.append((_name(one.fit), one.claim))
        if all(mp.isfinite(v) for x in (*one.point.x, one.point.b) for v in x):
            usable.append(one)
        else:
            _blame(outcome, one, "weights outside their set", mp.inf, "not finite")
    points = [(one.point, _name(one.fit)) for one in usable]
    everywhere = upper(exact, points, None, seconds)
    reaches = [one.reach for one in usable if one.reach is not None and mp.isfinite(one.within_bound)]
    inside = None
    if reaches:
        inside = upper(exact, points, [min(each) for each in zip(*reaches)], seconds)
    for one in usable:
        judge_one(exact, one, outcome, everywhere, inside)


def upper(exact, points, reach, seconds):
    """The least F that anyone knows, models of the schemes included."""
    known = Upper(exact, reach)
    for point, source in points:
        known.offer(point, source)
    known.solve(seconds)
    return known


def judge_one(exact, one, outcome, everywhere, inside=None):
    """Append what is false of one claim, given the best of all models and the best of bounded ones."""
    value = exact.objective(one.point)
    if (left := exact.outside(one.point)) > mpf(2) ** -49:
        _blame(outcome, one, "weights outside their set", left, "the set")
    else:
        _judge_numbers(outcome, one, value, everywhere)
    if inside is not None and one.reach is not None and mp.isfinite(one.within_bound):
        size = max(abs(inside.value), mpf(10) ** -300)
        room = _room(everywhere)
        if mpf(one.within_bound) > inside.value + room:
            excess = (mpf(one.within_bound) - inside.value) / size
            _blame(outcome, one, "bound within above F of a bounded model", excess, inside.source)
        elif inside.value > 0 and value > (1 + mpf(one.within_gap)) * inside.value + room:
            excess = value / size - 1 - mpf(one.within_gap)
            _blame(outcome, one, "gap below the true gap", excess, f"within, {inside.source}")


def _room(known):
    """What is not held against a claim: the last of the references' own digits."""
    return _LAST_DIGIT * (abs(known.zero) + 1)


def _judge_numbers(outcome, one, value, known):
    if one.claim == "unproved":
        return
    best, size = known.value, max(abs(known.value), mpf(10) ** -300)
    room = _room(known)
    if mp.isfinite(one.bound) and mpf(one.bound) > best + room:
        _blame(outcome, one, KINDS[1], (mpf(one.bound) - best) / size, known.source)
    if not mp.isfinite(value) or not mpf(one.objective) >= value - room:
        _blame(outcome, one, KINDS[0], (value - mpf(one.objective)) / size, "its own weights")
    true = value - best
    if mp.isfinite(one.gap_absolute) and true > mpf(one.gap_absolute) + room:
        _blame(outcome, one, KINDS[2], (true - mpf(one.gap_absolute)) / size, f"absolute, {known.source}")
    elif mp.isfinite(one.gap) and best > 0 and true > mpf(one.gap) * best + room:
        _blame(outcome, one, KINDS[2], true / size - mpf(one.gap), f"relative, {known.source}")
    proved = {"certified": one.gap, "certified_within": one.within_gap}.get(one.claim, 0.0)
    if not proved <= one.fit.gap:
        _blame(outcome, one, KINDS[5], mpf(proved), f"{proved:.3g} for {one.fit.gap:.3g}")
    if one.claim == "contradiction":
        _blame(outcome, one, KINDS[6], mpf(0), "the product itself")


def _blame(outcome, one, kind, excess, against):
    found = float(excess) if mp.isfinite(excess) else np.inf
    outcome.false.append(False_(outcome.seed, kind, _name(one.fit), one.claim, found, against))
