"""Kernels that hand their pieces to other threads: every piece once, the same bits for any number."""

import os
import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock
from fastadmm.engine.engine import Engine, _cores, default_threads
from fastadmm.engine.free_cores import FreeCores
from fastadmm.engine.process import BLAS
from fastadmm.engine.rows import NUMBA_THREADS
from fastadmm.engine.tree import even_ranges, halved
from fastadmm.kernels.pieces import COMPILED
from fastadmm.kernels.policy import kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config, get_num_threads, set_num_threads
from numba.core.compiler_lock import global_compiler_lock
from threadpoolctl import threadpool_info, threadpool_limits

from run_tools import python, refuses

pytestmark = pytest.mark.usefixtures("idle_machine")


@kernel
def count(out, start, stop):
    for i in range(start, stop):
        out[i] += 1.0


@kernel
def add_up(values, out, start, stop):
    for i in range(start, stop):
        out[0] += values[i]


@given(n=st.integers(1, 3000), pieces=st.integers(1, 40), threads=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_every_row_is_done_once(n, pieces, threads):
    out = np.zeros(n)
    with Engine(threads) as engine:
        engine.over_rows(count, even_ranges(n, pieces), out)
        engine.over_rows(count, even_ranges(n, pieces), out)
    assert (out == 2.0).all()


def test_sums_do_not_depend_on_who_adds():
    values = np.random.default_rng(0).normal(size=50_000)
    found = []
    for threads in (1, 2, 4):
        with Engine(threads) as engine:
            for _ in range(20):
                found.append(engine.sum_over_rows(add_up, halved(len(values), 16), (1,), values)[0])
    assert len(set(found)) == 1
    assert found[0] == pytest.approx(values.sum(), abs=1e-9)

    # Sums of matrices leave nothing behind.
    @kernel
    def squares(values, out, start, stop):
        for i in range(start, stop):
            out[i % 2, i % 3] += values[i] ** 2

    values = np.arange(3000.0)
    expected = np.zeros((2, 3))
    np.add.at(expected, (np.arange(3000) % 2, np.arange(3000) % 3), values**2)
    with Engine(2) as engine:
        found = engine.sum_over_rows(squares, halved(3000, 8), (200, 300), values)
        tracemalloc.start()
        for _ in range(5):
            engine.sum_over_rows(squares, halved(3000, 8), (200, 300), values)
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    np.testing.assert_allclose(found[:2, :3], expected, rtol=1e-12)
    assert left < 200 * 300 * 8


def test_callers_and_their_arguments():
    out, halves = np.zeros(10), np.zeros(10, dtype=np.float32)
    every_other = np.zeros(20)[::2]
    with Engine(1) as engine:
        for array in (out, halves, every_other, out):
            engine.over_rows(count, even_ranges(10, 3), array)
    assert (out == 2.0).all()
    assert (halves == 1.0).all()
    assert (every_other == 1.0).all()
    # A second caller does its job alone.
    out, ranges = np.zeros((4, 256)), even_ranges(256, 8)

    def call(row):
        with Engine(3) as engine:
            for _ in range(300):
                engine.over_rows(count, ranges, row)

    threads = [threading.Thread(target=call, args=(row,)) for row in out]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out == 300.0).all()
    # Rows inside a job of the pool.
    out = np.zeros((2, 20_000))
    with Engine(2) as engine:
        engine.map(lambda row: engine.over_rows(count, halved(20_000, 4), row), out)
    assert (out == 1.0).all()


@pytest.mark.skipif(not COMPILED, reason="no threads without the compiler")
def test_threads_of_numba_are_asked_for_and_the_limit_of_the_caller_stays():
    class Seen(Exception):
        pass

    def runner(share, *arguments):
        assert share
        assert get_num_threads() == min(2, config.NUMBA_NUM_THREADS)
        raise Seen

    before = get_num_threads()
    set_num_threads(1)
    try:
        refuses(Seen, "", NUMBA_THREADS.run, 2, runner)
        assert get_num_threads() == 1
    finally:
        set_num_threads(before)
    assert NUMBA_THREADS._busy.acquire(blocking=False)
    try:
        called = []
        NUMBA_THREADS.run(2, lambda share, *arguments: called.append((share, *arguments)), 5)
        assert called == [(0, 5)]
    finally:
        NUMBA_THREADS._busy.release()


