"""Faults between organisations: processes that are killed, stopped or starved, and files that are damaged.

``python -P tests/faults/federation.py --faults 320 --nvflare 80 --json bench/federation_faults.json``. Agents
and a coordinator are processes; again and again one of them is killed, or stopped until the coordinator says
that it is lost, or has no more room on its disk or no more descriptors, or finds another clock, another place
or damaged files when it begins again. A part goes over NVFlare, whose own processes are killed and stopped as
well; as root its machines are in a network namespace, where the link can be cut.

A fault is survived if the coordinator says within the deadline and two seconds that a party is lost, and if
the run ends with the weights and the log of a run in one process, to the bit. What is damaged may be refused,
in one line; then what was there before is put back, and the run has to end in the same way. A private run
charges every release once.
"""

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, ClassVar

import tomli_w

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
sys.path.insert(0, str(HERE.parent))

from page_outputs import write_between  # noqa: E402

NAMES, COORDINATOR = ("party-1", "party-2"), "coordinator"

#: Deadline of an exchange in seconds, over a socket and over NVFlare, and what may be added to it.
DEADLINE, FAR_DEADLINE, MORE = 2.0, 10.0, 2.0

#: A run that does not go on for so long is lost; NVFlare's jobs take long to begin where many processes run.
PATIENCE = 300.0

#: What is trained, over and over: many exchanges of little work.
PROBLEMS = (
    {"scheme": "sharing", "lambda": 1e-3, "gap": 0.0, "rounds": 40},
    {"scheme": "subspace", "directions": "both", "history": 3, "lambda": 1e-5, "gap": 0.0, "rounds": 40},
    {"scheme": "proximal", "regularizer": "l1", "history": 3, "lambda": 1e-3, "gap": 0.0, "rounds": 20},
    {"lambda": 1e-2, "privacy": {"mode": "message", "rounds": 24, "epsilon": 8.0, "delta": 1e-3}},
)

#: What a process finds when it begins again, and where.
FOUND = ("bit flipped", "last record torn", "backup restored", "folder moved")

#: What a process meets while it runs; each may be the agent's or the coordinator's.
MET = ("disk full", "no more descriptors", "clock jumped")

NEAR = ("agent killed", "agent stopped", "coordinator killed", *MET, *FOUND)
FAR = (
    *("agent killed", "coordinator killed", "site's job killed", "site's job stopped", "site killed"),
    *("server's job killed", "server killed", "link cut"),
)


@dataclass
class Fault:
    """A fault: its kind, where, the seconds until the coordinator said so, and what went wrong."""

    kind: str
    where: str = ""
    known: float | None = None
    problem: str = ""


