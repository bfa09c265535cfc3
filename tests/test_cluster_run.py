"""`fastadmm train --cluster`: workers read their rows of a partition; the model is that of one process."""

import json
import re
import shutil
import sys
import threading
from dataclasses import replace
from itertools import pairwise

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.cluster.comm import RowEngine, add_nodes, nodes_of
from fastadmm.engine.spilled import SpilledRows
from fastadmm.engine.tree import node_range
from fastadmm.errors import ConfigError, FastadmmError, FormatError
from fastadmm.method import method as stall_watch
from fastadmm.runs import train as shared_runs
from fastadmm.runs.plan import make_plan
from fastadmm.runs.train import follow_run, resume_run, start_run
from fastadmm.settings.run import RunConfig
from fastadmm.store import elements
from fastadmm.store.partition import create_partition, open_partition

import run_tools
from run_tools import Notes, refuses
from shards import cut_partition
from workers import ThreadComm, mpi_command, on_workers, rows_of

N = 20_011  # four leaves
MAIN = [sys.executable, "-c", "from fastadmm.cli.app import main; main()"]


#: Classes of the targets of each partition; none where they are numbers.
KINDS = {"two": ("no", "yes"), "three": ("no", "perhaps", "yes"), "value": None, "far": None, "count": None}


def written(place, kind, n=N):
    """A partition of three parties: dense, sparse, and dense that is compressed in memory."""
    rng, classes = np.random.default_rng(0), KINDS[kind]
    dense, few = rng.normal(size=(n, 3)), (rng.random((n, 4)) < 0.2) * rng.normal(size=(n, 4))
    sparse = sp.random(n, 10, density=0.2, format="csr", random_state=1)
    z = dense @ rng.normal(size=3) + few @ rng.normal(size=4) + sparse @ rng.normal(size=10)
    z += rng.logistic(size=n)
    with create_partition(place, task="classification" if classes else "regression") as partition:
        partition.party("bank", kind="dense").append(dense + 1e5 * (kind == "far"))
        partition.party("shop", n_features=10).append(sparse)
        partition.party("few", kind="dense", dtype="float32").append(few)
        y = np.floor(np.abs(z)) if kind == "count" else z
        y = (z > 0.0) * 1.0 + (z > 2.0) * (kind == "three") if classes else y
        weight = rng.uniform(0.5, 2.0, n)
        offset = None if kind == "three" else 0.1 * rng.normal(size=n)
        partition.labels(classes=classes).append(y, sample_weight=weight, offset=offset)
    return place


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    home = tmp_path_factory.mktemp("cluster")
    return {kind: written(home / f"{kind}.parts", kind) for kind in KINDS}


@pytest.fixture(scope="module")
def data(places):
    return places["two"]


@pytest.fixture(scope="module")
def classes(places):
    return places["three"]


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


#: By data, settings of runs; one that stalls takes steps of sharing.
PROBLEMS = [
    *(("two", {"gap": 1e-8, "class_weight": "balanced"}), ("count", {"loss": "poisson"})),
    *(("value", {"loss": "squared"}), ("far", {"loss": "squared", "regularizer": "none", "rounds": 30})),
    *(("two", {"loss": "hinge"}), ("value", {"loss": "quantile"})),
    *(("two", {"regularizer": "l1"}), ("value", {"loss": "squared", "regularizer": "group_lasso"})),
    *(("two", {"constraint": "box:-0.1,0.1"}), ("value", {"loss": "huber", "constraint": "ball:0.5"})),
    *(("two", {"loss": "hinge", "regularizer": "l1"}), ("three", {"loss": "multinomial"})),
    ("three", {"loss": "multinomial", "regularizer": "l1"}),
    ("three", {"loss": "multinomial", "constraint": "ball:0.5"}),
]


@pytest.mark.representatives(6)
@pytest.mark.parametrize("stalled", [False, True])
@pytest.mark.parametrize(("kind", "settings"), PROBLEMS, ids=str)
def test_a_model_is_that_of_one_process(places, tmp_path, kind, settings, stalled, monkeypatch):
    if stalled:
        monkeypatch.setattr(stall_watch, "PATIENCE", 2)
        monkeypatch.setattr(stall_watch, "_FALLEN", 0.0)
    config = RunConfig(str(places[kind]), threads=1, **{"rounds": 8, "lambda_": 1e-3, **settings})
    start_run(config, tmp_path / "one")
    for workers in (2, 3, 4):
        found = shared(config, tmp_path / str(workers), workers)
        assert found[1:] == [found[0]["status"]] * (workers - 1)
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


