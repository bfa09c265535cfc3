"""Runs in MLflow: a display that also logs, between a run and the display that the user sees."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastadmm.errors import ConfigError, FastadmmError, StorageError
from fastadmm.files.atomic import write_json
from fastadmm.files.seal import damaged
from fastadmm.privacy import published
from fastadmm.runs.folder import Display, document_in
from fastadmm.solver.history import RoundRecord
from fastadmm.version import __version__

#: Experiment of runs where MLFLOW_EXPERIMENT_NAME does not name another.
EXPERIMENT = "fastadmm"

#: Seconds between batches: a server that is far away must not slow the rounds.
_INTERVAL = 2.0

#: Most metrics in one request, a limit of MLflow's.
_BATCH = 1000

_PARAMETERS = 100


def uri_of(text: str) -> str:
    """The tracking URI in ``mlflow`` or ``mlflow=URI``; empty for MLflow's default."""
    kind, given, place = text.partition("=")
    wrong = ""
    if kind != "mlflow":
        wrong = f"unknown kind {kind!r}; choose mlflow, with =URI behind it"
    elif given and not place:
        wrong = f"{text!r}: nothing behind the equals sign; leave it out for the default"
    elif "://" in place and urlsplit(place).password is not None:
        # The URI is kept in the run directory, so that a resumed run finds its log.
        wrong = "a password in the URI would be kept in the run directory; set MLFLOW_TRACKING_USERNAME and "
        wrong += "MLFLOW_TRACKING_PASSWORD instead"
    if wrong:
        raise ConfigError(f"log-to: {wrong}")
    return place


def _missing(what: str) -> ConfigError:
    """The error for a library that is not installed."""
    return ConfigError(f'log-to: mlflow needs {what}: pip install "fastadmm[mlflow]"')


