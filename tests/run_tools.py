"""What the tests of runs share: small partitions, runs in this or another process, comparisons."""

import atexit
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tomli_w
from fastadmm.cli.app import main
from fastadmm.proof.claim import Claim
from fastadmm.runs.folder import Display
from fastadmm.solver import solver
from fastadmm.solver.history import RoundRecord
from fastadmm.store.partition import create_partition
from scipy import sparse

from command_server import PRELUDE, command_server
from problems import make_vertical_classification

_PROGRAM = "from fastadmm.cli.app import main; main()"


def without_compilation(chosen: str, *files: str) -> None:
    """Run the chosen tests of some files in plain Python."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *files]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(command, check=False, env=environment, cwd=_folder_of_files(), **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


class Killed(BaseException):
    """Nobody catches it: like a kill, it leaves things as they are."""


def flipped(raw: bytes, bit: int) -> bytes:
    """Bytes of which one bit is the other one."""
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def python(
    code: str, *arguments: object, check: bool = False, timeout: float | None = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What a process of Python does with some code."""
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=check, timeout=timeout, capture_output=True, text=True, **options)


def run(*arguments: object) -> int:
    """Exit code of one command, run in this process."""
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    raise AssertionError("main() returned instead of exiting")


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """The one line of a command that ends with this exit code."""
    capsys.readouterr()
    assert run(*arguments) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    return error


def contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let proofs contradict themselves."""
    prove = solver.prove

    def planted(*arguments: Any) -> Any:
        return replace(prove(*arguments), claim=Claim.CONTRADICTION, reason="planted")

    monkeypatch.setattr(solver, "prove", planted)


@cache
def _folder_of_files() -> Path:
    """A directory that lives as long as this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


def in_file(**keys: object) -> list[str]:
    """The option that gives keys which only files have."""
    path = _folder_of_files() / f"{len(list(_folder_of_files().iterdir()))}.toml"
    path.write_text(tomli_w.dumps(keys), encoding="utf-8")
    return ["--config", str(path)]


