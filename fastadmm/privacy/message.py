"""Mode "message": ADMM sharing in which every message carries full-rank Gaussian noise.

The coordinator's arithmetic is that of :mod:`fastadmm.coordinator.admm.admm`, on noisy messages alone,
the party's own among them. T rounds are charged beforehand and run: there is no stopping rule, and no
certificate. Then each party answers the last public target for itself; that is the model, and is not sent.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.exchange import Call, Driver, Exchange, Pace, Talk, Threads
from fastadmm.coordinator.admm.penalty_rule import JACOBI, SHARING
from fastadmm.coordinator.admm.z_update import update_z_u
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.message_party import (
    MODELS_NOT_COVERED,
    MessageParty,
    clipped_block,
    message_guarantee,
    message_level,
)
from fastadmm.privacy.private_run import Model, PrivateRun, late_fusion
from fastadmm.privacy.public import (
    check_covered,
    curvature_unit,
    publish_labels,
)
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.options import SolverOptions

#: Default penalty r in units of the loss's curvature. A private run has a round or two, so the first has to
#: be right: larger ones keep z at zero, smaller ones overshoot. Measured on a9a, bench/private_messages.py.
DEFAULT_PENALTY = 0.2


#: Parallel schemes; with one party after another a message would answer several noisy ones.
_SCHEMES = {order.name: order for order in (SHARING, JACOBI)}


class MessageSolver(PrivateRun):
    """A run of mode "message" in progress."""

    clips_rows = True
    outside = " (measured with exact local models: outside the guarantee, not to be published)"
    settings: MessagePrivacy
    intercept = 0.0

    def check(self) -> str:
        """Refuse what the theorems do not cover, before anything is computed."""
        problem, options, settings = self.problem, self.options, self.settings
        loss, named, update = problem.loss, problem.loss.name, options.x_update
        proved = problem.n_outputs == 1 and loss.smooth and loss.convex
        # Other losses do not keep their mean at soft targets.
        soft = settings.label_epsilon is None or named in ("logistic", "squared")
        check_covered(
            problem,
            settings,
            regularizer=(problem.is_ridge, "another, or with a constraint", "l2 with its own privacy.ball"),
            loss=(proved, named, "a smooth convex one with one number per record"),
            scheme=(options.scheme in ("auto", *_SCHEMES), options.scheme, " or ".join(_SCHEMES)),
            acceleration=(options.acceleration != "anderson", options.acceleration, "none"),
            x_update=(update in ("auto", "gram"), update, "gram"),
            label_epsilon=(soft, f"given with loss {named}", "it with logistic or squared"),
        )
        settings.refuse_unproved(self.unproved)
        return "the label holder"

    def begin(self, driver: Driver | None) -> None:
        """Make the parties, where these are of this process, and the state."""
        problem, options, settings = self.problem, self.options, self.settings
        if driver is None:
            blocks, test = self._clipped(problem.blocks), problem.test
            test = None if test is None else replace(test, blocks=self._clipped(test.blocks))
            self.problem = replace(problem, blocks=blocks, test=test)
        n, m = problem.n_samples, problem.n_parties
        self.scheme = SHARING if options.scheme == "auto" else _SCHEMES[options.scheme]
        self.tau = self.scheme.tau(m)
        default = DEFAULT_PENALTY * curvature_unit(problem, settings) * problem.total_weight / n
        self.penalty = options.penalty if options.penalty is not None else default
        self.mu = problem.regularization / (self.tau * self.penalty)
        self.sensitivity, self.level = message_level(settings, self.mu, n)
        self.worse = (
            "sending nothing was better: test loss {best:.4f} against {own:.4f} with private messages "
            f"(noise sd {self.level.sigma:.3g} on scores of at most {settings.ball:.3g}); "
            "use mode 'fusion', or more epsilon"
        )
        self.parties = [
            MessageParty(name, block, self.books(k), self.mu, self.engine)
            for k, (name, block) in enumerate(zip(problem.names, self.problem.blocks))
            if driver is None
        ]
        self.senders = self.parties
        self.driver: Driver = driver or Threads(self.engine, self.parties)
        self.messages = np.zeros((m, n))
        self.z, self.u = np.zeros(n), np.zeros(n)
        self.prepared = False

    def _clipped(self, blocks: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        """Rows of norm at most 1 per party."""
        return [clipped_block(block, name) for block, name in zip(blocks, self.problem.names)]

    def terms(self) -> dict[str, Any]:
        """What parties elsewhere are told when the run begins, beside what every run says."""
        return {"penalty": self.tau * self.penalty}

    def prepare(self) -> None:
        """Factorise, and make the start from labels alone."""
        if self.prepared:
            return
        begin = time.perf_counter()
        self.set_aside()
        with self.engine.limited():
            if self.settings.label_epsilon is not None:
                labels = publish_labels(
                    self.problem.y, self.settings, self.releases, self.label_payment(), self.engine
                )
                self.problem = replace(self.problem, y=labels.target)
            self.engine.map(lambda party: party.eigen, self.parties)
            self._coordinate()
        self.prepared = True
        self.seconds += time.perf_counter() - begin

    def _target(self, m: int) -> np.ndarray:
        """Public target of party m: a function of noisy messages, z and u alone."""
        correction = ((self.messages.sum(axis=0) - self.z) + self.u / self.penalty) / self.tau
        return self.messages[m] - correction

    def _coordinate(self) -> None:
        """z- and u-update from the noisy messages."""
        total, z, u = self.messages.sum(axis=0), self.z.copy(), np.empty_like(self.u)
        self.intercept = update_z_u(
            self.problem, total, self.u, self.penalty, z, u, self.intercept, self.engine
        )
        self.z, self.u = z, u

    def ask_all(self) -> Talk[None]:
        """Ask for noisy messages and make the z-update; after the last round, let parties settle."""
        number, parties = self.n_rounds + 1, range(self.problem.n_parties)
        with self.engine.limited():
            asked = [Call(m, "noisy", {"target": self._target(m), "round": number}) for m in parties]
            answers = yield Exchange(asked, Pace.IN_TURN)
            self.messages = np.array([self._shrunk(answer["message"]) for answer in answers])
            self._coordinate()
            if number == self.settings.rounds:
                yield Exchange([Call(m, "settle", {"target": self._target(m)}) for m in parties])

    def _shrunk(self, message: np.ndarray) -> np.ndarray:
        """James and Stein's factor towards 0: a z-update believes less of a noisy message."""
        square, noise = float(message @ message), len(message) * self.level.sigma**2
        return max(0.0, 1.0 - noise / max(square, 1e-300)) * message

    def _record(self) -> RoundRecord:
        """What the coordinator can say of a round: figures of z and of noisy messages, no certificate."""
        problem, w = self.problem, self.problem.total_weight
        at = self.z + problem.offset + self.intercept
        loss = problem.loss.evaluate(at, problem.y, problem.weight, np.empty_like(at), self.engine)
        mismatch = self.messages.sum(axis=0) - self.z
        residual = float(np.linalg.norm(mismatch)) / math.sqrt(problem.n_samples)
        norms = [math.inf] * problem.n_parties
        return self.recorded(loss / w, norms, primal_residual=residual, penalty=self.penalty)

    @property
    def name(self) -> str:
        """Name of the scheme in records."""
        return f"{self.scheme.name}, noisy messages"

    def describe(self, status: Status, record: RoundRecord) -> str:
        """One sentence on why the run stopped."""
        if status is Status.INTERRUPTED:
            return f"interrupted after {record.round} of {self.settings.rounds} private rounds"
        return (
            f"all {record.round} private round(s) done; no certificate: a duality gap would have to read "
            "exact messages"
        )

    def party_weights(self) -> list[np.ndarray]:
        """x_m of shape (d_m,) per party: answers to the last public target; nothing of parties elsewhere."""
        elsewhere = [np.zeros(0)] * self.problem.n_parties
        return [party.weights.copy() for party in self.parties] or elsewhere

    def models(self, weights: list[np.ndarray], intercept: float) -> dict[str, Model]:
        """The result, and models of parties that learned apart."""
        apart = late_fusion(self.problem, self.engine.n_threads)
        return {
            "private messages": (weights, intercept),
            "late fusion of local models (nothing sent)": apart,
        }

    def party_notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        reason = (
            f"mu {self.mu:.4g}, sensitivity {self.sensitivity.value:.6g} by {self.sensitivity.theorem}, "
            f"sigma {self.level.sigma:.6g}"
        )
        return [(name, "private ball", reason) for name in self.problem.names]

    def statement(self) -> PrivacyStatement:
        """What the run guarantees, with all T rounds charged, and messages that had to be drawn again."""
        s, names = self.settings, self.problem.names
        parties = [
            message_guarantee(name, s, self.mu, self.problem.n_samples, *self.spent(m))
            for m, name in enumerate(names)
        ]
        labels = () if s.label_epsilon is not None else ("labels",)
        others = "the other party's noisy messages" if len(parties) == 2 else "the sum of the noisy messages"
        seen = {
            "coordinator": "record ids and order, N, labels (randomised where label_epsilon is set), "
            f"{s.rounds} noisy message(s) of every party, z, u",
            "other parties": "public targets: from them all labels, as the coordinator sees them, and "
            + others,
            "outsiders": "nothing, until a model or predictions are given out",
        }
        return self.stated(parties, seen, (MODELS_NOT_COVERED, *labels, *self.open))

    def advice(self) -> str:
        """A warning where messages will be mostly noise, known before any data are read; else empty."""
        s = self.settings
        size = s.ball if s.message_clip is None else min(s.ball, s.message_clip)
        if self.level.sigma <= size:
            return ""
        return (
            f"at N = {self.problem.n_samples} and epsilon = {s.epsilon:g} messages carry noise of standard "
            f"deviation {self.level.sigma:.3g} on entries of at most {size:g}; adding up models trained "
            "apart, with nothing sent, was better in our measurements (docs/privacy.md)"
        )

    def mechanism(self) -> dict[str, float]:
        """The numbers behind the statement, for audits: mu, exact and rounded sensitivity, sigma, grid."""
        return {
            "mu": self.mu,
            "exact_sensitivity": self.sensitivity.value,
            "sensitivity": self.level.sensitivity,
            "sigma": self.level.sigma,
            "grid": self.level.grid,
        }


def private_solver(
    problem: Problem,
    options: SolverOptions,
    settings: DifferentialPrivacy,
    messages: Path | None = None,
    data: Sequence[str] | None = None,
    **common: Any,
) -> FusionSolver | MessageSolver:
    """The solver of a mode that is not "none"."""
    kind = FusionSolver if isinstance(settings, FusionPrivacy) else MessageSolver
    return kind(problem, options, settings, releases=messages, data=data, **common)
