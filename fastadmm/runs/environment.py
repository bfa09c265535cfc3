"""What a run ran on: recorded so that a number can be understood later."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from fastadmm.version import __version__

__all__ = ["available_memory", "describe_environment"]

_PACKAGES = ("numpy", "scipy", "numba", "h5py", "scikit-learn", "pandas")


def describe_environment(n_threads: int) -> dict[str, Any]:
    """Versions, machine and threads, as plain values; no host names or paths.

    Parameters
    ----------
    n_threads : int
        Threads of the local engine.
    """
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
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def available_memory() -> int | None:
    """Bytes of memory that a new allocation may take, where the system tells; else None.

    Inside a control group with a limit (a container), what that leaves counts.
    """
    known = [amount for amount in (_machine_memory(), _group_memory()) if amount is not None]
    return min(known, default=None)


def _group_memory() -> int | None:
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
        return None if most == "max" else max(0, int(most) - int(used))
    except (OSError, ValueError):
        return None


def _machine_memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
