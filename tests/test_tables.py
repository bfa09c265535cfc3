"""Tables with ids: types, categories, missing values, replay on new tables, and every mistake in one line."""

import re

import numpy as np
import pytest
from fastadmm.data_tools.alignment import canonical_order
from fastadmm.data_tools.convert import convert as convert_source
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.label_columns import write_label_table
from fastadmm.data_tools.per_table import TableRows
from fastadmm.errors import ConfigError, InputError
from fastadmm.runs.evaluate import evaluate_partition, evaluate_tables
from fastadmm.store.label_file import open_labels
from fastadmm.store.partition import open_partition

from run_tools import printed, refuses, run

BANK = "id,y,age,city\n7,yes,30,Rome\n3,no,40,Oslo\n5,yes,50,Rome\n9,no,20,Bern\n"
SHOP = "id,orders\n9,1\n7,2\n4,9\n3,4\n"


@pytest.fixture
def pair(tmp_path):
    (tmp_path / "bank.csv").write_text(BANK)
    (tmp_path / "shop.csv").write_text(SHOP)
    return tmp_path / "bank.csv", tmp_path / "shop.csv"


def convert(bank, shop, out="p", **options):
    return convert_tables(bank, [shop], bank.parent / out, **{"id": "id", "label": "y", **options})


def test_rows_are_joined_by_id_in_numeric_order(pair):
    partition = convert(*pair)
    guest, host = partition.parties
    np.testing.assert_array_equal(guest.ids(), [3, 7, 9])
    assert guest.feature_names == ["age", "city=Bern", "city=Oslo", "city=Rome"]
    np.testing.assert_array_equal(guest.load(), [[40, 0, 1, 0], [30, 0, 0, 1], [20, 1, 0, 0]])
    np.testing.assert_array_equal(host.load(), [[4], [2], [1]])
    np.testing.assert_array_equal(partition.labels.y, [0, 1, 0])
    assert partition.labels.classes == ("no", "yes")


def test_statistics_come_from_joined_rows_alone(pair):
    # Row 5 of the bank (age 50) is in no other table: neither mean nor median may see it.
    guest = convert(*pair, standardize=True).parties[0]
    assert guest.transform.center is not None
    assert guest.transform.center[0] == pytest.approx(30.0)


def test_ids_that_are_text_are_sorted_by_code_point(tmp_path):
    (tmp_path / "a.csv").write_text("id,y,u\nb,1,1\n007,0,2\na,0,3\nä,1,4\n")
    (tmp_path / "b.csv").write_text("id,v\na,1\nä,2\n007,3\n7,4\nb,5\n")
    partition = convert(tmp_path / "a.csv", tmp_path / "b.csv")
    assert partition.parties[1].ids().tolist() == ["007", "a", "b", "ä"]


@pytest.mark.parametrize(
    ("missing", "number", "category"),
    [("mean", 3.0, [1, 0]), ("median", 2.0, [1, 0]), ("most-frequent", 1.0, [1, 0])],
)
def test_missing_values_are_filled(tmp_path, missing, number, category):
    (tmp_path / "a.csv").write_text("id,y,u,c\n1,0,1,a\n2,1,1,a\n3,0,3,b\n4,1,7,a\n5,0,NA,\n")
    (tmp_path / "b.csv").write_text("id,v\n1,1\n2,2\n3,3\n4,4\n5,5\n")
    partition = convert(tmp_path / "a.csv", tmp_path / "b.csv", missing=missing)
    np.testing.assert_array_equal(partition.parties[0].load()[4], [number, *category])


def test_missing_values_get_an_indicator(tmp_path):
    (tmp_path / "a.csv").write_text("id,y,u,c,w\n1,0,1,a,5\n2,1,3,b,5\n3,0,,n/a,6\n")
    (tmp_path / "b.csv").write_text("id,v\n1,1\n2,2\n3,3\n")
    guest = convert(tmp_path / "a.csv", tmp_path / "b.csv", missing="indicator").parties[0]
    assert guest.feature_names == ["u", "u:missing", "c=a", "c=b", "c:missing", "w"]
    np.testing.assert_array_equal(guest.load(), [[1, 0, 1, 0, 0, 5], [3, 0, 0, 1, 0, 5], [2, 1, 0, 0, 1, 6]])


def test_numbers_can_be_categories(pair):
    pair[1].write_text("id,zone\n9,1\n7,2.0\n4,9\n3,+1\n")
    assert convert(*pair, categorical=["zone"]).parties[1].feature_names == ["zone=1", "zone=2"]


def test_guest_with_labels_only_is_no_party(pair):
    partition = convert(*pair, drop=["age", "city"])
    assert [party.name for party in partition.parties] == ["host"]
    again = convert(*pair, out="q", like=partition.path)
    assert [party.name for party in again.parties] == ["host"]
    np.testing.assert_array_equal(again.labels.y, partition.labels.y)


