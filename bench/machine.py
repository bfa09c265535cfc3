"""What timings were taken on: no names, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and versions, also of the peers that are installed."""
    import numba
    from fastadmm import __version__

    import sklearn

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions: dict[str, str | None] = {
        "fastadmm": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "Numba": numba.__version__,
        "scikit-learn": sklearn.__version__,
    }
    found: dict[str, Any] = {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
    }
    peers = {"SciPy": "scipy", "LIBLINEAR": "liblinear-official", "snapml": "snapml"}
    for name, package in peers.items():
        try:
            versions[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    information = Path("/proc/meminfo")
    if information.exists():
        kilobytes = int(information.read_text().split("MemTotal:")[1].split()[0])
        found["memory_gb"] = round(kilobytes / 1e6)
    return found


def revision() -> str | None:
    """Commit of the sources, with ``+`` where they were changed since; None outside a repository."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "../fastadmm", "../kernels", "../data_tools")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()
