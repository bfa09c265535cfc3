"""The coordinator of a run whose parties are elsewhere: one directory, whatever carries the questions."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between import run_problem as parts
from fastadmm.between.approval import privacy_text
from fastadmm.between.consent import run_description
from fastadmm.between.hub import Ask, Correspondent, Elsewhere, Hub, nobody
from fastadmm.between.journal import Journal
from fastadmm.between.schema import table_digest
from fastadmm.between.socket import Lost, Say
from fastadmm.conversation.exchange import Answers, Call, Exchange, converse
from fastadmm.errors import FormatError, InputError, WaitingError
from fastadmm.files.atomic import atomic_directory, remove_leftovers, shown, write_whole
from fastadmm.files.reading import read_bytes, read_json
from fastadmm.files.seal import check_seal, damaged, get_key, seal_of
from fastadmm.privacy.statement import no_privacy
from fastadmm.problem.problem import Problem
from fastadmm.runs.checkpoint import MESSAGES, fitting, read_tree, write_tree
from fastadmm.runs.claim import labels_digest, of_model, statement_of, write_dual
from fastadmm.runs.config import make_config, read_config, solver_options
from fastadmm.runs.folder import RunFolder
from fastadmm.runs.result import class_rows, result_document, write_statement
from fastadmm.solver.history import Status
from fastadmm.solver.loop import Monitor, ended
from fastadmm.solver.run import Run
from fastadmm.solver.solver import Solver
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.model import MANIFEST, model_id_of, write_shared_part
from fastadmm.store.party_file import PartyData
from fastadmm.version import __version__

_TYPE = "fastadmm-rounds-checkpoint"


def write_state(path: Path, solver: Run, parties: Sequence[Correspondent], log: Path) -> None:
    """Write it with the rounds' log, whole or not at all."""
    queues = {
        party.name: {
            "previous": party.last,
            "answered": party.answered,
            **{f"{k:04d}": {"call": name, "arguments": own} for k, (name, own) in enumerate(party.queue)},
        }
        for party in parties
    }
    tree = {"log": np.frombuffer(read_bytes(log), dtype=np.uint8), "queues": queues}
    with create_h5(path, _TYPE) as file:
        write_tree(file, {**tree, "solver": solver.export()})


def read_state(path: Path, names: Sequence[str], but: Sequence[str] = ()) -> dict[str, Any]:
    """Inverse of :func:`write_state`, but for some arrays of the solver's."""
    with read_h5(path, _TYPE) as file:
        tree = read_tree(file, [f"solver/{key}" for key in but])
    with damaged(path, "begin a new run"):
        parties = {name: _correspondent(name, tree["queues"][name]) for name in names}
        if tree["log"].dtype != np.uint8:
            raise TypeError("log")
        return {"solver": tree["solver"], "parties": parties, "log": tree["log"].tobytes()}


def _correspondent(name: str, kept: dict[str, Any]) -> Correspondent:
    calls = [call for key, call in sorted(kept.items()) if key.isdecimal()]
    queue = [(get_key(call, "call", str, name), call["arguments"]) for call in calls]
    last, answered = get_key(kept, "previous", int, name), get_key(kept, "answered", str, name)
    return Correspondent(name, last=last, answered=answered, queue=queue)


def _read_messages(path: Path, solver: dict[str, Any], place: Callable[[int], np.ndarray | None]) -> None:
    """Read messages to where a limit on memory has them: all of them may not fit twice."""
    with read_h5(path, _TYPE) as file:
        for key in MESSAGES:
            if f"solver/{key}" in file:
                held = file[f"solver/{key}"]
                rows = place(len(held))
                for k in range(0 if rows is None else len(held)):
                    rows[k] = held[k]  # type: ignore[index]
                inside, _, last = key.rpartition("/")
                (solver[inside] if inside else solver)[last] = held[:] if rows is None else rows


#: What the owners of the data are shown, to approve it.
RUN = "run.json"

