"""Mode "fusion": locally private models and one randomised symbol per record, fused by the label holder.

The label holder publishes the labels (or randomised ones), every other party sends one message, and the
label holder fits; nothing about its own features leaves it. Theorems and proofs: ``docs/fusion.md``.
"""

import math
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Call, Driver, Exchange, Pace, Talk, Threads
from fastadmm.errors import ConfigError, FormatError
from fastadmm.privacy import fusion_party
from fastadmm.privacy.fusion_fit import FusionFit, fit_scores
from fastadmm.privacy.fusion_party import FusionMessage, FusionParty
from fastadmm.privacy.private_run import Model, PrivateRun, fit_alone
from fastadmm.privacy.public import PublicLabels, check_covered, publish_labels
from fastadmm.privacy.statement import PartyGuarantee, PrivacyStatement
from fastadmm.settings.privacy import FusionPrivacy
from fastadmm.solver.history import RoundRecord, Status

Array = np.ndarray

_NOT_COVERED = (
    "the label holder's weights, the intercept, the scales and predictions: they depend on its features and "
    "on true labels and stay with it",
    *fusion_party.PARTY_NOT_COVERED,
)

_WEIGHTS = (
    "local models of the other parties are released and covered; the label holder's weights, the intercept "
    "and the scales stay with it (epsilon = infinity)"
)


