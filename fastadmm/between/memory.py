"""What parties of this user remember of runs with sums only, where no backup of a state directory reaches.

Two sums that differ by one party show that party's part, and two masked answers with one mask show their
difference. So a party remembers among whom its data were added up, and the digest of every answer that a
mask has left with. The files lie beside no run: in ``$FASTADMM_MEMORY``, else ``$XDG_STATE_HOME/fastadmm``,
else ``~/.local/state/fastadmm``.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between.approval import Approval, parties_of
from fastadmm.between.approval_file import listed
from fastadmm.between.schema import Request, quoted, refused
from fastadmm.conversation.calls import SUMS
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_all
from fastadmm.files.modes import lock_file
from fastadmm.privacy.accounts import columns_digest, row_sample
from fastadmm.store.party_file import PartyData

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
    names = sorted(parties_of(terms, place))
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
