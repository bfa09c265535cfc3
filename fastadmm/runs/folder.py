"""One run, one folder: its names, who works in it, how anything gets into it, and where it shows that."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from fastadmm.errors import FormatError, StorageError
from fastadmm.files import atomic
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.modes import lock_file, owner_only
from fastadmm.files.reading import json_of, read_bytes, read_json, read_toml
from fastadmm.files.seal import SEAL, seal_of
from fastadmm.privacy.ledger import refuse_to_forget
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.solver.history import RoundRecord


@contextmanager
def run_lock(run: Path, name: Path | None = None) -> Iterator[Callable[[], None]]:
    """Hold a run directory; what it yields refuses to write by name into another one.

    The system releases it however the process ends.
    """
    name = run if name is None else name
    with storage_errors(name, "read"):
        descriptor = os.open(run, os.O_RDONLY)  # the directory itself: nothing to leave behind
    held = os.fstat(descriptor)

    def check() -> None:
        try:
            same = os.path.samestat(os.stat(name), held)
        except FileNotFoundError:
            same = False
        if not same:
            said = "was moved, removed or replaced while this run worked in it; nothing more is written"
            raise StorageError(f"{shown(name)}: {said}")

    try:
        try:
            lock_file(descriptor, wait=False)
        except BlockingIOError:
            said = "another process is working on this run; wait for it, or stop it"
            raise StorageError(f"{shown(name)}: {said}") from None
        yield check
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Kind:
    """A kind of run."""

    configuration: str  # the file that makes a directory a run of this kind
    own: tuple[str, ...]  # patterns of all that it may hold; one with anything else in it is never replaced
    ledger: str  # the run's own privacy ledger, where none is shared
    absent: str  # what to say of a directory that is none
    resume: str = ""  # the command that goes on with one, to be named where one is in the way


#: All that a run in one process may hold.
_OWN = """
    run.toml environment.json rounds.jsonl result.json dual.npy evaluation.json inference.json points.json
    report.html privacy.json tracking.json tensorboard worth.json worth.partial privacy-ledger.jsonl messages
    fits path.json path.csv path.svg checkpoints model .*.tmp
"""
_LEDGER, _START = "privacy-ledger.jsonl", "no run.toml: not a run; start one with 'fastadmm train'"

#: Rounds or a path in one process.
FIT = Kind("run.toml", tuple(_OWN.split()), _LEDGER, _START, "fastadmm resume")

#: The coordinator's side of rounds by files; it is never replaced.
EXCHANGE = Kind("run.toml", (), _LEDGER, "no run.toml: begin with 'fastadmm coordinator start'")


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path, kind: Kind = FIT) -> None:
        self.path, self.kind = path, kind
        self.check_held: Callable[[], None] = lambda: None  # refuses to write into another one
        self.configuration = path / kind.configuration  # what to compute, and from what
        self.log = path / "rounds.jsonl"  # one line per round
        self.checkpoints = path / "checkpoints"  # states to go on from
        self.model = path / "model"  # once there is one
        self.result = path / "result.json"  # how the run ended; absent while it goes on
        self.ledger = path / kind.ledger  # the run's own, where none is shared
        self.messages = path / "messages"  # what was released in a private run, before it is used

    # --- beginning, and who works in it -------------------------------------------------------------------

    def refuse_existing(self, force: bool) -> None:
        """Refuse a name that cannot become this run, before any work; :meth:`begin` checks it again."""
        out, resume = self.path, self.kind.resume
        with storage_errors(out):
            if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
                hint = "choose another name" + ("" if resume else " or pass --force")
                if resume and self.configuration.exists():
                    hint = f"continue it with '{resume}', or pass --force"
                raise StorageError(f"{shown(out)}: exists already; {hint}")
            # A run appears by a rename, which would leave the user's shell in a deleted directory.
            if out.is_dir() and out.samefile(os.curdir):
                raise StorageError(f"{shown(out)}: is the current directory; name a new one with --out")
        refuse_to_forget(self.ledger)
        atomic.refuse_parent(out)

    @contextmanager
    def begin(self, fill: Callable[[RunFolder], None], *, force: bool) -> Iterator[None]:
        """Make the folder and hold it once it appears; an older run that it replaces is held before."""
        marker, own = self.kind.configuration, self.kind.own
        with ExitStack() as stack:
            if force and self.path.is_dir():
                stack.enter_context(run_lock(self.path))
            with atomic.atomic_directory(self.path, force=force, marker=marker, only=own) as directory:
                fill(RunFolder(directory, self.kind))
                self.check_held = stack.enter_context(run_lock(directory, self.path))
            yield

    def require(self) -> None:
        """Refuse a directory that is no run of this kind."""
        with storage_errors(self.path, "read"):
            if not self.configuration.exists():
                kind = FormatError if self.path.exists() else StorageError
                raise kind(f"{shown(self.path)}: {self.kind.absent}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Work in the folder, alone."""
        with run_lock(self.path) as self.check_held:
            yield

    # --- what goes in -------------------------------------------------------------------------------------

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON document, whole or not at all."""
        atomic.write_json(self.path / name, document)

    def write_configuration(
        self,
        values: Mapping[str, Any],
        paths: Mapping[str, str | None],
        tables: Mapping[str, Any],
        *,
        final: Path | None = None,
    ) -> None:
        """Write the configuration; provenance gets a digest of all but paths, whose content it tells."""
        place = self if final is None else RunFolder(final, self.kind)
        relative = {key: place.relative(value) for key, value in paths.items() if value is not None}
        document = {**values, **relative, **tables}
        if "provenance" in document:
            sealed = seal_of({key: value for key, value in document.items() if key not in paths})
            document["provenance"] = {**document["provenance"], SEAL: sealed}
        atomic.write_toml(self.configuration, document)

    def relative(self, path: str | Path) -> str:
        """A path as seen from the run, so that a folder with data and run can be moved as a whole."""
        # Real paths, because the system resolves ".." behind symbolic links, not before them.
        return os.path.relpath(os.path.realpath(path), os.path.realpath(self.path))

    def open_log(self, keep_rounds: int = 0) -> closing[RoundLog]:
        """The round log, to append to."""
        return closing(RoundLog(self.log, keep_rounds))

    # --- how it ended, and what a kill left ---------------------------------------------------------------

    def finished(self) -> dict[str, Any] | None:
        """Content of ``result.json``; None where there is none yet."""
        try:
            values = document_in(self.result)
        except FormatError as error:
            raise FormatError(f"{error}; delete it to resume from the checkpoint") from None
        if values is None:
            return None
        if not {"status", "message"} <= values.keys():
            said = "keys 'status' and 'message' are missing; delete it to resume"
            raise FormatError(f"{shown(self.result)}: {said}")
        if values.get("privacy"):
            PrivacyStatement.from_json(values["privacy"], f"{shown(self.result)}: key 'privacy'")
        return values

    def remove_result(self) -> None:
        """The run goes on."""
        with storage_errors(self.result):
            for name in ("result.json", "inference.json", "points.json"):
                (self.path / name).unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Delete what a kill left half-written under a temporary name."""
        for pattern in (".*.tmp", "checkpoints/.*.tmp", "fits/.*.tmp"):
            for leftover in self.path.glob(pattern):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)


