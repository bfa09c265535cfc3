"""What runs of both private modes hold: settings, engine, ledger, releases and accounts; fits of estimators.

Arrays have neither ids nor names, and the folds of a cross-validation share rows: all fits that are charged
to one ledger count as fits on the same rows, one account for features and one for labels, at the cost of the
party that pays most. Use separate ledgers for data that share no person.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock, FeatureBlock
from fastadmm.conversation.exchange import Driver, Talk, converse
from fastadmm.conversation.gate import GatedParty
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.privacy.accounts import ARRAYS, FEATURES, LABELS, Account, added
from fastadmm.privacy.ledger import Charge, Ledger, Spent, other_runs
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.public import label_payment, preparation_not_covered
from fastadmm.privacy.releases import Books, Payment, Releases, reserve
from fastadmm.privacy.statement import EXACT_WEIGHTS, PartyGuarantee, PrivacyStatement, state
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.solver import early_stopping
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.run import Run
from fastadmm.solver.solver import solve

#: Weights by party and intercept.
Model = tuple[list[np.ndarray], float]


class PrivateParty(GatedParty):
    """A party that charges what it draws to books of its own."""

    books: Books
    weights: np.ndarray
    stored: Releases
    planned: Callable[[], dict[str, list[Charge]]]  # what each of its releases costs, by its stored name

    def final_weights(self) -> np.ndarray:
        """The local model, of shape (d,)."""
        return self.weights

    def charges(self) -> list[Charge]:
        """What all of its releases cost, each once."""
        return [charge for charges in self.planned().values() for charge in charges]

    def missing(self) -> list[Charge]:
        """What is still to be charged: releases that were not drawn."""
        planned = self.planned().items()
        return [charge for name, charges in planned if not self.stored.holds(name) for charge in charges]

    def prepare(self) -> None:
        """Refuse a run that the ledger has no room for; what was drawn before a kill has its room."""
        self.books.payment(self.missing()).check()

    def spent(self) -> tuple[Spent, str]:
        """What this run has charged for the party's features, and why nothing is proved for them."""
        return self.books.ledger.spent(self.books.account, self.books.run), self.books.unproved

    def stated(
        self, guarantee: PartyGuarantee, seen: Mapping[str, str], not_covered: Sequence[str], weights: str
    ) -> PrivacyStatement:
        """What the run guarantees this party, which knows of no other."""
        tuning = other_runs(self.books.ledger, [self.books.account], self.books.settings)
        return state(self.books.settings, [guarantee], seen, not_covered, tuning, weights)