def metrics_in(run):
    return [json.loads(line)["test"] for line in (run / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("loss", "scheme"), [("logistic", "subspace"), ("multinomial", "subspace"), ("hinge", "proximal")]
)
def test_test_rows(data, classes, tmp_path, loss, scheme):
    test = written(tmp_path / "test.parts", "three" if loss == "multinomial" else "two", n=701)  # one leaf
    place = classes if loss == "multinomial" else data
    config = RunConfig(str(place), test=str(test), threads=1, loss=loss, scheme=scheme, gap=0.0, rounds=3)
    if loss == "hinge":  # one process would take an interior point method
        config = replace(config, history=64)
    start_run(replace(config, rounds=5), tmp_path / "one")
    shared(config, tmp_path / "run", 2)
    resumed(tmp_path / "run", 3, rounds=4)
    resumed(tmp_path / "run", 1, rounds=5)
    start_run(config, tmp_path / "alone")
    resumed(tmp_path / "alone", 2, rounds=5)
    assert result_in(tmp_path / "alone") == result_in(tmp_path / "one")
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
    refuses(FormatError, "no checkpoint can be used", resumed, tmp_path / "copy", 1, rounds=9)


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
    for scheme in ("sharing", "pooled"):
        assert f"scheme '{scheme}' cannot be shared by rows yet" in refused(replace(config, scheme=scheme))
    assert "key 'validation': early stopping" in refused(replace(config, validation=0.1))
    told = refused(replace(config, memory="200MB"))
    assert re.match(
        r"memory: 200\.0 MB is too little: training .* raise the limit or start more workers$", told
    )


def test_under_mpiexec(data, tmp_path):
    done = mpi_command(2, [*MAIN, "train", str(data), "--cluster", "mpi", "-o", "run"], cwd=tmp_path)
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
    words = [str(data) if word == "DATA" else word for word in command]
    done = mpi_command(2, [*MAIN, *words, "--cluster", "mpi"], cwd=tmp_path)
    assert done.returncode == code
    assert re.fullmatch(rf"fastadmm: error: .*{re.escape(told)}.*\n", done.stderr)


@pytest.mark.repeats
def test_a_dry_run_is_said_once(data, tmp_path):
    (tmp_path / "mpi.toml").write_text(f'data = "{data}"\ncluster = "mpi"\n')
    told = mpi_command(2, [*MAIN, "train", "--config", "mpi.toml", "--dry-run"], cwd=tmp_path).stdout
    assert told.count("memory: about") == 1


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


@pytest.mark.repeats
def test_products_of_old_processors_depend_on_addresses(data, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")  # nothing elsewhere
    train = [*MAIN, "train", str(data), "--threads", "1", "--rounds", "8", "--cluster", "mpi", "-q", "-o"]
    for workers in (1, 4):
        done = mpi_command(workers, [*train, str(workers)], cwd=tmp_path)
        assert done.returncode in (0, 7), done.stderr
    np.testing.assert_array_equal(weights_in(tmp_path / "1"), weights_in(tmp_path / "4"))


def test_nodes_cover_the_rows():
    for size in (1, 2, 3, 4, 5, 7, 8):
        assert all(nodes_of(33_003, rank, size) for rank in range(size))  # none without rows
        nodes = [node for rank in range(size) for node in nodes_of(10**6, rank, size)]
        ends = [node_range(10**6, *node) for node in nodes]
        assert (ends[0][0], ends[-1][1]) == (0, 10**6)
        assert all(a[1] == b[0] for a, b in pairwise(ends))
        assert add_nodes({node: np.array([b - a]) for node, (a, b) in zip(nodes, ends)}) == 10**6
    refuses(ConfigError, "9 workers for 33003 rows, which make 8 leaf", nodes_of, 33_003, 0, 9)
    with pytest.raises(ValueError, match="are not those of rank 0"):
        RowEngine(ThreadComm(0, 2, None, None), N).leaves(N)


def limit_of(config, workers, outputs=1):
    """Memory of a worker that has room for all but half of its blocks."""
    parties = open_partition(config.data).parties
    plans = []
    for rank in range(workers):
        rows = rows_of(N, rank, workers)
        own = [party.of_rows(*rows) for party in parties]
        plans.append(make_plan(own, [], rows[1] - rows[0], config, outputs, n_threads=config.threads or 2))
    return str(max(plan.total - plan.data // 2 for plan in plans))


@pytest.mark.usefixtures("small_tiles")
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
    assert any(line.endswith(", streamed") for line in notes.lines)
    assert result_in(tmp_path / "run") == result_in(tmp_path / "one")
    np.testing.assert_array_equal(weights_in(tmp_path / "run"), weights_in(tmp_path / "one"))


@pytest.mark.usefixtures("small_tiles")
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


@pytest.mark.usefixtures("small_tiles")
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
