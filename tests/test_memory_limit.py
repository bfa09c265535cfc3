"""Runs under a limit of memory: the same model to the bit, a plan that holds, one line where nothing fits."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.coordinator.subspace.scheme import Subspace
from fastadmm.errors import ConfigError
from fastadmm.method.scheme import Shape
from fastadmm.problem.traits import Traits
from fastadmm.runs.config import make_config
from fastadmm.runs.plan import _group_memory, make_plan
from fastadmm.runs.train import plan_run, resume_run, start_run
from fastadmm.settings.checks import parse_bytes
from fastadmm.store.partition import open_partition

from problems import make_vertical_classification
from run_tools import CrashAfter, Notes, assert_same_run, python, refuses, result_of, run, write_blocks
from scripts import script_of

pytestmark = pytest.mark.usefixtures("small_tiles")
N = 9000
#: What reads blocks in other ways.
SCHEMES: dict[str, dict[str, object]] = {
    "subspace": {"scheme": "subspace"},
    "sharing": {"scheme": "sharing"},
    "cg": {"scheme": "sharing", "x_update": "cg", "rounds": 3},
    "lasso": {"regularizer": "l1"},
}
#: Starts a run, or goes on with the one that is there, and prints its peak.
PROGRAM = (
    "import json, pathlib, sys\n"
    "from fastadmm.runs.config import make_config\n"
    "from fastadmm.runs.train import resume_run, start_run\n"
    "from fastadmm.runs.plan import peak_memory\n"
    "values, folder = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])\n"
    "if folder.exists():\n"
    "    resume_run(folder, changes={'rounds': values['rounds']})\n"
    "else:\n"
    "    start_run(make_config(values), folder)\n"
    "print(peak_memory())\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """a.parts: a dense and two sparse parties; t.parts: test data."""
    folder = tmp_path_factory.mktemp("limit")
    for name, n, seed in (("a.parts", N, 1), ("t.parts", 500, 2)):
        blocks, y, _ = make_vertical_classification(n, (12, 9, 15), seed=seed)
        rng = np.random.default_rng(seed)
        sparse = [sp.csr_array(np.where(rng.random(b.shape) < 0.5, b, 0.0)) for b in blocks]
        write_blocks(folder / name, [blocks[0], sparse[1], sparse[2]], y)
    return folder


def configuration(folder, **values):
    """A configuration that runs all of its rounds."""
    return make_config({"data": str(folder / "a.parts"), "rounds": 7, "gap": 0.0, "threads": 2, **values})


def limited(config):
    """The same under a limit that leaves half of the data in memory."""
    partition = open_partition(config.data)
    test = open_partition(config.test).parties if config.test else []
    free = make_plan(partition.parties, test, N, config, n_threads=2)
    return replace(config, memory=str(free.total - free.data // 2))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_streamed_run_is_the_same_to_the_bit(folder, tmp_path, name):
    config = configuration(folder, test=str(folder / "t.parts"), **SCHEMES[name])
    start_run(config, tmp_path / "memory")
    tight = limited(config)
    plan = plan_run(tight)
    assert any(p.streamed for p in plan.parties)
    assert plan.total <= parse_bytes(tight.memory or "")
    start_run(replace(tight, threads=1), tmp_path / "streamed")
    assert_same_run(tmp_path / "memory", tmp_path / "streamed")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", ["subspace", "sharing"])
def test_resume_of_a_streamed_run(folder, tmp_path, name):
    config = configuration(folder, **SCHEMES[name])
    start_run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start_run(replace(limited(config), checkpoint_rounds=2), tmp_path / "run", display=CrashAfter(5))
    resume_run(tmp_path / "run")
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    # and what began in memory goes on from the file
    with pytest.raises(KeyboardInterrupt):
        start_run(replace(config, checkpoint_rounds=2), tmp_path / "other", display=CrashAfter(3))
    notes = Notes()
    resume_run(tmp_path / "other", changes={"memory": limited(config).memory}, display=notes)
    assert any("streamed" in line for line in notes.lines)
    assert_same_run(tmp_path / "whole", tmp_path / "other")


def test_units_and_pieces_that_are_planned():
    """Where the gradient is repaired; a run without a gap to reach went above its limit by it."""
    traits = Traits(True, True, True, False)
    one, two = (Shape(traits, 150_000, 1, [5000, 5000], [0.003, 0.003], threads) for threads in (1, 2))
    assert one.piece_bytes(128) == 8 * 128 * 9375
    assert Subspace().state_bytes(two, 64)[0] - Subspace().state_bytes(one, 64)[0] == one.piece_bytes(128)
    few = Shape(traits, 900, 1, [5000], [1.0], 8)
    assert few.piece_bytes(3) == 8 * 3 * 900  # a single leaf
    sizes = {
        "2": 2,
        "2GB": 2 * 10**9,
        "512MiB": 2**29,
        " 1.5 gib ": 3 * 2**29,
        "7k": 7000,
        "1TiB": 2**40,
        "9B": 9,
    }
    assert {text: parse_bytes(text) for text in sizes} == sizes


def test_plans_and_limits_of_runs(folder, tmp_path, capsys):
    assert run("train", folder / "a.parts", "--memory", "100MB", "--out", tmp_path / "run") == 5
    err = capsys.readouterr().err
    assert err.count("error") == 1
    assert re.search(
        r"memory: 100\.0 MB is too little: training .*a\.parts needs at least [\d.]+ MB even when it streams "
        r"every block \(data .*state [\d.]+ .B, .*program 222\.3 MB\); "
        r"raise the limit",
        err,
    )
    assert not list(tmp_path.iterdir())
    config = limited(configuration(folder))
    arguments = ["train", config.data, "--memory", config.memory, "--dry-run", "--out", tmp_path / "run"]
    arguments += ["--rounds", 7, "--gap", 0, "--threads", 2]
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert re.search(r"party-\d: \w+, \d+ features, streamed", out)
    assert run(*arguments, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["total"] <= plan["limit"] == parse_bytes(config.memory or "")
    assert {p["streamed"] for p in plan["parties"]} <= {True, False}
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "many", "2 XB", "-1GB", "0MB", "1e3", "GB"])
def test_amounts_that_are_none(text):
    refuses(ConfigError, "memory: ", parse_bytes, text)


@pytest.mark.slow
def test_peak_memory_stays_under_the_limit(tmp_path):
    rng = np.random.default_rng(0)
    n, d = 60000, 500
    blocks = [rng.normal(size=(n, d)) for _ in range(4)]
    y = (sum(b[:, :5].sum(axis=1) for b in blocks) > 0).astype(float)
    write_blocks(tmp_path / "a.parts", blocks, y)
    del blocks
    limit = 400 * 10**6
    size = sum(f.stat().st_size for f in (tmp_path / "a.parts").glob("party-*.h5"))
    assert size > 2 * limit
    for scheme in ("subspace", "sharing"):
        values = {"data": str(tmp_path / "a.parts"), "scheme": scheme, "rounds": 25, "gap": 0.0}
        told = json.dumps({**values, "memory": str(limit)})
        done = python(PROGRAM, told, tmp_path / scheme, check=True, timeout=None)
        assert int(done.stdout) < limit
        assert result_of(tmp_path / scheme)["rounds"] == 25


@pytest.mark.repeats
def test_a_resumed_run_holds_its_messages_once(tmp_path):
    n, widths = 100_000, (20, 20)
    blocks, y, _ = make_vertical_classification(n, widths, seed=4)
    write_blocks(tmp_path / "a.parts", blocks, y)
    values = {"data": str(tmp_path / "a.parts"), "scheme": "subspace", "threads": 2}

    def peak(rounds):
        told = json.dumps({**values, "rounds": rounds, "gap": 0.0, "lambda": 1e-6})
        return int(python(PROGRAM, told, tmp_path / "run", check=True).stdout)

    peak(1)  # compiles
    shutil.rmtree(tmp_path / "run")
    fresh = peak(6)
    # One round more writes a few; holding all messages twice would add all of them.
    assert peak(7) < fresh + 8 * n * sum(widths) // 3


@pytest.mark.repeats
def test_what_acceleration_holds_is_planned():
    # A part of its history was copied in every round: 16 % more than the plan with eight parties.
    bench = script_of("bench/memory.py")
    held, planned = bench.measure(100_000, ("sharing", "logistic", 8, 4, 14, {}))
    assert 0.9 * planned < held < 1.1 * planned


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_leave_what_is_not_used(tmp_path, version):
    """Of all that a process is in; files that were read before make way."""
    root, own = tmp_path / "root", tmp_path / "cgroup"
    place = root / "memory" if version == 1 else root

    def group(path, most, used, cache):
        (place / path).mkdir(parents=True, exist_ok=True)
        limit, usage = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if version == 1
            else ("memory.max", "memory.current")
        )
        (place / path / limit).write_text(f"{most}\n")
        (place / path / usage).write_text(f"{used}\n")
        key = "total_inactive_file" if version == 1 else "inactive_file"
        (place / path / "memory.stat").write_text(f"anon 1\n{key} {cache}\n")

    own.write_text("3:cpu:/x\n" + ("4:memory:/a/b\n0::/\n" if version == 1 else "0::/a/b\n"))
    assert _group_memory(root, own) is None
    group("a/b", str(2**63 - 4096) if version == 1 else "max", 5, 0)
    assert (_group_memory(root, own) or 2**62) >= 2**62
    group("a", "1000", 900, 700)
    assert _group_memory(root, own) == 800
    group("", "300", 290, 0)  # as a container sees its own group
    assert _group_memory(root, own) == 10
    own.unlink()
    assert _group_memory(root, own) == 10


def test_a_limit_of_the_address_space_is_kept():
    pytest.importorskip("resource")
    program = (
        "import resource, sys\n"
        "from fastadmm.runs.plan import available_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), resource.RLIM_INFINITY))\n"
        "print(available_memory())\n"
    )
    most = 3 * 10**9
    left = int(python(program, most, check=True).stdout)
    assert 0 < left < most
