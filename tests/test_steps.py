"""Steps tile by tile: compiled as in Python, in order, what each returned, and again where one failed."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from fastadmm.kernels.policy import kernel
from fastadmm.steps import Step, Steps


@kernel
def scale(values, factors, times, out, start, stop):
    """Arrays, a tuple of arrays, a tuple of numbers; slices, which hold their array."""
    own = values[start:stop]
    for k in range(len(own)):
        out[start + k] = own[k] * factors[0][start + k] * factors[1][start + k] * times[0] + times[1]


@kernel
def grow(out, start, stop):
    total = 0.0
    for i in range(start, stop):
        out[i] += out[i - 1] if i > 0 else 0.0
        total += out[i]
    return total


@kernel
def several(out, start, stop):
    """Returns more than is kept."""
    return out[start], 2.0, 3.0


@kernel
def reach(ends, start, stop):
    """The end, or how far it came."""
    return min(stop, ends[0])


def plain(function):
    """The same as a function that is not compiled."""

    def call(*arguments):
        return function(*arguments)

    return call


@pytest.mark.parametrize("compiled", [True, False])
def test_all_steps_of_a_tile_come_before_the_next(compiled: bool) -> None:
    rng = np.random.default_rng(0)
    bounds = np.array([0, 3, 4, 9, 30, 200])
    values, out = rng.normal(size=200), np.zeros(200)
    factors = rng.normal(size=200), rng.normal(size=200)
    expected, sums = np.zeros(200), []
    for start, stop in itertools.pairwise(bounds):
        for i in range(start, stop):
            before = expected[i - 1] if i else 0.0
            expected[i] = values[i] * factors[0][i] * factors[1][i] * 0.5 + 3 + before
        sums.append(expected[start:stop].sum())
    made = [
        Step(scale, (values.copy(), tuple(f.copy() for f in factors), (0.5, 3), out)),
        Step(grow, (out,)),
        Step(several, (out,)),
    ]
    steps = Steps(bounds)
    written = [steps.write(s if compiled else s._replace(kernel=plain(s.kernel))) for s in made]
    del made
    gc.collect()
    steps.run(written, 0, 2)
    assert not out[4:].any()
    steps.run(written, 2, 5)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(written[1].values, sums, rtol=1e-9)
    if compiled:
        np.testing.assert_array_equal(written[2].values, out[bounds[:-1]])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_tile_that_failed_is_run_again_or_its_error_raised(compiled: bool) -> None:
    bounds = np.arange(0, 2001, 10)
    ends, seen, out = np.array([1234]), [], np.zeros(2000)

    def failed(start: int, stop: int) -> None:
        seen.append((start, stop))
        if ends[0] == 1999:
            raise OSError("no more")
        ends[0] = 1999

    steps = Steps(bounds)
    kernels = (reach, grow) if compiled else (plain(reach), plain(grow))
    written = [steps.write(Step(kernels[0], (ends,), failed)), steps.write(Step(kernels[1], (out,)))]
    out[:] = 1.0
    with pytest.raises(OSError, match="no more"):
        steps.run(written, 0, 200)
    assert seen == [(1230, 1240), (1990, 2000)]
    np.testing.assert_array_equal(out[:1990], np.arange(1, 1991))  # the step behind was not run in vain
    assert (out[1990:] == 1.0).all()


def test_rows_are_announced_before_they_are_needed() -> None:
    bounds, told, done = np.arange(0, 1001, 5), [], []
    steps = Steps(bounds)
    written = steps.write(Step(lambda start, stop: done.append((start, stop)), ()))
    steps.run([written], 3, 190, lambda rows: told.append((rows, len(done))))
    assert done == [(5 * k, 5 * k + 5) for k in range(3, 190)]
    assert all(rows[0] > done[before - 1][1] if before else True for rows, before in told)
    assert told[-1][0][1] == 950
    assert told[0][1] == 0


def test_a_step_with_many_arguments_has_room() -> None:
    """More than fits at first."""
    rows = [np.full(4, float(k)) for k in range(30)]
    out, steps = np.zeros(4), Steps(np.array([0, 4]))
    steps.run([steps.write(Step(add_all, (tuple(rows), out)))], 0, 1)
    np.testing.assert_array_equal(out, sum(rows))


@kernel
def add_all(rows, out, start, stop):
    for row in rows:
        for i in range(start, stop):
            out[i] += row[i]