class MlflowTracker:
    """Metrics per round, settings as parameters, statement and result as tags."""

    def __init__(self, uri: str, name: str, run_id: str | None = None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library about itself
            try:
                from mlflow.entities import Metric, Param, RunTag
                from mlflow.tracking import MlflowClient
            except ImportError as error:
                raise _missing("mlflow-skinny") from error
        # "Creating initial MLflow database tables", in between our own lines.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self._metric, self._param, self._tag = Metric, Param, RunTag
        self.name, self.run_id = name, run_id or ""
        self._buffer: list[Any] = []
        self._sent = time.monotonic()
        self._logged = 0
        with self._errors():
            self.client = MlflowClient(tracking_uri=_absolute(uri) or None)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = self.client.get_experiment_by_name(experiment)
            self._experiment = found.experiment_id if found else self.client.create_experiment(experiment)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Whatever MLflow raises, as one line."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            reason = " ".join(str(error).split())
            if "Supported URI schemes" in reason and find_spec("sqlalchemy") is None:
                raise _missing("sqlalchemy and alembic for a database") from error
            raise StorageError(f"log-to: mlflow: {reason[:400]}") from error

    def begin(self, settings: dict[str, Any], privacy: dict[str, Any], first_round: int) -> None:
        """Create the run, or go on with it after the last round that it has."""
        tags = {"fastadmm.version": __version__}
        tags |= {f"fastadmm.privacy.{key}": str(value) for key, value in privacy.items()}
        with self._errors():
            known: dict[str, str] = {}
            if not self.run_id:
                self.run_id = self.client.create_run(self._experiment, run_name=self.name).info.run_id
            else:
                self.client.update_run(self.run_id, status="RUNNING")
                known = self.client.get_run(self.run_id).data.params
                history = self.client.get_metric_history(self.run_id, "objective")
                self._logged = max((metric.step for metric in history), default=0)
            parameters = {_key(key): str(value) for key, value in settings.items()}
            # A parameter never changes; a limit that a resumed run raised becomes a tag.
            tags |= {f"fastadmm.resumed.{k}": v for k, v in parameters.items() if known.get(k, v) != v}
            new = [self._param(key, value) for key, value in parameters.items() if key not in known]
            for start in range(0, len(new), _PARAMETERS):
                self.client.log_batch(self.run_id, params=new[start : start + _PARAMETERS])
            self.client.log_batch(self.run_id, tags=[self._tag(*item) for item in tags.items()])

    def round(self, number: int, values: dict[str, float]) -> None:
        """Buffer one round; a round that a resumed run repeats is there already, bit for bit."""
        if number <= self._logged:
            return
        self._add(number, values)
        if len(self._buffer) >= _BATCH or time.monotonic() - self._sent >= _INTERVAL:
            self.flush()

    def _add(self, number: int, values: dict[str, float]) -> None:
        now = int(1000 * time.time())
        self._buffer += [self._metric(_key(name), value, now, number) for name, value in values.items()]

    def flush(self) -> None:
        """Send what is buffered."""
        with self._errors():
            while self._buffer:
                self.client.log_batch(self.run_id, metrics=self._buffer[:_BATCH])
                del self._buffer[:_BATCH]
        self._sent = time.monotonic()

    def end(self, status: str, values: dict[str, float], texts: dict[str, str]) -> None:
        """Send final metrics and words, and close the run with the status that MLflow has for it."""
        self._add(0, values)
        self.flush()
        # A tag holds 5000 characters at least.
        tags = [self._tag(f"fastadmm.{key}", text[:5000]) for key, text in texts.items()]
        closed = {"interrupted": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
        with self._errors():
            self.client.log_batch(self.run_id, tags=tags)
            self.client.set_terminated(self.run_id, status=closed.get(status, "FINISHED"))

    def state(self) -> dict[str, Any]:
        """Tracking URI and run id."""
        return {"kind": "mlflow", "uri": self.client.tracking_uri, "run_id": self.run_id}


def _key(name: str) -> str:
    """A name that MLflow accepts; parties' names may hold anything."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)


def _absolute(uri: str) -> str:
    """The URI of a local database, whatever the current directory of a resumed run."""
    prefix = "sqlite:///"
    if uri.startswith(prefix) and not uri.startswith(prefix + "/"):
        return prefix + str(Path(uri.removeprefix(prefix)).resolve())
    return uri


#: Where the logs of a run are, in its directory.
STATE = "tracking.json"


@contextmanager
def tracked(run: str | Path, targets: Sequence[str] = (), display: Any = None) -> Iterator[Tracking]:
    """Log a run that is started or resumed inside the block; targets are ``mlflow`` or ``mlflow=URI``."""
    tracking = Tracking(Path(run), [uri_of(text) for text in targets], display)
    try:
        yield tracking
    finally:
        tracking.close()


class Tracking(Display):
    """Display and log of one run; made by :func:`tracked`."""

    def __init__(self, run: Path, uris: Sequence[str], display: Any = None) -> None:
        self.run, self.display = run, display if display is not None else Display()
        self.private = True  # until the statement says otherwise
        self.parties: list[str] = []
        # Before anything is trained: a missing library or a server that is down is said now.
        self._new = [MlflowTracker(uri, run.resolve().name) for uri in uris]
        self._open_trackers: list[MlflowTracker] = []

    def note(self, text: str) -> None:
        """Pass on to the display."""
        self.display.note(text)

    def start(self, target: float, max_rounds: int) -> None:
        """Rounds begin: the run directory says with what settings and under what statement."""
        trackers = [*self._of_earlier_parts(), *self._new]
        if trackers:
            from fastadmm.reports.records import read_records

            records = read_records(self.run)
            statement, provenance = records.privacy, records.config.get("provenance")
            self.private = statement is None or published.is_private(statement, records.config)
            content = provenance.get("content") if isinstance(provenance, dict) else None
            self.parties = list(content) if isinstance(content, dict) else []  # digests by their names
            first = int(records.history.round[-1]) + 1 if len(records.history) else 1
            facts = {} if statement is None else published.privacy_facts(statement)
            for tracker in trackers:
                tracker.begin(published.settings_of(records.config), facts, first)
                self._open_trackers.append(tracker)
            write_json(self.run / STATE, {"logs": [tracker.state() for tracker in trackers]})
        self.display.start(target, max_rounds)

    def round(self, record: RoundRecord) -> None:
        """Log a round, and show it."""
        if self._open_trackers:
            values = published.round_numbers(record, self.parties, private=self.private)
            self._each("round", record.round, values)
        self.display.round(record)

    def stop(self) -> None:
        """Rounds are over."""
        self._each("flush")
        self.display.stop()

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Log the result and close the logs."""
        texts = published.result_texts(result, private=self.private)
        self._end(texts["status"], published.result_numbers(result, private=self.private), texts)
        return result

    def close(self) -> None:
        """Close logs of a run that ended without a result."""
        self._end("failed", {}, {"status": "failed"})

    def _end(self, *how: Any) -> None:
        self._each("end", *how)
        self._open_trackers = []

    def _each(self, action: str, *what: Any) -> None:
        for tracker in list(self._open_trackers):
            try:
                getattr(tracker, action)(*what)
            except FastadmmError as error:
                self._open_trackers.remove(tracker)
                self.display.note(f"warning: {error}; this log ends here, training goes on")

    def _of_earlier_parts(self) -> list[MlflowTracker]:
        """The logs that a resumed run has already."""
        path, name = self.run / STATE, self.run.resolve().name
        document = document_in(path)
        if document is None:
            return []
        with damaged(path, "delete it to go on without its logs", "not what a tracked run writes"):
            # Version 0.2 wrote files for TensorBoard, too.
            states = [state for state in document["logs"] if state["kind"] == "mlflow"]
            known = [(str(state["uri"]), str(state["run_id"])) for state in states]
        return [MlflowTracker(uri, name, run_id) for uri, run_id in known]
