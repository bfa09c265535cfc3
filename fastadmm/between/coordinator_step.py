"""The coordinator's side: messages come in as files, requests go out as files, all state is one directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.exchange import Request, open_message
from fastadmm.between.letters import Correspondent, Letters
from fastadmm.between.mailbox import Mailbox
from fastadmm.between.private import open_own, private_run, solver_of_private, write_private_model
from fastadmm.between.private_terms import privacy_text
from fastadmm.between.round_state import read_state, rounds_done, write_state
from fastadmm.between.run_problem import answers_of, early_stopping_of, other_labels, problem_of, scheme_of
from fastadmm.conversation.exchange import converse
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_directory, remove_leftovers, shown
from fastadmm.privacy.statement import no_privacy
from fastadmm.problem.problem import Problem
from fastadmm.runs.check import doubts
from fastadmm.runs.claim import of_model, statement_of, write_dual
from fastadmm.runs.config import make_config, read_config, refuse, solver_options
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.private import new_run_id, write_statement
from fastadmm.runs.provenance import labels_digest
from fastadmm.runs.result import certificate_of, result_document
from fastadmm.settings.run import differing
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.loop import SolveResult, ended
from fastadmm.solver.solver import Solver
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.model import MANIFEST, SharedPart, write_shared_part
from fastadmm.store.model_id import model_id_of
from fastadmm.store.party_file import check_party_name

__all__ = [
    "UNUSABLE",
    "Coordinator",
    "StepResult",
    "coordinator_start",
    "coordinator_step",
    "new_run",
    "one_coordinator",
]

#: What numbers that nobody's features give may end in, far inside a solver.
UNUSABLE = (FormatError, InputError, ArithmeticError, ValueError, AssertionError, np.linalg.LinAlgError)


@dataclass(frozen=True)
class StepResult:
    """Where a run stands after a step."""

    requests: list[Path]  # requests that have not been answered, one file per party
    n_rounds: int  # rounds done
    notes: list[str]  # what the step has to say
    document: dict[str, Any] | None  # content of ``result.json`` once the run is over


def coordinator_start(
    labels: Path,
    parties: Sequence[str],
    out: Path,
    values: dict[str, Any],
    place: str = "command line",
    *,
    options: dict[str, Any] | None = None,
    own: Path | None = None,
) -> StepResult:
    """Open a run: check the labels and settings, and write the first requests."""
    notes: list[str] = []
    folder, fill = new_run(labels, parties, out, values, place, options=options, own=own, say=notes.append)
    with folder.begin(fill, force=False):
        result = Coordinator(folder).advance()
        return replace(result, notes=[*notes, *result.notes])


def new_run(
    labels: Path,
    parties: Sequence[str],
    out: Path,
    values: dict[str, Any],
    place: str,
    *,
    options: dict[str, Any] | None = None,
    own: Path | None = None,
    say: Callable[[str], None],
) -> tuple[RunFolder, Callable[[RunFolder], None]]:
    """A run that does not exist yet, and what writes its first files, for :meth:`RunFolder.begin`.

    ``labels``, ``parties``, ``out``, ``values``, ``place``, ``options`` and ``own``, and errors: as in
    :func:`coordinator_start`. ``say`` is given warnings.
    """
    if not parties:
        raise ConfigError("coordinator start: name the parties with --party")
    names = [check_party_name(name, "--party") for name in parties]
    for k, name in enumerate(names):
        if name.casefold() in [other.casefold() for other in names[:k]]:
            raise ConfigError(f"--party {name}: named twice")
    config = make_config({**values, "data": str(labels)}, place, options)
    refuse("exchange", differing(config))
    run, folder = new_run_id(), RunFolder(out, EXCHANGE)
    holder = open_own(config, own, names, open_labels(Path(config.data)))
    problem, data = problem_of(config, names, None, holder)
    for line in doubts(data.task, problem.loss):
        say(line)
    if config.privacy.mode == "none":
        answers_of(problem, config)
        early_stopping_of(config, problem, data)
    elif other_labels(config):
        raise ConfigError(
            f"key {next(iter(other_labels(config)))!r}: a private round by files has none; leave it out"
        )
    else:  # what theorems do not cover is refused now
        solver_of_private(config, problem, data, folder, run, Letters(data.n_samples, [])).close()
    about = {
        "run": run,
        "parties": names,
        "labels": labels_digest(data),
        **{key: labels_digest(open_labels(Path(path))) for key, path in other_labels(config).items()},
    }
    if holder is not None:
        about |= {"own": folder.relative(holder.path), "own_digest": holder.content_digest}

    def fill(new: RunFolder) -> None:
        paths = {"data": config.data, "ledger": config.ledger, **other_labels(config)}
        new.write_configuration(config.to_toml(), paths, {"rounds_by_files": about}, final=out)

    return folder, fill


def coordinator_step(run: Path, messages: Sequence[Path] = ()) -> StepResult:
    """Take messages in and go on as far as they allow."""
    with one_coordinator(run) as coordinator:
        coordinator.advance()
        taken, kept = coordinator.mail.take(messages)
        try:
            result = coordinator.advance()
        except UNUSABLE as error:
            # What cannot be used is not kept: else the party could never send a better one.
            for path in kept:
                path.unlink(missing_ok=True)
            place = shown(run)
            if isinstance(error, (FormatError, InputError)) and place in str(error):
                raise
            kind = type(error) if isinstance(error, (FormatError, InputError)) else FormatError
            raise kind(f"{place}: with these messages no round can be made: {error}") from None
        return replace(result, notes=[*taken, *result.notes])


@contextmanager
def one_coordinator(run: Path) -> Iterator[Coordinator]:
    """The coordinator of a run directory, which nobody else works on; leftovers of killed processes go."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    with folder.held():
        coordinator = Coordinator(folder)
        mail = coordinator.mail
        for place in (run, mail.requests, mail.sent, *mail.answer_folders()):
            remove_leftovers(place)
        yield coordinator


