"""What commands print is what ``outputs.txt`` holds: every table, note, statement and sentence.

``make snapshots`` writes it anew; a change of it is a change for users.
"""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import corpus

KNOWN = Path(__file__).with_name("outputs.txt")
CASES = ("commands", "tables", "contributions", "owners", "path", "by-files-one")

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d+|\d+)(?:e[-+]?\d+)?")


def printed(folder: Path) -> dict[str, str]:
    """By command what it printed, with its exit code; without what machines differ in."""
    subprocess.run(
        [sys.executable, "-P", corpus.__file__, "--run", str(folder), *CASES],
        check=True,
        env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1"},
        capture_output=True,
    )
    found = {}
    for case in CASES:
        lines = corpus.text_items((folder / case / "output.txt").read_text(encoding="utf-8")).values()
        for part in "\n".join(line.rstrip() for line in lines if not line.startswith("memory:")).split(
            "\n$ "
        ):
            command, _, rest = part.removeprefix("$ ").partition("\n")
            found[f"{case}: {command}"] = rest
    return found


def stored() -> dict[str, str]:
    """The same of the file."""
    parts = KNOWN.read_text(encoding="utf-8").split("\n\n=== ")
    return dict(part.removeprefix("=== ").rstrip("\n").split("\n", 1) for part in parts)


def same(one: str, other: str) -> bool:
    """Whether two texts have the same words, and numbers that differ by rounding alone."""
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    # Gaps are of the size of rounding themselves: they say that something is almost zero.
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=2e-3, abs_tol=1e-7) for a, b in pairs)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return printed(tmp_path_factory.mktemp("outputs"))


def test_commands_print_what_they_printed(outputs: dict[str, str]) -> None:
    if "FASTADMM_WRITE_SNAPSHOTS" in os.environ:
        text = "\n\n".join(f"=== {name}\n{value}" for name, value in outputs.items())
        KNOWN.write_text(text + "\n", encoding="utf-8")
    known = stored()
    assert list(outputs) == list(known)
    wrong = {name: value for name, value in outputs.items() if not same(value, known[name])}
    for name, value in wrong.items():
        print(f"{name}\nwas:\n{known[name]}\nis:\n{value}\n")
    assert not wrong
