"""Plant faults in the private modes, audit them as a user does, and count those that the audit finds.

``python -P tests/audit_campaign.py --honest 200`` also audits unchanged code so often. ``--write PAGE`` puts
the counts into a page. The exit code is 1 if honest code is flagged or fewer faults are found than
``--least``.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from page_outputs import write_between  # noqa: E402

BEGIN, END = "<!-- audited:begin -->", "<!-- audited:end -->"


def make_runs(folder):
    """Honest private runs: a claim of 1 in either mode."""
    from run_tools import in_file, run, write_problem

    data = write_problem(folder / "a.parts", 300, (4, 3))
    common = ["--epsilon", 1, "--delta", 1e-4, "--lambda", 1e-2, "-q"]
    made = {"message": ["--privacy", "message", *in_file(privacy={"rounds": 3})]}
    made["fusion"] = ["--privacy", "fusion", "--set", "privacy.label_epsilon=1"]
    for name, options in made.items():
        assert run("train", data, "-o", folder / name, *options, *common) == 0
    return folder


def audit(runs, mode, *options):
    """Exit code, and what is flagged."""
    from run_tools import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run("audit", runs / mode, *options, "--json")
    return code, [check for check in json.loads(out.getvalue())["checks"] if check["flagged"]]


def one_fault(runs, fault, mode, *options):
    """What the audit says of a fault in a mode."""
    begin = time.perf_counter()
    try:
        with pytest.MonkeyPatch.context() as patch:
            fault.plant(patch.setattr)
            code, flagged = audit(runs, mode, *options)
    except Exception as error:  # an audit that ends so has said nothing
        text = traceback.format_exception(error)[-3:]
        code, flagged = -1, [{"name": "EXCEPTION", "found": "".join(text)}]
    return {
        "fault": fault.name,
        "mode": mode,
        "found": code == 9 and any(check["name"].startswith(fault.check) for check in flagged),
        "by": [check["name"] for check in flagged],
        "says": flagged[0]["found"] if flagged else "",
        "seconds": time.perf_counter() - begin,
    }


def table(found, honest, alarms):
    seen = sum(one["found"] for one in found)
    names = {one["fault"] for one in found}
    caught = {one["fault"] for one in found} - {one["fault"] for one in found if not one["found"]}
    lines = [
        f"Of {len(names)} faults, planted in {len(found)} places at ε = 1, the audit finds **{len(caught)}** "
        f"({seen} of {len(found)} places). Unchanged code, audited {honest:,} times: **{alarms}** alarms.",
        "",
        "| test that notices | faults in `message` | in `fusion` |",
        "|---|---:|---:|",
    ]
    by = Counter((_first(one), one["mode"]) for one in found)
    for test in sorted(
        {test for test, _ in by}, key=lambda test: (-by[test, "message"] - by[test, "fusion"], test)
    ):
        lines.append(f"| {test} | {by[test, 'message']} | {by[test, 'fusion']} |")
    return "\n".join(lines) + "\n"


def _first(one):
    return one["by"][0].split(",")[0].split(" (")[0] if one["found"] else "**nothing**"


def main():
    """Exit code 1 if honest code is flagged, or too few faults are found."""
    from audited_faults import FAULTS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--honest", type=int, default=0, help="audits of unchanged code, of each mode")
    parser.add_argument("--trials", type=int, default=200_000)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--least", type=int, default=0, help="faults that have to be found")
    parser.add_argument("--write", type=Path, help="put the counts into this page")
    arguments = parser.parse_args()
    options = ("--trials", arguments.trials)
    found, alarms = [], 0
    with tempfile.TemporaryDirectory() as folder:
        runs = make_runs(Path(folder))
        for fault in FAULTS:
            for mode in fault.modes if arguments.only in fault.name else ():
                one = one_fault(runs, fault, mode, *options)
                found.append(one)
                said = f"{one['seconds']:.1f} s: {one['by'][:3]} {one['says'][:160]}"
                print(f"{'found ' if one['found'] else 'MISSED'} {fault.name} ({mode}), {said}", flush=True)
        for k in range(arguments.honest):
            for mode in ("message", "fusion"):
                code, flagged = audit(runs, mode, *options)
                alarms += code != 0
                if code:
                    print(f"ALARM {k} {mode}: {flagged}", flush=True)
    text = table(found, 2 * arguments.honest, alarms)
    print(text.splitlines()[0])
    if arguments.write is not None:
        write_between(arguments.write, "audited", text)
    return int(alarms > 0 or sum(one["found"] for one in found) < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
