"""The audit of the books: what was charged and what is stated, against the releases that were made.

Each release says what noise it was given for which distance; by the audit's own formulas these add up to an
epsilon, and neither ledger nor statement may say less.
"""

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
from fastadmm.privacy import message
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.noise_tests import Check, exact_check
from fastadmm.privacy.transcript import (
    Tap,
    enough_labels,
    epsilon_spent,
    made_run,
    many_rows,
    same_calls,
)
from fastadmm.problem.problem import make_problem
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.solver.options import SolverOptions

#: Looked up when they are called, as a run does.
_MODES: Any = message
_LEDGERS: Any = ledgers

#: Records of the runs, and what their ledger allows in units of a run's budget.
_ROWS, _ROOM = 90, 20.0

#: A sum that is less by no more than this share is rounded.
ROUNDED = 1e-7


@dataclass(frozen=True)
class Cost:
    """What releases cost: mu of the Gaussian ones, epsilons of pure ones."""

    gdp: float
    pure: tuple[float, ...]


@dataclass
class _Made:
    """A run that was made."""

    solver: Any
    tap: Tap
    late: str


class _Books:
    """Runs on one folder with one ledger."""

    def __init__(self, settings: DifferentialPrivacy, folder: Path) -> None:
        self.settings, self.folder, self.file = settings, folder, folder / "ledger.jsonl"
        n = many_rows(_ROWS, settings.delta)
        if settings.label_epsilon is not None:
            n = max(n, enough_labels(settings.label_epsilon))
        rng = np.random.default_rng(7)
        blocks = [DenseBlock(rng.normal(size=(n, 3))) for _ in range(3)]
        self.problem = make_problem(blocks, (np.arange(n) % 2).astype(np.float64), lam=0.1)
        self.discrete = settings.sampler == "discrete"

    def run(self, run: str, path: str = "solver") -> _Made:
        """Make a run, and look after every exchange whether all that left is charged on disk."""
        late, tap = list[str](), Tap()

        def look() -> None:
            for m, account in enumerate(solver.accounts if path == "solver" else ()):
                if self.charged(account, run).total_gdp < self.cost(tap, m).gdp * (1.0 - ROUNDED):
                    late.append(f"what party {m} sent was not charged on disk when it left")

        options, held = SolverOptions(n_threads=1), _LEDGERS.Ledger(self.file)
        solver = made_run(self.settings, self.problem, options, path, look, self.folder, run, ledger=held)
        try:
            with tap:
                for _ in range(self.settings.exchanges):
                    solver.round()
        finally:
            solver.close()
        return _Made(solver, tap, late[0] if late else "")

    def cost(self, tap: Tap, party: int, solver: Any = None) -> Cost:
        """What a party's releases cost, as their noise says."""
        gdp = math.hypot(
            0.0, *(r.level.sensitivity / r.level.sigma for r in tap.releases if r.party == party)
        )
        symbols = any(d.party == party for d in tap.uniforms)
        pure: tuple[float, ...] = ()
        if symbols and solver is not None and party in solver.messages:
            pure = (solver.messages[party].channel.epsilon,)
        return Cost(gdp, pure)

    def epsilon(self, cost: Cost) -> float:
        """By the audit's own formulas."""
        return epsilon_spent(cost.gdp, self.settings.delta, cost.pure, self.discrete)

    def charged(self, account: Account, run: str | None = None) -> Any:
        """What the ledger's file says."""
        return _LEDGERS.Ledger(self.file).spent(account, run)


def audit_books(settings: DifferentialPrivacy) -> list[Check]:
    """Recompute what runs cost; hold ledger and statement against it: ``docs/privacy.md#the-audit``."""
    settings = settings.of_any_parties().with_(total_epsilon=_ROOM * settings.epsilon)
    label = settings.label_epsilon
    if label is not None and many_rows(enough_labels(label), settings.delta) < enough_labels(label):
        settings = settings.with_(label_epsilon=None)  # of so few records soft targets may have no mean
    with TemporaryDirectory() as folder:
        books = _Books(settings, Path(folder))
        first = books.run("first")
        charges = (
            first.late
            or _too_little_charged(books, first, "first", 1)
            or _of_agents(settings, Path(folder) / "agents")
        )
        stated = too_little_stated(first.solver.statement(), settings, _costs(books, first, 1))
        again = _again(books, first)
    return [
        exact_check(
            "charges against releases", charges, "every release is charged on disk before it is used"
        ),
        exact_check("statement against releases", stated, "no epsilon stated is below what releases cost"),
        exact_check("what is drawn or refused again", again, "nothing is drawn twice, or without room"),
    ]


