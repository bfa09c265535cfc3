"""Runs fuzzed cases in this process and reports each as a line of JSON.

``python fuzz_worker.py SEED START STOP DIRECTORY``: a process of its own, because a C library that crashes or hangs takes
the interpreter with it; :func:`watched` starts it again behind such a case. Case i of a seed is always the same.
"""

import codecs
import contextlib
import csv
import hashlib
import io
import json
import math
import os
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

import fuzz_mutations
from fuzz_subjects import EXCHANGE, SUBJECTS, Command, make_seeds

SECONDS = 60.0  # of one case; the slowest takes one
MEMORY = 8 << 30
LONGEST = 700  # characters of an error
# A party counts what it refuses.
UNCOUNTED = ("run.lock", ".lock", "refused", "audit.jsonl", "requests.journal")


def subjects_of(seed):
    """What a campaign is about: seeds from 1000 on are of what passes between organisations."""
    return EXCHANGE if seed >= 1000 else SUBJECTS


def case_of(seed, number, seeds):
    """Generator, subject, file to spoil (below the subject's directory) and command of a case."""
    rng = random.Random(f"{seed}/{number}")
    subjects = subjects_of(seed)
    names = [name for name, subject in subjects.items() for _ in range(subject.weight)]
    name = names[number % len(names)]
    subject = subjects[name]
    # First the glob, then the file: a glob that matches many shall not win.
    files = sorted(path for path in (seeds / name).glob(rng.choice(subject.targets)) if path.is_file())
    target = rng.choice(files).relative_to(seeds / name)
    mentions = [c for c in subject.commands if str(target) in c.line] or list(subject.commands)
    command = rng.choice(mentions if rng.random() < 0.5 else list(subject.commands))
    line = command.line.replace("@THIS", f"@{target}")
    folder = target.parent if target.parent.name else Path(target.parts[0])
    if "@DIR" in line and folder.suffix not in (".parts", ".owners"):
        folder = Path("data.owners" if name == "owners" else "dense.parts")
    return rng, name, target, Command(line.replace("@DIR", f"@{folder}"), command.changes)


def contents(home):
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


def execute(arguments):
    """Exit code, standard output and error of a command; no code where it raised, which is a traceback."""
    from fastadmm.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    code = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue()


def spoil(seed, number, seeds, home):
    """Copy a subject's files to `home` and spoil one: subject, file, command, and what was done."""
    rng, name, target, command = case_of(seed, number, seeds)
    shutil.copytree(seeds / name, home)
    for settings in home.glob("run/*run.toml"):  # they name their data
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace(str(seeds / name), str(home)), encoding="utf-8")
    mutate = rng.choice(fuzz_mutations.mutations_of(target, foreign=subjects_of(seed) is EXCHANGE))
    try:
        done = mutate(home / target, rng)
    except Exception as error:
        done = f"{mutate.__name__} not possible here ({type(error).__name__}: {error}); bytes instead: "
        remove(home / target)
        shutil.copy(seeds / name / target, home / target)
        done += fuzz_mutations.of_bytes(home / target, rng)
    return name, target, command, done


