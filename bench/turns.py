"""Calls in turn with another revision's, timed by seconds of the processor."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from typing import Any

import pytest


def cpu_seconds() -> float:
    """Seconds of the processor, of this process and of those that it waited for, whatever others do."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


class Turns:
    """The line to ``compare.py``, which lets this process and another's run each call in turn.

    From here go lines of JSON: the ``cases`` that there are, that a call is ``ready``, and that a case is
    ``done``, with its series of numbers or the reason why there are none. From there come ``go``, or ``stop``
    where the other cannot.
    """

    def __init__(self, descriptor: int) -> None:
        self._stream = socket.socket(fileno=descriptor).makefile("rw")
        self.series: dict[str, list[float]] = {}
        self.why: str | None = None

    def tell(self, **message: Any) -> None:
        """Send a message."""
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def wait(self) -> None:
        """Wait until this process is to run its call."""
        self.tell(ready=True)
        if self._stream.readline() != "go\n":
            pytest.skip("the other revision cannot")

    def done(self, case: str) -> None:
        """Tell the end of a case."""
        self.tell(done=case, series=None if self.why else self.series, why=self.why)
        self.series, self.why = {}, None


#: Where ``compare.py`` runs this process; else None.
TURNS = Turns(int(os.environ["FASTADMM_TURNS"])) if "FASTADMM_TURNS" in os.environ else None
