"""How the scoring service speaks HTTP: no connection is kept for a request that does not begin."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Connections at once, and seconds until a request has begun.
_CONNECTIONS, _SECONDS = 512, 10.0


class PromptProtocol(H11Protocol):
    """One connection; once a request has begun :class:`fastadmm.runs.service_door.Door` watches it."""

    _late: asyncio.TimerHandle | None = None
    _clock: asyncio.TimerHandle | None = None
    _closing = False

    def connection_made(self, transport: Any) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            transport.abort()
        else:
            self._watch()
            self._clock = self.loop.call_later(_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._answers():
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _look(self) -> None:
        """Drop a connection that was closed long ago, and whose client does not take the rest."""
        if self._closing:
            self.transport.abort()
            return
        self._closing = self.transport.is_closing()
        self._clock = self.loop.call_later(_SECONDS, self._look)

    def _give_up(self) -> None:
        self._late = None
        if not self._answers():
            self.transport.close()


class PromptServer(uvicorn.Server):
    """A server that SIGTERM ends without an error; an interrupt is raised once it has ended."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals; uvicorn itself would raise each of them again."""
        caught: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            caught.append(number)
            self.should_exit = True

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._ready()
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if signal.SIGINT in caught:
            raise KeyboardInterrupt
