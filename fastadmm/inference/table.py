"""The table that people read: one row per weight, tests per party, fit statistics and what they mean."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import plain
from fastadmm.files.escapes import printable
from fastadmm.inference.classes import order_of
from fastadmm.inference.estimate import Estimate, Fit, Test, estimate
from fastadmm.problem.problem import Problem

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Array = np.ndarray

#: What the coordinator's weight is called.
INTERCEPT = "intercept"

#: A distance from the optimum, in standard errors, that a reader should know of.
_FAR = 0.01

#: Characters of a line that nothing breaks.
_WIDE = 10_000


@dataclass(frozen=True, repr=False)
class Inference:
    """Standard errors, tests and fit statistics of a joint model."""

    estimate: Estimate
    parties: list[str]  # of each weight; the intercept's party is empty
    features: list[str]  # of each weight; the intercept's party is empty
    level: float  # of the confidence intervals
    tests: list[Test]  # all weights together where nothing is shrunk, then each party's weights
    notes: list[str]  # what to know when reading the table
    classes: list[str] | None = None

    @property
    def fit(self) -> Fit:
        """How well the model fits."""
        return self.estimate.fit

    @property
    def covariance(self) -> Array:
        """Of shape (p, p), in the order of the table."""
        return self.estimate.covariance

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The table by column: party, feature, weight, standard_error, statistic, p_value, low, high.

        With several classes also class. With every loss but the squared one also ratio, ratio_low and
        ratio_high: exp of weight and bounds.
        """
        own = self.estimate
        half = own.half_widths(self.level)
        table: dict[str, Any] = {
            "party": self.parties,
            "feature": self.features,
            **({} if self.classes is None else {"class": self.classes}),
            "weight": own.weights,
            "standard_error": own.standard_errors,
            "statistic": own.statistics(),
            "p_value": own.p_values(),
            "low": own.weights - half,
            "high": own.weights + half,
        }
        if own.family.ratio:
            with np.errstate(over="ignore"):
                for name, key in (("ratio", "weight"), ("ratio_low", "low"), ("ratio_high", "high")):
                    table[name] = np.exp(table[key])
        return table

    def to_frame(self) -> pd.DataFrame:
        """The table as a DataFrame, with columns as in :attr:`columns`."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON: ``weights``, ``tests``, ``fit``, ``level``, ``ratio`` and ``notes``."""
        names = list(self.columns)
        rows = zip(*(np.asarray(column).tolist() for column in self.columns.values()))
        return {
            "weights": [plain(dict(zip(names, row, strict=True))) for row in rows],
            "tests": [asdict(test) for test in self.tests],
            "fit": plain(asdict(self.fit)),
            "level": self.level,
            "ratio": self.estimate.family.ratio,
            "notes": self.notes,
        }

    def parts(self) -> list[Any]:
        """Tables of weights, tests and fit for a terminal, and the notes as sentences."""
        from rich.box import SIMPLE
        from rich.table import Table
        from rich.text import Text

        def headed(title: str, first: str, *others: str, **more: Any) -> Table:
            made = Table(title=title, box=SIMPLE, **more)
            made.add_column(first)
            for name in others:
                made.add_column(name, justify="right")
            return made

        ratio, t = self.estimate.family.ratio, "t" if self.estimate.family.has_dispersion else "z"
        title = f"weights with standard errors and {100 * self.level:g} % intervals"
        names = "feature", "weight", "error", t, "p", "low", "high", *([ratio] if ratio else [])
        weights = headed(title, *names, padding=(0, 0))
        table, last = self.columns, ""
        for k, (party, feature) in enumerate(zip(self.parties, self.features)):
            if party != last:
                weights.add_row(Text(printable(party), style="bold"))
                last = party
            cells = [f"{table[key][k]:.3g}" for key in ("weight", "standard_error")]
            cells += [f"{table['statistic'][k]:.2f}", _p(table["p_value"][k])]
            cells += [f"{table[key][k]:.3g}" for key in ("low", "high", *(["ratio"] if ratio else []))]
            shown = printable(feature)
            shown += "" if self.classes is None else f" [{printable(self.classes[k])}]"
            weights.add_row(Text(("  " if party else "") + shown), *cells)
        tests = headed("tests of weights being zero", "test", "statistic", "df", "p")
        for test in self.tests:
            df = ", ".join(f"{number:.4g}" for number in test.df)
            tests.add_row(Text(printable(test.name)), f"{test.statistic:.5g}", df, _p(test.p_value))
        fit = headed("fit", "figure", "value")
        for name, value in self.to_dict()["fit"].items():
            if value is not None:
                fit.add_row(name.replace("_", " "), f"{value:.6g}")
        return [weights, tests, fit, *(f"note: {note}" for note in self.notes)]

    def _printed(self) -> Console:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=_WIDE, highlight=False, markup=False)
        for part in self.parts():
            console.print(part)
        return console

    def summary(self) -> str:
        """The tables and notes as text; ``print`` and a notebook show the same."""
        return "\n".join(line.rstrip() for line in self._printed().export_text().strip("\n").split("\n"))

    __repr__ = summary

    def _repr_html_(self) -> str:
        return self._printed().export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def infer(
    problem: Problem,
    weights: Sequence[Array],
    intercept: Any,
    features: Sequence[str],
    covariance: str,
    level: float,
    threads: int | None,
    units: Array | None = None,
    classes: Sequence[str] = (),
) -> Inference:
    """Estimate standard errors, test each party's weights, and say what the numbers mean.

    Shapes: each of weights (d_m,) or (d_m, C); intercept (1,) or (C,); units (p, p).
    """
    check_level(level)
    own = [1.0] * len(weights) if problem.own_lambda is None else problem.own_lambda.factors
    called = [*map(repr, features)]
    mapping = np.diag([f for f, x in zip(own, weights) for _ in x] + [1.0] * problem.fit_intercept)
    mapping = mapping if units is None else units @ mapping
    with Engine(threads) as engine, engine.limited():
        scaled = [x / factor for x, factor in zip(weights, own, strict=True)]
        found = estimate(problem, scaled, intercept, engine, covariance, called)
    widths = [len(x) for x in weights]
    ends = np.cumsum([0, *widths])
    columns = {name: list(features[a:b]) for name, a, b in zip(problem.names, ends, ends[1:])}
    if not problem.loss.vector:
        return tabulate(found.mapped(mapping), columns, covariance, level)
    # Party by party, and within a party class by class.
    names = list(classes) or [f"class {c + 1}" for c in range(problem.n_outputs)]
    others, ones = names[1:], problem.fit_intercept
    order = order_of(widths, len(others), ones)
    found = found.mapped(np.kron(np.eye(len(others)), mapping)[order])
    table = tabulate(found, {name: own * len(others) for name, own in columns.items()}, covariance, level)
    whose = [name for d in [*widths, *[1] * ones] for name in others for _ in range(d)]
    notes = [f"weights of a class are less those of {names[0]}, the first class", *table.notes]
    return replace(table, classes=whose, notes=notes)


