"""Faults planted in the prover: none may end as a false claim.

The prover reads data and weights in two passes, and its dual vector from a third place. A fault in one of
them is a contradiction, a larger gap, or a refusal. What every pass reads alike, like a lambda that is wrong
everywhere, is a proof about another problem: no prover can see it, but the references of the campaign must.
"""

import copy
import dataclasses
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import fastadmm.proof.prove as prover
import numpy as np
from fastadmm.blocks.block import as_block
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError
from fastadmm.solver.solver import SolverOptions, solve
from mpmath import mp

from prove.check import Outcome, judge_one, stated, upper
from prove.draws import Draw, Fit
from prove.exact import PRECISION, Exact, Point
from prove.references import Upper, reach_of_data

Array = np.ndarray
#: Passes with a matrix: the messages D x, and everything else, the images D'u above all.
_MESSAGES = ("product", "product_into", "products_into", "matrix_product")


@dataclass
class Case:
    """What is handed to the prover, and what is known of the problem."""

    drawn: Draw
    problem: Any
    weights: list[Array]
    intercept: Any
    duals: list[Array]
    gap: float
    exact: Exact
    everywhere: Upper
    inside: Upper | None


def fitted(drawn, *, share=1.0, gap=1e-6):
    """A problem with its model and the dual vector that proves it.

    Weights are multiplied by a share: below 1 the model is not the best, and no proof may say it is.
    """
    problem = drawn.problem()
    result = solve(problem, SolverOptions(gap=gap, n_threads=1))
    proof = result.proof
    duals = [] if proof is None or proof.dual is None else [np.array(proof.dual)]
    with mp.workprec(PRECISION):
        exact = Exact(drawn)
        points = [(Point.of_model(result.weights, result.intercept), "the model")]
        inside = upper(exact, points, reach_of_data(exact), 1.0) if drawn.regularizer == "none" else None
        everywhere = upper(exact, points, None, 1.0)
    weights = [share * np.array(w) for w in result.weights]
    return Case(drawn, problem, weights, result.intercept, duals, gap, exact, everywhere, inside)


def plant(case, fault):
    """Prove with a fault: the claim, its gap, and what of it is false about the true problem and model."""
    outcome = Outcome(case.drawn.seed, case.drawn.text)
    given = copy.copy(case)
    engine = Engine(1)
    try:
        changed = nullcontext() if fault is None else fault(given) or nullcontext()
        with engine.limited(), np.errstate(all="ignore"), changed:
            proof = prover.prove(
                given.problem, given.weights, given.intercept, given.duals, engine, given.gap
            )
    except (FastadmmError, AssertionError, ValueError, FloatingPointError) as error:
        return (f"refusal: {type(error).__name__}", np.inf), outcome
    finally:
        engine.close()
    with mp.workprec(PRECISION):
        point = Point.of_model(case.weights, case.intercept)
        claim = stated(proof, Fit("auto", "auto", case.gap), point, case.exact)
        if claim.claim != "contradiction":
            judge_one(case.exact, claim, outcome, case.everywhere, case.inside)
    return (claim.claim, claim.gap), outcome


def _matrix(block):
    engine = Engine(1)
    found = np.stack([block.product(unit, engine) for unit in np.eye(block.shape[1])], axis=1)
    engine.close()
    return found


def _two_faced(block, messages, images):
    """A block whose messages are those of one matrix, and everything else of another."""
    one, other = as_block(np.ascontiguousarray(messages), "a"), as_block(np.ascontiguousarray(images), "b")
    own = {name: getattr(one, name) for name in _MESSAGES if hasattr(one, name)}

    def forwarded(method):
        return lambda self, *given, **named: method(*given, **named)

    other.__class__ = type("TwoFaced", (type(other),), {n: forwarded(m) for n, m in own.items()})
    return other


def _in_pass(which, change, party=None):
    """A pass that reads changed columns; of every party, or of one."""

    def fault(case):
        blocks = list(case.problem.blocks)
        for m, block in enumerate(blocks):
            if party is None or m == party % len(blocks):
                true = _matrix(block)
                false = change(true.copy())
                blocks[m] = _two_faced(block, *((false, true) if which == "messages" else (true, false)))
        case.problem = dataclasses.replace(case.problem, blocks=blocks)

    return fault


def _row_dropped(matrix):
    matrix[int(np.argmax(np.abs(matrix).sum(axis=1)))] = 0.0
    return matrix


def _rows_swapped(matrix):
    matrix[[0, -1]] = matrix[[-1, 0]]
    return matrix


def _at_largest(change):
    """The largest number of all becomes another one."""

    def changed(numbers):
        at = np.unravel_index(int(np.argmax(np.abs(numbers))), numbers.shape)
        numbers[at] = change(numbers[at])
        return numbers

    return changed


