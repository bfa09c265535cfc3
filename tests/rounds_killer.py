"""Kills a step of a run by files before its file operations, and makes it again.

``python rounds_killer.py WORLD {party,coordinator} EVERY``: a process of its own, which forks for every kill.
Prints the number of kills; fails where anything is lost or differs.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from fastadmm.between.agent import party_step
from fastadmm.between.train import coordinator_step
from fastadmm.files import atomic

_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def step(world: Path, who: str) -> None:
    """The step that is killed: of the first party, or the coordinator's with all messages."""
    run = world / "labels" / "run"
    if who == "party":
        home = world / "party-1"
        request = next((run / "requests").glob("party-1-*.msg"))
        party_step(home / "party-1.h5", home / "state", request, home / "out.h5", threads=1)
    else:
        coordinator_step(run, sorted(world.glob("party-*/answer-*")))


def kill_before(operation: int, root: Path) -> None:
    """From now on this process dies before its so-and-so-many-th change of a file below `root`."""
    left = operation

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        path = arguments[0] if arguments else None
        if not isinstance(path, (str, bytes, os.PathLike)) or not os.fsdecode(path).startswith(str(root)):
            return
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if event in _EVENTS or writes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def contents(world: Path) -> dict[str, bytes]:
    """Every file but log and checkpoint, which hold times."""
    return {
        str(path.relative_to(world)): path.read_bytes()
        for path in sorted(world.rglob("*"))
        if path.is_file()
        and path.name not in ("rounds.jsonl", "checkpoint.h5", "run.lock", ".lock", "audit.jsonl")
        and path.suffix != ".journal"
    }


def main() -> None:
    world, who, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    atomic.synchronise = lambda path: None  # type: ignore[assignment]
    wanted = world.with_name("wanted")
    shutil.copytree(world, wanted)
    step(wanted, who)
    expected, kills = contents(wanted), 0
    for operation in range(0, 1000, every):
        home = world.with_name("killed")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(world, home)
        child = os.fork()
        if child == 0:
            kill_before(operation, home)
            step(home, who)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        kills += 1
        step(home, who)
        found = contents(home)
        assert found.keys() == expected.keys(), (operation, found.keys() ^ expected.keys())
        assert found == expected, (operation, [name for name in found if found[name] != expected[name]])
    print(kills)


if __name__ == "__main__":
    main()
