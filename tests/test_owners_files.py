"""Rows of a file become owners: sizes, a column, separate files; overlap; faults."""

import re

import h5py
import numpy as np
import pytest
from fastadmm.data_tools.owners import convert_owners
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.store.elements import write_array
from fastadmm.store.owner_file import open_owner, open_owners, record_digests, shared_rows
from scipy import sparse

from owners_data import write_owners
from run_tools import refuses, within

CSV = {"label": "sick"}


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["age,bmi,clinic,sick"]
    for i in range(40):
        clinic = ("north", "south west", "7")[i % 3]
        a, b = rng.normal(size=2)
        lines.append(f"{a},{b},{clinic},{'yes' if rng.random() < 0.5 else 'no'}")
    path = tmp_path / "all.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(owner):
    return np.concatenate([block for _, block in owner.iter_rows(7)])


def raw(path):
    return np.array([[float(v) for v in line.split(",")[:2]] for line in path.read_text().splitlines()[1:]])


def test_by_sizes_and_by_a_column(table, tmp_path):
    data = convert_owners([table], tmp_path / "o", sizes=[10, 30], label="sick", drop=["clinic"])
    assert data.names == ["owner-1", "owner-2"]
    assert [o.n_samples for o in data.owners] == [10, 30]
    X = np.concatenate([rows(o) for o in data.owners])
    assert (raw(table) == X).all()
    assert set(np.concatenate([o.targets() for o in data.owners])) == {-1.0, 1.0}
    assert data.classes == ("no", "yes")
    assert data.kappa == 1
    tmp_path = within(tmp_path)
    data = convert_owners([table], tmp_path / "o", by="clinic", **CSV)
    assert data.names == ["7", "north", "south-west"]
    assert (rows(data.owners[1]) == raw(table)[0::3]).all()
    assert data.owners[0].feature_names == ["age", "bmi"]


def test_one_file_each_with_names(tmp_path):
    for name, count in (("a", 3), ("b", 5)):
        text = "x,y\n" + "".join(f"{i},{i * 0.5 + count}\n" for i in range(count))
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(ConfigError, match="--missing: is not for owners of rows"):
        convert_owners([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "o", label="y", missing="mean")
    data = convert_owners([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "o", label="y", names="p,q")
    assert data.names == ["p", "q"]
    assert data.task == "regression"
    assert data.owners[1].targets().tolist() == [5.0, 5.5, 6.0, 6.5, 7.0]


@pytest.mark.parametrize("kind", ["libsvm", "npz", "npz-csr"])
def test_other_formats(tmp_path, kind):
    rng = np.random.default_rng(1)
    X = sparse.random_array((20, 6), density=0.3, rng=rng, format="csr")
    X[0, 5] = 1.0
    X = X.tocsr()
    y = np.where(rng.random(20) < 0.5, -1, 1)
    path = tmp_path / ("d.txt" if kind == "libsvm" else "d.npz")
    who = np.arange(20) % 2
    if kind == "libsvm":
        from sklearn.datasets import dump_svmlight_file

        dump_svmlight_file(X, y, str(path), zero_based=False)
    elif kind == "npz":
        np.savez(path, X=X.toarray(), y=y, who=who)
    else:
        np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y, who=who)
    if kind == "libsvm":
        data = convert_owners([path], tmp_path / "o", sizes=[8, 12])
        expected = [slice(0, 8), slice(8, 20)]
    else:
        data = convert_owners([path], tmp_path / "o", by="who")
        expected = [who == 0, who == 1]
    for owner, chosen in zip(data.owners, expected, strict=True):
        assert owner.kind == ("dense" if kind == "npz" else "csr")
        for _, block in owner.iter_rows():
            block = block if isinstance(block, np.ndarray) else block.toarray()
            assert block == pytest.approx(X.toarray()[chosen])
        assert (owner.targets() == y[chosen]).all()


def test_overlap_is_refused_or_counted(tmp_path):
    lines = [f"{i},{i % 2}\n" for i in range(6)]
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(lines[:4]))
    (tmp_path / "b.csv").write_text("x,y\n-0.0,0\n" + "".join(lines[3:]))
    sources = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(InputError, match=r"2 records are with several owners; rows 1 .* 5 "):
        convert_owners(sources, tmp_path / "o", label="y")
    assert not (tmp_path / "o").exists()
    data = convert_owners(sources, tmp_path / "o", label="y", overlap="count")
    assert data.kappa == 2


