"""The audit of the books: what was charged and what is stated, against the releases that were made.

Each release says what noise it was given for which distance; by the audit's own formulas these add up to an
epsilon, and neither ledger nor statement may say less.
"""

import contextlib
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.errors import ConfigError, PrivacyBudgetError
from fastadmm.privacy import ledger as ledgers
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.noise_tests import Check, exact_check
from fastadmm.privacy.transcript import Tap, enough_labels, epsilon_spent, made_run, many_rows, same_calls
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy

#: Looked up when it is called, as a run does.
_LEDGERS: Any = ledgers

#: Records of the runs, and what their ledger allows in units of a run's budget.
_ROWS, _ROOM = 90, 20.0

#: A sum that is less by no more than this share is rounded.
ROUNDED = 1e-7


@dataclass(frozen=True)
class Cost:
    """What releases cost: mu of the Gaussian ones, epsilons of pure ones."""

    gdp: float
    pure: tuple[float, ...] = ()

    def drawn(self, times: int) -> "Cost":
        """The same releases, drawn so often."""
        return Cost(math.sqrt(times) * self.gdp, times * self.pure)


@dataclass
class _Made:
    """A run that was made."""

    solver: Any
    tap: Tap
    late: str


class _Books:
    """Runs on one folder with one ledger."""

    def __init__(self, settings: DifferentialPrivacy, folder: Path, ledger: str) -> None:
        self.settings, self.folder, self.file = settings, folder, folder / ledger
        n = many_rows(_ROWS, settings.delta)
        if settings.label_epsilon is not None:
            n = max(n, enough_labels(settings.label_epsilon))
        blocks = np.random.default_rng(7).normal(size=(3, n, 3))
        y = (np.arange(n) % 2).astype(np.float64)
        self.problem = make_problem(list(map(DenseBlock, blocks)), y, lam=0.1)

    def run(self, run: str) -> _Made:
        """Make a run, and look after every exchange whether all that left is charged on disk."""
        late, tap = list[str](), Tap()

        def look() -> None:
            for m, account in enumerate(solver.accounts):
                if self.charged(account, run).total_gdp < self.cost(tap, m).gdp * (1.0 - ROUNDED):
                    late.append(f"what party {m} sent was not charged on disk when it left")

        held, kept = _LEDGERS.Ledger(self.file), self.folder / "releases"
        solver = made_run(self.settings, self.problem, look=look, run=run, ledger=held, messages=kept)
        with contextlib.closing(solver), tap:
            for _ in range(self.settings.exchanges):
                solver.round()
        return _Made(solver, tap, late[0] if late else "")

    def forget(self) -> None:
        """Lose what was released."""
        shutil.rmtree(self.folder / "releases")

    def cost(self, tap: Tap, party: int, solver: Any = None) -> Cost:
        """What a party's releases cost, as their noise says."""
        gdp = math.hypot(0.0, *(r.level.gdp for r in tap.releases if r.party == party))
        sent = {} if solver is None or not any(d.party == party for d in tap.uniforms) else solver.messages
        return Cost(gdp, (sent[party].channel.epsilon,) if party in sent else ())

    def costs(self, made: _Made, times: int) -> list[Cost]:
        """What each party's releases cost after so many draws of them."""
        parties = range(self.problem.n_parties)
        return [self.cost(made.tap, m, made.solver).drawn(times) for m in parties]

    def epsilon(self, cost: Cost) -> float:
        """By the audit's own formulas."""
        s = self.settings
        return epsilon_spent(cost.gdp, s.delta, cost.pure, s.sampler == "discrete")

    def charged(self, account: Account, run: str | None = None) -> Any:
        """What the ledger's file says."""
        return _LEDGERS.Ledger(self.file).spent(account, run)

    def too_little_charged(self, made: _Made, run: str | None, times: int) -> str:
        """What the ledger says too little of; empty for nothing."""
        labels, charges, sums = self.settings.label_epsilon, [], []
        for m, cost in enumerate(self.costs(made, times)):
            spent = self.charged(made.solver.accounts[m], run)
            charges += charges_of(f"party {m}", spent, cost)
            found = spent.epsilon(self.settings.delta)
            sums.append((f"the ledger's epsilon of party {m}", found, self.epsilon(cost)))
        if labels is not None:
            found = math.fsum(self.charged(made.solver.label_account, run).pure)
            charges.append(("charged for labels", found, times * labels))
        return too_little(charges, ROUNDED) or too_little(sums, 1e-4)


def audit_books(settings: DifferentialPrivacy) -> list[Check]:
    """Recompute what runs cost; hold ledger and statement against it: ``docs/privacy.md#the-audit``."""
    settings = settings.with_(total_epsilon=_ROOM * settings.epsilon)
    label = settings.label_epsilon
    if label is not None and many_rows(enough_labels(label), settings.delta) < enough_labels(label):
        settings = settings.with_(label_epsilon=None)  # of so few records soft targets may have no mean
    with TemporaryDirectory() as folder:
        books = _Books(settings, Path(folder), "ledger.jsonl")
        first = books.run("first")
        charges = first.late or books.too_little_charged(first, "first", 1)
        stated = too_little_stated(first.solver.statement(), settings, books.costs(first, 1))
        again = _again(books, first) or _room(books) or _too_many(settings)
    return [
        exact_check(
            "charges against releases", charges, "every release is charged on disk before it is used"
        ),
        exact_check("statement against releases", stated, "no epsilon stated is below what releases cost"),
        exact_check("what is drawn or refused again", again, "nothing is drawn twice, or without room"),
    ]


