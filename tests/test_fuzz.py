"""Thousands of spoiled files of every kind, through the command line.

Each must give a right result, or one line that names a file and an exit code of its own: no traceback, no
hang, no crash of a library, nothing half-written, no input changed. ``fuzz_subjects.py`` lists files and commands,
``fuzz_mutations.py`` the damage, ``fuzz_worker.py`` what is checked. A failure prints its number; again with
``PYTHONPATH=tests python tests/fuzz_worker.py 20 NUMBER NUMBER+1 DIRECTORY``.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from fastadmm.errors import ExitCode

from fuzz_subjects import SUBJECTS
from fuzz_worker import contents, judge, spoil, watched
from run_tools import run_process

SEED, EXCHANGE_SEED = 20, 1000
N_CASES = 10_000
PIECE = 500


def run_cases(start, stop, directory, seed=SEED):
    reports = list(watched(seed, start, stop, directory))
    bad = [report for report in reports if report["problems"]]
    assert not bad, "\n\n".join(json.dumps(report, indent=1, ensure_ascii=False) for report in bad[:5])
    assert [report["case"] for report in reports] == list(range(start, stop))
    return reports


def test_spoiled_files(tmp_path):
    reports = run_cases(0, 45, tmp_path)
    # Every subject had its turn, and damage was noticed: a harness that changes nothing would always succeed.
    assert {report["subject"] for report in reports} == set(SUBJECTS)
    codes = Counter(report["code"] for report in reports)
    assert codes[ExitCode.INPUT] + codes[ExitCode.FORMAT] + codes[ExitCode.CONFIG] > 14
    # In a process of its own a command says the same.
    noticed = [
        report for report in reports if report["code"] in (ExitCode.INPUT, ExitCode.FORMAT, ExitCode.CONFIG)
    ]
    for report in noticed[::30]:
        home = tmp_path / f"process-{report['case']}"
        _, _, command, _ = spoil(SEED, report["case"], tmp_path / "seeds", home)
        before = contents(home)
        code, out, err = run_process(*command.arguments(home))
        assert code == report["code"], err
        assert not list(judge(command, home, code, out, err, before, contents(home))), err


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, N_CASES, PIECE))
def test_ten_thousand_spoiled_files(start, tmp_path):
    run_cases(start, start + PIECE, tmp_path)


@pytest.mark.repeats
def test_what_others_send(tmp_path):
    reports = run_cases(0, 40, tmp_path, EXCHANGE_SEED)
    codes = Counter(report["code"] for report in reports)
    refused = (ExitCode.FORMAT, ExitCode.STORAGE, ExitCode.CONFIG, ExitCode.INPUT)
    assert sum(codes[code] for code in refused) > 10


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, N_CASES, PIECE))
def test_ten_thousand_messages_requests_approvals_ledgers_and_partitions(start, tmp_path):
    run_cases(start, start + PIECE, tmp_path, EXCHANGE_SEED)


def test_watcher_reports_crash_and_hang(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, sys, time\n"
        "for n in range(int(sys.argv[2]), int(sys.argv[3])):\n"
        "    print(json.dumps({'begin': n}), flush=True)\n"
        "    if n == 1: os.abort()\n"
        "    if n == 3: time.sleep(60)\n"
        "    print(json.dumps({'case': n, 'problems': []}), flush=True)\n"
    )
    monkeypatch.setattr("fuzz_worker.__file__", str(worker))
    monkeypatch.setattr("fuzz_worker.SECONDS", 1.0)
    monkeypatch.setattr(
        "fuzz_worker.case_of", lambda *_: (None, "", Path(), next(iter(SUBJECTS.values())).commands[0])
    )
    found = {report["case"]: report["problems"] for report in watched(0, 0, 5, tmp_path)}
    assert found == {0: [], 1: ["the process ended with -6"], 2: [], 3: ["hang: no answer in 1 s"], 4: []}
