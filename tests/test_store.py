"""The store: round trips, streaming, atomic writes, full disks, digests, the format as documented."""

import doctest
import math
import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_directory, atomic_file
from fastadmm.files.digest import ContentDigest, row_digest
from fastadmm.store.elements import (
    CHUNK_BYTES,
    GrowingArray,
    read_array,
    read_strings,
    write_array,
    write_strings,
)
from fastadmm.store.encoder import DESCRIBED, Bins, ColumnEncoding, Encoder
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.label_file import LabelWriter, open_labels
from fastadmm.store.partition import create_partition, open_partition
from fastadmm.store.party_file import PartyWriter, open_party
from fastadmm.store.transform import Transform
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from run_tools import python, refuses, within

ROOT = Path(__file__).resolve().parents[1]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_digest_tells_every_value_place_and_name(kind):
    def digest(matrix, names="ab", dtype="float64"):
        found = ContentDigest(kind, dtype)
        found.update(csr_array(matrix) if kind == "csr" else matrix)
        return found.text(names)

    whole = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    others = [whole + [[0.5, 0.0]] * (whole[:, :1] > 0), whole[:, ::-1], whole[[1, 0, 2]], whole[:2]]
    texts = [digest(whole), *map(digest, others), digest(whole, "ac"), digest(whole, dtype="float32")]
    assert len(set(texts)) == len(texts)
    assert digest(whole.copy()) == texts[0]


@QUICK
@given(
    array=hnp.arrays(
        dtype=st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_]),
        shape=hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=20),
    ),
)
def test_array_round_trip(tmp_path, array):
    with create_h5(tmp_path / "a.h5", "fastadmm-test") as file:
        write_array(file, "a", array)
    with read_h5(tmp_path / "a.h5", "fastadmm-test") as file:
        back = read_array(file, "a")
        assert file["a"].attrs["encoding-type"] == "array"
        assert file["a"].attrs["encoding-version"] == "0.2.0"
    assert back.dtype == array.dtype
    assert back.flags.c_contiguous
    np.testing.assert_array_equal(back, array)


@QUICK
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20), max_size=20
    )
)
def test_strings_round_trip(tmp_path, strings):
    with create_h5(tmp_path / "a.h5", "fastadmm-test") as file:
        write_strings(file, "a", strings)
    with read_h5(tmp_path / "a.h5") as file:
        assert read_strings(file, "a") == strings
        assert file["a"].attrs["encoding-version"] == "0.2.0"


def test_parties_are_canonical_and_widths_known(tmp_path):
    matrix = csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    with PartyWriter(tmp_path / "a.h5", name="a", n_features=3) as writer:
        writer.append(matrix)
    assert open_party(tmp_path / "a.h5").load().toarray().tolist() == [[2.0, 0.0, 5.0]]
    assert matrix.indices.tolist() == [2, 0, 2]  # the caller's matrix is untouched
    # Width from the rows.
    tmp_path = within(tmp_path)
    for kind in ("csr", "dense"):
        with PartyWriter(tmp_path / "c.h5", name="a", kind=kind, force=True) as writer:
            writer.append(np.ones((1, 3)))
            refuses(InputError, "row 2: 4 columns instead of 3", writer.append, np.ones((1, 4)))
        assert open_party(tmp_path / "c.h5").n_features == 3
    # Verify notices consistent edits.
    tmp_path = within(tmp_path)
    with PartyWriter(tmp_path / "a.h5", name="a", n_features=2, kind="dense") as writer:
        writer.append(np.ones((3, 2)))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["X"][1, 1] = 5.0
    party = open_party(tmp_path / "a.h5")
    party.load()
    refuses(FormatError, "'content-digest' does not agree", party.verify)


