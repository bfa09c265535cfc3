"""`fastadmm train --cluster`: each worker reads its rows of a partition; the model is that of one process."""

import json
import re
import shutil
import sys
import threading
from dataclasses import replace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.errors import FastadmmError, FormatError
from fastadmm.method import method as stall_watch
from fastadmm.runs import train as shared_runs
from fastadmm.runs.train import follow_run, resume_run, start_run
from fastadmm.settings.run import RunConfig
from fastadmm.store.partition import create_partition

import run_tools
from shards import cut_partition
from workers import mpi_command, on_workers

N = 20_011


def written(place, classes, n=N):
    """A partition of three parties: dense, sparse, and dense that is compressed in memory."""
    rng = np.random.default_rng(0)
    dense, few = rng.normal(size=(n, 3)), (rng.random((n, 4)) < 0.2) * rng.normal(size=(n, 4))
    sparse = sp.random(n, 10, density=0.2, format="csr", random_state=1)
    z = dense @ rng.normal(size=3) + few @ rng.normal(size=4) + sparse @ rng.normal(size=10)
    z += rng.logistic(size=n)
    with create_partition(place, task="classification") as partition:
        partition.party("bank", kind="dense").append(dense)
        partition.party("shop", n_features=10).append(sparse)
        partition.party("few", kind="dense", dtype="float32").append(few)
        y = (z > 0.0) * 1.0 + (z > 2.0) * (len(classes) > 2)
        partition.labels(classes=classes).append(y, sample_weight=rng.uniform(0.5, 2.0, n))
    return place


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("cluster") / "data.parts", ("no", "yes"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    return written(tmp_path_factory.mktemp("cluster") / "classes.parts", ("no", "perhaps", "yes"))


def shared(config, out, workers):
    """What rank 0 returns or every rank raises."""

    def work(comm):
        return follow_run(comm) if comm.rank else start_run(config, out, comm=comm)

    return on_workers(workers, work)


def resumed(run, workers, **changes):
    if workers == 1:
        return [resume_run(run, changes=changes)]

    def work(comm):
        return follow_run(comm) if comm.rank else resume_run(run, changes=changes, comm=comm)

    return on_workers(workers, work)


def weights_in(run):
    found = []
    for name in ("bank", "shop", "few"):
        with h5py.File(run / "model" / f"{name}.h5") as file:
            found.append(np.ravel(file["weights"][:]))
    with h5py.File(run / "model" / "coordinator.h5") as file:
        found += [np.ravel(file[key][()]) for key in file if isinstance(file[key], h5py.Dataset)]
    return np.concatenate(found)


def result_in(run):
    result = json.loads((run / "result.json").read_text())
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_model_is_that_of_one_process(data, tmp_path):
    config = RunConfig(str(data), threads=1, gap=1e-8, class_weight="balanced")
    start_run(config, tmp_path / "one")
    for workers in (2, 3):
        found = shared(config, tmp_path / str(workers), workers)
        assert found[1:] == ["converged"] * (workers - 1)
        assert result_in(tmp_path / str(workers)) == result_in(tmp_path / "one")
        np.testing.assert_array_equal(weights_in(tmp_path / str(workers)), weights_in(tmp_path / "one"))


def test_shards_are_read_as_the_whole(data, tmp_path):
    cut = tmp_path / "cut.parts"
    cut_partition(data, cut, 3)
    shared(RunConfig(str(cut), threads=1, gap=1e-8), tmp_path / "run", 2)
    start_run(RunConfig(str(data), threads=1, gap=1e-8), tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))
    shutil.move(cut / "shard-2", tmp_path / "shard-2")

    def refused():
        first, second = shared(RunConfig(str(cut), threads=1), tmp_path / "no", 2)
        assert (type(first), str(first)) == (type(second), str(second))
        assert isinstance(first, FastadmmError)
        assert not (tmp_path / "no").exists()
        return str(first)

    assert "shard-2: no such directory" in refused()
    shutil.copytree(cut / "shard-1", cut / "shard-2")
    assert "the shards overlap" in refused()
    shutil.rmtree(cut / "shard-1")
    shutil.copytree(tmp_path / "shard-2", cut / "shard-1")
    assert "the shards leave rows out" in refused()


