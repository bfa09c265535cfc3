"""Faults at the file operations of every kind of command: killed there, an I/O error, a full disk, a signal.

``python tests/faults/campaign.py --faults 10000 --json bench/faults.json``. For each subject the operations
below its directory are counted, then the command runs once for every fault, in a fork of a process that has
imported everything, and what follows is what a user would do: the same command again, or ``resume``. A fault
is

survived
    if that ends in the result of a run without a fault;
lost
    if it does not: another result, or none;
silent
    if the faulty command itself claimed success with another result;

and tracebacks, crashes, hangs and leftovers are counted besides. ``inject.c`` makes the faults.
"""

import argparse
import ctypes
import errno
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
MEASURED = HERE.parents[1] / "bench" / "faults.json"
sys.path.insert(0, str(HERE.parent))

from page_outputs import write_between  # noqa: E402

SECONDS = 120.0  # of one command
_COUNT, _KILL, _TORN, _ERROR_ONCE, _ERROR_FROM, _SIGNAL = range(6)
_READS, _WRITES, _NAMES = 1, 2, 4


@dataclass(frozen=True)
class Fault:
    """A kind of fault: what happens, its errno or signal, and at which operations."""

    how: int
    value: int
    classes: int


FAULTS = {
    "killed": Fault(_KILL, 0, _WRITES | _NAMES),
    "killed in a write": Fault(_TORN, 0, _WRITES),
    "I/O error, writing": Fault(_ERROR_ONCE, errno.EIO, _WRITES | _NAMES),
    "I/O error, reading": Fault(_ERROR_ONCE, errno.EIO, _READS),
    "disk full": Fault(_ERROR_FROM, errno.ENOSPC, _WRITES),
    "SIGTERM": Fault(_SIGNAL, signal.SIGTERM, _READS | _WRITES | _NAMES),
}

#: What may be wrong after a fault, by the first word of a problem.
BAD = ("lost", "silent", "traceback", "crash", "hang", "leftover")

#: What a successful command answers; 7: the next exchange by files is waited for.
_GOOD = (0, 7)


@dataclass(frozen=True)
class Subject:
    """A command under test, what a user does next, and a result to compare.

    ``releases`` is the pattern of files that, once there, must never change: noisy releases.
    """

    command: list[str]
    again: Callable[[Path], list[list[str]]]
    result: Callable[[Path], Any]
    releases: str = ""


def _run_result(home):
    from run_tools import logged, model_digests, result_of

    found = {key: value for key, value in result_of(home / "run").items() if key != "seconds"}
    return model_digests(home / "run"), logged(home / "run"), found


def _private_result(home):
    """Noise is drawn anew in every run: only what is fixed before is compared."""
    statement = json.loads((home / "run" / "privacy.json").read_text())["statement"]
    result = json.loads((home / "run" / "result.json").read_text())
    stored = sorted(path.name for path in (home / "run" / "messages").iterdir())
    return result["status"], statement["epsilon"], stored, sorted(os.listdir(home / "run" / "model"))


def _owners_result(home):
    result = json.loads((home / "run" / "result.json").read_text())
    return result["status"], result["rounds"], sorted(os.listdir(home / "run" / "answers"))


def _partition_result(home):
    from fastadmm.store.partition import open_partition

    found = open_partition(home / "out.parts")
    return found.row_digest, [party.content_digest for party in found.parties]


def _file(name):
    return lambda home: (home / name).read_bytes()


def _resumed(start, *resume):
    """The run is resumed if there is one."""
    resumed = [*(resume or ["resume"]), "run", "-q"]
    return lambda home: [resumed if any((home / "run").glob("*run.toml")) else start]


def _same(command, *undone):
    """The command again; what it made whole already is taken away by the user, who sees it is there."""
    return lambda home: [] if any((home / name).exists() for name in undone) else [command]


