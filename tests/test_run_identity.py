"""A run goes on only from what it wrote itself, and writes only into its own directory."""

import errno
import os
import shutil
import tomllib

import h5py
import numpy as np
import pytest
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files import atomic
from fastadmm.files.atomic import atomic_directory, atomic_file, exchange, remove_leftovers
from fastadmm.runs import checkpoint
from fastadmm.runs.config import make_config
from fastadmm.runs.folder import Display, run_lock
from fastadmm.runs.train import resume_run, start_run
from fastadmm.store.elements import read_strings, write_strings
from fastadmm.store.h5file import create_h5
from fastadmm.store.partition import open_partition

from run_tools import SignalAfter, flipped, python, refuses, result_of, run, write_problem

LIMITS = {"gap": 0.0, "rounds": 6, "lambda": 1e-3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_problem(tmp_path_factory.mktemp("identity") / "a.parts", n=60, widths=(3, 4, 2))


def configured(data, **changes):
    return make_config({"data": str(data), **LIMITS, **changes})


def test_a_running_run_is_held_and_not_replaced(data, tmp_path):
    start_run(configured(data), tmp_path / "run")
    before = sorted(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    with run_lock(tmp_path / "run"), pytest.raises(StorageError, match="another process"):
        start_run(configured(data, rounds=2), tmp_path / "run", force=True)
    assert sorted(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()) == before
    assert os.listdir(tmp_path) == ["run"]

    # A new run is held from the moment it appears.
    class Intruder(Display):
        def round(self, record):
            with pytest.raises(StorageError, match="another process"), run_lock(tmp_path / "run"):
                pass

    start_run(configured(data), tmp_path / "run", force=True, display=Intruder())
    start_run(configured(data), tmp_path / "run", force=True, display=Intruder())


def test_nothing_is_written_into_a_directory_that_took_the_place(data, tmp_path):
    out = tmp_path / "run"

    class Replace(Display):
        def round(self, record):
            if record.round == 3:
                os.rename(out, tmp_path / "aside")
                out.mkdir()

    with pytest.raises(StorageError, match="moved, removed or replaced"):
        start_run(configured(data, checkpoint_rounds=1), out, display=Replace())
    assert not any(out.iterdir())
    assert not (tmp_path / "aside" / "result.json").exists()
    shutil.rmtree(out)
    shutil.rmtree(tmp_path / "aside")
    with pytest.raises(StorageError, match="moved, removed or replaced"):
        start_run(configured(data), out, display=Replace())
    assert not any(out.iterdir())


def test_a_directory_is_replaced_in_one_step(tmp_path, monkeypatch):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    if not exchange(tmp_path / "new", tmp_path / "old"):
        pytest.skip("this system cannot exchange two names")
    assert (tmp_path / "old" / "file").read_text() == "new"
    assert (tmp_path / "new" / "file").read_text() == "old"

    def refuse(*_):
        raise AssertionError("the old directory was set aside")

    with monkeypatch.context() as patched, atomic_directory(tmp_path / "old", force=True) as directory:
        (directory / "file").write_text("third")
        patched.setattr(atomic.os, "rename", refuse)
    assert (tmp_path / "old" / "file").read_text() == "third"
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    with atomic_directory(tmp_path / "old", force=True) as directory:
        (directory / "file").write_text("fourth")
    assert (tmp_path / "old" / "file").read_text() == "fourth"
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_a_checkpoint_of_another_run_is_refused(data, tmp_path):
    for name in ("run", "other"):
        start_run(configured(data), tmp_path / name, display=SignalAfter(3))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", tmp_path / "run" / "checkpoints")
    refuses(InputError, "a checkpoint of another run", resume_run, tmp_path / "run")
    assert checkpoint.checkpoints(tmp_path / "run" / "checkpoints")


def test_other_settings_than_the_checkpoints_are_refused(data, tmp_path, monkeypatch):
    """Also where ``run.toml`` has no digest, so that its flipped bit stays unseen."""
    out = tmp_path / "run"
    monkeypatch.setattr("fastadmm.runs.claim.seal_of", lambda document: "none")
    start_run(configured(data), out, display=SignalAfter(3))
    monkeypatch.undo()
    path = out / "run.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("settings")]
    path.write_text("\n".join(lines).replace("lambda = 0.001", "lambda = 0.009") + "\n")
    refuses(InputError, "a checkpoint of other settings or data", resume_run, out)


def test_nothing_is_claimed_that_was_not_computed_again(data, tmp_path):
    """A run of version 0.1 has digests neither of its settings nor in its checkpoints."""
    out = tmp_path / "run"
    start_run(configured(data, gap=1e-6, rounds=100), out)
    (out / "result.json").unlink()
    path = out / "run.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("settings")]
    path.write_text("\n".join(lines).replace("lambda = 0.001", "lambda = 0.009") + "\n")
    for saved in (out / "checkpoints").iterdir():
        (saved / "digests.json").unlink()
        with h5py.File(saved / "coordinator.h5", "r+") as file:
            del file.attrs["run"], file.attrs["problem"]
    refuses(InputError, "the objective of the saved weights is", resume_run, out)


def test_every_flipped_bit_of_a_checkpoint_is_seen(data, tmp_path):
    out = tmp_path / "run"
    start_run(configured(data), tmp_path / "whole")
    start_run(configured(data, checkpoint_rounds=2), out, display=SignalAfter(5))
    newest = checkpoint.checkpoints(out / "checkpoints")[-1]
    rng = np.random.default_rng(0)
    for file in newest.iterdir():
        raw = file.read_bytes()
        for place in rng.integers(0, 8 * len(raw), 40):
            file.write_bytes(flipped(raw, place))
            refuses(FormatError, "", checkpoint._check_digests, newest)
        file.write_bytes(raw)
    (newest / "party-1.h5").write_bytes(b"")
    resume_run(out)
    assert result_of(out)["objective"] == result_of(tmp_path / "whole")["objective"]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_what_cannot_be_read_is_not_damaged(data, tmp_path, monkeypatch, code):
    out, real, left = tmp_path / "run", checkpoint.read_h5, 50
    start_run(configured(data), out, display=SignalAfter(3))
    before = sorted(path.name for path in (out / "checkpoints").iterdir())

    def read(*arguments, **options):
        nonlocal left
        left -= 1
        if left >= 0:
            raise atomic.storage_error("somewhere", OSError(code, os.strerror(code)), "read")
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "read_h5", read)
    monkeypatch.setattr("fastadmm.files.reading._PAUSES", (0.0, 0.0))
    refuses(StorageError, "cannot read", resume_run, out)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == before
    left = 1  # the first attempt fails, the second does not
    assert resume_run(out)["rounds"] == 6


def test_a_flipped_bit_of_any_byte_of_a_partitions_manifest_is_seen(data, tmp_path):
    place = tmp_path / "a.parts"
    shutil.copytree(data, place)
    manifest = place / "partition.toml"
    raw = manifest.read_bytes()
    names = [party.name for party in open_partition(place).parties]
    for at in range(len(raw)):
        manifest.write_bytes(flipped(raw, 8 * at + 3 * at % 8))
        try:
            found = open_partition(place)
        except (FormatError, InputError, StorageError):
            continue
        # White space between tables, say: nothing that was told has changed.
        assert [party.name for party in found.parties] == names
        assert found.labels is not None


def test_a_lost_party_is_refused(data, tmp_path):
    place = tmp_path / "a.parts"
    shutil.copytree(data, place)
    text = (place / "partition.toml").read_text()
    head, _, tail = text.rpartition("[[party]]")
    (place / "partition.toml").write_text(f"{head}[[pirty]]{tail}")
    refuses(FormatError, "unknown key 'pirty'", open_partition, place)
    (place / "partition.toml").write_text(text.replace('task = "classification"', 'task = "regression"'))
    refuses(FormatError, "take out the line 'digest'", open_partition, place)
    lines = [line for line in text.splitlines() if not line.startswith("digest")]
    (place / "partition.toml").write_text("\n".join(lines))
    assert len(open_partition(place).parties) == 3


@pytest.mark.representatives(3)
@pytest.mark.parametrize("flip", range(0, 400, 37))
def test_a_damaged_fit_of_a_path_is_refused(data, tmp_path, flip, finished_path):
    out = tmp_path / "run"
    shutil.copytree(finished_path, out)
    (out / "result.json").unlink()
    file = out / "fits" / "lambda-0001.json"
    kept = file.read_bytes()
    file.write_bytes(flipped(kept, (8 * len(kept) - 1 - 3 * flip) // 8 * 8 + flip % 8))
    refuses(FormatError, "lambda-0001", resume_run, out)


@pytest.fixture(scope="module")
def finished_path(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("paths") / "run"
    start_run(make_config({"data": str(data), "path": True, "path_values": [0.1, 0.01], "folds": 0}), out)
    return out


@pytest.mark.representatives(1)
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_fault_at_any_write_of_a_file_neither_crashes_hdf5_nor_passes_through_it(
    tmp_path, monkeypatch, fault
):
    """HDF5 reads its own heaps back, where text lies: it has to find what it wrote."""
    n_writes, fail_at = 0, -1

    class Disk:
        def __init__(self, path, *_, **__):
            self.file = open(path, "w+b", buffering=0)  # type: ignore[call-overload]  # noqa: SIM115

        def write(self, data):
            nonlocal n_writes
            n_writes += 1
            if n_writes == fail_at or (n_writes > fail_at > 0 and isinstance(fault, OSError)):
                raise fault
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    def make():
        with create_h5(tmp_path / "a.h5", "test") as file:
            for k in range(6):
                write_strings(file, f"names-{k}", [f"{k}-{j}" * 40 for j in range(50)])
                file.attrs[f"text-{k}"] = "x" * 500 * k
                file.flush()
                assert list(read_strings(file, f"names-{k}")) == [f"{k}-{j}" * 40 for j in range(50)]

    monkeypatch.setattr("fastadmm.store.h5file.open", Disk, raising=False)
    make()
    total = n_writes
    assert total > 20
    (tmp_path / "a.h5").unlink()
    for at in range(1, total + 1):
        n_writes, fail_at = 0, at
        refuses(StorageError if isinstance(fault, OSError) else KeyboardInterrupt, "", make)
        assert not os.listdir(tmp_path)


def test_whoever_comes_next_removes_what_a_killed_process_left(tmp_path):
    code = (
        "import os, sys\n"
        "from fastadmm.files.atomic import atomic_directory, atomic_file\n"
        "with atomic_file('a') as one, atomic_directory('b') as two:\n"
        "    one.write_text('half'); (two / 'c').write_text('half'); os._exit(9)\n"
    )
    python(code, cwd=tmp_path)
    assert len(os.listdir(tmp_path)) == 2
    with atomic_file(tmp_path / "other") as mine:
        mine.write_text("whole")
        remove_leftovers(tmp_path, "other")  # one that a living process writes stays
        assert mine.exists()
    assert len(os.listdir(tmp_path)) == 3
    with atomic_file(tmp_path / "a") as mine:
        mine.write_text("whole")
    with atomic_directory(tmp_path / "b"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "other"]


def test_signals_are_neither_lost_nor_tracebacks():
    code = (
        "import os, signal, sys, time\n"
        "from fastadmm.cli.start import listen\n"
        "listen()\n"
        "class A:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        for _ in range(10): pass\n"
        "try:\n"
        "    A()\n"
        "    for _ in range(2000): time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (130, "")
    # An interrupt during the first imports is no traceback.
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from fastadmm.cli.start import main\n"
        "main()\n"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_flipped_bits_of_owners_files_are_seen(tmp_path):
    """Kappa divides every budget, and a run's epsilon is what its answers are drawn with."""
    rng = np.random.default_rng(0)
    for name in "ab":
        rows = [",".join(f"{v:.3f}" for v in row) + f",{int(row[0] > 0)}" for row in rng.normal(size=(30, 2))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,y", *rows]) + "\n")
    sources = (tmp_path / "a.csv", tmp_path / "b.csv")
    assert run("owners", "convert", *sources, "--label", "y", "-o", tmp_path / "o.owners") == 0
    settings = ("--epsilon", "1", "--bound", "clip:1", "--step", "0.1", "--rounds", "2", "-q")
    train = ("owners", "train", tmp_path / "o.owners", *settings, "-o", tmp_path / "run")
    assert run(*train) == 0
    (tmp_path / "run" / "result.json").unlink()
    for file, command in (
        (tmp_path / "o.owners" / "owners.toml", ("inspect", "--check", tmp_path / "o.owners")),
        (tmp_path / "run" / "owners-run.toml", ("owners", "resume", tmp_path / "run", "-q")),
    ):
        raw = file.read_bytes()
        for at in range(3, 8 * len(raw), 8 * len(raw) // 40):
            spoiled = flipped(raw, at)
            file.write_bytes(spoiled)
            if tomllib_or_none(spoiled) != tomllib_or_none(raw):
                assert run(*command) not in (0, 1), (file.name, at)
        file.write_bytes(raw)
    assert run("owners", "resume", tmp_path / "run", "-q") == 0
    assert run(*train, "--force") == 9  # it would remove the run's own ledger


def tomllib_or_none(raw):
    try:
        return tomllib.loads(bytes(raw).decode())
    except ValueError:
        return None
