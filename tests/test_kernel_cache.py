"""What lies in the cache of compiled kernels is run: nobody else may be able to change it."""

import hashlib
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
from fastadmm.kernels.cache import is_safe, make_safe

from run_tools import python

PROGRAM = """
import os, sys
import numba, numpy as np
if len(sys.argv) > 1:  # what the interpreter needs is read: it may be out of reach now
    import grp, pwd, shutil, tempfile
    numba.njit(lambda x: x + 1)(1)
    os.setgroups([])
    os.setegid(int(sys.argv[1]))
    os.seteuid(int(sys.argv[1]))
from fastadmm.kernels.cache import cache_base
from fastadmm.kernels.compilation import watching
compiled = []
with watching(lambda name, seconds: seconds is not None and compiled.append(name)):
    from fastadmm.kernels.bounded import bounded
    from fastadmm.kernels.piecewise import squared
    z = np.ones(2)
    squared.evaluate(z, np.zeros(2), z, (), np.empty(2), 0, 2)
    bounded.curvature(z, z, z, (0.0, 1.0), np.empty(2), 0, 2)
print(cache_base(), len(compiled), sep="|")
"""

#: Another user; only root can become one.
NOBODY = 65534


@pytest.fixture
def folder():
    """A directory that other users can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def site(folder):
    """A copy of the installed package that keeps no kernels beside them."""
    import fastadmm

    source = Path(fastadmm.__file__).parent
    shutil.copytree(source, folder / "site" / "fastadmm", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "site" / "fastadmm" / "kernels" / "__pycache__").write_text("")
    return folder / "site"


def kernels(site, cache, home, *user, **options):
    """Place of the cache, how many kernels were compiled, and what was said."""
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(home), "NUMBA_NUM_THREADS": "1"}
    environment = {k: v for k, v in environment.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    done = python(PROGRAM, *user, env=environment, cwd="/", **options)
    assert done.returncode == 0, done.stderr
    place, _, count = done.stdout.strip().partition("|")
    return place, int(count), done.stderr


class Evil:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_a_file_of_another_is_compiled_again_and_not_run(site, folder):
    cache = folder / "cache"
    place, count, said = kernels(site, cache, folder)
    assert (place, count, said) == (str(cache / "fastadmm"), 2, "")
    assert kernels(site, cache, folder)[1:] == (0, "")
    raw = pickle.dumps(Evil(folder / "owned"))
    one, other = cache.rglob("*.nbi")
    one.write_bytes(hashlib.sha256(raw).digest() + raw)  # with the digest of its content alone
    # With the whole digest, in a file that others can write to.
    name = f"{other.parent.parent.name}/{other.name}".encode()
    other.write_bytes(hashlib.sha256(name + b"\0" + raw).digest() + raw)
    other.chmod(0o666)
    assert kernels(site, cache, folder)[1:] == (2, "")
    assert not (folder / "owned").exists()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("which", ["cache", "cache/fastadmm", "above"])
def test_a_folder_that_others_can_write_to_is_not_used(site, folder, which):
    cache = folder / "above" / "cache" if which == "above" else folder / "cache"
    (cache / "fastadmm").mkdir(parents=True)
    (folder / which).chmod(0o777)
    place, count, said = kernels(site, cache, folder)
    assert (place, count) == (str(folder / ".cache" / "fastadmm" / "numba"), 2)
    assert said.count("\n") == 1
    assert "you alone can write to" in said
    assert not list(cache.rglob("*.nb?"))


def test_a_folder_that_they_can_write_to_and_not_change_is(folder):
    folder.chmod(0o1777)
    if os.geteuid() == 0:
        assert make_safe(folder / "a" / "b")
    folder.chmod(0o777)
    assert not is_safe(folder / "a" / "b")


@pytest.mark.repeats
def test_it_is_closed_whatever_the_umask(site, folder):
    kernels(site, folder / "cache", folder, umask=0)
    assert not [path for path in (folder / "cache").rglob("*") if path.stat().st_mode & 0o022]


@pytest.mark.repeats
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_second_user_takes_what_root_compiled_and_has_a_place_of_its_own(site, folder):
    cache, home = folder / "cache", folder / "home"
    kernels(site, cache, folder)
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    place, count, said = kernels(site, cache, home, NOBODY)
    assert (place, count, said) == (str(home / ".cache" / "fastadmm" / "numba"), 0, "")
    os.chown(cache / "fastadmm", 1, 1)  # what a third one compiled
    place, count, said = kernels(site, cache, home, NOBODY)
    assert (place, count) == (str(home / ".cache" / "fastadmm" / "numba"), 2)
    assert said.count("\n") == 1
    place, count, said = kernels(site, cache, Path("/"), NOBODY)
    assert (place, count, said.count("\n")) == ("None", 2, 1)
    assert "compiled in every process" in said
