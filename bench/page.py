"""Measured blocks of a page, between marks in its text; of ``docs/streaming.md`` without more said."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PAGE", "block", "replace_block"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "streaming.md"


def _split(mark: str, page: Path) -> tuple[str, str, str]:
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    inside, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page.name}: no block {mark!r}")
    return before + begin, inside, end + after


def block(mark: str, page: Path = PAGE) -> str:
    """What the page shows between ``<!-- mark:begin -->`` and ``<!-- mark:end -->``."""
    return _split(mark, page)[1]


def replace_block(mark: str, text: str, page: Path = PAGE) -> None:
    """Write a block of the page."""
    before, _, after = _split(mark, page)
    page.write_text(f"{before}\n{text}{after}", encoding="utf-8")
