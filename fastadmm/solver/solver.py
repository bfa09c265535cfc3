"""The solver loop: rounds until the duality gap certifies the model."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Driver, Pace, Talk, Threads, Traffic, converse
from fastadmm.coordinator.divergence import DivergenceDetector
from fastadmm.coordinator.final_proof import prove_elsewhere
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.reading import json_of
from fastadmm.method.certificate import LowerBound
from fastadmm.method.method import with_rows
from fastadmm.problem.bounded_models import DEVIATIONS
from fastadmm.problem.centring import Centring, centring_of
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.proof.claim import Claim, Proof, exported, restored
from fastadmm.proof.prove import prove
from fastadmm.schemes.registry import choose_scheme
from fastadmm.solver.early_stopping import EarlyStopping, ValidationWatch, mean_loss, predictor, predictor_of
from fastadmm.solver.ending import describe_end, pooled_hint, program_line
from fastadmm.solver.history import KeptModel, LowestModel, RoundRecord, Status
from fastadmm.solver.loop import Attempts, SolveResult, run_rounds, told_by
from fastadmm.solver.metrics import quick_of
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.refined_dual import refined_dual
from fastadmm.solver.run import Run
from fastadmm.solver.warm_start import StartingPoint, begin_at, check_start

__all__ = ["Solver", "SolverOptions", "least_of", "solve"]

#: Why one round over all columns is not what was asked for.
SUMS_HAVE_NO_TEST = "secrecy: 'sums' has no test or validation rows; evaluate the model afterwards"

_NOT_APART = (
    "has one round, and early stopping chooses among the models of many",
    "needs all columns in one process, and the parties' are in others",
)

#: What a round's record has as the method measured it.
_AS_MEASURED = "primal_residual", "dual_residual", "lyapunov", "penalty", "accelerated", "stationarity"

#: A gap this small against the objective is rounding.
_ROUNDING = 1e-13

#: What the wanted gap of rounds is multiplied by if the proof finds less than they claimed.
_TIGHTER = 0.25

#: A saved objective and one computed from the saved weights differ by less than this share of the start's:
#: messages in single precision bound it from above.
_RESTORED = 1e-4


class Solver(Run):
    """A run in progress, one round at a time."""

    def __init__(
        self,
        problem: Problem,
        options: SolverOptions | None = None,
        engine: Engine | None = None,
        start: StartingPoint | None = None,
        early: EarlyStopping | None = None,
        driver: Driver | None = None,
    ) -> None:
        self.options = options or SolverOptions()
        self.engine = engine or Engine(self.options.n_threads)
        self.centring: Centring | None = centring_of(problem, self.engine) if driver is None else None
        if self.centring is not None:
            problem = self.centring.problem(problem)
            if early is not None:
                early = replace(early, rows=self.centring.rows(early.rows))
            if start is not None:
                start = replace(start, intercept=self._shifted(start.weights, start.intercept, 1.0))
        self.problem = problem
        self.watch = None if early is None else ValidationWatch(early, problem)
        self.lowest: LowestModel | None = None
        self.start = None if start is None else check_start(start, problem)
        self.sums_only = self.options.secrecy == "sums"
        if self.sums_only and (early is not None or problem.test is not None):
            raise ConfigError(SUMS_HAVE_NO_TEST)
        apart = early is not None or self.engine.shares_rows or (driver is not None and not driver.local)
        self.scheme, self._reason = choose_scheme(self.options, problem.traits, apart)
        if self.options.scheme == "pooled" and apart:
            raise ConfigError(f"scheme: 'pooled' {_NOT_APART[early is None]}; choose 'auto'")
        if not self.scheme.takes(problem, self.engine):  # what is not pooled is done as among parties
            as_parties = replace(self.options, scheme="auto")
            self.scheme, self._reason = choose_scheme(as_parties, problem.traits, apart=True)
        self._pooled = "pooled" in (self.options.scheme, self.scheme.name)
        self.method = self.scheme.make(problem, self.options, self.engine)
        if early is not None:
            self.method.take_many_rounds()
        if early is None and problem.convex and not self.method.descends:
            self.lowest = LowestModel()
        self.traffic: Traffic | None = None
        if not self._pooled:  # where nothing is exchanged
            sizes = problem.n_parties, problem.n_samples, problem.n_outputs
            self.traffic = Traffic(*sizes, proves=problem.convex)
        self.driver: Driver = driver or Threads(self.engine, self.method.parties, self.traffic)
        if driver is None:
            others = {"test": problem.test, "validation": None if early is None else early.rows}
            for m, party in enumerate(self.method.parties):
                party.other_rows = {name: rows.blocks[m] for name, rows in others.items() if rows is not None}
        # No model can be below the loss's own least value: regularisers are not negative.
        self.bound = LowerBound(self._least() / problem.total_weight if problem.convex else -math.inf)
        self.divergence = DivergenceDetector(math.inf, self.method.convergent)
        self.n_rounds = 0
        self.seconds = 0.0
        self.prepared = False
        self.diverged = False
        self.last_record: RoundRecord | None = None
        self.attempts = Attempts()
        self.proof: Proof | None = None
        self.proof_round = 0
        #: Of the model that is kept of an earlier round.
        self.kept_proof: Proof | None = None

    def _least(self) -> float:
        return least_of(self.problem, self.engine)

    @property
    def intercept(self) -> Any:
        """Exact minimiser of the intercept at the current weights; 0 where none is fitted."""
        weights = [] if self.centring is None else self.method.weights()
        return self._shifted(weights, self.method.intercept, -1.0)

    def _shifted(self, weights: Sequence[np.ndarray], intercept: Any, sign: float) -> Any:
        """The intercept for centred columns, of a model of the columns themselves (1), or back (-1)."""
        return intercept if self.centring is None else self.centring.shifted(weights, intercept, sign)

    @property
    def coordinator(self) -> Any:
        """What holds all shared state: the method."""
        return self.method

    @property
    def parties(self) -> Any:
        """The method's parties, in the problem's order."""
        return self.method.parties

    def prepare(self) -> None:
        """Factorise every party's block and evaluate the start; done once."""
        converse(self.preparing(), self.driver.carry)

    def round(self) -> RoundRecord:
        """Run one round and certify its result."""
        with self.engine.limited():  # once for all that a round does
            record = converse(self.next_round(), self.driver.carry)
        if record is None:
            raise RuntimeError("a party elsewhere has not answered: drive next_round() instead")
        return record

    def preparing(self, reopened: bool = False) -> Talk[None]:
        """The talk of :meth:`prepare`; nobody is asked where a run is ``reopened``."""
        if self.prepared:
            return
        with self._working():
            if self.driver.local:
                self.method.prepare_parties()
            loss = self.method.reopen() if reopened else (yield from self.method.prepare())
            if self.start is not None:
                begin_at(self.method, self.start, self.problem)
        self.divergence.start = loss / self.problem.total_weight
        self.prepared = True

    def next_round(self) -> Talk[RoundRecord]:
        """The talk of :meth:`round`."""
        yield from self.preparing()
        w = self.problem.total_weight
        with self._working():
            measured = yield from self.method.round()
            # In here: of long vectors, a BLAS with threads of its own would take milliseconds to wake them.
            norms = self.method.weight_norms()
            if self.problem.own_lambda is not None:
                norms = self.problem.own_lambda.original(norms)
            test, validation = None, None
            if self.problem.test is not None:
                z = yield from self._predictor("test", self.problem.test)
                test = quick_of(self.problem.loss, self.problem.test.y, z, self.problem.test.weight)
            if self.watch is not None:
                z = yield from self._predictor("validation", self.watch.rule.rows)
                validation = self.watch.value(z, self.engine)
        objective = measured.objective / w
        absolute, relative = self.bound.update(objective, measured.lower_bound / w)
        self.n_rounds += 1
        # Both residuals in one unit, that of the fixed-point residual.
        root = math.sqrt(measured.penalty or 1.0)
        residual = math.hypot(root * measured.primal_residual, measured.dual_residual / root)
        self.diverged = self.divergence.diverged(objective, residual)
        self.last_record = RoundRecord(
            round=self.n_rounds,
            seconds=self.seconds,
            objective=objective,
            gap=relative,
            gap_absolute=absolute,
            augmented_lagrangian=measured.augmented_lagrangian / w,
            weight_norms=norms,
            test=test,
            validation=validation,
            exchanges=0 if self.traffic is None else self.traffic.exchanges,
            **{name: getattr(measured, name) for name in _AS_MEASURED},
        )
        within = measured.bound_within / w
        if within > 0.0 and not self._proves_enough(self.last_record):
            self.last_record = replace(self.last_record, gap_within=max(objective - within, 0.0) / within)
        if self.method.proves_stationarity and not self.diverged:
            at_end = self.n_rounds >= self.options.max_rounds  # no clock decides on an exchange
            if at_end or (measured.stationarity or 0.0) <= self.options.stationarity:
                with self._working():
                    fresh = yield from self.method.fresh_stationarity()
                self.last_record = replace(self.last_record, stationarity=fresh)
        if self.watch is not None and not self.diverged:
            yield from self._take(self.watch)
        if self.problem.convex and not self.diverged and self._is_to_be_proved(self.last_record):
            with self._working():
                yield from self._prove_round(self.last_record)
        if self.lowest is not None:
            yield from self._take(self.lowest)
        return self.last_record

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Add what is done meanwhile, with one thread of BLAS, to the run's time."""
        begin = time.perf_counter()
        with self.engine.limited():
            yield
        self._spend(time.perf_counter() - begin)

    def _is_to_be_proved(self, record: RoundRecord) -> bool:
        """Whether a round is the last, as far as rounds know, or has a limit."""
        return self._is_due(record) or self._limit(record) is not None

    def _is_due(self, record: RoundRecord) -> bool:
        """Whether a proof decides how the run goes on after a round."""
        due = self._claims(record) and record.round >= self.attempts.due
        if not self.driver.local:  # one exchange: no clock decides, and what is kept is proved in the end
            return due or (self.n_rounds >= self.options.max_rounds and self._kept_round is None)
        return due

    def _claims(self, record: RoundRecord) -> bool:
        """Whether rounds have found what was asked for, or what double precision resolves of the start.

        Of an optimum of almost zero no relative accuracy can be reached: rounds do not end by themselves.
        """
        nothing = self.options.gap > 0.0 and record.gap_absolute <= _ROUNDING * self.divergence.start
        within = record.gap_within is not None and record.gap_within <= self.options.gap > 0.0
        if nothing or within or self._proves_enough(record):
            return True
        # A proof has the weights themselves, and nothing of messages' rounding.
        hidden = self.method.hidden / self.problem.total_weight
        absolute, relative = self.bound.update(record.objective - hidden, -math.inf)
        return 0.0 < hidden < math.inf and self._proves_enough(
            replace(record, gap=relative, gap_absolute=absolute)
        )

    def _prove_round(self, record: RoundRecord) -> Talk[None]:
        """Prove how good the weights of a round are, as they are returned.

        Rounds add up messages, and trust sums. Where they claimed more than is proved they go on from the
        weights, until that gains nothing. The record stays what rounds found: a run with other limits logs
        the same.
        """
        counts = self._claims(record) and self._is_due(record)
        with self.engine.limited():
            if self.driver.local:
                proof = self.prove(self.method.weights(), self.intercept)
            else:
                proof = yield from self._proof_elsewhere(self.method.intercept)
            if counts and not proof.settled:
                self.attempts.failed(proof, record.round)
                if not self.attempts.in_vain:
                    self.bound.value = proof.bound
                    self.method.bound = proof.bound * self.problem.total_weight
                    self.method.tighten(_TIGHTER)
        self.proof, self.proof_round = proof, record.round

    def _proof_elsewhere(self, intercept: Any, kept: bool = False) -> Talk[Proof]:
        return (yield from prove_elsewhere(self.problem, self.method, intercept, kept, self.options.gap))

    @property
    def _last_proof(self) -> Proof | None:
        """What is proved of the last round's model."""
        return self.proof if self.proof_round == self.n_rounds else None

    @property
    def _kept_round(self) -> int | None:
        """The round whose model is returned, where that is not the last one."""
        kept = self._kept
        number = None if kept is None or kept.record is None else kept.record.round
        return None if number == self.n_rounds else number

    def proving(self) -> Talk[bool]:
        """Let parties elsewhere prove the model that is returned, unless a round has; True in the end."""
        record = self.last_record
        if self.driver.local or not self.problem.convex or self.diverged or record is None:
            return True
        kept = self._kept
        if kept is not None and kept.record is not None and self._kept_round is not None:
            with self.engine.limited():
                self.kept_proof = yield from self._proof_elsewhere(kept.intercept, True)
            kept.record = told_by(self.kept_proof, kept.record)
        elif self._last_proof is None:
            yield from self._prove_round(record)
        return True

    def prove(self, weights: list[np.ndarray], intercept: Any) -> Proof:
        """What is proved of a model as it is written."""
        smooth, witness = self.problem.loss.smooth, self.method.witness
        known = [] if witness is None else [witness]
        if not (known or smooth):
            known.append(np.zeros(self.problem.message_size))  # the loss's own least value
        inner = self._shifted(weights, intercept, 1.0)
        with self.engine.limited():
            # Under squared l2, what rounds claim is what the vector proves that they keep, if they keep one.
            duals: list[np.ndarray | None] = [*[None] * smooth, *known]
            duals = duals[::-1] if self.problem.is_ridge else duals
            proof = prove(self.problem, weights, inner, duals, self.engine, self.options.gap)
            if proof.settled or not self.options.gap > 0.0:
                return proof
            near = None if smooth else known[0]
            u = refined_dual(self.problem, weights, inner, near, self.engine)
            if u is None:
                return proof
            return proof.better(prove(self.problem, weights, inner, [u], self.engine, self.options.gap))

    def proof_of(self, weights: list[np.ndarray], intercept: Any, kept: bool) -> Proof | None:
        if not self.problem.convex or self.diverged:
            return None
        if not self.driver.local:
            return self.kept_proof if kept and self._kept_round is not None else self._last_proof
        if not kept and self._last_proof is not None:
            return self._last_proof
        proof, held = self.prove(weights, intercept), self._kept if kept else None
        if held is not None and held.record is not None:
            self.kept_proof, held.record = proof, told_by(proof, held.record)
        return proof

    def _take(self, kept: ValidationWatch | LowestModel) -> Talk[None]:
        """Keep the present weights, or let the parties elsewhere do so, if this round's are the best."""
        assert self.last_record is not None
        if not kept.take(self.last_record, self.method.intercept):
            return
        if self.driver.local:
            kept.weights = [np.array(w, order="C") for w in self.method.weights()]
        else:
            yield self.method.about_weights("keep_best", Pace.SHORT)

    def _spend(self, seconds: float) -> None:
        """Add to the run's time."""
        self.seconds += seconds

    @property
    def _checkable(self) -> bool:
        """Whether there is a certificate, and the parties' data are at hand to check it."""
        return self.problem.convex and self.driver.local

    def _objective_of(self, weights: list[np.ndarray], intercept: Any) -> float:
        """F per mean loss, from the data."""
        problem, engine = self.problem, self.engine
        training = TestSet(problem.blocks, problem.y, problem.weight, problem.offset)
        with engine.limited():
            z = predictor(training, weights, intercept, problem.loss, engine)
            objective = mean_loss(training, z, problem.loss, engine)
        for x, regularizer in zip(weights, problem.party_regularizers):
            objective += problem.lam * sum(regularizer.value(own) for own in (x.T if x.ndim == 2 else [x]))
        return objective

    def _predictor(self, name: str, rows: TestSet) -> Talk[np.ndarray]:
        """Linear predictor of rows, as in :func:`fastadmm.solver.early_stopping.predictor`."""
        scores = yield from self.method.scores("train" if rows.blocks is self.problem.blocks else name)
        return predictor_of(rows, scores, self.method.intercept, self.problem.loss, self.engine)

    def finishing(self, model_id: str, kept: bool) -> Talk[None]:
        """Let every party elsewhere write its part of the model.

        ``kept``: of the round that held-out rows chose.
        """
        more: dict[str, Any] = {"kept": True} if kept else {}
        yield self.method.about_weights("finish", model_id=model_id, **more)

    def stop_reason(self, record: RoundRecord) -> Status | None:
        """Why to stop after this round, or None to go on."""
        if self.diverged:
            return Status.DIVERGED
        if not self.problem.convex:
            value, wanted = record.stationarity, self.options.stationarity
            if wanted > 0 and value is not None and value <= wanted:
                return Status.STATIONARY
        elif (proof := self._last_proof) is not None:
            if proof.claim is Claim.CONTRADICTION:
                return Status.CONTRADICTION
            if proof.settled:
                return Status.CONVERGED
            if self.attempts.in_vain:
                return Status.AT_ROUNDING
        return self._limit(record)

    def _limit(self, record: RoundRecord) -> Status | None:
        """What ends a run whatever is proved."""
        if self.watch is not None and self.watch.waited(self.n_rounds):
            return Status.EARLY_STOPPED
        if self.n_rounds >= self.options.max_rounds:
            return Status.MAX_ROUNDS
        if self.options.max_seconds is not None and self.seconds >= self.options.max_seconds:
            return Status.TIME_LIMIT
        return None

    def _proves_enough(self, record: RoundRecord) -> bool:
        """Whether the gap that was asked for is reached, among all models."""
        return record.gap <= self.options.gap > 0.0

    def describe(self, status: Status, record: RoundRecord) -> str:
        told = describe_end(self, status, record)
        lower = self._lower if status is not Status.DIVERGED else None
        if lower is not None and lower.record is not None:
            told += f"; the model of round {lower.record.round} is kept, whose objective is lower"
        return f"{told} ({self.method.remark})" if self.method.remark else told

    def export(self) -> dict[str, Any]:
        """State of the coordinator, and scalars; the parties' own arrays come from :meth:`export_parties`."""
        saved = {
            "method": self.method.export(),
            "n_rounds": self.n_rounds,
            "seconds": self.seconds,
            "lower_bound": self.bound.value,
            "divergence": self.divergence.export(),
            "attempts": self.attempts.export(),
            "tightened": self.method.tightened,
            "last_record": json.dumps(self.last_record.to_json()) if self.last_record else "",
            **{name: part.export() for name, part in self._states.items()},
        }
        if not self.driver.local:  # what proves a model of columns elsewhere: nobody is asked again later
            between: dict[str, Any] = {"bound": self.method.bound}
            if self.method.witness is not None:
                between["witness"] = self.method.witness
            if self._last_proof is not None:
                between["proof"] = exported(self._last_proof)
            saved["between"] = between
        return saved

    @property
    def _states(self) -> dict[str, Any]:
        """What saves itself and only some runs have."""
        states = {"validation": self.watch, "lowest": self.lowest, "traffic": self.traffic}
        return {name: part for name, part in states.items() if part is not None}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        """Each party's own arrays, its weights among them."""
        parties, kept = self.method.export_parties(), self.watch or self.lowest
        if kept is None or kept.record is None:
            return parties
        return [{**own, "best_weights": best} for own, best in zip(parties, kept.weights)]

    def party_weights(self) -> list[np.ndarray]:
        """x_m of shape (d_m,) per party."""
        return self.method.weights() if self.driver.local else []

    def restore(self, saved: dict[str, Any], parties: list[dict[str, np.ndarray]]) -> None:
        """Continue from exported state: the following rounds are bit-identical to an uninterrupted run's."""
        self.start = None  # the rounds have left it behind
        converse(self.preparing(reopened=True), self.driver.carry)
        with self.engine.limited():
            rows = saved.get("rows")
            n = self.problem.n_samples
            own = {} if rows is None else rows.read(0, n, n, self.method.place)
            self.method.restore(with_rows(saved["method"], own))
            if self.driver.local:
                self.method.restore_parties(parties)
        self.n_rounds = int(saved["n_rounds"])
        self.seconds = float(saved["seconds"])
        self.bound.value = max(self.bound.value, float(saved["lower_bound"]))
        for name, part in {"divergence": self.divergence, "attempts": self.attempts, **self._states}.items():
            if name in saved or name in ("divergence", "validation"):  # earlier versions' runs lack others
                part.restore(saved[name])
        self.method.tighten(float(saved["tightened"]) if "attempts" in saved else 1.0)
        if saved["last_record"]:
            self.last_record = RoundRecord.from_json(json_of(saved["last_record"]))
        held = self.watch or self.lowest
        if self.driver.local and held is not None and held.record is not None:
            held.weights = [np.array(own["best_weights"]) for own in parties]
        if "between" in saved and not self.driver.local:
            between = saved["between"]
            self.method.bound, self.method.witness = float(between["bound"]), between.get("witness")
            if "witness" in between and between["witness"].shape != (self.problem.message_size,):
                raise ValueError("witness")
            if "proof" in between:
                self.proof, self.proof_round = restored(between["proof"]), self.n_rounds
        if self._checkable and self.last_record is not None and not self.diverged:
            self._check_restored(self.last_record.objective)
            if self.attempts.in_vain or self._is_to_be_proved(self.last_record):  # no proof is taken over
                self.proof = self.prove(self.method.weights(), self.intercept)
                self.proof_round = self.n_rounds

    def _check_restored(self, claimed: float) -> None:
        """Refuse a state whose objective is not that of its weights on these data: no claim is taken over."""
        found = self._objective_of(self.method.weights(), self.method.intercept)
        apart = found - claimed if self.method.bounds_objective else abs(found - claimed)
        if not apart <= _RESTORED * max(abs(found), abs(claimed), self.divergence.start):
            raise InputError(
                f"the objective of the saved weights is {found:.6g} on these data, {claimed:.6g} was saved: "
                "other data or settings than those of the run; train anew"
            )

    @property
    def name(self) -> str:
        """Name of the scheme."""
        return self.method.name

    def party_notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return self.driver.notes()

    def reason(self) -> str:
        """Why this scheme."""
        return self._reason

    def program(self) -> str:
        return program_line("pooled" if self._pooled else self.name)

    def hint(self) -> str:
        away = self.engine.shares_rows or not self._checkable  # clocks of workers differ
        if self._pooled or self.sums_only or away:
            return ""
        return pooled_hint(self.problem, self.engine, self.seconds)

    def notes(self) -> list[str]:
        """What is not proved, whatever is found."""
        lines = []
        endless = any(not (any(own.coefficients) or own.bounds) for own in self.problem.penalties)
        if self.problem.convex and endless:
            lines.append(
                "nothing bounds the weights: what is proved is proved among models in which no column "
                f"contributes more than {DEVIATIONS:.0f} standard deviations"
            )
        return lines

    def kept_model(self) -> tuple[list[np.ndarray], Any, RoundRecord] | None:
        """Weights, intercept and round of a better model, where held-out rows or the objective say so."""
        kept = self._kept
        if kept is None or kept.record is None:
            return None
        weights = [np.array(w) for w in kept.weights]
        return weights, self._shifted(weights, kept.intercept, -1.0), kept.record

    @property
    def _kept(self) -> KeptModel | None:
        return self._lower if self.watch is None else self.watch

    @property
    def _lower(self) -> LowestModel | None:
        """An earlier model with a lower objective than the last, which is not certified."""
        lowest, last = self.lowest, self.last_record
        if lowest is None or lowest.record is None or last is None:
            return None
        ends = self._last_proof is not None and self._last_proof.settled
        return lowest if lowest.record.objective < last.objective and not ends else None

    def spill(self, directory: Path) -> None:
        self.method.spill(directory)

    def close(self) -> None:
        """Stop the threads."""
        self.engine.close()


