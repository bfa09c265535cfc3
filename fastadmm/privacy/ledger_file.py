"""The file of a privacy ledger: it stays readable, and changes to it are detected.

A header line, then one line of JSON per charge, each with a digest of its own bytes and of the line before.
The header has two places for the number of lines and the last one's digest; after each charge the older of
the two is written anew, in place. So a changed, added, moved or lost line does not verify, and a kill

* after the lines and before the header leaves lines that verify, and count; nothing was released for them;
* within the header leaves the other place, with the state before;
* within a line leaves one without an end, which was never acted upon: the next charge cuts it off.

A line may state the ledger's own limit. A ledger of version 1.0 has neither digests nor count; the first
charge appends a header of this version, whose digest begins with all bytes before it.
"""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from fastadmm.errors import FormatError
from fastadmm.files.atomic import (
    remove_leftovers,
    shown,
    storage_errors,
    synchronise,
    temporary_beside,
    write_all,
)
from fastadmm.files.modes import lock_file
from fastadmm.files.seal import chained, unchained
from fastadmm.privacy.accounts import FEATURES, LABELS, RECORDS, Charge

FORMAT = "fastadmm-privacy-ledger"
VERSION = "2.1"

_TEXTS = ("run", "role", "rows", "party", "columns", "release", "draw")
_OLD_TEXTS = ("run", "data", "party", "release")
_COSTS = ("gdp", "pure", "rho")

_BEGIN = b'{"format": "%s", "version": ' % FORMAT.encode()
_OLD_HEADER = _BEGIN + b'"1.0"}'
_HEADER = re.compile(
    re.escape(_BEGIN)
    + rb'"(2\.0"|2\.1", "delta": (?:null|[0-9.e-]+))'
    + rb', "heads": \["([^"]*)", "([^"]*)"\]\}'
)
_HEAD_BYTES = 10 + 1 + 32 + 1 + 8


@dataclass(frozen=True)
class Limit:
    """What a ledger states of itself."""

    epsilon: float | None  # most that may be charged to each account, at `delta`; None: not stated yet
    delta: float  # at which the ledger counts, whatever that of a run is


@dataclass
class _State:
    """What a file holds up to the last whole line, verified."""

    size: int = 0  # bytes of whole lines
    before: bytes = b""  # those bytes of a ledger that has no header of this version yet
    charges: list[Charge] = field(default_factory=list)
    limit: Limit | None = None
    places: tuple[int, int] | None = None  # where the two heads are; None: no header of this version yet
    digests: list[str] = field(default_factory=list)  # from that header on
    newest: int = 1  # which of the two heads is the newer


def _head(count: int, digest: str) -> bytes:
    text = f"{count:010d} {digest}"
    return f"{text} {hashlib.sha256(text.encode()).hexdigest()[:8]}".encode()


def _header(before: bytes, delta: float | None) -> tuple[bytes, str]:
    """A header line after these bytes, and the digest that the first line continues."""
    said = f'{VERSION}", "delta": {json.dumps(delta)}'.encode()
    start = _start(before, said)
    head = _head(0, start)
    return _BEGIN + b'"' + said + b', "heads": ["' + head + b'", "' + head + b'"]}\n', start


def _start(before: bytes, said: bytes) -> str:
    """Digest that the first line continues; `said` is what the header says between version and heads."""
    return hashlib.sha256(before + _BEGIN + said.removesuffix(b'"')).hexdigest()[:32]


