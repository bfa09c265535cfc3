"""Large CSV tables: compiled code takes blocks of plain lines apart, on all cores, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import OnRead
from fastadmm.data_tools.building import Chunk, Numbers, Whole, Words
from fastadmm.data_tools.columns import EXACT
from fastadmm.data_tools.csv_table import CsvFile
from fastadmm.data_tools.large_text import in_order, line_ends, powers


def csv_chunks(
    source: CsvFile, wanted: Mapping[str, str], on_read: OnRead | None = None
) -> Iterator[tuple[np.ndarray, Chunk] | None]:
    """Cells of a CSV table, block by block."""
    places = {name: i for i, name in enumerate(source.columns)}

    def apart(block: tuple[int, bytes]) -> tuple[np.ndarray, Chunk] | None:
        return _take_apart(*block, source, places, dict(wanted))

    for found in in_order(apart, source.source.line_blocks(on_read=on_read)):
        if found is None:
            yield None
            return
        if len(found[0]):
            yield found


def _take_apart(
    first_line: int, raw: bytes, source: CsvFile, places: Mapping[str, int], wanted: Mapping[str, str]
) -> tuple[np.ndarray, Chunk] | None:
    from fastadmm.kernels.cells import split_cells

    if first_line == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    skipped = 0
    while first_line + skipped <= source.header_end and raw:
        line, _, raw = raw.partition(b"\n")
        skipped += 1
        if b"\r" in line.removesuffix(b"\r"):
            return None  # a lone carriage return ends a line, too
    text = np.frombuffer(raw, dtype=np.uint8)
    rows = line_ends(raw) + 1
    starts = np.empty((rows, len(source.columns)), dtype=np.int32)
    stops, lines = np.empty_like(starts), np.empty(rows, dtype=np.int32)
    count = split_cells(text, ord(source.separator), starts, stops, lines)
    if count < 0:
        return None
    cells: dict[str, Numbers | Words | Whole] = {}
    for name, how in wanted.items():
        i = places[name]
        own = np.ascontiguousarray(starts[:count, i]), np.ascontiguousarray(stops[:count, i])
        found: Any = None
        if how == "numbers":
            found = _numbers(raw, text, *own)
        elif how == "ids":
            found = _whole(text, *own)
        cells[name] = found if found is not None else _words(raw, text, *own)
    return lines[:count].astype(np.int64) + (first_line + skipped), cells


def _numbers(raw: bytes, text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Numbers | None:
    from fastadmm.kernels.cells import parse_numbers

    values, found = np.empty(len(starts)), np.zeros(3, dtype=np.int64)
    if parse_numbers(text, starts, stops, powers(), values.view(np.uint64), found) >= 0:
        return None
    if (np.abs(values) >= EXACT).any():  # its digits decide
        return None
    zero = int(found[1])
    zeros = raw[starts[zero] : stops[zero]].decode().strip().lstrip("+-") if zero >= 0 else ""
    return Numbers(values, zeros, bool(found[0] & 8), bool(found[0] & 16))


def _whole(text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Whole | None:
    from fastadmm.kernels.cells import parse_whole_numbers

    values = np.empty(len(starts), dtype=np.int64)
    return Whole(values) if parse_whole_numbers(text, starts, stops, values) else None


def _words(raw: bytes, text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Words:
    from fastadmm.kernels.cells import code_words

    codes = np.empty(len(starts), dtype=np.int32)
    first = np.empty(len(starts), dtype=np.int32)
    table = np.full(1 << (2 * len(starts)).bit_length(), -1, dtype=np.int32)
    count = code_words(text, starts, stops, table, codes, first)
    at = zip(starts[first[:count]].tolist(), stops[first[:count]].tolist())
    return Words(codes, [raw[start:stop].decode("utf-8", "surrogateescape") for start, stop in at])
