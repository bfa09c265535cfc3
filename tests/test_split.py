"""Column splits, labels and scaling."""

import numpy as np
import pytest
from fastadmm.data_tools.blocks import ColumnStatistics, fit_transform_of
from fastadmm.data_tools.label_columns import LabelCollector, label_text
from fastadmm.data_tools.per_table import (
    by_names,
    by_widths,
    equal_widths,
    is_widths,
    parse_names,
    parse_widths,
    split_names,
)
from fastadmm.errors import ConfigError, InputError
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from run_tools import refuses


@given(st.integers(1, 30), st.integers(1, 200))
def test_equal_widths(k, d):
    if k > d:
        refuses(InputError, f"{k} parties, but only {d}", equal_widths, k, d)
        return
    widths = equal_widths(k, d)
    assert sum(widths) == d
    assert widths == sorted(widths, reverse=True)
    assert max(widths) - min(widths) <= 1


def test_equal_names_and_columns():
    assert parse_widths(" 66, 57") == [66, 57]
    assert is_widths("66,57")
    assert not is_widths("a,b")
    assert not is_widths("1,2;3")
    for bad in ("66,0", "66,-57"):
        refuses(ConfigError, "party 2 has width", parse_widths, bad)
    refuses(ConfigError, "at least one party", equal_widths, 0, 5)
    parties = by_widths([66, 57], ["a", "b"], 123)
    assert [party.columns for party in parties] == [slice(0, 66), slice(66, 123)]
    refuses(InputError, r"66\+50 = 116 do not add up to the 123", by_widths, [66, 50], ["a", "b"], 123)
    assert parse_names(None, 2) == ["party-1", "party-2"]
    assert parse_names("bank, telco", 2) == ["bank", "telco"]
    for bad in ("bank", "a,b,c", "a,A", "a,../x", "a,", "labels,b", "a,-b"):
        refuses(ConfigError, "--names", parse_names, bad, 2)
    columns = ["age", "bmi", "glucose", "insulin"]
    parties = by_names(split_names("bmi, age;insulin,glucose"), ["p", "q"], columns)
    X = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(parties[0].take(X), X[:, [1, 0]])
    taken = parties[1].take(sparse.csr_array(X))
    np.testing.assert_array_equal(taken.toarray(), X[:, [3, 2]])
    assert taken.has_sorted_indices
    for spec, message in [
        ("age,bmi;glucos,insulin", "no feature column 'glucos' for party 2; did you mean 'glucose'"),
        ("age,bmi;age,glucose,insulin", "column 'age' is given twice, to party 1 and to party 2"),
        ("age;bmi", "columns of no party: glucose,insulin: .*--drop"),
        ("age,bmi,glucose,insulin;", "party 2 has no columns"),
    ]:
        refuses(InputError, message, by_names, split_names(spec), ["p", "q"], columns)


def finish(*chunks, **options):
    collector = LabelCollector("file")
    for chunk in chunks:
        text = any(isinstance(value, str) for value in chunk)
        collector.append(np.array(chunk, dtype=object if text else float))
    return collector.finish(**options)


@pytest.mark.parametrize(
    ("chunks", "classes", "y"),
    [
        (([-1, 1], [1]), ("-1", "1"), [0, 1, 1]),
        (([2, 1], [1]), ("1", "2"), [1, 0, 0]),
        (([10, 9],), ("9", "10"), [1, 0]),
        (([0.5, 1.25],), ("0.5", "1.25"), [0, 1]),
        ((["yes", "no"], ["yes"]), ("no", "yes"), [1, 0, 1]),
        ((["ja", "nein", "ja"],), ("nein", "ja"), [1, 0, 1]),
        ((["Good", "BAD"],), ("Good", "BAD"), [0, 1]),
        ((["default", "no default"],), ("no default", "default"), [1, 0]),
        (([-0.0, 0.0, 1],), ("0", "1"), [0, 0, 1]),
    ],
)
def test_two_classes(chunks, classes, y):
    labels = finish(*chunks)
    assert labels.task == "classification"
    assert labels.classes == classes
    np.testing.assert_array_equal(labels.y, y)


def test_two_words_that_do_not_tell_ask_which_is_counted():
    with pytest.raises(InputError, match=r"'red' and 'sky blue': .*--positive 'sky blue' or --positive red"):
        finish(["sky blue", "red"])
    for positive, other in (("red", "sky blue"), ("sky blue", "red")):
        labels = finish(["sky blue", "red"], positive=positive)
        assert labels.classes == (other, positive)
        assert [labels.classes[int(k)] for k in labels.y] == ["sky blue", "red"]
    labels = finish([2, 1, 1], positive="1.0")
    assert labels.classes == ("2", "1")
    np.testing.assert_array_equal(labels.y, [0, 1, 1])
    for chunk, options in (([1, 2], {"positive": "3"}), ([0.5, 1, 7], {"positive": "1"})):
        refuses(ConfigError, "--positive", finish, chunk, **options)