def test_workers_read_their_own_rows_only(data, tmp_path, monkeypatch):
    from fastadmm.store import elements

    read, real = [], elements.read_block

    def counted(dataset, start, stop):
        read.append((dataset.name, stop - start))
        return real(dataset, start, stop)

    monkeypatch.setattr(elements, "read_block", counted)
    shared(RunConfig(str(data), threads=1, rounds=1), tmp_path / "run", 4)
    for name in ("/X", "/X/data"):
        rows = [count for key, count in read if key == name]
        assert max(rows) < 0.3 * sum(rows) / (2 if name == "/X" else 1)
        assert len(rows) == (8 if name == "/X" else 4)
    assert sum(count for key, count in read if key == "/X") == 2 * N


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "hinge", "constraint": "ball:0.5"},
        {"directions": "both"},
        {"loss": "multinomial", "directions": "one"},
        {"regularizer": "l1"},
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_other_problems_go_on_with_other_workers(settings, data, classes, tmp_path, monkeypatch):
    monkeypatch.setattr(stall_watch, "PATIENCE", 2)  # steps of sharing, too
    monkeypatch.setattr(stall_watch, "_FALLEN", 0.0)
    place = classes if settings.get("loss") == "multinomial" else data
    first = 4 - ("directions" in settings)  # before it is certified
    config = RunConfig(str(place), threads=1, gap=1e-12, rounds=first, **settings)
    start_run(config, tmp_path / "one")
    shared(config, tmp_path / "four", 4)
    resumed(tmp_path / "one", 2, rounds=2 * first - 1)
    resumed(tmp_path / "four", 1, rounds=first + 1)
    resumed(tmp_path / "four", 3, rounds=2 * first - 1)
    start_run(replace(config, rounds=2 * first - 1), tmp_path / "whole")
    for run in ("one", "four"):
        assert result_in(tmp_path / run) == result_in(tmp_path / "whole")
        np.testing.assert_array_equal(weights_in(tmp_path / run), weights_in(tmp_path / "whole"))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("regularizer", ["l1", "l2"])
