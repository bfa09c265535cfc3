"""Fixtures shared by all tests."""

import gc
import os
import secrets
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastadmm.engine.free_cores import FREE_CORES
from hypothesis import HealthCheck, settings

# Of fixtures that serve several tests.
os.environ["FASTADMM_MEMORY"] = tempfile.mkdtemp(prefix="fastadmm-memory-")

# Where a machine decides, the same examples every time, and no clock; at a desk, new ones each run.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Thousands of small files: no test of one process can see whether a disk kept them, only that it was asked.
os.fsync = os.fstat  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before ``-m`` selects: of every test with ``representatives(n)`` all cases but n are repeats.

    The n are spread evenly: of the cases in their order, the first of every nth part. ``EVERY`` leaves fewer.
    """
    every, seen = int(os.environ.get("EVERY", "1")), Counter[str]()
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("representatives") and not (
            item.get_closest_marker("slow") or item.get_closest_marker("repeats")
        ):
            groups[item.nodeid.partition("[")[0]].append(item)
    for group in groups.values():
        n = group[0].get_closest_marker("representatives").args[0]  # type: ignore[union-attr]
        kept = {place * len(group) // n for place in range(n)}
        for place, item in enumerate(group):
            if place not in kept:
                item.add_marker("repeats")
    for item in items:
        if item.get_closest_marker("repeats"):
            seen[name := item.nodeid.partition("[")[0]] += 1
            if seen[name] % every != 1 % every:
                item.add_marker("slow")


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(os.environ["FASTADMM_MEMORY"], ignore_errors=True)


def pytest_collection_finish() -> None:
    """No collection of garbage looks at thousands of tests again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test remembers what parties of another one added up."""
    monkeypatch.setenv("FASTADMM_MEMORY", str(tmp_path_factory.getbasetemp() / secrets.token_hex(8)))


@pytest.fixture(scope="module")
def idle_machine() -> Iterator[None]:
    """As if nobody else computed: jobs go to all threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FREE_CORES, "_running", lambda: 0)
        patch.setattr(FREE_CORES, "_free", FREE_CORES._cores)
        yield


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of a few dozen rows, so that small files have many tiles."""
    for module in ("fastadmm.blocks.tiles", "fastadmm.blocks.block", "fastadmm.store.streamed"):
        monkeypatch.setattr(f"{module}.TILE_BYTES", 4096, raising=False)
        monkeypatch.setattr(f"{module}.TILE_ENTRIES", 300, raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory with the large public data sets; tests that need it skip where it is absent."""
    candidates = [
        Path(os.environ["FASTADMM_DATA"]) if "FASTADMM_DATA" in os.environ else None,
        Path(__file__).resolve().parents[2] / "shared" / "data",
    ]
    for path in candidates:
        if path is not None and (path / "a9a.bz2").exists():
            return path
    pytest.skip("public data sets not found: set FASTADMM_DATA to the directory that holds a9a.bz2")


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Files are not flushed to the disk: for tests that are not about a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastadmm.files.atomic.synchronise", lambda path: None)
        patch.setattr("os.fsync", lambda file: None)
        patch.setattr("os.fdatasync", lambda file: None)
        yield


@pytest.fixture
def parties(tmp_path: Path) -> Any:
    """Two parties' agents in this process, with their columns."""
    from federation_tools import Parties
    from rounds_tools import data_of, separate

    separate(data_of(tmp_path), tmp_path)
    made = Parties(tmp_path)
    yield made
    made.close()
