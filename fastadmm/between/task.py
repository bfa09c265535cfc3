"""What is asked beside a run: to align rows, to apply a model, to infer; a task is a folder of its own."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastadmm.between.hub import Ask, collect, opened_answer
from fastadmm.between.schema import (
    KINDS,
    ProtocolError,
    Request,
    answer_to,
    digest_of,
    encode_request,
    run_identifier,
)
from fastadmm.between.socket import LONGEST
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors, write_json
from fastadmm.files.reading import json_of, read_json
from fastadmm.runs.folder import run_lock

#: Bytes of the description of runs that are approved together.
_MOST_RUNS = 1 << 20


def runs_of(task: Request, place: str) -> dict[str, dict[str, Any]]:
    """What the runs of a set are about, by identifier."""
    raw = task.arguments["runs"].tobytes()
    if len(raw) > _MOST_RUNS:
        raise ProtocolError(f"{place}: 'runs' has more than {_MOST_RUNS} bytes", "values")
    try:
        runs = json_of(raw, foreign=True)
    except ValueError:
        runs = None
    if not isinstance(runs, dict) or not runs or not all(map(_is_plain, runs.values())):
        raise ProtocolError(f"{place}: 'runs' is no table of runs", "values")
    return {run_identifier(run, place): terms for run, terms in runs.items()}


def _is_plain(terms: object) -> bool:
    """Whether it is a table of texts and numbers: nested ones would be kept at many times their size."""
    return isinstance(terms, dict) and all(
        isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        for value in terms.values()
    )


# --- at the coordinator ---

_TASK = "task.json"

#: Seconds that an answer may take: a table is read, ids are blinded.
_SECONDS = 300.0

#: Takes the answer of a party.
Take = Callable[[str, dict[str, Any]], None]


@contextmanager
def task_folder(path: Path, kind: str, about: Mapping[str, Any]) -> Iterator[str]:
    """Begin a task, or go on with it; one process at a time."""
    file = path / _TASK
    if not file.exists():
        with storage_errors(path):
            path.mkdir(mode=0o700, exist_ok=True)
            if any(path.iterdir()):
                raise ConfigError(f"{shown(path)}: exists already and is no task; choose another name")
        write_json(file, {"kind": kind, "task": secrets.token_hex(8), "about": dict(about)})
    with run_lock(path):
        remove_leftovers(path)
        known = read_json(file)
        if not isinstance(known, dict) or known.keys() != {"kind", "task", "about"}:
            raise FormatError(f"{shown(file)}: not our record; choose another directory")
        if (known["kind"], known["about"]) != (kind, dict(about)):
            raise ConfigError(f"{shown(path)}: began as another task; choose another directory")
        yield run_identifier(known["task"], shown(file))


def ask_all(ask: Ask, tasks: Mapping[str, Request], take: Take) -> None:
    """Ask parties at once."""

    def keep(name: str, raw: bytes) -> None:
        task, place = tasks[name], f"party {name}"
        found = opened_answer(raw, LONGEST, task.calls[0], -1, place)
        take(name, answer_to(found, task, digest_of(encode_request(task)), place).answer)

    if not tasks:
        return
    one = next(iter(tasks.values()))
    pool = ThreadPoolExecutor(len(tasks))
    try:
        works = {name: pool.submit(ask, name, encode_request(task), _SECONDS) for name, task in tasks.items()}
        collect(works, keep, f"task {one.run}", one.run, KINDS.get(one.call, "align"))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for who is lost
