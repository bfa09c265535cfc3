"""Start-up: nothing is compiled at import, kernels are kept wherever one may write, and warmup makes them."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from fastadmm.kernels import cache
from fastadmm.kernels.cache import source_digest, user_cache
from fastadmm.kernels.compilation import tell, watching

from problems import make_vertical_classification
from run_tools import python, run_process, write_blocks

ROOT = Path(__file__).resolve().parents[1]
MESSAGE = "compiling kernels, once"

#: Compiles one small kernel of a copied installation, or loads it; prints what was compiled, and a value.
ONE_KERNEL = """
import numpy as np
from fastadmm.kernels.cache import cache_base
from fastadmm.kernels.compilation import watching
compiled = []
with watching(lambda name, seconds: seconds is not None and compiled.append(name)):
    from fastadmm.kernels.bounded import bounded
    from fastadmm.kernels.piecewise import squared
    z = np.ones(2)
    value = squared.evaluate(z, np.zeros(2), z, (), np.empty(2), 0, 2)
    bounded.curvature(z, z, z, (0.0, 1.0), np.empty(2), 0, 2)
print(cache_base(), *compiled, value, sep="|")
"""


def environment(**changes):
    """This process's environment with changes; None removes."""
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def program(text, **changes):
    """Output of a program in a process of its own."""
    done = python(text, env=environment(**changes), timeout=None)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def installation(tmp_path):
    """A copy of the package, without compiled kernels, as an installer puts it together."""
    site = tmp_path / "site"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fastadmm", site / "fastadmm", ignore=ignore)
    for name in ("kernels", "data_tools"):
        shutil.copytree(ROOT / name, site / "fastadmm" / name, ignore=ignore)
    return site