class PrivateRun(Run):
    """A private run; the same face as :class:`fastadmm.solver.solver.Solver`."""

    private = True
    driver: Driver
    settings: Any
    senders: Sequence[PrivateParty]  # of this process
    check: Callable[[], str]  # refuses what the theorems do not cover, before all else; who holds the labels
    begin: Callable[[Driver | None], None]  # makes the state, and the parties that are of this process
    ask_all: Callable[[], Talk[None]]  # asks every party once, and uses what it sends
    models: Callable[
        [list[np.ndarray], float], dict[str, Model]
    ]  # the result, and what sending nothing gives
    worse: str  # what is said where that is better than the result
    outside = ""  # what is said of a comparison that no guarantee covers
    _record: Callable[[], RoundRecord]

    def __init__(
        self,
        problem: Problem,
        options: SolverOptions,
        settings: DifferentialPrivacy,
        driver: Driver | None = None,
        *,
        ledger: Ledger | None = None,
        releases: Path | None = None,
        run: str = "run",
        data: Sequence[str] | None = None,
        unproved: dict[str, str] | None = None,
        accounts: Sequence[Account] | None = None,
        label_account: Account | None = None,
    ) -> None:
        self.problem, self.options, self.settings = problem, options, settings
        self.unproved = dict(unproved or {})
        holder = self.check()
        settings.check_samples(problem.n_samples)
        self.ledger, self.releases = ledger or Ledger(), Releases(releases)
        self.run, self.data = run, list(data or problem.names)
        self.accounts = list(accounts or [Account(name, name) for name in self.data])
        self.label_account = label_account or Account("labels", holder, LABELS)
        self.open = preparation_not_covered(settings, unproved)
        self.engine = Engine(options.n_threads)
        self.n_rounds, self.seconds = 0, 0.0
        self.last_record: RoundRecord | None = None
        self.begin(driver)

    def books(self, m: int) -> Books:
        """Of a party in this process: it has its own account, and the run's ledger and releases."""
        own, why = (self.accounts[m], self.data[m]), self.unproved.get(self.problem.names[m], "")
        noise, directory = lambda: self.noise_source(m), self.releases.directory
        return Books(self.settings, self.ledger, self.run, *own, directory, noise, why)

    def noise_source(self, m: int) -> NoiseSource:
        """A fresh source for party m's releases; audits put theirs in its place."""
        return NoiseSource(self.settings.sampler, self.settings.seed, m)

    def label_payment(self) -> Payment:
        """What randomised labels cost."""
        return label_payment(self.settings, self.ledger, self.run, self.label_account)

    def check_budget(self) -> None:
        """Refuse a new run that its ledger has no room for; nothing is set aside."""
        self._reserve([charge for sender in self.senders for charge in sender.charges()], labels=True)
        self.ledger.free()

    def set_aside(self) -> None:
        """Reserve what is missing before this process draws anything."""
        missing = [charge for sender in self.senders for charge in sender.missing()]
        self._reserve(missing, labels=not self.releases.holds("labels"))

    def _reserve(self, charges: Sequence[Charge], *, labels: bool) -> None:
        s = self.settings
        if s.sampler != "insecure_test":
            features = Payment(self.ledger, charges, s.budget, s.delta)
            reserve(self.ledger, [features, self.label_payment()] if labels else [features])

    def stated(
        self,
        parties: Sequence[PartyGuarantee],
        seen: Mapping[str, str],
        not_covered: Sequence[str],
        weights: str = EXACT_WEIGHTS,
    ) -> PrivacyStatement:
        """The statement of all parties, with what the ledger says of this run and of others."""
        tuning = other_runs(self.ledger, self.accounts, self.settings, self.label_account)
        settings, labels = self.settings, math.fsum(self.ledger.spent(self.label_account, self.run).pure)
        if settings.label_epsilon is not None and labels > settings.label_epsilon:
            settings = settings.with_(label_epsilon=labels)  # labels that were drawn twice cost twice
        return state(settings, parties, seen, not_covered, tuning, weights)

    def spent(self, m: int) -> tuple[Spent, str]:
        """What this run has charged for party m's features, and why nothing is proved for them."""
        why = self.unproved.get(self.problem.names[m], "")
        return self.ledger.spent(self.accounts[m], self.run), why

    def terms(self) -> dict[str, Any]:
        """What parties elsewhere are told when the run begins, beside what every run says."""
        return {}

    def round(self) -> RoundRecord:
        """Make a round: charge and collect what every party sends, and use it."""
        record = converse(self.next_round(), self.driver.carry)
        assert record is not None  # parties of this process answer at once
        return record

    def next_round(self) -> Talk[RoundRecord]:
        """The talk of :meth:`round`."""
        self.prepare()
        begin, most = time.perf_counter(), self.settings.exchanges
        if self.n_rounds >= most:
            raise ConfigError(f"privacy: all {most} rounds are spent; no further one is made")
        yield from self.ask_all()
        self.n_rounds += 1
        self.seconds += time.perf_counter() - begin
        self.last_record = self._record()
        return self.last_record

    def stop_reason(self, record: RoundRecord) -> Status | None:
        """As many rounds as are charged, no more and no fewer."""
        return Status.COMPLETED if self.n_rounds >= self.settings.exchanges else None

    def reason(self) -> str:
        """How many rounds there are."""
        return f"{self.settings.exchanges} private round(s)"

    def recorded(self, objective: float, weight_norms: list[float], **more: Any) -> RoundRecord:
        """What can be said of a round without exact messages: no certificate."""
        gaps = ("gap", "gap_absolute", "primal_residual", "dual_residual", "augmented_lagrangian", "lyapunov")
        values: dict[str, Any] = {**dict.fromkeys(gaps, math.inf), "penalty": None, **more}
        values |= {"objective": objective, "weight_norms": weight_norms}
        return RoundRecord(round=self.n_rounds, seconds=self.seconds, **values)

    def losses(self, models: Mapping[str, Model]) -> dict[str, float]:
        """Mean test loss of each; empty without a test set: one on the training rows would be a release."""
        test, of = self.problem.test, (self.problem.loss, self.engine)
        if test is None:
            return {}
        with self.engine.limited():
            scores = {name: early_stopping.predictor(test, *model, *of) for name, model in models.items()}
            return {name: early_stopping.mean_loss(test, z, *of) for name, z in scores.items()}

    def compare(self, weights: list[np.ndarray], intercept: float) -> dict[str, Any]:
        """The mean test loss beside what sending nothing gives, for ``result.json``, and what to say."""
        said: dict[str, Any] = {"test_loss": {}, "lines": [], "warnings": [], "covered": False}
        if self.problem.test is None:
            said["lines"].append("not compared with sending nothing: no test data (give --test)")
            return said
        losses = self.losses(self.models(weights, intercept))
        each = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
        said["lines"].append(f"test loss: {each}{self.outside}")
        own, *others = losses.values()
        if not own < min(others):
            said["warnings"].append(self.worse.format(own=own, best=min(others)))
        said["test_loss"] = {name: loss if math.isfinite(loss) else None for name, loss in losses.items()}
        return said

    def close(self) -> None:
        """Stop the threads; give back what was set aside and not drawn."""
        self.engine.close()
        self.ledger.free()


