"""Amounts of memory: as the machine has them, as a process takes them."""

from __future__ import annotations

#: Python, NumPy, SciPy, h5py, Numba and the compiled kernels: the peak of a run on a few rows, of the
#: largest of several schemes and losses, and a little more. ``bench/memory.py --streamed`` measures it.
BASE_BYTES = 212 * 2**20

#: What a run takes besides where it compiles its kernels.
COMPILER_BYTES = 110 * 10**6

#: Share of the free memory that a run without a limit may take.
SHARE = 0.8


def compiles() -> bool:
    """Whether a run has to compile all of its kernels: nothing of these sources is kept anywhere."""
    from fastadmm.kernels.cache import cache_directory, readable_directories

    directory = cache_directory("vectors")  # which every run calls
    return directory is None or not (directory.exists() or readable_directories("vectors"))


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
