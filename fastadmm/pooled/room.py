"""What memory the pooled program may take beside a table."""

from __future__ import annotations

#: Bytes that a Gram matrix and its factor may take: so many, or as many as the table.
_MOST_BYTES = 1 << 28


def gram_is_allowed(columns: int, entries: float) -> bool:
    """Whether a Gram matrix, with its factor, is no larger than a table with so many entries, or small."""
    return 16.0 * float(columns) ** 2 <= max(8.0 * entries, _MOST_BYTES)