def _costs(books: _Books, made: _Made, times: int) -> list[Cost]:
    """What each party's releases cost after so many draws of them."""
    one = [books.cost(made.tap, m, made.solver) for m in range(books.problem.n_parties)]
    return [Cost(math.sqrt(times) * c.gdp, times * c.pure) for c in one]


def too_little(pairs: Sequence[tuple[str, float, float]], rounding: float) -> str:
    """The first number that is less than what is due; empty for none."""
    return next(
        (
            f"{what}: {found:.4g}, {due:.4g} are due"
            for what, found, due in pairs
            if not found >= due * (1.0 - rounding)
        ),
        "",
    )


def _too_little_charged(books: _Books, made: _Made, run: str | None, times: int) -> str:
    """What the ledger says too little of; empty for nothing."""
    delta, labels = books.settings.delta, books.settings.label_epsilon
    charges, sums = [], []
    for m, cost in enumerate(_costs(books, made, times)):
        spent = books.charged(made.solver.accounts[m], run)
        charges += charges_of(f"party {m}", spent, cost)
        sums.append((f"the ledger's epsilon of party {m}", spent.epsilon(delta), books.epsilon(cost)))
    if labels is not None:
        found = math.fsum(books.charged(made.solver.label_account, run).pure)
        charges.append(("charged for labels", found, times * labels))
    return too_little(charges, ROUNDED) or too_little(sums, 1e-4)


def charges_of(who: str, spent: Any, cost: Cost) -> list[tuple[str, float, float]]:
    """What a ledger holds of somebody's releases, and what they cost."""
    return [
        (f"mu charged by {who}", spent.total_gdp, cost.gdp),
        (f"charged by {who} for symbols", math.fsum(spent.pure), math.fsum(cost.pure)),
    ]


def too_little_stated(statement: Any, settings: DifferentialPrivacy, costs: Sequence[Any]) -> str:
    """What a statement says too little of; empty for nothing."""
    delta, discrete = settings.delta, settings.sampler == "discrete"

    def epsilon(gdp: float, pure: Sequence[float]) -> float:
        return epsilon_spent(gdp, delta, pure, discrete)

    each = [epsilon(cost.gdp, cost.pure) for cost in costs]
    gdp, pure = math.hypot(0.0, *(c.gdp for c in costs)), [p for c in costs for p in c.pure]
    label = math.inf if settings.label_epsilon is None else settings.label_epsilon
    joint = epsilon(gdp, pure)
    person = math.inf if math.isinf(label) else epsilon(gdp, [*pure, label])
    pairs = [
        ("epsilon per party", statement.epsilon, max(each, default=0.0)),
        ("epsilon of a person in all parties", statement.joint_epsilon, joint),
        ("label epsilon", statement.label_epsilon, label),
        ("epsilon with the label", statement.person_epsilon, person),
    ]
    pairs += [(f"epsilon of {p.name}", p.epsilon, e) for p, e in zip(statement.parties, each)]
    if wrong := too_little(pairs + _written(statement), 1e-4):
        return f"stated: {wrong}"
    if statement.delta != delta or statement.adjacency != settings.adjacency:
        return (
            f"delta {statement.delta!r}, {statement.adjacency} are stated for {delta!r}, {settings.adjacency}"
        )
    return ""


