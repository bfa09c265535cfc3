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

from fastadmm.errors import ConfigError, PrivacyBudgetError
from fastadmm.privacy import game
from fastadmm.privacy.game import Check, Tap
from fastadmm.privacy.ledger import Ledger
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy

#: Records of the runs, and what their ledger allows in units of a run's budget.
_ROWS, _ROOM = 90, 20.0

#: A sum that is less by no more than this share is rounded.
ROUNDED = 1e-7


@dataclass(frozen=True)
class Cost:
    """What releases cost: mu of the Gaussian ones, epsilons of pure ones."""

    gdp: float = 0.0
    pure: tuple[float, ...] = ()

    def drawn(self, times: int) -> "Cost":
        """The same releases, drawn so often."""
        return Cost(math.sqrt(times) * self.gdp, times * self.pure)

    def epsilon(self, settings: DifferentialPrivacy) -> float:
        """By the audit's own formulas."""
        return game.epsilon_spent(self.gdp, settings.delta, self.pure, settings.sampler == "discrete")

    def too_little(self, who: str, spent: Any, settings: DifferentialPrivacy) -> str:
        """What a ledger holds too little of somebody's releases; empty for nothing."""
        symbols = f"charged by {who} for symbols", math.fsum(spent.pure), math.fsum(self.pure)
        epsilon = f"the ledger's epsilon of {who}", spent.epsilon(settings.delta), self.epsilon(settings)
        charged = [(f"mu charged by {who}", spent.total_gdp, self.gdp), symbols]
        return too_little(charged, ROUNDED) or too_little([epsilon], 1e-4)


def cost_of(tap: Tap, party: int | None, channels: Sequence[Any] = ()) -> Cost:
    """What a party's releases and symbols cost, as their noise and channels say; None for all releases."""
    gdp = math.hypot(0.0, *(r.level.gdp for r in tap.releases if party is None or r.party == party))
    return Cost(gdp, tuple(float(channel.epsilon) for channel in channels))


def too_little(pairs: Sequence[tuple[str, float, float]], rounding: float) -> str:
    """The first number that is less than what is due; empty for none."""
    short = (pair for pair in pairs if not pair[1] >= pair[2] * (1.0 - rounding))
    return next((f"{what}: {found:.4g}, {due:.4g} are due" for what, found, due in short), "")


def too_little_stated(statement: Any, settings: DifferentialPrivacy, costs: Sequence[Cost]) -> str:
    """What a statement says too little of; empty for nothing."""
    each = [cost.epsilon(settings) for cost in costs]
    joint = Cost(math.hypot(0.0, *(c.gdp for c in costs)), tuple(p for c in costs for p in c.pure))
    label, person = settings.label_epsilon or math.inf, math.inf
    if math.isfinite(label):
        person = Cost(joint.gdp, (*joint.pure, label)).epsilon(settings)
    pairs = [
        ("epsilon", statement.epsilon, max(each)),
        ("epsilon of a person in all parties", statement.joint_epsilon, joint.epsilon(settings)),
        ("label epsilon", statement.label_epsilon, label),
        ("epsilon with the label", statement.person_epsilon, person),
        *((f"epsilon of {p.name}", p.epsilon, e) for p, e in zip(statement.parties, each)),
    ]
    if wrong := too_little(pairs, 1e-4):
        return f"stated: {wrong}"
    if (statement.delta, statement.adjacency) != (settings.delta, settings.adjacency):
        return f"stated: delta {statement.delta!r} for {settings.delta!r}, {statement.adjacency}"
    return ""