def run_case(seed, number, seeds, scratch):
    """Spoil a file, run a command, and say what is wrong with what happened (``problems``)."""
    begin = time.perf_counter()
    home = scratch / f"case-{number}"
    name, target, command, done = spoil(seed, number, seeds, home)
    before = contents(home)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code, out, err = execute(command.arguments(home))
    after = contents(home)
    problems = list(judge(command, home, code, out, err, before, after))
    problems += [f"warning: {w.category.__name__}: {w.message}" for w in caught]
    if name == "exchange" and not problems:
        problems += lost(home, seeds / name, target, command, code)
    shutil.rmtree(home)
    return {
        "case": number,
        "subject": name,
        "file": str(target),
        "mutation": done,
        "command": command.line,
        "code": code,
        "error": err[-3000:] if problems else err[-300:],
        "problems": problems,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def remove(path):
    """Whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def lost(home, seeds, target, command, code):
    """Whether a run by files can still be brought to its next exchange."""
    honest = "coordinator step @run @party-1.message2.h5 @party-2.message2.h5"
    step = "party step --data @data.parts/party-1.h5 --state @before --in @party-1.request2.h5 -o @again.h5 --threads 1"
    if target.parts[0] not in ("run", "before"):
        remove(home / target)
        shutil.copy(seeds / target, home / target)
    if target.parts[0] == "run" or command.line.startswith("coordinator"):
        if execute(Command(honest).arguments(home))[0] == 0:
            return
        found, _, err = execute(Command("coordinator repair @run").arguments(home))
        # Both parties have answered all this before, and say it again.
        while found == 0 and (requests := sorted((home / "run" / "requests").glob("*"))):
            number = int(requests[-1].stem.rsplit("-", 1)[-1])
            if number > 2:
                return
            messages = []
            for request in (path for path in requests if path.stem.endswith(f"{number:06d}")):
                party = request.stem.rsplit("-", 1)[0]
                messages.append(str(home / f"again-{number}-{party}.h5"))
                found, _, err = execute(["party", "step", "--data", str(home / "data.parts" / f"{party}.h5"), "--state",
                                         str(home / f"state-{party}"), "--in", str(request), "-o", messages[-1], "--force"])  # fmt: skip
                if found != 0:
                    break
            if found == 0:
                found, _, err = execute(["coordinator", "step", str(home / "run"), *messages])
        yield f"the run is lost: {found} {err[-300:]}"
    elif target.parts[0] != "before" and code != 0:
        found, _, err = execute(Command(step).arguments(home))
        if found != 0 or (home / "again.h5").read_bytes() != (seeds / "party-1.message2.h5").read_bytes():
            yield f"the party's state is lost: {err[-300:]}"


def judge(
    command, home, code, out, err, before, after
):  # fmt: skip
    """What is wrong with the outcome of a command on a spoiled file."""
    if code is None or "Traceback (most recent call last)" in err:
        yield "traceback"
        return
    if code == 1:
        yield "exit code 1: a defect"
    below = {part for path in before for part in Path(path).parts}
    below |= {part for word in command.line.split() if word[0] == "@" for part in Path(word[1:]).parts}
    left = [path for path in after if any(part.endswith(".tmp") for part in Path(path).parts)]
    if left:
        yield f"half-written: {left}"
    mine = [out_name for out_name in command.outs if (home / out_name).exists()]
    if code in (0, 7):
        yield from wrong_result(command, home, out)
        if sorted(mine) != sorted(command.outs):
            yield f"success, but made only {mine}"
        allowed = (*command.outs, *command.changes.split())
    else:
        errors = [line for line in err.splitlines() if line.startswith("fastadmm: error: ")]
        if len(errors) != 1:
            yield f"{len(errors)} lines of error"
        for line in errors:
            if len(line.replace(str(home), "")) > LONGEST:
                yield f"an error of {len(line)} characters"
            if not line.isprintable():
                yield "control characters in the error"
            # Values in a checkpoint that make the iterates diverge are nobody's file in particular.
            if not any(part in line for part in below) and code != 8:
                yield "the error names no file"
        other = [
            line for line in err.splitlines() if line not in errors and not line.startswith("fastadmm: ")
        ]
        if other:
            yield f"other lines on standard error: {other[:3]}"
        # A run that has charged its ledger must leave the account behind.
        charged = any((home / "out" / name).exists() for name in ("privacy-ledger.jsonl", "ledger.jsonl"))
        if mine and code != 8 and not charged:
            yield f"an error, but {mine} is there"
        allowed = (*command.outs, *command.changes.split()) if code == 8 or charged else ()
    changed = [
        path
        for path in {*before, *after}
        if before.get(path) != after.get(path) and Path(path).parts[0] not in allowed and Path(path).name not in UNCOUNTED
    ]  # fmt: skip
    if changed:
        yield f"changed: {sorted(changed)}"


def wrong_result(command, home, out):
    """What is wrong with what a successful command made."""
    if "--json" in command.line.split():
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            yield f"--json printed no JSON: {error}"
    for name in command.outs:
        path = home / name
        if not path.exists():
            continue
        if name.endswith(".parts"):
            code, _, err = execute(["inspect", "--check", str(path)])
            if code != 0:
                yield f"the partition made is refused: {err}"
            elif command.line.startswith("convert @data"):
                yield from wrong_numbers(command, home, path)
        elif name.endswith(".owners"):
            code, _, err = execute(["owners", "train", str(path), "--epsilon", "1", "--bound", "clip:1", "--step", "0.1", "--rounds", "1", "-q",
                                    "--threads", "1", "-o", str(home / "out.check")])  # fmt: skip
            shutil.rmtree(home / "out.check", ignore_errors=True)
            if code != 0:
                yield f"the owners made are refused: {err}"
        elif name.endswith(".csv"):
            rows = list(csv.reader(path.open(encoding="utf-8", newline="")))
            for row in rows[1:]:
                if len(row) != len(rows[0]) or not all(math.isfinite(float(v)) for v in row[1:2]):
                    yield f"predictions: {row}"
                    break
        elif name == "out" and (path / "result.json").exists() and "coordinator" not in command.line:
            result = json.loads((path / "result.json").read_text())
            text = json.dumps(result)
            if "NaN" in text or "Infinity" in text:
                yield "result.json holds NaN or infinity"
            code, _, err = execute(["inspect", str(path)])
            if code != 0:
                yield f"the run made is refused: {err}"


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def wrong_numbers(command, home, made):
    """Compare a partition with the file it was made from, read by csv.reader or str.split and float()."""
    import bz2
    import gzip
    import lzma

    import numpy as np
    from fastadmm.store.partition import open_partition

    source = home / re.search(r"@(\S+)", command.line)[1]
    raw = source.read_bytes()
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ", lzma)):
        if raw.startswith(magic):
            raw = module.decompress(raw)
    if "--standardize" in command.line or "normalize=l2" in command.line or "--like" in command.line:
        return
    partition = open_partition(made)
    blocks = []
    for party in partition.parties:
        X = party.load()
        blocks.append(X if isinstance(X, np.ndarray) else X.toarray())
    X = np.hstack(blocks)
    if source.suffix == ".svm":
        lines = [line.split(b"#")[0].split() for line in raw.split(b"\n")]
        shift = 0 if "zero_based=true" in command.line else 1
        wanted = np.zeros((sum(bool(line) for line in lines), X.shape[1]))
        for i, cells in enumerate(line for line in lines if line):
            for cell in cells[1:]:
                index, _, value = cell.partition(b":")
                if index != b"qid":
                    wanted[i, int(index) - shift] = float(value)
    else:
        marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16"}
        encoding = next((name for mark, name in marks.items() if raw.startswith(mark)), "utf-8-sig")
        text = raw.decode(encoding, "surrogateescape")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        if "--no-header" in command.line:
            label, rows = "c4", [[f"c{j + 1}" for j in range(len(rows[0]))], *rows]
        else:
            label = "y"
        header = [cell.strip() for cell in rows[0]]
        keep = [j for j, cell in enumerate(header) if cell != label]
        wanted = np.array([[float(row[j]) for j in keep] for row in rows[1:]])
    if wanted.shape != X.shape:
        yield f"{X.shape} values were read, the file has {wanted.shape}"
    elif not np.array_equal(wanted, X):
        yield f"values differ from those of the file: {X[wanted != X][:3]} for {wanted[wanted != X][:3]}"


def main():
    """Run cases START to STOP of SEED; one line of JSON before and after each."""
    seed, start, stop, directory = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from fastadmm.files import atomic

    atomic.synchronise = lambda path: None  # what survives a power cut is tested elsewhere
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        make_seeds(directory / "seeds", subjects_of(seed))
    # After the seeds: libraries and compiled code are loaded, so only data can ask for more.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    scratch = directory / f"scratch-{start}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for number in range(start, stop):
        print(json.dumps({"begin": number}), flush=True)
        print(json.dumps(run_case(seed, number, directory / "seeds", scratch)), flush=True)
    shutil.rmtree(scratch)


def watched(seed, start, stop, directory):
    """Reports of cases START to STOP; a crash or a hang of the worker is a problem of the case that it was at."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
                   "PYTHONPATH": str(Path(__file__).parent)}  # fmt: skip
    while start < stop:
        command = [sys.executable, "-P", __file__, *map(str, (seed, start, stop, directory))]
        with open(directory / f"worker-{start}.log", "w+b") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
            at, problem, buffer = -1, "", b""
            while True:
                # The first line waits for the seeds.
                ready, _, _ = select.select([process.stdout], [], [], SECONDS * (4 if at < 0 else 1))
                if not ready:
                    problem = f"hang: no answer in {SECONDS:.0f} s"
                    process.kill()
                    break
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    report = json.loads(line)
                    if "begin" in report:
                        at = report["begin"]
                    else:
                        yield report
            code = process.wait()
            process.stdout.close()
            if code == 0 and not problem:
                return
            log.seek(0)
            error = log.read().decode("utf-8", "replace")[-3000:]
        if at < 0:
            raise RuntimeError(f"no case was begun: {error}")
        _, name, target, spoiled = case_of(seed, at, directory / "seeds")
        yield {
            "case": at, "subject": name, "file": str(target), "command": spoiled.line, "code": code, "error": error,
            "problems": [problem or f"the process ended with {code}"],
        }  # fmt: skip
        start = at + 1


if __name__ == "__main__":
    main()
