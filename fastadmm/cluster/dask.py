"""Workers of a Dask cluster, one task on each; needs the extra ``dask``.

Tasks send each other letters through the servers of their Dask workers: no further ports. Dask places the
tasks; what is added in which order is the tree's (:mod:`fastadmm.cluster.comm`).
"""

import asyncio
import pickle
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastadmm.cluster.comm import Comm
from fastadmm.errors import StorageError

#: Seconds after which a worker that is waited for is asked whether it is still there.
_PATIENCE = 1.0

#: Number of the letter that ends a run.
_END = -1


class LostWorkerError(StorageError):
    """A worker is gone, or gave up."""


class _Letters:
    """Letters for the tasks on a Dask worker."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int, int], bytes] = {}
        self.news = threading.Condition()

    async def receive(self, run: str, sender: int, number: int, data: bytes) -> str:
        """Keep a letter until its task asks for it."""
        with self.news:
            self.known[run, sender, number] = data
            self.news.notify_all()
        return "OK"


def letters_of(worker: Any) -> _Letters:
    """Where letters to tasks on a Dask worker wait; from then on it takes them."""
    handler = worker.handlers.get("fastadmm_letter")
    if handler is None:
        handler = worker.handlers.setdefault("fastadmm_letter", _Letters().receive)
    letters = handler.__self__
    assert isinstance(letters, _Letters)
    return letters


class DaskComm(Comm):
    """The tasks of a run."""

    def __init__(self, worker: Any, run: str, rank: int, addresses: list[str]) -> None:
        self.rank, self.size = rank, len(addresses)
        self._worker, self._run, self._addresses = worker, run, addresses
        self._letters = letters_of(worker)
        self._number = 0

    def gather(self, v: np.ndarray) -> list[np.ndarray]:
        data = np.ascontiguousarray(v, dtype=np.float64).tobytes()
        others = [rank for rank in range(self.size) if rank != self.rank]
        found = self._exchange(dict.fromkeys(others, data), others)
        found[self.rank] = data
        return [np.frombuffer(found[rank], dtype=np.float64) for rank in range(self.size)]

    def swap(self, v: np.ndarray, other: int) -> np.ndarray:
        return np.frombuffer(self._exchange({other: v.tobytes()}, [other])[other], dtype=np.float64)

    def deal(self, parts: list[Any] | None) -> Any:
        if parts is None:
            return pickle.loads(self._exchange({}, [0])[0])
        self._exchange({rank: pickle.dumps(parts[rank]) for rank in range(1, self.size)}, [])
        return parts[0]

    def abort(self, code: int) -> None:
        """Let the others know, as far as they are there."""
        self._start(self._posted({rank: b"" for rank in range(self.size) if rank != self.rank}, _END))

    def _exchange(self, sent: dict[int, bytes], wanted: Iterable[int]) -> dict[int, bytes]:
        """Send letters, and wait for those of some others that have the same number."""
        self._number += 1
        answers = self._start(self._posted(sent, self._number)).result() if sent else []
        for rank, answer in zip(sent, answers):
            if isinstance(answer, BaseException):
                raise LostWorkerError(f"cluster: rank {rank} is lost: {type(answer).__name__}")
        return {rank: self._wait(rank) for rank in wanted}

    def _wait(self, rank: int) -> bytes:
        letters, key = self._letters, (self._run, rank, self._number)
        while True:
            with letters.news:
                if letters.news.wait_for(lambda: key in letters.known or self._ended(), _PATIENCE):
                    if key in letters.known:
                        return letters.known.pop(key)
                    raise LostWorkerError(f"cluster: rank {min(self._ended())} gave up")
            if not self._start(self._is_there(rank)).result():
                raise LostWorkerError(f"cluster: rank {rank} is lost")

    def _ended(self) -> list[int]:
        return [rank for rank in range(self.size) if (self._run, rank, _END) in self._letters.known]

    def _start(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._worker.loop.asyncio_loop)

    async def _is_there(self, rank: int) -> bool:
        try:
            await asyncio.wait_for(self._worker.rpc(self._addresses[rank]).identity(), 30)
        except (TimeoutError, OSError):
            return False
        return True

    async def _posted(self, sent: dict[int, bytes], number: int) -> list[Any]:
        """Send letters; what each server answers, or the error where it does not."""
        letters = (
            self._worker.rpc(self._addresses[rank]).fastadmm_letter(
                run=self._run, sender=self.rank, number=number, data=data
            )
            for rank, data in sent.items()
        )
        return await asyncio.gather(*letters, return_exceptions=True)
