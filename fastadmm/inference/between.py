"""The coordinator's side of inference between parties: one talk of two exchanges, more for many columns.

It learns each party's columns up to a rotation, computes with these as with any columns, and tells each party
its own block: see :mod:`fastadmm.inference.party`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import linalg

from fastadmm.blocks.block import as_block
from fastadmm.conversation.exchange import Call, Exchange, Talk
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError
from fastadmm.inference.estimate import Estimate, check_inferable, estimate, ridge_of
from fastadmm.inference.party import about_text
from fastadmm.inference.table import Inference, tabulate
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Columns of a party that are asked for at a time, and bytes that these have at most.
_COLUMNS, _BYTES = 64, 1 << 30


@dataclass(frozen=True)
class Asked:
    """What is inferred between parties."""

    problem: Problem  # what the model was trained on; of its blocks the shapes are used
    intercept: float
    covariance: str
    level: float  # of the coordinator's confidence intervals


def batches(d: int, n_samples: int) -> list[tuple[int, int]]:
    """First and last column of each answer."""
    width = max(1, min(_COLUMNS, _BYTES // (8 * n_samples)))
    return [(first, min(first + width, d)) for first in range(0, d, width)]


def inferring(asked: Asked, engine: Engine) -> Talk[Inference]:
    """Standard errors between parties."""
    problem, covariance = asked.problem, asked.covariance
    if problem.n_outputs > 1 or problem.own_lambda is not None:
        raise ConfigError("inference between parties: for one lambda, and not for several classes")
    check_inferable(problem, covariance)
    ridge, n = ridge_of(problem), problem.n_samples
    widths = [block.shape[1] for block in problem.blocks]
    bases, weights = [np.empty((d, n)) for d in widths], [np.empty(d) for d in widths]
    todo = [batches(d, n) for d in widths]
    for k in range(max(map(len, todo))):
        asking = [(m, *own[k]) for m, own in enumerate(todo) if k < len(own)]
        answers = yield Exchange(
            [Call(m, "span", {"ridge": ridge, "first": i, "last": j}) for m, i, j in asking]
        )
        for (m, i, j), answer in zip(asking, answers, strict=True):
            if answer["basis"].shape != (j - i, n) or answer["weights"].shape != (j - i,):
                raise FormatError(f"{problem.names[m]}: answers with other columns than were asked for")
            bases[m][i:j], weights[m][i:j] = answer["basis"], answer["weights"]
    found = _estimate(problem, bases, weights, asked, ridge, engine)
    ends = np.cumsum([0, *widths])
    about = about_text(found, problem.loss.text, covariance)
    parts = [slice(a, b) for a, b in pairwise(ends)]
    own = [{"covariance": found.covariance[part, part].copy(), "step": found.step[part]} for part in parts]
    yield Exchange([Call(m, "learn", {"ridge": ridge, **each, "about": about}) for m, each in enumerate(own)])
    columns = {name: [""] * d for name, d in zip(problem.names, widths)}
    table = tabulate(found, columns, covariance, asked.level)
    last = slice(int(ends[-1]), None)
    return replace(
        table, estimate=found.part(last), parties=table.parties[last], features=table.features[last]
    )


def _estimate(
    problem: Problem,
    bases: Sequence[Array],
    weights: Sequence[Array],
    asked: Asked,
    ridge: float,
    engine: Engine,
) -> Estimate:
    """Estimate from the columns that the parties have shown; the penalty is what is left of I."""
    penalties = [np.eye(len(own)) - own @ own.T if ridge else np.zeros((len(own),) * 2) for own in bases]
    penalty = linalg.block_diag(*penalties, *[np.zeros((1, 1))] * problem.fit_intercept)
    shown = replace(problem, blocks=[as_block(np.ascontiguousarray(own.T)) for own in bases], test=None)
    names = [f"a column of {name}" for name, own in zip(problem.names, bases) for _ in own]
    return estimate(shown, weights, asked.intercept, engine, asked.covariance, names, penalty)
