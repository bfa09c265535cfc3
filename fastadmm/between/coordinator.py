"""The coordinator of a run whose parties are processes elsewhere: one directory, as of training by files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastadmm.between.approve import run_description
from fastadmm.between.coordinator_step import UNUSABLE, Coordinator, StepResult
from fastadmm.between.hub import Ask, Hub
from fastadmm.between.journal import Journal
from fastadmm.between.letters import Correspondent
from fastadmm.between.run_problem import problem_of
from fastadmm.between.schema import table_digest
from fastadmm.between.socket import Lost
from fastadmm.conversation.exchange import Call, Exchange, converse
from fastadmm.errors import FormatError, InputError, WaitingError
from fastadmm.files.atomic import remove_leftovers, shown
from fastadmm.files.reading import read_json
from fastadmm.problem.problem import Problem
from fastadmm.runs.folder import RunFolder
from fastadmm.solver.history import RoundRecord
from fastadmm.version import __version__

__all__ = ["RUN", "FederatedRun"]

#: What the owners of the data are shown, to approve it.
RUN = "run.json"

_PARTIES, _JOURNAL = "parties.json", "answers.journal"

#: A checkpoint takes the place of so many bytes of answers.
_BYTES = 256 << 20


class FederatedRun(Coordinator):
    """A run directory whose parties are asked while the process lives."""

    def __init__(self, folder: RunFolder, ask: Ask, say: Callable[[RoundRecord], None]) -> None:
        super().__init__(folder)
        remove_leftovers(self.path)
        self.ask, self.say = ask, say
        self._journal = Journal(self.path / _JOURNAL)
        self._hub: Hub | None = None

    def train(self) -> dict[str, Any]:
        """Go on until the run has ended."""
        finished = self.folder.finished()
        if finished is not None:
            return finished
        try:
            result = self._train()
        except (Lost, WaitingError):
            raise
        except UNUSABLE as error:
            if self._hub is not None:
                self._hub.drop_unusable()
            if isinstance(error, (FormatError, InputError)):
                raise
            raise FormatError(
                f"{shown(self.path)}: with these answers no round can be made: {error}"
            ) from None
        assert result.document is not None  # nobody's answer is waited for here
        return result.document

    def close(self) -> None:
        """Let go of files and threads."""
        if self._hub is not None:
            self._hub.close()
        self._journal.close()

    def start_terms(self) -> dict[str, dict[str, Any]]:
        """What every party is told of the run, and approves."""
        more = {"release": __version__, "table": table_digest()}
        return {name: {**terms, **more} for name, terms in self.first_terms().items()}

    def write_description(self, caller: str) -> None:
        """Write what the owners of the data approve."""
        self.folder.write_json(RUN, run_description(self.run, caller, self.start_terms()))

    def _train(self) -> StepResult:
        said = self._opened()
        return self._rounds(said) if self.config.privacy.mode == "none" else self._private(said)

    def _opened(self) -> dict[str, dict[str, Any]]:
        """What parties said of themselves, when the run began."""
        path = self.path / _PARTIES
        if not path.exists():
            terms = self.start_terms()
            n = next(iter(terms.values()))["n_samples"]
            parties = [Correspondent(name, "", "", [], last=-1) for name in terms]
            self._hub = hub = Hub(self.run, n, parties, self.ask, self._journal)
            calls = [Call(m, "start", own) for m, own in enumerate(terms.values())]
            answers = hub.carry(Exchange(calls))
            said = {
                party.name: {**answer, "answered": party.answered}
                for party, answer in zip(hub.parties, answers)
            }
            self.folder.write_json(_PARTIES, said)
            hub.flush()
            self._journal.restart()
            hub.close()
        try:
            return {name: dict(read_json(path)[name]) for name in self.elsewhere}
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{shown(path)}: not our record: {error}; begin a new run") from None

    def _letters(
        self, problem: Problem, hello: dict[str, dict[str, Any]], state: dict[str, Any] | None
    ) -> Hub:
        parties = []
        for name in self.names:
            said = hello.get(name, {})
            known = Correspondent(name, str(said.get("kind", "")), str(said.get("reason", "")), [])
            known.answered = str(said.get("answered", ""))
            if state is not None:
                known.queue, known.last = state["queues"][name], state["previous"][name]
                known.answered = state["answered"].get(name, known.answered)
            parties.append(known)
        self._hub = Hub(self.run, problem.n_samples, parties, self.ask, self._journal, problem.n_outputs)
        return self._hub

    def _rounds(self, hello: dict[str, dict[str, Any]]) -> StepResult:
        widths = [int(hello[name]["n_features"]) for name in self.names]
        problem, labels = problem_of(self.config, self.names, widths)
        self._check_labels(labels)
        state = self.checkpoint()
        hub = self._letters(problem, hello, state)
        solver = self._solver(problem, labels, hub, state)
        try:
            with self.folder.open_log(solver.n_rounds) as log:
                record = solver.last_record
                status = None if record is None else solver.stop_reason(record)
                while status is None:
                    record = converse(solver.next_round(), hub.carry)
                    assert record is not None  # every answer is there
                    log.append(record)
                    # A round that was followed by another did not end the run, whatever the clock says now.
                    status = None if hub.replaying else solver.stop_reason(record)
                    self.say(record)
                    if status is not None or (self._journal.n_bytes > _BYTES and not hub.replaying):
                        hub.flush()
                        log.sync()
                        self._save(solver, hub)
                        self._journal.restart()
            assert record is not None  # there was a round
            return self._finish(solver, hub, record, status, labels)
        finally:
            solver.close()