def one_kernel(site, **changes):
    """Place of the cache, kernels that were compiled, and the value of one."""
    # Numba finds kernels by the package's path alone; nothing else of this environment may be found first.
    blocker = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'ditable' not in repr(f)]\n"
    changes = {"PYTHONPATH": str(site), "NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None, **changes}
    place, *compiled, value = program(blocker + ONE_KERNEL, **changes).split("|")
    return place, compiled, float(value)


BOTH = ["piecewise.squared_evaluate", "bounded.bounded_curvature"]


@pytest.mark.repeats
def test_a_read_only_installation_keeps_them_with_the_user(installation, tmp_path):
    # A file where the directory would be cannot be written into, not even by root.
    (installation / "fastadmm" / "kernels" / "__pycache__").write_text("")
    home = tmp_path / "home"
    home.mkdir()
    place, compiled, _ = one_kernel(installation, HOME=str(home))
    assert Path(place) == home / ".cache" / "fastadmm" / "numba"
    assert compiled == BOTH
    assert list(home.rglob("*.nbi"))
    assert one_kernel(installation, HOME=str(home))[1] == []
    elsewhere = tmp_path / "elsewhere"
    place, compiled, _ = one_kernel(installation, HOME=str(home), NUMBA_CACHE_DIR=str(elsewhere))
    assert (Path(place), compiled) == (elsewhere / "fastadmm", BOTH)


@pytest.mark.repeats
def test_an_edit_of_an_inlined_function_recompiles_its_users_alone(installation):
    kernels = installation / "fastadmm" / "kernels"
    (kernels / "piecewise.py").write_text(
        "from fastadmm.kernels.factor import half\n"
        + (kernels / "piecewise.py").read_text().replace("from __future__ import annotations", "")
    )
    text = (kernels / "piecewise.py").read_text()
    assert "0.5" in text
    (kernels / "piecewise.py").write_text(text.replace("0.5", "half()"))
    factor = "from fastadmm.kernels.policy import inline\n\n@inline\ndef half():\n    return {}\n"
    (kernels / "factor.py").write_text(factor.format(0.5))
    place, compiled, value = one_kernel(installation)
    assert Path(place) == kernels / "__pycache__" / "numba"
    assert (compiled, value) == (BOTH, 1.0)
    for source in kernels.glob("*.py"):  # as an installer does that puts the same files there again
        os.utime(source, (1, 1))
    assert one_kernel(installation)[1:] == ([], 1.0)
    (kernels / "factor.py").write_text(factor.format(0.25))
    assert one_kernel(installation)[1:] == (BOTH[:1], 0.5)


@pytest.mark.repeats
@pytest.mark.parametrize(("ending", "damage"), [("nbc", "a flipped bit"), ("nbi", "truncated")])
def test_a_damaged_file_is_compiled_again(installation, ending, damage):
    """What is damaged would otherwise be run as machine code."""
    place = Path(one_kernel(installation)[0])
    (file,) = place.rglob(f"*.squared_evaluate-*.{ending}")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    file.write_bytes(flipped if damage == "a flipped bit" else whole[: len(whole) // 2])
    assert one_kernel(installation)[1:] == (BOTH[:1], 1.0)
    assert one_kernel(installation)[1:] == ([], 1.0)


def test_digests_follow_imports(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "_HERE", tmp_path)
    files = {"a": "from fastadmm.kernels.b import f\n", "b": "from fastadmm.kernels.c import f\n"}
    for name, text in (files | {"c": "f = 1\n", "d": "f = 1\n"}).items():
        (tmp_path / f"{name}.py").write_text(text)

    def digests():
        return [source_digest.__wrapped__(name) for name in "abcd"]

    before = digests()
    assert len(set(before)) == 4
    (tmp_path / "c.py").write_text("f = 2\n")  # in two steps, in one, the file itself, and not at all
    changed = digests()
    assert [new != old for new, old in zip(changed, before)] == [True, True, True, False]
    (tmp_path / "b.py").write_text("from fastadmm.kernels.d import f\n")  # c is no longer imported, d is
    turned = digests()
    assert [new != old for new, old in zip(turned, changed)] == [True, True, False, False]
    (tmp_path / "c.py").write_text("f = 3\n")
    (tmp_path / "d.py").write_text("f = 4\n")
    assert [new != old for new, old in zip(digests(), turned)] == [True, True, True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="XDG is Linux's")
def test_user_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_cache() == tmp_path / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_cache() == tmp_path / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert user_cache() == tmp_path / "x"


def test_observers_come_and_go():
    seen: list[tuple[str, float | None]] = []
    with watching(lambda name, seconds: seen.append((name, seconds))):
        tell("a", None)
        tell("a", 1.0)
    tell("b", None)
    assert seen == [("a", None), ("a", 1.0)]


@pytest.mark.repeats
def test_importing_compiles_nothing(tmp_path):
    """Every module of the package, in a process with an empty cache."""
    text = """
import importlib, pkgutil, sys
from fastadmm.kernels.compilation import watching
compiled, modules = [], 0
with watching(lambda name, seconds: compiled.append(name)):
    import fastadmm, fastadmm.kernels, fastadmm.data_tools
    for package in (fastadmm, fastadmm.kernels, fastadmm.data_tools):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)
            modules += 1
assert "numba" in sys.modules
print(modules, compiled)
"""
    modules, compiled = program(text, NUMBA_CACHE_DIR=str(tmp_path)).split(" ", 1)
    assert compiled == "[]"
    assert int(modules) > 80
    assert not list(tmp_path.rglob("*.nbi"))


@pytest.mark.slow
def test_warmup_and_message(tmp_path):
    """Warmup compiles what train needs; a run that has to compile says so once, and not to machines."""
    env = environment(NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    blocks, y, _ = make_vertical_classification(300, (4, 6), density=0.5)
    mixed = write_blocks(tmp_path / "mixed.parts", [blocks[0].toarray(), blocks[1]], y)

    def train(data, *options):
        out = tmp_path / "run"
        arguments = ("train", data, "--test", data, "--out", out, "--force", "--lambda", "0.1", *options)
        code, _, err = run_process(*arguments, env=env)
        assert code == 0, err
        return err

    code, out, err = run_process("warmup", env=env)
    assert (code, err) == (0, "")
    assert "logistic.logistic_advance" in out  # and within it what it calls
    assert f"kept in {tmp_path / 'cache'}" in out
    code, out, _ = run_process("warmup", env=env)
    assert code == 0
    assert out.startswith("nothing to compile")
    assert MESSAGE not in train(mixed)
    # The squared loss's proximal operator is not on the default path, and quick to compile.
    squared = ("--loss", "squared", "--scheme", "sharing")
    err = train(mixed, *squared)
    assert err.count(MESSAGE) == 1
    assert f"fastadmm: {MESSAGE}" in err
    assert MESSAGE not in train(mixed, "--loss", "squared_hinge", "--json")
