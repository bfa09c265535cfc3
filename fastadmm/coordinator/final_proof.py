r"""The proof of a model whose columns are elsewhere: one exchange, after the last round.

The coordinator sends a dual vector whose sum is zero where an intercept is fitted. Every party answers with
the message of its weights as it will write them, and what these add to the gap
(:mod:`fastadmm.proof.share`); with sums only the coordinator is told the sums. What then is said of the model
is of the messages of this exchange alone, not of what rounds have added up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastadmm.conversation.calls import SUMS
from fastadmm.conversation.exchange import Talk
from fastadmm.method.method import Method
from fastadmm.problem.bounded_models import reach_where_endless
from fastadmm.problem.problem import Problem
from fastadmm.proof.claim import Proof
from fastadmm.proof.feasible import Balanced, balanced
from fastadmm.proof.prove import dual_of, judge, least_loss, value_at
from fastadmm.proof.share import Share
from fastadmm.secrecy.masks import UNPROVED, grid_limit, grid_step

Array = np.ndarray

#: Messages of weights may be so many times what the last ones allow; of those kept in an earlier round.
_ROOM, _ROOM_OF_KEPT = 4.0, 2.0**16

#: Roundings of a sum of scalars: relative, of double precision; and of the scalars of each party.
_RELATIVE, _EACH = 2.0**-50, 2.0**-250


def prove_elsewhere(
    problem: Problem, method: Method, intercept: Any, kept: bool, asked: float
) -> Talk[Proof]:
    """Let all parties prove how good the model is that they are going to write.

    Shapes: intercept (C,).
    """
    engine = method.engine
    found = _feasible(problem, method)
    ask = _sums if method.family in SUMS else _shares
    total, shares, sizes, off = yield from ask(problem, method, found, kept)
    value = value_at(problem, total, intercept, engine)._replace(sizes=sizes)
    dual = dual_of(problem, value, found.u, engine, True, found)
    reach = reach_where_endless(problem, engine)
    proof = judge(problem, value, intercept, dual, shares, reach, engine, asked, off)
    return proof.above(least_loss(problem, engine))


def _feasible(problem: Problem, method: Method) -> Balanced:
    """The dual vector that proved most in the rounds; else the loss's gradient, or zero."""
    u, total, engine = method.witness, method.total, method.engine
    if u is None and total is not None and problem.loss.smooth:
        u = value_at(problem, total, method.intercept, engine).gradient
    if u is not None:
        found = balanced(problem, u, 0.0, engine, True, None)
        if math.isfinite(found.eps) and np.isfinite(found.u).all():
            return found
    return Balanced(np.zeros(problem.message_size), 0.0)


def _shares(
    problem: Problem, method: Method, found: Balanced, kept: bool
) -> Talk[tuple[Array, list[Share], float, float]]:
    """Sum of the messages, what each party adds, the messages' norms, and how far that sum is from exact."""
    vector = problem.loss.vector
    told: dict[str, Any] = {
        "u": found.u.reshape(problem.n_outputs, -1) if vector else found.u,
        "eps": float(found.eps),
        "reach": float(reach_where_endless(problem, method.engine)),
        "about_mean": problem.fit_intercept,
        "kept": kept,
    }
    answers = yield method.about_weights("prove_classes" if vector else "prove", **told)
    shares = [Share(*(float(answer[key]) for key in Share._fields)) for answer in answers]
    sizes = sum(method.engine.norm(answer["message"].ravel()) for answer in answers)
    total = answers[0]["message"].ravel()
    for answer in answers[1:]:
        total = total + answer["message"].ravel()
    return total, shares, sizes, 0.0


def _sums(
    problem: Problem, method: Method, found: Balanced, kept: bool
) -> Talk[tuple[Array, list[Share], float, float]]:
    """What a proof needs of the parties, with sums only: added up over all of them, as of one party."""
    m = problem.n_parties
    step = grid_step((_ROOM_OF_KEPT if kept else _ROOM) * method.longest, m)
    told = {"u": found.u, "eps": float(found.eps), "scale": 1.0, "kept": kept, **method.final_arguments(0)}
    total, numbers = yield from method.sums.ask("prove_masked", step, **told)
    penalty, inner, inner_error, weighed, part = numbers
    if not weighed < grid_limit(step, m):
        part = UNPROVED  # the weights with the norms of their columns bound every number of a message
    more, least = 1.0 + _RELATIVE, m * _EACH
    share = Share(
        max(penalty, 0.0) if penalty < UNPROVED else math.inf,
        inner,
        inner_error * more + abs(inner) * _RELATIVE + least,
        weighed * more + least,
        1.0,  # a conjugate of squared l2 is finite everywhere
        part * more + least if part < UNPROVED else math.inf,
    )
    # Half a step of each party, and the sum's own rounding to a double.
    spread = 0.5 * m * step + 2.0**-53 * float(np.abs(total).max(initial=0.0))
    return total, [share], 0.0, spread * math.sqrt(len(total))