def subjects():
    from run_tools import in_file

    common = ["--threads", "1", "-q", "--out", "run"]
    train = ["train", "a.parts", *in_file(checkpoint_rounds=1), *common]
    sharing = [*train, "--regularizer", "l1", "--lambda", "0.01", "--scheme", "sharing", "--gap", "0.1"]
    labels = ["--set", "privacy.label_epsilon=2"]
    fusion = ["train", "a.parts", "--privacy", "fusion", "--epsilon", "4", *labels, *common]
    message = ["train", "a.parts", *in_file(privacy={"mode": "message", "epsilon": 8, "rounds": 2}), *common]
    path = ["train", "a.parts", *in_file(path=True, path_values=[0.1, 0.01], folds=2), *common]
    convert = ["convert", "t.csv", "--label", "y", "--parties", "2", "-o", "out.parts"]
    predict = ["predict", "done", "a.parts", "-o", "p.csv"]
    party = shlex.split("party step --data a.parts/party-1.h5 --state state --in request.h5 --out m.h5")
    coordinator = ["coordinator", "step", "files", "m1.h5", "m2.h5"]
    owners = shlex.split("owners train o.owners --epsilon 1 --bound clip:1 --step 0.1 --rounds 3")
    owners += common

    def requests(home):
        return {p.name: p.read_bytes() for p in sorted((home / "files" / "requests").iterdir())}

    return {
        "convert a table": Subject(convert, _same(convert, "out.parts"), _partition_result),
        "train, subspace": Subject(train, _resumed(train), _run_result),
        "train, sharing with l1": Subject(sharing, _resumed(sharing), _run_result),
        "regularisation path": Subject(
            path, _resumed(path), lambda home: ((home / "run" / "path.json").read_bytes(), _run_result(home))
        ),
        "private, fusion": Subject(fusion, _resumed(fusion), _private_result, "run/messages/*.npz"),
        "private, message": Subject(message, _resumed(message), _private_result, "run/messages/*.npz"),
        "owners of rows": Subject(
            owners, _resumed(owners, "owners", "resume"), _owners_result, "run/answers/round-*"
        ),
        "party's step by files": Subject(party, _same(party), _file("m.h5")),
        "coordinator's step by files": Subject(coordinator, _same(coordinator), requests),
        "predict": Subject(predict, _same(predict, "p.csv"), _file("p.csv")),
    }


def make_template(home):
    """Everything that the subjects begin with."""
    import numpy as np
    import pandas as pd

    from run_tools import run, write_problem

    home.mkdir()
    old = Path.cwd()
    os.chdir(home)
    try:
        write_problem(home / "a.parts", n=60, widths=(2, 3))
        rng = np.random.default_rng(0)
        rows = pd.DataFrame(rng.normal(size=(40, 3)).round(3), columns=list("abc"))
        rows.assign(y=(rows.a + rows.b > 0) * 1).to_csv("t.csv", index_label="id")
        for name in ("a", "b"):
            rows = pd.DataFrame(rng.normal(size=(30, 3)).round(3), columns=list("uvw"))
            rows.assign(y=(rows.u > 0) * 1).to_csv(f"{name}.csv", index=False)
        parties = ["--party", "party-1", "--party", "party-2"]
        for arguments in (
            ["owners", "convert", "a.csv", "b.csv", "--label", "y", "-o", "o.owners"],
            ["train", "a.parts", "--threads", "1", "-q", "--out", "done"],
            ["coordinator", "start", "a.parts/labels.h5", *parties, "--set", "threads=1", "-o", "files"],
        ):
            code = run(*arguments)
            assert code in (0, 7), (arguments, code)
        for k in (1, 2):
            request = next((home / "files" / "requests").glob(f"party-{k}-*.msg"))
            shutil.copy(request, home / f"request-{k}.h5")
            step = ["party", "step", "--data", f"a.parts/party-{k}.h5", "--state", f"state-{k}"]
            assert run(*step, "--in", f"request-{k}.h5", "--out", f"m{k}.h5") == 0
        shutil.copy(home / "request-1.h5", home / "request.h5")
    finally:
        os.chdir(old)