@contextmanager
def running(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block, whatever ends the block."""
    pipe = subprocess.PIPE
    options = {"stdout": pipe, "stderr": pipe, "text": True, "encoding": "utf-8", **options}
    with subprocess.Popen([str(a) for a in command], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def start(
    *arguments: object, prelude: str = "", **options: Any
) -> AbstractContextManager[subprocess.Popen[str]]:
    """One command in a process of its own, which runs a prelude first, until the end of the block."""
    return running([sys.executable, "-P", "-c", f"{prelude}\n{_PROGRAM}", *arguments], **options)


@cache
def forking_commands() -> Path:
    """Directory of a ``fastadmm`` that forks instead of starting; it lives as long as this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(command_server())


def run_process(*arguments: object, prelude: str = "", **options: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command in a process of its own.

    A fork of one that has imported everything and runs the prelude, but where the environment is given: that
    may change the start.
    """
    if "env" in options:
        program = start(*arguments, prelude=prelude, **options)
    else:
        environment = {**os.environ, PRELUDE: prelude}
        program = running([forking_commands() / "fastadmm", *arguments], env=environment, **options)
    with program as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def edited(name: str, change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    """What changes a file of HDF5 in a directory."""

    def edit(directory: Path) -> None:
        with h5py.File(directory / name, "r+") as file:
            change(file)

    return edit


def remake(file: h5py.File, key: str, **options: Any) -> None:
    """Make a dataset anew, with the attributes that it had."""
    attributes = dict(file[key].attrs)
    del file[key]
    file.create_dataset(key, **options).attrs.update(attributes)


def cut(name: str, part: float) -> Callable[[Path], None]:
    """What leaves so much of a file in a directory."""
    return lambda place: os.truncate(place / name, int((place / name).stat().st_size * part))


def overwrite(name: str, raw: bytes) -> Callable[[Path], None]:
    """What puts other bytes into a file in a directory."""
    return lambda place: (place / name).write_bytes(raw) and None


def write_blocks(
    path: Path, blocks: Sequence[Any], y: np.ndarray, *, task: str = "classification", **labels: Any
) -> Path:
    """A partition of given feature blocks and labels."""
    with create_partition(path, task=task) as writer:
        for block in blocks:
            kind = "csr" if sparse.issparse(block) else "dense"
            writer.party(n_features=block.shape[1], kind=kind).append(block)
        classes = labels.pop("classes", ("no", "yes") if task == "classification" else None)
        writer.labels(classes=classes).append(y, **labels)
    return path


def write_problem(path: Path, n: int = 300, widths: Sequence[int] = (4, 6, 3), **options: Any) -> Path:
    """A synthetic classification problem as a partition."""
    blocks, y, _ = make_vertical_classification(n, widths, **options)
    return write_blocks(path, blocks, y)


def without_id(file: Path) -> bytes:
    """Bytes of a model's file but for its id, which is random, and for the digest that covers the id."""
    raw = file.read_bytes()
    if file.name == "model.toml":
        return re.sub(rb'(?m)^id = ".+"$', b"", raw)
    with h5py.File(file) as opened:
        for name in {"model-id", "digest"} & set(opened.attrs):
            text = opened.attrs[name].encode()
            assert text in raw
            raw = raw.replace(text, bytes(len(text)))
    return raw


def model_digests(run_directory: Path) -> dict[str, str]:
    """sha256 of every file of a run's model, without its id."""
    files = sorted((run_directory / "model").iterdir())
    assert files
    return {file.name: hashlib.sha256(without_id(file)).hexdigest() for file in files}


def logged(run_directory: Path) -> list[dict[str, Any]]:
    """Lines of the round log, without the only value that may differ between equal runs."""
    lines = (run_directory / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        del record["seconds"]
    return records


def result_of(run_directory: Path) -> dict[str, Any]:
    """Content of result.json."""
    return json.loads((run_directory / "result.json").read_text(encoding="utf-8"))


def assert_same_run(one: Path, other: Path) -> None:
    """The same model, bit for bit, by the same rounds."""
    assert model_digests(one) == model_digests(other)
    assert logged(one) == logged(other)
    drop = {"seconds"}
    assert {k: v for k, v in result_of(one).items() if k not in drop} == {
        k: v for k, v in result_of(other).items() if k not in drop
    }


def assert_clean(run_directory: Path) -> None:
    """Nothing under a temporary name."""
    assert not [p.name for p in run_directory.rglob(".*")]


def within(folder: Path) -> Path:
    """A new directory in a test's own one."""
    return Path(tempfile.mkdtemp(dir=folder))


def n_lines(path: Path) -> int:
    """Whole lines of a file; 0 where it is absent."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60.0) -> bool:
    """Wait until a condition holds; False if the process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.002)
    return True


class SignalAfter(Display):
    """A display that sends this process a signal after a given round."""

    def __init__(self, n_rounds: int, number: int = signal.SIGINT) -> None:
        self.n_rounds, self.number = n_rounds, number

    def round(self, record: RoundRecord) -> None:
        """Send it."""
        if record.round == self.n_rounds:
            os.kill(os.getpid(), self.number)


class CrashAfter(Display):
    """A display that ends the run after a given round as abruptly as one process can end itself."""

    def __init__(self, n_rounds: int) -> None:
        self.n_rounds = n_rounds

    def round(self, record: RoundRecord) -> None:
        """Raise."""
        if record.round == self.n_rounds:
            raise KeyboardInterrupt


class Notes(Display):
    """A display that keeps its notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """Keep one line."""
        self.lines.append(text)


def refuses(
    error: type[BaseException] | tuple[type[BaseException], ...],
    words: str,
    call: Callable[..., object],
    /,
    *arguments: Any,
    **options: Any,
) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(error, match=words or None) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints."""
    capsys.readouterr()
    assert run(*arguments) == code
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """The document that a command prints."""
    return json.loads(printed(capsys, *arguments, "--json", code=code))
