"""Jobs of several parties in one call: every piece once, to the bit what each job gives alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import as_block
from fastadmm.blocks.weighted import WeightedBlock
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import NUMBA_THREADS
from fastadmm.engine.tree import even_ranges
from fastadmm.kernels.pieces import COMPILED
from fastadmm.kernels.policy import kernel
from fastadmm.problem.problem import make_problem
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("idle_machine")

N = 40_003


@kernel
def count_by(step, out, start, stop):
    for i in range(start, stop):
        out[i] += step


def blocks(seed: int, sparse: bool = True) -> list:
    rng = np.random.default_rng(seed)
    found = [as_block(rng.standard_normal((N, d))) for d in (5, 1, 64)]
    if sparse:
        for d in (300, 3000):
            found.append(as_block(sp.random(N, d, 0.01, format="csr", rng=rng)))
    return found


@pytest.fixture
def calls(monkeypatch):
    """How many jobs were handed to threads."""
    number = [0]
    run = type(NUMBA_THREADS).run

    def counted(self, *arguments):
        number[0] += 1
        return run(self, *arguments)

    monkeypatch.setattr(type(NUMBA_THREADS), "run", counted)
    return number


@given(sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=6), pieces=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_every_row_of_every_job_is_done_once(sizes, pieces):
    outs = [np.zeros(n) for n in sizes]
    jobs = [(count_by, even_ranges(n, pieces), (1.0 + k, out)) for k, (n, out) in enumerate(zip(sizes, outs))]
    for threads in (1, 3):
        with Engine(threads) as engine:
            engine.each_over_rows(jobs)
    for k, out in enumerate(outs):
        assert (out == 2.0 + 2 * k).all()


@pytest.mark.skipif(not COMPILED, reason="without the compiler jobs have no addresses")
def test_pieces_find_their_job(calls):
    outs = [np.zeros(n) for n in (7, 1, 30)]
    with Engine(4) as engine:
        engine.each_over_rows([(count_by, even_ranges(len(out), 5), (1.0, out)) for out in outs])
    assert calls[0] == 1
    assert all((out == 1.0).all() for out in outs)


def test_what_waits_is_done_before_anything_else():
    own, x = blocks(3, sparse=False), [np.arange(1.0, 1.0 + d) for d in (5, 1, 64)]
    outs = [np.empty(N) for _ in own]
    with Engine(4) as engine:
        with engine.gathering():
            for block, c, out in zip(own, x, outs):
                WeightedBlock(block, np.full(N, 4.0), engine).product_into(c, out, engine.later)
            assert np.array_equal(outs[1], 2.0 * own[1].product(x[1], engine))  # `times` did not wait
        assert engine.later is engine
        for block, c, out in zip(own, x, outs):
            assert np.array_equal(out, 2.0 * block.product(c, engine))


def test_a_party_that_reads_its_own_message_reads_what_was_computed():
    (block,), c = blocks(3, sparse=False)[:1], np.arange(1.0, 6.0)
    out = np.full(N, np.nan)
    with Engine(4) as engine:
        expected = block.product(c, engine)
        with engine.gathering():
            block.product_into(c, out, engine.later)
            assert np.isnan(out).all()  # it waits, so only the engine that knows of it may read it
            assert engine.later.dot(out, out) == engine.dot(expected, expected)
            assert np.array_equal(out, expected)


def test_an_error_leaves_nothing_to_do():
    out = np.zeros(100)
    with Engine(4) as engine:
        gathering = engine.gathering()
        gathering.__enter__()
        engine.later.over_rows(count_by, even_ranges(100, 4), 1.0, out)
        assert not gathering.__exit__(KeyError, KeyError(), None)
        assert engine.later is engine
    assert not out.any()


@pytest.mark.parametrize("parties", [17, 40])
def test_a_job_may_have_many_arguments(parties):
    rng, n = np.random.default_rng(5), 30_000
    own = [rng.standard_normal((n, 1 + 40 // parties)) for _ in range(parties)]
    given, found = make_problem(own, (sum(X[:, 0] for X in own) > 0.0).astype(float), lam=1e-3), []
    for threads in (1, 2):
        result = solve(given, SolverOptions(gap=1e-6, n_threads=threads))
        found.append([w.tobytes() for w in result.weights])
    assert found[0] == found[1]


def problem(parties: int):
    rng = np.random.default_rng(4)
    own = [sp.random(N, 400, 0.01, format="csr", rng=rng) for _ in range(parties)]
    z = sum(X @ rng.standard_normal(400) for X in own)
    return make_problem(own, (z + rng.standard_normal(N) > 0.0).astype(float), lam=1e-3)


def test_a_fit_has_the_same_bits_with_any_number_of_threads():
    given, found = problem(3), []
    for threads in (1, 2, 8):
        options = SolverOptions(gap=1e-6, max_rounds=8, history=3, n_threads=threads)
        found.append(solve(given, options))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0].weights, other.weights))
        assert [r.gap for r in found[0].history] == [r.gap for r in other.history]
