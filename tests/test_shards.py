"""Row shards: a partition that is cut for workers, and read together again."""

import io
import itertools
import json
import shutil
from contextlib import redirect_stdout

import h5py
import numpy as np
import pytest
from fastadmm.engine.tree import leaves_of
from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.store import open_partition
from fastadmm.store.cutting import cut_partition, shard_rows
from fastadmm.store.manifest import check_shards

from run_tools import run
from test_streamed import assert_same_products


def _libsvm(path, rows=90, width=7):
    rng = np.random.default_rng(3)
    lines = []
    for i in range(rows):
        entries = " ".join(
            f"{j + 1}:{rng.standard_normal():.4g}" for j in range(width - 1) if rng.random() < 0.4
        )
        lines.append(f"{1 if i >= rows // 2 else -1} {entries} {width}:1".replace("  ", " "))
    path.write_text("\n".join(lines) + "\n")
    return path


def _run(*arguments):
    told = io.StringIO()
    with redirect_stdout(told):
        code = run(*arguments)
    assert code == 0, told.getvalue()
    return told.getvalue()


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A whole, and the same source in four shards, of which two have one class only."""
    folder = tmp_path_factory.mktemp("cut")
    source = _libsvm(folder / "a.txt")
    _run("convert", source, "--columns", "3,4", "-o", folder / "whole.parts")
    _run("convert", source, "--columns", "3,4", "--shards", "4", "-o", folder / "cut.parts")
    return folder


def test_shards_together_are_the_whole(cut):
    whole, shards = open_partition(cut / "whole.parts"), open_partition(cut / "cut.parts")
    assert [part.n_samples for part in shards.shards] == [b - a for a, b in shard_rows(90, 4)]
    assert shards.row_digest == whole.row_digest
    for one, other in zip(whole.parties, shards.parties, strict=True):
        assert one.content_digest == other.content_digest
        assert np.array_equal(_plain(one.load()), _plain(other.load()))
        assert np.array_equal(np.vstack([_plain(b) for _, b in other.iter_rows(7)]), _plain(one.load()))
        other.verify()
    assert np.array_equal(whole.labels.y, shards.labels.y)
    assert np.array_equal(shards.labels.ids(), np.arange(90))
    part = shards.shards[2]
    assert part.shard.first_row == shard_rows(90, 4)[2][0]
    assert part.parties[0].ids()[0] == part.shard.first_row


def test_training_on_shards_gives_the_bits_of_the_whole(cut, tmp_path):
    for name in ("whole", "cut"):
        _run("train", cut / f"{name}.parts", "--lambda", "1e-3", "-o", tmp_path / name)
    one, other = (tmp_path / name / "model" / "party-1.h5" for name in ("whole", "cut"))
    with h5py.File(one) as first, h5py.File(other) as second:
        assert np.array_equal(first["weights"][:], second["weights"][:])
    assert "another" not in _run(
        "convert", cut / "a.txt", "--like", cut / "cut.parts", "-o", tmp_path / "t.parts"
    )


def test_cut_and_put_together(cut, tmp_path):
    _run("convert", cut / "cut.parts", "--shards", "1", "-o", tmp_path / "one.parts")
    _run("convert", tmp_path / "one.parts", "--shards", "3", "-o", tmp_path / "three.parts")
    whole = cut / "whole.parts"
    for file in ("party-1.h5", "party-2.h5", "labels.h5", "partition.toml"):
        assert (tmp_path / "one.parts" / file).read_bytes() == (whole / file).read_bytes(), file
    assert open_partition(tmp_path / "three.parts").row_digest == open_partition(whole).row_digest
    with pytest.raises(FastadmmError, match="exists already"):
        cut_partition(whole, tmp_path / "three.parts", 2)


def test_inspect_says_where_rows_are(cut):
    found = json.loads(_run("inspect", cut / "cut.parts", "--json", "--check"))
    assert [s["n_samples"] for s in found["shards"]] == [22, 23, 22, 23]
    assert found["parties"][0]["file_bytes"] > 0
    one = json.loads(_run("inspect", cut / "cut.parts" / "shard-2", "--json"))
    assert one["shard"]["rows"] == [23, 45]
    assert "shard" in _run("inspect", cut / "cut.parts" / "shard-2")
    assert "shard-4 (23 rows)" in _run("inspect", cut / "cut.parts")


def test_tables_with_ids_are_cut(tmp_path):
    rows = [f"p{i:03d},{i % 7},{(i * 37) % 11},{'yes' if i % 3 else 'no'}" for i in range(50)]
    (tmp_path / "t.csv").write_text("id,a,b,y\n" + "\n".join(rows) + "\n")
    (tmp_path / "h.csv").write_text("id,c\n" + "\n".join(f"p{i:03d},{i * i % 13}" for i in range(50)) + "\n")
    tables = ("--guest", tmp_path / "t.csv", "--host", tmp_path / "h.csv", "--id", "id", "--label", "y")
    _run("convert", *tables, "-o", tmp_path / "w.parts")
    _run("convert", *tables, "--shards", "3", "-o", tmp_path / "s.parts")
    whole, shards = open_partition(tmp_path / "w.parts"), open_partition(tmp_path / "s.parts")
    assert whole.row_digest == shards.row_digest
    assert [p.content_digest for p in whole.parties] == [p.content_digest for p in shards.parties]
    assert shards.shards[1].parties[0].ids()[0] == "p016"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: shutil.rmtree(d / "shard-2"), "no such directory"),
        (lambda d: _copy(d / "shard-1", d / "shard-2"), "overlap"),
        (lambda d: _copy(d / "shard-3", d / "shard-2"), "leave rows out"),
        (lambda d: _copy(d.parent / "other" / "shard-2", d / "shard-2"), "a shard of other data"),
        (lambda d: _copy(d.parent / "whole.parts", d / "shard-2"), "not a shard"),
        (lambda d: _edit(d / "shards.toml", "shards = 4", "shards = 3"), "digest differs"),
        (lambda d: _edit(d / "shard-1/partition.toml", "first_row = 0", "first_row = 1"), "digest differs"),
    ],
)
def test_shards_that_are_no_whole_are_refused(cut, tmp_path, spoil, said):
    shutil.copytree(cut / "cut.parts", tmp_path / "cut.parts")
    shutil.copytree(cut / "whole.parts", tmp_path / "whole.parts")
    if "other" in said:
        source = _libsvm(tmp_path / "b.txt", rows=91)
        _run("convert", source, "--columns", "3,4", "--shards", "4", "-o", tmp_path / "other")
    spoil(tmp_path / "cut.parts")
    with pytest.raises(FastadmmError, match=said) as error:
        open_partition(tmp_path / "cut.parts")
    assert "\n" not in str(error.value)


def test_shards_of_workers_are_checked_without_a_directory(cut):
    parts = open_partition(cut / "cut.parts").shards
    places = [(f"rank {k}", part.shard, part.n_samples) for k, part in enumerate(parts)]
    check_shards(places)
    with pytest.raises(InputError, match="rank 2: the last of 3 shards, but the whole has 90 rows"):
        check_shards(places[:3])
    with pytest.raises(InputError, match="rank 1: begins with row 1, but row 23 comes next after rank 0"):
        check_shards([places[0], ("rank 1", *places[0][1:]), *places[1:]])


def test_rows_of_shards_are_those_of_workers():
    from fastadmm.cluster.engine import nodes_of
    from fastadmm.engine.tree import node_range

    n = 200_000
    for shards in (1, 2, 3, 8, 16):
        rows = shard_rows(n, shards)
        assert rows[0][0] == 0
        assert rows[-1][1] == n
        assert all(a[1] == b[0] for a, b in itertools.pairwise(rows))
        assert shards <= leaves_of(n)
        for rank, (start, stop) in enumerate(rows):
            nodes = nodes_of(n, rank, shards)
            assert (start, stop) == (node_range(n, *nodes[0])[0], node_range(n, *nodes[-1])[1])
    with pytest.raises(ConfigError, match="--shards 6: from 1 to 5"):
        shard_rows(5, 6)


def test_one_class_in_all_shards_is_no_training_data(tmp_path):
    lines = [f"{i % 2} 1:{i} 2:1" for i in range(12)]
    (tmp_path / "two.txt").write_text("\n".join(lines) + "\n")
    _run("convert", tmp_path / "two.txt", "--columns", "1,1", "--shards", "2", "-o", tmp_path / "p")
    (tmp_path / "new.txt").write_text("\n".join(line for line in lines if line[0] == "1") + "\n")
    new = (tmp_path / "new.txt", "--like", tmp_path / "p", "--shards", "2", "-o", tmp_path / "q")
    _run("convert", *new)
    assert run("train", tmp_path / "q", "-o", tmp_path / "run") == 3
    assert not (tmp_path / "run").exists()


def test_a_partition_takes_no_other_options(cut, tmp_path):
    for more in ((), ("--shards", "2", "--label", "y"), ("--shards", "2", "--parties", "2")):
        assert run("convert", cut / "whole.parts", *more, "-o", tmp_path / "x") != 0


def _plain(block):
    return block if isinstance(block, np.ndarray) else block.toarray()


def _copy(source, target):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_shards_are_streamed_as_the_whole(cut):
    from fastadmm.engine.engine import Engine
    from fastadmm.store.streamed import load_block

    engine = Engine(2)
    for joined, whole in zip(*[open_partition(cut / f"{name}.parts").parties for name in ("cut", "whole")]):
        n = joined.n_samples
        for rows in ((0, n), (n // 5, n - n // 7)):
            there, here = load_block(joined.of_rows(*rows), streamed=True), load_block(whole.of_rows(*rows))
            assert_same_products(there, here, engine)