def test_a_wide_run_goes_on_with_one_worker_alone(regularizer, tmp_path):
    """Rows so few are one leaf of every sum: a second worker is refused, and the run still goes on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 150))
    z = X[:, 0] - X[:, 100] + 0.3 * rng.normal(size=60)
    run_tools.write_blocks(tmp_path / "wide.parts", [X[:, :80], X[:, 80:]], (z > 0.0) * 1.0)
    config = RunConfig(
        str(tmp_path / "wide.parts"), threads=1, gap=1e-6, rounds=2, regularizer=regularizer, lambda_=1e-2
    )
    start_run(config, tmp_path / "run")
    for found in resumed(tmp_path / "run", 2, rounds=200):
        assert isinstance(found, FastadmmError)
        assert "start at most 1" in str(found)
    assert resume_run(tmp_path / "run", changes={"rounds": 200})["status"] == "converged"
    start_run(replace(config, rounds=200), tmp_path / "whole")
    assert result_in(tmp_path / "run") == result_in(tmp_path / "whole")


def metrics_in(run):
    return [json.loads(line)["test"] for line in (run / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("loss", "scheme"), [("logistic", "subspace"), ("multinomial", "subspace"), ("hinge", "proximal")]
)
def test_test_rows(data, classes, tmp_path, loss, scheme):
    names = ("no", "perhaps", "yes") if loss == "multinomial" else ("no", "yes")
    test = written(tmp_path / "test.parts", names, n=701)  # one leaf: less than workers
    place = classes if loss == "multinomial" else data
    config = RunConfig(str(place), test=str(test), threads=1, loss=loss, scheme=scheme, gap=0.0, rounds=3)
    if loss == "hinge":  # one process would take an interior point method
        config = replace(config, history=64)
    start_run(replace(config, rounds=5), tmp_path / "one")
    shared(config, tmp_path / "run", 2)
    resumed(tmp_path / "run", 3, rounds=4)
    resumed(tmp_path / "run", 1, rounds=5)
    found = metrics_in(tmp_path / "run")
    assert found == metrics_in(tmp_path / "one")
    assert len(found) == 5
    assert all(found)
    assert result_in(tmp_path / "run") == result_in(tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))


def test_test_rows_that_do_not_fit_the_data(data, classes, tmp_path):
    config = RunConfig(str(data), test=str(classes), threads=1)
    with pytest.raises(FastadmmError) as alone:
        start_run(config, tmp_path / "one")
    for error in shared(config, tmp_path / "run", 2):
        assert (type(error), str(error)) == (type(alone.value), str(alone.value))
    assert not (tmp_path / "run").exists()


@pytest.mark.repeats
def test_damaged_rows_are_not_gone_on_from(data, tmp_path):
    config = RunConfig(str(data), threads=1, gap=1e-8, rounds=2)
    shared(config, tmp_path / "run", 2)
    (newest,) = (tmp_path / "run" / "checkpoints").glob("round-*")
    with open(newest / "rows-00001.h5", "r+b") as file:
        file.seek(-100, 2)
        file.write(b"x")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for error in resumed(tmp_path / "run", 2, rounds=9):
        assert "no checkpoint can be used" in str(error)
    with pytest.raises(FormatError, match="no checkpoint can be used"):
        resumed(tmp_path / "copy", 1, rounds=9)


def test_the_clock_is_rank_0s(data, tmp_path):
    found = shared(RunConfig(str(data), threads=1, gap=0.0, time=1e-3), tmp_path / "run", 2)
    assert found[0]["status"] == found[1] == "time_limit"


def test_bad_input_is_a_line_on_every_worker(data, tmp_path, monkeypatch):
    config = RunConfig(str(data), threads=1)

    def refused(config, workers=2):
        found = shared(config, tmp_path / "refused", workers)
        assert all(isinstance(error, FastadmmError) for error in found), found
        assert len({(type(error), str(error)) for error in found}) == 1
        assert not (tmp_path / "refused").exists()
        return str(found[0])

    assert "8 workers for 20011 rows, which make 4 leaf(s)" in refused(config, 8)
    with create_partition(tmp_path / "rows.parts", task="classification") as partition:
        partition.party("bank", kind="dense").append(np.arange(2.0 * N).reshape(N, 2), ids=np.arange(N) + 1)
        partition.labels(classes=("no", "yes")).append(np.arange(N) % 2, ids=np.arange(N) + 1)
    real = shared_runs.load.open_run
    for place, told in {
        "nowhere.parts": "nowhere.parts: no such directory",
        "rows.parts": "the list of rows is not what rank 0 has; start all workers alike, on the same files",
    }.items():
        there = str(tmp_path / place)  # what rank 1 finds under the name of rank 0's data

        def opened(config, there=there):
            is_rank_1 = threading.current_thread().name == "rank 1"
            return real(replace(config, data=there) if is_rank_1 else config)

        with monkeypatch.context() as patched:
            patched.setattr(shared_runs.load, "open_run", opened)
            assert (line := refused(config)).startswith("rank 1: ")
            assert told in line
    assert "scheme 'sharing' cannot be shared by rows yet" in refused(replace(config, scheme="sharing"))
    assert "key 'validation': early stopping" in refused(replace(config, validation=0.1))
    told = refused(replace(config, memory="200MB"))
    assert re.match(
        r"memory: 200\.0 MB is too little: training .* raise the limit or start more workers$", told
    )


def test_under_mpiexec(data, tmp_path):
    program = [sys.executable, "-c", "from fastadmm.cli.app import main; main()", "train"]
    done = mpi_command(2, [*program, str(data), "--cluster", "mpi", "-o", "run"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("certified after") == 1
    assert done.stderr.count("3 parties") == 1
    start_run(RunConfig(str(data), threads=1), tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["train", "DATA", "--lambda", "-1"], 5, "command line: key 'lambda': -1.0 must be positive"),
        (["resume", "nowhere"], 6, "nowhere: no run.toml: not a run"),
        (["train", "nowhere", "--dry-run"], 6, "nowhere: no such directory"),
    ],
)
def test_what_is_said_before_a_run_is_said_once(data, tmp_path, command, code, told):
    program = [sys.executable, "-c", "from fastadmm.cli.app import main; main()", "--cluster", "mpi"]
    program[3:3] = [str(data) if word == "DATA" else word for word in command]
    done = mpi_command(2, program, cwd=tmp_path)
    assert done.returncode == code
    assert re.fullmatch(rf"fastadmm: error: .*{re.escape(told)}.*\n", done.stderr)


MAIN = [sys.executable, "-c", "from fastadmm.cli.app import main; main()"]


@pytest.mark.repeats
def test_a_dry_run_is_said_once(data, tmp_path):
    (tmp_path / "mpi.toml").write_text(f'data = "{data}"\ncluster = "mpi"\n')
    told = mpi_command(2, [*MAIN, "train", "--config", "mpi.toml", "--dry-run"], cwd=tmp_path).stdout
    assert told.count("the plan of one process with all rows") == 1


#: Where launchers tell a process its number, and how many there are.
LAUNCHERS = [
    *(("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
]


def test_processes_that_would_each_train_by_themselves_are_one_line(data, tmp_path, monkeypatch, capsys):
    def ended(*command, rank=0, size="4", names=LAUNCHERS[0]):
        with monkeypatch.context() as patched:
            patched.setenv(names[0], str(rank))
            patched.setenv(names[1], size)
            code = run_tools.run(*command)
        return code, capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    train = ("train", data, "--rounds", 1, "--gap", 0, "--threads", 1, "--quiet")
    told = (
        "fastadmm: error: cluster: 4 processes were started together, and each would train by itself: add "
        "--cluster mpi, or --cluster none if that is meant\n"
    )
    for names in LAUNCHERS:
        assert ended(*train, names=names) == (5, told)
        assert ended(*train, rank=3, names=names) == (5, "")
    assert ended(*train, "--dry-run", rank=3) == (5, "")
    assert not (tmp_path / "run").exists()
    assert ended(*train, "--cluster", "none")[0] == 7
    assert ended("resume", "run", "--rounds", 2) == (5, told)
    assert ended("resume", "run", "--rounds", 2, rank=1) == (5, "")
    assert ended("resume", "run", "--rounds", 2, size="1")[0] == 7


@pytest.mark.repeats
def test_mpiexec_without_cluster_mpi(data, tmp_path):
    done = mpi_command(2, [*MAIN, "train", str(data)], cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr.count("fastadmm: error:") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.repeats
def test_a_killed_rank_ends_the_job_and_the_run_goes_on(data, tmp_path):
    """On another number of ranks, and to the same bits."""
    config = RunConfig(str(data), threads=1, gap=0.0, rounds=60, checkpoint_rounds=2)
    start_run(config, tmp_path / "whole")
    (tmp_path / "own.toml").write_text(
        f'data = "{data}"\nthreads = 1\ngap = 0.0\nrounds = 60\ncheckpoint_rounds = 2\ncluster = "mpi"\n'
    )
    killer = (  # rank 1 ends itself without a word, in the middle of a round
        "import os, signal, sys\n"
        "from fastadmm.cluster.solver import SharedSolver\n"
        "from fastadmm.cluster.comm import MpiComm\n"
        "real = MpiComm.swap\n"
        "def swap(self, v, other):\n"
        "    self.count = getattr(self, 'count', 0) + 1\n"
        "    if self.rank == 1 and self.count == 120:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(self, v, other)\n"
        "MpiComm.swap = swap\n"
        "from fastadmm.cli.app import main; main()"
    )
    done = mpi_command(2, [sys.executable, "-c", killer, "train", "--config", "own.toml", "-q"], cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "fastadmm:" not in done.stderr  # mpiexec says what happened
    assert list((tmp_path / "run" / "checkpoints").glob("round-*"))
    assert not (tmp_path / "run" / "result.json").exists()
    done = mpi_command(4, [*MAIN, "resume", "run", "-q"], cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert result_in(tmp_path / "run") == result_in(tmp_path / "whole")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "whole"))
