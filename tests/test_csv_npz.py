"""CSV and NPZ readers."""

import gzip

import numpy as np
import pytest
from fastadmm.data_tools import matrices, opening, tables
from fastadmm.data_tools.matrices import NpzSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.owners import CsvSource
from fastadmm.data_tools.per_table import TableOptions
from fastadmm.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def collect(source):
    blocks = list(source.blocks())
    X = [block.X if isinstance(block.X, np.ndarray) else block.X.toarray() for block in blocks]
    return np.concatenate(X), np.concatenate([block.labels for block in blocks])


# --- CSV -------------------------------------------------------------------------------------------------
#: Those that are written as whole numbers above 2**53 are refused.
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not 2.0**53 <= abs(x) < 1e16)


@settings(max_examples=30, deadline=None)
@given(
    table=st.lists(
        st.lists(FLOATS, min_size=3, max_size=3),
        min_size=1,
        max_size=20,
    ),
    newline=st.sampled_from(["\n", "\r\n"]),
    quote=st.sampled_from(["", '"']),
    blank=st.booleans(),
)
def test_csv_keeps_every_bit(tmp_path_factory, table, newline, quote, blank):
    lines = ["a,y,b"] + [
        ",".join(f"{quote}{v!r}{quote}" for v in row) + (newline if blank else "") for row in table
    ]
    source = write(tmp_path_factory.mktemp("csv") / "a.csv", newline.join(lines))
    X, y = collect(CsvSource(source, TableOptions(label="y")))
    np.testing.assert_array_equal(np.column_stack([X[:, 0], y, X[:, 1]]), np.array(table))


def test_csv_variants_and_encodings(tmp_path):
    expected = [[1.0, 2.0], [3.0, 4.0]]
    texts = {
        "bom.csv": b"\xef\xbb\xbfa,y,b\n1,0,2\n3,1,4\n",
        "gz.csv.gz": gzip.compress(b"a,y,b\n1,0,2\n3,1,4\n"),
        "spaces.csv": b"a , y,b\n 1,0 ,2\n3, 1,4\n",
        "quoted.csv": b'"a","y","b"\n1,0,2\n3,1,"4"\n',
        "mac.csv": b"a,y,b\r1,0,2\r3,1,4\r",
        "break.csv": b'"a","y","b"\n"1",0,"2\n"\n3,1,4\n',
    }
    for name, text in texts.items():
        X, y = collect(CsvSource(write(tmp_path / name, text), TableOptions(label="y")))
        np.testing.assert_array_equal(X, expected, err_msg=name)
        np.testing.assert_array_equal(y, [0, 1], err_msg=name)
    source = write(tmp_path / "semi.csv", "a;y;b\n1;0;2\n3;1;4")
    np.testing.assert_array_equal(
        collect(CsvSource(source, TableOptions(separator=";", label="y")))[0], expected
    )
    # Csv not utf8.
    source = write(tmp_path / "a.csv", b"a,b,y\n1,1,0\n1,\xff,1\n")
    with pytest.raises(InputError, match=r"line 3, column 'b': 'ÿ' is not a number"):
        CsvSource(source, TableOptions(label="y"))
    np.testing.assert_array_equal(
        collect(CsvSource(source, TableOptions(label="y", drop=["b"])))[0], [[1], [1]]
    )
    latin = CsvSource(write(tmp_path / "b.csv", b"a,\xff\n1,1\n"), TableOptions(label="ÿ"))
    assert collect(latin)[1].tolist() == [1]
    assert "read as cp1252" in latin.table.notes[0]


GOOD = "1,2,0\n" * 30


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,,0", "line 32, column 'b': empty cell"),
        ("1,x,0", "line 32, column 'b': 'x' is not a number"),
        ("1,nan,0", "line 32, column 'b': empty cell"),
        ("NA,1,0", "line 32, column 'a': empty cell"),
        ("-inf,1,0", "line 32, column 'a': '-inf' is not finite"),
        ("1e999,1,0", "line 32, column 'a': '1e999' is not finite"),
        ("1_0,1,0", "line 32, column 'a': '1_0' is not a number"),
        ("1,True,0", "line 32, column 'b': 'True' is not a number"),
        ("1,2", "line 32: 2 cells, but there are 3 columns"),
        ("1,2,0,", "line 32: 4 cells, but there are 3 columns"),
        ("1,2,0,9", "line 32: 4 cells, but there are 3 columns"),
        ("1,2,", "line 32, label column 'y': missing label .1 of 61 rows"),
        ("1,2,NaN", "line 32, label column 'y': missing label .1 of 61 rows"),
        ("1,2,inf", "line 32, column 'y': 'inf' is not finite"),
        ('1,"2,0', "line 32: a quote is opened and never closed"),
        ("1,2\x00,0", "line 32, column 'b': '2.x00' holds a NUL character"),
        ("   ", "line 32: 1 cells"),
    ],
)
@pytest.mark.parametrize("large", [0, 1 << 30])
def test_csv_faults_name_line_and_column(tmp_path, monkeypatch, line, message, large):
    monkeypatch.setattr(tables, "LARGE", large)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 40)
    text = "a,b,y\n" + GOOD + line + "\n" + ("" if '"' in line else GOOD)
    with pytest.raises(InputError, match=f"bad.csv: {message}"):
        CsvSource(write(tmp_path / "bad.csv", text), TableOptions(label="y"))


# --- NPZ -------------------------------------------------------------------------------------------------
def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return SourceFile(path)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.uint8, ">f8", bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_dense(tmp_path, dtype, order, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 20)
    X = np.asarray(np.arange(60).reshape(12, 5) % 7, dtype=dtype, order=order)
    y = np.arange(12)[:, None]
    got, labels = collect(NpzSource(save(tmp_path / "a.npz", X=X, y=y)))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(labels, np.arange(12))


@pytest.mark.parametrize("layout", ["plain", "scipy"])
def test_npz_csr(tmp_path, layout, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 7)
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 3, (30, 9)) * (rng.random((30, 9)) < 0.4)
    dense[4] = 0
    X = sparse.csr_matrix(dense)
    X.indices, X.data = X.indices.copy(), X.data.copy()
    for i in range(30):  # any order within a row is legal in SciPy
        row = slice(X.indptr[i], X.indptr[i + 1])
        X.indices[row], X.data[row] = X.indices[row][::-1].copy(), X.data[row][::-1].copy()
    extra = {"format": np.array(b"csr")} if layout == "scipy" else {}
    more = {"shape": np.array(X.shape), "y": dense[:, 0]}
    source = save(tmp_path / "a.npz", data=X.data, indices=X.indices, indptr=X.indptr, **extra, **more)
    reader = NpzSource(source)
    assert reader.kind == "csr"
    for block in reader.blocks():
        assert block.X.has_canonical_format
    np.testing.assert_array_equal(collect(reader)[0], dense)


def test_npz_damage(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", X=rng.random((2000, 3)), y=rng.random(2000))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    with pytest.raises(InputError, match="damaged or truncated NPZ"):
        NpzSource(SourceFile(write(tmp_path / "cut.npz", bytes(data[:30000]))))
    data[30000] ^= 1
    with pytest.raises(InputError, match="array 'X' is damaged: Bad CRC"):
        NpzSource(SourceFile(write(tmp_path / "flip.npz", bytes(data))))
