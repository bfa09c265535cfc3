"""What passes between a coordinator and parties elsewhere as files: messages come in, requests go out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from fastadmm.between.exchange import (
    Asked,
    Message,
    Request,
    file_digest,
    open_message,
    open_request,
    write_request,
)
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.files.modes import make_private
from fastadmm.files.reading import read_bytes, read_json
from fastadmm.files.seal import seal_of
from fastadmm.runs.folder import RunFolder
from fastadmm.store.label_file import open_labels

__all__ = ["KEPT_BYTES", "Mailbox", "prune"]

#: What each side keeps of past exchanges, at most.
KEPT_BYTES = 1 << 30


def prune(paths: Iterable[Path]) -> None:
    """Remove the oldest files until the rest has at most :data:`KEPT_BYTES`."""
    sizes = []
    for path in paths:
        with suppress(OSError):
            sizes.append((path, path.stat().st_size))
    total = sum(size for _, size in sizes)
    for path, size in sizes:
        if total <= KEPT_BYTES:
            return
        with suppress(OSError):
            path.unlink()
            total -= size


_WAITING = "waiting.json"


class Mailbox:
    """The files of one run that were sent or taken in."""

    def __init__(self, folder: RunFolder, run: str, names: list[str], labels: Path) -> None:
        self.folder, self.path, self.run, self.names, self._labels = folder, folder.path, run, names, labels
        self.requests, self.sent = self.path / "requests", self.path / "sent"

    def take(self, paths: Sequence[Path]) -> tuple[list[str], list[Path]]:
        """Check all messages, then keep copies of the new ones."""
        number, digests = self.awaited()
        new: dict[str, Path] = {}
        taken: dict[str, str] = {}
        notes = []
        n_samples, n_classes = self.sizes if paths else (0, 1)

        def asked(path: Path, message: Message) -> Asked | None:
            """The call that a message answers; None where it was taken before."""
            self._check(path, message, number, digests)
            if message.number < number or self.answer_path(number, message.party).exists():
                return None
            return self.request(number, message.party, digests[message.party]).calls[-1]

        for path in paths:
            message = open_message(path, n_samples, partial(asked, path), n_classes)
            kept = self.answer_path(message.number, message.party)
            if message.number < number or kept.exists():
                if kept.exists() and file_digest(kept) != message.digest:
                    raise InputError(
                        f"{shown(path)}: another message of {message.party} than the one taken before"
                    )
                notes.append(f"{shown(path)}: taken already")
                continue
            if message.party in new and file_digest(new[message.party]) != message.digest:
                raise InputError(f"{shown(path)}: a second message of {message.party}, and another one")
            new[message.party], taken[message.party] = path, message.digest
        for name, path in new.items():
            kept = self.answer_path(number, name)
            with storage_errors(kept):
                make_private(kept.parent)
                content = read_bytes(path)
            if "sha256:" + hashlib.sha256(content).hexdigest() != taken[name]:
                raise InputError(f"{shown(path)}: changed while it was read; give it again")
            with atomic_file(kept) as temporary:
                temporary.write_bytes(content)
        return notes, [self.answer_path(number, name) for name in new]

    def _check(self, path: Path, message: Message, number: int, digests: dict[str, str]) -> None:
        place = shown(path)
        if message.run != self.run:
            raise InputError(f"{place}: a message of another run than {shown(self.path)}")
        if message.party not in self.names:
            raise InputError(f"{place}: of {message.party}, but the parties are {', '.join(self.names)}")
        if message.number > number:
            raise InputError(f"{place}: answers request {message.number}, but the last one was {number}")
        if message.number == number and message.party not in digests:
            raise InputError(f"{place}: nothing was asked of {message.party} in exchange {number}")
        if message.number == number and message.request != digests[message.party]:
            raise InputError(f"{place}: answers another request {number} than ours; the request was changed")

    def awaited(self) -> tuple[int, dict[str, str]]:
        """Number of the current exchange, and the digest of each party's request in it."""
        path = self.path / _WAITING
        with storage_errors(path, "read"):
            if not path.exists():
                return -1, {}
        try:
            document = read_json(path)
            digest = document.pop("digest", None)  # older releases wrote none
            number, digests = document["exchange"], document["requests"]
            good = type(number) is int and 0 <= number < 10**9 and isinstance(digests, dict)
            good = good and digest in (None, seal_of(document))
            if not good or not all(name in self.names for name in digests):
                raise ValueError("not what a step left")
            return number, {name: str(digest) for name, digest in digests.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, FormatError) else f"{shown(path)}: not our record"
            raise FormatError(f"{reason}; {self._repair()}") from None

    def answer_path(self, number: int, name: str) -> Path:
        """Where the message of party `name` to exchange `number` is kept."""
        return self.path / "answers" / f"{number:06d}" / f"{name}.h5"

    def answers(self, name: str, first: int) -> list[tuple[int, Path]]:
        """A party's kept messages."""
        found = [(int(folder.name), folder / f"{name}.h5") for folder in self.answer_folders()]
        return [(number, path) for number, path in found if number >= first and path.exists()]

    def answer_folders(self) -> list[Path]:
        """Folders of kept messages, oldest exchange first."""
        return sorted(folder for folder in (self.path / "answers").glob("[0-9]*") if folder.name.isdecimal())

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """N and C of the labels; 1 of a regression."""
        labels = open_labels(self._labels)
        return labels.n_samples, len(labels.classes or [""])

    def request(self, number: int, name: str, digest: str) -> Request:
        """Our own request, as it was written."""
        path = self.request_path(number, name)
        try:
            request = open_request(path, *self.sizes)
            if request.digest != digest:
                raise FormatError(f"{shown(path)}: changed since it was written")
        except (FormatError, StorageError) as error:
            raise type(error)(f"{error}; {self._repair()}") from None
        return request

    def _repair(self) -> str:
        return f"'fastadmm coordinator repair {shown(self.path)}' makes it again"

    def request_path(self, number: int, name: str) -> Path:
        """Where the request of exchange `number` to party `name` is, while it is the current one."""
        return self.requests / f"{name}-{number:06d}.h5"

    def answered(self, number: int, name: str) -> str:
        """Digest of a party's last message, so that it can tell whether we mean the same one."""
        path = self.answer_path(number, name)
        return file_digest(path) if path.exists() else ""

    def send(self, number: int, requests: dict[str, Request]) -> list[Path]:
        """Write the requests of an exchange, then the record that they are out."""
        with storage_errors(self.requests):
            self.requests.mkdir(exist_ok=True)
        paths = {name: self.request_path(number, name) for name in requests}
        for name, request in requests.items():
            write_request(paths[name], request)
        digests = {name: file_digest(path) for name, path in paths.items()}
        record = {"exchange": number, "requests": digests}
        self.folder.write_json(_WAITING, {**record, "digest": seal_of(record)})
        self.file_away(set(paths.values()))
        return list(paths.values())

    def file_away(self, current: set[Path]) -> None:
        """Keep requests that were answered for a party that was restored from a backup."""
        with storage_errors(self.sent):
            self.sent.mkdir(mode=0o700, exist_ok=True)
            for old in self.requests.glob("*.h5"):
                if old not in current:
                    os.replace(old, self.sent / old.name)

    def forget(self, first: int) -> None:
        """Drop the oldest files that nobody needs any more, where there are too many."""
        # Messages of this round and the last are needed, and those that opened the run.
        done = [folder for folder in self.answer_folders() if 0 < int(folder.name) < first - 1]
        prune([path for folder in done for path in sorted(folder.glob("*.h5"))])
        for folder in done:
            with suppress(OSError):
                folder.rmdir()  # only where it is empty
        prune(sorted(self.sent.glob("*.h5"), key=lambda path: path.stem.rsplit("-", 1)[-1]))
