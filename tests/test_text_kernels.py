"""Kernels that take text apart, beside their twins."""

import itertools
import random

import numpy as np
import pytest
from fastadmm.data_tools.large_text import powers
from fastadmm.kernels.cells import code_words, parse_libsvm, parse_whole_numbers, split_cells

import naive


def _parsed(text, shift=1, limit=99):
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    labels, values = np.zeros(len(raw) + 1), np.zeros(len(raw) + 1)
    indptr, indices = np.zeros(len(raw) + 2, dtype=np.int32), np.zeros(len(raw) + 1, dtype=np.int32)
    rows, lines = parse_libsvm(
        raw, shift, limit, powers(), labels.view(np.uint64), indptr, indices, values.view(np.uint64)
    )
    if rows < 0:
        return None
    assert lines == text.count("\n")
    cut = [slice(a, b) for a, b in itertools.pairwise(indptr[: rows + 1])]
    return labels[:rows].tolist(), [indices[c].tolist() for c in cut], [values[c].tolist() for c in cut]


def _number(rng):
    shapes = [
        lambda: f"{rng.gauss(0, 1000):.{rng.randint(0, 14)}f}",
        lambda: repr(rng.gauss(0, 1)),
        lambda: str(rng.randint(0, 2**62)),
        lambda: f"{rng.randint(0, 10**9)}e{rng.randint(-30, 30)}",
        lambda: "0" * rng.randint(0, 25) + str(rng.randint(0, 99)) + rng.choice(["", ".", ".0"]),
        lambda: rng.choice(["-0", "+1", ".5", "-.25", "9007199254740993", "9007199254740992.0", "1e22"]),
    ]
    return rng.choice(shapes)()


def test_libsvm_rows_are_those_of_the_twin():
    rng = random.Random(5)
    for shift in (0, 1):
        lines = []
        for _ in range(300):
            own = sorted(rng.sample(range(shift, 100), rng.randint(0, 9)))
            space = rng.choice([" ", "  ", "\t"])
            lines.append(space.join([_number(rng), *(f"{i}:{_number(rng)}" for i in own)]))
            lines[-1] += rng.choice(["", "", " ", "\r", "# 3:4", "\n", "\n# note", " #"])
        text = "\n".join(lines) + "\n"
        expected = naive.libsvm_rows(text, shift, 99)
        assert expected is not None
        assert repr(_parsed(text, shift)) == repr(expected)  # signs of zeros too


@pytest.mark.parametrize(
    "line", ["1 2:1 2:1", "1 3:1 2:1", "1 0:1", "1 101:1", "a 1:2", "1 1:x", "1 :2", "1 1", "1 1:",
             "1 12345678901:1",
             "1 1:1e", "1 1:--1", "1:2", "1 1:1:1", "1 1:.", "-", "1 1:-"]
)  # fmt: skip
def test_what_the_twin_refuses_is_not_plain(line):
    assert naive.libsvm_rows(line + "\n", 1, 99) is None
    assert _parsed(f"1 1:1\n{line}\n") is None


def test_a_last_line_without_an_end_is_not_read_beyond():
    assert _parsed("1 1:1\n1 2:3") is None
    assert _parsed("") is None


def test_cells_words_and_whole_numbers_are_those_of_the_twins():
    rng = random.Random(6)
    words = ["a", "bc", "", "x y", "é", '"q r"', "-12", "0", "7"]
    lines = [";".join(rng.choice(words) for _ in range(3)) + rng.choice(["", "\r"]) for _ in range(200)]
    lines = [line for line in lines if line not in ("", "\r")]
    text = "\n".join([*lines[:50], "", *lines[50:]]) + "\n"
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    starts, stops = (np.zeros((len(lines) + 1, 3), dtype=np.int32) for _ in range(2))
    at = np.zeros(len(lines) + 1, dtype=np.int32)
    rows = split_cells(raw, ord(";"), starts, stops, at)
    cells = [
        [raw[a:b].tobytes().decode() for a, b in zip(starts[i], stops[i], strict=True)] for i in range(rows)
    ]
    assert cells == naive.cells_of(text, ";")
    assert at[rows - 1] == text.count("\n") - 1

    own = [np.ascontiguousarray(ends[:rows, 0]) for ends in (starts, stops)]
    codes, first = np.zeros(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32)
    count = code_words(raw, *own, np.full(512, -1, dtype=np.int32), codes, first)
    expected = naive.numbered_words([row[0] for row in cells])
    assert (codes.tolist(), first[:count].tolist()) == expected

    numbers = np.zeros(1, dtype=np.int64)
    for word in ("0", "-7", "12", "007", "-0", "+1", "1.0", "", "9" * 18, "9" * 19, " 5 ", "--1"):
        raw = np.frombuffer((word + "\n").encode(), dtype=np.uint8)
        ends = np.zeros(1, dtype=np.int32), np.full(1, len(word), dtype=np.int32)
        digits = word.strip().removeprefix("-")
        plain = digits.isdigit() and word.strip() == str(int(word))
        assert parse_whole_numbers(raw, *ends, numbers) == (plain and len(word) <= 18)
        assert not plain or len(word) > 18 or numbers[0] == int(word)
