"""Generated problems for timings: what is drawn, and what the page counts."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

BENCH = Path(__file__).resolve().parents[1] / "bench"


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        specification = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


def test_numbers_draw_every_kind_of_problem() -> None:
    family = load("family")
    drawn = [family.member(number) for number in range(family.COUNT)]
    assert drawn[7] == family.member(7)
    for half in (drawn[::2], drawn[1::2]):
        assert min(m.rows for m in half) < 2e3
        assert max(m.rows for m in half) > 1e5
        assert max(m.columns for m in half) > 1e4
        assert {m.density == 1.0 for m in half} == {True, False}
        assert any(m.columns > 2 * m.rows for m in half)
    assert all(3e4 <= m.rows * m.columns * m.density <= 2e7 for m in drawn)
    few, all_of_them = family.cheapest(10), family.cheapest(family.COUNT)
    assert sorted(all_of_them) == list(range(family.COUNT))
    assert sum(number % 2 for number in few) == 5
    assert few == [number for number in all_of_them if number in few]


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_a_problem_is_what_its_number_drew(density: float) -> None:
    family = load("family")
    drawn = family.Member(3, 20_000, 40, 2, density, 4.0, 0.8, 1e-3)
    X, y, bounds = family.generate(drawn)
    again, labels, _ = family.generate(drawn)
    dense = X.toarray() if sp.issparse(X) else X
    np.testing.assert_array_equal(dense, again.toarray() if sp.issparse(again) else again)
    np.testing.assert_array_equal(y, labels)
    assert bounds == [0, 20, 40]
    assert sp.issparse(X) == (density < 1.0)
    assert 0.7 * density <= np.mean(dense != 0.0) <= density
    if density == 1.0:
        found = [np.corrcoef(dense[:, k], dense[:, 20 + k])[0, 1] for k in range(20)]
        np.testing.assert_allclose(found, 0.8, atol=0.03)
        assert 4.0 <= dense.std(axis=0).max() / dense.std(axis=0).min() <= 16.0
    assert 0.3 < y.mean() < 0.7


def test_the_page_counts_what_was_measured() -> None:
    page = load("family_page")
    exact = [[1e-1, 1.0, 1e-3], [1e-2, 2.0, 1e-7], [1e-3, 3.0, 1e-10]]
    loose = [[1e-1, 1.0, 1e-2], [1e-2, 1.5, 1e-4], [1e-3, 4.0, 1e-8]]
    slow = [[1e-1, 9.0, 1e-2]]
    assert page.best_by_hindsight(exact) == 2.0
    assert page.best_by_hindsight(slow) == page.best_by_hindsight(None) == math.inf
    assert page.sure_tolerance([exact]) == 1e-2
    assert page.sure_tolerance([exact, loose]) == 1e-3
    assert page.sure_tolerance([exact, slow]) is None

    def problem(ours: float, peer: list[list[float]] | None) -> dict:
        return {"ours": {"fastadmm": {"seconds": ours}}, "peers": {"a": peer}}

    problems = {0: problem(1.0, exact), 1: problem(8.0, loose), 2: problem(1.0, loose), 3: problem(1.0, None)}
    hindsight, _ = page.seconds_of_all(problems, sure=False)
    assert hindsight["a"] == {0: 2.0, 1: 4.0, 2: 4.0, 3: math.inf}
    assert page.ratios(hindsight) == {0: 0.5, 1: 2.0, 2: 0.25, 3: 0.0}
    assert page.profile(hindsight, 1.0) == {"fastadmm": 0.75, "a": 0.25}
    assert page.profile(hindsight, 4.0) == {"fastadmm": 1.0, "a": 0.75}
    sure, chosen = page.seconds_of_all(problems, sure=True)
    assert chosen == {"a": 1e-3}
    assert sure["a"] == {0: 3.0, 1: 4.0, 2: 4.0, 3: math.inf}