#: What numbers that nobody's features give may end in, far inside a solver.
UNUSABLE = (FormatError, InputError, ArithmeticError, ValueError, AssertionError, np.linalg.LinAlgError)

#: A checkpoint takes the place of so many bytes of answers.
_BYTES = 256 << 20


@dataclass(eq=False)
class Coordinator:
    """One run directory.

    By files no process waits for answers: there is a checkpoint after every round.
    """

    folder: RunFolder
    ask: Ask = nobody
    say: Monitor = lambda record: None
    by_files: bool = False
    tell: Say = lambda line: None
    n_rounds: int = 0

    def __post_init__(self) -> None:
        self.path, file = self.folder.path, self.folder.configuration
        values, place = read_config(file), shown(file)
        own = values.pop("rounds_by_files", None)
        if not isinstance(own, dict) or not {"run", "parties", "labels"} <= own.keys():
            text = (
                "not a run whose parties are elsewhere (table 'rounds_by_files' is missing or damaged): give "
                "that of 'fastadmm federate train' or 'fastadmm coordinator start'"
            )
            raise FormatError(f"{place}: {text}")
        self.run, self.names = str(own["run"]), [str(name) for name in own["parties"]]
        self.config = make_config(values, place)
        self.checkpoint_file, self.said_file = self.path / "checkpoint.h5", self.path / "parties.json"
        self.digests = own
        holder = self.config.privacy.label_holder(self.names)
        #: Names of the parties that are asked.
        self.elsewhere = [name for name in self.names if name != holder]
        self._hub: Hub | None = None

    @cached_property
    def journal(self) -> Journal:
        """Answers since the checkpoint."""
        return Journal(self.path / "answers.journal")

    def close(self) -> None:
        """Let go of files and threads."""
        if self._hub is not None:
            self._hub.close()
        if "journal" in self.__dict__:
            self.journal.close()

    def write_description(self, caller: str) -> None:
        """Write what the owners of the data approve."""
        self.folder.write_json(RUN, run_description(self.run, caller, self.first_terms()))

    # --- going on -----------------------------------------------------------------------------------------

    def advance(self) -> dict[str, Any]:
        """Go on until the run has ended, or an answer is missing; the content of ``result.json``."""
        finished = self.folder.finished()
        if finished is not None:
            self.n_rounds = int(finished["rounds"])
            return finished
        remove_leftovers(self.path)
        try:
            said = self._opened()
            return self._rounds(said)
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

    def said(self) -> dict[str, dict[str, Any]]:
        """What parties said of themselves, when the run began."""
        known, remedy = read_json(self.said_file), "begin a new run"
        with damaged(self.said_file, remedy, "not our record"):
            check_seal(known, known.pop("digest", None), shown(self.said_file), remedy)
            return {name: dict(known[name]) for name in self.elsewhere}

    def _opened(self) -> dict[str, dict[str, Any]]:
        """Exchange 0, where it has not been made: what the run is about."""
        if self.said_file.exists():
            return self.said()
        terms = self.first_terms()
        n = next(iter(terms.values()))["n_samples"]
        hub = self._hub_of([Correspondent(name, last=-1) for name in terms], n, 1)
        answers = hub.carry(Exchange([Call(m, "start", own) for m, own in enumerate(terms.values())]))
        said = {
            party.name: {**answer, "answered": party.answered} for party, answer in zip(hub.parties, answers)
        }
        self.folder.write_json(self.said_file.name, {**said, "digest": seal_of(said)})
        hub.flush()
        self.journal.restart()
        return said

    def first_terms(self) -> dict[str, dict[str, Any]]:
        """Arguments of the call ``start``, for every party that is asked."""
        config, privacy = self.config, self.config.privacy
        problem, labels = parts.problem_of(config, self.names, None)
        others = self._check_labels(labels)
        if privacy.mode == "none":
            told = {"family": parts.scheme_of(problem, config).method(problem.traits).family}
        else:
            solver = parts.solver_of_private(config, problem, labels, self.folder, self.run, Elsewhere())
            told = {"family": privacy.mode, "privacy": privacy_text(privacy), **solver.terms()}
            solver.close()
        common = {
            "regularization": float(problem.regularization),
            "x_update": config.x_update,
            "regularizer": config.regularizer,
            "l1_ratio": -1.0 if config.l1_ratio is None else float(config.l1_ratio),
            "n_samples": labels.n_samples,
            "row_digest": labels.row_digest,
            "parties": ",".join(self.names),
            "loss": problem.loss.name,
            "penalty": 0.0 if config.penalty is None else float(config.penalty),
            **told,
            "release": __version__,
            "table": table_digest(),
            **({"n_classes": problem.n_outputs} if problem.loss.vector else {}),
            **{key: rows.row_digest for key, rows in others.items()},
        }
        return {
            name: {**common, "constraint": problem.party_constraints[m].text, "position": m}
            for m, name in enumerate(self.names)
            if name in self.elsewhere
        }

    def _check_labels(self, labels: LabelData) -> dict[str, LabelData]:
        """Refuse other labels than the run began with; those of rows that are not trained on."""
        others = {key: open_labels(Path(path)) for key, path in parts.other_labels(self.config).items()}
        self.check_began({"labels": labels, **others})
        return others

    def check_began(self, found: Mapping[str, LabelData]) -> None:
        """Refuse labels that are not those that the run began with."""
        for key, labels in found.items():
            self._refuse_other("labels", labels.path, labels_digest(labels), key)

    def _refuse_other(self, what: str, path: Path, digest: str, key: str) -> None:
        if digest != self.digests.get(key):
            text = f"not the {what} that {shown(self.path)} began with (digests differ)"
            raise InputError(f"{shown(path)}: {text}")

    def _rounds(self, said: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """All rounds that are left; what a private run released is never asked for twice."""
        config, private = self.config, self.config.privacy.mode != "none"
        labels = open_labels(Path(config.data))
        self._check_labels(labels)
        path = None if "own" not in self.digests else self.path / str(self.digests["own"])
        own = parts.open_own(config, path, self.names, labels)
        if own is not None:
            self._refuse_other("features", own.path, own.content_digest, "own_digest")
        widths = [int(said[name]["n_features"]) if name in said else 1 for name in self.names]
        problem, labels = parts.problem_of(config, self.names, widths, own)
        messages = () if config.memory is None else MESSAGES  # these are read to where they belong
        state = None  # before the first round
        if not private and self.checkpoint_file.exists():
            state = read_state(self.checkpoint_file, self.names, messages)
        hub = self._connected(problem, said, state)
        solver = self._solver(problem, labels, hub, state)

        def carry(exchange: Exchange) -> Answers:
            answers = hub.carry(exchange)
            if solver.traffic is not None:
                solver.traffic.take(exchange, answers)
            return answers

        try:
            if state is not None:  # the file itself has no digest
                write_whole(self.folder.log, state["log"], force=True)
            self.n_rounds, record = solver.n_rounds, solver.last_record
            status = None if record is None else solver.stop_reason(record)
            with self.folder.open_log(solver.n_rounds) as log:
                while status is None:
                    record = converse(solver.next_round(), carry)
                    assert record is not None  # every answer is there
                    log.append(record)
                    self.n_rounds = solver.n_rounds
                    self.say(record)
                    # A round that was followed by another did not end the run, whatever the clock says now.
                    status = None if hub.replaying and not private else solver.stop_reason(record)
                    large = self.journal.n_bytes > _BYTES and not hub.replaying
                    if private:
                        log.sync()
                    elif status is not None or large or self.by_files:
                        hub.flush()
                        log.sync()
                        write_state(self.checkpoint_file, solver, hub.parties, self.folder.log)
                        if not hub.replaying:  # its answers are done with
                            self.journal.restart()
            return self._finish(solver, hub, status, labels, own)
        finally:
            solver.close()

    def _connected(
        self, problem: Problem, said: dict[str, dict[str, Any]], state: dict[str, Any] | None
    ) -> Hub:
        known = {name: Correspondent(name) for name in self.names} if state is None else state["parties"]
        for name, party in known.items():
            own = said.get(name, {})
            party.kind, party.reason = str(own.get("kind", "")), str(own.get("reason", ""))
            party.answered = party.answered or str(own.get("answered", ""))
        return self._hub_of([*known.values()], problem.n_samples, problem.n_outputs)

    def _hub_of(self, parties: list[Correspondent], n_samples: int, n_classes: int) -> Hub:
        if self._hub is not None:
            self._hub.close()
        about: dict[str, Any] = {"n_samples": n_samples, "n_classes": n_classes, "tell": self.tell}
        self._hub = Hub(parties, run=self.run, ask=self.ask, journal=self.journal, **about)
        return self._hub

    def _solver(self, problem: Problem, labels: LabelData, hub: Hub, state: dict[str, Any] | None) -> Run:
        if self.config.privacy.mode != "none":
            return parts.solver_of_private(self.config, problem, labels, self.folder, self.run, hub)
        early = parts.early_stopping_of(self.config, problem, labels)
        options, spills = solver_options(self.config), False
        if self.config.memory is not None:
            plan = parts.plan_of(self.config, problem)
            spills = plan.spilled > 0
            if state is None:
                for line in replace(plan, parties=[]).lines():
                    self.tell(line)
        solver = Solver(problem, options, early=early, driver=hub)
        if spills:
            solver.spill(self.path)
        if state is not None:
            with ExitStack() as failed, fitting(self.checkpoint_file):
                failed.callback(solver.close)
                if self.config.memory is not None:
                    _read_messages(self.checkpoint_file, state["solver"], solver.method.place)
                solver.restore(state["solver"], [])
                failed.pop_all()
        return solver

    # --- the end ------------------------------------------------------------------------------------------

    def _finish(
        self, solver: Run, hub: Hub, status: Status, labels: LabelData, own: PartyData | None
    ) -> dict[str, Any]:
        """Model and ``result.json``; every party is told to keep its part."""
        record = solver.last_record
        assert record is not None  # there was a round
        if isinstance(solver, Solver):
            converse(solver.proving(), hub.carry)
        result = ended(solver, solver.stop_reason(record) or status, [record])
        model_id, statement, comparison = model_id_of(self.run, result.record.round), None, None
        if result.status is not Status.DIVERGED:
            shared = parts.shared_part(solver, result, labels, model_id)
            if result.proof is not None:  # the weights are with the parties
                known = {"row_digest": labels.row_digest, "labels": self.digests["labels"]}
                statement = statement_of(result.proof, None, self.config.to_toml(), shared.lam, known)
                shared = of_model(statement, shared)
            if isinstance(solver, Solver):
                converse(solver.finishing(model_id, result.kept is not None), hub.carry)
            else:
                keep, asked = {"model_id": model_id}, map(self.names.index, self.elsewhere)
                hub.carry(Exchange([Call(m, "keep", keep) for m in asked]))
                comparison = solver.compare(result.weights, result.intercept)
            with atomic_directory(self.folder.model, force=True, marker=MANIFEST) as directory:
                write_shared_part(directory, shared)
                if own is not None:
                    parts.write_own_part(directory, solver, result, own, model_id)
            write_dual(self.path, None if result.proof is None else result.proof.dual)
        document = result_document(solver, result, statement)
        if comparison is None:
            document |= class_rows(labels) | {"privacy": no_privacy(self.names).to_json()}
        else:
            document["privacy"] = write_statement(self.path, solver, self.run).to_json()
            document["comparison"] = comparison
        self.folder.write_json("result.json", document)
        return document
