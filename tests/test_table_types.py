"""Tables as people have them: marks, units, dates, ids, encodings; and new tables are read the same way."""

import re
from typing import Any

import numpy as np
import pytest
from fastadmm.data_tools.convert import convert
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.per_table import TableRows
from fastadmm.data_tools.predict_tables import read_features
from fastadmm.errors import InputError
from fastadmm.store.encoder import CellReading, ColumnEncoding, Encoder
from fastadmm.store.partition import open_partition

from run_tools import refuses, within


def column(path, cells, **options):
    """What the cells of one column become."""
    rows = "".join(f'"{cell}"|{i % 2}\n' for i, cell in enumerate(cells))
    (path / "x.csv").write_text("v|y\n" + rows, encoding="utf-8")
    partition = convert(path / "x.csv", path / "p", label="y", parties=1, force=True, **options)
    assert partition.parties[0].feature_names == ["v"]
    return partition.parties[0].load()[:, 0]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["25,303.73", "1,200", "7"], [25303.73, 1200, 7]),
        (["25.303,73", "1.200", "7"], [25303.73, 1200, 7]),
        (["25303,73", "-0,5", ",25"], [25303.73, -0.5, 0.25]),
        (["25 303,73", "1\u00a0200", "1\u202f000\u202f000"], [25303.73, 1200, 1e6]),
        (["25'303.73", "1’200", "7"], [25303.73, 1200, 7]),
        (["$25303.73", "-$7", "($8.5)"], [25303.73, -7, -8.5]),
        (["1.200,50 €", "7 €", "8,1 €"], [1200.5, 7, 8.1]),
        (["EUR 12", "EUR 1,200,000", "EUR 3"], [12, 1.2e6, 3]),
        (["28%", "3.5 %", "-1%"], [28, 3.5, -1]),
        (["1,234,567", "1,234", "5"], [1234567, 1234, 5]),
        (["1,5e3", "2,5", "1"], [1500, 2.5, 1]),
        (["12.5-", "−3", "+4"], [-12.5, -3, 4]),
        (["1_000", "2_500", "3"], [1000, 2500, 3]),
    ],
)
def test_numbers_however_they_are_written(tmp_path, cells, numbers):
    np.testing.assert_array_equal(column(tmp_path, cells), numbers)


@pytest.mark.parametrize(
    ("cells", "options", "numbers"),
    [
        (["1,234", "5,678"], {"decimal": ","}, [1.234, 5.678]),
        (["1,234", "5,678"], {"decimal": "."}, [1234, 5678]),
        (["1.234", "5.678"], {"decimal": ","}, [1234, 5678]),
        (["12 kg", "13,5 kg"], {"types": ["v=number"]}, [12, 13.5]),
        (["1970-01-02", "1969-12-31"], {"types": ["v=days"]}, [1, -1]),
        (["1970-01-02 12:00", "1970-01-01 06:00"], {"types": ["v=days"]}, [1.5, 0.25]),
        (["1970-01-02T02:00:00+02:00", "1970-01-03T00:00:00Z"], {"types": ["v=days"]}, [1, 2]),
        (["03/02/1970", "13/02/1970"], {"types": ["v=days"]}, [33, 43]),
        (["03/02/1970", "04/02/1970"], {"types": ["v=days:%m/%d/%Y"]}, [60, 91]),
        (["01.02.24", "02.02.24"], {"types": ["v=weekday:%d.%m.%y"]}, [4, 5]),
        (["19700102", "19700201"], {"types": ["v=days"]}, [1, 31]),
        (["Jan-2018", "Dec-2019"], {"types": ["v=year"]}, [2018, 2019]),
        (["3 May 2024", "1 June 2024"], {"types": ["v=month:%d %B %Y"]}, [5, 6]),
        (["14:30", "06:00:36"], {"types": ["v=hours"]}, [14.5, 6.01]),
        (["1", "?", "3"], {"na_values": ["?"], "missing": "mean"}, [1, 2, 3]),
        (["1", "-999.0", "3"], {"na_values": ["v=-999"], "missing": "mean"}, [1, 2, 3]),
        (["1", "", "NA"], {"missing": "most-frequent"}, [1, 1, 1]),
    ],
)
def test_what_options_decide(tmp_path, cells, options, numbers):
    np.testing.assert_allclose(column(tmp_path, cells, **options), numbers, rtol=1e-15)


@pytest.mark.parametrize(
    "cells", [["A11", "A12"], ["10th", "Bachelors"], ["1.2.3", "1.2.4"], ["20-30", "<5"]]
)
def test_codes_stay_categories(tmp_path, cells):
    (tmp_path / "x.csv").write_text("v;y\n" + "".join(f"{cell};{i}\n" for i, cell in enumerate(cells)))
    partition = convert(tmp_path / "x.csv", tmp_path / "p", label="y", parties=1)
    assert partition.parties[0].feature_names == [f"v={cell}" for cell in sorted(cells)]


