"""Does a page show what its commands print?"""

import re
from pathlib import Path

#: Numbers, not digits in names like ``party-1`` or ``a9a``.
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w]|\.\d)")
#: What differs from run to run: dates, times, digests.
CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\b\d+(?:\.\d+)? (?:s|ms|min)\b|\b[0-9a-f]{12,64}\b"
)
#: Smaller numbers are rounding, which is the processor's.
ROUNDING = 1e-9


def anchor_of(heading: str) -> str:
    """The anchor that code hosts make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def between_markers(page: str, name: str, text: str) -> str:
    """A page with a text between the markers of a name."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def write_between(path: Path, name: str, text: str) -> None:
    """Put a text between the markers of a name in a page."""
    path.write_text(between_markers(path.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def agrees(printed: str, shown: str) -> bool:
    """Whether the lines shown are the ones printed.

    A line of ``...`` stands for any lines, ``...`` at a line's end for its rest. Numbers agree to the last
    digit shown.
    """
    return _match([line.rstrip() for line in printed.splitlines()], shown.splitlines())


def _match(lines: list[str], shown: list[str]) -> bool:
    if not shown:
        return not lines
    if shown[0].strip() == "...":
        return any(_match(lines[skip:], shown[1:]) for skip in range(len(lines) + 1))
    return bool(lines) and _same(lines[0], shown[0]) and _match(lines[1:], shown[1:])


def _same(line: str, shown: str) -> bool:
    if shown.endswith("..."):
        shown = shown.removesuffix("...").rstrip()
        line = line[: len(shown)]
    line, shown = (CHANGING.sub("~", text) for text in (line, shown))
    if NUMBER.split(line) != NUMBER.split(shown):
        return False
    return all(map(_close, NUMBER.findall(line), NUMBER.findall(shown)))


def _close(number: str, shown: str) -> bool:
    """Equal up to one unit of the last digit shown, or of the tenth significant one."""
    value, expected = (float(text.replace(",", "")) for text in (number, shown))
    if "." not in shown and "e" not in shown:
        return value == expected
    mantissa, _, exponent = shown.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(value - expected) <= max(1.001 * unit, 1e-9 * abs(expected), ROUNDING)
