"""docs/certificate.md: no more lines have to be trusted than it says, and neither proof reaches a scheme."""

import re
from pathlib import Path

from house import the_house

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "certificate.md"
ROOM = sorted((ROOT / "fastadmm" / "proof").glob("*.py"))
SUMS = [ROOT / "kernels" / f"{name}.py" for name in ("compensated", "fused_multiply_add")]
PLAIN = [ROOT / "fastadmm" / "runs" / f"{name}.py" for name in ("recompute", "plain")]


def reached(paths):
    """These files and all that they import, in however many steps."""
    house = the_house()
    found: set[str] = set()
    left = [module.name for module in house.modules.values() if module.path in paths]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(house.imports[name])
    return {house.modules[name].path for name in found}


def lines(paths):
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_no_more_lines_are_trusted_than_the_page_says():
    block = PAGE.read_text(encoding="utf-8").split("<!-- lines:begin -->")[1].split("<!-- lines:end -->")[0]
    told = [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) \|$", block, re.MULTILINE)]
    below = reached(ROOM) - {*ROOM, *SUMS}
    found = [lines(part) for part in (ROOM, SUMS, below, [*PLAIN, ROOT / "fastadmm" / "runs" / "verify.py"])]
    assert all(real <= number for real, number in zip(found, told, strict=True)), (found, told)


def test_neither_proof_reaches_what_finds_models():
    rooms = {path.relative_to(ROOT).parts[:2] for path in reached(ROOM)}
    assert not rooms & {("fastadmm", name) for name in ("coordinator", "parties", "solver", "runs")}
    formulas = {path.relative_to(ROOT).as_posix() for path in reached(PLAIN)}
    allowed = {"fastadmm/runs/recompute.py", "fastadmm/runs/plain.py", "fastadmm/errors.py"}
    assert formulas - {"fastadmm/__init__.py", "fastadmm/runs/__init__.py"} <= allowed
