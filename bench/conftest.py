"""What pytest-benchmark writes about the machine: no names, no paths; calls in turn with the reference."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

#: Calls before those that count: they compile, and touch memory for the first time.
WARMUP = 2


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


@pytest.fixture
def in_turns(benchmark: Any) -> Callable[..., Any]:
    """Benchmark a call in turn with the reference kernel: ``in_turns(call, setup=None, rounds=15)``.

    Keeps the ratio and its quartiles in ``extra_info``, where ``compare.py`` finds them.
    """
    from turns import Turns

    def run(call: Callable[..., Any], setup: Callable[[], Any] | None = None, rounds: int = 15) -> Any:
        turns = Turns(call)

        def prepare() -> tuple[tuple[Any, ...], dict[str, Any]]:
            arguments = (setup(),) if setup is not None else ()
            turns.reference()
            return arguments, {}

        result = benchmark.pedantic(turns.call, setup=prepare, rounds=rounds, warmup_rounds=WARMUP)
        benchmark.extra_info.update(turns.ratio(WARMUP))
        return result

    return run
