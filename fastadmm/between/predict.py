"""Scores over the channel: each party's part of every row's, added up as ``fastadmm combine`` does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fastadmm.between.coordinator import Coordinator
from fastadmm.between.hub import Ask
from fastadmm.between.setup import Setup, read_setup
from fastadmm.between.task import Task
from fastadmm.between.task_book import ask_all, task_folder
from fastadmm.errors import ConfigError, FastadmmError, FormatError
from fastadmm.files.atomic import csv_file, storage_errors
from fastadmm.runs.combine import combine_contributions, partial_predict, write_contribution
from fastadmm.runs.evaluate import evaluate_predictions
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.runs.looks import seen_by_ids
from fastadmm.runs.predict import Predictions, write_predictions
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import SharedPart, open_shared_part

#: The result, in the task's directory.
PREDICTIONS = "predictions.csv"


def federate_predict(
    config: Path,
    run: Path,
    rows: Path,
    out: Path,
    *,
    own: Path | None = None,
    say: Callable[[str], None] = print,
) -> Predictions:
    """Score rows whose features the parties have."""
    setup = read_setup(config)
    with setup.ways.opened(say, ends=False) as ask:
        return ask_predictions(setup, ask, run, rows, out, own, say)


def federate_evaluate(
    config: Path,
    run: Path,
    test: Path,
    out: Path,
    *,
    own: Path | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure a model on rows whose features the parties have."""
    labels = open_labels(test)
    predictions = federate_predict(config, run, test, out, own=own, say=say)
    began, looks = coordinator_of(run).config, list[str]()
    with suppress(FastadmmError):  # without the labels of training nothing is known
        looks = seen_by_ids(open_labels(Path(began.data)), labels, began.privacy.mode != "none")
    return evaluate_predictions(run, predictions, labels, test, looks=looks)


def ask_predictions(
    setup: Setup, ask: Ask, run: Path, rows: Path, out: Path, own: Path | None, say: Callable[[str], None]
) -> Predictions:
    """Predict rows whose features the parties have, with a given way to ask them."""
    identifier = coordinator_of(run).run
    shared, _ = open_shared_part(run)
    ids, digest, has_offset = _rows(rows)
    _check_parties(setup, shared, own)
    arguments = {"run": identifier, "model_id": shared.model_id, "n_samples": len(ids), "row_digest": digest}
    with task_folder(out, "predict", arguments) as task:
        paths = {name: out / f"contribution-{name}.h5" for name in shared.names}

        def take(name: str, answer: dict[str, Any]) -> None:
            (values,) = answer.values()
            if values.shape[1:] != np.shape(shared.intercept):
                raise FormatError(f"party {name}: its scores are not of the model's classes; nothing is kept")
            write_contribution(paths[name], name=name, model_id=shared.model_id, values=values, ids=ids)

        tasks = {
            name: Task(task, name, "contribute", arguments)
            for name in setup.elsewhere
            if not paths[name].exists()
        }
        if own is not None and not paths[setup.own_name].exists():
            # It stays here: only the sum with the others is written for anybody.
            partial_predict(run, own, paths[setup.own_name], allow_infinite_epsilon=True)
        if tasks:
            ask_all(ask, tasks, take, say)
        predictions = combine_contributions(run, list(paths.values()), labels=rows if has_offset else None)
        with csv_file(out / PREDICTIONS) as file:
            write_predictions(file, predictions)
    return predictions


def coordinator_of(run: Path) -> Coordinator:
    """The coordinator of a run that is over, which asks nobody."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    return Coordinator(folder)


def _rows(path: Path) -> tuple[np.ndarray, str, bool]:
    """Ids, their digest, and whether there is an offset to be added."""
    with storage_errors(path, "read"):
        path.stat()
    if h5py.is_hdf5(path):
        labels = open_labels(path)
        return labels.ids(), labels.row_digest, labels.offset is not None
    from fastadmm.data_tools.alignment import read_alignment

    alignment = read_alignment(path)
    return alignment.ids, alignment.digest, False


def _check_parties(setup: Setup, shared: SharedPart, own: Path | None) -> None:
    if setup.names != shared.names:
        raise ConfigError(
            f"{setup.place}: parties {', '.join(setup.names)}, but the model has {', '.join(shared.names)}"
        )
    if (own is not None) != bool(setup.own_name):
        words = (
            f"{setup.own_name} is the label holder's own: give its features of these rows with --own"
            if setup.own_name
            else "--own: no party is the label holder's own file"
        )
        raise ConfigError(f"{setup.place}: {words}")
