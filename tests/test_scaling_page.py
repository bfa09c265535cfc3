"""The extrapolated table of docs/streaming.md follows from the numbers that its text names."""

import math
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "streaming.md").read_text(encoding="utf-8")
PARTIES, ROUNDS, OTHERS, SPEED_UP = 2, 20, 18, {16: 12.8, 64: 35.2}


def test_the_extrapolated_table_follows_from_what_was_measured():
    section = PAGE.partition("### How large: extrapolated")[2].partition("\n### ")[0]
    found = re.findall(
        r"^\| (\S+), (\S+), (\S+) \| (\d+) of (\d+) cores.*? \| (\S+) GB \| (\S+) s \| (\S+).*\|$",
        section,
        re.M,
    )
    assert len(found) == 5
    for row in found:
        n, d, entries, machines, cores, memory = map(float, row[:6])
        held = 12.0 * entries + 8.0 * n * (PARTIES + PARTIES * ROUNDS + OTHERS)
        assert memory == pytest.approx(held / machines / 1e9, rel=0.02)
        exchanges = ROUNDS * 8.0 * d * math.log2(machines) / 1.25e9
        computing = ROUNDS * 1.6e-9 * entries / (machines * SPEED_UP[int(cores)])
        assert float(row[6]) == pytest.approx(computing + exchanges, rel=0.05)
        assert (0.0 if row[7] == "–" else float(row[7])) == pytest.approx(exchanges, rel=0.2)
    (counted,) = (line for line in PAGE.splitlines() if "100 entries in strata" in line)
    cells = [float(cell) for cell in counted.strip("|").split("|")[1:9]]
    entries, rounds, one, sixteen, many = *cells[:3], *cells[6:]
    assert one / rounds / entries == pytest.approx(1.6e-9, rel=0.1)
    assert {16: sixteen, 64: many} == SPEED_UP