def test_too_many_categories(pair):
    pair[0].write_text("id,y,note\n" + "".join(f"{i},{i % 2},note {i}\n" for i in range(150)))
    pair[1].write_text("id,orders\n" + "".join(f"{i},{i}\n" for i in range(150)))
    refuses(
        InputError, r"column 'note': 150 different texts .*--drop note.*--categorical note", convert, *pair
    )
    assert convert(*pair, categorical=["note"]).parties[0].n_features == 150


def test_duplicates_by_choice(pair):
    pair[0].write_text(BANK + "3,no,99,Oslo\n")
    np.testing.assert_array_equal(convert(*pair, duplicates="first").parties[0].load()[:, 0], [40, 30, 20])
    np.testing.assert_array_equal(convert(*pair, duplicates="drop", out="q").parties[0].ids(), [7, 9])
    last = convert(*pair, duplicates="last", out="r").parties[0].load()[:, 0]
    np.testing.assert_array_equal(last, [99, 30, 20])


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_replay_on_new_tables(pair, tmp_path, storage, capsys):
    trained = convert(*pair, missing="median", standardize=True, storage=storage)
    (tmp_path / "new-bank.csv").write_text("city,id,colour,age\nParis,2,red,60\nOslo,1,blue,\n")
    (tmp_path / "new-shop.csv").write_text("id,orders\n1,5\n2,6\n")
    tables = ("--guest", tmp_path / "new-bank.csv", "--host", tmp_path / "new-shop.csv", "--id", "id")
    out = printed(capsys, "convert", "--like", tmp_path / "p", *tables, "-o", tmp_path / "n")
    assert "'city': 1 cells with unseen categories, such as 'Paris': all zeros" in out
    assert "'age': 1 missing cells filled" in out
    assert "left out: colour" in out
    new = open_partition(tmp_path / "n", require_labels=False)
    guest, old = new.parties[0], trained.parties[0]
    assert guest.transform.digest() == old.transform.digest()
    assert guest.encoder == old.encoder
    raw = np.array([[30.0, 0, 1, 0], [60.0, 0, 0, 0]])  # ids 1 and 2
    block = guest.load()
    np.testing.assert_allclose(block if storage == "dense" else block.toarray(), old.transform.apply(raw))
    assert new.labels is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_encodings_are_recognised(pair, encoding):
    pair[0].write_bytes(BANK.replace("Rome", "Zürich").encode(encoding))
    assert convert(*pair).parties[0].feature_names[-1] == "city=Zürich"


def test_ids_that_differ_by_prefix_and_zeros(pair):
    pair[1].write_text("id,orders\nC-0009,1\nC-0007,2\nC-0004,9\nC-0003,4\n")
    joined = convert(*pair, id_pattern="(?:C-0*)?([0-9]+)")
    np.testing.assert_array_equal(joined.parties[1].ids(), [3, 7, 9])
    np.testing.assert_array_equal(joined.parties[1].load(), [[4], [2], [1]])
    rows = pair[0].parent / "rows.json"
    pattern = "id_pattern=(?:C-0*)?([0-9]+)"
    tables = ("--guest", pair[0], "--host", pair[1], "--id", "id", "--set", pattern)
    assert run("align", *tables, "-o", rows) == 0
    again = convert(*pair, out="q", alignment=rows, id_pattern="(?:C-0*)?([0-9]+)")
    assert again.row_digest == joined.row_digest


def test_numbers_near_the_largest(pair):
    pair[0].write_text("id,y,age\n7,1,1e308\n3,0,1.7e308\n9,0,NA\n")
    filled = convert(*pair, missing="mean").parties[0].load()
    np.testing.assert_allclose(filled[:, 0], [1.7e308, 1e308, 1.35e308])
    with pytest.raises(InputError, match=r"bank\.csv: values too large to standardise"):
        convert(*pair, missing="mean", standardize=True, out="q")
    refuses(InputError, "does not fit float32", convert, *pair, missing="mean", dtype="float32", out="q")
    assert not (pair[0].parent / "q").exists()