@pytest.mark.parametrize("pieces", [1, 7, 1000, 10**9])
def test_chunks_are_whole_rows_of_bounded_size(tmp_path, pieces):
    values = np.arange(3 * CHUNK_BYTES // 8 + 11, dtype=np.float64).reshape(-1, 1).repeat(2, axis=1)
    step = max(1, len(values) // pieces) if pieces < 10**6 else 200_000
    with create_h5(tmp_path / "a.h5", "fastadmm-test") as file:
        growing = GrowingArray(file, "a", np.float64, (2,))
        for start in range(0, len(values), step):
            growing.append(values[start : start + step])
        growing.close()
        write_array(file, "b", values)
    with h5py.File(tmp_path / "a.h5") as file:
        for key in "ab":
            assert file[key].chunks[1] == 2
            assert 1 << 20 <= np.prod(file[key].chunks) * 8 <= 8 << 20
            assert file[key].fletcher32
            np.testing.assert_array_equal(file[key][:], values)


@QUICK
@given(
    dense=hnp.arrays(
        dtype=np.float64,
        shape=hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
        elements=st.sampled_from([0.0, 0.0, 0.5, -2.5, 3.0]),
    ),
    kind=st.sampled_from(["dense", "csr"]),
    dtype=st.sampled_from(["float64", "float32"]),
    step=st.integers(1, 5),
    sparse_input=st.booleans(),
    string_ids=st.booleans(),
)
def test_party_round_trip(tmp_path, dense, kind, dtype, step, sparse_input, string_ids):
    n, d = dense.shape
    ids = np.array([f"id-{i}-ä" for i in range(n)], dtype=object) if string_ids else np.arange(n)[::-1] * 7
    rows = csr_array(dense) if sparse_input else dense
    with PartyWriter(
        tmp_path / "p.h5", name="bank", n_features=d, kind=kind, dtype=dtype, force=True
    ) as writer:
        for start in range(0, n, step):
            writer.append(rows[start : start + step], ids=ids[start : start + step])
    party = open_party(tmp_path / "p.h5")
    assert (party.name, party.n_samples, party.n_features, party.kind) == ("bank", n, d, kind)
    loaded = party.load()
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded if kind == "dense" else loaded.toarray(), dense)
    assert party.ids().tolist() == ids.tolist()
    assert party.row_digest == row_digest(ids) == writer.row_digest
    assert party.feature_names == [f"f{i + 1}" for i in range(d)]
    party.verify()
    for rows_per_piece in (None, 1, 3, 100):
        pieces = list(party.iter_rows(rows_per_piece))
        assert pieces[0][0] == 0
        stacked = np.vstack([b if kind == "dense" else b.toarray() for _, b in pieces])
        np.testing.assert_array_equal(stacked, dense)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "row 3, column 2 \\('b'\\): value nan is not finite"),
        (np.inf, "row 3, column 2 \\('b'\\): value inf is not finite"),
        (1e300, "row 3, column 2: value 1e\\+300 does not fit float32"),
    ],
)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_append_names_row_and_column(tmp_path, kind, value, words):
    rows = np.array([[1.0, 1.0], [1.0, value]])
    with PartyWriter(
        tmp_path / "a.h5", name="a", n_features=2, kind=kind, dtype="float32", feature_names=["a", "b"]
    ) as writer:
        writer.append(np.ones((1, 2)))
        refuses(InputError, words, writer.append, rows)
        assert writer.n_samples == 1  # unchanged: a caller may skip the row and go on
        writer.append(rows[:1])
    assert open_party(tmp_path / "a.h5").n_samples == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a/b"}, "cannot name a party"),
        ({"name": "labels"}, "cannot name a party"),
        ({"kind": "coo"}, "kind 'coo'"),
        ({"dtype": "int32"}, "dtype 'int32'"),
        ({"dtype": "nonsense"}, "dtype 'nonsense'"),
        ({"n_features": 0}, "at least one"),
        ({"feature_names": ["a", "a"]}, "columns 1 and 2 are both named 'a'"),
        ({"feature_names": ["a", 3]}, "column 2: int 3 is not a string"),
        ({"feature_names": ["a", "\ud800"]}, "Unicode"),
        ({"transform": Transform(center=np.zeros(2))}, "cannot be centred"),
    ],
)
def test_unusable_options(tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        PartyWriter(tmp_path / "a.h5", **{"name": "a", **options})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "rows", "words"),
    [
        ({}, None, "no rows"),
        ({"feature_names": ["a"]}, np.ones((2, 2)), "1 names for 2 columns"),
        ({"transform": Transform(scale=np.ones(3))}, np.ones((2, 2)), "fitted on 3 columns"),
    ],
)
def test_unfinishable(tmp_path, options, rows, words):
    writer = PartyWriter(tmp_path / "a.h5", name="a", **options)  # type: ignore[arg-type]
    if rows is not None:
        writer.append(rows)
    refuses(InputError, words, writer.close)
    assert not list(tmp_path.iterdir())
    refuses(InputError, "aborted already", writer.append, np.ones((1, 2)))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (None, [1, 2], "row 3: ids change from default to int64"),
        ([1, 2], ["a", "b"], "change from int64 to utf-8"),
        ([1, 2], [1], "one id per row"),
        ([1, 2], [1.5, 2.5], "integers or text"),
    ],
)
def test_wrong_ids(tmp_path, first, second, words):
    with PartyWriter(tmp_path / "a.h5", name="a", n_features=1) as writer:
        writer.append(np.ones((2, 1)), ids=first)
        refuses(InputError, words, writer.append, np.ones((2, 1)), ids=second)