def test_marks_and_points(tmp_path):
    # Earlier cells have been read as decimal points when a later one shows that points group thousands.
    cells = ["1.230"] * 17000 + ["1.234,5"]
    assert column(tmp_path, cells)[0] == 1230
    # Marks that fit a stated one alone, but not together.
    with pytest.raises(InputError, match=r"'12 345' has other marks .* than '1,234' in line 2: write"):
        column(tmp_path, ["1,234", "12 345"], decimal=".")

    # Points beside decimal commas are read as types say.
    tmp_path = within(tmp_path)
    (tmp_path / "x.csv").write_text("a;b;y\n1.234;0,5;0\n2.500;1,5;1\n")
    as_numbers = convert(tmp_path / "x.csv", tmp_path / "p", label="y", parties=1, types=["a=number"])
    np.testing.assert_array_equal(as_numbers.parties[0].load(), [[1.234, 0.5], [2.5, 1.5]])
    # A unit that training needs is needed later.
    tmp_path = within(tmp_path)
    column(tmp_path, ["5k", "7k", "9k"], types=["v=number"])
    (tmp_path / "x.csv").write_text("v|y\n5000|0\n7k|1\n")
    with pytest.raises(InputError, match=r"column 'v': '5000' is not a number, as the training table.*'k'"):
        convert(tmp_path / "x.csv", tmp_path / "q", label="y", like=tmp_path / "p")
    # What rows decide is not public.
    tmp_path = within(tmp_path)
    found = ColumnEncoding("income", reading=str(CellReading(decimal=",", from_rows=True)))
    stated = ColumnEncoding("income", reading=str(CellReading(decimal=",")))
    assert [Encoder((one,)).constants()[1].origin for one in (found, stated)] == ["private", "public"]


def test_a_mark_that_training_never_decided_is_refused(tmp_path):
    column(tmp_path, ["5 €", "7 €", "1 200 €"])
    for cell in ("1.234 €", "1,234 €", "5.50 €"):
        (tmp_path / "x.csv").write_text(f"v|y\n{cell}|0\n7 €|1\n", encoding="utf-8")
        words, given = "is not a number, as the training table has there", tmp_path / "x.csv"
        refuses(InputError, words, convert, given, tmp_path / "q", label="y", like=tmp_path / "p")
    (tmp_path / "x.csv").write_text("v|y\n3 400 €|0\n7|1\n", encoding="utf-8")
    like = convert(tmp_path / "x.csv", tmp_path / "q", label="y", like=tmp_path / "p")
    np.testing.assert_array_equal(like.parties[0].load(), [[3400.0], [7.0]])
    # Where it is stated, it is decided.
    column(tmp_path, ["5 €", "7 €"], decimal=",")
    (tmp_path / "x.csv").write_text("v|y\n1.234 €|0\n7,5 €|1\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not a number, as the training table"):
        convert(tmp_path / "x.csv", tmp_path / "q", label="y", like=tmp_path / "p", force=True)


@pytest.mark.parametrize("word", ["999", "999.0"])
def test_numbers_that_mean_missing_are_missing_however_they_are_written(tmp_path, word):
    options = {"na_values": [f"v={word}"], "missing": "mean"}
    for cells in (["1,5", "999,00", "2,5"], ["1,5", "999,0 €", "2,5"], ["1.5", "999.000", "2.5"]):
        np.testing.assert_array_equal(column(tmp_path, cells, **options), [1.5, 2.0, 2.5])
    # Codes are texts, which mean what they say; so is a word with leading zeros.
    assert column(tmp_path, ["1", "0", "2"], na_values=["v=00"], missing="mean")[1] == 0.0
    codes = {"categorical": ["v"], "na_values": ["v=999"], "missing": "most-frequent"}
    (tmp_path / "x.csv").write_text("v|y\n0999|0\n0999|1\n999|1\n")
    made = convert(tmp_path / "x.csv", tmp_path / "c", label="y", parties=1, force=True, **codes)
    assert made.parties[0].feature_names == ["v=0999"]


def test_labels_of_new_tables_are_read_as_those_of_training(tmp_path):
    (tmp_path / "x.csv").write_text("a;y\n1;1.200,5\n2;7,25\n3;8\n")
    old = convert(tmp_path / "x.csv", tmp_path / "p", label="y", parties=1)
    np.testing.assert_array_equal(old.labels.y, [1200.5, 7.25, 8.0])
    (tmp_path / "x.csv").write_text("a;y\n1;1.234\n2;950\n")
    for given in ({"label": "y"}, {}):
        new = convert(tmp_path / "x.csv", tmp_path / "q", like=tmp_path / "p", force=True, **given)
        np.testing.assert_array_equal(new.labels.y, [1234.0, 950.0])
    # It goes on from one partition to the next.
    again = convert(tmp_path / "x.csv", tmp_path / "r", label="y", like=tmp_path / "q")
    np.testing.assert_array_equal(again.labels.y, [1234.0, 950.0])
    (tmp_path / "x.csv").write_text("a;y\n1;7.25\n2;950\n")
    with pytest.raises(InputError, match=r"'7\.25' is not a number, as the labels of training"):
        convert(tmp_path / "x.csv", tmp_path / "s", label="y", like=tmp_path / "p")