class _Books:
    """Runs on one folder with one ledger, and what each party's releases cost in the first of them."""

    def __init__(self, settings: DifferentialPrivacy, folder: Path, ledger: str) -> None:
        self.settings, self.folder, self.file = settings, folder, folder / ledger
        n = game.many_rows(_ROWS, settings.delta)
        if settings.label_epsilon is not None:
            n = max(n, game.enough_labels(settings.label_epsilon))
        self.problem = game.problem_of(np.random.default_rng(7).normal(size=(3, n, 3)))
        self.costs: list[Cost] = []

    def run(self, run: str) -> tuple[Any, Tap, str]:
        """Make a run, and look after every exchange whether all that left is charged on disk."""
        late, tap = list[int](), Tap()

        def look() -> None:
            for m, account in enumerate(solver.accounts):
                if Ledger(self.file).spent(account, run).total_gdp < cost_of(tap, m).gdp * (1.0 - ROUNDED):
                    late.append(m)

        held: dict[str, Any] = {"ledger": Ledger(self.file), "messages": self.folder / "releases"}
        solver = game.made_run(self.settings, self.problem, look=look, run=run, **held)
        with contextlib.closing(solver), tap:
            for _ in range(self.settings.exchanges):
                solver.round()
        if not self.costs:
            sent = solver.messages if isinstance(self.settings, FusionPrivacy) else {}
            parties = range(self.problem.n_parties)
            self.costs = [cost_of(tap, m, [sent[m].channel] if m in sent else []) for m in parties]
        why = f"what party {late[0]} sent was not charged on disk when it left" if late else ""
        return solver, tap, why

    def forget(self) -> None:
        """Lose what was released."""
        shutil.rmtree(self.folder / "releases")

    def drawn(self, times: int) -> list[Cost]:
        """What each party's releases cost after so many draws of them."""
        return [cost.drawn(times) for cost in self.costs]

    def too_little_charged(self, solver: Any, run: str | None, times: int) -> str:
        """What the ledger says too little of; empty for nothing."""
        ledger, settings = Ledger(self.file), self.settings
        found, due = math.fsum(ledger.spent(solver.label_account, run).pure), settings.label_epsilon or 0.0
        wrong = too_little([("charged for labels", found, times * due)], ROUNDED)
        for m, (account, cost) in enumerate(zip(solver.accounts, self.drawn(times))):
            wrong = wrong or cost.too_little(f"party {m}", ledger.spent(account, run), settings)
        return wrong


def audit_books(settings: DifferentialPrivacy) -> list[Check]:
    """Recompute what runs cost; hold ledger and statement against it: ``docs/privacy.md#the-audit``."""
    settings = settings.with_(total_epsilon=_ROOM * settings.epsilon)
    label = settings.label_epsilon
    enough = 0 if label is None else game.enough_labels(label)
    if game.many_rows(enough, settings.delta) < enough:
        settings = settings.with_(label_epsilon=None)  # of so few records soft targets may have no mean
    with TemporaryDirectory() as folder:
        books = _Books(settings, Path(folder), "ledger.jsonl")
        first, _, late = books.run("first")
        charges = late or books.too_little_charged(first, "first", 1)
        stated = too_little_stated(first.statement(), settings, books.costs)
        again = _again(books, first) or _room(books) or _too_many(settings)
    return [
        game.exact_check(
            "charges against releases", charges, "every release is charged on disk before it is used"
        ),
        game.exact_check(
            "statement against releases", stated, "no epsilon stated is below what releases cost"
        ),
        game.exact_check("what is drawn or refused again", again, "nothing is drawn twice, or without room"),
    ]


def _again(books: _Books, first: Any) -> str:
    """A run begun again, drawn again, and a second run."""
    resumed, tap, _ = books.run("first")
    if tap.releases or tap.uniforms:
        return f"a run that is begun again draws {len(tap.releases)} releases once more"
    if differ := game.same_calls(first.driver.answers, resumed.driver.answers):
        return f"a run that is begun again gives another {differ}"
    if wrong := books.too_little_charged(first, "first", 1):
        return wrong
    books.forget()
    statement, twice = books.run("first")[0].statement(), books.settings
    if twice.label_epsilon is not None:
        twice = twice.with_(label_epsilon=2.0 * twice.label_epsilon)
    wrong = books.too_little_charged(first, "first", 2)
    if wrong := wrong or too_little_stated(statement, twice, books.drawn(2)):
        return f"drawn twice: {wrong}"
    books.forget()
    tuning = books.run("second")[0].statement().tuning
    if wrong := books.too_little_charged(first, None, 3):
        return f"after another run: {wrong}"
    told = max((float(text) for text in re.findall(r"together epsilon ([\d.]+)", tuning)), default=0.0)
    spent = max(cost.epsilon(books.settings) for cost in books.drawn(3))
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
    with contextlib.suppress(ConfigError):
        game.made_run(settings, game.problem_of([np.ones((n, 1))] * 2)).close()
        return f"a run on {n} records is not refused although delta is not below 1/N"
    return ""