def test_labels_round_trip(tmp_path):
    with LabelWriter(tmp_path / "l.h5", task="classification", classes=("<=50K", ">50K")) as writer:
        writer.append([0, 1], sample_weight=[1.0, 0.0], offset=[0.5, -0.5], ids=["a", "b"])
        writer.append(np.array([True]), sample_weight=[2], offset=[0], ids=["c"])
    labels = open_labels(tmp_path / "l.h5")
    assert labels.y.tolist() == [0.0, 1.0, 1.0]
    assert labels.classes == ("<=50K", ">50K")
    assert labels.sample_weight.tolist() == [1.0, 0.0, 2.0]
    assert labels.offset.tolist() == [0.5, -0.5, 0.0]
    assert labels.ids().tolist() == ["a", "b", "c"]
    with LabelWriter(tmp_path / "r.h5", task="regression") as writer:
        writer.append([1.5, -2])
    labels = open_labels(tmp_path / "r.h5")
    assert (labels.task, labels.classes, labels.sample_weight) == ("regression", None, None)
    # Weights for all or none.
    tmp_path = within(tmp_path)
    with LabelWriter(tmp_path / "l.h5", task="regression") as writer:
        writer.append([1.0])
        with pytest.raises(InputError, match="'sample_weight': row 2: give it for all"):
            writer.append([1.0], sample_weight=[1.0])


@pytest.mark.parametrize(
    ("task", "classes", "y", "options", "words"),
    [
        ("classification", ("a", "b"), [0, 1, -1], {}, "row 3: value -1.0 is not 0 or 1"),
        ("classification", ("a", "b"), [0, np.nan], {}, "row 2: value nan is not finite"),
        ("classification", None, [0, 1], {}, "name the two classes"),
        ("classification", ("a", "a"), [0, 1], {}, "two different labels"),
        ("regression", ("a", "b"), [0, 1], {}, "regression has no classes"),
        ("ranking", None, [0, 1], {}, "task 'ranking'"),
        ("regression", None, ["x", "y"], {}, "must be numbers"),
        ("regression", None, [[1.0]], {}, "2 dimensions"),
        ("regression", None, [], {}, "no labels"),
        ("regression", None, [1.0], {"sample_weight": [-1.0]}, "row 1: value -1.0 is negative"),
        ("regression", None, [1.0], {"sample_weight": [0.0]}, "all weights are zero"),
        ("regression", None, [1.0], {"offset": [np.inf]}, "'offset': row 1"),
        ("regression", None, [1.0], {"offset": [0.0, 0.0]}, "2 values for 1 labels"),
    ],
)
def test_wrong_labels(tmp_path, task, classes, y, options, words):
    def write():
        with LabelWriter(tmp_path / "l.h5", task=task, classes=classes) as writer:
            writer.append(y, **options)  # type: ignore[arg-type]

    refuses(InputError, words, write)
    assert not list(tmp_path.iterdir())


def build(path, *, force=False, fail=False, n=20):
    rng = np.random.default_rng(n)
    with create_partition(path, task="regression", source="/some/where/x.csv", force=force) as partition:
        partition.party(kind="dense").append(rng.normal(size=(n, 3)))
        partition.party("shop", n_features=4).append(rng.normal(size=(n, 4)))
        partition.labels().append(rng.normal(size=n))
        if fail:
            raise KeyboardInterrupt


def test_partitions_with_and_without_labels(tmp_path):
    build(tmp_path / "a.parts")
    partition = open_partition(tmp_path / "a.parts")
    assert [party.name for party in partition.parties] == ["party-1", "shop"]
    assert partition.source == "x.csv"
    assert partition.labels.row_digest == partition.row_digest == row_digest(np.arange(20))
    text = (tmp_path / "a.parts" / "partition.toml").read_text()
    assert text.count("[[party]]") == 2
    assert "/some" not in text
    assert list(tmp_path.rglob(".*")) == []
    tmp_path = within(tmp_path)
    with create_partition(tmp_path / "a.parts", task="regression") as partition:
        partition.party(n_features=1).append(np.ones((2, 1)))
    assert open_partition(tmp_path / "a.parts", require_labels=False).labels is None
    refuses(InputError, "has no labels", open_partition, tmp_path / "a.parts")


