"""Messages in a scratch file: the same bits, little memory, one line where the disk is full."""

import errno
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fastadmm.engine import spilled as spilled_module
from fastadmm.engine.engine import Engine
from fastadmm.engine.spilled import SpilledRows, let_go
from fastadmm.errors import StorageError
from fastadmm.parties.reflection import reflect_rows
from fastadmm.runs.config import make_config
from fastadmm.runs.plan import make_plan
from fastadmm.runs.train import plan_run, resume_run, start_run
from fastadmm.store.partition import open_partition

from problems import make_vertical_classification
from run_tools import CrashAfter, Notes, assert_same_run, refuses, write_blocks

N = 40_000


@pytest.fixture(autouse=True)
def small(small_tiles, monkeypatch):
    """Tiles and portions far smaller than the small data of these tests."""
    monkeypatch.setattr(spilled_module, "_RESIDENT", 1 << 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spilled")
    blocks, y, _ = make_vertical_classification(N, (30, 25), seed=1)
    write_blocks(folder / "a.parts", blocks, y)
    classes = y + (blocks[0][:, 0] > 0.0)
    write_blocks(folder / "c.parts", blocks, classes, classes=("a", "b", "c"))
    return folder


def configuration(folder, **values):
    name = "c.parts" if values.get("loss") == "multinomial" else "a.parts"
    return make_config(
        {"data": str(folder / name), "rounds": 7, "gap": 0.0, "lambda": 1e-6, "threads": 2, **values}
    )


def limited(config):
    """The same under the least limit that spilled messages leave all directions."""
    partition = open_partition(config.data)
    outputs = 3 if config.loss == "multinomial" else 1
    free = make_plan(partition.parties, [], N, config, outputs, n_threads=2)
    found = 0
    for share in np.arange(0.9, 0.1, -0.02):
        limit = free.total - int((1.0 - share) * (free.state + free.data))
        plan = make_plan(partition.parties, [], N, config, outputs, limit=limit, n_threads=2)
        if plan.spilled and plan.total <= limit:
            found = limit
    return replace(config, memory=str(found))


def squares(held, rows):
    part = held[:, slice(*rows)]
    return part @ part.T


def test_sums_and_rows_are_those_of_an_array_in_memory(tmp_path):
    n, rng = 100_003, np.random.default_rng(0)
    rows = SpilledRows(tmp_path, (9, n))
    rows.reserve(7)
    rows.array[:7] = rng.normal(size=(7, n))
    whole, v, c = rows.array[:7].copy(), rng.normal(size=n), rng.normal(size=(2, 7))
    for threads in (1, 2):
        with Engine(threads) as plain, Engine(threads) as engine:
            engine.spilled = rows
            spilled = rows.array[:7]
            np.testing.assert_array_equal(engine.dot(spilled, v), plain.dot(whole, v))
            np.testing.assert_array_equal(engine.combine(c, spilled), plain.combine(c, whole))
            found = []
            for held, own in ((spilled, engine), (whole, plain)):
                found.append(own.sums(partial(squares, held), own.leaves(n), size=49))
                own.by_leaf(partial(reflect_rows, held, np.arange(7), np.full(7, 7.0**-0.5)), own.leaves(n))
            np.testing.assert_array_equal(*found)
            np.testing.assert_array_equal(spilled, whole)


def test_no_more_is_in_memory_than_a_portion(tmp_path, monkeypatch):
    n = 200_000
    rows = SpilledRows(tmp_path, (20, n))
    rows.reserve(20)
    rows.array[:] = 1.0

    def resident():
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
        (place,) = [k for k, line in enumerate(lines) if line.startswith(f"{rows.array.ctypes.data:x}-")]
        return next(int(line.split()[1]) * 1024 for line in lines[place:] if line.startswith("Rss:"))

    if not Path("/proc/self/smaps").exists():
        pytest.skip("needs /proc")
    assert resident() >= rows.array.nbytes
    let_go(rows.array[3, 5:])
    assert resident() == 0
    seen, array = [], rows.array
    with Engine(1) as engine:
        engine.spilled = rows

        def work(part):
            array[:, slice(*part)].sum()
            seen.append(resident())

        engine.by_leaf(work, engine.leaves(n))
        assert len(seen) == len(engine.leaves(n))
        leaf = 8 * 20 * (n // len(seen) + 1)
        assert 0 < max(seen) <= leaf + 20 * 2 * (1 << 16)
        assert resident() == 0
        engine.dot(array, np.ones(n))
        assert resident() == 0
    np.testing.assert_array_equal(rows.array, 1.0)


def test_nothing_is_left_in_the_directory(tmp_path):
    rows = SpilledRows(tmp_path, (3, 1000))
    rows.reserve(3)
    assert not list(tmp_path.iterdir())


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "values",
    [
        {"directions": "one"},  # in memory columns are read where they are otherwise
        {"loss": "multinomial"},
        {"history": 4},
        {"loss": "hinge", "history": 8, "rounds": 12},
        {"regularizer": "l1", "history": 64},  # in memory columns are read where they are otherwise
        {"regularizer": "l1", "loss": "quantile", "history": 4, "rounds": 12},
    ],
    ids=str,
)
def test_a_spilled_run_is_the_same_to_the_bit(folder, tmp_path, values):
    config = configuration(folder, **values)
    start_run(config, tmp_path / "memory")
    tight = limited(config)
    plan = plan_run(tight)
    assert plan.spilled > 0
    assert any("scratch file" in line for line in plan.lines())
    start_run(replace(tight, threads=1), tmp_path / "spilled")
    assert_same_run(tmp_path / "memory", tmp_path / "spilled")
    with pytest.raises(KeyboardInterrupt):
        start_run(replace(tight, checkpoint_rounds=2), tmp_path / "run", display=CrashAfter(5))
    resume_run(tmp_path / "run")
    assert_same_run(tmp_path / "memory", tmp_path / "run")


def test_a_spilled_run_goes_on_in_memory_and_back(folder, tmp_path):
    config = configuration(folder, history=4)
    start_run(config, tmp_path / "whole")
    start_run(replace(limited(config), rounds=3), tmp_path / "run")
    resume_run(tmp_path / "run", changes={"memory": "2GB", "rounds": 5})
    notes = Notes()
    resume_run(tmp_path / "run", changes={"memory": limited(config).memory, "rounds": 7}, display=notes)
    assert any("scratch file" in line for line in notes.lines)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(folder, tmp_path, monkeypatch):
    config = replace(limited(configuration(folder, directions="one")), checkpoint_rounds=1)
    start_run(configuration(folder, directions="one"), tmp_path / "whole")
    real, calls = os.posix_fallocate, []

    def full(*given):
        calls.append(given)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*given)

    monkeypatch.setattr(os, "posix_fallocate", full)
    refuses(StorageError, r"run: .*(full|space)", start_run, config, tmp_path / "run")
    monkeypatch.setattr(os, "posix_fallocate", real)
    resume_run(tmp_path / "run")
    assert_same_run(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize(
    "values",
    [
        {"directions": "both"},
        {"secrecy": "sums"},
        {"scheme": "sharing"},
        {"constraint": "ball:1"},
        {"loss": "multinomial", "regularizer": "l1"},
    ],
    ids=str,
)
def test_what_cannot_be_spilled_is_not(folder, values):
    config = configuration(folder, **values)
    parties, outputs = open_partition(config.data).parties, 3 if config.loss == "multinomial" else 1
    assert make_plan(parties, [], N, config, outputs, limit=1, n_threads=2).spilled == 0


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "values",
    [
        {"regularizer": "l1"},
        {"regularizer": "l1", "loss": "quantile", "history": 4, "rounds": 12},
        {"history": 4},
    ],
    ids=str,
)
def test_a_scratch_file_is_no_larger_than_planned(folder, tmp_path, monkeypatch, values):
    real, ends = os.posix_fallocate, {}

    def allocated(file, offset, length):
        ends[file] = max(ends.get(file, 0), offset + length)
        real(file, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", allocated)
    config = limited(configuration(folder, **values))
    start_run(config, tmp_path / "run")
    assert 0 < sum(ends.values()) <= plan_run(config).spilled
