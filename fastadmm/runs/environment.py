"""What a run ran on, and how much memory that has: recorded so that a number can be understood later."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastadmm.engine.free_cores import OWN, ROOT, control_groups
from fastadmm.version import __version__

_PACKAGES = ("numpy", "scipy", "numba", "h5py", "scikit-learn", "pandas")


def describe_environment(n_threads: int) -> dict[str, Any]:
    """Versions, machine and threads, as plain values; no host names or paths."""
    return {
        "fastadmm": __version__,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": n_threads,
    }


def _processor() -> str:
    line = _line("/proc/cpuinfo", "model name")
    return line.split(":", 1)[1].strip() if line else platform.processor() or "unknown"


def _line(path: str, name: str) -> str:
    """The first line that begins so in a file of the kernel; empty where there is none."""
    with suppress(OSError), open(path, encoding="utf-8") as file:
        return next((line for line in file if line.startswith(name)), "")
    return ""


def _amount(path: str, name: str) -> int | None:
    """An amount in a file of the kernel, in bytes."""
    with suppress(ValueError, IndexError):
        return int(_line(path, name).split()[1]) * 1024
    return None


def peak_memory() -> int | None:
    """Largest resident memory of this process so far, in bytes, where the system tells."""
    return _amount("/proc/self/status", "VmHWM")


def available_memory() -> int | None:
    """Bytes that machine, control groups and ``ulimit -v`` leave to a new allocation; None if unknown."""
    found = (_amount("/proc/meminfo", "MemAvailable"), _group_memory(), _address_space())
    return min((amount for amount in found if amount is not None), default=None)


def _group_memory(root: Path = ROOT, own: Path = OWN) -> int | None:
    """What the process's control group and those that it is in leave."""
    groups = control_groups("memory", root, own)
    known = [left for version, group in groups if (left := _left_in(group, *_FILES[version])) is not None]
    return min(known, default=None)


#: Files of a control group of each version: its limit, what is used of it, and, in ``memory.stat``, what of
#: that are files read before, which make way.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _left_in(group: Path, limit: str, usage: str, cache: str) -> int | None:
    try:
        most, used = ((group / name).read_text(encoding="ascii").strip() for name in (limit, usage))
        if most == "max":
            return None
        told = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        return max(0, int(most) - int(used) + int(told.get(cache, 0)))
    except (OSError, ValueError):
        return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return most
    return max(0, most - int(pages) * resource.getpagesize())


#: Python, NumPy, SciPy, h5py, Numba and the compiled kernels: the peak of a run on a few rows, of the
#: largest of several schemes and losses, and a little more. ``bench/memory.py --streamed`` measures it.
BASE_BYTES = 212 * 2**20

#: Share of the free memory that a run without a limit may take.
SHARE = 0.8
