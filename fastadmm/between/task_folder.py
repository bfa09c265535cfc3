"""A task of the coordinator beside training: a directory, and parties that are asked until all answered."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.between.hub import Ask
from fastadmm.between.schema import ProtocolError, Refusal, digest_of, open_envelope, run_identifier
from fastadmm.between.socket import LONGEST, Lost
from fastadmm.between.task import Task, answer_of_task, encode_task
from fastadmm.between.train import PAUSES
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.files.writing import write_json
from fastadmm.between.refused import CODES, refused
from fastadmm.runs.lock import run_lock

__all__ = ["ask_all", "task_folder"]

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


def ask_all(ask: Ask, tasks: Mapping[str, Task], take: Take, say: Callable[[str], None]) -> None:
    """Ask parties at once, those that are lost again, until all have answered."""
    waiting, pauses = dict(tasks), list(PAUSES)
    while waiting:
        with ThreadPoolExecutor(len(waiting)) as pool:
            works = {name: pool.submit(_answer, ask, task) for name, task in waiting.items()}
        lost, wrong = None, None
        for name, work in works.items():
            try:
                take(name, work.result())
                del waiting[name]
            except Lost as error:
                lost = error
            except FastadmmError as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        if lost is not None:
            if not pauses:
                raise Lost(f"{lost}; the same command goes on where this task is") from None
            say(f"{lost}; next attempt in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))


def _answer(ask: Ask, task: Task) -> dict[str, Any]:
    raw, place = encode_task(task), f"party {task.party}"
    said = ask(task.party, raw, _SECONDS)
    try:
        found = answer_of_task(
            open_envelope(said, LONGEST, place), replace(task, digest=digest_of(raw)), place
        )
    except ProtocolError as error:
        raise FormatError(f"{error}; nothing of it is kept") from None
    if isinstance(found, Refusal):
        text = f"{place}: refused ({found.code}): {CODES[found.code]}"
        raise refused(found.code, InputError(text))
    return found.answer
