"""What pytest-benchmark writes about the machine: no names, no paths."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Replace it by ours."""
    from machine import describe_machine

    machine_info.clear()
    machine_info.update(describe_machine())


def pytest_benchmark_update_commit_info(config: Any, commit_info: dict[str, Any]) -> None:
    """Keep the revision alone."""
    from machine import revision

    commit_info.clear()
    commit_info["id"] = revision()