class LedgerFile:
    """A ledger's file, read anew whenever it is looked into: ``docs/privacy.md#the-ledger``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = _State()  # as it was last read

    def create(self, delta: float | None = None) -> None:
        """Make the file if there is none: whole, under its name at once, also on disk."""
        target = Path(os.path.realpath(self.path))
        with storage_errors(self.path):
            remove_leftovers(target.parent, target.name)
            if os.path.lexists(target):
                return
            temporary, (header, _) = temporary_beside(target), _header(b"", delta)
            try:
                _write_new(temporary, header)
                with suppress(FileExistsError):
                    try:
                        os.link(temporary, target)  # unlike a rename it never replaces another's ledger
                    except OSError as error:
                        if isinstance(error, FileExistsError):
                            raise
                        _write_new(target, header)  # no links on this file system
            finally:
                temporary.unlink(missing_ok=True)
            synchronise(target.parent)

    @contextmanager
    def locked(self, *, write: bool = True) -> Iterator[IO[bytes]]:
        """The open file, read, and held by this process alone while it writes."""
        action = "write" if write else "read"
        with storage_errors(self.path, action):
            flags = os.O_RDWR if write else os.O_RDONLY
            # Not blocking: a pipe would be waited for.
            descriptor = os.open(self.path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise FormatError(f"{shown(self.path)}: not a privacy ledger: not a regular file")
            with os.fdopen(descriptor, "r+b" if write else "rb", buffering=0) as file:
                # Reading goes without a lock where none is to be had: a line is there before it is counted.
                with suppress(OSError) if not write else nullcontext():
                    lock_file(descriptor, wait=True)
                raw = file.read(len(_BEGIN))
                if raw == _BEGIN:
                    raw += file.read()
                try:
                    self.state = _parse(raw)
                except _Refused as error:
                    raise FormatError(
                        f"{shown(self.path)}: line {error.number}: not a privacy ledger: {error}; "
                        "what was spent is unknown, so nothing is sent: restore the file"
                    ) from None
                yield file

    def append(self, file: IO[bytes], charges: Sequence[Charge], limit: Limit | None = None) -> None:
        """Write lines behind the last whole one; on disk, and counted, when this returns."""
        state, descriptor, raw = self.state, file.fileno(), b""
        if state.places is None:
            raw, start = _header(state.before, None)
            first = state.size + raw.index(b"[") + 2
            state.places, state.digests = (first, first + _HEAD_BYTES + 4), [start]
        digests = list(state.digests)
        for said in (limit, *charges):
            if said is not None:
                line, digest = chained(json.dumps(asdict(said), allow_nan=False).encode()[:-1], digests[-1])
                raw += line
                digests.append(digest)
        file.truncate(state.size)  # what a kill left of a line that was never acted upon
        for place, written in (
            (state.size, raw),
            (state.places[1 - state.newest], _head(len(digests) - 1, digests[-1])),
        ):
            file.seek(place)
            write_all(descriptor, written)
            os.fsync(descriptor)
        state.size, state.newest, state.digests = state.size + len(raw), 1 - state.newest, digests
        state.charges += charges
        state.limit = limit or state.limit


class _Refused(Exception):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def _parse(raw: bytes) -> _State:
    """All whole lines, or the first fault."""
    whole = raw[: raw.rfind(b"\n") + 1]
    if not whole.startswith(_BEGIN):
        begun = raw.startswith(_BEGIN)
        raise _Refused(1, "its header has no end" if begun else "it has no header" if raw else "it is empty")
    state, number, found = _State(len(whole)), 0, list[tuple[int, bytes, bool]]()
    at = 0
    try:
        # First whether it verifies: what does not is not looked into.
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            if number == 1 and line == _OLD_HEADER:
                pass
            elif state.places is None and line.startswith(_BEGIN):
                header = _HEADER.fullmatch(line)
                if header is None:
                    raise ValueError(f"its header is damaged, or of a version after {VERSION}")
                state.places = at + header.start(2), at + header.start(3)
                state.digests.append(_start(whole[:at], header[1]))
                delta = json.loads(header[1].partition(b'"delta": ')[2] or b"null")
                state.limit = None if delta is None else _limit({"epsilon": None, "delta": delta})
            elif state.places is None:
                found.append((number, line, True))
            else:
                body, digest = unchained(line, state.digests[-1])
                state.digests.append(digest)
                found.append((number, body + b"}", False))
            at += len(line) + 1
        if state.places is None:
            state.before = whole
        else:
            heads = [whole[place : place + _HEAD_BYTES] for place in state.places]
            state.newest = _newest(heads, state.digests, number)
        for number, line, old in found:  # noqa: B007 (the handler below names it)
            values = json.loads(line.decode())
            if isinstance(values, dict) and values.keys() == {"epsilon", "delta"} and not old:
                state.limit = _limit(values)
            else:
                state.charges.append(_charge(values, old))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _Refused(number, " ".join(str(error).split())) from None
    return state


def _newest(heads: list[bytes], digests: list[str], number: int) -> int:
    """Which of the two heads is the newer, if what is there agrees with the lines; one may be torn."""
    newest, most = -1, -1
    for place, raw in enumerate(heads):
        count, digest = raw[:10], raw[11:43].decode("ascii", "replace")
        if not count.isdigit() or _head(int(count), digest) != raw:
            continue
        if int(count) >= len(digests):
            raise _Refused(number, f"{int(count) - len(digests) + 1} line(s) after it are missing")
        if digests[int(count)] != digest:
            raise _Refused(1, "the header's digest is another: the header or a line was changed")
        if int(count) >= most:
            newest, most = place, int(count)
    if newest < 0:
        raise _Refused(1, "its header is damaged")
    return newest


def _limit(values: dict[str, Any]) -> Limit:
    epsilon, delta = values["epsilon"], values["delta"]
    if not (epsilon is None or (type(epsilon) in (int, float) and 0.0 < epsilon < math.inf)):
        raise ValueError("the limit's epsilon must be a positive number")
    if type(delta) is not float or not 0.0 < delta < 1.0:
        raise ValueError("the limit's delta must be between 0 and 1")
    return Limit(None if epsilon is None else float(epsilon), delta)


def _charge(values: Any, old: bool) -> Charge:
    """A line as a charge; one of version 1.0 names neither rows nor role, so it counts for any rows."""
    texts = _OLD_TEXTS if old else _TEXTS
    if not isinstance(values, dict) or values.keys() != {*texts, *_COSTS}:
        raise ValueError("a charge has other keys")
    if {type(values[key]) for key in texts} != {str}:
        raise ValueError("names must be texts")
    for key in _COSTS:
        if type(values[key]) not in (int, float) or not 0.0 <= values[key] < math.inf:
            raise ValueError("costs must be finite and not negative")
        values[key] = float(values[key])
    if old:
        del values["data"]
        release = values["release"]
        records = release.startswith(("answers to ", "second moments for "))
        role = LABELS if release == "randomised labels" else RECORDS if records else FEATURES
        values |= {"rows": "", "role": role}
    return Charge(**values)


def _write_new(path: Path, raw: bytes) -> None:
    """Write a new file, bring it to disk, close it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, raw)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
