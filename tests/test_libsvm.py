"""LIBSVM reader: against a naive twin, at block boundaries, and its messages."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from fastadmm.data_tools import matrices, opening
from fastadmm.data_tools.matrices import LibsvmSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from run_tools import refuses


def naive(text, width, zero_based=False):
    """The obvious parser."""
    X, y = [], []
    for line in text.splitlines():
        tokens = line.split("#")[0].split()
        if tokens:
            y.append(float(tokens[0]))
            row = np.zeros(width)
            for token in tokens[1:]:
                index, value = token.split(":")
                row[int(index) - (0 if zero_based else 1)] = float(value)
            X.append(row)
    return np.array(X).reshape(len(y), width), np.array(y)


def read(path, block_bytes=opening.BLOCK_BYTES, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "BLOCK_BYTES", block_bytes)
        blocks = list(LibsvmSource([SourceFile(path)], **options).blocks())
    width = max(block.X.shape[1] for block in blocks)
    parts = []
    for block in blocks:
        assert block.X.has_sorted_indices
        parts.append(
            sparse.csr_array(
                (block.X.data, block.X.indices, block.X.indptr), shape=(len(block.labels), width)
            )
        )
    return sparse.vstack(parts).toarray(), np.concatenate([block.labels for block in blocks])


values = st.floats(allow_nan=False, allow_infinity=False).filter(lambda v: v != 0)
rows = st.lists(
    st.tuples(
        st.floats(-1e6, 1e6),
        st.dictionaries(st.integers(1, 12), values, max_size=6),
        st.sampled_from(["", " # c", "\n", "\n#x"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(8, 200), st.sampled_from(["\n", "\r\n"]))
def test_equals_naive_twin(tmp_path_factory, data, block, newline):
    text = ""
    for label, features, tail in data:
        cells = [repr(label)] + [f"{i}:{features[i]!r}" for i in sorted(features)]
        text += " ".join(cells) + tail + "\n"
    path = tmp_path_factory.mktemp("svm") / "a.txt"
    path.write_bytes(text.replace("\n", newline).encode())
    X, y = read(path, n_features=12, block_bytes=block)
    expected_X, expected_y = naive(text, 12)
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)


@pytest.mark.parametrize(
    "compress",
    [bytes, gzip.compress, bz2.compress, lzma.compress, lambda b: bz2.compress(b[:9]) + bz2.compress(b[9:])],
    ids=["plain", "gzip", "bzip2", "xz", "two streams"],
)
def test_compression_is_found_by_content(tmp_path, compress):
    path = tmp_path / "misleading.txt"
    path.write_bytes(compress(b"-1 1:0.5 3:2\n+1 2:1e-3\n"))
    X, y = read(path)
    np.testing.assert_array_equal(X, [[0.5, 0, 2], [0, 1e-3, 0]])
    np.testing.assert_array_equal(y, [-1, 1])


def test_lines_without_end_comments_and_zero_based_columns(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"# head\n\n1 1:1 # tail\n   \n-1\n2 2:5")
    X, y = read(path)
    np.testing.assert_array_equal(X, [[1, 0], [0, 0], [0, 5]])
    np.testing.assert_array_equal(y, [1, -1, 2])
    path.write_bytes(b"1 0:7 2:1\n0 1:1\n")
    X, _ = read(path, zero_based=True)
    np.testing.assert_array_equal(X, [[7, 0, 1], [0, 1, 0]])
    refuses(InputError, r"line 1: index 0, .*--set zero_based=true", read, path)
    # Huge index without declared features.
    path.write_bytes(b"1 1:1\n0 1999999999:1\n")
    refuses(InputError, r"line 2: index '1999999999' asks for more than .*--features", read, path)
    monkeypatch.setattr(opening, "MAX_LINE_BYTES", 1 << 12)
    path = tmp_path / "a"
    path.write_bytes(GOOD + bytes(1 << 14))
    refuses(InputError, "line 51 is longer than", read, path, block_bytes=1 << 10)


GOOD = b"1 1:1 2:1\n" * 50


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 1:1e999", "line 51: '1:1e999' is not index:value"),
        (b"1 1:1_0", "line 51: '1:1_0'"),
        (b"1 2:1 2:1", "line 51: index 2 is repeated"),
        (b"1 99999999999999999999999:1", "line 51: index '9+' is out of range"),
        (b"\xff\xfe 1:1", "line 51: label"),
        (b"1 1:1\x002", "line 51: "),
    ],
)
@pytest.mark.parametrize("block", [64, 1 << 20])
def test_faults_name_line_and_token(tmp_path, line, message, block):
    path = tmp_path / "bad.txt"
    path.write_bytes(GOOD + line + b"\n" + GOOD)
    refuses(InputError, f"bad.txt: {message}", read, path, n_features=5, block_bytes=block)


@pytest.mark.parametrize("most", [0, 1 << 14, 1 << 30])
def test_what_is_kept_comes_back_to_the_last_bit(tmp_path, monkeypatch, most):
    monkeypatch.setattr(matrices, "CACHE_BYTES", most)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 2000)
    rng = np.random.default_rng(0)
    lines = [f"{i % 3} " + " ".join(f"{j}:{v!r}" for j, v in enumerate(rng.normal(size=i % 9).tolist(), 1))
             for i in range(500)]  # fmt: skip
    (tmp_path / "a.svm").write_text("\n".join(lines))
    source = LibsvmSource([SourceFile(tmp_path / "a.svm")], scratch=tmp_path)
    first, again = (list(source.blocks()) for _ in range(2))
    assert len(first) > 10
    for one, other in zip(first, again, strict=True):
        assert one.X.shape == other.X.shape
        for key in ("data", "indices", "indptr"):
            a, b = getattr(one.X, key), getattr(other.X, key)
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
        assert one.labels.tobytes() == other.labels.tobytes()
