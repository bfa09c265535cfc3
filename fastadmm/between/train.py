"""A run with parties elsewhere: begun, gone on with, repaired; over channels, or by files in and out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastadmm.between.coordinator import RUN, Coordinator
from fastadmm.between.hub import Ask, Elsewhere
from fastadmm.between.letters import Letters, Waiting
from fastadmm.between.run_problem import (
    answers_of,
    early_stopping_of,
    open_own,
    other_labels,
    problem_of,
    solver_of_private,
)
from fastadmm.between.schema import approve_command
from fastadmm.between.setup import Setup, read_setup
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors
from fastadmm.files.reading import read_bytes
from fastadmm.runs.claim import labels_digest
from fastadmm.runs.config import make_config, refuse
from fastadmm.runs.export import import_party
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.load import doubts, seen_by_ids
from fastadmm.runs.result import new_run_id
from fastadmm.settings.keys import PATHS
from fastadmm.settings.run import differing
from fastadmm.solver.history import RoundRecord
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
    **how: Any,
) -> StepResult:
    """Open a run: check the labels and settings, and write the first requests; as :func:`new_run`."""
    notes: list[str] = []
    folder, fill = new_run(labels, parties, out, values, place, say=notes.append, **how)
    with folder.begin(fill, force=False):
        result = _step(folder)
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
    """A run that does not exist yet, and what writes its first files; ``say`` is given warnings."""
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
    with _held(run) as folder:
        return _step(folder, messages)


def coordinator_repair(run: Path) -> StepResult:
    """Ask for everything again: parties repeat their answers, to the same bytes."""
    with _held(run) as folder:
        try:
            if folder.finished() is not None:
                return replace(_step(folder), notes=["the run is over; nothing to repair"])
        except FormatError:
            folder.remove_result()
        for name in ("checkpoint.h5", "parties.json", "answers.journal", "requests", "answers"):
            with storage_errors(run / name):
                if (run / name).is_dir():
                    shutil.rmtree(run / name)
                else:
                    (run / name).unlink(missing_ok=True)
        return _step(folder)


@contextmanager
def _held(run: Path) -> Iterator[RunFolder]:
    """A run directory that nobody else works on; what kills left goes."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    with folder.held():
        for place in (run, run / "requests", run / "answers"):
            remove_leftovers(place)
        yield folder


def _step(folder: RunFolder, messages: Sequence[Path] = ()) -> StepResult:
    """Go on as far as the messages allow."""
    notes: list[str] = []
    with closing(Coordinator(folder, by_files=True, tell=notes.append)) as run:
        letters = Letters(folder.path, run.run, run.names, messages)
        run.ask = letters.ask
        try:
            document = run.advance()
        except Waiting as waiting:
            notes += [*letters.settle(waiting.requests), str(waiting)]
            return StepResult(waiting.requests, run.n_rounds, notes, None)
        return StepResult([], run.n_rounds, [*notes, *letters.settle([])], document)


def run_status(run: Path) -> list[str]:
    """Where a run is, and what it waits for, as far as its directory says."""
    folder = RunFolder(run, EXCHANGE)
    known = Coordinator(folder)
    finished, log = folder.finished(), folder.log
    rounds = read_bytes(log).count(b"\n") if log.exists() else 0
    now = f"{rounds} rounds" if finished is None else finished["message"]
    lines = [f"run {known.run} of {', '.join(known.names)}: {now}"]
    if finished is None and not known.said_file.exists():
        look = approve_command(known.run, "run", "DIR")
        lines.append(f"    no party is known to have approved it; send them: {look}")
    requests = sorted((run / "requests").glob("*.msg")) if finished is None else []
    return lines + [f"    waiting for an answer to {shown(request)}" for request in requests]


def federate(
    config: Path,
    out: Path,
    say: Callable[[str], None] = print,
    rounds: Callable[[RoundRecord], None] = lambda record: None,
) -> dict[str, Any]:
    """Begin a run with parties elsewhere, or go on with it, until it has ended."""
    setup = read_setup(config)
    with setup.opened(say) as ask:
        folder = begun(setup, out, say)
        with folder.held():
            document = train_run(folder, ask, say, rounds)
        if setup.own_state is not None:
            for part in setup.own_state.glob(f"{Coordinator(folder).run}/{setup.own_name}.h5"):
                import_party(part, out, force=True)
        return document


def begun(setup: Setup, out: Path, say: Callable[[str], None]) -> RunFolder:
    """A run's directory; a new one gets its first files."""
    if "data" not in setup.values:
        raise ConfigError(f"{setup.place}: key 'data' is missing: name the label file")
    folder = RunFolder(out, EXCHANGE)
    if folder.configuration.exists():
        _check_same(setup, folder)
        return folder
    values = {key: value for key, value in setup.values.items() if key != "data"}
    labels, own = Path(setup.values["data"]), None if setup.own_state is not None else setup.own
    folder, fill = new_run(labels, setup.names, out, values, setup.place, own=own, say=say)
    with folder.begin(fill, force=False):
        run = Coordinator(folder)
        run.write_description(setup.caller)
        say(f"run {run.run}: {shown(out / RUN)} is for the parties to approve")
    return RunFolder(out, EXCHANGE)


def train_run(
    folder: RunFolder, ask: Ask, say: Callable[[str], None], rounds: Callable[[RoundRecord], None]
) -> dict[str, Any]:
    """Train to the end of a run."""
    with closing(Coordinator(folder, ask, rounds, tell=say)) as run:
        return run.advance()


def _check_same(setup: Setup, folder: RunFolder) -> None:
    """Refuse to go on with another problem under the same name."""
    run = Coordinator(folder)
    asked, began = make_config(setup.values, setup.place).to_toml(), run.config.to_toml()
    for key in sorted(asked.keys() | began.keys()):
        if key not in PATHS and asked.get(key) != began.get(key):
            raise ConfigError(
                f"{setup.place}: key {key!r} is {asked.get(key)!r}, but {shown(folder.path)} began with "
                f"{began.get(key)!r}; choose another name with --out"
            )
    if setup.names != run.names:
        raise ConfigError(
            f"{setup.place}: parties {', '.join(setup.names)}, but {shown(folder.path)} began with "
            f"{', '.join(run.names)}"
        )
