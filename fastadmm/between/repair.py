"""A way back for a run directory: what is damaged is made again or asked for again, the rest stays.

Everything that follows from kept messages is made again to the same bytes, so a
party that is asked once more repeats its old answer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fastadmm.between.coordinator_step import UNUSABLE, Coordinator, StepResult, one_coordinator
from fastadmm.between.exchange import Message, open_message, open_request
from fastadmm.conversation.calls import Asked
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.files.modes import make_private
from fastadmm.files.reading import read_bytes

__all__ = ["coordinator_repair"]


def coordinator_repair(run: Path, again: int | None = None) -> StepResult:
    """Drop what cannot be used, make again what follows from the rest, and ask for what is missing."""
    with one_coordinator(run) as coordinator:
        return _Repair(coordinator).do(again)


class _Repair:
    def __init__(self, coordinator: Coordinator) -> None:
        self.run, self.mail, self.path = coordinator, coordinator.mail, coordinator.path
        self.n_samples, self.n_classes = self.mail.sizes
        self.notes: list[str] = []

    def do(self, again: int | None) -> StepResult:
        own = [self.path / name for name in ("checkpoint.h5", "waiting.json", "result.json")]
        for path in (*own, *self.path.glob("requests/*.h5")):
            if os.path.lexists(path) and not path.is_file():
                self._drop(path, "is no file")
        finished = self._finished()
        if finished and again is None:
            return replace(self.run.advance(), notes=["the run is over; nothing to repair"])
        first = self._first_of_round()
        bad = [(number, path) for number, path in self._kept(first) if not self._is_good(number, path)]
        for _, path in bad:
            self._drop(path, "is no answer to what was asked")
        numbers = [number for number, _ in bad if number > 0]
        pending = self._pending()
        if pending is not None:
            numbers.append(pending)
        if again is not None:
            newest = max((number for number, _ in self._kept(0)), default=0)
            if not 1 <= again <= newest + 1:
                raise InputError(f"--again {again}: exchanges 1 to {newest} have been answered")
            numbers.append(again)
        if numbers:
            self._go_back(min(numbers), first, keep_good=again is None)
        if any(number == 0 for number, _ in bad):
            (self.path / "waiting.json").unlink(missing_ok=True)
        if finished:
            (self.path / "result.json").unlink(missing_ok=True)
        result = self._advance()
        return replace(result, notes=[*(self.notes or ["nothing to repair"]), *result.notes])

    # --- looking ------------------------------------------------------------------------------------------

    def _finished(self) -> bool:
        try:
            return self.run.folder.finished() is not None
        except FormatError:
            self._drop(self.path / "result.json", "is damaged")
            return False

    def _first_of_round(self) -> int:
        """The exchange that the current round begins with; a checkpoint that is damaged goes."""
        try:
            state = self.run.checkpoint()
        except FormatError:
            self._forget_rounds("is damaged")
            state = None
        return 1 if state is None else int(state["first"])

    def _forget_rounds(self, why: str) -> None:
        numbers = [int(folder.name) for folder in self.mail.answer_folders()]
        missing = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
        if missing:
            raise FormatError(
                f"{shown(self.path)}: its checkpoint {why}, and messages of exchange {min(missing)} are not "
                "kept: restore the directory from a backup; parties repeat what they have answered since"
            )
        self._drop(self.path / "checkpoint.h5", why)
        self.notes.append("all rounds are made again from the kept messages")

    def _kept(self, first: int) -> Iterator[tuple[int, Path]]:
        for folder in self.mail.answer_folders():
            if int(folder.name) == 0 or int(folder.name) >= first:
                for name in self.run.names:
                    if (folder / f"{name}.h5").exists():
                        yield int(folder.name), folder / f"{name}.h5"

    def _is_good(self, number: int, path: Path) -> bool:
        name = path.stem
        call = self._call(number, name)

        def asked(message: Message) -> Asked | None:
            if (message.run, message.party, message.number) != (self.run.run, name, number):
                raise FormatError(f"{shown(path)}: of another run, party or exchange")
            return call

        try:
            open_message(path, self.n_samples, asked, self.n_classes)
        except (FormatError, StorageError):
            return False
        return True

    def _call(self, number: int, name: str) -> Asked | None:
        """What was asked there; None where the request is not kept."""
        if number == 0:
            return ("start", {})
        for path in (self.mail.request_path(number, name), self.mail.sent / f"{name}-{number:06d}.h5"):
            if path.exists():
                try:
                    return open_request(path, self.n_samples, self.n_classes).calls[-1]
                except FormatError:
                    continue
        return None

    def _pending(self) -> int | None:
        """The exchange that was under way, where its record or one of its requests is damaged."""
        try:
            number, digests = self.mail.awaited()
            for name, digest in digests.items():
                self.mail.request(number, name, digest)
            if number >= 0:
                return None
            reason = "is missing"
        except (FormatError, StorageError):
            reason = "or a request is damaged"
        self._drop(self.path / "waiting.json", reason)
        found = [int(path.stem.rsplit("-", 1)[-1]) for path in self.mail.requests.glob("*-[0-9]*.h5")]
        found += [number for number, _ in self._kept(0)]
        return max(found, default=0) or None

    # --- mending ------------------------------------------------------------------------------------------

    def _drop(self, path: Path, why: str) -> None:
        with storage_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.notes.append(f"{path.relative_to(self.path)} {why}: dropped")

    def _go_back(self, number: int, first: int, keep_good: bool) -> None:
        """Ask for an exchange again, and forget what followed from it; good answers to it may stay."""
        if number < first:
            self._forget_rounds(f"is past exchange {number}")
        good: dict[str, bytes] = {}
        for folder in self.mail.answer_folders():
            if int(folder.name) == number and keep_good:
                good = {path.stem: read_bytes(path) for path in folder.glob("*.h5")}
            if int(folder.name) >= number:
                shutil.rmtree(folder)
        (self.path / "waiting.json").unlink(missing_ok=True)
        (self.path / "result.json").unlink(missing_ok=True)
        self._advance_from_checkpoint()
        awaited, digests = self.mail.awaited()
        for name, content in good.items():
            path = self.mail.answer_path(awaited, name)
            if awaited != number or name not in digests:
                continue
            make_private(path.parent)
            with atomic_file(path) as temporary:
                temporary.write_bytes(content)
            if open_message(path, self.n_samples, lambda _: None, self.n_classes).request != digests[name]:
                path.unlink()

    def _advance_from_checkpoint(self) -> StepResult:
        try:
            return self.run.advance()
        except FormatError as error:
            if "checkpoint.h5" not in str(error):
                raise
            self._forget_rounds("is damaged")
            return self.run.advance()

    def _advance(self) -> StepResult:
        try:
            return self._advance_from_checkpoint()
        except UNUSABLE as error:
            newest = max((number for number, _ in self._kept(1)), default=0)
            if not newest:
                raise
            self.notes.append(f"messages of exchange {newest} cannot be used ({error}): asked for again")
            for _, path in [item for item in self._kept(newest) if item[0] == newest]:
                self._drop(path, "cannot be used")
            self._go_back(newest, self._first_of_round(), keep_good=False)
            return self.run.advance()
