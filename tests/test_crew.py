"""Kernels that hand their pieces to other threads: every piece once, the same bits for any number."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock
from fastadmm.engine.crew import Crew
from fastadmm.engine.engine import _BLAS, Engine, default_threads, even_ranges, fine_ranges
from fastadmm.engine.parallel_rows import ParallelRows
from fastadmm.engine.row_threads import address_of
from fastadmm.kernels.crew import board_size, over_rows, serve
from fastadmm.kernels.pieces import COMPILED
from fastadmm.kernels.policy import kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.compiler_lock import global_compiler_lock
from threadpoolctl import threadpool_info


@kernel
def count(out, start, stop):
    for i in range(start, stop):
        out[i] += 1.0


@kernel
def add_up(values, out, start, stop):
    for i in range(start, stop):
        out[0] += values[i]


@pytest.fixture(params=[Crew, ParallelRows])
def row_threads(request, monkeypatch):
    """Both ways to share pieces."""
    monkeypatch.setattr(Engine, "row_threads", request.param)
    return request.param


def bounds_of(ranges):
    return np.array([ranges[0][0], *(stop for _, stop in ranges)])


@pytest.mark.parametrize("kind", [Crew, ParallelRows])
@given(n=st.integers(1, 3000), pieces=st.integers(1, 40), threads=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_every_row_is_done_once(kind, n, pieces, threads):
    out = np.zeros(n)
    with Engine(threads) as engine:
        engine.row_threads = kind
        engine.over_rows(count, even_ranges(n, pieces), out)
        engine.over_rows(count, even_ranges(n, pieces), out)
    assert (out == 2.0).all()


def test_sums_do_not_depend_on_who_adds():
    values = np.random.default_rng(0).normal(size=50_000)
    found = []
    for threads, kind in itertools.product((1, 2, 4), (Crew, ParallelRows)):
        with Engine(threads) as engine:
            engine.row_threads = kind
            for _ in range(20):
                found.append(engine.sum_over_rows(add_up, even_ranges(len(values), 13), (1,), values)[0])
    assert len(set(found)) == 1
    assert found[0] == pytest.approx(values.sum(), abs=1e-9)


@pytest.mark.usefixtures("row_threads")
def test_sums_of_matrices_leave_nothing_behind():
    @kernel
    def squares(values, out, start, stop):
        for i in range(start, stop):
            out[i % 2, i % 3] += values[i] ** 2

    values = np.arange(3000.0)
    expected = np.zeros((2, 3))
    np.add.at(expected, (np.arange(3000) % 2, np.arange(3000) % 3), values**2)
    with Engine(2) as engine:
        found = engine.sum_over_rows(squares, even_ranges(3000, 5), (200, 300), values)
        tracemalloc.start()
        for _ in range(5):
            engine.sum_over_rows(squares, even_ranges(3000, 5), (200, 300), values)
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    np.testing.assert_allclose(found[:2, :3], expected, rtol=1e-12)
    assert left < 200 * 300 * 8


def test_kinds_of_arguments_have_code_of_their_own():
    out, halves = np.zeros(10), np.zeros(10, dtype=np.float32)
    every_other = np.zeros(20)[::2]
    with Engine(1) as engine:
        for array in (out, halves, every_other, out):
            engine.over_rows(count, even_ranges(10, 3), array)
    assert (out == 2.0).all()
    assert (halves == 1.0).all()
    assert (every_other == 1.0).all()


def test_many_short_jobs_with_more_threads_than_cores(row_threads):
    out, jobs = np.zeros(64), 3000 if row_threads is Crew else 30  # the other waits for every thread
    with Engine(6) as engine:
        for _ in range(jobs):
            engine.over_rows(count, even_ranges(64, 16), out)
    assert (out == jobs).all()


@pytest.mark.skipif(not (COMPILED and hasattr(os, "fork")), reason="no helpers, or no forked processes")
def test_a_forked_process_is_not_left_without_threads(row_threads):
    out = np.zeros(64)
    with Engine(2) as engine:
        engine.over_rows(count, even_ranges(64, 4), out)
        if row_threads is Crew:
            engine._helpers.board[16] = 1  # as if a helper had been at work
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            engine.over_rows(count, even_ranges(64, 4), out)
            os._exit(0 if (out == 2.0).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
        if row_threads is Crew:
            engine._helpers.board[16] = 0


@pytest.mark.skipif(not COMPILED, reason="no helpers without the compiler")
def test_helpers_that_sleep_wake_up_again():
    out = np.zeros(1000)
    with Engine(2) as engine:
        for _ in range(3):
            engine.over_rows(count, even_ranges(1000, 4), out)
            time.sleep(0.05)
            deadline = time.monotonic() + 20.0
            while engine._helpers._asleep < 1:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        before = out.copy()
        engine.over_rows(count, even_ranges(1000, 4), out)
    assert (out == before + 1.0).all()


@pytest.mark.skipif(not COMPILED, reason="no addresses without the compiler")
def test_a_second_caller_does_its_job_alone(row_threads):
    shared, out = row_threads(3), np.zeros((4, 256))
    bounds = bounds_of(even_ranges(256, 8))

    def call(row):
        for _ in range(300):
            shared.over_rows(address_of(count, (row, 0, 0)), bounds, row)

    threads = [threading.Thread(target=call, args=(row,)) for row in out]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    assert (out == 300.0).all()


@pytest.mark.skipif(not COMPILED, reason="no addresses without the compiler")
def test_a_board_without_helpers_and_one_with_nobody_there():
    out = np.zeros(100)
    address = address_of(count, (out, 0, 0))
    over_rows(np.empty(0, dtype=np.int64), address, bounds_of(even_ranges(100, 7)), out)
    over_rows(np.zeros(board_size(5), dtype=np.int64), address, bounds_of(even_ranges(100, 7)), out)
    assert (out == 2.0).all()


@pytest.mark.skipif(not COMPILED, reason="no helpers without the compiler")
def test_serve_returns_when_nothing_comes():
    serve(np.zeros(board_size(2), dtype=np.int64), 1, 10)


def test_helpers_end_at_once():
    crew = Crew(4)
    begin = time.perf_counter()
    crew.close()
    assert time.perf_counter() - begin < 5.0
    assert not any(thread.is_alive() for thread in crew._threads)


@pytest.mark.usefixtures("row_threads")
def test_no_helpers_inside_a_job_of_the_pool():
    out = np.zeros((2, 20_000))
    with Engine(2) as engine:
        engine.map(lambda row: engine.over_rows(count, fine_ranges(20_000), row), out)
        assert engine._helpers is None
    assert (out == 1.0).all()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("indices", [np.uint16, np.uint32])
def test_patterns_are_products_with_ones_to_the_bit(indices):
    rng = np.random.default_rng(3)
    n, d = 20_000, 30
    matrix = sp.csr_array((rng.random((n, d)) < 0.2) * 1.0)
    weight = rng.random(n)

    def block():
        arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(indices), matrix.data.copy()
        return CSRBlock.of_sorted(*arrays, d)

    found = []
    for ones in (True, False):
        for threads in (1, 3):
            own = block()
            assert own.all_ones
            own.__dict__["all_ones"] = ones
            with Engine(threads) as engine:
                x = np.linspace(-1.0, 1.0, d)
                found.append(
                    (own.product(x, engine), own.transposed_product(weight, engine), own.gram(engine, weight))
                )
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)
    dense = matrix.toarray()
    np.testing.assert_allclose(found[0][0], dense @ np.linspace(-1.0, 1.0, d), atol=1e-12)
    np.testing.assert_allclose(found[0][1], weight @ dense, rtol=1e-12)
    np.testing.assert_allclose(found[0][2], dense.T * weight @ dense, rtol=1e-12)


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
@pytest.mark.parametrize("lock", [_BLAS.lock, global_compiler_lock], ids=["limit", "compiler"])
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


@pytest.mark.parametrize("place", ["acquire", "_release"])
def test_an_interrupt_restores_the_limit(place, monkeypatch):
    before, honest, once = blas_threads(), getattr(_BLAS, place), []

    def interrupted(holder):
        if place == "acquire":
            honest(holder)
        if not once:
            once.append(holder)
            raise KeyboardInterrupt
        if place == "_release":
            honest(holder)

    monkeypatch.setattr(_BLAS, place, interrupted)
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
