"""Rounds in one read of the data: kernels against slow twins, rounds against those in two passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.tiles import common_tiles
from fastadmm.coordinator.admm import admm
from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.engine.engine import Engine
from fastadmm.kernels.csr import (
    csr_accumulate_images,
    csr_accumulate_transposed,
    csr_buffer_images,
    csr_tile_images,
)
from fastadmm.kernels.sweep import (
    sweep_add,
    sweep_centres,
    sweep_correct,
    sweep_divide,
    sweep_relax,
    sweep_targets,
)
from fastadmm.problem.problem import make_problem
from fastadmm.runs.config import make_config
from fastadmm.runs.plan import make_plan
from fastadmm.runs.train import plan_run, resume_run, start_run
from fastadmm.solver.solver import Solver, SolverOptions
from fastadmm.store import create_partition, open_partition
from fastadmm.target_images import TargetImages, Turn

import naive
from run_tools import CrashAfter, assert_same_run, write_blocks

N = 700


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tiles and pieces on little data."""
    for module in ("fastadmm.blocks.tiles", "fastadmm.blocks.block", "fastadmm.store.streamed"):
        monkeypatch.setattr(f"{module}.TILE_BYTES", 8192, raising=False)
        monkeypatch.setattr(f"{module}.TILE_ENTRIES", 600, raising=False)
        monkeypatch.setattr(f"{module}.SWEEP_BYTES", 8192, raising=False)
    monkeypatch.setattr("fastadmm.engine.engine.ROWS_PER_PIECE", 150)


def blocks_and_targets(n: int = N, seed: int = 0) -> tuple[list[object], np.ndarray]:
    """A dense block, a sparse one with empty rows and one long row, another dense one; labels."""
    rng = np.random.default_rng(seed)
    sparse = np.where(rng.random((n, 30)) < 0.2, rng.normal(size=(n, 30)), 0.0)
    sparse[5:40] = 0.0
    sparse[50] = 1.0
    blocks = [rng.normal(size=(n, 12)), sp.csr_array(sparse), rng.normal(size=(n, 5))]
    z = sum(naive.dense(b) @ rng.normal(size=b.shape[1]) for b in blocks)
    return blocks, (z + 2.0 * rng.normal(size=n) > 0).astype(float)