def test_weights_and_exposures_are_kept_beside_the_labels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    days, weight = rng.integers(1, 400, 60), rng.integers(0, 4, 60)
    lines = [f"{i},{rng.poisson(days[i] / 90)},{days[i]},{weight[i]},{i % 7}\n" for i in range(60)]
    text = "id,claims,days,weight,age\n" + "".join(reversed(lines))
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text("id,v\n" + "".join(f"{i},{i % 5}\n" for i in range(60)))
    beside = ["--label", "claims", "--task", "regression", "--weight", "weight", "--exposure", "days"]
    two = ["--guest", tmp_path / "a.csv", "--host", tmp_path / "b.csv", "--id", "id", *beside]
    assert run("convert", *two, "-o", tmp_path / "p") == 0
    partition = open_partition(tmp_path / "p")
    np.testing.assert_array_equal(partition.labels.sample_weight, weight)
    np.testing.assert_array_equal(partition.labels.offset, np.log(days))
    assert partition.parties[0].feature_names == ["age"]
    one = convert_source(tmp_path / "a.csv", tmp_path / "q", parties=1, label="claims", task="regression",
                         weight="weight", exposure="days", drop=["id"])  # fmt: skip
    np.testing.assert_array_equal(one.labels.offset, np.log(days)[::-1])
    rows = canonical_order(list(map(str, range(60))))
    write_label_table(tmp_path / "y.h5", tmp_path / "a.csv", "claims", rows, id="id", task="regression",
                      weight="weight", exposure="days")  # fmt: skip
    np.testing.assert_array_equal(open_labels(tmp_path / "y.h5").offset, np.log(days))
    assert open_labels(tmp_path / "y.h5").exposure
    capsys.readouterr()
    (tmp_path / "c.toml").write_text('loss = "huber"')
    for options in ([], ["--loss", "squared"], ["--config", tmp_path / "c.toml"]):
        assert run("train", tmp_path / "p", *options, "-o", tmp_path / "run") == 5
        assert re.search(r"labels.h5: has exposures, and loss \w+ no logarithmic", capsys.readouterr().err)
    assert run("train", tmp_path / "p", "--loss", "poisson", "-o", tmp_path / "run", "-q") == 0
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    rows = TableRows(id="id", exposure="days")
    told = evaluate_tables(tmp_path / "run" / "model", tables, rows, label="claims", weight="weight")
    again = evaluate_partition(tmp_path / "run" / "model", tmp_path / "p")
    assert told["metrics"] == pytest.approx(again["metrics"], rel=1e-12)
    with pytest.raises(InputError, match="trained with an offset, and these rows have none"):
        evaluate_tables(tmp_path / "run" / "model", tables, TableRows(id="id"), label="claims")
    added = [*two[:-2], "--offset", "days", "-o", tmp_path / "s"]
    assert run("convert", *added) + run("train", tmp_path / "s", "-o", tmp_path / "other", "-q") == 0
    with pytest.raises(ConfigError, match="has exposures, and loss squared no logarithmic link"):
        evaluate_partition(tmp_path / "other", tmp_path / "p")
    with pytest.raises(ConfigError, match="--exposure: the model's loss squared has no logarithmic link"):
        evaluate_tables(tmp_path / "other", tables, rows, label="claims", weight="weight")


def _visits(tmp_path):
    rng = np.random.default_rng(1)
    y = np.where(rng.random(100) < 0.4, "yes", "no")
    lines = [
        f"{i},{y[i]},{rng.normal():.3f},2024-{1 + i // 10:02d}-11,g{i % 8}\n" for i in rng.permutation(100)
    ]
    (tmp_path / "a.csv").write_text("id,y,u,day,clinic\n" + "".join(lines))
    (tmp_path / "b.csv").write_text("id,v,c\n" + "".join(f"{i},{i},{'abz'[i % 3]}\n" for i in range(100)))
    return tmp_path / "a.csv", tmp_path / "b.csv"


@pytest.mark.parametrize(
    ("split", "drop", "held"),
    [
        ("0.3", ["day", "clinic"], None),
        ("time:day=0.3", ["clinic"], range(70, 100)),
        ("time:day=2024-09-01", ["clinic"], range(80, 100)),
        ("group:clinic=0.25", ["day"], None),
    ],
)
def test_rows_are_held_out(tmp_path, split, drop, held):
    train = convert(*_visits(tmp_path), split=split, drop=drop, standardize=True)
    test = open_partition(tmp_path / "p" / "test.parts")
    assert train.path == tmp_path / "p" / "train.parts"
    seen, new = train.parties[1].ids(), test.parties[1].ids()
    assert sorted([*seen, *new]) == list(range(100))
    if held is not None:
        assert new.tolist() == list(held)
    if split == "0.3":
        assert len(new) == 30
    if split.startswith("group"):
        assert not {i % 8 for i in seen} & {i % 8 for i in new}
        assert 20 <= len(new) <= 30
    # Centre and scale are those of the training rows, and the test rows get the same.
    center, scale = train.parties[1].transform.center[0], train.parties[1].transform.scale[0]
    assert center == pytest.approx(seen.mean(), rel=1e-12)
    np.testing.assert_allclose(test.parties[1].load()[:, 0], (new - center) / scale, rtol=1e-12)
    assert "day" not in train.parties[0].feature_names


def test_a_split_is_the_same_for_one_table_and_again(tmp_path, capsys):
    a, _ = _visits(tmp_path)
    common = [a, "--label", "y", "--parties", "1", "--drop", "id,clinic", "--split", "time:day=0.3"]
    assert run("convert", *common, "-o", tmp_path / "one") == 0
    assert f"{tmp_path / 'one' / 'test.parts'}: 30 rows held out" in capsys.readouterr().out
    convert_source(a, tmp_path / "two", parties=1, label="y", drop=["id", "clinic"], split="time:day=0.3")
    for name in ("train.parts/party-1.h5", "test.parts/party-1.h5", "test.parts/labels.h5"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert run("convert", *common, "-o", tmp_path / "one") == 6
    assert run("convert", *common, "-o", tmp_path / "one", "--force") == 0
