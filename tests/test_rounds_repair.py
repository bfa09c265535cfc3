"""No message, however wrong, costs a run; damage and backups have a way back, to the same bytes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fastadmm.between.agent import party_step
from fastadmm.between.train import coordinator_repair, coordinator_step
from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files import atomic

from rounds_tools import NAMES, answer, begin, change, data_of, separate, train
from run_tools import refuses, run

VALUES = {"lambda": 1e-2, "rounds": 3}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], dict[str, bytes]]:
    """A run by files after every exchange, and what it ends with."""
    folder = tmp_path_factory.mktemp("worlds")
    separate(data_of(folder), folder / "now")
    directory = begin(folder / "now", **VALUES)
    stages = []
    while (result := coordinator_step(directory)).document is None:
        stages.append(folder / f"after-{len(stages)}")
        shutil.copytree(folder / "now", stages[-1])
        coordinator_step(directory, [answer(folder / "now", request) for request in result.requests])
    return stages, ending(folder / "now")


def ending(world: Path) -> dict[str, bytes]:
    """What a run leaves, without times."""
    found = {p.name: p.read_bytes() for p in (world / "labels" / "run" / "model").iterdir()}
    for name in NAMES:
        found[name] = (world / name / "state" / f"{name}.h5").read_bytes()
    result = json.loads((world / "labels" / "run" / "result.json").read_text())
    found["result"] = json.dumps({**result, "seconds": 0}).encode()
    return found


@pytest.fixture
def world(worlds: tuple[list[Path], dict[str, bytes]], tmp_path: Path) -> Path:
    """The run in its second round, waiting for both parties."""
    shutil.copytree(worlds[0][2], tmp_path / "w")
    return tmp_path / "w"


def the_same_end(world: Path, worlds: tuple[list[Path], dict[str, bytes]]) -> None:
    train(world)
    found, wanted = ending(world), worlds[1]
    assert found.keys() == wanted.keys()
    for name, content in wanted.items():
        # The coordinator draws the name of its model in every directory once; what is in it must agree.
        assert found[name] == content, name


def put(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda answer: answer.update(values)


N = 90
RESIDUAL = "'squared_residual' is not as expected: nonnegative"
FIRST = r"'first' is not as expected: short rows \(90,\) of <f4, finite"
POISONS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a residual below zero": (put(squared_residual=-1e9), RESIDUAL),
    "no residual": (lambda answer: answer.pop("squared_residual"), "is missing"),
    "a residual that is infinite": (put(squared_residual=np.inf), RESIDUAL),
    "a text": (put(squared_residual="1"), RESIDUAL),
    "an array for a number": (put(squared_residual=np.ones(2)), RESIDUAL),
    "a scale of zero": (put(first_scale=0.0), "is not as expected: positive"),
    "something else": (put(weights=1.0), "not what was asked for"),
    "another array": (put(features=np.ones(N, dtype="f4")), "not what was asked for"),
    "too short": (put(first=np.ones(N - 1, dtype="f4")), FIRST),
    "of another type": (put(first=np.ones(N)), FIRST),
    "not finite": (put(first=np.full(N, np.nan, dtype="f4")), FIRST),
    "too large": (put(products=np.full(2, 1e200)), "is not as expected: products"),
    "too many products": (put(products=np.ones(9)), r"has shape \(9,\) instead of"),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("poison", POISONS)
def test_a_bad_message_is_refused_by_name_and_never_kept(world: Path, poison: str, tmp_path: Path) -> None:
    directory = world / "labels" / "run"
    requests = sorted((directory / "requests").iterdir())
    honest = [answer(world, request) for request in requests]
    bad = tmp_path / "bad.h5"
    shutil.copy(honest[0], bad)
    edit, text = POISONS[poison]
    change(bad, edit)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    said = refuses(FormatError, text, coordinator_step, directory, [bad, honest[1]])
    assert honest[0].name.split("-")[1] in said
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    coordinator_step(directory, honest)  # nothing is lost


@pytest.mark.repeats
def test_a_message_that_breaks_the_round_is_not_kept_either(world: Path, tmp_path: Path) -> None:
    directory = world / "labels" / "run"
    honest = [answer(world, request) for request in sorted((directory / "requests").iterdir())]
    bad = tmp_path / "bad.h5"
    shutil.copy(honest[0], bad)
    change(bad, put(first=np.full(N, 3e38, dtype="f4"), first_scale=1e149))
    refuses(FastadmmError, "party-1", coordinator_step, directory, [bad, honest[1]])
    assert coordinator_step(directory, honest).requests


def test_pipes_and_huge_files_are_not_read(world: Path, tmp_path: Path) -> None:
    directory = world / "labels" / "run"
    os.mkfifo(tmp_path / "pipe.h5")
    with open(tmp_path / "huge.h5", "wb") as file:
        file.truncate(1 << 40)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for the pipe"))
    signal.alarm(20)
    try:
        for name, text in (("pipe.h5", "not a regular file"), ("huge.h5", "at most")):
            refuses(FastadmmError, text, coordinator_step, directory, [tmp_path / name])
            home = world / "party-1"
            with pytest.raises(FastadmmError, match=text):
                party_step(home / "party-1.h5", home / "state", tmp_path / name, tmp_path / "m.h5")
    finally:
        signal.alarm(0)


def cut_request(directory: Path) -> None:
    path = sorted((directory / "requests").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-9])


def spoil_hello(directory: Path) -> None:
    path = directory / "parties.json"
    path.write_text(path.read_text().replace('"n_features": 3', '"n_features": 4'))


def spoil_checkpoint(directory: Path) -> None:
    raw = bytearray((directory / "checkpoint.h5").read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    (directory / "checkpoint.h5").write_bytes(raw)


def inflate_checkpoint(directory: Path) -> None:
    with h5py.File(directory / "checkpoint.h5", "r+") as file:
        group = file["solver/method"]
        attributes = dict(group["owner"].attrs)
        del group["owner"]
        item = group.create_dataset("owner", (2**30,), "<i8", chunks=(2**20,), compression="gzip")
        item.attrs.update(attributes)


def replaced(name: str, make: Callable[[Path], None], directory: Path) -> None:
    (directory / name).unlink()
    make(directory / name)


#: What is damaged, and whether the next step refuses it; what needs no repair is made again by the step.
DAMAGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "the journal is none": (lambda d: (d / "answers.journal").write_text("{" * 40), True),
    "the journal is gone": (lambda d: (d / "answers.journal").unlink(), False),
    "requests are gone": (lambda d: shutil.rmtree(d / "requests"), False),
    "a request is cut": (cut_request, False),
    "what parties said is damaged": (spoil_hello, True),
    **{
        f"{name} is a {make.__name__}": (partial(replaced, name, make), True)
        for name, make in (("checkpoint.h5", os.mkdir), ("answers.journal", os.mkfifo))
    },
    "the checkpoint is damaged": (spoil_checkpoint, True),
    "the checkpoint is packed": (inflate_checkpoint, True),
}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_repair_brings_a_run_back(
    world: Path, damage: str, worlds: Any, capsys: pytest.CaptureFixture
) -> None:
    directory = world / "labels" / "run"
    harm, is_refused = DAMAGES[damage]
    harm(directory)
    before = set(directory.rglob("*"))
    code = run("coordinator", "step", directory)
    said = capsys.readouterr().err
    assert (code != 0) is is_refused, said
    if is_refused:
        assert re.search(r"(answers\.journal|checkpoint\.h5|parties\.json).*", said)
        assert said.count("\n") == 1
        assert before == set(directory.rglob("*"))
        assert run("coordinator", "repair", directory) == 0
    the_same_end(world, worlds)


@pytest.mark.repeats
def test_a_finished_run_is_not_repaired_and_a_torn_result_is(worlds: Any, tmp_path: Path) -> None:
    world = tmp_path / "w"
    shutil.copytree(worlds[0][-1], world)
    train(world)
    directory = world / "labels" / "run"
    assert "over" in coordinator_repair(directory).notes[0]
    (directory / "result.json").write_text("{")
    assert coordinator_repair(directory).document is None
    the_same_end(world, worlds)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("back_to", [0, 1, 2])
def test_a_coordinator_restored_from_a_backup_goes_on(worlds: Any, tmp_path: Path, back_to: int) -> None:
    stages, _ = worlds
    world = tmp_path / "w"
    shutil.copytree(stages[3], world)
    shutil.rmtree(world / "labels")
    shutil.copytree(stages[back_to] / "labels", world / "labels")
    the_same_end(world, worlds)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("back_to", [1, 2])
def test_a_party_restored_from_a_backup_goes_on(worlds: Any, tmp_path: Path, back_to: int) -> None:
    stages, _ = worlds
    world = tmp_path / "w"
    shutil.copytree(stages[4], world)
    shutil.rmtree(world / "party-2")
    shutil.copytree(stages[back_to] / "party-2", world / "party-2")
    directory = world / "labels" / "run"
    request = next(path for path in (directory / "requests").iterdir() if "party-2" in path.name)
    refuses(InputError, "does not follow request", answer, world, request)
    coordinator_repair(directory)
    the_same_end(world, worlds)


def test_what_killed_processes_left_is_removed_by_whoever_comes_next(world: Path) -> None:
    directory, state = world / "labels" / "run", world / "party-1" / "state"
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    killed = f"{atomic._host()}-{process.pid}-0123abcd"
    left = [
        folder / f".parties.json.{killed}.tmp"
        for folder in (
            directory,
            directory / "requests",
            directory / "answers",
            state,
        )
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    (directory / f".model.{killed}.tmp").mkdir()
    (directory / ".mine").write_text("not ours")
    result = coordinator_step(directory)
    for request in result.requests:
        answer(world, request)
    assert not any(path.exists() for path in left)
    assert not (directory / f".model.{killed}.tmp").exists()
    assert (directory / ".mine").exists()


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("who", "every"),
    [
        ("party", 3),
        ("coordinator", 7),
        pytest.param("party", 1, marks=pytest.mark.slow),
        pytest.param("coordinator", 1, marks=pytest.mark.slow),
    ],
)
def test_a_step_killed_before_any_file_operation_is_made_again(world: Path, who: str, every: int) -> None:
    if who == "coordinator":
        for request in sorted((world / "labels" / "run" / "requests").iterdir()):
            answer(world, request)
    command = [sys.executable, "-P", Path(__file__).with_name("rounds_killer.py"), world, who, every]
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2
