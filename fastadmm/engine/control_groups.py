"""The control groups that this process is in: what they leave of a machine is less than there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

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


def core_limit(root: Path = ROOT, own: Path = OWN) -> float:
    """Cores that the groups' quotas of processor time are worth, rounded up; infinity without one."""
    return min(_cores_of(group, version) for version, group in control_groups("cpu", root, own))


def _cores_of(group: Path, version: int) -> float:
    try:
        if version == 2:
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = (
                (group / f"cpu.cfs_{name}_us").read_text("ascii") for name in ("quota", "period")
            )
        return max(1, math.ceil(int(quota) / int(period))) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return math.inf
