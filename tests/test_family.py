"""Generated problems for timings: what is drawn, and what the page counts."""

import math

from scripts import script_of


def test_the_page_counts_what_was_measured():
    page = script_of("bench/family_page.py")
    exact = [[1e-1, 1.0, 1e-3], [1e-2, 2.0, 1e-7], [1e-3, 3.0, 1e-10]]
    loose = [[1e-1, 1.0, 1e-2], [1e-2, 1.5, 1e-4], [1e-3, 4.0, 1e-8]]
    slow = [[1e-1, 9.0, 1e-2]]
    assert page.best_by_hindsight(exact) == 2.0
    assert page.best_by_hindsight(slow) == page.best_by_hindsight(None) == math.inf

    def problem(ours, peer):
        return {"ours": {"fastadmm": {"seconds": ours}}, "peers": {"a": peer}}

    problems = {0: problem(1.0, exact), 1: problem(8.0, loose), 2: problem(1.0, loose), 3: problem(1.0, None)}
    hindsight = page.seconds_of_all(problems)
    assert hindsight["a"] == {0: 2.0, 1: 4.0, 2: 4.0, 3: math.inf}
    assert page.ratios(hindsight) == {0: 0.5, 1: 2.0, 2: 0.25, 3: 0.0}