#: One thread launches nothing; then all at once, and in a child, which GNU OpenMP would end.
LAYERS = """
import os, sys, threading
import numpy as np
from numba.np.ufunc import parallel
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import even_ranges
from fastadmm.engine.free_cores import FREE_CORES
from fastadmm.kernels.logistic import logistic
FREE_CORES._running = lambda: 0
rng = np.random.default_rng(0)
z, y, weight = rng.normal(size=70_000), np.ones(70_000), np.ones(70_000)

def work(n_threads):
    out = np.empty(70_000)
    with Engine(n_threads) as engine:
        for rows in (1_000, 70_000):
            engine.over_rows(logistic.evaluate, even_ranges(rows, 16), z, y, weight, (), out)
    found.append(out.tobytes())

found = []
work(1)
assert not parallel._is_initialized
threads = [threading.Thread(target=work, args=(2,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork() if hasattr(os, "fork") else None
if child == 0:
    work(2)
    os._exit(0 if len(set(found)) == 1 and len(found) == 6 else 1)
assert child is None or os.waitpid(child, 0)[1] == 0
assert len(set(found)) == 1 and len(found) == 5
"""


@pytest.mark.representatives(1)
@pytest.mark.skipif(not COMPILED, reason="no threads without the compiler")
@pytest.mark.parametrize("layer", ["default", "workqueue", "tbb", "no such layer"])
def test_whatever_layer_numba_has(layer):
    done = python(LAYERS, env={**os.environ, "NUMBA_THREADING_LAYER": layer})
    assert done.returncode == 0, done.stderr


class Clock:
    """Stands still but for what a test says."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("fastadmm.engine.free_cores.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def looks(clock, cores, path, running, n_threads, times, step=0.0011):
    """What is free after each of some looks."""
    path.write_text(f"0.1 0.2 0.3 {running}/99 12345\n")
    found = []
    for _ in range(times):
        clock.now += step
        found.append(cores.among(n_threads))
    return found


def test_threads_step_back_while_others_compute_and_come_again(clock, tmp_path):
    path = tmp_path / "loadavg"
    cores = FreeCores(path, cores=2)
    assert looks(clock, cores, path, 2, 2, 2) == [1, 1]  # the caller and another
    assert looks(clock, cores, path, 1, 2, 5) == [1, 1, 1, 2, 2]
    cores.share(2)
    assert looks(clock, cores, path, 2, 2, 5) == [2] * 5  # the second is ours, still awake
    assert looks(clock, cores, path, 3, 2, 4) == [2, 2, 1, 1]
    assert looks(clock, cores, path, 2, 2, 20) == [1] * 20
    assert looks(clock, cores, path, 1, 2, 1, step=1.0) == [2]  # long ago is no doubt
    assert looks(clock, cores, path, 2, 2, 1, step=1.0) == [1]
    assert looks(clock, cores, path, 1, 4, 1, step=1.0) == [4]  # more than there are cores, who wishes so


@pytest.mark.skipif(not COMPILED, reason="without the compiler threads of the pool do the jobs")
def test_threads_are_ours_after_a_long_job(clock, tmp_path, monkeypatch):
    path = tmp_path / "loadavg"
    cores = FreeCores(path, cores=2)
    monkeypatch.setattr("fastadmm.engine.rows.FREE_CORES", cores)

    def job(share):
        clock.now += 1.0

    NUMBA_THREADS.run(2, job)
    assert looks(clock, cores, path, 2, 2, 1) == [2]  # the second waits awake for another job


def test_many_cores_are_shared_out(clock, tmp_path):
    path = tmp_path / "loadavg"
    cores = FreeCores(path, cores=16)
    assert looks(clock, cores, path, 5, 16, 1) == [12]
    cores.share(12)
    assert looks(clock, cores, path, 16, 16, 5) == [12] * 5
    assert looks(clock, cores, path, 40, 4, 3)[-1] == 1
    assert looks(clock, cores, path, 9, 4, 1, step=1.0) == [4]


@pytest.mark.parametrize("text", [None, "", "0.1 0.2 0.3", "0.1 0.2 0.3 many/2 1"])
def test_without_the_system_s_word_all_cores_are_free(clock, tmp_path, text):
    path = tmp_path / "loadavg"
    if text is not None:
        path.write_text(text)
    assert FreeCores(path, cores=2).among(2) == 2


def test_without_a_free_core_a_job_is_the_caller_s(monkeypatch):
    monkeypatch.setattr("fastadmm.engine.engine.FREE_CORES.among", lambda n_threads: 1)
    with Engine(2) as engine:
        assert engine.map(lambda k: threading.get_ident(), range(3)) == [threading.get_ident()] * 3
        assert engine._pool is None


@pytest.mark.parametrize(("data", "ones"), [([1.0, 1.0], True), ([1.0, 2.0], False), ([2.0, 1.0], False)])
def test_ones_are_recognised(data, ones):
    assert CSRBlock(sp.csr_array((data, [0, 1], [0, 1, 2]), shape=(2, 2))).all_ones is ones
    assert not CSRBlock(sp.csr_array((2, 2))).all_ones


def in_a_fork(work):
    """Exit code of a child that does some work, killed after twenty seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("lock", [BLAS.lock, global_compiler_lock], ids=["limit", "compiler"])