def test_kernels_are_the_formulas() -> None:
    rng = np.random.default_rng(1)
    m, n, d, r, tau = 3, 40, 9, 0.3, 3.0
    messages, (u, before, offset, dual) = rng.normal(size=(m, n)), rng.normal(size=(4, n))
    total, centre, predictor, z, pull = np.full((5, n), np.nan)
    sweep_centres(messages, u, before, offset, r, total, centre, predictor, z, 7, 31)
    rows = slice(7, 31)
    np.testing.assert_array_equal(total[rows], messages.sum(axis=0)[rows])
    np.testing.assert_array_equal(centre[rows], (messages.sum(axis=0) + u / r)[rows])
    np.testing.assert_array_equal(predictor[rows], (offset + messages.sum(axis=0))[rows])
    np.testing.assert_array_equal(z[rows], before[rows])
    assert np.isnan(np.array([total, centre, predictor, z])[:, np.r_[:7, 31:n]]).all()
    total, z = messages.sum(axis=0), rng.normal(size=n)
    vectors = np.full((m, 3, 30), np.nan)
    sweep_targets(messages, total, z, u, dual, r, tau, pull, vectors, 7, 31)
    np.testing.assert_array_equal(pull[rows], (u + r * (total - z))[rows])
    for k in range(m):
        np.testing.assert_array_equal(vectors[k, 0, :24], dual[rows])
        np.testing.assert_array_equal(vectors[k, 1, :24], pull[rows])
        wanted = messages[k] - (total - z) / tau - u / (tau * r)
        np.testing.assert_allclose(vectors[k, 2, :24], wanted[rows], rtol=1e-14, atol=1e-14)
    assert np.isnan(vectors[:, :, 24:]).all()
    omega, state = rng.uniform(0.5, 2.0, n), rng.normal(size=(m, n))
    sweep_correct(total, z, u, r, omega, pull, vectors, 7, 31)
    np.testing.assert_array_equal(pull[rows], (omega * (u + r * (total - z)))[rows])
    for k in range(m):
        np.testing.assert_array_equal(vectors[k, 1, :24], pull[rows])
        wanted = omega * (messages[k] - (total - z) / tau - u / (tau * r))
        np.testing.assert_allclose(vectors[k, 2, :24], wanted[rows], rtol=1e-14, atol=1e-14)
    found, (relaxed, centre, added, divided) = np.full((m, n), np.nan), np.full((4, n), np.nan)
    sweep_relax(messages, state, before, u, 1.7, r, found, relaxed, centre, 7, 31)
    wanted = 1.7 * messages - 0.7 * (state - (state.sum(axis=0) - before) / m)
    np.testing.assert_allclose(found[:, rows], wanted[:, rows], rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(relaxed[rows], wanted.sum(axis=0)[rows], rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(centre[rows], (relaxed + u / r)[rows])
    sweep_add(u, before, added, 7, 31)
    sweep_divide(u, omega, divided, 7, 31)
    np.testing.assert_array_equal(added[rows], (u + before)[rows])
    np.testing.assert_array_equal(divided[rows], (u / omega)[rows])
    outside = np.array([relaxed, centre, added, divided, *found])[:, np.r_[:7, 31:n]]
    assert np.isnan(outside).all()
    matrix = sp.csr_array(np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0))
    given, out = rng.normal(size=(4, n)), np.ones((d, 4))
    parts = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data
    csr_accumulate_images(*parts, given, out, 3, 33)
    np.testing.assert_allclose(out, 1.0 + matrix.toarray()[3:33].T @ given[:, 3:33].T, rtol=1e-13, atol=1e-13)
    own, tile, buffer = np.ascontiguousarray(given[:, 3:33]), np.ones((d, 4)), np.ones((d, 4))
    first, last = parts[0][[3, 33]]
    csr_tile_images(*parts, own, tile, 3, 33)
    csr_buffer_images(parts[0], parts[1][first:last], parts[2][first:last], own, buffer, 3, 33)
    np.testing.assert_array_equal(tile, out)
    np.testing.assert_array_equal(buffer, out)
    for v, image in zip(given, out.T):
        alone = np.ones(d)
        csr_accumulate_transposed(*parts, v, alone, 3, 33)
        np.testing.assert_array_equal(image, alone)


def test_common_tiles_cover_every_row_once() -> None:
    steps = np.array([100, 9000, 1, 8000, 192, 1, 8193, 5])
    cost = np.concatenate([[0], np.cumsum(steps)])
    assert common_tiles((20, 28), cost) == [(20, 21), (21, 22), (22, 24), (24, 26), (26, 27), (27, 28)]


CASES = {
    "sharing": {"scheme": "sharing"},
    "plain": {"scheme": "sharing", "acceleration": "none"},
    "jacobi": {"scheme": "jacobi", "penalty": 1.0},
    "squared": {"scheme": "sharing", "loss": "squared"},
    "kinks": {"scheme": "sharing", "loss": "hinge"},
    "lasso": {"scheme": "sharing", "regularizer": "l1"},
    "ball": {"scheme": "sharing", "constraint": "ball:1.5"},
    "groups": {"scheme": "sharing", "regularizer": "elastic_net"},
    "weights": {"scheme": "sharing", "weighted": True},
}


def make(name: str) -> tuple[object, SolverOptions]:
    """A problem and options of a case."""
    given = dict(CASES[name])
    blocks, y = blocks_and_targets()
    more = {k: given.pop(k) for k in ("loss", "regularizer", "constraint") if k in given}
    if given.pop("weighted", False):
        rng = np.random.default_rng(3)
        more |= {"sample_weight": rng.uniform(0.2, 3.0, N), "offset": rng.normal(size=N)}
    problem = make_problem(blocks, y, lam=1e-2, fit_intercept=False, **more)
    return problem, SolverOptions(**given, n_threads=1)


@pytest.mark.parametrize("name", CASES)
def test_rounds_are_those_in_two_passes_up_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, options = make(name)
    one = Solver(problem, options)
    assert one.coordinator.sweep is not None
    monkeypatch.setattr(admm, "suits_sweep", lambda *_: False)
    two = Solver(problem, options)
    assert two.coordinator.sweep is None
    for k in range(25):
        a, b = one.round(), two.round()
        for x, w in zip(one.party_weights(), two.party_weights()):
            np.testing.assert_allclose(x, w, rtol=1e-7, atol=1e-9)
        for key in ("objective", "gap_absolute", "primal_residual", "dual_residual", "lyapunov"):
            assert getattr(a, key) == pytest.approx(getattr(b, key), rel=1e-6, abs=1e-9), (k, key)
        assert a.accelerated == b.accelerated
        assert a.penalty == pytest.approx(b.penalty, rel=1e-9)
    if name in ("sharing", "squared", "kinks", "weights"):
        assert one.coordinator.n_extrapolations > 10


def test_known_images_are_those_of_the_targets() -> None:
    """After every turn of the acceleration, extrapolated, plain or taken back."""
    problem, options = make("kinks")
    solver = Solver(problem, replace(options, history=4))
    kinds = set()
    for _ in range(60):
        solver.round()
        coordinator = solver.coordinator
        turn = coordinator._turn
        kinds.add("back" if turn.taken_back else "plain" if turn.weights is None else "on")
        state, tau = coordinator.state, coordinator.scheme.tau(3)
        common = ((state.total() - state.z) + state.u / coordinator.penalty) / tau
        for m, party in enumerate(solver.parties):
            wanted = naive.dense(blocks_and_targets()[0][m]).T @ (state.messages[m] - common)
            found = party.target_images.current
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())
    assert {"plain", "on"} <= kinds


