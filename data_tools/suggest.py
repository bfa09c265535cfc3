"""What messages suggest: names that were meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(name: str, known: Sequence[str]) -> str:
    """End of a message about an unknown name: ``"; did you mean 'age'?"``, or the list of known names."""
    alike = name.strip().casefold()
    if same := [other for other in known if other.strip().casefold() == alike]:
        return f"; did you mean {same[0]!r}?"
    if match := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {match[0]!r}?"
    shown = ", ".join(known[:30]) + (f", ... ({len(known)} in all)" if len(known) > 30 else "")
    return f"; there are: {shown}"