def forked(work, log):
    """A child with all that is imported here; its identifier."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(file, number)
        signal.signal(signal.SIGUSR1, jump)
        work()
        code = 0
    except BaseException as error:
        for limit in LIMITS.values():
            resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
        if type(error).__module__.startswith("fastadmm") and "\n" not in str(error):
            print(f"error: {error}", flush=True)
        else:
            traceback.print_exc()
    finally:
        os._exit(code)


#: What a process may have no more of.
LIMITS = {"disk full": resource.RLIMIT_FSIZE, "no more descriptors": resource.RLIMIT_NOFILE}


def jump(*_):
    """Let this process have another day: years away, a little before, or today again, one after the other."""
    from fastadmm.between import agent, approval

    shift = timedelta(days=next(DAYS))
    agent.moment = lambda: (datetime.now(UTC) + shift).isoformat(timespec="milliseconds")
    approval._today = lambda: date.today() + shift


#: Of the jumps of a clock, one after the other: past the last day of an approval and back, and yesterday.
DAYS = itertools.cycle((900, 0, -1, 0))


@dataclass
class World:
    """Parties and a coordinator, each with a directory that may be moved.

    ``one`` is a run in one process and ``far`` NVFlare's stage, or None where parties are on this machine.
    """

    home: Path
    one: Path
    values: dict[str, Any]
    far: Any = None
    more: ClassVar[float] = MORE
    pids: dict[str, int] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    flipped: tuple[str, Path, bytes, bytes] | None = None  # whose file, and as it was and is

    def __post_init__(self):
        self.home.mkdir()
        for name in (*NAMES, COORDINATOR):
            self.places[name] = self.home / name
            self.places[name].mkdir()
            file = f"{'labels' if name == COORDINATOR else name}.h5"
            shutil.copyfile(self.one.with_name("d.parts") / file, self.places[name] / file)
        self.deadline = DEADLINE if self.far is None else FAR_DEADLINE
        table = {}
        if self.far is not None:
            from nvflare_stage import ADMIN, SERVER

            table = {"kit": str(self.far.kits[ADMIN].path), "relay": str(self.far.sockets[SERVER])}
        ways = {n: f"unix:{self.socket(n)}" if self.far is None else f"nvflare:{n}" for n in NAMES}
        values = {"data": "labels.h5", **self.values, "federation": {**table, "parties": ways}}
        (self.places[COORDINATOR] / "run.toml").write_text(tomli_w.dumps(values))

    @property
    def said(self):
        return self.home / "said.jsonl"

    @property
    def run(self):
        return self.places[COORDINATOR] / "run"

    def socket(self, name):
        return self.home / f"{name}.sock" if self.far is None else self.far.sockets[name]

    def own(self, name):
        """A party's features and its agent's directory."""
        return self.places[name] / f"{name}.h5", self.places[name] / "agent"

    def part(self, name):
        """A party's part of the model, once there is one."""
        return next((self.places[name] / "agent").glob(f"*/{name}.h5"), None)

    def start(self, name):
        """Start an agent, which may refuse to, or the coordinator."""
        if name == COORDINATOR:
            self.coordinator()
            return

        def work():
            from fastadmm.between import session
            from fastadmm.between.agent import Agent
            from fastadmm.between.socket import serve

            session._EXCHANGES = 7
            ledger = {"ledger": self.places[name] / "ledger.jsonl"} if "privacy" in self.values else {}
            agent = Agent(*self.own(name), threads=1, **ledger)
            serve(self.socket(name), agent.handle).wait()

        self.pids[name] = forked(work, self.home / f"{name}.txt")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self.gone(name):
            with socket(AF_UNIX) as probe, suppress(OSError):
                probe.connect(str(self.socket(name)))
                return
            time.sleep(0.01)
        if time.monotonic() >= until:
            raise TimeoutError(f"{name} does not listen")

    def coordinator(self):
        """Start the coordinator, with deadlines that are shorter than usual."""

        def say(text):
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit[1], limit[1]))  # this is no file of its disk
            os.write(log, json.dumps([time.monotonic(), text]).encode() + b"\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

        def work():
            from fastadmm.between import coordinator, hub, train

            hub._SECONDS = hub._FIRST_SECONDS = self.deadline
            coordinator._BYTES = 1 << 14
            train.PAUSES = (0.2,) * 10_000
            train.federate(self.places[COORDINATOR] / "run.toml", self.run, say)

        log = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.pids[COORDINATOR] = forked(work, self.home / f"{COORDINATOR}.txt")
        os.close(log)

    def begin(self):
        """All processes; the run is approved."""
        from fastadmm.between.consent import agent_approve, shown_digest

        for name in NAMES:
            self.start(name)
        self.coordinator()  # is refused
        self.ended(PATIENCE)
        for name in NAMES:
            own = self.run / "run.json", *self.own(name)
            agent_approve(*own, confirm=shown_digest(agent_approve(*own)[0]))
        for name in (*NAMES, COORDINATOR):
            self.back_up(name)
        self.coordinator()

    def back_up(self, name, to="backup"):
        """Copy a directory as it is."""
        backup = self.home / to / name
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(self.places[name], backup)
        return backup

    def put_back(self, name, backup):
        """Put a copy of a directory in its place."""
        shutil.rmtree(self.places[name])
        shutil.copytree(backup, self.places[name])

    def kill(self, name):
        if name in self.pids:
            os.kill(self.pids[name], signal.SIGKILL)
            os.waitpid(self.pids.pop(name), 0)

    def gone(self, name):
        """Whether a process has ended by itself."""
        if name in self.pids and os.waitpid(self.pids[name], os.WNOHANG)[0]:
            del self.pids[name]
        return name not in self.pids

    def ended(self, seconds):
        """Whether the coordinator ends within some time."""
        until = time.monotonic() + seconds
        while not self.gone(COORDINATOR):
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True

    @property
    def over(self):
        """Whether the run has come to its end."""
        return (self.run / "result.json").exists()

    def answers(self):
        """Exchanges that one party has answered."""
        path = self.places[NAMES[0]] / "agent" / "audit.jsonl"
        return path.read_bytes().count(b'"answer"') if path.exists() else 0

    def wait_lost(self, since, seconds):
        """Seconds until the coordinator said that somebody is lost; None if it has ended or is silent."""
        while time.monotonic() < since + seconds and not self.ended(0.0):
            if (known := self.lost(since)) is not None:
                return known
            time.sleep(0.01)
        return None

    def lost(self, since):
        """Seconds from a moment until the coordinator said that somebody is lost, if it did."""
        for line in self.said.read_text().splitlines() if self.said.exists() else ():
            at, text = json.loads(line)
            if at >= since and "lost" in text:
                return float(at - since)
        return None

    def goes_on(self, name):
        """Whether some more exchanges are made, or the run ends; who ends, or finds nobody, has refused."""
        had, begun = self.answers(), time.monotonic()
        while not self.gone(name) and not self.gone(COORDINATOR):
            if self.answers() >= had + 2:
                return True
            if time.monotonic() > begun + 10 and self.lost(time.monotonic() - 3) is not None:
                return False
            if time.monotonic() > begun + PATIENCE:
                raise TimeoutError(f"no exchange for {PATIENCE:g} s")
            time.sleep(0.01)
        return self.over

    def mended(self):
        """Whether a file whose flipped bit was refused only now is restored: what came after it stays."""
        if self.over or self.flipped is None:
            return False
        name, path, old, new = self.flipped
        self.flipped = None
        for one in (name, COORDINATOR):
            self.kill(one)
        raw = path.read_bytes()
        if raw.startswith(new):
            path.write_bytes(old + raw[len(old) :])
        for one in dict.fromkeys((name, COORDINATOR)):
            self.start(one)
        return True

    def close(self):
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.pids.clear()


def strike(world, kind, chance):
    """Do it, wait until it is known, and let the system start again what died."""
    from nvflare_stage import SERVER

    fault, name, begun = Fault(kind), chance.choice(NAMES), time.monotonic()
    if kind in FOUND:
        fault.where = find(world, kind, chance.choice((*NAMES, COORDINATOR)), chance)
        return fault
    if kind in MET:
        fault.where = name if kind == "clock jumped" else chance.choice((name, COORDINATOR))
        meet(world, kind, fault.where)
        return fault
    patience = world.deadline + world.more
    again = []
    if kind == "coordinator killed":
        world.kill(COORDINATOR)
        world.coordinator()
        return fault
    if kind == "agent killed":
        world.kill(name)
        again.append(lambda: world.start(name))
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


def meet(world, kind, name):
    """Let a process run into a limit, or another day, until somebody says so or some time has gone by."""
    begun, pid = time.monotonic(), world.pids[name]
    if kind in LIMITS:
        _, most = resource.prlimit(pid, LIMITS[kind])
        resource.prlimit(pid, LIMITS[kind], (0 if kind == "disk full" else 4, most))
    else:
        os.kill(pid, signal.SIGUSR1)
    while not (world.gone(name) or world.ended(0.0) or world.lost(begun)) and time.monotonic() < begun + MORE:
        time.sleep(0.01)
    if kind in LIMITS and not world.gone(name):
        resource.prlimit(pid, LIMITS[kind], (most, most))
    elif kind == "clock jumped":
        os.kill(pid, signal.SIGUSR1)
    for _ in range(3):  # a limit may have been met just before it was lifted
        if world.goes_on(name):
            return
        for one in (name, COORDINATOR):
            if world.gone(one):
                world.start(one)


#: How often a bit of a file was flipped, by the end of its name: the least often flipped one is next.
FLIPPED = Counter()


def find(world, kind, name, chance):
    """Let a process find something else than it left, and where it refuses, put that back; what it was."""
    world.kill(name)
    where, world.flipped = name, None
    place, backup = world.places[name], world.home / "backup" / name
    before = world.back_up(name, "before")
    if world.over:  # nothing goes on any more that could notice
        return where
    files = sorted(path for path in place.rglob("[!.]*") if path.is_file() and path.stat().st_size)
    if kind == "folder moved":
        world.places[name] = place.rename(f"{place}-")
    elif kind == "backup restored":
        world.put_back(name, backup)
    elif kind == "last record torn":
        path = chance.choice([path for path in files if path.suffix in (".journal", ".jsonl")])
        raw, where = path.read_bytes(), str(path.relative_to(world.home))
        end = len(raw.rstrip(b"\0"))  # room for the next records may follow
        path.write_bytes(raw[: max(0, end - chance.randint(1, 60))] + chance.choice((raw[end:], b"")))
    else:
        told = {path: f"{name == COORDINATOR} {path.name[:6]}{path.suffix}" for path in files}
        path = min(files, key=lambda path: (FLIPPED[told[path]], chance.random()))
        FLIPPED[told[path]] += 1
        raw, where = path.read_bytes(), str(path.relative_to(world.home))
        at = chance.randrange(len(raw))
        new = raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)])
        path.write_bytes(new + raw[at + 1 :])
        world.flipped = name, path, raw[: at + 1], new
    world.start(name)
    if not world.goes_on(name):
        where, world.flipped = f"{where}, refused", None
        for one in (name, COORDINATOR):
            world.kill(one)
        world.put_back(name, before)
        for one in dict.fromkeys((name, COORDINATOR)):
            world.start(one)
    elif world.over and kind == "backup restored" and name in NAMES and not world.part(name):
        world.put_back(name, before)  # it was told the end already, and is asked nothing any more
    shutil.rmtree(backup)
    shutil.copytree(before, backup)
    return where