def too_little(pairs: Sequence[tuple[str, float, float]], rounding: float) -> str:
    """The first number that is less than what is due; empty for none."""
    short = (pair for pair in pairs if not pair[1] >= pair[2] * (1.0 - rounding))
    return next((f"{what}: {found:.4g}, {due:.4g} are due" for what, found, due in short), "")


def charges_of(who: str, spent: Any, cost: Cost) -> list[tuple[str, float, float]]:
    """What a ledger holds of somebody's releases, and what they cost."""
    return [
        (f"mu charged by {who}", spent.total_gdp, cost.gdp),
        (f"charged by {who} for symbols", math.fsum(spent.pure), math.fsum(cost.pure)),
    ]


def too_little_stated(statement: Any, settings: DifferentialPrivacy, costs: Sequence[Cost]) -> str:
    """What a statement says too little of; empty for nothing."""
    delta, discrete = settings.delta, settings.sampler == "discrete"

    def epsilon(gdp: float, pure: Sequence[float]) -> float:
        return epsilon_spent(gdp, delta, pure, discrete)

    each = [epsilon(cost.gdp, cost.pure) for cost in costs]
    gdp, pure = math.hypot(0.0, *(c.gdp for c in costs)), [p for c in costs for p in c.pure]
    label = math.inf if settings.label_epsilon is None else settings.label_epsilon
    person = math.inf if math.isinf(label) else epsilon(gdp, [*pure, label])
    pairs = [
        ("epsilon", statement.epsilon, max(each)),
        ("epsilon of a person in all parties", statement.joint_epsilon, epsilon(gdp, pure)),
        ("label epsilon", statement.label_epsilon, label),
        ("epsilon with the label", statement.person_epsilon, person),
        *((f"epsilon of {p.name}", p.epsilon, e) for p, e in zip(statement.parties, each)),
    ]
    if wrong := too_little(pairs, 1e-4):
        return f"stated: {wrong}"
    if (statement.delta, statement.adjacency) != (delta, settings.adjacency):
        return f"stated: delta {statement.delta!r} for {delta!r}, {statement.adjacency}"
    return ""


def _again(books: _Books, first: _Made) -> str:
    """A run begun again, drawn again, and a second run."""
    resumed = books.run("first")
    if resumed.tap.releases or resumed.tap.uniforms:
        return f"a run that is begun again draws {len(resumed.tap.releases)} releases once more"
    if differ := same_calls(first.solver.driver.answers, resumed.solver.driver.answers):
        return f"a run that is begun again gives another {differ}"
    if wrong := books.too_little_charged(first, "first", 1):
        return wrong
    books.forget()
    statement, twice = books.run("first").solver.statement(), books.settings
    if twice.label_epsilon is not None:
        twice = twice.with_(label_epsilon=2.0 * twice.label_epsilon)
    wrong = books.too_little_charged(first, "first", 2)
    if wrong := wrong or too_little_stated(statement, twice, books.costs(first, 2)):
        return f"drawn twice: {wrong}"
    books.forget()
    tuning = books.run("second").solver.statement().tuning
    if wrong := books.too_little_charged(first, None, 3):
        return f"after another run: {wrong}"
    told = max((float(text) for text in re.findall(r"epsilon ([\d.]+) at", tuning)), default=0.0)
    spent = max(map(books.epsilon, books.costs(first, 3)))
    return too_little([("epsilon of all runs in the ledger, as stated", told, spent)], 1e-4)


def _room(books: _Books) -> str:
    """A ledger with room for one run: a second one is refused before it draws."""
    books.forget()
    small = _Books(books.settings.with_(total_epsilon=None), books.folder, "small.jsonl")
    small.run("first")
    small.forget()
    with Tap() as tap, contextlib.suppress(PrivacyBudgetError):
        small.run("second")
        return "a run is not refused although the ledger has no room for it"
    drawn = len(tap.releases) + len(tap.uniforms)
    return f"a run that is refused has drawn {drawn} releases before" if drawn else ""


def _too_many(settings: DifferentialPrivacy) -> str:
    """As many records as delta no longer covers: the run is refused."""
    n = math.ceil(1.0 / settings.delta)
    if n > 300_000:
        return ""
    y = (np.arange(n) % 2).astype(np.float64)
    with contextlib.suppress(ConfigError):
        made_run(settings, make_problem([DenseBlock(np.ones((n, 1)))] * 2, y, lam=0.1)).close()
        return f"a run on {n} records is not refused although delta is not below 1/N"
    return ""