class FusionSolver(PrivateRun):
    """A fusion run, with one round."""

    name = "fusion"
    settings: FusionPrivacy
    worse = (
        "fusion did not help here: test loss {own:.4f} against {best:.4f} without symbols; "
        "use more epsilon, more records or the better baseline"
    )

    def check(self) -> str:
        """Refuse what the theorems do not cover, before anything is computed; who holds the labels."""
        problem, options, settings = self.problem, self.options, self.settings
        loss, parties, adjacency = problem.loss.name, problem.n_parties, settings.adjacency
        own, names = settings.label_holder(problem.names), problem.names
        check_covered(
            problem,
            settings,
            loss=(loss == "logistic", loss, "logistic, of two classes"),
            labels=(bool(np.isin(problem.y, (0.0, 1.0)).all()), "soft targets", "those of two classes"),
            parties=(parties > 1, parties, "two or more; one sends nothing anyway"),
            regularizer=(problem.is_ridge, "another, or with a constraint", "l2 without one"),
            intercept=(problem.fit_intercept, "false", "true"),
            scheme=(options.scheme == "auto", options.scheme, "auto, one round of its own"),
            sampler=(settings.sampler != "discrete", settings.sampler, "grid"),
            adjacency=(adjacency == "replace_one", adjacency, "replace_one, which covers zero_out"),
            label_party=(own in names, repr(own), f"one of {', '.join(names)}"),
        )
        self.holder = problem.names.index(own)
        self.unproved.pop(own, None)  # it sends nothing about its columns, however they were prepared
        self.settings.refuse_unproved(self.unproved)
        return own

    def begin(self, driver: Driver | None) -> None:
        """Make the parties, where these are of this process, and the state."""
        problem = self.problem
        self.budget = fusion_party.fusion_budget(self.settings)
        self.others = [m for m in range(problem.n_parties) if m != self.holder]
        self.parties = {
            m: FusionParty(problem.names[m], problem.blocks[m], self.books(m), self.engine)
            for m in self.others
            if driver is None
        }
        self.senders = list(self.parties.values())
        here = [self.parties.get(m) for m in range(problem.n_parties)]
        self.driver: Driver = driver or Threads(self.engine, here)
        self.messages: dict[int, FusionMessage] = {}
        self.own: tuple[Array, float] | None = None
        self.labels: PublicLabels | None = None
        self.fit: FusionFit | None = None

    def ask_all(self) -> Talk[None]:
        """Publish the labels, collect the messages, and fit."""
        problem = self.problem
        with self.engine.limited():
            self.set_aside()
            paid = self.label_payment()
            self.labels = publish_labels(problem.y, self.settings, self.releases, paid, self.engine)
            public = {"target": self.labels.target, "classes": self.labels.classes}
            answers = yield Exchange([Call(m, "fuse", public) for m in self.others], Pace.IN_TURN)
            self.messages = {m: self._received(m, answer) for m, answer in zip(self.others, answers)}
        # The label holder by itself, on true labels.
        self.own = fit_alone(problem, problem.blocks[self.holder], self.options.n_threads)
        with self.engine.limited():
            sent = [self.messages[m] for m in self.others]
            self.fit = fit_scores(problem, self.holder, self.labels.classes, self.own, sent, self.engine)

    def _received(self, m: int, answer: dict[str, Any]) -> FusionMessage:
        name, width = self.problem.names[m], self.problem.blocks[m].shape[1]
        try:
            message = FusionMessage.from_arrays(answer)
        except ValueError as error:
            raise FormatError(f"message of {name}: {error}") from None
        if len(message.model.weights) != width:
            raise FormatError(f"message of {name}: {len(message.model.weights)} weights for {width} columns")
        return message

    def _record(self) -> RoundRecord:
        """What the label holder can say: the loss of its last fit; a certificate would need clean scores."""
        own = {"log_loss": (self.party_weights(), self.intercept)}
        test = self.losses(own) or None
        norms = [float(np.linalg.norm(w)) for w in self.party_weights()]
        return self.recorded(self._finished().loss, norms, test=test)

    def _finished(self) -> FusionFit:
        if self.fit is None:
            raise ConfigError("privacy: the fusion round has not been made yet")
        return self.fit

    # --- the model -------------------------------------------------------------------------------------

    @property
    def scales(self) -> list[float]:
        """What each party's own score counts: 1 for the label holder."""
        found = dict(zip(self.others, map(float, self._finished().scales)))
        return [found.get(m, 1.0) for m in range(self.problem.n_parties)]

    def local_weights(self) -> list[Array]:
        """What each party holds: its released local model, or the label holder's joint weights."""
        own, parties = self._finished().weights, range(self.problem.n_parties)
        return [self.messages[m].model.weights if m in self.messages else own for m in parties]

    def party_weights(self) -> list[Array]:
        """Weights of the joint predictor, of shape (d_m,) per party: local weights times scales."""
        return [scale * w for scale, w in zip(self.scales, self.local_weights())]

    def held_weights(self, weights: list[Array]) -> tuple[list[Array], list[float]]:
        """What a party holds is what it released."""
        return self.local_weights(), self.scales

    @property
    def intercept(self) -> float:
        """Intercept of the joint predictor."""
        return self._finished().intercept

    # --- what sending nothing gives --------------------------------------------------------------------

    def models(self, weights: list[Array], intercept: float) -> dict[str, Model]:
        """The result, that of the label holder alone, and the released models added up."""
        assert self.own is not None
        w, b = self.own
        prior = float(self.problem.y.mean())
        base = math.log(prior / (1.0 - prior))
        alone = [np.zeros(block.shape[1]) for block in self.problem.blocks]
        alone[self.holder] = w
        late = [self.messages[m].model.weights if m in self.messages else own for m, own in enumerate(alone)]
        added = b + sum(message.model.intercept - base for message in self.messages.values())
        return {
            "fusion": (weights, intercept),
            "label holder alone": (alone, b),
            "late fusion of the released models (no symbols)": (late, added),
        }

    # --- what a run's record asks ----------------------------------------------------------------------

    def describe(self, status: Status, record: RoundRecord) -> str:
        """One sentence on why the run stopped."""
        return "the fusion round is done; no certificate: a duality gap would have to read exact scores"

    def party_notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its part, and how its budget is split."""
        sender = "local model and symbols", fusion_party.split_in_words(self.budget)
        holder = "own columns", "label holder: fits, sends nothing about its features"
        names = enumerate(self.problem.names)
        return [(name, *(holder if m == self.holder else sender)) for m, name in names]

    def statement(self) -> PrivacyStatement:
        """What the run guarantees."""
        s = self.settings
        parties = [
            PartyGuarantee(name, "sends nothing about its features", gdp=0.0)
            if m == self.holder
            else fusion_party.fusion_guarantee(name, s, self.messages.get(m), *self.spent(m))
            for m, name in enumerate(self.problem.names)
        ]
        labels = () if s.label_epsilon is not None else ("labels: every party learns all of them",)
        told = "all labels" if s.label_epsilon is None else "every label after randomised response"
        seen = {
            f"label holder ({self.problem.names[self.holder]})": fusion_party.HOLDER_SEES,
            "other parties": f"record ids and order, N, {told}; nothing about other parties' features",
            "outsiders": "nothing, until the label holder gives out a model or predictions",
        }
        proved = not self.unproved and s.sampler != "insecure_test"
        weights = _WEIGHTS if proved else fusion_party.UNPROVED_WEIGHTS
        return self.stated(parties, seen, (*labels, *self.open, *_NOT_COVERED), weights)

    def mechanism(self) -> dict[str, float]:
        """The numbers behind the statement, for audits: each part of a party's budget."""
        parts = ("norm_gdp", "model_gdp", "moments_gdp", "symbol_epsilon")
        b = self.budget
        return dict(zip(parts, (b.norm, b.model, b.moments, b.symbol)))