#: What a fit without a ledger says, and warns of.
UNCOUNTED = (
    "only this fit is counted: every other private fit on these rows adds to it, as do those of a search or "
    "of cross-validation; give a ledger to count them all"
)

_FEATURES = Account("", ARRAYS, FEATURES)
_LABELS = Account("", ARRAYS, LABELS)


def resolve_ledger(ledger: Any) -> Ledger | None:
    """The ledger that an estimator's parameter names."""
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, str | os.PathLike):
        return Ledger(Path(ledger))
    raise ConfigError(f"ledger: {ledger!r} is neither a path nor a fastadmm.privacy.ledger.Ledger")


def charge_fit(ledger: Ledger, solver: Any) -> None:
    """Charge all of a fit before it draws anything: ``docs/privacy.md#estimators-and-tuning``."""
    s, run = solver.settings, secrets.token_hex(8)
    if s.sampler == "insecure_test":
        return  # nothing is claimed, and nothing may be charged
    each = added(solver.senders[0].charges())  # every party sends the same, about columns of its own
    cost = {"gdp": each.gdp, "pure": math.fsum(each.pure), "rho": each.rho}
    payments = [
        Payment(ledger, [Charge.to(_FEATURES, run, "all releases of a fit", **cost)], s.budget, s.delta),
        label_payment(s, ledger, run, _LABELS),
    ]
    for payment in payments:
        payment.check()
    for payment in payments:
        payment.charge("")


def other_fits(ledger: Ledger, solver: Any) -> str:
    """What else the ledger has charged besides this fit, in words; empty for nothing."""
    return other_runs(ledger, [_FEATURES], solver.settings, _LABELS)


# --- the result without sending anything: the baseline that every private result has to beat
def fit_alone(problem: Problem, block: FeatureBlock, n_threads: int | None) -> tuple[np.ndarray, float]:
    """Weights of shape (d,) and intercept of a party that has the labels and nothing but its own block."""
    # Rounds of one direction, as anywhere: what it does must not depend on what one process may pool.
    options = SolverOptions(gap=1e-6, max_rounds=500, directions="one", n_threads=n_threads)
    one: dict[str, Any] = {"names": problem.names[:1], "test": None, "regularizers": [], "constraints": []}
    result = solve(replace(problem, blocks=[block], **one), options)
    return result.weights[0], result.intercept


def late_fusion(problem: Problem, n_threads: int | None = None) -> Model:
    """Train every party by itself on labels and its own block, and add up the models; nothing is sent."""
    found = [fit_alone(problem, block, n_threads) for block in problem.blocks]
    _, empty = fit_alone(problem, DenseBlock(np.zeros((problem.n_samples, 1))), n_threads)
    return [w for w, _ in found], sum(b for _, b in found) - (len(found) - 1) * empty
