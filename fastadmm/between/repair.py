"""A way back for a run directory: what is damaged is made again or asked for again, the rest stays.

Everything that follows from kept answers is made again to the same bytes, so a
party that is asked once more repeats its old answer.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from fastadmm.between.coordinator import UNUSABLE, Coordinator
from fastadmm.between.coordinator_step import StepResult, one_coordinator, step_result
from fastadmm.between.journal import Journal
from fastadmm.between.letters import Letters, open_letter
from fastadmm.between.socket import LONGEST
from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors


def coordinator_repair(run: Path, again: int | None = None) -> StepResult:
    """Drop what cannot be used, make again what follows from the rest, and ask for what is missing."""
    with one_coordinator(run) as (coordinator, letters):
        return _Repair(coordinator, letters).do(again)


class _Repair:
    def __init__(self, coordinator: Coordinator, letters: Letters) -> None:
        self.run, self.letters, self.path = coordinator, letters, coordinator.path
        self.notes: list[str] = []

    def do(self, again: int | None) -> StepResult:
        run, journal = self.run, self.path / "answers.journal"
        for path in (run.checkpoint_file, run.said_file, run.folder.result, journal):
            if os.path.lexists(path) and not path.is_file():
                self._drop(path, "is no file")
        finished = self._finished()
        if finished and again is None:
            return replace(step_result(run, self.letters), notes=["the run is over; nothing to repair"])
        self._mend(journal)
        for path in (*self.path.glob("answers/*/*"), *self.path.glob("requests/*")):
            try:
                open_letter(path, LONGEST)
            except FastadmmError:
                self._drop(path, "is damaged")
        if run.said_file.exists():
            try:
                run.said()
            except FormatError:
                self._drop(run.said_file, "is damaged")
        if not run.said_file.exists():
            # What parties said comes before all other answers: they are asked again, and say the same.
            for path in (run.checkpoint_file, journal):
                if path.exists():
                    self._drop(path, "follows from what parties said")
        first = self._first_of_round()
        if again is not None:
            self._go_back(again, first)
        try:
            result = step_result(run, self.letters)
        except UNUSABLE as error:
            self.notes.append(f"the last answers cannot be used ({error}): asked for again")
            self.letters.forget(lambda number: True)
            result = step_result(run, self.letters)
        return replace(result, notes=[*(self.notes or ["nothing to repair"]), *result.notes])

    def _finished(self) -> bool:
        try:
            return self.run.folder.finished() is not None
        except FormatError:
            self._drop(self.run.folder.result, "is damaged")
            return False

    def _mend(self, path: Path) -> None:
        """Keep the answers before the first damaged one."""
        try:
            Journal(path).close()
        except FormatError:
            try:
                Journal(path, mend=True).close()
                self.notes.append(f"{path.name} is damaged: what follows is dropped")
            except FormatError:
                self._drop(path, "is damaged")

    def _first_of_round(self) -> int:
        """The exchange that the current round begins with; a checkpoint that is damaged goes."""
        try:
            state = self.run.checkpoint()
        except FormatError:
            self._forget_rounds("is damaged")
            state = None
        return 1 if state is None else int(state["first"])

    def _numbers(self) -> list[int]:
        return [int.from_bytes(parts[0]) for parts in self.run.journal.records()]

    def _forget_rounds(self, why: str) -> None:
        numbers = self._numbers()
        missing = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
        if missing:
            raise FormatError(
                f"{shown(self.path)}: its checkpoint {why}, and answers of exchange {min(missing)} are not "
                "kept: restore the directory from a backup; parties repeat what they have answered since"
            )
        self._drop(self.run.checkpoint_file, why)
        self.notes.append("all rounds are made again from the kept answers")

    def _go_back(self, number: int, first: int) -> None:
        """Ask for an exchange again, and forget what followed from it."""
        newest = max(self._numbers(), default=first - 1)
        if not 1 <= number <= newest + 1:
            raise InputError(f"--again {number}: exchanges 1 to {newest} have been answered")
        if number < first:
            self._forget_rounds(f"is past exchange {number}")
        journal = self.run.journal
        journal.rewrite([parts for parts in journal.records() if int.from_bytes(parts[0]) < number])
        self.letters.forget(lambda other: other >= number)
        self.run.folder.remove_result()
        self.notes.append(f"exchange {number} and all after it are asked for again")

    def _drop(self, path: Path, why: str) -> None:
        with storage_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.notes.append(f"{path.relative_to(self.path)} {why}: dropped")