class Coordinator:
    """One run directory."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.path = folder, folder.path
        values, place = read_config(folder.configuration), shown(folder.configuration)
        own = values.pop("rounds_by_files", None)
        if not isinstance(own, dict) or not {"run", "parties", "labels"} <= own.keys():
            raise FormatError(f"{place}: table 'rounds_by_files' is missing or damaged")
        self.run, self.names = str(own["run"]), [str(name) for name in own["parties"]]
        self.config = make_config(values, place)
        self.mail = Mailbox(folder, self.run, self.names, Path(self.config.data))
        self._checkpoint = self.path / "checkpoint.h5"
        self.digests = own
        self.own = None if "own" not in own else self.path / str(own["own"])
        self.own_digest = own.get("own_digest")
        holder = self.config.privacy.label_holder(self.names)
        #: Names of the parties that are asked.
        self.elsewhere = [name for name in self.names if name != holder]
        self.notes: list[str] = []

    # --- going on -----------------------------------------------------------------------------------------

    def advance(self) -> StepResult:
        """Go on until an answer is missing, and write the requests for it; free to repeat."""
        finished = self.folder.finished()
        if finished is not None:
            return StepResult([], int(finished["rounds"]), self.notes, finished)
        number, digests = self.mail.awaited()
        missing = [name for name in digests if not self.mail.answer_path(number, name).exists()]
        if missing:
            self.mail.file_away(
                {self.mail.request_path(number, name) for name in digests}
            )  # a kill may have come first
            rounds = self._n_rounds()
            self.notes = [f"waiting for {', '.join(missing)} (exchange {number})"]
            return StepResult(
                [self.mail.request_path(number, name) for name in missing], rounds, self.notes, None
            )
        self.notes = []
        if not all(self.mail.answer_path(0, name).exists() for name in self.elsewhere):
            return self._open()
        hello = {name: self._hello(name) for name in self.elsewhere}
        return self._rounds(hello) if self.config.privacy.mode == "none" else self._private(hello)

    def _n_rounds(self) -> int:
        return rounds_done(self._checkpoint) if self._checkpoint.exists() else 0

    def _hello(self, name: str) -> dict[str, Any]:
        """What a party said of itself when the run was opened."""
        return open_message(self.mail.answer_path(0, name), 0, lambda _: ("start", {})).answer

    def _open(self) -> StepResult:
        """Exchange 0: what the run is about."""
        terms = self.first_terms()
        requests = {name: Request(self.run, name, 0, -1, [("start", own)]) for name, own in terms.items()}
        opened = self._wait(0, requests, 0)
        if self.config.privacy.mode != "none":
            return opened
        problem, _ = problem_of(self.config, self.names, None)
        return replace(opened, notes=[*answers_of(problem, self.config), *opened.notes])

    def first_terms(self) -> dict[str, dict[str, Any]]:
        """Arguments of the call ``start``, for every party that is asked."""
        problem, labels = problem_of(self.config, self.names, None)
        self._check_labels(labels)
        privacy = self.config.privacy
        private: dict[str, Any] = {}
        if privacy.mode != "none":
            driver = Letters(labels.n_samples, [])
            solver = solver_of_private(self.config, problem, labels, self.folder, self.run, driver)
            private = {"privacy": privacy_text(privacy), **solver.terms()}
            solver.close()
        others = {key: open_labels(Path(path)) for key, path in other_labels(self.config).items()}
        family = privacy.mode if private else scheme_of(problem, self.config).method(problem.traits).family
        return {
            name: {
                "family": family,
                "regularization": float(problem.regularization),
                "x_update": self.config.x_update,
                "regularizer": self.config.regularizer,
                "l1_ratio": -1.0 if self.config.l1_ratio is None else float(self.config.l1_ratio),
                "constraint": problem.party_constraints[m].text,
                "n_samples": labels.n_samples,
                "row_digest": labels.row_digest,
                "position": m,
                "parties": ",".join(self.names),
                "loss": problem.loss.name,
                "penalty": 0.0 if self.config.penalty is None else float(self.config.penalty),
                **private,
                **({"n_classes": problem.n_outputs} if problem.loss.vector else {}),
                **{key: rows.row_digest for key, rows in others.items()},
            }
            for m, name in enumerate(self.names)
            if name in self.elsewhere
        }

    def _check_labels(self, labels: LabelData) -> None:
        others = {key: open_labels(Path(path)) for key, path in other_labels(self.config).items()}
        for key, found in {"labels": labels, **others}.items():
            if labels_digest(found) != self.digests.get(key):
                raise InputError(
                    f"{shown(found.path)}: not the labels that {shown(self.path)} began with (digests differ)"
                )

    def _rounds(self, hello: dict[str, dict[str, Any]]) -> StepResult:
        widths = [int(hello[name]["n_features"]) for name in self.names]
        problem, labels = problem_of(self.config, self.names, widths)
        self._check_labels(labels)
        while True:
            state = self.checkpoint()
            letters = self._letters(problem, hello, state)
            solver = self._solver(problem, labels, letters, state)
            try:
                with self.folder.open_log(solver.n_rounds) as log:
                    record = solver.last_record
                    status = solver.stop_reason(record) if record is not None else None
                    if record is not None and status is not None:
                        return self._finish(solver, letters, record, status, labels)
                    record = converse(solver.next_round(), letters.carry)
                    if record is None:
                        return self._ask(letters, solver.n_rounds)
                    log.append(record)
                    log.sync()
                self._save(solver, letters)
            finally:
                solver.close()

    def _private(self, hello: dict[str, dict[str, Any]]) -> StepResult:
        """A private run, from its first round; what was released is never asked for twice."""
        labels = open_labels(Path(self.config.data))
        self._check_labels(labels)
        own = open_own(self.config, self.own, self.names, labels)
        if own is not None and own.content_digest != self.own_digest:
            raise InputError(
                f"{shown(own.path)}: not the features that {shown(self.path)} began with (digests differ)"
            )
        widths = [int(hello[name]["n_features"]) if name in hello else 1 for name in self.names]
        problem, _ = problem_of(self.config, self.names, widths, own)
        letters = self._letters(problem, hello, None)
        solver = solver_of_private(self.config, problem, labels, self.folder, self.run, letters)
        asked = [m for m, name in enumerate(self.names) if name in hello]
        try:
            with self.folder.open_log() as log:
                ended = converse(private_run(solver, asked, self.run, log), letters.carry)
            if ended is None:
                return self._ask(letters, solver.n_rounds)
            comparison = solver.compare(ended.result.weights, ended.result.intercept)
        finally:
            solver.close()
        with atomic_directory(self.folder.model, force=True, marker=MANIFEST) as directory:
            write_private_model(directory, solver, ended, labels, own)
        document = result_document(solver, ended.result)
        document["privacy"] = write_statement(self.path, solver, self.run).to_json()
        document["comparison"] = comparison.to_json()
        self.folder.write_json("result.json", document)
        return StepResult([], solver.n_rounds, [], document)

    def _letters(
        self, problem: Problem, hello: dict[str, dict[str, Any]], state: dict[str, Any] | None
    ) -> Letters:
        first = 1 if state is None else int(state["first"])
        return Letters(
            problem.n_samples,
            [
                Correspondent(
                    name,
                    str(hello.get(name, {}).get("kind", "")),
                    str(hello.get(name, {}).get("reason", "")),
                    self.mail.answers(name, first),
                    [] if state is None else state["queues"][name],
                    0 if state is None else state["previous"][name],
                )
                for name in self.names
            ],
            problem.n_outputs,
        )

    def _solver(
        self, problem: Problem, labels: LabelData, letters: Letters, state: dict[str, Any] | None
    ) -> Solver:
        early = early_stopping_of(self.config, problem, labels)
        solver = Solver(problem, solver_options(self.config), early=early, driver=letters)
        if state is not None:
            try:
                solver.restore(state["solver"], [])
            except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
                solver.close()
                raise FormatError(
                    f"{shown(self._checkpoint)}: {error}: missing, or not of this problem's shape"
                ) from None
        return solver

    # --- the state between rounds -------------------------------------------------------------------------

    def _save(self, solver: Solver, letters: Letters) -> None:
        """The state after a round; its answers are then done with."""
        first = 1 + max(party.last for party in letters.parties)
        write_state(self._checkpoint, solver, letters.parties, first)
        self.mail.forget(first)

    def checkpoint(self) -> dict[str, Any] | None:
        """The state after the last whole round; None before the first."""
        return read_state(self._checkpoint, self.names) if self._checkpoint.exists() else None

    # --- requests out -------------------------------------------------------------------------------------

    def _ask(self, letters: Letters, n_rounds: int) -> StepResult:
        number = 1 + max(party.last for party in letters.parties)
        requests = {}
        for party in letters.parties:
            if party.asking:
                taken = self.mail.answered(party.last, party.name)
                requests[party.name] = Request(self.run, party.name, number, party.last, party.queue, taken)
        return self._wait(number, requests, n_rounds)

    def _wait(self, number: int, requests: dict[str, Request], n_rounds: int) -> StepResult:
        paths = self.mail.send(number, requests)
        note = f"exchange {number}: requests for {', '.join(requests)} in {self.mail.requests}"
        return StepResult(paths, n_rounds, [note], None)

    # --- the end ------------------------------------------------------------------------------------------

    def _finish(
        self, solver: Solver, letters: Letters, record: RoundRecord, status: Status, labels: LabelData
    ) -> StepResult:
        if converse(solver.proving(), letters.carry) is None:
            return self._ask(letters, solver.n_rounds)
        result = ended(solver, solver.stop_reason(record) or status, [record])
        privacy, statement = no_privacy(self.names), None
        if result.status is not Status.DIVERGED:
            shared = _shared(solver, result, labels, self.run)
            if result.proof is not None:  # the weights are with the parties
                known = {"row_digest": labels.row_digest, "labels": self.digests["labels"]}
                statement = statement_of(result.proof, None, self.config.to_toml(), shared.lam, known)
                shared = of_model(statement, shared)
            talk = solver.finishing(shared.model_id, result.kept is not None)
            means = converse(talk, letters.carry)
            if means is None:
                return self._ask(letters, solver.n_rounds)
            found = np.array(means, dtype=np.float64) if means else None
            if found is not None and found.shape != (len(self.names), *np.shape(result.intercept)):
                raise FormatError("the means of the parties' contributions are not those of this model")
            with atomic_directory(self.folder.model, force=True, marker=MANIFEST) as directory:
                write_shared_part(directory, replace(shared, means=found))
            write_dual(self.path, None if result.proof is None else result.proof.dual)
        document = {**result_document(solver, result, statement), "privacy": privacy.to_json()}
        self.folder.write_json("result.json", document)
        return StepResult([], solver.n_rounds, [], document)


def _shared(solver: Solver, result: SolveResult, labels: LabelData, run_id: str) -> SharedPart:
    problem = solver.problem
    return SharedPart(
        loss=problem.loss.text,
        task=problem.loss.task,
        lam=problem.lam,
        intercept=result.intercept,
        classes=labels.classes,
        names=problem.names,
        n_features=[int(block.shape[1]) for block in problem.blocks],
        scales=[1.0] * len(problem.names),
        certificate=certificate_of(result),
        penalty=problem.describe_penalty(),
        privacy=no_privacy(problem.names),
        model_id=model_id_of(run_id, result.record.round),
    )
