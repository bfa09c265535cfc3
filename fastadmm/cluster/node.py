"""What workers on one machine have between them: its cores and its memory."""

from __future__ import annotations

import os
import platform

from fastadmm.cluster.comm import Comm
from fastadmm.engine.engine import default_threads

__all__ = ["own_threads", "workers_here"]


def own_threads(comm: Comm, wanted: int | None) -> int:
    """Threads of this worker, so that all workers of a machine together have one for each core."""
    cores = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    here = platform.node(), cores
    others = [
        their for node, their in comm.share(here) if node == here[0] and (cores is None or their & cores)
    ]
    return wanted if wanted is not None else default_threads(len(others))


def workers_here(comm: Comm) -> int:
    """How many workers this machine has."""
    return comm.share(platform.node()).count(platform.node())