def test_force_spares_what_is_not_ours(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("dear")
    refuses(StorageError, "not replaced: it holds no partition", build, tmp_path / "home", force=True)
    build(tmp_path / "a.parts")
    (tmp_path / "a.parts" / "notes.txt").write_text("dear")
    refuses(StorageError, r"also holds notes\.txt", build, tmp_path / "a.parts", force=True)
    (tmp_path / "file").write_text("dear")
    refuses(StorageError, "not a directory", build, tmp_path / "file", force=True)
    (tmp_path / "empty").mkdir()
    build(tmp_path / "empty")
    assert open_partition(tmp_path / "empty").n_samples == 20


def test_partition_refuses_what_does_not_fit(tmp_path):
    def write(kind):
        with create_partition(tmp_path / "a.parts", task="regression") as partition:
            if kind == "empty":
                return
            partition.party(n_features=1).append(np.ones((3, 1)), ids=[3, 1, 2])
            if kind == "copy":
                partition.party(n_features=1).append(np.ones((3, 1)), ids=[3, 1, 2])
            if kind == "order":
                partition.labels().append(np.ones(3), ids=[1, 2, 3])
            if kind == "length":
                partition.labels().append(np.ones(2), ids=[3, 1])
            if kind == "twice":
                partition.labels()
                partition.labels()
            if kind == "aborted":
                partition.party(n_features=1).abort()

    for kind, words in {
        "empty": "at least one party",
        "copy": r"party-2\.h5: key 'X': same columns and names as party-1\.h5",
        "order": r"labels\.h5: key 'obs/ids': other samples or another order",
        "length": r"labels\.h5: .* has 2 rows, but party-1\.h5 has 3",
        "twice": "one label file only",
        "aborted": r"party-2\.h5: was given up",
    }.items():
        assert ".tmp" not in refuses(InputError, words, write, kind)  # the path as the user knows it
        assert not list(tmp_path.iterdir())


def test_atomic_files_and_missing_parents(tmp_path):
    def write(text, *, fail=False, force=True):
        with atomic_file(tmp_path / "a", force=force) as temporary:
            temporary.write_text(text)
            if fail:
                raise RuntimeError("x")

    write("one")
    refuses(RuntimeError, "", write, "two", fail=True)
    refuses(StorageError, "exists already", write, "two", force=False)
    assert (tmp_path / "a").read_text() == "one"
    (tmp_path / "link").symlink_to("a")
    with atomic_file(tmp_path / "link") as temporary:
        temporary.write_text("through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "through"
    assert sorted(os.listdir(tmp_path)) == ["a", "link"]
    # Missing parent and directory as file.
    absent = tmp_path / "x" / "y"
    with pytest.raises(StorageError, match="create the directory first"), atomic_directory(absent):
        pass
    with pytest.raises(StorageError, match="is a directory"), atomic_file(tmp_path):
        pass
    refuses(StorageError, "is a directory", open_party, tmp_path)
    refuses(StorageError, "no such directory", open_partition, tmp_path / "none")
    refuses(StorageError, "check the path", open_labels, tmp_path / "none.h5")


def test_transforms_agree_copy_and_keep_types(tmp_path):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((30, 6)) < 0.5, rng.normal(size=(30, 6)), 0.0)
    dense[4] = 0.0
    transform = Transform(normalize="l2", scale=rng.uniform(1, 3, size=6))
    out = transform.apply(dense)
    norms = np.linalg.norm(out, axis=1)
    zero = ~dense.any(axis=1)
    np.testing.assert_allclose(norms[~zero], 1.0)
    assert (norms[zero] == 0.0).all()
    np.testing.assert_allclose(transform.apply(csr_array(dense)).toarray(), out, atol=1e-15)
    centred = Transform(center=np.arange(6.0), scale=np.full(6, 2.0)).apply(dense)
    np.testing.assert_allclose(centred, (dense - np.arange(6)) / 2)
    refuses(InputError, "cannot be centred", Transform(center=np.zeros(6)).apply, csr_array(dense))
    refuses(InputError, "has 5 columns, but the transform was fitted on 6", transform.apply, dense[:, :5])
    # Transform copies and keeps types.
    X = np.ones((2, 2), dtype=np.float32)
    assert Transform(normalize="l2").apply(X).dtype == np.float32
    assert Transform().apply(np.ones((2, 2), dtype=np.int8)).dtype == np.float64
    same = Transform().apply(X)
    same[0, 0] = 9
    assert X[0, 0] == 1
    sparse = csr_array(X)
    Transform().apply(sparse).data[:] = 9
    assert sparse.data[0] == 1
    # Transform on disk and digest.
    transforms = [
        Transform(),
        Transform(normalize="l2"),
        Transform(center=np.zeros(3)),
        Transform(scale=np.ones(3)),
        Transform(center=np.zeros(3), scale=np.ones(3), normalize="l2"),
    ]
    assert len({transform.digest() for transform in transforms}) == 5
    with create_h5(tmp_path / "a.h5", "fastadmm-test") as file:
        for i, transform in enumerate(transforms):
            transform.to_group(file.create_group(f"t{i}"))
    with read_h5(tmp_path / "a.h5") as file:
        assert [Transform.from_group(file[f"t{i}"]) for i in range(5)] == transforms
    assert [transform.is_identity for transform in transforms] == [True, False, False, False, False]


@pytest.mark.parametrize("size", [1e-200, 1e200, 1.0])
def test_norms_neither_overflow_nor_vanish(size):
    X = np.array([[3.0, 4.0]]) * size
    expected = [[0.6, 0.8]]
    np.testing.assert_allclose(Transform(normalize="l2").apply(X), expected)
    np.testing.assert_allclose(Transform(normalize="l2").apply(csr_array(X)).toarray(), expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"normalize": "l1"}, "'l1'"),
        ({"scale": [1.0, 0.0]}, "scale of column 2 is 0.0"),
        ({"scale": [1.0, -1.0]}, "scale of column 2"),
        ({"center": [np.nan]}, "center of column 1 is nan"),
        ({"center": [[1.0]]}, "center must be a vector"),
        ({"center": ["x"]}, "center must be a vector"),
        ({"center": [1.0], "scale": [1.0, 2.0]}, "scale must be a vector with a number for each column"),
    ],
)
def test_wrong_transforms(options, words):
    refuses(InputError, words, Transform, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import fastadmm.store as s; s.open_partition, s.PartyWriter, s.Transform", "pandas sklearn numba"),
        ("import fastadmm.reports, fastadmm.cli.report", "jinja2 sklearn"),
        (
            "import fastadmm.problem.losses as a, fastadmm.solver.metrics as b\n"
            "b.quick_of(a.get_loss('squared'), [0.0], [1.0])",
            "sklearn",
        ),
    ],
)
def test_imports_are_light(code, heavy):
    done = python(f"import sys\n{code}\nprint({set(heavy.split()) | {'matplotlib'}} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_documented_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, tried = doctest.testfile(
        str(ROOT / "docs" / "file-format.md"), module_relative=False, optionflags=doctest.ELLIPSIS
    )
    assert tried > 10
    assert failures == 0


