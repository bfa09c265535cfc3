"""Parties whose sums over rows travel together: one reduction for all of them, not one for each."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")
_R = TypeVar("_R")

#: What the thread at work asks the others for: the sum of a vector by node, or a step of its own.
_Wish = Any

#: The member that a thread is.
_OWN = threading.local()


class _Abandoned(BaseException):
    """Ends a thread whose answer nobody waits for any more."""


class _Member:
    """One item, on a thread that runs only while it is its turn."""

    def __init__(self, work: Callable[[], Any], back: threading.Semaphore) -> None:
        self._work, self._back = work, back
        self._turn = threading.Semaphore(0)
        self.result: Any = None
        self.error: BaseException | None = None
        self.wish: _Wish = None
        self.reply: Any = None
        self.ended = self.abandoned = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._turn.acquire()
        _OWN.member = self
        try:
            if not self.abandoned:
                with np.errstate(over="ignore", invalid="ignore"):  # as an engine's other threads
                    self.result = self._work()
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._back.release()

    def go_on(self) -> None:
        """Let it run until it asks for something or ends."""
        self._turn.release()
        self._back.acquire()

    def ask(self, wish: _Wish) -> Any:
        """Called on its own thread: what the others and the other workers have to say."""
        self.wish = wish
        self._back.release()
        self._turn.acquire()
        if self.abandoned:
            raise _Abandoned
        return self.reply


def is_member() -> bool:
    """Whether this thread runs an item of :func:`run_together`."""
    return getattr(_OWN, "member", None) is not None


def ask(wish: _Wish, alone: Callable[[], Any]) -> Any:
    """What a member of :func:`run_together` wishes for; outside one, what ``alone`` gives."""
    member = getattr(_OWN, "member", None)
    return alone() if member is None else member.ask(wish)


def run_together(
    function: Callable[[_T], _R], items: Sequence[_T], add_up: Callable[[dict[Any, np.ndarray]], np.ndarray]
) -> list[_R]:
    """Apply a function to items, one at a time, each until it needs a sum: these are then made in one."""
    back = threading.Semaphore(0)
    members = [_Member(lambda item=item: function(item), back) for item in items]  # type: ignore[misc]
    for member in members:
        member.thread.start()
    try:
        running = members
        while running:
            for member in running:
                member.go_on()
                if member.error is not None:
                    raise member.error
                if callable(member.wish) and not member.ended:
                    member.reply = member.wish()
            running = [member for member in running if not member.ended]
            _sum([member for member in running if not callable(member.wish)], add_up)
    finally:
        for member in members:
            if not member.ended:
                member.abandoned = True
                member.go_on()
            member.thread.join()
    return [member.result for member in members]


def _sum(members: list[_Member], add_up: Callable[[dict[Any, np.ndarray]], np.ndarray]) -> None:
    """Reply to all who wait for a sum."""
    if not members:
        return
    joined = {node: np.concatenate([member.wish[node] for member in members]) for node in members[0].wish}
    total, begin = add_up(joined), 0
    for member in members:
        size = len(next(iter(member.wish.values())))
        member.reply = total[begin : begin + size].copy()
        begin += size
