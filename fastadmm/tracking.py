"""A run in MLflow, once it has ended: settings, rounds, result, and what may be said of a private run."""

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
from fastadmm.privacy import published
from fastadmm.reports.records import read_records
from fastadmm.runs.folder import rounds_in
from fastadmm.version import __version__

#: Experiment of runs where MLFLOW_EXPERIMENT_NAME does not name another.
EXPERIMENT = "fastadmm"

#: Most of each kind in one request: limits of MLflow's.
_MOST = {"params": 100, "metrics": 1000, "tags": 100}

#: Where MLflow has no word of its own, a run is FINISHED.
_STATUS = {"interrupted": "KILLED", "diverged": "FAILED"}


def uri_of(text: str) -> str:
    """The tracking URI in ``mlflow`` or ``mlflow=URI``; empty for MLflow's default."""
    kind, given, place = text.partition("=")
    wrong = ""
    if kind != "mlflow":
        wrong = f"unknown kind {kind!r}; choose mlflow, with =URI behind it"
    elif given and not place:
        wrong = f"{text!r}: nothing behind the equals sign; leave it out for the default"
    elif "://" in place and urlsplit(place).password is not None:
        wrong = "a password in the URI would be shown to whoever lists processes; set "
        wrong += "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
    if wrong:
        raise ConfigError(f"log-to: {wrong}")
    return place


def _missing(what: str) -> ConfigError:
    """The error for a library that is not installed."""
    return ConfigError(f'log-to: mlflow needs {what}: pip install "fastadmm[mlflow]"')


@contextmanager
def _errors() -> Iterator[None]:
    """Whatever MLflow raises, as one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library about itself
            yield
    except Exception as error:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "mlflow":
            raise _missing("mlflow-skinny") from error
        reason = " ".join(str(error).split())
        if "Supported URI schemes" in reason and find_spec("sqlalchemy") is None:
            raise _missing("sqlalchemy and alembic for a database") from error
        raise StorageError(f"log-to: mlflow: {reason[:400]}") from error


class MlflowLog:
    """An experiment of a server or a database; made before training, so that what is missing is said then."""

    def __init__(self, target: str) -> None:
        uri = uri_of(target)
        # "Creating initial MLflow database tables", in between our own lines.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        with _errors():
            from mlflow.tracking import MlflowClient

            self.client = MlflowClient(tracking_uri=uri or None)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = self.client.get_experiment_by_name(experiment)
            self._experiment = found.experiment_id if found else self.client.create_experiment(experiment)

    def add(self, run: Path, result: dict[str, Any]) -> None:
        """Log a run that has ended: settings as parameters, rounds as metrics, the rest as tags."""
        records = read_records(run)
        statement, provenance = records.privacy, records.config.get("provenance")
        private = statement is None or published.is_private(statement, records.config)
        content = provenance.get("content") if isinstance(provenance, dict) else None
        parties = list(content) if isinstance(content, dict) else []  # digests by their names
        facts = {} if statement is None else published.privacy_facts(statement)
        tags = {"version": __version__, **{f"privacy.{key}": str(value) for key, value in facts.items()}}
        tags |= published.result_texts(result, private=private)
        numbers = {0: published.result_numbers(result, private=private)}
        for record, _ in rounds_in(run / "rounds.jsonl"):
            numbers[record["round"]] = published.round_numbers(record, parties, private=private)
        with _errors():
            from mlflow.entities import Metric, Param, RunTag

            now, name = int(1000 * time.time()), run.resolve().name
            items: dict[str, list[Any]] = {
                "params": [Param(_key(k), str(v)) for k, v in published.settings_of(records.config).items()],
                "metrics": [Metric(_key(k), v, now, n) for n, own in numbers.items() for k, v in own.items()],
                # A tag holds 5000 characters at least.
                "tags": [RunTag(f"fastadmm.{key}", text[:5000]) for key, text in tags.items()],
            }
            made = self.client.create_run(self._experiment, run_name=name).info.run_id
            for kind, every in items.items():
                for start in range(0, len(every), _MOST[kind]):
                    self.client.log_batch(made, **{kind: every[start : start + _MOST[kind]]})
            self.client.set_terminated(made, _STATUS.get(tags["status"], "FINISHED"))


def _key(name: str) -> str:
    """A name that MLflow accepts; parties' names may hold anything."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
