"""A run as an MLflow run."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastadmm.errors import ConfigError, StorageError
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
    if kind != "mlflow":
        raise ConfigError(f"log-to: unknown kind {kind!r}; choose mlflow, with =URI behind it")
    if given and not place:
        raise ConfigError(f"log-to: {text!r}: nothing behind the equals sign; leave it out for the default")
    if "://" in place and urlsplit(place).password is not None:
        # The URI is kept in the run directory, so that a resumed run finds its log.
        raise ConfigError(
            "log-to: a password in the URI would be kept in the run directory; set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
        )
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
                self._logged = self._last_step()
            parameters = {_key(key): str(value) for key, value in settings.items()}
            # A parameter never changes; a limit that a resumed run raised becomes a tag.
            tags |= {f"fastadmm.resumed.{k}": v for k, v in parameters.items() if known.get(k, v) != v}
            new = [self._param(key, value) for key, value in parameters.items() if key not in known]
            for start in range(0, len(new), _PARAMETERS):
                self.client.log_batch(self.run_id, params=new[start : start + _PARAMETERS])
            self.client.log_batch(self.run_id, tags=[self._tag(*item) for item in tags.items()])

    def _last_step(self) -> int:
        history = self.client.get_metric_history(self.run_id, "objective")
        return max((metric.step for metric in history), default=0)

    def round(self, number: int, values: dict[str, float]) -> None:
        """Buffer one round; a round that a resumed run repeats is there already, bit for bit."""
        if number <= self._logged:
            return
        now = int(1000 * time.time())
        self._buffer += [self._metric(_key(name), value, now, number) for name, value in values.items()]
        if len(self._buffer) >= _BATCH or time.monotonic() - self._sent >= _INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Send what is buffered."""
        with self._errors():
            while self._buffer:
                self.client.log_batch(self.run_id, metrics=self._buffer[:_BATCH])
                del self._buffer[:_BATCH]
        self._sent = time.monotonic()

    def end(self, status: str, values: dict[str, float], texts: dict[str, str]) -> None:
        """Send final metrics and words, and close the run with the status that MLflow has for it."""
        now = int(1000 * time.time())
        self._buffer += [self._metric(_key(name), value, now, 0) for name, value in values.items()]
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
