"""Faults between organisations: processes that are killed or stopped, and a link that drops all packets.

``python -P tests/faults/federation.py --faults 160 --nvflare 40 --json bench/federation_faults.json``. Agents
and a coordinator are processes; again and again one of them is killed, or stopped until the coordinator says
that it is lost, and started again as its system would. A part goes over NVFlare, whose own processes are
killed and stopped as well; as root its machines are in a network namespace, where the link can be cut.

A fault is survived if the coordinator says within the deadline and two seconds that a party is lost, and if
the run ends with the weights and the log of a run in one process, to the bit.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
sys.path.insert(0, str(HERE.parent))

from page_outputs import between_markers  # noqa: E402

NAMES = ("party-1", "party-2")

#: Deadline of an exchange in seconds, over a socket and over NVFlare, and what may be added to it.
DEADLINE, FAR_DEADLINE, MORE = 2.0, 10.0, 2.0

#: A run that does not go on for so long is lost; NVFlare's jobs take long to begin where many processes run.
PATIENCE = 300.0

#: What is trained, over and over: many exchanges of little work.
PROBLEMS: tuple[dict[str, Any], ...] = (
    {"scheme": "sharing", "lambda": 1e-3, "gap": 0.0, "rounds": 40},
    {"scheme": "subspace", "directions": "both", "history": 3, "lambda": 1e-5, "gap": 0.0, "rounds": 40},
    {"scheme": "proximal", "regularizer": "l1", "history": 3, "lambda": 1e-3, "gap": 0.0, "rounds": 20},
)

NEAR = ("agent killed", "agent stopped", "coordinator killed")
FAR = (
    *("agent killed", "coordinator killed", "site's job killed", "site's job stopped", "site killed"),
    *("server's job killed", "server killed", "link cut"),
)


@dataclass
class Fault:
    """A fault: its kind, the seconds until the coordinator said so, and what went wrong."""

    kind: str
    known: float | None = None
    problem: str = ""


def forked(work: Callable[[], object], log: Path) -> int:
    """A child with all that is imported here; its identifier."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(file, number)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass
class World:
    """Parties and a coordinator in a directory of their own.

    ``one`` is a run in one process and ``far`` NVFlare's stage, or None where parties are on this machine.
    """

    home: Path
    one: Path
    values: dict[str, Any]
    far: Any = None
    pids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir()
        for name in (*NAMES, "labels"):
            (self.home / name).mkdir()
            shutil.copyfile(self.one.with_name("d.parts") / f"{name}.h5", self.home / name / f"{name}.h5")
        self.deadline = DEADLINE if self.far is None else FAR_DEADLINE
        way = "unix:{}.sock" if self.far is None else "nvflare:{}"
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.values.items())
        text = f'data = "labels/labels.h5"\n{text}[federation]\n'
        if self.far is not None:
            from fastadmm.between.stage import ADMIN, SERVER

            text += f'kit = "{self.far.kits[ADMIN].path}"\nrelay = "{self.far.sockets[SERVER]}"\n'
        text += "[federation.parties]\n" + "".join(f'{n} = "{way.format(n)}"\n' for n in NAMES)
        (self.home / "run.toml").write_text(text)

    @property
    def said(self) -> Path:
        return self.home / "said.jsonl"

    def socket(self, name: str) -> Path:
        return self.home / f"{name}.sock" if self.far is None else self.far.sockets[name]

    def agent(self, name: str) -> None:
        """Start a party's agent."""

        def work() -> None:
            from fastadmm.between.agent import Agent
            from fastadmm.between.socket import serve

            agent = Agent(self.home / name / f"{name}.h5", self.home / name / "agent", threads=1)
            serve(self.socket(name), agent.handle).wait()

        self.pids[name] = forked(work, self.home / f"{name}.txt")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with socket(AF_UNIX) as probe, suppress(OSError):
                probe.connect(str(self.socket(name)))
                return
            time.sleep(0.01)
        raise TimeoutError(f"{name} does not listen")

    def coordinator(self) -> None:
        """Start the coordinator, with deadlines that are shorter than usual."""

        def work() -> None:
            from fastadmm.between import hub, train

            hub._SECONDS = hub._FIRST_SECONDS = self.deadline
            train.PAUSES = (0.2,) * 10_000
            with open(self.said, "a", buffering=1) as log:
                train.federate(
                    self.home / "run.toml",
                    self.home / "run",
                    lambda text: log.write(json.dumps([time.monotonic(), text]) + "\n"),
                )

        self.pids["coordinator"] = forked(work, self.home / "coordinator.txt")

    def begin(self) -> None:
        """All processes; the run is approved."""
        from fastadmm.between.consent import agent_approve, shown_digest

        for name in NAMES:
            self.agent(name)
        self.coordinator()  # is refused
        self.ended(PATIENCE)
        for name in NAMES:
            own = self.home / "run" / "run.json", self.home / name / f"{name}.h5", self.home / name / "agent"
            agent_approve(*own, confirm=shown_digest(agent_approve(*own)[0]))
        self.coordinator()

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)
        os.waitpid(self.pids.pop(name), 0)

    def ended(self, seconds: float) -> bool:
        """Whether the coordinator ends within some time."""
        until = time.monotonic() + seconds
        while "coordinator" in self.pids:
            if os.waitpid(self.pids["coordinator"], os.WNOHANG)[0]:
                del self.pids["coordinator"]
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(0.002)
        return True

    def answers(self) -> int:
        """Exchanges that one party has answered."""
        path = self.home / NAMES[0] / "agent" / "audit.jsonl"
        return path.read_bytes().count(b'"answer"') if path.exists() else 0

    def wait_lost(self, since: float, seconds: float) -> float | None:
        """Seconds until the coordinator said that somebody is lost; None if it has ended or is silent."""
        while time.monotonic() < since + seconds and not self.ended(0.0):
            for line in self.said.read_text().splitlines() if self.said.exists() else ():
                at, text = json.loads(line)
                if at >= since and "lost" in text:
                    return float(at - since)
            time.sleep(0.01)
        return None

    def close(self) -> None:
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.pids.clear()