def stored_in_other_ways(tmp_path, X, y):
    """The same records: dense, sparse, as float32, with explicit zeros, -0 and indices in another order."""
    np.savez(tmp_path / "dense.npz", X=X, y=y)
    np.savez(tmp_path / "short.npz", X=np.where(X == 0.0, -0.0, X).astype(np.float32), y=y)
    csr = sparse.csr_array(X)
    for name, matrix in (("sparse", csr), ("full", with_zeros(X))):
        arrays = {key: getattr(matrix, key) for key in ("data", "indices", "indptr")}
        np.savez(tmp_path / f"{name}.npz", **arrays, shape=X.shape, y=y)
    (tmp_path / "t.libsvm").write_text(
        "".join(
            f"{label:+d} " + " ".join(f"{j + 1}:{row[j]!r}" for j in np.flatnonzero(row)) + "\n"
            for label, row in zip(y.tolist(), X.tolist(), strict=True)
        )
    )
    return [tmp_path / name for name in ("dense.npz", "short.npz", "sparse.npz", "full.npz", "t.libsvm")]


def with_zeros(X):
    n, d = X.shape
    backwards = np.tile(np.arange(d)[::-1], n)
    return sparse.csr_array((X[:, ::-1].ravel(), backwards, np.arange(0, n * d + 1, d)), shape=X.shape)


def test_a_record_is_the_same_however_it_is_stored(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(12, 5)) * (rng.random((12, 5)) < 0.6)
    y = rng.integers(0, 2, 12)
    y[:2] = 0, 1
    paths = stored_in_other_ways(tmp_path, X, y)
    options = {"overlap": "count"}
    for other in paths[1:]:
        with pytest.raises(InputError, match="12 records are with several owners"):
            convert_owners([paths[0], other], tmp_path / "o")
        assert convert_owners([paths[0], other], tmp_path / "o", force=True, **options).kappa == 2


def test_directories_that_older_versions_scaled_open(tmp_path):
    folder, _ = write_owners(tmp_path / "o", sizes=(3, 4), d=2)
    for name in "ab":
        with h5py.File(folder / f"{name}.h5", "a") as file:
            write_array(file["recipe"], "scale", np.array([2.0, 4.0]))
    with open(folder / "owners.toml", "a") as file:
        file.write("public_share = 0.05\nrepeated_records = 0\n")
    assert open_owners(folder).owners[1].recipe["scale"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("lines", "more", "flipped"),
    [(41, 0, False), (13, 0, False), (41, 1, True), (13, 40, False), (41, 900, False)],
)
def test_rows_of_owners_are_no_public_file(tmp_path, lines, more, flipped):
    rng = np.random.default_rng(1)
    values = [*rng.normal(size=(2, 40)), rng.integers(0, 2, 40)]
    text = [f"{a},{b},{c}\n" for a, b, c in zip(*values, strict=True)]
    copied = [f"{line[:-2]}{1 - int(line[-2])}\n" if flipped else line for line in text[: lines - 1]]
    others = [f"{a},{b},0\n" for a, b in rng.normal(size=(more, 2))]

    def digests(rows):
        return record_digests(np.loadtxt(rows, delimiter=",")[:, :2])

    reason = shared_rows(digests([*reversed(copied), *others]), digests(text))[1]
    assert re.search(r"every row of it is a row of an owner|at most 10.0% may", reason)
    # Rows that no owner has are another matter.
    assert shared_rows(digests(text[20:]), digests(text[:20])) == (0.0, "")
    assert shared_rows(digests(text[19:]), digests(text[:20])) == (1 / 20, "")


def test_arrays_that_name_no_owners(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.ones((4, 2)), y=[0, 1, 0, 1])
    for by, words in (("who", "--by: no array 'who'"), ("y", "--by 'y': this array holds the labels")):
        refuses(InputError, words, convert_owners, [tmp_path / "t.npz"], tmp_path / "o", by=by)


def test_damage_is_found(table, tmp_path):
    data = convert_owners([table], tmp_path / "o", by="clinic", **CSV)
    path = data.owners[0].path
    with h5py.File(path, "a") as file:
        file["y"][3] = 0.5
    with pytest.raises(InputError, match=r"row 4: value 0\.5 is not -1 or 1"):
        open_owner(path).targets()
    with h5py.File(path, "a") as file:
        file.attrs["name"] = "somebody"
    refuses(FormatError, "is the file of 'somebody'", open_owners, data.path)
    (data.path / "owners.toml").write_text("format = 3")
    refuses(FormatError, r"owners\.toml: key 'version': is missing", open_owners, data.path)
    refuses(FastadmmError, r"no owners\.toml", open_owners, tmp_path)