BANK = """cust_no;y;income;joined;city
7;yes;25.303,73;2020-01-31;Rome
3;no;1.200;2021-02-28;?
5;yes;7;2020-05-01;Oslo
"""
SHOP = "customer,income,share\n5,1,28%\n7,2,5%\n3,3,0%\n"


@pytest.fixture
def pair(tmp_path):
    (tmp_path / "bank.csv").write_text(BANK, encoding="utf-8-sig")
    (tmp_path / "shop.csv").write_text(SHOP, encoding="utf-16")
    return tmp_path / "bank.csv", tmp_path / "shop.csv"


IDS = ["bank:cust_no", "shop:customer"]
OPTIONS: dict[str, Any] = {
    "id": IDS, "label": "y", "types": ["joined=days"], "na_values": ["city=?"], "missing": "indicator"
}  # fmt: skip


def test_two_tables_with_everything_at_once(pair, tmp_path):
    partition = convert_tables(pair[0], [pair[1]], tmp_path / "p", **OPTIONS)
    bank, shop = partition.parties
    assert bank.feature_names == ["guest.income", "joined", "city=Oslo", "city=Rome", "city:missing"]
    assert shop.feature_names == ["host.income", "share"]
    days = [18686, 18383, 18292]
    np.testing.assert_array_equal(
        bank.load(), [[1200, days[0], 0, 0, 1], [7, days[1], 1, 0, 0], [25303.73, days[2], 0, 1, 0]]
    )
    np.testing.assert_array_equal(shop.load()[:, 1], [0, 28, 5])
    again = open_partition(tmp_path / "p").parties[0].encoder
    assert again == bank.encoder
    assert Encoder.from_json(again.to_json(), "x") == again

    # New tables are read the same way, whatever their own cells would suggest.
    (tmp_path / "bank2.csv").write_text(
        "cust_no,income,joined,city\n1,1.234,2020-01-31,?\n2,500,2020-01-31,Rome\n"
    )
    (tmp_path / "shop2.csv").write_text("customer,income,share\n1,5,28%\n2,6,1%\n")
    ids = ["bank2:cust_no", "shop2:customer"]
    new = convert_tables(
        tmp_path / "bank2.csv", [tmp_path / "shop2.csv"], tmp_path / "q", id=ids, like=tmp_path / "p"
    )
    np.testing.assert_array_equal(new.parties[0].load(), [[1234, 18292, 0, 0, 1], [500, 18292, 0, 1, 0]])
    features = read_features(
        partition.parties, [tmp_path / "bank2.csv", tmp_path / "shop2.csv"], TableRows(id=ids)
    )
    np.testing.assert_array_equal(features.blocks[0], new.parties[0].load())


@pytest.mark.parametrize(
    "text", ["sum", "number\tdecimal=;", "days\tunit=%", "number\tdecimal=.", "number\tx=1"]
)
def test_damaged_readings_are_refused(text):
    refuses(ValueError, r".*", CellReading.parse, text)


@pytest.mark.parametrize(
    "reading",
    [CellReading(), CellReading(decimal=","), CellReading("days", dates="%d, %m=%Y", from_rows=True),
     CellReading(decimal=",", thousands=" ", unit="€", from_rows=True), CellReading("hours")],
)  # fmt: skip
def test_readings_survive_as_text(reading):
    assert CellReading.parse(str(reading)) == reading


@pytest.mark.parametrize(
    "cells",
    [["1.5", "x"], ["5 kg", "7 kg"], ["14:30", "15:00"], ["1/2", "3/4"], ["1k", "2k"],
     ["2024-01-31", "2024-02-01"], ["01/02/2024", "03/04/2024"], ["5 %", "7"], ["1.234,5", "1,234.5"]],
)  # fmt: skip
def test_commands_in_messages_are_quoted_for_a_shell(tmp_path, cells):
    name, rows = "Einkommen (€)", [f"{cell};{k % 2}" for k, cell in enumerate(cells * 2)]
    (tmp_path / "a.csv").write_text("\n".join([f"{name};y", *rows]))
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "a.csv", tmp_path / "p", parties=1, label="y", separator=";")
    suggested = re.findall(r"--(?:types|categorical|drop) (.{9})", str(caught.value))
    assert suggested
    assert set(suggested) == {"'Einkomme"}
