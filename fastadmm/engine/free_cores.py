"""How many cores others and this process's control groups leave: who waits for a thread, waits for a core."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

#: Seconds between two looks; one takes some microseconds.
_PAUSE = 1e-3

#: So many looks in a row must find fewer cores free, or more, before that counts.
_FEWER, _MORE = 3, 4

#: After so many seconds the last looks say nothing about now.
_OLD = 0.02

#: Seconds for which our threads wait awake after a job: GNU OpenMP or TBB, and other OpenMP libraries.
_AWAKE, _LONG_AWAKE = 0.01, 0.25


class FreeCores:
    """Cores that are left, by the number of threads that run or wish to on the whole machine.

    The number stands in ``/proc/loadavg``. Where there is no such file, all cores count as free.
    """

    def __init__(self, path: str | os.PathLike[str] = "/proc/loadavg", cores: int | None = None) -> None:
        self._path, self._cores = path, cores or os.cpu_count() or 1
        self._file: int | None = None
        self._free, self._looks, self._next_look = self._cores, 0, 0.0
        self._shared, self._ours, self._awake = float("-inf"), 1, 0.0

    def among(self, n_threads: int) -> int:
        """How many of so many threads have a core, the caller among them."""
        now = time.monotonic()
        if now >= self._next_look:
            self._look(now)
        return n_threads if self._free >= self._cores else max(1, min(n_threads, self._free))

    def share(self, n_threads: int) -> None:
        """Note that so many threads begin a job, or end it: afterwards they wait awake for a while."""
        self._shared, self._ours = time.monotonic(), min(n_threads, self._cores)
        self._awake = self._awake or _awake_for()

    def _look(self, now: float) -> None:
        # While one thread computes, ours that are still awake count as others': they soon sleep, if ever.
        waiting = now - self._shared < self._awake and (self._free > 1 or self._awake == float("inf"))
        free = min(self._cores, self._cores - self._running() + (self._ours if waiting else 1))
        old = now - self._next_look > _OLD
        self._looks = self._looks + 1 if free != self._free and not old else 0
        if old or self._looks >= (_FEWER if free < self._free else _MORE):
            self._free, self._looks = free, 0
        self._next_look = now + _PAUSE

    def _running(self) -> int:
        """Threads on the whole machine that run or wait for a core, this one among them."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY)  # once: a fit looks every millisecond
            return int(os.pread(self._file, 64, 0).split()[3].partition(b"/")[0])
        except (OSError, ValueError, IndexError):
            return 0


def _awake_for() -> float:
    """How long Numba's threads wait awake after a job, which its OpenMP library decides."""
    if os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "active":
        return float("inf")
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return _LONG_AWAKE if any("/libomp" in line or "/libiomp" in line for line in maps) else _AWAKE
    except OSError:
        return _AWAKE


FREE_CORES = FreeCores()


def sleep_between_jobs() -> None:
    """Let threads sleep where they would wait awake: between exchanges other processes need their cores.

    Before the first job: OpenMP's library looks once. What the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


#: Where the system shows the groups, and which of them are a process's own.
ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def control_groups(kind: str, root: Path = ROOT, own: Path = OWN) -> Iterator[tuple[int, Path]]:
    """Directories that may hold the limits of the process's own group, and of those that it is in."""
    try:
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError:
        lines = []
    second, first, place = "", "", kind
    for _, kinds, path in (line for line in lines if len(line) == 3):
        if not kinds:
            second = path
        elif kind in kinds.split(","):
            first, place = path, kinds if (root / kinds).is_dir() else kind
    for version, directory, name in ((2, root, second), (1, root / place, first)):
        group = Path(name.strip("/"))
        # In a container of its own name space the group is the root itself.
        inside = () if ".." in group.parts else (group, *group.parents)
        for found in dict.fromkeys((directory, *(directory / part for part in inside))):
            yield version, found
