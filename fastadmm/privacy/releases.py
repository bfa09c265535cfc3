"""Noisy releases on disk: drawn once, written ahead, charged, and only then used.

A release is drawn, under a random number of its own; written whole under a pending name, and synchronised;
charged in the ledger, which knows a draw again; renamed, and only now used. A resumed run finishes a complete
pending file and draws nothing; an incomplete one was never used, and is removed. A file is an NPZ archive
whose comment is a digest of everything before it; files of older versions have none.
"""

import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastadmm.errors import FormatError, PrivacyBudgetError
from fastadmm.files.atomic import shown, storage_errors, synchronise, write_whole
from fastadmm.files.seal import damaged
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise import NoiseSource

T = TypeVar("T")

#: Begins the archive's comment; 64 digits of SHA-256 follow.
_MARK = b"fastadmm-release-1 sha256 "
_COMMENT = len(_MARK) + 64

#: An archive without a comment ends with this record of 22 bytes, the last two zero.
_END_OF_ZIP = b"PK\x05\x06"

#: Characters of a name that a pending name shows.
_SHOWN = 40

#: Our own keys beside the release's.
_QUESTION, _DRAW = "question", "draw"

_ADVICE = "it was charged, so none is drawn again: restore the file or start a new run"


def digest_of(*values: Any) -> str:
    """Digest of the public arrays and numbers that a stored release answers."""
    digest = hashlib.sha256()
    for value in values:
        held = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        digest.update(held + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Payment:
    """What one release costs, and the ledger that it is charged in."""

    ledger: Ledger
    charges: Sequence[Charge]  # empty where nothing is claimed
    epsilon: float  # budget of each account
    delta: float  # budget of each account

    def check(self) -> None:
        """Refuse a release that the budget does not allow, before it is drawn."""
        # Older versions charged a name, not a draw: what is missing for it is a further charge as well.
        charges = [replace(c, draw="again") if self.ledger.holds(c) else c for c in self.charges]
        self.ledger.check_all(charges, self.epsilon, self.delta)

    def charge(self, draw: str) -> None:
        """Charge a draw; one that was charged before costs nothing."""
        if self.charges:
            charges = [replace(charge, draw=draw) for charge in self.charges]
            self.ledger.charge_all(charges, self.epsilon, self.delta)


def reserve(ledger: Ledger, payments: Sequence[Payment]) -> None:
    """Reserve what a run will still draw, all or nothing, before it draws anything."""
    try:
        for payment in payments:
            ledger.reserve(payment.charges, payment.epsilon, payment.delta)
    except BaseException:
        ledger.free()
        raise


@dataclass(frozen=True)
class Books:
    """The books of one party in one run: ``docs/privacy.md#the-ledger``."""

    settings: Any  # what was agreed; ``total_epsilon``: what the ledger allows over all runs
    ledger: Ledger
    run: str  # identifier of the run in the ledger
    account: Account  # of the party's features
    data: str  # identifier of the party's data, for which a stored release is used again
    releases: Path | None  # directory of what was released; None keeps nothing
    noise: Callable[[], NoiseSource]  # makes a fresh source of noise
    unproved: str = ""  # why nothing is proved for this party's data; else empty

    def payment(self, charges: Sequence[Charge]) -> Payment:
        """What a release costs; nothing is claimed for a test's noise, and nothing may be charged."""
        s = self.settings
        return Payment(self.ledger, [] if s.sampler == "insecure_test" else charges, s.budget, s.delta)


class Releases:
    """The releases of a run, one file each: ``docs/privacy.md#the-ledger``."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory

    def obtain(
        self,
        name: str,
        question: str,
        payment: Payment,
        draw: Callable[[], dict[str, Any]],
        build: Callable[[dict[str, np.ndarray]], T],
    ) -> T:
        """The release of a name: the stored one, the completed pending one, or else a new draw."""
        path = self._path(name)
        if path is None:
            values = _drawn(question, payment, draw)
            payment.charge(_draw_of(values))
            return build(values)
        final, pending = os.path.lexists(path), _pending(path)
        found = read_release(path) if final else _completed(pending)
        place = path if final else pending
        values = _drawn(question, payment, draw) if found is None else _answering(place, found, question)
        if found is None:
            with storage_errors(path):
                _write_ahead(pending, values)
        if final:
            payment.charge(_draw_of(values))
            _remove(pending)
        else:
            self._use(pending, path, _draw_of(values), payment)
        with damaged(path, _ADVICE, "not a released message, or damaged"):
            return build(values)

    def _use(self, pending: Path, path: Path, draw: str, payment: Payment) -> None:
        """Charge, rename, synchronise: from here on the release counts as made."""
        try:
            payment.charge(draw)
        except PrivacyBudgetError:
            _remove(pending)
            raise
        with storage_errors(path):
            os.replace(pending, path)
            synchronise(path.parent)

    def holds(self, name: str) -> bool:
        """Whether there is a file of this release, final or pending; its content is not looked at."""
        path = self._path(name)
        return path is not None and (os.path.lexists(path) or os.path.lexists(_pending(path)))

    def _path(self, name: str) -> Path | None:
        return None if self.directory is None else self.directory / f"{name}.npz"


def _drawn(question: str, payment: Payment, draw: Callable[[], dict[str, Any]]) -> dict[str, np.ndarray]:
    """A new draw, not charged yet."""
    payment.check()
    number = secrets.token_hex(8) if payment.charges else ""
    values = {key: np.asarray(value) for key, value in draw().items()}
    return values | {_QUESTION: np.array(question), _DRAW: np.array(number)}


def _write_ahead(pending: Path, values: Mapping[str, Any]) -> None:
    """Write an archive whose comment is the digest of all that precedes it; synchronise it."""
    archive = io.BytesIO()
    np.savez(archive, **values)
    raw = archive.getvalue()[:-2] + _COMMENT.to_bytes(2, "little")
    if not pending.parent.is_dir():
        pending.parent.mkdir(mode=0o700)
        synchronise(pending.parent.parent)
    write_whole(pending, raw + _MARK + hashlib.sha256(raw).hexdigest().encode())


def _completed(pending: Path) -> dict[str, np.ndarray] | None:
    """What a kill kept from its final name; what is not whole is removed."""
    found = _read(pending) if os.path.lexists(pending) else None
    if found is None:
        _remove(pending)
    return found


def _remove(pending: Path) -> None:
    """Remove a pending file, if there is one."""
    if os.path.lexists(pending):
        with storage_errors(pending):
            pending.unlink(missing_ok=True)
            synchronise(pending.parent)


def read_release(path: Path) -> dict[str, np.ndarray]:
    """The content of a release under its final name, verified."""
    found = _read(path)
    if found is None:
        raise FormatError(f"{shown(path)}: not a released message, or damaged; {_ADVICE}")
    return found


def _pending(path: Path) -> Path:
    # A file name has 255 bytes: a readable beginning, and a digest that tells long names apart.
    digest = hashlib.sha256(path.name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return path.with_name(f".{path.name[:_SHOWN]}.{digest}.pending")


def _draw_of(values: dict[str, np.ndarray]) -> str:
    return str(values[_DRAW]) if _DRAW in values else ""


def _answering(path: Path, found: dict[str, np.ndarray], question: str) -> dict[str, np.ndarray]:
    """The content, if it answers this question."""
    # Messages of older versions call it their target.
    if str(found.get(_QUESTION, found.get("target"))) != question:
        raise FormatError(
            f"{shown(path)}: answers another target than this run's, or other labels or settings; {_ADVICE}"
        )
    return found


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """The content of a whole release, None for anything else."""
    with storage_errors(path, "read"):
        if not stat.S_ISREG(path.stat().st_mode):
            return None  # a pipe would never end
        raw = path.read_bytes()
    verified = raw[-_COMMENT:] == _MARK + hashlib.sha256(memoryview(raw)[:-_COMMENT]).hexdigest().encode()
    # Old archives never had a comment: one of ours that lost it says that there was one.
    if not verified and not (raw[-22:-18] == _END_OF_ZIP and raw[-2:] == b"\0\0"):
        return None
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception:
        # Old files alone come here damaged, and zip has a dozen ways to say so, down to struct.error.
        return None