def _written(statement: Any) -> list[tuple[str, float, float]]:
    """Numbers in the texts of a statement, and what they stand for: they are rounded up."""
    text = "\n".join([statement.one_line(), *(f"{row}: {cell}" for row, cell in statement.table())])
    patterns = {
        r"epsilon = ([\d.]+) at": statement.epsilon,
        r"^epsilon per party: ([\d.]+)$": statement.epsilon,
        r"([\d.]+) for a person in all": statement.joint_epsilon,
        r"^epsilon, one person in all parties: ([\d.]+)$": statement.joint_epsilon,
        r"label epsilon = ([\d.]+)": statement.label_epsilon,
        r"^label epsilon: ([\d.]+)$": statement.label_epsilon,
    }
    return [
        (f"in words, {pattern}", float(found[1]) * (1.0 + 1e-4), due)
        for pattern, due in patterns.items()
        if math.isfinite(due) and (found := re.search(pattern, text, re.MULTILINE))
    ]


def _of_agents(settings: DifferentialPrivacy, folder: Path) -> str:
    """The same for parties that answer as agents do, each with a ledger of its own."""
    folder.mkdir()
    books = _Books(settings, folder)
    made = books.run("agents", "agent")
    for m, party in made.solver.driver.inner.parties.items():
        cost = books.cost(made.tap, m, made.solver)
        spent = _LEDGERS.Ledger(folder / f"ledger-{m}").spent(party.books.account, "agents")
        stated = f"epsilon stated by agent {m}", party.statement().epsilon, books.epsilon(cost)
        if wrong := too_little(charges_of(f"agent {m}", spent, cost), ROUNDED) or too_little([stated], 1e-4):
            return wrong
        if not cost.gdp > 0.0:
            return f"agent {m} drew no noise"
    return ""


def _again(books: _Books, first: _Made) -> str:
    """A run begun again, drawn again, a second run, and one that there is no room for."""
    resumed = books.run("first")
    if resumed.tap.releases or resumed.tap.uniforms:
        return f"a run that is begun again draws {len(resumed.tap.releases)} releases once more"
    if differ := same_calls(first.solver.driver.answers, resumed.solver.driver.answers):
        return f"a run that is begun again gives another {differ}"
    if wrong := _too_little_charged(books, first, "first", 1):
        return wrong
    shutil.rmtree(books.folder / "releases")
    statement, twice = books.run("first").solver.statement(), books.settings
    if twice.label_epsilon is not None:
        twice = twice.with_(label_epsilon=2.0 * twice.label_epsilon)
    wrong = _too_little_charged(books, first, "first", 2)
    if wrong := wrong or too_little_stated(statement, twice, _costs(books, first, 2)):
        return f"drawn twice: {wrong}"
    shutil.rmtree(books.folder / "releases")
    tuning = books.run("second").solver.statement().tuning
    if wrong := _too_little_charged(books, first, None, 3):
        return f"after another run: {wrong}"
    told = max((float(text) for text in re.findall(r"epsilon ([\d.]+) at", tuning)), default=0.0)
    spent = max(map(books.epsilon, _costs(books, first, 3)))
    return too_little([("epsilon of all runs in the ledger, as stated", told, spent)], 1e-4) or _room(books)


def _room(books: _Books) -> str:
    """A ledger with room for one run: a second one is refused before it draws."""
    shutil.rmtree(books.folder / "releases")
    small = _Books(books.settings.with_(total_epsilon=None), books.folder)
    small.file = books.folder / "small.jsonl"
    small.run("first")
    shutil.rmtree(books.folder / "releases")
    with Tap() as tap:
        try:
            small.run("second")
        except PrivacyBudgetError:
            pass
        else:
            return "a run is not refused although the ledger has no room for it"
    if tap.releases or tap.uniforms:
        return f"a run that is refused has drawn {len(tap.releases)} releases before"
    n = math.ceil(1.0 / books.settings.delta)
    if n > 300_000:
        return ""
    many = make_problem([DenseBlock(np.ones((n, 1)))] * 2, (np.arange(n) % 2).astype(np.float64), lam=0.1)
    try:
        _MODES.private_solver(many, SolverOptions(n_threads=1), books.settings).close()
    except ConfigError:
        return ""
    return f"a run on {n} records is not refused although delta is not below 1/N"