@pytest.mark.parametrize(
    ("chunks", "options", "classes", "y"),
    [
        (([3, 1], [2, 1]), {"task": "classification"}, ("1", "2", "3"), [2, 0, 1, 0]),
        (([10, 9, 2],), {"task": "classification"}, ("2", "9", "10"), [2, 1, 0]),
        ((["red", "blue"], ["green"]), {}, ("blue", "green", "red"), [2, 0, 1]),
        (([7, 3],), {"task": "classification", "classes": ("9", "7", "3")}, ("9", "7", "3"), [1, 2]),
    ],
)
def test_more_than_two_classes(chunks, options, classes, y):
    labels = finish(*chunks, **options)
    assert labels.task == "classification"
    assert labels.classes == classes
    np.testing.assert_array_equal(labels.y, y)


@pytest.mark.parametrize(
    ("chunks", "options", "message"),
    [
        (([1, 2, 3],), {}, r"3 distinct whole-number labels \(1, 2, 3\).*--task regression"),
        (
            ([float(i) for i in range(1001)],),
            {"task": "classification"},
            r"1001 classes \(0, 1, 2, .* and 981 more\), but at most 1000 are supported; for a regression",
        ),
        ((["a", "b"],), {"task": "regression"}, "label 'a' is not a number"),
        (([float(i) for i in range(30)], ["x"]), {}, "labels are numbers in some files, but 'x' in others"),
        (([f"w{i}" for i in range(1001)],), {}, "text with more than 1000"),
        (([1, 2],), {"task": "classification", "classes": ("-1", "1")}, "label '2' is none of the classes"),
        (
            ([1, 4],),
            {"task": "classification", "classes": ("1", "2", "3")},
            "label '4' is none of the classes of training; there are: 1, 2, 3",
        ),
    ],
)
def test_label_faults(chunks, options, message):
    refuses(InputError, f"^file: .*{message}", finish, *chunks, **options)


def test_classes_and_labels():
    labels = finish([1, 1], task="classification", classes=("-1", "1"))
    np.testing.assert_array_equal(labels.y, [1, 1])
    assert [label_text(v) for v in (1.0, "+1", "1.0", -1, 0.1, "yes", 1e300)] == [
        "1", "1", "1", "-1", "0.1", "yes", "1e+300",
    ]  # fmt: skip
    assert finish([1.5, 2.5, 3.5]).task == "regression"
    assert finish(list(range(50))).task == "regression"
    labels = finish([0, 1], task="regression")
    assert labels.task == "regression"
    assert labels.classes is None
    np.testing.assert_array_equal(labels.y, [0, 1])


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_statistics_equal_two_pass_formulas(kind):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1000, 6)) * 10.0 ** np.arange(-3, 3) + [0, 0, 1e6, 0, 1, -5]
    X[:, 3] = 0.1  # constant, not exact in binary
    X[:, 4] *= rng.random(1000) < 0.1
    X[:, 5] = 0
    statistics = ColumnStatistics()
    for part in np.array_split(X, [1, 10, 400, 400, 990]):
        statistics.update(part if kind == "dense" else sparse.csr_array(part))
    scale = statistics.scale()
    np.testing.assert_allclose(statistics.center(), X.mean(axis=0), rtol=1e-12)
    varying = [0, 1, 2, 4]
    np.testing.assert_allclose(scale[varying], X[:, varying].std(axis=0), rtol=1e-9)
    assert scale[3] == scale[5] == 1.0
    assert statistics.center()[3] == 0.1


def test_statistics_of_late_columns_and_transforms():
    X = np.array([[1.0, 0, 0], [2, 0, 0], [0, 3, 0], [0, 0, 4]])
    statistics = ColumnStatistics()
    for stop, width in ((2, 1), (3, 2), (4, 3)):
        statistics.update(
            sparse.csr_array(X[2 if stop == 3 else stop - (2 if stop == 2 else 1) : stop, :width])
        )
    np.testing.assert_allclose(statistics.mean, X.mean(axis=0))
    np.testing.assert_allclose(statistics.scale(), X.std(axis=0))
    # Transform of a party.
    X = np.random.default_rng(0).standard_normal((50, 4)) * [1, 2, 3, 4] + 7
    statistics = ColumnStatistics()
    statistics.update(X)
    party = by_widths([1, 3], ["a", "b"])[1]
    dense = fit_transform_of(party.columns, "dense", statistics, "none").apply(party.take(X))
    np.testing.assert_allclose(dense.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(dense.std(axis=0), 1)
    transform = fit_transform_of(party.columns, "csr", statistics, "l2")
    assert transform.center is None
    rows = transform.apply(sparse.csr_array(party.take(X))).toarray()
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert fit_transform_of(party.columns, "dense", None, "none").is_identity