@pytest.mark.parametrize("key", ["fill", "low", "reading", "other", "levels", "bins"])
@pytest.mark.parametrize("value", ["1.5", None, [1.0], {}], ids=str)
def test_encoders_of_other_types_are_refused(key, value):
    document = Encoder((ColumnEncoding("a"),)).to_json()
    if value or key not in ("levels", "bins", "reading"):  # else nothing is said
        document["columns"][0][key] = value
        refuses(FormatError, "encoder", Encoder.from_json, document, "x.json: encoder")


BINS = Bins((0.5,), (), (0.1, 0.2, 0.0), (1.0, 2.0, 0.0), (2.0, 1.0, 0.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"reading": "zzz"},
        {"low": 1.0},
        {"other": 3},
        *({"bins": replace(BINS, **own)} for own in ({"edges": (0.5, 0.1)}, {"woe": (0.1, math.inf, 0.0)})),
        *({"bins": replace(BINS, **own)} for own in ({"events": (1.0,)}, {"groups": (0, 7)})),
    ],
    ids=str,
)
def test_encoders_that_cannot_be_applied_are_refused(wrong, tmp_path):
    """Whatever their digest says: anybody can write one."""
    encoder = Encoder((ColumnEncoding("a", **wrong),), DESCRIBED)
    with pytest.raises(FormatError, match="encoder"):
        Encoder.from_json(encoder.to_json(), "x.json: encoder")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        encoder.to_group(file.create_group("encoder"))
        refuses(FormatError, "encoder", Encoder.of_file, file)