def document_in(path: Path) -> dict[str, Any] | None:
    """The object in a JSON or TOML file; None where the file is absent."""
    with storage_errors(path, "read"):
        if not path.exists():
            return None
    document: Any = read_toml(path) if path.suffix == ".toml" else read_json(path)
    if not isinstance(document, dict):
        raise FormatError(f"{shown(path)}: holds no JSON object, but another value; restore it")
    return document


def rounds_in(path: Path, *, strict: bool = True) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Every round of a log, and its line, but a last one that a kill or a power cut tore.

    Where not strict, other lines that are damaged are passed over, too.
    """
    with storage_errors(path, "read"):
        lines = read_bytes(path).split(b"\n") if path.exists() else []
    for number, padded in enumerate(lines, start=1):
        line = padded.rstrip(b"\0")
        try:
            record = json_of(line)
            if type(record["round"]) is not int:
                raise TypeError(f"round {record['round']!r}")
        except (LookupError, TypeError, ValueError) as error:
            if strict and line.strip() and number < len(lines):
                said = f"line {number}: damaged ({error!r}); delete the file, and 'fastadmm resume' goes on"
                raise FormatError(f"{shown(path)}, {said}") from None
        else:
            yield record, line + b"\n"


class RoundLog:
    """Append-only writer of ``rounds.jsonl``; rounds after the last one that is kept are removed."""

    def __init__(self, path: Path, keep_rounds: int = 0) -> None:
        self.path = path
        if path.exists():
            logged = rounds_in(path, strict=False)
            kept = [line for record, line in logged if record["round"] <= keep_rounds]
            atomic.write_whole(path, b"".join(kept))
        with storage_errors(path):
            self._file = open(path, "a", encoding="utf-8", opener=owner_only)  # noqa: SIM115 (closed by close())

    def append(self, record: RoundRecord | dict[str, Any]) -> None:
        """Write one round and hand it to the operating system."""
        values = record if isinstance(record, dict) else record.to_json()
        with storage_errors(self.path):
            self._file.write(json.dumps(values, allow_nan=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Force the log to disk; done before each checkpoint."""
        with storage_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with storage_errors(self.path):
            self._file.close()


# --- where a run shows what it does, and how it is told to end ---------------------------------------------


class Display:
    """Where a run shows what it does; of itself it shows nothing."""

    def _nothing(self, *what: Any) -> None:
        """Show nothing."""

    note = _nothing  # one line
    start = _nothing  # rounds begin: the target, and the most of them
    round = _nothing  # one round is done
    stop = _nothing  # rounds are over


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the run after the current round; a second one ends it at once."""
    received = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under nohup it is ignored, and stays so.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield lambda: received > 0
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)
