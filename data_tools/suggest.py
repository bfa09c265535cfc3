"""What messages suggest: names that were meant, and all that is to be settled in one line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fastadmm.errors import InputError

_Result = TypeVar("_Result")

#: Faults that one line tells.
_MOST = 8


def nearest(name: str, known: Sequence[str]) -> str:
    """End of a message about an unknown name: ``"; did you mean 'age'?"``, or the list of known names."""
    alike = name.strip().casefold()
    if same := [other for other in known if other.strip().casefold() == alike]:
        return f"; did you mean {same[0]!r}?"
    if match := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {match[0]!r}?"
    shown = ", ".join(known[:30]) + (f", ... ({len(known)} in all)" if len(known) > 30 else "")
    return f"; there are: {shown}"


def each(calls: Iterable[Callable[[], _Result]]) -> list[_Result]:
    """What all calls return, or one line of what all of them refuse."""
    results, refused = [], []
    for call in calls:
        try:
            results.append(call())
        except InputError as error:
            refused.append(str(error))
    if refused:
        first, *others = [line for error in refused for line in error.split("; also ")]
        told = [first]
        for line in others[: _MOST - 1]:
            fault, _, remedy = line.rpartition(": ")
            remedy = next((part for part in remedy.split(", ") if "--" in part), remedy)
            told.append(fault if any(remedy in other for other in told) else f"{fault}: {remedy}")
        raise InputError("; also ".join(told) + ("; and more" if len(others) >= _MOST else ""))
    return results
