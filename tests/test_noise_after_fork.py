"""A child of a fork draws its own noise, from every source that privacy rests on."""

import os

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.owners.mechanism import Mechanism, discrete_laplace_integers
from fastadmm.privacy.fusion_mechanisms import Channel
from fastadmm.privacy.noise import NoiseSource, calibrate
from fastadmm.privacy.public import randomise_labels

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

N = 200
ENGINE = Engine(1)
LEVEL = calibrate(1.0, 1.0, N)


def grid(source, number):
    return source.release(np.zeros(N), LEVEL, number, ENGINE).integers


def uniform(source, number):
    return source.uniform(N, number, ENGINE)


def levels(source, number):
    return Channel(1.0, 16, 0.0, 2.0).release(np.zeros(N), source, number, ENGINE)


def labels(source, number):
    return randomise_labels(np.zeros(N), 0.1, source, number, ENGINE)


OWNERS = {
    "laplace": lambda: discrete_laplace_integers(1 << 20, N),
    "laplace answers": lambda: Mechanism("laplace", 1.0, 1 << 20).answer(np.zeros(N)),
    "gaussian answers": lambda: Mechanism("gaussian", 1.0, 1e6).answer(np.zeros(N)),
}


NAMES = ["grid", "uniform", "levels", "labels", "discrete", *OWNERS]


def ready(name):
    """A draw that has been made once: the key is there before the fork, and so are compiled kernels."""
    if name in OWNERS:
        draw = OWNERS[name]
        draw()
        return lambda number: draw()
    if name == "discrete":
        pytest.importorskip("opendp")
    draw, source = globals().get(name, grid), NoiseSource("discrete" if name == "discrete" else "grid")
    draw(source, 1)
    return lambda number: draw(source, number)


def in_child(draw):
    """What a forked child draws."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb") as file:
            file.write(np.ascontiguousarray(draw(2)).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        raw = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return raw


@pytest.mark.representatives(3)
@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # it has threads; none holds a lock here
@pytest.mark.parametrize("name", NAMES)
def test_children_draw_other_noise_than_their_parent_and_each_other(name):
    draw = ready(name)
    children = [in_child(draw), in_child(draw)]
    assert all(children)
    own = np.ascontiguousarray(draw(2)).tobytes()
    assert len({own, *children}) == 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_grandchildren_and_numbers_drawn_before_the_fork():
    source = NoiseSource()
    grid(source, 1)
    nested = in_child(lambda number: np.frombuffer(in_child(lambda k: grid(source, k)), dtype=np.int64))
    assert nested != in_child(lambda number: grid(source, number))
    seeded = NoiseSource("insecure_test", 3)
    assert in_child(lambda number: grid(seeded, number)) == grid(seeded, 2).tobytes()
    # What was drawn before the fork is not drawn again after it.
    source = NoiseSource()
    grid(source, 2)

    def again(number):
        with pytest.raises(RuntimeError, match="never redrawn"):
            grid(source, number)
        return np.zeros(1)

    assert in_child(again) == np.zeros(1).tobytes()