def least_of(problem: Problem, engine: Engine) -> float:
    """Lower bound of the summed loss over all predictors; minus infinity where none is known."""
    return problem.loss.least_of_all(problem.y, problem.weight, engine)


def solve(
    problem: Problem,
    options: SolverOptions | None = None,
    monitor: Callable[[RoundRecord], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    start: StartingPoint | None = None,
    early: EarlyStopping | None = None,
) -> SolveResult:
    """Train until the duality gap, the round limit or the time limit is reached.

    Parameters
    ----------
    problem : Problem
        From :func:`fastadmm.problem.problem.make_problem`.
    options : SolverOptions, optional
    monitor : callable, optional
        Called with each round's record.
    should_stop : callable, optional
        Asked after each round; True ends the run as interrupted.
    start : StartingPoint, optional
        Weights to begin at, for example those of a similar problem; zero by default. They change
        the number of rounds, not what is certified.
    early : EarlyStopping, optional
        Held-out rows that end the run, and choose the round whose model is kept.

    Returns
    -------
    SolveResult
        Divergence is a status, not an exception.
    """
    solver = Solver(problem, options, start=start, early=early)
    try:
        with solver.engine.limited():  # once: every round would set all libraries' threads and set them back
            result = run_rounds(solver, monitor, should_stop)
        solver.method.close()
        return result
    finally:
        solver.close()
