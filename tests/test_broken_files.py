"""Every way we know to break a partition: the right error class, one line, file and place named."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.errors import FastadmmError, FormatError, InputError, StorageError
from fastadmm.files.digest import row_digest
from fastadmm.store.partition import create_partition, open_partition
from fastadmm.store.transform import Transform
from scipy.sparse import csr_array

from run_tools import cut, edited, overwrite, refuses, remake

N = 60


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A partition with a dense party, a sparse party and labels with weights and offsets."""
    path = tmp_path_factory.mktemp("good") / "good.parts"
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(N, 4))
    sparse = csr_array(np.where(rng.random((N, 9)) < 0.5, rng.normal(size=(N, 9)), 0.0))
    y = (np.arange(N) % 3 == 0).astype(float)
    with create_partition(path, task="classification", source="good.csv") as partition:
        scale = Transform(center=np.ones(4), scale=np.full(4, 2.0))
        names = ["age", "income", "rent", "years"]
        partition.party(kind="dense", feature_names=names, transform=scale).append(dense)
        partition.party(kind="csr", transform=Transform(normalize="l2")).append(sparse)
        partition.labels(classes=("no", "yes")).append(y, sample_weight=np.ones(N), offset=np.zeros(N))
    return path


def put(file, key, index, value):
    """Overwrite entries; HDF5 renews the checksum, so only our validation can notice."""

    def change(h5):
        h5[key][index] = value

    return edited(file, change)


def drop(file, key):
    return edited(file, lambda h5: h5.__delitem__(key))


def attr(file, key, name, value):
    return edited(file, lambda h5: h5[key].attrs.__setitem__(name, value))


def drop_attr(file, key, name):
    return edited(file, lambda h5: h5[key].attrs.__delitem__(name))


def replace(file, key, value, **options):
    """Another dataset; a function gets what was there."""

    def change(h5):
        remake(h5, key, data=value(h5[key][:]) if callable(value) else value, **options)

    return edited(file, change)


def toml(old, new, count=-1):
    def mutate(path):
        # Without its digest, as after an edit by hand: each key is checked for itself.
        lines = (path / "partition.toml").read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith("digest = "))
        assert old in text
        (path / "partition.toml").write_text(text.replace(old, new, count))

    return mutate


def flip(name, place, bits):
    """Flip bits on disk, behind HDF5's back, at a place of the dataset X."""

    def mutate(path):
        with h5py.File(path / name) as h5:
            at = place(h5["X"].id)
        raw = (path / name).read_bytes()
        (path / name).write_bytes(raw[:at] + bytes([raw[at] ^ bits]) + raw[at + 1 :])

    return mutate