CHANGES = {
    "sign": lambda matrix: -matrix,
    "skipped": lambda matrix: 0.0 * matrix,
    "row dropped": _row_dropped,
    "rows swapped": _rows_swapped,
    "one entry": _at_largest(lambda value: 1.01 * value),
    "columns turned": lambda matrix: np.roll(matrix, 1, axis=1),
    "single precision": lambda matrix: matrix.astype(np.float32).astype(np.float64),
    "centred": lambda matrix: matrix - matrix.mean(axis=0),
    "a tenth more": lambda matrix: 1.1 * matrix,
}


def _of_model(change):
    def fault(case):
        case.weights = [w.copy() for w in case.weights]
        change(case)

    return fault


def _one_weight(case):
    largest = max(case.weights, key=lambda w: float(np.abs(w).max()))
    at = np.unravel_index(int(np.argmax(np.abs(largest))), largest.shape)
    largest[at] = 1.5 * largest[at] + 0.1


def _stale_intercept(case):
    if case.problem.fit_intercept:
        case.intercept = case.intercept + 0.3


def _old_weights(case):
    case.weights = [0.5 * w for w in case.weights]


def _of_u(change):
    """Every dual vector changed: those from outside, and the gradient that the prover takes itself."""

    def fault(case):
        case.duals = [change(u.copy()) for u in case.duals]
        original = prover.value_at

        def changed(*given, **named):
            value = original(*given, **named)
            return value._replace(gradient=change(value.gradient.copy()), sums=None)

        return patch.object(prover, "value_at", changed)

    return fault


def _old_gradient(case):
    """The gradient at zero weights, with the value at the model."""
    original = prover.value_at

    def changed(problem, total, intercept, engine):
        value, old = (original(problem, t, intercept, engine) for t in (total, 0.0 * total))
        return value._replace(gradient=old.gradient, sums=old.sums)

    return patch.object(prover, "value_at", changed)


def _of_problem(**changes):
    """A prover that reads another problem than the one that was fitted."""

    def fault(case):
        new = {name: change(getattr(case.problem, name)) for name, change in changes.items()}
        case.problem = dataclasses.replace(case.problem, **new)

    return fault


def _loss(method, change):
    """One function of the loss gives another number; ``change`` gets what it would be and its arguments."""

    def fault(case):
        true = case.problem.loss
        original = getattr(true, method)

        def changed(self, *given, **named):
            return change(original(*given, **named), given)

        loss = copy.copy(true)
        object.__setattr__(loss, "__class__", type("Faulty", (type(true),), {method: changed}))
        case.problem = dataclasses.replace(case.problem, loss=loss)

    return fault


#: Each has to end without a false claim.
FAULTS = {
    **{f"messages: {name}": _in_pass("messages", change) for name, change in CHANGES.items()},
    **{f"images: {name}": _in_pass("images", change) for name, change in CHANGES.items()},
    "messages of one party skipped": _in_pass("messages", CHANGES["skipped"], 0),
    "images of one party skipped": _in_pass("images", CHANGES["skipped"], -1),
    "images of one party with the wrong sign": _in_pass("images", CHANGES["sign"], 0),
    "another intercept": _of_model(_stale_intercept),
    "one weight changed": _of_model(_one_weight),
    "old weights": _of_model(_old_weights),
    "u: wrong sign": _of_u(lambda u: -u),
    "u: an old gradient": _old_gradient,
    "u: single precision": _of_u(lambda u: u.astype(np.float32).astype(np.float64)),
    "u: of other rows": _of_u(lambda u: np.roll(u, 1)),
    "u: noise": _of_u(lambda u: u * np.random.default_rng(0).uniform(0.5, 1.5, len(u))),
    "u: zero": _of_u(np.zeros_like),
    "u: not a number": _of_u(_at_largest(lambda value: np.nan)),
    "u: an entry is missing": _of_u(_at_largest(lambda value: 0.0)),
    "u: an entry far outside": _of_u(_at_largest(lambda value: 1e3 * value)),
    "u: twice": _of_u(lambda u: 2.0 * u),
    "u: weights forgotten": _of_u(np.sign),
    "conjugate: none": _loss("conjugate", lambda value, given: 0.0),
    "conjugate: half": _loss("conjugate", lambda value, given: 0.5 * value),
    "conjugate: wrong sign": _loss("conjugate", lambda value, given: -value),
}


#: Here the prover reads another model than the one that is written, or trusts another formula. Near the best
#: model every other one is worse, and a wrong formula a contradiction; elsewhere nothing tells them apart.
NEAR_THE_BEST = (
    *("messages: centred", "another intercept", "one weight changed", "old weights", "conjugate: none"),
    *("conjugate: half", "conjugate: wrong sign"),
)


def _doubled(values):
    new = values.copy()
    new[::2] *= 2.0
    return new


#: A proof about another problem: false of the one that was fitted, which the references have to see.
SEEN_BY_REFERENCES = {
    "lambda halved": _of_problem(lam=lambda lam: 0.5 * lam),
    "lambda ten times": _of_problem(lam=lambda lam: 10.0 * lam),
    "sample weights changed": _of_problem(weight=_doubled),
    "offset changed": _of_problem(offset=lambda offset: offset + np.linspace(-2.0, 2.0, len(offset))),
}
