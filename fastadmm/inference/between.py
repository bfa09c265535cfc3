r"""Inference between parties: one talk of two exchanges, more for many columns.

The coordinator learns each party's columns up to a rotation, computes with these as with any columns, and
tells each party its own block. With its columns D, their Gram matrix G and the penalty c of each weight, a
party answers with the columns of

.. math:: B = D R, \qquad R^\top (G + c I)\, R = I,

of all such R the one for which B'Ω is upper triangular with a positive diagonal; Ω are public random numbers.
So B is a function of D D' alone: a rotation of the party's columns changes none of its numbers. In return it
gets the covariance of R⁻¹x, from which it alone can make that of its weights x.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
from scipy import linalg

from fastadmm.blocks.block import FeatureBlock, as_block
from fastadmm.conversation.exchange import Call, Exchange, Talk
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, FormatError
from fastadmm.files.atomic import plain
from fastadmm.files.reading import json_of
from fastadmm.inference.estimate import (
    COVARIANCES,
    Estimate,
    Factor,
    Fit,
    Test,
    check_inferable,
    estimate,
    ridge_of,
)
from fastadmm.inference.likelihood import family_of
from fastadmm.inference.table import Inference, tabulate
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Of a party's confidence intervals.
LEVEL = 0.95

#: Columns that are spread out over the rows at a time.
_SPREAD = 32


@dataclass
class InferenceParty:
    """Answers the calls of the family "inference" of :data:`fastadmm.conversation.calls.CALLS`.

    Shapes: weights, units (d,); basis (d, d).
    """

    name: str
    block: FeatureBlock
    weights: Array
    features: Sequence[str]
    units: Array
    engine: Engine
    basis: Array | None = None
    found: Inference | None = None

    def answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Answer one call."""
        return self._span(**arguments) if name == "span" else self._learn(**arguments)

    def _span(self, ridge: float, first: int, last: int) -> dict[str, Any]:
        if not first < last <= len(self.weights):
            raise FormatError(f"call 'span': columns {first} to {last} of {len(self.weights)}")
        if self.basis is None:
            self.basis = _basis(self.block, ridge, self.features, self.engine)
        columns = self.block.matrix_product(np.ascontiguousarray(self.basis.T[first:last]), self.engine)
        return {"basis": columns, "weights": np.linalg.solve(self.basis, self.weights)[first:last]}

    def _learn(self, ridge: float, covariance: Array, step: Array, about: str) -> dict[str, Any]:
        del ridge  # which basis it is, the caller has looked at
        d = len(self.weights)
        if self.basis is None or covariance.shape != (d, d) or step.shape != (d,):
            raise FormatError(f"call 'learn': before call 'span', or not about {d} columns")
        found, kind = _told(about)
        covered = self.basis @ covariance @ self.basis.T
        covered, moved = 0.5 * (covered + covered.T), self.basis @ step
        with np.errstate(divide="ignore", invalid="ignore"):
            found["distance"] = float(np.max(np.abs(moved) / np.sqrt(np.diag(covered))))
        own = Estimate(weights=self.weights, covariance=covered, step=moved, **found)
        self.found = tabulate(own.mapped(np.diag(self.units)), {self.name: self.features}, kind, LEVEL)
        return {"done": True}


def _basis(block: FeatureBlock, ridge: float, features: Sequence[str], engine: Engine) -> Array:
    """R: of all that make B'B + ridge R'R = I, the one that depends on D D' alone."""
    n, d = block.shape
    gram = block.gram(engine) + ridge * np.eye(d)
    Factor(gram, [*map(repr, features)])
    scale = 1.0 / np.sqrt(np.diag(gram))
    values, vectors = np.linalg.eigh(gram * scale * scale[:, np.newaxis])
    basis = scale[:, np.newaxis] * vectors / np.sqrt(values)
    # Once more, with products of columns that are nearly orthogonal: as exact as these are.
    again, turned = ridge * basis.T @ basis, np.empty((d, d))
    for begin in range(0, d, _SPREAD):
        chosen = slice(begin, begin + _SPREAD)
        columns = block.matrix_product(np.ascontiguousarray(basis.T[chosen]), engine)
        again[chosen] += block.transposed_matrix_product(columns, engine) @ basis
    lower = np.linalg.cholesky(0.5 * (again + again.T))
    basis = linalg.solve_triangular(lower, basis.T, lower=True).T
    random = np.random.default_rng(0)
    for begin in range(0, d, _SPREAD):
        numbers = random.standard_normal((min(_SPREAD, d - begin), n))
        turned[:, begin : begin + len(numbers)] = (block.transposed_matrix_product(numbers, engine) @ basis).T
    rotation, upper = np.linalg.qr(turned)
    return np.asarray(basis @ (rotation * np.where(np.diag(upper) < 0.0, -1.0, 1.0)))