def heap(first_object):
    """Damage an object size in a text heap; for the free space at its end HDF5 would loop for ever."""

    def mutate(path):
        file = path / "party-1.h5"
        raw = bytearray(file.read_bytes())
        at = raw.index(b"GCOL") + 16
        while not first_object and raw[at] != 0:
            size = int.from_bytes(raw[at + 8 : at + 16], "little")
            at += 16 + -(-size // 8) * 8
        raw[at + 8 : at + 16] = (2**40 if first_object else 0).to_bytes(8, "little")
        file.write_bytes(raw)

    return mutate


def permuted(name, ids):
    """A consistent file with permuted rows: attribute and ids agree, but not with the other files."""

    def change(h5):
        h5["obs/ids"][:] = ids
        if "X" in h5:
            h5["X"][:] = h5["X"][:][::-1]
        h5.attrs["row-digest"] = row_digest(ids)

    return edited(name, change)


def copy_party(path):
    """The first party's file again under the second name."""
    shutil.copy(path / "party-1.h5", path / "party-2.h5")
    with h5py.File(path / "party-2.h5", "r+") as h5:
        h5.attrs["name"] = "party-2"
    toml("n_features = 9", "n_features = 4")(path)
    toml('kind = "csr"', 'kind = "dense"')(path)


def hardlink_party(path):
    (path / "party-2.h5").unlink()
    os.link(path / "party-1.h5", path / "party-2.h5")


def unsorted_row(h5):
    indptr = h5["X/indptr"][:]
    row = int(np.flatnonzero(np.diff(indptr) >= 2)[3])
    start = indptr[row]
    h5["X/indices"][start : start + 2] = h5["X/indices"][start : start + 2][::-1]


def repeated_column(h5):
    indptr = h5["X/indptr"][:]
    row = int(np.flatnonzero(np.diff(indptr) >= 2)[5])
    h5["X/indices"][indptr[row] + 1] = h5["X/indices"][indptr[row]]


def decreasing_indptr(h5):
    h5["X/indptr"][10] = h5["X/indptr"][12] + 1


def missing_chunks(h5):
    remake(h5, "X", shape=(N, 4), chunks=(20, 4), dtype="<f8", fletcher32=True)
    h5["X"][:20] = 1.0


def one_text_everywhere(path):
    """A text of 2 MB is the name of every column, and stored once."""
    file = path / "party-2.h5"
    replace("party-2.h5", "var/names", np.array(["x" * (2 << 20), *"abcdefgh"], dtype=object))(path)
    with h5py.File(file) as h5:
        start = h5["var/names"].id.get_offset()
    raw = bytearray(file.read_bytes())
    raw[start : start + 16 * 9] = raw[start : start + 16] * 9
    file.write_bytes(raw)


def many_texts(h5):
    """Each may be the longest one: nobody knows before they are read."""
    h5.attrs["note"] = "x" * 50_000
    h5.attrs.create("several", ["y"] * 3_000, dtype=h5py.string_dtype())


def huge_shape(h5):
    """A small file that asks for 32 TB: must be refused before memory is allocated."""
    remake(h5, "X", shape=(10**12, 4), chunks=(10**6, 4), dtype="<f8")
    h5.attrs["n_samples"] = 10**12


def external_link(h5):
    del h5["X"]
    h5["X"] = h5py.ExternalLink("party-2.h5", "/X")


def virtual_dataset(h5):
    attributes = dict(h5["X"].attrs)
    del h5["X"]
    layout = h5py.VirtualLayout(shape=(N, 4), dtype="<f8")
    layout[:] = h5py.VirtualSource("other.h5", "X", shape=(N, 4))
    h5.create_virtual_dataset("X", layout).attrs.update(attributes)


def transform_dataset(h5):
    del h5["transform"]
    h5["transform"] = 1.0


F, I, S = FormatError, InputError, StorageError
D, C, L, T = "party-1.h5", "party-2.h5", "labels.h5", "partition.toml"


@dataclass(frozen=True)
class Case:
    """A mutation, the error it must give, the file and the words the message must hold."""

    name: str
    mutate: Callable[[Path], None]
    error: type[FastadmmError]
    file: str
    words: tuple[str, ...]


def case(name, mutate, error, file, *words):
    return pytest.param(Case(name, mutate, error, file, words), id=name)


def centred(h5):
    h5["transform"]["center"] = np.ones(9)
    h5["transform/center"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})