class Injector:
    """The loaded library of faults, and commands in forks of this process."""

    def __init__(self):
        self.library = ctypes.CDLL(None)
        self.library.fault_count.restype = ctypes.c_long
        self.library.fault_arm.argtypes = [
            ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p
        ]  # fmt: skip

    def run(self, home, arguments, fault, at):
        """Exit code (minus the signal of a killed one, -999 for a hang) and what was printed."""
        from fastadmm.cli.app import main
        from fastadmm.cli.start import listen

        log = home.parent / f"{home.name}.log"
        child = os.fork()
        if child == 0:
            code = 130
            # This block is never left: what the parent ends with would end here, and clear its files away.
            try:
                try:
                    listen()
                    os.chdir(home)
                    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                    os.dup2(stream, 1)
                    os.dup2(stream, 2)
                    if fault is not None:
                        self.library.fault_arm(
                            fault.how, at, int(fault.value), fault.classes, os.fsencode(home) + b"/"
                        )
                    main(arguments)
                except SystemExit as stop:
                    code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
                except Exception:
                    code = 1
                    traceback.print_exc()
                finally:
                    for number in (signal.SIGINT, signal.SIGTERM):
                        signal.signal(number, signal.SIG_IGN)
                    self.library.fault_disarm()
                    sys.stdout.flush()
                    sys.stderr.flush()
            except KeyboardInterrupt:  # a signal that met the clearing of an object comes again
                pass
            finally:
                os._exit(code)
        end = time.monotonic() + SECONDS
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return -999, "hang"
            time.sleep(0.002)
        return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")

    def count(self):
        """Operations of the last command."""
        return int(self.library.fault_count())


def one_fault(injector, template, scratch, subject, fault, at, expected):
    """Run a command with a fault, then what a user does next; what was wrong."""
    home = scratch / "home"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(template, home)
    problems = []
    code, text = injector.run(home, subject.command, fault, at)
    killed = fault.how in (_KILL, _TORN) and code == -signal.SIGKILL
    if code == -999:
        problems.append("hang")
    elif code < 0 and not killed:
        problems.append(f"crash: signal {-code}")
    if "Traceback (most recent call last)" in text or code == 1:
        problems.append(f"traceback: {text.strip().splitlines()[-1:]}")
    if code in _GOOD and _result(subject, home) != expected:
        problems.append("silent: success with another result")
    before = {path: _digest(path) for path in home.glob(subject.releases)} if subject.releases else {}
    for arguments in subject.again(home) if code not in _GOOD else []:
        code, text = injector.run(home, arguments, None, 0)
        if "Traceback" in text:
            problems.append(f"traceback: afterwards: {text.strip().splitlines()[-1:]}")
        if code not in _GOOD:
            problems.append(f"lost: afterwards exit code {code}: {text.strip().splitlines()[-1:]}")
            break
    else:
        if _result(subject, home) != expected:
            problems.append("lost: another result afterwards")
    if any(_digest(path) != digest for path, digest in before.items()):
        problems.append("silent: a release was drawn twice")
    left = [str(p.relative_to(home)) for p in home.rglob(".*") if p.name.endswith((".tmp", ".pending"))]
    if left:
        problems.append(f"leftover: {left[:3]}")
    return problems


def _result(subject, home):
    try:
        return subject.result(home)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def plan(injector, template, scratch, n_faults):
    """Which operation of which subject fails how, evenly spread; and the results without faults."""
    n_operations = {}
    expected = {}
    for name, subject in subjects().items():
        for kind, fault in FAULTS.items():
            home = scratch / "home"
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(template, home)
            code, text = injector.run(home, subject.command, Fault(_COUNT, 0, fault.classes), 0)
            assert code in _GOOD, f"{name}: exit code {code} without a fault: {text}"
            n_operations[name, kind] = injector.count()
            assert n_operations[name, kind] > 0, f"{name}: no operation was seen"
            expected[name] = subject.result(home)
    share = 1  # of each kind of fault of each subject; some have fewer operations
    while share < max(n_operations.values()) and sum(min(share, n) for n in n_operations.values()) < n_faults:
        share += 1
    places = [
        (name, kind, 1 + int(k * max(1.0, n / share)))
        for (name, kind), n in n_operations.items()
        for k in range(min(share, n))
    ]
    return places, expected


