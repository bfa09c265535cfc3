"""Why a run stopped, which program it was, and whether the other would be faster: a line of each."""

import math

from fastadmm.engine.engine import Engine
from fastadmm.method.method import Method
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.method import ways_of
from fastadmm.problem.bounded_models import DEVIATIONS
from fastadmm.problem.problem import Problem
from fastadmm.proof.claim import Claim, Proof
from fastadmm.solver.early_stopping import ValidationWatch
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.options import SolverOptions


def describe_end(
    status: Status,
    record: RoundRecord,
    problem: Problem,
    options: SolverOptions,
    method: Method,
    start: float,
    watch: ValidationWatch | None,
    proof: Proof | None = None,
) -> str:
    """One sentence on why a run stopped, with advice."""
    if status is Status.EARLY_STOPPED and watch is not None and watch.record is not None:
        best, rule = watch.record, watch.rule
        return (
            f"stopped early after {_rounds(record.round)}: validation {rule.metric} was best "
            f"({watch.best:.6g}) in round {best.round}, whose model is kept"
            + (f" at {_proved(best)}" if problem.convex else "")
        )
    if not problem.convex and status is not Status.DIVERGED:
        return _describe_stationarity(status, record, options)
    gap, rounds = _proved(record), _rounds(record.round)
    if status is Status.CONTRADICTION and proof is not None:
        return (
            f"contradiction after {rounds}: {proof.reason}; this is a defect of fastadmm or of the machine, "
            "and nothing is claimed of the model; please report it"
        )
    if status is Status.CONVERGED and record.gap_absolute <= options.gap_absolute:
        return f"certified after {rounds}: absolute duality gap {record.gap_absolute:.2e}"
    if status is Status.CONVERGED and record.gap_within is not None:
        return (
            f"certified after {rounds} among models in which no column contributes more than "
            f"{DEVIATIONS:.0f} standard deviations: relative duality gap {record.gap_within:.2e}; of larger "
            "weights nothing is claimed"
        )
    if status is Status.CONVERGED:
        return f"certified after {rounds}: {gap}"
    if status is Status.AT_ROUNDING:
        exceeds = proof is not None and proof.claim is Claim.AT_ROUNDING
        limit = "at the limit of double precision" if exceeds else "no longer gaining"
        return (
            f"{limit} after {rounds}, not certified: {gap}, wanted "
            f"{options.gap:.2e}, objective {record.objective:.3g}"
        )
    if status is Status.DIVERGED:
        advice = (
            "leave penalty out, so that it is large enough for a non-convex problem"
            if not problem.convex and method.name == "sharing"
            else "use scheme 'sharing', which converges for every convex problem, or the default"
            if not method.convergent
            else "check the data for extreme values"
        )
        return (
            f"scheme '{method.name}' diverges with {problem.n_parties} parties: "
            f"after {_rounds(record.round)} the objective is {record.objective:.3g} "
            f"(start: {start:.3g}) and the primal residual "
            f"{record.primal_residual:.3g}; {advice}"
        )
    if status is Status.INTERRUPTED:
        return f"interrupted after {rounds}"
    limit = "round limit" if status is Status.MAX_ROUNDS else "time limit"
    if options.gap == 0:
        return f"stopped at the {limit} after {rounds}, as gap 0 asks: no gap ends training; {gap}"
    wanted = f"wanted {options.gap:.2e}"
    return f"stopped at the {limit} after {rounds}, not certified: {gap}, {wanted}"


def _describe_stationarity(status: Status, record: RoundRecord, options: SolverOptions) -> str:
    """Why a run of a non-convex problem stopped, which ends at a stationary point at best."""
    reached = math.inf if record.stationarity is None else record.stationarity
    found = f"relative stationarity {reached:.2e}"
    wanted = f"wanted {options.stationarity:.2e}"
    claim = "the problem is not convex, and no global optimum is claimed"
    if status is Status.STATIONARY:
        return f"stationary after {_rounds(record.round)}, a local solution: {found}, {wanted}; {claim}"
    if status is Status.INTERRUPTED:
        return f"interrupted after {_rounds(record.round)} at {found}"
    limit = "round limit" if status is Status.MAX_ROUNDS else "time limit"
    if options.stationarity == 0:
        return (
            f"stopped at the {limit} after {_rounds(record.round)}, as stationarity 0 asks: {found}; {claim}"
        )
    stopped = f"stopped at the {limit} after {_rounds(record.round)}"
    return f"{stopped}, not stationary: {found}, {wanted}; {claim}"


def _rounds(number: int) -> str:
    return f"{number} round{'s' * (number != 1)}"


def _proved(record: RoundRecord) -> str:
    """The gap of a convex problem in words; a relative one needs a positive lower bound."""
    if math.isfinite(record.gap):
        return f"relative duality gap {record.gap:.2e}"
    if math.isfinite(record.gap_absolute):
        return f"absolute duality gap {record.gap_absolute:.2e}, no relative one"
    return "no proved duality gap"


#: Shorter runs are not worth a line; nor is what would not be faster by this factor.
_SECONDS, _FASTER = 1.0, 2.0

#: Fits take this many times what the cost of a minimiser says, at most: proof, copies, hard problems.
_ON_TOP = 3.0


def program_line(scheme: str) -> str:
    """One line on which program a run is, by its scheme."""
    return (
        "pooled: all columns are in this process"
        if scheme == "pooled"
        else (f"parties: {scheme}, as between organisations")
    )


def pooled_hint(problem: Problem, engine: Engine, seconds: float) -> str:
    """One line where a run of parties would be much faster pooled; else empty."""
    if seconds < _SECONDS or not (problem.convex and problem.traits.a_sum):
        return ""
    goal = Goal(problem, engine)
    ways = ways_of(goal)
    about = _ON_TOP * 1e-9 * ways[0].cost(goal) / engine.n_threads if ways else seconds
    if not about * _FASTER < seconds:
        return ""
    took = f"some {about:.1g} s instead of {seconds:.1f}"
    return f"pooled, this would take {took}: all columns are in this process (scheme 'pooled')"
