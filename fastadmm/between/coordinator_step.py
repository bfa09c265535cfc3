"""The coordinator's side: messages come in as files, requests go out as files, all state is one directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastadmm.between.coordinator import UNUSABLE, Coordinator
from fastadmm.between.hub import Elsewhere
from fastadmm.between.letters import Letters, Waiting
from fastadmm.between.private import open_own, solver_of_private
from fastadmm.between.run_problem import answers_of, early_stopping_of, other_labels, problem_of
from fastadmm.errors import ConfigError
from fastadmm.runs.check import doubts
from fastadmm.runs.config import make_config, refuse
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.looks import seen_by_ids
from fastadmm.runs.private import new_run_id
from fastadmm.runs.provenance import labels_digest
from fastadmm.settings.run import differing
from fastadmm.store.label_file import open_labels
from fastadmm.store.party_file import check_party_name


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
    with folder.begin(fill, force=False), by_files(folder) as (coordinator, letters):
        result = step_result(coordinator, letters)
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
    for path in other_labels(config).values():
        for line in seen_by_ids(data, open_labels(Path(path)), config.privacy.mode != "none"):
            say(line)
    if config.privacy.mode == "none":
        for line in answers_of(problem, config):
            say(line)
        early_stopping_of(config, problem, data)
    elif other_labels(config):
        raise ConfigError(
            f"key {next(iter(other_labels(config)))!r}: a private round by files has none; leave it out"
        )
    else:  # what theorems do not cover is refused now
        solver_of_private(config, problem, data, folder, run, Elsewhere()).close()
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
    with one_coordinator(run, messages) as (coordinator, letters):
        return step_result(coordinator, letters)


@contextmanager
def one_coordinator(run: Path, messages: Sequence[Path] = ()) -> Iterator[tuple[Coordinator, Letters]]:
    """The coordinator of a run directory, which nobody else works on, and its files; what kills left goes."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    with folder.held(), by_files(folder, messages) as both:
        both[1].remove_leftovers()
        yield both


@contextmanager
def by_files(folder: RunFolder, messages: Sequence[Path] = ()) -> Iterator[tuple[Coordinator, Letters]]:
    """A coordinator whose parties are asked by files, and these."""
    known = Coordinator(folder)
    letters = Letters(folder.path, known.run, known.names, messages)
    with closing(Coordinator(folder, letters.ask, begin=letters.begin)) as coordinator:
        yield coordinator, letters


def step_result(coordinator: Coordinator, letters: Letters) -> StepResult:
    """Go on as far as the messages allow."""
    try:
        document = coordinator.advance()
    except Waiting as waiting:
        return StepResult(waiting.requests, coordinator.n_rounds, [*letters.notes, str(waiting)], None)
    except UNUSABLE:
        letters.drop_taken()
        raise
    return StepResult([], coordinator.n_rounds, letters.notes, document)