def test_images_follow_the_acceleration_to_the_rounding_of_a_linear_map() -> None:
    """Taken back, with a short memory and after a reset: against images made afresh."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, 11))
    anderson, images = Anderson(11, [(slice(0, 11), 1.0)], 3), TargetImages(6, 3)
    reached = state = rng.normal(size=11)
    images.follow(Turn(), matrix @ state)
    for k in range(40):
        new = 0.8 * state + rng.normal(size=11)
        if k % 7 == 6:
            anderson.reset()
            state, turn = reached, Turn(taken_back=True)
        else:
            reached = new
            vector = anderson.extrapolate(new, new - state)
            state = new if vector is None else vector
            turn = Turn(slot=anderson.slot, weights=anderson.weights)
        images.follow(turn, matrix @ new)
        scale = 1.0 if turn.weights is None else 1.0 + np.abs(turn.weights).sum()
        np.testing.assert_allclose(images.current, matrix @ state, rtol=0, atol=1e-12 * scale)
        restored = TargetImages(6, 3)
        restored.restore(images.export())
        images = restored


def test_unknown_differences_make_the_next_image_unknown() -> None:
    images = TargetImages(2, 3)
    images.follow(Turn(slot=0, weights=np.array([0.5])), np.ones(2))
    assert images.current is None
    images.follow(Turn(slot=1), np.full(2, 3.0))
    np.testing.assert_array_equal(images.current, [3.0, 3.0])
    with pytest.raises(ValueError, match="image_current"):
        images.restore({"image_current": np.ones(3)})


@pytest.mark.parametrize("name", ["sharing", "jacobi", "lasso"])
def test_any_number_of_threads_to_the_bit(name: str) -> None:
    problem, options = make(name)
    one, many = Solver(problem, options), Solver(problem, replace(options, n_threads=3))
    for _ in range(12):
        a, b = one.round(), many.round()
        assert replace(a, seconds=0.0) == replace(b, seconds=0.0)
        for x, w in zip(one.party_weights(), many.party_weights()):
            np.testing.assert_array_equal(x, w)
    many.close()


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "sharing", "intercept": True},
        {"scheme": "gauss-seidel"},
        {"scheme": "sharing", "x_update": "kernel"},
        {"scheme": "sharing", "x_update": "cg"},
        {"scheme": "sharing", "parties": 9},
    ],
    ids=str,
)
def test_where_rows_are_coupled_or_images_are_not_enough_there_are_two_passes(options: dict) -> None:
    given = dict(options)
    blocks, y = blocks_and_targets(60)
    intercept, parties = given.pop("intercept", False), given.pop("parties", 3)
    blocks = (blocks * 3)[:parties]
    problem = make_problem(blocks, y, lam=1e-2, fit_intercept=intercept)
    assert Solver(problem, SolverOptions(**given, n_threads=1)).coordinator.sweep is None


@pytest.mark.parametrize("options", [{}, {"regularizer": "l1"}], ids=str)
def test_streamed_interrupted_and_resumed_to_the_bit(tmp_path, options: dict) -> None:
    """Buffers of all parties at once within the plan; images in the parties' checkpoints."""
    n = 6000
    blocks, y = blocks_and_targets(n)
    write_blocks(tmp_path / "a.parts", blocks, y)
    values = {"data": str(tmp_path / "a.parts"), "scheme": "sharing", "intercept": False, "rounds": 14}
    config = make_config({**values, "gap": 0.0, "threads": 2, "checkpoint_rounds": 2, **options})
    start_run(config, tmp_path / "memory")
    free = make_plan(open_partition(config.data).parties, [], n, config, n_threads=2)
    tight = replace(config, memory=str(free.total - free.data // 2))
    plan = plan_run(tight)
    assert any(p.streamed for p in plan.parties)
    assert {p.passes for p in plan.parties} == {1}
    with pytest.raises(KeyboardInterrupt):
        start_run(tight, tmp_path / "run", display=CrashAfter(9))
    resume_run(tmp_path / "run")
    assert_same_run(tmp_path / "memory", tmp_path / "run")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_files_read_by_kernels_or_by_hdf5_give_the_same_bits(tmp_path, compression: str) -> None:
    from fastadmm.store.streamed import load_block

    blocks, y = blocks_and_targets(3000)
    with create_partition(tmp_path / "a.parts", task="classification") as writer:
        for block in blocks:
            kind = "dense" if isinstance(block, np.ndarray) else "csr"
            writer.party(n_features=block.shape[1], kind=kind, compression=compression).append(block)
        writer.labels(classes=("no", "yes")).append(y)
    parties = open_partition(tmp_path / "a.parts").parties
    found = []
    for streamed in (False, True):
        loaded = [load_block(party, streamed=streamed, factor=0.3) for party in parties]
        if streamed:
            assert {block.stream.direct for block in loaded} == {compression == "none"}
        problem = make_problem(loaded, y, lam=1e-2, fit_intercept=False)
        solver = Solver(problem, SolverOptions(scheme="sharing", n_threads=2))
        for _ in range(15):  # with a metric from the tenth on
            record = solver.round()
        found.append((replace(record, seconds=0.0), *map(bytes, solver.party_weights())))
        solver.close()
    assert found[0] == found[1]


def test_a_file_that_fails_stops_every_reader(tmp_path) -> None:
    """The error of one party ends the round; buffers of all come back."""
    from fastadmm.errors import InputError
    from fastadmm.store.streamed import BufferPool, stream_block

    blocks, y = blocks_and_targets(3000)
    write_blocks(tmp_path / "a.parts", blocks, y)
    pool = BufferPool()
    streamed = [stream_block(p, pool) for p in open_partition(tmp_path / "a.parts").parties]
    problem = make_problem(streamed, y, lam=1e-2, fit_intercept=False)
    solver = Solver(problem, SolverOptions(scheme="sharing", n_threads=2))
    solver.round()
    path = streamed[1].stream.reader.path
    path.touch()
    with pytest.raises(InputError, match="changed while it was in use"):
        solver.round()
    solver.close()  # other threads may still be in their pieces
    assert sum(buffer.nbytes for buffer in pool._free) == pool.nbytes
    with Engine(1) as engine:
        streamed[0].product(np.ones(12), engine)
