"""`fastadmm train --cluster dask://...`: a task on each worker, and a lost worker's run goes on."""

import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from fastadmm.cli.cluster import absolute_paths, on_dask
from fastadmm.errors import ConfigError, StorageError
from fastadmm.runs import dask_run
from fastadmm.runs.display import Silent
from fastadmm.runs.train import resume_run, start_run
from fastadmm.settings.run import RunConfig

from run_tools import Notes, n_lines, start, wait_for
from test_cluster_run import data, result_in, weights_in  # noqa: F401 (a fixture)

pytestmark = pytest.mark.filterwarnings("ignore")


def cluster_of(workers, **more):
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    fixed = {"threads_per_worker": 1, "dashboard_address": None, "protocol": "tcp", "host": "127.0.0.1"}
    return distributed.LocalCluster(n_workers=workers, **fixed, **more)


def config_for(cluster, data, **more):  # noqa: F811
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    return RunConfig(str(data), threads=1, cluster=address, **more)


def start_on_dask(config, run, force, display):
    def begin(at):
        return partial(start_run, absolute_paths(config), at, force=force)

    return on_dask(config.cluster, run, begin, config.retry, None, display)


def test_three_workers(data, tmp_path, monkeypatch):  # noqa: F811
    notes = Notes()
    with cluster_of(3, processes=False) as cluster:
        config = config_for(cluster, data, gap=1e-8)
        start_on_dask(config, tmp_path / "run", False, notes)
        with pytest.raises(StorageError, match="exists already"):
            start_on_dask(config, tmp_path / "run", False, Silent())
        monkeypatch.setattr(dask_run, "__version__", "9.9")
        with pytest.raises(ConfigError, match=r"Dask worker tcp://.* has fastadmm .*, not 9.9; install it"):
            start_on_dask(config, tmp_path / "other", False, Silent())
    assert notes.lines[0] == "3 Dask worker(s)"
    start_run(RunConfig(str(data), threads=1, gap=1e-8), tmp_path / "one")
    assert result_in(tmp_path / "run") == result_in(tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))


def test_no_scheduler(data, tmp_path, monkeypatch):  # noqa: F811
    pytest.importorskip("distributed", reason="needs the extra dask")
    monkeypatch.setattr(dask_run, "_PATIENCE", 0.5)
    with pytest.raises(StorageError, match=r"no Dask scheduler at tcp://127.0.0.1:9"):
        start_on_dask(RunConfig(str(data), cluster="dask://127.0.0.1:9"), tmp_path / "run", False, Silent())


@pytest.mark.repeats
def test_a_worker_without_the_program(data, tmp_path):  # noqa: F811
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with cluster_of(2) as cluster, distributed.Client(cluster, set_as_default=False) as client:

        def forget():
            import sys

            sys.modules.update(dict.fromkeys(("fastadmm", "fastadmm.version")))

        address = max(client.scheduler_info()["workers"])
        client.run(forget, workers=[address])
        with pytest.raises(ConfigError, match=rf"Dask worker {address} has no fastadmm; install it"):
            start_on_dask(config_for(cluster, data), tmp_path / "run", False, Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.repeats
def test_an_interrupt_ends_a_run_after_its_round(data, tmp_path):  # noqa: F811
    with cluster_of(2) as cluster:
        config = config_for(cluster, data)
        endless = ["--gap", 0, "--rounds", 100_000, "--cluster", config.cluster, "-o", "run"]
        with start("train", data, *endless, cwd=tmp_path) as done:
            wait_for(lambda: n_lines(tmp_path / "run" / "rounds.jsonl") >= 2, done)
            done.send_signal(signal.SIGINT)
            _, told = done.communicate(timeout=100)
    assert done.returncode == 130, told
    assert "Traceback" not in told
    result = result_in(tmp_path / "run")
    assert result["status"] == "interrupted"
    resume_run(tmp_path / "run", changes={"cluster": "none", "rounds": result["rounds"] + 1})


@pytest.mark.slow  # Dask gives a lost connection up after minutes
def test_a_lost_worker(data, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "3s")  # 30 s otherwise
    rounds = {"gap": 0.0, "rounds": 60, "checkpoint_rounds": 1}
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with cluster_of(3) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        killed = threading.Event()

        def kill(run):
            log = run / "rounds.jsonl"
            while not (log.exists() and len(log.read_text().splitlines()) >= 3):
                time.sleep(0.02)
            os.kill(max(worker.pid for worker in cluster.workers.values()), signal.SIGKILL)
            killed.set()

        for retry in (0, 1):
            run = tmp_path / f"run-{retry}"
            client.wait_for_workers(3)  # the one that was killed is started again
            threading.Thread(target=kill, args=(run,)).start()
            config = config_for(cluster, data, retry=retry, **rounds)
            notes = Notes()
            if retry == 0:
                with pytest.raises(StorageError, match=r"rank \d, .* is lost; go on with: fastadmm resume"):
                    start_on_dask(config, run, False, notes)
            else:
                start_on_dask(config, run, False, notes)
                assert any("starting again from the last checkpoint" in text for text in notes.lines)
            assert killed.wait(5)
            killed.clear()
    start_run(RunConfig(str(data), threads=1, **rounds), tmp_path / "one")
    np.testing.assert_array_equal(weights_in(run), weights_in(tmp_path / "one"))
