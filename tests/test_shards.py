"""Row shards, which older versions wrote: a partition that is cut by rows, read as the whole."""

import io
import json
import shutil
import tempfile
import tomllib
from contextlib import redirect_stdout

import h5py
import numpy as np
import pytest
import tomli_w
from fastadmm.errors import FastadmmError, FormatError, InputError, StorageError
from fastadmm.store.partition import check_shards, open_partition
from fastadmm.store.transform import Transform

from run_tools import refuses, run
from shards import cut_partition
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
    cut_partition(folder / "whole.parts", folder / "cut.parts", 4)
    return folder


def test_shards_that_change_are_read_anew(cut, tmp_path, monkeypatch):
    home = shutil.copytree(cut / "cut.parts", tmp_path / "cut")
    before = open_partition(home).labels.y
    with h5py.File(home / "shard-1" / "labels.h5", "a") as file:
        file["y"][:] = 1.0 - file["y"][:]
    assert (open_partition(home).labels.y != before).sum() == 22
    with h5py.File(home / "shard-2" / "party-1.h5", "a") as file:
        file["X/data"][0] += 1.0
    refuses(FormatError, "rows together are not what was cut", open_partition, home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    shutil.copytree(cut / "cut.parts", tmp_path / "other")
    refuses(StorageError, "none: cannot write: No such file", open_partition, tmp_path / "other")


def test_shards_are_the_whole(cut):
    whole, shards = open_partition(cut / "whole.parts"), open_partition(cut / "cut.parts")
    assert [part.n_samples for part in shards.shards] == [22, 23, 22, 23]
    assert shards.row_digest == whole.row_digest
    for one, other in zip(whole.parties, shards.parties, strict=True):
        assert one.content_digest == other.content_digest
        assert np.array_equal(_plain(one.load()), _plain(other.load()))
        assert np.array_equal(np.vstack([_plain(b) for _, b in other.iter_rows(7)]), _plain(one.load()))
        other.verify()
    assert np.array_equal(whole.labels.y, shards.labels.y)
    assert np.array_equal(shards.labels.ids(), np.arange(90))
    part = shards.shards[2]
    assert part.shard.first_row == 45
    assert part.parties[0].ids()[0] == part.shard.first_row
    # Shards are streamed as the whole.
    from fastadmm.engine.engine import Engine
    from fastadmm.store.streamed import load_block

    engine = Engine(2)
    for joined, whole in zip(*[open_partition(cut / f"{name}.parts").parties for name in ("cut", "whole")]):
        n = joined.n_samples
        for rows in ((0, n), (n // 5, n - n // 7)):
            there, here = load_block(joined.of_rows(*rows), streamed=True), load_block(whole.of_rows(*rows))
            assert_same_products(there, here, engine)
    # Inspect says where rows are.
    found = json.loads(_run("inspect", cut / "cut.parts", "--json", "--check"))
    assert [s["n_samples"] for s in found["shards"]] == [22, 23, 22, 23]
    one = json.loads(_run("inspect", cut / "cut.parts" / "shard-2", "--json"))
    assert one["shard"]["rows"] == [23, 45]
    assert "shard" in _run("inspect", cut / "cut.parts" / "shard-2")
    assert "shard-4" in _run("inspect", cut / "cut.parts")


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
        (lambda d: _other_classes(d / "shard-2/labels.h5"), "shard-2: other parties, columns or classes"),
        (lambda d: _other_scaling(d / "shard-2/party-2.h5"), "shard-2: other parties, columns or classes"),
        (lambda d: _no_contents(d / "shard-1/partition.toml"), "not one digest for each party"),
    ],
)
def test_shards_that_are_no_whole_are_refused(cut, tmp_path, spoil, said):
    shutil.copytree(cut / "cut.parts", tmp_path / "cut.parts")
    shutil.copytree(cut / "whole.parts", tmp_path / "whole.parts")
    if "other" in said:
        source = _libsvm(tmp_path / "b.txt", rows=91)
        _run("convert", source, "--columns", "3,4", "-o", tmp_path / "other.parts")
        cut_partition(tmp_path / "other.parts", tmp_path / "other", 4)
    spoil(tmp_path / "cut.parts")
    refuses(FastadmmError, said, open_partition, tmp_path / "cut.parts")


def test_what_is_checked_and_not_converted(cut, tmp_path):
    parts = open_partition(cut / "cut.parts").shards
    places = [(f"rank {k}", part.shard, part.n_samples) for k, part in enumerate(parts)]
    check_shards(places)
    refuses(InputError, "rank 2: the last of 3 shards, but the whole has 90 rows", check_shards, places[:3])
    with pytest.raises(InputError, match="rank 1: begins with row 1, but row 23 comes next after rank 0"):
        check_shards([places[0], ("rank 1", *places[0][1:]), *places[1:]])
    # A partition is not converted.
    assert run("convert", cut / "whole.parts", "-o", tmp_path / "x") != 0


def _plain(block):
    return block if isinstance(block, np.ndarray) else block.toarray()


def _copy(source, target):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def _other_classes(path):
    with h5py.File(path, "r+") as file:
        file.attrs["classes"] = file.attrs["classes"][::-1]


def _other_scaling(path):
    with h5py.File(path, "r+") as file:
        del file["transform"]
        Transform(scale=np.full(4, 2.0)).to_group(file.create_group("transform"))


def _no_contents(path):
    told = tomllib.loads(path.read_text())
    del told["digest"]
    told["shard"]["content_digests"] = []
    path.write_text(tomli_w.dumps(told))


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