def strike(world: World, kind: str, chance: random.Random) -> Fault:
    """Do it, wait until it is known, and let the system start again what died."""
    from fastadmm.between.stage import SERVER

    fault, name, begun = Fault(kind), chance.choice(NAMES), time.monotonic()
    patience = world.deadline + MORE
    again: list[Callable[[], object]] = []
    if kind == "coordinator killed":
        world.kill("coordinator")
        world.coordinator()
        return fault
    if kind == "agent killed":
        world.kill(name)
        again.append(lambda: world.agent(name))
    elif kind == "agent stopped":
        os.kill(world.pids[name], signal.SIGSTOP)
        again.append(lambda: os.kill(world.pids[name], signal.SIGCONT))
    elif kind == "link cut":
        link("add")
        again.append(lambda: link("del"))
    else:
        site = SERVER if kind.startswith("server") else name
        number = signal.SIGSTOP if kind.endswith("stopped") else signal.SIGKILL
        for job in world.far.jobs(site):
            with suppress(ProcessLookupError):
                os.kill(job, number)
        if kind in ("site killed", "server killed"):
            world.far.kill(f"nvflare-{site}")
            again.append(lambda: world.far.start(site))
    fault.known = world.wait_lost(begun, patience)
    if fault.known is None and not world.ended(0.0):  # nobody is missed where all have been asked
        fault.problem = f"not known after {patience:g} s"
    for repair in again:
        repair()
    return fault


def link(what: str) -> None:
    """Let the loopback device of this namespace drop all packets, or carry them again."""
    more = ["pfifo", "limit", "0"] if what == "add" else []
    subprocess.run(["tc", "qdisc", what, "dev", "lo", "root", *more], check=True)


def one_run(world: World, kinds: Iterator[str], chance: random.Random) -> list[Fault]:
    """A run with faults until it ends; the next kinds are taken as long as it goes on."""
    faults: list[Fault] = []
    try:
        world.begin()
        seen, moved = world.answers(), time.monotonic()
        pause = chance.randint(2, 6)
        while not world.ended(0.002):
            now = world.answers()
            if now > seen:
                moved = time.monotonic()
            if time.monotonic() - moved > PATIENCE:
                raise TimeoutError(f"no exchange for {PATIENCE:g} s")
            if now >= seen + pause and (kind := next(kinds, "")):
                time.sleep(chance.uniform(0.0, 0.02))
                if world.ended(0.001):
                    break
                faults.append(strike(world, kind, chance))
                seen, moved, pause = world.answers(), time.monotonic(), chance.randint(2, 6)
        check(world)
    except Exception as error:
        tail = " ".join(path.read_text()[-300:] for path in sorted(world.home.glob("*.txt")))
        words = f"{type(error).__name__}: {error} {tail}"
        if not faults:
            raise RuntimeError(words) from error
        for fault in faults:
            fault.problem = fault.problem or words
    finally:
        world.close()
    return faults


def check(world: World) -> None:
    """The weights and the log are those of one process."""
    from fastadmm.store.model import open_model, open_party_model

    from run_tools import logged

    if not (world.home / "run" / "result.json").exists():
        raise ValueError("the run has not ended")
    for one in open_model(world.one).parties:
        (part,) = (world.home / one.name / "agent").glob(f"*/{one.name}.h5")
        if open_party_model(part)[0].weights.tobytes() != one.weights.tobytes():
            raise ValueError(f"other weights of {one.name}")
    if logged(world.home / "run") != logged(world.one):
        raise ValueError("another log")


def in_one_process(directory: Path, k: int) -> Path:
    """A run of a problem; children have its kernels, and what they import, from this process."""
    from fastadmm.between import agent, consent, train  # noqa: F401
    from fastadmm.runs.config import make_config
    from fastadmm.runs.train import start_run

    from run_tools import write_problem

    data, run = directory / "d.parts", directory / f"one-{k}"
    if not data.exists():
        directory.mkdir()
        write_problem(data, 60, (3, 4))
    if not run.exists():
        start_run(make_config({"data": str(data), "threads": 1, **PROBLEMS[k]}), run)
    return run