def check_level(level: float) -> None:
    """Refuse what is no level of a confidence interval."""
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level: {level!r} is not between 0 and 1")


def tabulate(
    found: Estimate, columns: Mapping[str, Sequence[str]], covariance: str, level: float
) -> Inference:
    """The table of an estimate, with a test for each party, and what to know when reading it."""
    tests = [] if found.overall is None else [found.overall]
    parties: list[str] = []
    for name, own in columns.items():
        tests.append(found.wald(f"Wald test of {name}", slice(len(parties), len(parties) + len(own))))
        parties += [name] * len(own)
    features = [name for own in columns.values() for name in own]
    notes = []
    if found.shrunk:
        notes.append(
            "the penalty shrinks the weights: intervals are about their expectation under shrinkage, not "
            "about unshrunk weights; df counts effective parameters, and there is no likelihood ratio test"
        )
    if covariance != "model":
        notes.append(f"standard errors are {covariance} (sandwich): they do not need the model's variances")
    if not found.distance <= _FAR:
        notes.append(
            f"the weights are up to {found.distance:.2g} standard errors from the optimum: train with a "
            "smaller gap"
        )
    extra = len(found.weights) - len(parties)
    return Inference(found, parties + [""] * extra, features + [INTERCEPT] * extra, level, tests, notes)


def _p(value: float) -> str:
    return "<1e-16" if value < 1e-16 else f"{value:.2g}"