def test_a_fork_waits_for_locks_of_other_threads(lock):
    held, was = threading.Event(), blas_threads()

    def hold():
        with lock:
            held.set()
            time.sleep(0.2)

    def work():
        with Engine(2) as engine, engine.limited(), lock:
            assert engine.map(lambda k: k * k, range(4)) == [0, 1, 4, 9]
        assert blas_threads() == was

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_a_fork(work) == 0
    thread.join()


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_limits_of_other_threads_end_in_a_fork():
    before, inside, done = blas_threads(), threading.Event(), threading.Event()

    def hold():
        with Engine(1) as engine, engine.limited():
            inside.set()
            done.wait()

    def work():
        with Engine(1) as engine, engine.limited():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    assert in_a_fork(work) == 0
    done.set()
    thread.join()
    assert blas_threads() == before


def test_any_thread_limits_and_another_restores():
    """Since threadpoolctl 3.8, OpenBLAS only listens to the thread that limited it first."""
    before = blas_threads()
    with threadpool_limits(2, user_api="blas"):
        several = blas_threads()  # a library that another thread has limited does not listen
        first, inside, over = Engine(1).limited(), [], threading.Event()

        def work():
            with Engine(1).limited():
                first_is_in.set()
                over.wait()

        first_is_in = threading.Event()
        thread = threading.Thread(target=work)
        thread.start()
        first_is_in.wait()
        inside.append(blas_threads())
        with first:
            over.set()
            thread.join()
            inside.append(blas_threads())
        assert [set(found) for found in inside] == [{1}, {1}]
        assert blas_threads() == several
    assert blas_threads() == before


@pytest.mark.parametrize("place", ["acquire", "_release"])
def test_an_interrupt_restores_the_limit(place, monkeypatch):
    before, honest, once = blas_threads(), getattr(BLAS, place), []

    def interrupted(holder):
        if place == "acquire":
            honest(holder)
        if not once:
            once.append(holder)
            raise KeyboardInterrupt
        if place == "_release":
            honest(holder)

    monkeypatch.setattr(BLAS, place, interrupted)
    with pytest.raises(KeyboardInterrupt), Engine(1) as engine, engine.limited():
        pass
    assert blas_threads() == before


def test_threads_by_default(monkeypatch):
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    cores = default_threads()
    assert Engine().n_threads == cores >= 1
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert Engine().n_threads == 1
            assert Engine(3).n_threads == 3
    for text in ("", "many", "0", "9999"):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert Engine().n_threads == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "1,4")
    assert Engine().n_threads == 1


def test_threads_are_the_cores_that_joblib_counts(monkeypatch):
    """It knows affinity and the quota of the process's group."""
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 6)
    _cores.cache_clear()
    try:
        assert default_threads() == 6
        assert default_threads(4) == 1
    finally:
        _cores.cache_clear()
