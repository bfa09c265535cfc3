"""Amounts of memory: as the machine has them, as a process takes them."""

from __future__ import annotations

__all__ = ["BASE_BYTES", "SHARE", "peak_memory"]

#: Python, NumPy, SciPy, h5py, Numba, its compiler and the compiled kernels: the peak of a run on a
#: few rows with nothing compiled before, and a tenth more. ``bench/streaming.py`` measures it.
BASE_BYTES = 240 * 2**20

#: Share of the free memory that a run without a limit may take.
SHARE = 0.8


def peak_memory() -> int | None:
    """Largest resident memory of this process so far, in bytes, where the system tells."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