def campaign(
    directory: Path, n_faults: int, kinds: tuple[str, ...], far: Any = None, seed: int = 0
) -> Iterator[Fault]:
    """So many faults, of all kinds alike, over as many runs as that takes."""
    chance = random.Random(seed)
    row = (list(kinds) * (1 + n_faults // len(kinds)))[:n_faults]
    chance.shuffle(row)
    left, done, k = iter(row), 0, 0
    while done < n_faults:
        home, number = directory / f"r{k}", k % len(PROBLEMS)
        one = in_one_process(directory / "one", number)
        faults = one_run(World(home, one, PROBLEMS[number], far), left, chance)
        yield from faults
        done, k = done + len(faults), k + 1
        if not faults or any(fault.problem for fault in faults):
            print(*faults, f"in {home}", sep="\n", flush=True)
        else:
            shutil.rmtree(home)
        if not faults and k > 3 * n_faults:
            raise RuntimeError("runs end before any fault")


def over_nvflare(directory: Path, n_faults: int, of: tuple[str, ...]) -> Iterator[Fault]:
    """The same over NVFlare, of these kinds."""
    from fastadmm.between.stage import SERVER, Stage

    kinds = of if "link cut" in of and own_network() else tuple(kind for kind in of if kind != "link cut")
    with Stage(directory / "stage", NAMES) as stage:
        stage.provision()
        for name in (SERVER, *NAMES):
            stage.start(name)
        yield from campaign(directory, n_faults, kinds, stage)


def own_network() -> bool:
    """Whether this process has a network of its own by now: it needs root, ``unshare`` and ``tc``."""
    from ctypes import CDLL

    if os.geteuid() or not (shutil.which("tc") and shutil.which("ip")) or CDLL(None).unshare(0x40000000):
        print("no link is cut: that needs root, ip and tc", file=sys.stderr)
        return False
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return True


def summary(near: list[Fault], far: list[Fault]) -> dict[str, Any]:
    """Counts by way and kind."""

    def rows(faults: list[Fault]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for fault in sorted(faults, key=lambda fault: (*FAR, *NEAR).index(fault.kind)):
            row = found.setdefault(fault.kind, {"faults": 0, "survived": 0, "known": None})
            row["faults"] += 1
            row["survived"] += not fault.problem
            if fault.known is not None:
                row["known"] = round(max(row["known"] or 0.0, fault.known), 1)
        return found

    return {
        "deadline": DEADLINE,
        "deadline_nvflare": FAR_DEADLINE,
        "sockets": rows(near),
        "nvflare": rows(far),
    }


def table(counts: dict[str, Any]) -> str:
    """The counts in Markdown."""
    lines = ["| fault | way | faults | survived | known after, at most |", "|---|---|---:|---:|---:|"]
    ways = {"sockets": ("sockets", "deadline"), "nvflare": ("NVFlare", "deadline_nvflare")}
    for key, (way, deadline) in ways.items():
        for kind, row in counts[key].items():
            known = "–" if row["known"] is None else f"{row['known']} s (deadline {counts[deadline]:g} s)"
            lines.append(f"| {kind} | {way} | {row['faults']} | {row['survived']} | {known} |")
    rows = [row for key in ways for row in counts[key].values()]
    n, good = (sum(row[word] for row in rows) for word in ("faults", "survived"))
    return "\n".join([*lines, "", f"**{n} faults, survived {good}**.", ""])


def main() -> None:
    """Run the campaign, print every problem and the counts."""
    parser = argparse.ArgumentParser(description="Kill and stop the processes of a federation.")
    parser.add_argument("--faults", type=int, default=160, help="over sockets")
    parser.add_argument("--nvflare", type=int, default=40, help="over NVFlare")
    parser.add_argument("--kinds", nargs="+", default=FAR, help="over NVFlare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the counts there, and into docs/reliability.md")
    arguments = parser.parse_args()
    faults: list[list[Fault]] = [[], []]
    with tempfile.TemporaryDirectory(prefix="ff", dir="/tmp") as directory:
        (Path(directory) / "n").mkdir()
        works = (
            campaign(Path(directory), arguments.faults, NEAR, seed=arguments.seed),
            over_nvflare(Path(directory) / "n", arguments.nvflare, tuple(arguments.kinds))
            if arguments.nvflare
            else iter(()),
        )
        with suppress(KeyboardInterrupt):  # what was done counts
            for work, found in zip(works, faults):
                for fault in work:
                    found.append(fault)
                    print(f"{len(found)}: {fault}", file=sys.stderr, flush=True)
    counts = summary(*faults)
    print(json.dumps(counts, indent=2))
    if arguments.json is not None:
        if arguments.json.exists():  # a way that was left out keeps its counts
            counts = json.loads(arguments.json.read_text()) | {k: v for k, v in counts.items() if v}
        arguments.json.write_text(json.dumps(counts, indent=2) + "\n")
        PAGE.write_text(
            between_markers(PAGE.read_text(encoding="utf-8"), "federation-faults", table(counts)),
            encoding="utf-8",
        )
    sys.exit(any(fault.problem for found in faults for fault in found))


if __name__ == "__main__":
    main()
