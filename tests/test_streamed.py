"""Streamed blocks: to the last bit what the block in memory computes, and one line where the file fails."""

import os
import sys
from itertools import pairwise

import fastadmm.blocks.tiles as tiles_module
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.tiles import csr_tiles, dense_tiles
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions
from fastadmm.store.party_file import PartyWriter, RowReader, open_party
from fastadmm.store.streamed import load_block

from run_tools import refuses, within

pytestmark = pytest.mark.usefixtures("small_tiles")
N, D = 20011, 7


def matrix(kind, dtype="float64", n=N, d=D):
    """Random values with empty rows, an empty column and one full, long row."""
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(n, d)).astype(dtype)
    if kind == "dense":
        return dense
    keep = rng.random((n, d)) < 0.4
    keep[n // 3 : n // 3 + 50] = False
    keep[:, d // 2] = False
    keep[n // 2] = True
    return sp.csr_array(np.where(keep, dense, 0.0).astype(dtype))


def write(path, values, dtype="float64"):
    """A party's file."""
    kind = "csr" if sp.issparse(values) else "dense"
    with PartyWriter(path, name="p", n_features=values.shape[1], kind=kind, dtype=dtype) as writer:
        for start in range(0, values.shape[0], 7000):
            writer.append(values[start : start + 7000])
    return path


def rechunk(path, change):
    """Store datasets of a file again, with other types, chunks or filters."""
    with h5py.File(path, "r+") as file:
        for key, options in change.items():
            values, attributes = file[key][()], dict(file[key].attrs)
            del file[key]
            data = values.astype(options.get("dtype", values.dtype))
            made = file.create_dataset(key, data=data, **{k: v for k, v in options.items() if k != "dtype"})
            made.attrs.update(attributes)


def assert_same_products(there, here, engine):
    """All that is computed of a block, to the bit."""
    (n, d), rng = here.shape, np.random.default_rng(0)
    x, v, weight = rng.normal(size=(2, d)), rng.normal(size=(5, n)), rng.random(n)
    for call in (
        lambda b: b.product(x[0], engine),
        lambda b: b.matrix_product(x, engine),
        lambda b: b.transposed_product(v[0], engine),
        lambda b: np.array(b.transposed_products(v, engine)),
        lambda b: np.array(b.transposed_products(v[:2], engine)),
        lambda b: b.gram(engine),
        lambda b: b.gram(engine, weight),
        lambda b: b.gram(engine, weight, rough=True),
        lambda b: b.column_squares(engine),
    ):
        np.testing.assert_array_equal(call(there), call(here))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_every_product_is_the_same_to_the_bit(tmp_path, kind, dtype, n_threads):
    values = matrix(kind, dtype)
    party = open_party(write(tmp_path / "p.h5", values, dtype))
    here, there = load_block(party), load_block(party, streamed=True)
    rng = np.random.default_rng(0)
    x, v, w, weight = rng.normal(size=D), rng.normal(size=N), rng.normal(size=N), rng.random(N)
    assert there.shape == here.shape
    assert there.density == here.density
    assert there.reader.direct
    dense = values.toarray() if sp.issparse(values) else values
    with Engine(n_threads) as engine:
        assert_same_products(there, here, engine)
        columns = np.full((D, N), np.nan)
        there.columns_into(columns, engine)
        np.testing.assert_array_equal(columns, dense.T)
        np.testing.assert_allclose(there.product(x, engine), dense.astype(float) @ x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            there.gram(engine, weight), dense.T.astype(float) @ (weight[:, None] * dense), rtol=1e-9
        )
        both = there.transposed_products([v, w], engine)
        np.testing.assert_array_equal(both[1], there.transposed_product(w, engine))
    there.reader.close()


@pytest.mark.representatives(2)
@pytest.mark.parametrize("kind", ["dense", "csr", "short rows", "ones"])
def test_products_of_several_vectors_have_the_bits_of_each(tmp_path, kind):
    values = matrix("dense" if kind == "dense" else "csr")
    if kind == "short rows":  # of an entry or two: they have kernels of their own
        values = sp.csr_array(values * (np.random.default_rng(2).random((N, D)) < 0.4))
        values.eliminate_zeros()
    if kind == "ones":
        values.data[:] = 1.0
    party = open_party(write(tmp_path / "p.h5", values))
    x, out = np.random.default_rng(0).normal(size=(3, D)), np.full((3, N), -99.0)
    here, there = load_block(party), load_block(party, streamed=True)
    with Engine(2) as engine:
        for block in (here, there):
            block.products_into(x, out, engine)
            np.testing.assert_array_equal(out, [here.product(each, engine) for each in x])
    there.reader.close()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dense_rows_that_are_mostly_zero_too(tmp_path, dtype):
    # In memory they are compressed, and sums are those of sparse rows.
    d = 70
    values = np.where(np.random.default_rng(5).random((N, d)) < 0.2, matrix("dense", dtype, d=d), 0.0)
    party = open_party(write(tmp_path / "p.h5", values, dtype))
    for part in (party, party.of_rows(1234, N - 777)):
        here, there = load_block(part, factor=0.3), load_block(part, True, 0.3)
        assert isinstance(here, CSRBlock)
        assert isinstance(there, CSRBlock)
        assert there.density == here.density
        with Engine(2) as engine:
            assert_same_products(there, here, engine)
        there.dense.reader.close()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_kernel_matrix(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("fastadmm.blocks.block._KERNEL_GROUP_BYTES", 3 * 4096)
    values = matrix(kind, n=90, d=200)
    party = open_party(write(tmp_path / "p.h5", values))
    here, there = as_block(values), load_block(party, streamed=True)
    np.testing.assert_array_equal(there.kernel_gram(), here.kernel_gram())
    dense = values.toarray() if sp.issparse(values) else values
    np.testing.assert_allclose(there.kernel_gram(), dense @ dense.T, rtol=1e-12, atol=1e-12)
    there.reader.close()


@pytest.mark.parametrize(
    ("kind", "change", "direct"),
    [
        ("csr", {"X/indices": {"dtype": "<i8", "chunks": (1000,)}}, True),
        ("csr", {"X/data": {}, "X/indices": {}}, True),
        ("csr", {"X/data": {"chunks": (777,), "compression": "gzip"}}, False),
        ("csr", {"X/data": {"dtype": ">f8"}}, False),
        ("dense", {"X": {}}, True),
        ("dense", {"X": {"chunks": (100, 3)}}, False),
        ("dense", {"X": {"chunks": (100, 7), "shuffle": True, "compression": "gzip"}}, False),
    ],
    ids=["int64", "contiguous-csr", "gzip-csr", "big-endian", "contiguous", "column-chunks", "gzip"],
)
def test_other_writers_layouts(tmp_path, kind, change, direct):
    values = matrix(kind)
    path = write(tmp_path / "p.h5", values)
    rechunk(path, change)
    here, there = as_block(values), load_block(open_party(path), streamed=True)
    assert there.reader.direct == direct
    v = np.random.default_rng(0).normal(size=N)
    with Engine(2) as engine:
        np.testing.assert_array_equal(there.transposed_product(v, engine), here.transposed_product(v, engine))
    there.reader.close()


@pytest.mark.parametrize("row", [0, 100, 9001, 9013, 9020, 15000])
def test_a_pass_ends_where_the_file_does(tmp_path, monkeypatch, row):
    """One line that names the file, in whatever tile and dataset."""
    for kind, key in (("dense", "X"), ("csr", "X/")):
        path = write(tmp_path / f"{kind}.h5", matrix(kind))
        block = load_block(open_party(path), streamed=True)
        # Within a row that may be the first of a tile or another, in the file's last dataset.
        reader = block.reader
        last = max(reader.dtypes, key=lambda name: reader._places[name][0].min())
        offsets, chunk = reader._places[last]
        first = row if kind == "dense" else int(block.indptr[row])
        size = reader.dtypes[last].itemsize * reader.row_items[last]
        os.truncate(path, int(offsets[first // chunk]) + size * (first % chunk) + 2)
        monkeypatch.setattr(block.reader, "check_unchanged", lambda: None)
        with Engine(1) as engine:
            for call in (
                lambda b: b.product(np.ones(D), engine),
                lambda b: b.transposed_products([np.ones(N), np.ones(N)], engine),
                lambda b: b.column_squares(engine),
            ):
                refuses(FormatError, rf"{kind}\.h5: key '{key}.*: truncated while it was", call, block)
        block.reader.close()


@pytest.mark.parametrize("contiguous", [False, True])
def test_advice_is_about_the_bytes_that_are_read(tmp_path, monkeypatch, contiguous):
    path = write(tmp_path / "p.h5", matrix("dense"))
    rechunk(path, {"X": {} if contiguous else {"chunks": (100, D)}})
    reader = RowReader(path, ("X",))
    told, read = [], []
    monkeypatch.setattr("os.posix_fadvise", lambda _, place, size, advice: told.append((place, size)))
    monkeypatch.setattr(reader, "_read", lambda _, view, place: read.append((place, len(view))))
    for start, stop in [(0, 40), (90, 310), (5, 5), (N - 130, N)]:
        reader.advise("X", start, stop)
        reader.read_into("X", start, stop, np.empty((stop - start, D)))
    assert told == read
    assert len(told) >= 3
    reader.close()


def test_files_that_end_or_change_are_noticed(tmp_path):
    path = write(tmp_path / "party.h5", matrix("dense"))
    reader = RowReader(path, ("X",))
    out = np.empty((N, D))
    reader.read_into("X", 0, N, out)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(FormatError, match=r"party\.h5: key 'X': the file ends at byte \d+: truncated"):
        reader.read_into("X", 0, N, out)
    refuses(InputError, r"party\.h5: changed while it was in use", reader.check_unchanged)
    reader.close()
    # A file that changes is noticed before the next pass.
    tmp_path = within(tmp_path)
    path = write(tmp_path / "party.h5", matrix("csr"))
    block = load_block(open_party(path), streamed=True)
    with Engine(2) as engine:
        block.product(np.ones(D), engine)
        with h5py.File(path, "r+") as file:
            file["X/data"][5] = 1e9
        refuses(InputError, "changed while it was in use", block.product, np.ones(D), engine)
    block.reader.close()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_damage_is_found_when_the_file_is_opened_for_streaming(tmp_path, kind):
    path = write(tmp_path / "party.h5", matrix(kind))
    key = "X" if kind == "dense" else "X/data"
    with h5py.File(path) as file:
        places = []
        file[key].id.chunk_iter(lambda chunk: places.append(chunk.byte_offset))
    with open(path, "r+b") as raw:
        raw.seek(places[0] + 40)
        raw.write(b"\x01\x02\x03")
    with pytest.raises(FormatError, match=f"party.h5: key '{key}': checksum mismatch"):
        load_block(open_party(path), streamed=True)
    path = write(tmp_path / "nan.h5", matrix(kind))
    with h5py.File(path, "r+") as file:
        file[key][(3, 1) if kind == "dense" else 3] = np.nan
    with pytest.raises(InputError, match="is not finite"):
        load_block(open_party(path), streamed=True)


def test_tiles_cover_every_row_once():
    indptr = np.concatenate([[0, 0, 5, 900, 900], 900 + np.arange(1, 3000)]).astype(np.int64)
    for ranges in (csr_tiles((1, len(indptr) - 1), indptr), dense_tiles((1, len(indptr) - 1), 9)):
        ranges = list(ranges)
        assert ranges[0][0] == 1
        assert ranges[-1][1] == len(indptr) - 1
        assert all(a[1] == b[0] for a, b in pairwise(ranges))
        assert len(ranges) > 5
    assert all(b - a == 1 or indptr[b] - indptr[a] <= 300 for a, b in csr_tiles((0, 2000), indptr))
    assert list(dense_tiles((0, 3), 10**6)) == [(0, 1), (1, 2), (2, 3)]
    assert tiles_module.TILE_BYTES == 4096


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"scheme": "sharing"}, 3),
        ({"scheme": "sharing", "intercept": False}, 3),
        ({"scheme": "jacobi", "penalty": 1.0}, 3),
        ({"scheme": "sharing", "x_update": "kernel"}, 3),
        ({"scheme": "gauss-seidel"}, 3),
        ({"scheme": "sharing", "regularizer": "l1"}, 4),
        ({"scheme": "subspace"}, 3),
    ],
    ids=str,
)
def test_passes_of_a_round(monkeypatch, options, passes):
    """What the plan and docs/streaming.md say."""
    options = dict(options)
    blocks = [matrix("dense", n=400, d=40), matrix("csr", n=400, d=30)]
    y = (blocks[0][:, 0] > 0).astype(float)
    more = {"regularizer": options.pop("regularizer", "l2"), "fit_intercept": options.pop("intercept", True)}
    problem = make_problem(blocks, y, lam=1e-2, **more)

    read: list[object] = []
    for kind in (DenseBlock, CSRBlock):

        def tiles(self, rows, plain=kind.tiles):
            read.append(self)
            return plain(self, rows)

        def once(self, rows, plain=kind.once):
            read.append(self)
            return plain(self, rows)

        monkeypatch.setattr(kind, "tiles", tiles)
        monkeypatch.setattr(kind, "once", once)

    for plain in (Engine.over_rows, Engine.sum_over_rows):

        def over(self, kernel, ranges, *arguments, plain=plain):
            for block in problem.blocks:
                (held,) = [vars(block)[name] for name in ("indptr", "matrix") if name in vars(block)]
                given = [array for array in arguments if isinstance(array, np.ndarray)]
                read.extend([block] * any(np.shares_memory(array, held) for array in given))
            return plain(self, kernel, ranges, *arguments)

        monkeypatch.setattr(Engine, plain.__name__, over)

    solver, counts = Solver(problem, SolverOptions(**options, n_threads=1)), []
    for _ in range(8):
        read.clear()
        solver.round()
        counts.append([sum(block is own for block in read) for own in problem.blocks])
    # Later rounds: without set-up, metrics and extrapolations that were taken back.
    assert min(counts[2:]) == [passes, passes]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "blosc2"])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_compressed_files_hold_the_same(tmp_path, kind, compression):
    if compression != "gzip":
        pytest.importorskip("hdf5plugin")
    values = matrix(kind, n=3000)
    values = values.round(1) if kind == "dense" else sp.csr_array(values.toarray().round(1))
    plain = open_party(write(tmp_path / "plain.h5", values))
    with PartyWriter(tmp_path / "p.h5", name="p", n_features=D, kind=kind, compression=compression) as writer:
        writer.append(values)
    party = open_party(tmp_path / "p.h5")
    party.verify()
    assert party.content_digest == plain.content_digest
    assert party.path.stat().st_size < plain.path.stat().st_size
    block, v = load_block(party, streamed=True), np.random.default_rng(0).normal(size=3000)
    assert not block.reader.direct
    with Engine(2) as engine:
        np.testing.assert_array_equal(
            block.transposed_product(v, engine), as_block(values).transposed_product(v, engine)
        )
    block.reader.close()


def test_missing_compression_package(tmp_path, monkeypatch):
    pytest.importorskip("hdf5plugin")
    with PartyWriter(tmp_path / "p.h5", name="p", n_features=D, kind="dense", compression="zstd") as writer:
        writer.append(matrix("dense", n=50))
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    monkeypatch.setattr("h5py.h5z.filter_avail", lambda number: number < 32000)
    with pytest.raises(StorageError, match=r"p\.h5: key 'X': compressed with Zstandard, .*fastadmm\[comp"):
        open_party(tmp_path / "p.h5")
    with pytest.raises(ConfigError, match=r"'blosc2' needs the package hdf5plugin"):
        PartyWriter(tmp_path / "q.h5", name="q", compression="blosc2")
    refuses(ConfigError, "unknown choice 'zip'", PartyWriter, tmp_path / "q.h5", name="q", compression="zip")
    assert not (tmp_path / "q.h5").exists()