def campaign(n_faults, job, n_jobs, directory):
    injector = Injector()
    scratch = directory / f"job-{job}"
    scratch.mkdir()
    template = scratch / "template"
    make_template(template)
    places, expected = plan(injector, template, scratch, n_faults)
    known = subjects()
    random.Random(0).shuffle(places)  # a campaign that is interrupted has tried some of everything
    for number, (name, kind, at) in enumerate(places):
        if number % n_jobs == job:
            problems = one_fault(injector, template, scratch, known[name], FAULTS[kind], at, expected[name])
            yield name, kind, at, problems


def _worker(arguments):
    from command_server import _load

    _load()
    stdout = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(stdout, "w") as out:
        directory = Path(arguments.directory)
        for report in campaign(arguments.faults, arguments.job, arguments.jobs, directory):
            print(json.dumps(report), file=out, flush=True)


def build(directory):
    made = directory / "inject.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(HERE / "inject.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


def run_campaign(n_faults, n_jobs, directory):
    """Run the jobs side by side, each in a process with the library of faults.

    Of each fault: its subject, kind, number of the operation, and problems.
    """
    environment = {**os.environ, "LD_PRELOAD": str(build(directory)), "OMP_NUM_THREADS": "1",
                   "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}  # fmt: skip
    command = [sys.executable, "-P", __file__, "--faults", str(n_faults), "--jobs", str(n_jobs)]
    command += ["--directory", str(directory)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, "--job", str(k)], stdout=subprocess.PIPE, env=environment, text=True
                )
            )
            for k in range(n_jobs)
        ]
        for process in processes:
            assert process.stdout is not None
            for line in process.stdout:
                yield tuple(json.loads(line))
            assert process.wait() == 0, f"a job ended with {process.returncode}"


def summary(reports):
    found = Counter(
        word for *_, problems in reports for word in {p.split(":")[0].split()[0] for p in problems}
    )
    return {
        "faults": len(reports),
        "survived": sum(not problems for *_, problems in reports),
        **{word: found[word] for word in BAD},
        "mended": 0,
        "failed": [[name, kind, at] for name, kind, at, problems in reports if problems],
        "subjects": {
            name: {kind: sum(1 for r in reports if r[0] == name and r[1] == kind) for kind in FAULTS}
            for name in subjects()
            if any(r[0] == name for r in reports)
        },
    }


def table(counts):
    lines = [
        f"| command | faults: {', '.join(FAULTS)} |",
        "|---|---:|",
        *(f"| {name} | {sum(row.values()):,} |" for name, row in counts["subjects"].items()),
    ]
    rest = ", ".join(f"{word} {counts[word]}" for word in BAD)
    said = f"**{counts['faults']:,} faults, survived {counts['survived']:,}**: {rest}."
    if counts["mended"]:
        said += f" {counts['mended']} of them found a defect, and passed after the fix."
    return "\n".join([*lines, "", said, ""])


def main():
    """Run the campaign, print every problem and the counts."""
    parser = argparse.ArgumentParser(description="Inject faults at file operations.")
    parser.add_argument("--faults", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--job", type=int)
    parser.add_argument("--directory")
    parser.add_argument("--json", type=Path, help="write the counts there, and into docs/reliability.md")
    arguments = parser.parse_args()
    if arguments.job is not None:
        _worker(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        reports = []
        # Hours: an interrupt ends the campaign, and what was done counts.
        with suppress(KeyboardInterrupt):
            for report in run_campaign(arguments.faults, arguments.jobs, Path(directory)):
                reports.append(report)
                if report[3]:
                    print(*report, sep=" | ", flush=True)
                if len(reports) % 100 == 0:
                    print(f"{len(reports)} faults", file=sys.stderr, flush=True)
    counts = summary(reports)
    print({key: value for key, value in counts.items() if key != "subjects"})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(counts, indent=2) + "\n")
        write_between(PAGE, "faults", table(counts))
    sys.exit(counts["survived"] != counts["faults"])


if __name__ == "__main__":
    main()
