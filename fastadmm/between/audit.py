"""What a party remembers: of all that was asked of it, and of runs with sums only.

The audit log has one line for every answer and every refusal.

Each line ends with a digest of its own bytes and of the line before, from the first line on: what was
changed, moved, added or removed among the lines does not verify. Whole lines cut off at the end are seen by
whoever has written down the last digest, which ``fastadmm agent status`` shows.

Answers are limited by approvals; refusals and repetitions are as many as somebody asks for. So that nobody
fills the disk with them, a day has room for some.

No backup of a state directory reaches what is remembered of sums. Two sums that differ by one party show that
party's part, and two masked answers with one mask show their difference. So a party remembers among whom its
data were added up, and the digest of every answer that a mask has left with. The files lie beside no run: in
``$FASTADMM_MEMORY``, else ``$XDG_STATE_HOME/fastadmm``, else ``~/.local/state/fastadmm``.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.approval import Approval, parties_of
from fastadmm.between.approval_file import listed
from fastadmm.between.journal import synchronise_data
from fastadmm.between.schema import Request, quoted, refused
from fastadmm.conversation.calls import SUMS
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors, synchronise, write_all
from fastadmm.files.file_lock import lock_file
from fastadmm.files.reading import read_bytes
from fastadmm.privacy.accounts import columns_digest, row_sample
from fastadmm.store.party_file import PartyData

#: The audit log, in the agent's directory.
AUDIT = "audit.jsonl"

_BEGIN = b'{"format": "fastadmm-audit", "version": "1.0"'
_END = re.compile(rb', "digest": "([0-9a-f]{32})"\}$')

#: Longest file that is read as a whole.
_MOST = 1 << 34

#: Lines of refusals and repetitions in a day (of UTC), and calls that such a line names.
_OF_DAY, _CALLS = 1200, 8

#: What is kept in memory of a line about an answer.
_KEPT = ("time", "run", "number", "task", "calls", "request", "answer", "counts")


def moment() -> str:
    """The time, as lines have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class AuditLog:
    """A log that is appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        is_new = not path.exists()
        raw = b"" if is_new else read_bytes(path, _MOST)
        whole = raw[: raw.rfind(b"\n") + 1]
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            # What has no end was cut by a kill.
            os.ftruncate(self._file, len(whole))
            os.lseek(self._file, 0, os.SEEK_END)
        self.digest, self.answered = "", set[str]()
        self.answers: list[dict[str, Any]] = []
        self._day, self._today = "", 0
        if whole:
            entries, self.digest = _verified(whole, path)
            for entry in entries:
                self._take_in(entry)
        else:
            self._append(_BEGIN)
            self.sync()
            with storage_errors(path):
                synchronise(path.parent)

    def add(self, entry: dict[str, Any]) -> None:
        """Append a line."""
        self._append(json.dumps(entry, allow_nan=False).encode()[:-1])
        self._take_in(entry)

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "answer" in entry:
            self.answered.add(entry["request"])
            if not entry.get("repeated"):
                self.answers.append({key: entry[key] for key in _KEPT if key in entry})

    def add_bounded(self, entry: dict[str, Any]) -> bool:
        """Append a line on what anybody may cause without end, unless the day has enough of them."""
        if entry["time"][:10] != self._day:
            self._day, self._today = entry["time"][:10], 0
        if self._today == _OF_DAY:
            return False
        self._today += 1
        self.add(entry | {"calls": entry["calls"][:_CALLS]})
        return True

    def sync(self) -> None:
        """Put all lines on disk."""
        with storage_errors(self.path):
            synchronise_data(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, body: bytes) -> None:
        digest = _next(self.digest, body)
        raw = body + b', "digest": "' + digest.encode() + b'"}\n'
        with storage_errors(self.path):
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                write_all(self._file, raw)
            except OSError:
                os.ftruncate(self._file, end)
                raise
        self.digest = digest


def read_audit(path: Path) -> tuple[list[dict[str, Any]], str]:
    """All lines of a log, verified."""
    raw = read_bytes(path, _MOST)
    return _verified(raw[: raw.rfind(b"\n") + 1], path)


def _verified(whole: bytes, path: Path) -> tuple[list[dict[str, Any]], str]:
    digest, entries = "", []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        end = _END.search(line)
        body = line[: end.start()] if end else b""
        digest = _next(digest, body)
        if end is None or end[1].decode() != digest or (number == 1 and body != _BEGIN):
            raise FormatError(
                f"{shown(path)}: line {number}: changed since it was written, or a line before it was; keep "
                "the file as evidence, and move it away to begin another"
            )
        if number > 1:
            entries.append(json.loads(body + b"}"))
    return entries, digest


def _next(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()[:32]


def used(entries: list[dict[str, Any]], approval: str, run: str) -> dict[str, int]:
    """What was answered or refused so far, as approvals count it."""
    counts = [one["counts"] for one in entries if "counts" in one]
    own = [one for one in counts if (one["approval"], one["run"]) == (approval, run)]
    return {key: sum(one[key] for one in own) for key in ("requests", "rows")}


# --- runs with sums only ----------------------------------------------------------------------------------

#: Among whom data were added up; masked answers of a run, in a folder.
_MEMBERS, _MASKS = "sums.jsonl", "masks"


def memory_folder() -> Path:
    """Where files are."""
    if own := os.environ.get("FASTADMM_MEMORY"):
        return Path(own)
    try:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
    except RuntimeError:
        raise ConfigError(
            "FASTADMM_MEMORY: name a directory; this user has no home to remember sums in"
        ) from None
    return base / "fastadmm"


def join_sum(data: PartyData, run: str, terms: Mapping[str, Any], approval: Approval, place: str) -> None:
    """Remember among whom these data are added up; refuse others than before unless the owner allows it."""
    if terms["family"] not in SUMS:
        return
    names = sorted(parties_of(terms, place)) or [f"not stated in run {run}"]
    own = {"run": run, "members": names, **_described(data)}
    with _opened(memory_folder() / _MEMBERS) as memory:
        before = [one for one in memory.entries if _same(one, own)]
        # The members of an earlier run are no news, whatever else its owner agreed to since.
        known = approval.other_members or any(one["members"] == names for one in before)
        if before and not known:
            one = before[0]
            text = (
                f"{place}: these data of {data.name} were added up among {listed(one['members'])} in run "
                f"{one['run']}, and now among {listed(own['members'])}: the difference of two sums shows "
                f"what single parties sent; if you agree, set other_members = true in {shown(approval.path)} "
                f"(remembered in {shown(memory.path)})"
            )
            raise refused("members", text)
        memory.add(own)


def answer_once(asked: Request, transcript: bytes | None, answer: Mapping[str, Any], place: str) -> None:
    """Remember a masked answer before it leaves; refuse another one under the same mask."""
    if transcript is None or not {"rows", "numbers"} & set(answer):
        return
    state = hashlib.sha256()
    for key in sorted(answer):
        state.update(key.encode() + b"\0" + np.ascontiguousarray(answer[key]).tobytes())
    own = {"party": asked.party, "mask": transcript.hex(), "answer": state.hexdigest()}
    name = hashlib.sha256(asked.run.encode()).hexdigest()[:32]
    with _opened(memory_folder() / _MASKS / f"{name}.jsonl") as memory:
        for one in memory.entries:
            if (one["party"], one["mask"]) == (own["party"], own["mask"]) and one != own:
                text = (
                    f"{place}: has been answered under the same mask, with other data than now: their "
                    "difference would be seen; give back what the run began with, or begin another run"
                )
                raise refused("changed", text)
        memory.add(own)


def sums_before(data: PartyData, members: Sequence[str]) -> list[str]:
    """What the owner of data is told that were added up before, as a paragraph if they were."""
    path = memory_folder() / _MEMBERS
    if not path.exists():
        return []
    own = _described(data)
    with _opened(path) as memory:
        before = [one for one in memory.entries if _same(one, own) and one["members"] != sorted(members)]
    if not before:
        return []
    last = before[-1]
    return [
        f"Your data were part of a sum of {len(last['members'])} parties in run {quoted(last['run'], 16)}: "
        "what leaves now can be taken off it, and shows what the others sent."
    ]


def _described(data: PartyData) -> dict[str, Any]:
    """How data are recognised."""
    ids = data.ids()
    columns = columns_digest(data.iter_rows(), ids)
    return {"party": data.name, "columns": columns, "rows": row_sample(ids)}


def _same(one: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether two entries are about the same data: equal columns, or a party's with a row in common."""
    if one["columns"] == own["columns"]:
        return True
    return one["party"] == own["party"] and bool(set(one["rows"]) & set(own["rows"]))