CASES = [
    # the manifest
    case("no manifest", lambda p: (p / T).unlink(), F, "bad.parts", "partition.toml"),
    case("manifest empty", overwrite(T, b" "), F, T, "'format'"),
    case("manifest not TOML", overwrite(T, b"format = \n\n"), F, T, "TOML", "line 1"),
    case("manifest other format", toml("fastadmm-partition", "other"), F, T, "'format'"),
    case("manifest newer version", toml('"1.0"', '"1.2"'), F, T, "'version'", "upgrade"),
    case("manifest no version number", toml('"1.0"', '"one"'), F, T, "'version'", "version one, but"),
    case("manifest n_samples text", toml(f"n_samples = {N}", 'n_samples = "60"'), F, T, "'n_samples'"),
    case("manifest n_samples other", toml(f"n_samples = {N}", "n_samples = 61"), I, D, "rows", "61"),
    case("manifest other row_digest", toml("sha256:", "sha256:0"), I, D, "'obs/ids'", "order"),
    case("manifest unknown task", toml("classification", "ranking"), F, T, "'task'"),
    case("manifest other task", toml("classification", "regression"), F, L, "'task'"),
    case("manifest without parties", toml("[[party]]", "[[nobody]]"), F, T, "'nobody'"),
    case("party listed twice by name", toml('"party-2"', '"party-1"'), F, T, "'name'", "twice"),
    case("party is the label file", toml('"party-2.h5"', '"labels.h5"'), F, T, "'file'", "twice"),
    case("file outside", toml('"party-2.h5"', '"../party-2.h5"'), F, T, "'file'", "plain"),
    case("unusable party name", toml('"party-2"', '"a/b"'), F, T, "'name'"),
    case("manifest other width", toml("n_features = 9", "n_features = 8"), F, C, "'n_features'"),
    case("manifest other kind", toml('kind = "csr"', 'kind = "dense"'), F, C, "'kind'"),
    # files of the directory
    case("party file absent", lambda p: (p / C).unlink(), S, C, "'file'"),
    case("label file absent", lambda p: (p / L).unlink(), S, L, "'file'"),
    case("party copied", copy_party, I, C, "'X'", "party-1.h5"),
    case("party hard-linked", hardlink_party, F, C, "not the file that belongs here"),
    case("party permuted", permuted(D, np.arange(N)[::-1].copy()), I, D, "'obs/ids'", "order"),
    case("labels in place of a party", lambda p: shutil.copy(p / L, p / C) and None, F, C, "encoding-type"),
    # HDF5 itself
    case("party empty", overwrite(D, b""), F, D, "'/'", "empty"),
    case("party garbage after the signature", overwrite(D, b"\x89HDF\r\n\x1a\n" + bytes(4000)), F, D, "'/'"),
    *(case(f"party truncated to {x:.0%}", cut(D, x), F, D, "key") for x in (0.02, 0.6, 0.999)),
    case("bit in a value", flip(D, lambda X: X.get_chunk_info(0).byte_offset + 100, 4),
         F, D, "'X'", "checksum"),
    case("bit in metadata", flip(C, lambda X: h5py.h5o.get_info(X).addr + 20, 255), F, C, "X"),
    case("text heap overlong", heap(True), F, D, "text heap"),
    case("text heap endless", heap(False), F, D, "text heap"),
    case("external link", edited(D, external_link), F, D, "'X'", "link"),
    case("virtual dataset", edited(D, virtual_dataset), F, D, "'X'", "another file"),
    case("missing chunks", edited(D, missing_chunks), F, D, "'X'", "chunks are missing"),
    case("huge shape", edited(D, huge_shape), F, D, "'X'", "chunks are missing"),
    # root of a party's file
    case("newer party", attr(D, "/", "encoding-version", "1.2"), F, D, "encoding-version", "upgrade"),
    case("party type absent", drop_attr(D, "/", "encoding-type"), F, D, "encoding-type"),
    case("other party name", attr(D, "/", "name", "bank"), F, D, "'name'"),
    case("n_samples other", attr(D, "/", "n_samples", 59), F, D, "'n_samples'"),
    case("row-digest wrong", attr(D, "/", "row-digest", "sha256:00"), F, D, "'row-digest'"),
    case("ids edited", put(D, "obs/ids", 5, 77), F, D, "'obs/ids'"),
    case("ids absent", drop(D, "obs/ids"), F, D, "'obs/ids'"),
    case("ids real", replace(D, "obs/ids", np.zeros(N)), F, D, "'obs/ids'"),
    case("labels in a party", edited(D, lambda h: h.__setitem__("y", np.zeros(N))), F, D, "'y'", "labels.h5"),
    case("unknown key", edited(D, lambda h: h.create_group("uns") and None), F, D, "'uns'"),
    # dense block
    case("X absent", drop(D, "X"), F, D, "'X'", "missing"),
    case("X integer", replace(D, "X", np.ones((N, 4), dtype=np.int64)), F, D, "'X'", "dtype"),
    case("X short", replace(D, "X", np.ones((N - 1, 4))), F, D, "'X'", "rows"),
    case("X other encoding", attr(D, "X", "encoding-type", "rec-array"), F, D, "'X'", "rec-array"),
    case("X newer encoding", attr(D, "X", "encoding-version", "0.3.0"), F, D, "'X'", "upgrade"),
    case("X NaN", put(D, "X", (7, 2), np.nan), I, D, "'X'", "row 8, column 3", "'rent'"),
    case("names short", replace(D, "var/names", np.array([b"a", b"b"], object)), F, D, "'var/names'"),
    case("names repeated", put(D, "var/names", 2, "age"), F, D, "'var/names'", "twice"),
    case("names empty", replace(D, "var/names", np.array([b""] * 4, object)), F, D, "'var/names'", "twice"),
    case("names not UTF-8", put(D, "var/names", 1, b"\xff\xfe"), F, D, "'var/names'", "UTF-8"),
    # transform
    case("transform a dataset", edited(C, transform_dataset), F, C, "'transform'"),
    case("transform edited", put(D, "transform/scale", 1, 3.0), F, D, "'transform'", "digest"),
    case("transform scale zero", put(D, "transform/scale", 1, 0.0), F, D, "'transform'", "scale"),
    case("transform short", replace(D, "transform/scale", np.ones(3)), F, D, "'transform'"),
    # sparse block
    case("shape text", attr(C, "X", "shape", "60x9"), F, C, "'X'", "shape"),
    case("shape short", attr(C, "X", "shape", np.array([N - 1, 9])), F, C, "'X/indptr'"),
    case("shape narrow", attr(C, "X", "shape", np.array([N, 3])), F, C, "'var/names'"),
    case("indptr start", put(C, "X/indptr", 0, 1), F, C, "'X/indptr'", "row 1"),
    case("indptr decreasing", edited(C, decreasing_indptr), F, C, "'X/indptr'", "row"),
    case("indptr end", put(C, "X/indptr", N, 10**6), F, C, "'X/indptr'", f"row {N}"),
    case("indices too large", put(C, "X/indices", 0, 9), F, C, "'X/indices'", "row 1", "column 10"),
    case("indices negative", put(C, "X/indices", 0, -1), F, C, "'X/indices'", "row 1"),
    case("indices real", replace(C, "X/indices", lambda v: v * 1.0), F, C, "'X/indices'", "dtype"),
    case("indices unsorted", edited(C, unsorted_row), F, C, "'X/indices'", "order"),
    case("indices repeated", edited(C, repeated_column), F, C, "'X/indices'", "twice"),
    case("indices short", replace(C, "X/indices", lambda v: v[:-1]), F, C, "'X/indices'", "entries"),
    case("data NaN", put(C, "X/data", 0, np.nan), I, C, "'X/data'", "row 1", "column"),
    # more than a file of this size can hold
    case("transform packed", replace(D, "transform/center", np.zeros(1 << 20), compression="gzip"), F, D,
         "'transform/center'", "claims 8388608 bytes"),
    case("names are one text", one_text_everywhere, F, C, "'var/names'", "bytes of text"),
    case("attribute of many texts", edited(D, many_texts), F, D, "3000 texts of up to 50000 bytes"),
    case("centre of sparse", edited(C, centred), F, C, "transform"),
    # labels
    case("reading edited", attr(L, "/", "reading", "no reading"), F, L, "'reading'"),
    case("label epsilon edited", attr(L, "/", "label-epsilon", -1.0), F, L, "'label-epsilon'"),
    case("y short", replace(L, "y", np.zeros(N - 1)), F, L, "'y'", "entries"),
    case("y minus one", put(L, "y", 3, -1.0), I, L, "'y'", "row 4"),
    case("y NaN", put(L, "y", 59, np.nan), I, L, "'y'", "row 60"),
    case("classes absent", drop_attr(L, "/", "classes"), F, L, "'classes'"),
    case("classes equal", attr(L, "/", "classes", ["a", "a"]), F, L, "'classes'"),
    case("classes three", attr(L, "/", "classes", ["a", "b", "c"]), F, L, "'classes'"),
    case("weight negative", put(L, "sample_weight", 1, -0.5), I, L, "'sample_weight'", "row 2"),
    case("weights zero", put(L, "sample_weight", slice(None), 0.0), I, L, "'sample_weight'", "zero"),
    case("offset NaN", put(L, "offset", 9, np.nan), I, L, "'offset'", "row 10"),
    case("features among labels", edited(L, lambda h: h.__setitem__("X", np.ones((N, 1)))), F, L, "'X'"),
]  # fmt: skip


def read_everything(path):
    partition = open_partition(path)
    for party in partition.parties:
        party.load()
        assert party.feature_names


def test_the_good_partition_is_good(good):
    read_everything(good)


@pytest.mark.representatives(52)
@pytest.mark.parametrize("broken", CASES)
def test_broken(good, tmp_path, broken):
    bad = tmp_path / "bad.parts"
    shutil.copytree(good, bad)
    broken.mutate(bad)
    with pytest.raises(FastadmmError) as caught:
        read_everything(bad)
    message = str(caught.value)
    assert type(caught.value) is broken.error, message
    assert "\n" not in message
    assert len(message) < 400
    assert broken.file in message
    for word in broken.words:
        assert word in message, message


def test_party_names_are_unique_without_regard_to_case(tmp_path):
    def build():
        with create_partition(tmp_path / "p.parts", task="regression") as partition:
            partition.party("bank")
            partition.party("Bank")

    refuses(InputError, "two parties are named", build)
    assert not list(tmp_path.iterdir())
