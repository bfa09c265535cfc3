"""What the scripts share: measured numbers in files, and the blocks and pictures of pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def measured(name: str) -> Any:
    """Numbers of ``bench/NAME.json``; none where it is not there."""
    path = ROOT / "bench" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(name: str, numbers: Any, indent: int | None = 1) -> None:
    """Write ``bench/NAME.json``."""
    text = json.dumps(numbers, indent=indent)
    (ROOT / "bench" / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def first_below(values: list[float], level: float) -> int | None:
    """Number of the first round at or below a level, from 1; None if there is none."""
    return next((k + 1 for k, value in enumerate(values) if value <= level), None)


def table(header: list[str], rows: list[list[str]], right_from: int = 1) -> str:
    """A table in Markdown, whose columns stand on the right from one on."""
    rule = ["---" if k < right_from else "---:" for k in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def exponent(value: float) -> str:
    """``1e-05`` as ``1e-5``; two significant digits where the first does not say it all."""
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}"


def seconds_text(seconds: float) -> str:
    """Seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _split(text: str, mark: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, found, rest = text.partition(begin)
    inside, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no block {mark!r}")
    return before + begin, inside, end + after


def block(mark: str, page: Path) -> str:
    """What the page shows between ``<!-- mark:begin -->`` and ``<!-- mark:end -->``."""
    return _split(page.read_text(encoding="utf-8"), mark)[1]


def with_blocks(text: str, blocks: dict[str, str]) -> str:
    """A page's text with other blocks."""
    for mark, made in blocks.items():
        before, _, after = _split(text, mark)
        text = f"{before}\n{made}\n{after}"
    return text


def write_blocks(page: Path, blocks: dict[str, str]) -> None:
    """Write blocks of a page."""
    page.write_text(with_blocks(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def replace_block(mark: str, text: str, page: Path) -> None:
    """Write one block of a page."""
    write_blocks(page, {mark: text.removesuffix("\n")})


@contextmanager
def drawing(style: dict[str, Any]) -> Iterator[Callable[[str, Any], None]]:
    """What writes figures to ``docs/img``, in a style that gives the same bytes each time."""
    import matplotlib as mpl

    def save(name: str, figure: Any) -> None:
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(DOCS / "img" / name, format="svg", metadata={"Date": None, "Creator": None})

    with mpl.rc_context({"svg.hashsalt": "fastadmm", "svg.fonttype": "path", **style}):
        yield save
