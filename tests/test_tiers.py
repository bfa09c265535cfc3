"""What `make test` leaves out is a repetition of what it runs."""

from __future__ import annotations

from itertools import product

import pytest

from tiers import BEFORE_A_COMMIT, representatives


def test_every_file_has_tests_that_run_before_a_commit(request: pytest.FixtureRequest) -> None:
    assert not [name for name, number in request.config.stash[BEFORE_A_COMMIT].items() if not number]


def test_representatives_show_every_value_and_are_not_neighbours() -> None:
    cases = [dict(zip("abc", case)) for case in product(range(4), range(3), range(2))]
    kept = [cases[place] for place in representatives(cases, 4)]
    assert {case["a"] for case in kept} == set(range(4))
    assert {case["b"] for case in kept} == set(range(3))
    assert {case["c"] for case in kept} == set(range(2))
    pairs = [cases[place] for place in representatives(cases, 12)]
    assert len({(case["a"], case["b"]) for case in pairs}) == 12
    line = representatives([{"a": place} for place in range(20)], 4)
    assert line[0] == 0
    assert min(abs(one - other) for one in line for other in line if one != other) > 2
    assert sorted(representatives(cases, 100)) == list(range(24))