def about_text(found: Estimate, loss: str, covariance: str) -> str:
    """What everybody learns of a fit, as one line of JSON."""
    overall = None if found.overall is None else asdict(found.overall)
    told = {"loss": loss, "covariance": covariance, "shrunk": found.shrunk, "fit": asdict(found.fit)}
    return json.dumps(plain({**told, "overall": overall}), allow_nan=False)


def _told(about: str) -> tuple[dict[str, Any], str]:
    """The inverse: what an estimate holds beside weights, and the covariance."""
    try:
        told = json_of(about, foreign=True)
        family, kind, overall = family_of(parse_loss(told["loss"])), told["covariance"], told["overall"]
        figures: dict[str, Any] = {
            key: nan if value is None else float(value) for key, value in told["fit"].items()
        }
        figures["n"] = int(figures["n"])
        if told["fit"]["adjusted_r2"] is None:
            figures["adjusted_r2"] = None
        fit = Fit(**figures)
        test = None
        if overall is not None:
            p_value = nan if overall["p_value"] is None else float(overall["p_value"])
            df = tuple(map(float, overall["df"]))
            test = Test(str(overall["name"]), float(overall["statistic"]), df, p_value)
        if family is None or kind not in COVARIANCES or not fit.n - fit.df > 0.0:
            raise ValueError
        return {"family": family, "fit": fit, "overall": test, "shrunk": bool(told["shrunk"])}, kind
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, FastadmmError):
        raise FormatError("call 'learn': 'about' is no description of a fit") from None


#: Columns of a party that are asked for at a time, and bytes that these have at most.
_COLUMNS, _BYTES = 64, 1 << 30


def batches(d: int, n_samples: int) -> list[tuple[int, int]]:
    """First and last column of each answer."""
    width = max(1, min(_COLUMNS, _BYTES // (8 * n_samples)))
    return [(first, min(first + width, d)) for first in range(0, d, width)]


def inferring(
    problem: Problem, intercept: float, covariance: str, level: float, engine: Engine
) -> Talk[Inference]:
    """Standard errors between parties; of the blocks that the model was trained on the shapes are used.

    ``level``: of the coordinator's confidence intervals.
    """
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
    # The penalty is what is left of I.
    penalties = [np.eye(len(own)) - own @ own.T if ridge else np.zeros((len(own),) * 2) for own in bases]
    penalty = linalg.block_diag(*penalties, *[np.zeros((1, 1))] * problem.fit_intercept)
    shown = replace(problem, blocks=[as_block(np.ascontiguousarray(own.T)) for own in bases], test=None)
    names = [f"a column of {name}" for name, own in zip(problem.names, bases) for _ in own]
    found = estimate(shown, weights, intercept, engine, covariance, names, penalty)
    ends = np.cumsum([0, *widths])
    about = about_text(found, problem.loss.text, covariance)
    parts = [slice(a, b) for a, b in pairwise(ends)]
    all_learn = {"ridge": ridge, "about": about}
    each = [{"covariance": found.covariance[part, part].copy(), "step": found.step[part]} for part in parts]
    yield Exchange([Call(m, "learn", {**all_learn, **own}) for m, own in enumerate(each)])
    columns = {name: [""] * d for name, d in zip(problem.names, widths)}
    table = tabulate(found, columns, covariance, level)
    last = slice(int(ends[-1]), None)
    return replace(
        table, estimate=found.part(last), parties=table.parties[last], features=table.features[last]
    )