def link(what):
    """Let the loopback device of this namespace drop all packets, or carry them again."""
    more = ["pfifo", "limit", "0"] if what == "add" else []
    subprocess.run(["tc", "qdisc", what, "dev", "lo", "root", *more], check=True)


def one_run(world, kinds, chance):
    """A run with faults until it ends; the last kinds are taken away as long as it goes on."""
    faults = []
    try:
        world.begin()
        seen, moved = world.answers(), time.monotonic()
        pause = chance.randint(2, 6)
        while not world.ended(0.002) or world.mended():
            now = world.answers()
            if now > seen:
                moved = time.monotonic()
            if time.monotonic() - moved > PATIENCE:
                raise TimeoutError(f"no exchange for {PATIENCE:g} s")
            if now >= seen + pause and kinds:
                time.sleep(chance.uniform(0.0, 0.02))
                if world.ended(0.001):
                    break
                faults.append(strike(world, kinds.pop(), chance))
                seen, moved, pause = world.answers(), time.monotonic(), chance.randint(2, 6)
        check(world)
    except Exception as error:
        tail = " ".join(path.read_text()[-300:] for path in sorted(world.home.glob("*.txt")))
        words = f"{type(error).__name__}: {error} {tail}"
        if not faults:
            raise RuntimeError(words) from error
        faults[-1].problem += f" {words}"
        for fault in faults:
            fault.problem = fault.problem or "the run has a problem"
    finally:
        world.close()
    return faults


