"""Why a run stopped, which program it was, and whether the other would be faster: a line of each."""

import math
from typing import Any

from fastadmm.engine.engine import Engine
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.method import ways_of
from fastadmm.problem.bounded_models import DEVIATIONS
from fastadmm.problem.problem import Problem
from fastadmm.proof.claim import Claim
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.options import SolverOptions


def describe_end(solver: Any, status: Status, record: RoundRecord) -> str:
    """One sentence on why a run, a :class:`fastadmm.solver.solver.Solver`, stopped, with advice."""
    problem, options, method, watch = solver.problem, solver.options, solver.method, solver.watch
    proof, gap, rounds = solver.kept_proof or solver.proof, _proved(record), _rounds(record.round)
    if status is Status.EARLY_STOPPED and watch is not None and watch.record is not None:
        return (
            f"stopped early after {rounds}: validation {watch.rule.metric} was best "
            f"({watch.best:.6g}) in round {watch.record.round}, whose model is kept"
            + (f" at {_proved(watch.record)}" if problem.convex else "")
        )
    if status is Status.DIVERGED:
        advice = "check the data for extreme values"
        if not problem.convex and method.name == "sharing":
            advice = "leave penalty out, so that it is large enough for a non-convex problem"
        elif not method.convergent:
            advice = "use scheme 'sharing', which converges for every convex problem, or the default"
        return (
            f"scheme '{method.name}' diverges with {problem.n_parties} parties: "
            f"after {rounds} the objective is {record.objective:.3g} "
            f"(start: {solver.divergence.start:.3g}) and the primal residual "
            f"{record.primal_residual:.3g}; {advice}"
        )
    if not problem.convex:
        return _describe_stationarity(status, record, options)
    if status is Status.CONTRADICTION and proof is not None:
        return (
            f"contradiction after {rounds}: {proof.reason}; this is a defect of fastadmm or of the machine, "
            "and nothing is claimed of the model; please report it"
        )
    if status is Status.CONVERGED:
        if record.gap_within is None:
            return f"certified after {rounds}: {gap}"
        return (
            f"certified after {rounds} among models in which no column contributes more than "
            f"{DEVIATIONS:.0f} standard deviations: relative duality gap {record.gap_within:.2e}; of larger "
            "weights nothing is claimed"
        )
    if status is Status.AT_ROUNDING:
        exceeds = proof is not None and proof.claim is Claim.AT_ROUNDING
        limit = "at the limit of double precision" if exceeds else "no longer gaining"
        told = f"{gap}, wanted {options.gap:.2e}, objective {record.objective:.3g}"
        return f"{limit} after {rounds}, not certified: {told}"
    if status is Status.INTERRUPTED:
        return f"interrupted after {rounds}"
    stopped = _stopped(status, rounds)
    if options.gap == 0:
        return f"{stopped}, as gap 0 asks: no gap ends training; {gap}"
    return f"{stopped}, not certified: {gap}, wanted {options.gap:.2e}"


def _describe_stationarity(status: Status, record: RoundRecord, options: SolverOptions) -> str:
    """Why a run of a non-convex problem stopped, which ends at a stationary point at best."""
    reached, rounds = math.inf if record.stationarity is None else record.stationarity, _rounds(record.round)
    found, wanted = f"relative stationarity {reached:.2e}", f"wanted {options.stationarity:.2e}"
    claim = "the problem is not convex, and no global optimum is claimed"
    if status is Status.STATIONARY:
        return f"stationary after {rounds}, a local solution: {found}, {wanted}; {claim}"
    if status is Status.INTERRUPTED:
        return f"interrupted after {rounds} at {found}"
    stopped = _stopped(status, rounds)
    if options.stationarity == 0:
        return f"{stopped}, as stationarity 0 asks: {found}; {claim}"
    return f"{stopped}, not stationary: {found}, {wanted}; {claim}"


def _stopped(status: Status, rounds: str) -> str:
    limit = "round limit" if status is Status.MAX_ROUNDS else "time limit"
    return f"stopped at the {limit} after {rounds}"


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
    if scheme == "pooled":
        return "pooled: all columns are in this process"
    return f"parties: {scheme}, as between organisations"


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
