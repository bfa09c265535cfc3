"""Benchmarks whose calls run in turn with another revision's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from turns import TURNS

#: Calls before those that count: they compile, and touch memory for the first time.
WARMUP = 2


def pytest_configure() -> None:
    """Find the kernels that an installation with the same sources has compiled."""
    if TURNS is not None:
        import fastadmm

        from corpus import share_compiled_kernels

        assert Path(fastadmm.__file__).is_relative_to(os.environ["PYTHONPATH"]), "another installation"
        share_compiled_kernels()


def pytest_collection_finish(session: Any) -> None:
    """Tell which cases there are."""
    if TURNS is not None:
        TURNS.tell(cases=[item.nodeid for item in session.items])


def pytest_exception_interact(node: Any, call: Any) -> None:
    """Keep the reason why a case failed."""
    if TURNS is not None:
        TURNS.why = call.excinfo.exconly().splitlines()[0]


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Tell the end of a case, however it ended."""
    if TURNS is not None:
        TURNS.done(nodeid)


@pytest.fixture
def in_turns(benchmark: Any) -> Callable[..., None]:
    """Benchmark a call, in turn with another revision's: ``in_turns(call, setup=None, pairs=25)``.

    The call may return amounts by name, such as ``{"exchanges": 8}``, which are compared as seconds are.
    """

    def run(call: Callable[..., Any], setup: Callable[[], Any] | None = None, pairs: int = 25) -> None:
        results: list[dict[str, float]] = []
        begun = 0

        def prepare() -> tuple[tuple[Any, ...], dict[str, Any]]:
            nonlocal begun
            begun += 1
            arguments = () if setup is None else (setup(),)
            if TURNS is not None and begun > WARMUP:
                TURNS.wait()
            return arguments, {}

        def target(*arguments: Any) -> None:
            results.append(call(*arguments) or {})

        benchmark.pedantic(target, setup=prepare, rounds=pairs, warmup_rounds=WARMUP)
        amounts = {name: [result[name] for result in results[WARMUP:]] for name in results[-1]}
        benchmark.extra_info.update({name: values[-1] for name, values in amounts.items()})
        if TURNS is not None:
            TURNS.series = {"seconds": list(benchmark.stats.stats.data), **amounts}

    return run