# --- the file ---------------------------------------------------------------------------------------------


class _Memory:
    def __init__(self, file: int, path: Path) -> None:
        self.path, self._file = path, file
        raw = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            os.ftruncate(file, len(whole))  # what has no end was cut by a kill, and never acted upon
        self.entries = []
        for number, line in enumerate(whole.splitlines(), start=1):
            checksum, _, text = line.partition(b" ")
            entry = None
            with suppress(ValueError):
                entry = json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
            if not isinstance(entry, dict):
                raise FormatError(
                    f"{shown(path)}: line {number} is damaged; restore the file from a backup of its own"
                )
            self.entries.append(entry)

    def add(self, entry: Mapping[str, Any]) -> None:
        """On disk when this returns; nothing where it is there already."""
        if entry in self.entries:
            return
        text = json.dumps(entry).encode()
        os.lseek(self._file, 0, os.SEEK_END)
        write_all(self._file, b"%08x %s\n" % (zlib.crc32(text), text))
        os.fsync(self._file)


@contextmanager
def _opened(path: Path) -> Iterator[_Memory]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        text = "sums are remembered there; set FASTADMM_MEMORY to a directory"
        raise StorageError(f"{shown(path)}: {error.strerror}: {text}") from None
    try:
        lock_file(file, wait=True)
        with storage_errors(path):
            memory = _Memory(file, path)
        yield memory
    finally:
        os.close(file)
