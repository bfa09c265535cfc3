"""parties= becomes one array of column numbers per party."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingRegressor, JointClassifier
from fastadmm.errors import ConfigError, InputError
from fastadmm.sklearn.columns import (
    block_names,
    check_index,
    resolve_parties,
    tables_of,
    take_columns,
)
from hypothesis import given
from hypothesis import strategies as st

from run_tools import refuses

NAMES = ["age", "sex", "bmi", "bp", "s1"]


@pytest.mark.parametrize(
    ("parties", "expected"),
    [
        (None, [[0, 1, 2, 3, 4]]),
        (1, [[0, 1, 2, 3, 4]]),
        (2, [[0, 1, 2], [3, 4]]),
        (np.int64(5), [[0], [1], [2], [3], [4]]),
        ([2, 3], [[0, 1], [2, 3, 4]]),
        ((4, 1), [[0, 1, 2, 3], [4]]),
        (np.array([1, 4]), [[0], [1, 2, 3, 4]]),
        ([[4, 0], [1, 3, 2]], [[4, 0], [1, 3, 2]]),
        ([range(0, 2), range(2, 5)], [[0, 1], [2, 3, 4]]),
        ([np.array([1, 2]), (0, 3, 4)], [[1, 2], [0, 3, 4]]),
        ([["bp", "age"], ["sex", "bmi", "s1"]], [[3, 0], [1, 2, 4]]),
        ([slice(0, 2), slice("bmi", None)], [[0, 1], [2, 3, 4]]),
        ({"bank": ["bp", 0], "shop": slice("bmi", "bmi"), "lab": ["s1", "sex"]}, [[3, 0], [2], [4, 1]]),
        ([["bp", 0], pd.Index(["sex", "bmi", "s1"])], [[3, 0], [1, 2, 4]]),
    ],
)
def test_every_form(parties, expected):
    resolved = resolve_parties(parties, 5, NAMES)
    assert [list(held) for held in resolved] == expected


@pytest.mark.parametrize(
    ("parties", "message"),
    [
        (0, r"0 blocks cannot be cut from 5 columns"),
        (6, r"6 blocks cannot be cut from 5 columns"),
        (True, r"True is neither"),
        (2.5, r"2\.5 is neither"),
        ("age", r"'age' is neither"),
        ({"bank": ["age"]}, r"4 of 5 columns belong to no party"),
        ({"bank": ["age"], "shop": "weight"}, r"party 'shop' names column 'weight', which X does not have"),
        ({1: ["age"]}, r"the keys \[1\] are not all names"),
        ([slice("age", "weight"), ["bp"]], r"names column 'weight', which X does not have"),
        ([lambda X: list(X.columns)], r"party 1 is <function .*expected a list"),
        (np.array(3), r"array\(3\) is neither"),
        ([], r"the list is empty"),
        ([2, 2], r"add up to 4, but X has 5 columns"),
        ([5, 0], r"width 0 in \[5, 0\]"),
        ([6, -1], r"width -1"),
        ([2, [2, 3, 4]], r"party 1 is 2; expected a list"),
        (["age", "sex"], r"party 1 is 'age'; expected a list"),
        ([[0, 1, 2, 3, 4], []], r"party 2 has no columns"),
        ([[0, 1], [1, 2, 3, 4]], r"column 'sex' is given to party 1 and again to party 2"),
        ([["age", 0], [1, 2, 3, 4]], r"column 'age' is given to party 1 and again to party 1"),
        ([[0, 1], [2]], r"2 of 5 columns belong to no party: 'bp', 's1'; assign"),
        ([[0, 1], [2, 3, 5]], r"column 5 of party 2 is outside 0 \.\.\. 4"),
        ([[-1], [0, 1, 2, 3]], r"column -1 of party 1 is outside"),
        ([["weight"], [0, 1, 2, 3, 4]], r"'weight', which X does not have"),
        ([[True, False], [0]], r"True of party 1 is neither"),
        ([[0.0, 1], [2, 3, 4]], r"0\.0 of party 1 is neither"),
    ],
)
def test_mistakes_are_named(parties, message):
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_parties(parties, 5, NAMES)
    assert str(caught.value).startswith("parties")
    assert "\n" not in str(caught.value)


def test_names_are_needed_and_long_lists_shortened():
    refuses(ConfigError, "columns of X have no names", resolve_parties, [["age"], ["sex"]], 2)
    # A long list of missing columns is shortened.
    with pytest.raises(ConfigError, match=r"99 of 100 columns belong to no party: 1, 2, 3, 4, 5, \.\.\."):
        resolve_parties([[0]], 100)
    # Block names need strings everywhere.
    first, second = pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"c": [1.0]})
    assert block_names([first, second], "xy") == ["a", "b", "c"]
    assert block_names([first, first[["b"]]], "xy") == ["a", "x.b", "y.b"]
    assert block_names([first, np.ones((1, 1))], "xy") is None
    assert block_names([first, pd.DataFrame([[1.0]])], "xy") is None


@given(st.permutations(range(12)), st.sets(st.integers(1, 11)))
def test_any_split_is_a_permutation(order, cuts):
    bounds = [0, *sorted(cuts), 12]
    parties = [order[a:b] for a, b in pairwise(bounds)]
    resolved = resolve_parties(parties, 12)
    assert [list(held) for held in resolved] == parties
    assert sorted(np.concatenate(resolved)) == list(range(12))


@given(st.integers(1, 40), st.integers(1, 40))
def test_equal_blocks_differ_by_one_column_at_most(n_features, count):
    if count > n_features:
        with pytest.raises(ConfigError):
            resolve_parties(count, n_features)
        return
    widths = [len(held) for held in resolve_parties(count, n_features)]
    assert sum(widths) == n_features
    assert max(widths) - min(widths) <= 1
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [1, 2], [3, 0], [2]])
def test_taken_columns_equal_numpys(columns):
    X = np.arange(12.0).reshape(3, 4)
    held = np.array(columns)
    np.testing.assert_array_equal(take_columns(X, held), X[:, columns])
    np.testing.assert_array_equal(take_columns(sp.csr_array(X), held).toarray(), X[:, columns])
    # Consecutive columns are not copied.
    assert np.shares_memory(take_columns(X, held), X) == (np.diff(columns) == 1).all()
    assert take_columns(X, np.arange(4)) is X


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        ([np.ones((2, 1)), np.ones((2, 3))], True),
        ((sp.csr_array(np.ones((2, 1))), pd.DataFrame({"a": [1.0, 2.0]})), True),
        ([[1.0, 2.0], [3.0, 4.0]], False),
        ([np.ones(2), np.ones(2)], False),
        (np.ones((2, 2, 2)), False),
        (pd.DataFrame({"a": [1.0]}), False),
        (sp.dok_array(np.ones((2, 2))), False),
        ([], False),
    ],
)
def test_blocks_and_rows_are_told_apart(X, expected):
    assert (tables_of(X) is not None) is expected


def test_frames_and_series_are_joined_by_their_index_or_refused():
    bank = pd.DataFrame({"age": [1.0, 2.0]}, index=["a", "b"])
    check_index({0: bank, 1: bank * 2, 2: np.zeros((2, 1))}, pd.Series([0, 1], index=["a", "b"]))
    check_index({0: bank, 1: np.zeros((2, 1))}, pd.Series([0, 1]))  # an index that only counts rows
    for blocks, y, where in (
        ([bank, bank.iloc[::-1]], None, r"X\[0\], but 'b' in X\[1\]"),
        ([np.zeros((2, 1)), bank, bank.set_axis([0, 1])], None, r"X\[1\], but 0 in X\[2\]"),
        ([bank], pd.Series([0, 1], index=["b", "a"]), r"X\[0\], but 'b' in y"),
    ):
        with pytest.raises(InputError, match=rf"row 0 has the index 'a' in {where}.*reset_index"):
            check_index(dict(enumerate(blocks)), y)
    # Series in another order are joined or refused.
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    y, weight = pd.Series(rng.integers(0, 2, 40)), pd.Series(rng.random(40))
    model = JointClassifier({"one": ["a"], "two": ["b", "c"]}, n_threads=1)
    model.fit(X, y, sample_weight=weight, offset=weight)
    other = weight[::-1]
    calls = [
        lambda **own: model.fit(X, y, **own),
        lambda **own: model.inference(X, y, **own),
        lambda **own: model.score(X, y, **own),
    ]
    for call, key in product(calls, ("sample_weight", "offset")):
        refuses(InputError, f"row 0 has the index 0 in X, but 39 in {key}: ", call, **{key: other})
    for call in (model.predict, model.predict_proba, model.decision_function):
        refuses(InputError, "but 39 in offset", call, X, offset=other)
    for name, call in (("y", model.fit), ("y", model.score)):
        refuses(InputError, f"row 0 has the index 39 in X, but 0 in {name}", call, X[::-1], y)
    # An index of other numbers, as that of rows that were chosen, stands for the order of the rows.
    assert model.score(X[20:], y[:20]) == (model.predict(X[20:]) == y[:20].to_numpy()).mean()


def test_fits_with_named_parties_print_rounds(capsys):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=["a", "b", "c"])
    y = X.sum(axis=1)
    model = ADMMSharingRegressor({"bank": ["c"], "shop": slice("a", "b")}, verbose=1, n_threads=1).fit(X, y)
    assert [held.tolist() for held in model.party_columns_] == [[2], [0, 1]]
    assert capsys.readouterr().err.startswith("round ")
    with pytest.raises(InputError, match="row 0 has the index 0"):
        ADMMSharingRegressor().fit([X[["a"]], X[["b", "c"]][::-1]], y)
    refuses(ConfigError, "verbose: 'yes'", ADMMSharingRegressor(verbose="yes").fit, X, y)
