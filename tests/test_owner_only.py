"""What holds private data is its owner's alone, whatever the umask; what is made for others follows it."""

import os
import stat

import numpy as np
import pytest
from fastadmm.files.atomic import atomic_directory, atomic_file

from run_tools import run


@pytest.fixture(params=[0o000, 0o022])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(directory):
    """Everything below a directory that others could read, were they let in."""
    return [str(path) for path in [directory, *directory.rglob("*")] if mode(path) & 0o077]


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    rows = [f"{v},{a:.3f},{b:.3f}\n" for v, a, b in zip(y, rng.normal(size=120) + y, rng.normal(size=120))]
    (tmp_path / "t.csv").write_text("y,a,b\n" + "".join(rows))
    return tmp_path


def convert(home, *more):
    parties = ("--label", "y", "--columns", "a;b", "--names", "A,B")
    assert not run("convert", home / "t.csv", *parties, *more, "-o", home / "p")


@pytest.mark.representatives(2)
@pytest.mark.parametrize("options", ["", "--privacy message --epsilon 8", "--path"])
def test_of_a_conversion_and_a_run_nothing_is_open(tables, umask, options):
    convert(tables)
    assert not run("train", tables / "p", "-o", tables / "run", "-q", *options.split())
    assert not run("evaluate", tables / "run", tables / "p")
    assert not run("predict", tables / "run", tables / "p", "-o", tables / "scores.csv")
    assert open_to_others(tables / "p") == open_to_others(tables / "run") == []
    assert mode(tables / "scores.csv") == 0o600


def test_what_is_made_for_others_follows_the_umask_and_keeps_its_mode(tables, umask, tmp_path):
    convert(tables)
    assert not run("train", tables / "p", "-o", tables / "run", "-q")
    assert not run("card", tables / "run", "-o", tables / "card.md")
    assert not run("export", tables / "run", "--party", "A", "-o", tables / "A.h5")
    assert mode(tables / "card.md") == mode(tables / "A.h5") == 0o666 & ~umask
    # What is replaced keeps the mode that its owner gave it.
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    file.chmod(0o640)
    with atomic_file(file) as new:
        assert mode(new) == 0o600  # also while it is written
        new.write_text("new")
    assert mode(file) == 0o640
    folder.mkdir()
    (folder / "a").write_text("old")
    (folder / "a").chmod(0o604)
    folder.chmod(0o750)
    with atomic_directory(folder, force=True) as new:
        assert mode(new) == 0o700
        (new / "a").write_text("new")
        (new / "b").write_text("new")
    assert (mode(folder), mode(folder / "a"), mode(folder / "b")) == (0o750, 0o604, 0o600)