def check(world):
    """The weights and the log are those of one process; of all processes only lines were heard."""
    from fastadmm.privacy.ledger import Ledger
    from fastadmm.store.model import open_model, open_party_model

    from run_tools import logged

    if not world.over:
        raise ValueError("the run has not ended")
    for path in world.home.glob("*.txt"):
        if "Traceback" in path.read_text():
            raise ValueError(f"a traceback in {path.name}")
    parts = {name: world.part(name) or Path("none") for name in NAMES}
    if "privacy" in world.values:  # noise is drawn anew in every run, and once in each
        for name, part in parts.items():
            charges, released = Ledger(part.parents[2] / "ledger.jsonl").charges, part.parent / "messages"
            if not len(charges) == len(list(released.iterdir())) == world.values["privacy"]["rounds"]:
                raise ValueError(f"{len(charges)} charges of {name}")
        return
    for one in open_model(world.one).parties:
        if open_party_model(parts[one.name])[0].weights.tobytes() != one.weights.tobytes():
            raise ValueError(f"other weights of {one.name}")
    for found, wanted in zip(logged(world.run), logged(world.one), strict=True):
        if found != wanted:
            raise ValueError(f"in the log {found}, not {wanted}")


def in_one_process(directory, k):
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


def campaign(directory, n_faults, kinds, far=None, seed=0):
    """So many faults, of all kinds alike, over as many runs as that takes."""
    chance = random.Random(seed)
    row = (list(kinds) * (1 + n_faults // len(kinds)))[:n_faults]
    chance.shuffle(row)
    done, k = 0, 0
    while done < n_faults:
        home, number = directory / f"r{k}", k % len(PROBLEMS)
        one = in_one_process(directory / "one", number)
        faults = one_run(World(home, one, PROBLEMS[number], far), row, chance)
        yield from faults
        done, k = done + len(faults), k + 1
        if not faults or any(fault.problem for fault in faults):
            print(*faults, f"in {home}", sep="\n", flush=True)
        else:
            shutil.rmtree(home)
        if not faults and k > 3 * n_faults:
            raise RuntimeError("runs end before any fault")


def over_nvflare(directory, n_faults, of):
    """The same over NVFlare, of these kinds."""
    import nvflare_stage as stages
    from nvflare_stage import SERVER, Stage

    stages._GRACE = 0.0
    kinds = of if "link cut" in of and own_network() else tuple(kind for kind in of if kind != "link cut")
    with Stage(directory / "stage", NAMES) as stage:
        stage.provision()
        for name in (SERVER, *NAMES):
            stage.start(name)
        yield from campaign(directory, n_faults, kinds, stage)


def own_network():
    """Whether this process has a network of its own by now: it needs root, ``unshare`` and ``tc``."""
    from ctypes import CDLL

    if os.geteuid() or not (shutil.which("tc") and shutil.which("ip")) or CDLL(None).unshare(0x40000000):
        print("no link is cut: that needs root, ip and tc", file=sys.stderr)
        return False
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return True


def summary(near, far):
    """Counts by way and kind."""

    def rows(faults):
        found = {}
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


def table(counts):
    """The counts in Markdown: how many of how many were survived, and known after how long at most."""
    ways = [counts[key] for key in ("sockets", "nvflare")]
    near, far = counts["deadline"], counts["deadline_nvflare"]
    lines = []
    for name, rows in zip((f"Sockets (deadline {near:g} s)", f"NVFlare ({far:g} s)"), ways, strict=True):
        cells = [
            f"{kind} {row['survived']}/{row['faults']}"
            + ("" if row["known"] is None else f" in {row['known']} s")
            for kind, row in rows.items()
        ]
        lines.append(f"- {name}: {', '.join(cells)}")
    n, good = (sum(row[word] for rows in ways for row in rows.values()) for word in ("faults", "survived"))
    return "\n".join([*lines, "", f"**{n} faults, survived {good}**.", ""])


def main():
    """Run the campaign, print every problem and the counts."""
    parser = argparse.ArgumentParser(description="Kill and stop the processes of a federation.")
    parser.add_argument("--faults", type=int, default=320, help="over sockets")
    parser.add_argument("--nvflare", type=int, default=80, help="over NVFlare")
    parser.add_argument("--kinds", nargs="+", default=FAR, help="over NVFlare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", type=float, default=MORE, help="seconds that a loaded machine adds")
    parser.add_argument("--json", type=Path, help="write the counts there, and into docs/reliability.md")
    arguments = parser.parse_args()
    World.more = arguments.more
    faults = [[], []]
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
        write_between(PAGE, "federation-faults", table(counts))
    sys.exit(any(fault.problem for found in faults for fault in found))


if __name__ == "__main__":
    main()
