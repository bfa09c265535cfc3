"""Workers that stream their rows, because memory is short: the weights are those of one process."""

from dataclasses import replace

import numpy as np
import pytest
from fastadmm.engine.spilled import SpilledRows
from fastadmm.runs.plan import make_plan
from fastadmm.runs.train import follow_run, start_run
from fastadmm.settings.run import RunConfig
from fastadmm.store.partition import open_partition

from run_tools import Notes
from test_cluster_run import N, classes, data, result_in, resumed, shared, weights_in
from workers import on_workers, rows_of

__all__ = ["classes", "data"]  # fixtures

pytestmark = pytest.mark.usefixtures("small_tiles")


def limit_of(config, workers, outputs=1):
    """Memory of a worker that has room for all but half of its blocks."""
    parties = open_partition(config.data).parties
    plans = []
    for rank in range(workers):
        rows = rows_of(N, rank, workers)
        own = [party.of_rows(*rows) for party in parties]
        plans.append(make_plan(own, [], rows[1] - rows[0], config, outputs, n_threads=config.threads or 2))
    return str(max(plan.total - plan.data // 2 for plan in plans))


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 2), (4, 1)])
def test_a_model_is_that_of_one_process_in_memory(data, tmp_path, workers, threads):
    config = RunConfig(str(data), threads=threads, gap=1e-8, class_weight="balanced")
    start_run(replace(config, threads=1), tmp_path / "one")
    tight, notes = replace(config, memory=limit_of(config, workers)), Notes()

    def work(comm):
        if comm.rank:
            return follow_run(comm)
        return start_run(tight, tmp_path / "run", display=notes, comm=comm)

    found = on_workers(workers, work)
    assert found[1:] == ["converged"] * (workers - 1)
    assert any(", streamed, " in line for line in notes.lines)
    assert result_in(tmp_path / "run") == result_in(tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))


@pytest.mark.representatives(1)
# With a history no process reads columns in place, which one with room for them does otherwise.
@pytest.mark.parametrize(
    "settings", [{"regularizer": "l1", "history": 64}, {"loss": "multinomial"}, {"loss": "hinge"}], ids=str
)
def test_a_run_goes_on_with_other_workers(data, classes, tmp_path, settings):
    multi = settings.get("loss") == "multinomial"
    place, outputs = (classes, 3) if multi else (data, 1)
    config = RunConfig(str(place), threads=1, gap=1e-12, rounds=3, **settings)
    shared(replace(config, memory=limit_of(config, 4, outputs)), tmp_path / "run", 4)
    resumed(tmp_path / "run", 1, rounds=4, memory=limit_of(config, 1, outputs))  # streamed
    resumed(tmp_path / "run", 2, rounds=5, memory=limit_of(config, 2, outputs))
    resumed(tmp_path / "run", 3, rounds=6, memory="2GB")
    start_run(replace(config, rounds=6), tmp_path / "whole")
    assert result_in(tmp_path / "run") == result_in(tmp_path / "whole")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "whole"))


def test_messages_in_scratch_files(data, tmp_path, monkeypatch):
    config = RunConfig(str(data), threads=1, gap=0.0, rounds=6, history=3, lambda_=1e-6)
    start_run(config, tmp_path / "one")
    monkeypatch.setattr("fastadmm.runs.plan.resident_bytes", lambda *_: 0)  # as of more rows
    parts = [party.of_rows(*rows_of(N, 1, 2)) for party in open_partition(data).parties]
    n = parts[0].n_samples
    spilled = make_plan(parts, [], n, config, limit=1, n_threads=1)
    assert spilled.spilled
    tight, made = replace(config, memory=str(spilled.total), rounds=4), []

    class Spilled(SpilledRows):
        def __init__(self, directory, shape):
            made.append((directory, shape[1]))
            super().__init__(directory, shape)

    monkeypatch.setattr("fastadmm.coordinator.message_store.SpilledRows", Spilled)
    shared(tight, tmp_path / "run", 2)
    assert sorted(made) == [(tmp_path / "run", 10_005), (tmp_path / "run", 10_006)]
    resumed(tmp_path / "run", 3, rounds=5)
    resumed(tmp_path / "run", 1, rounds=6, memory="2GB")
    assert len(made) == 3  # only the last of three has as many rows as one of two
    assert result_in(tmp_path / "run") == result_in(tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))
