"""The measured blocks of ``docs/streaming.md``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PAGE", "block", "replace_block"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "streaming.md"


def _split(mark: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    inside, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{PAGE.name}: no block {mark!r}")
    return before + begin, inside, end + after


def block(mark: str) -> str:
    """What the page shows between ``<!-- mark:begin -->`` and ``<!-- mark:end -->``."""
    return _split(mark)[1]


def replace_block(mark: str, text: str) -> None:
    """Write a block of the page."""
    before, _, after = _split(mark)
    PAGE.write_text(f"{before}\n{text}{after}", encoding="utf-8")
