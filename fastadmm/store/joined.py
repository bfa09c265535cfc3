"""Shards of a partition read as the whole that was cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import ContentDigest
from fastadmm.files.digest import row_digest as digest_of
from fastadmm.store.elements import make_csr
from fastadmm.store.label_file import LabelData, check_weights
from fastadmm.store.party_file import PartyData
from fastadmm.store.row_reader import RowReader


class JoinedParty(PartyData):
    """A party's block of all shards, one after another."""

    def __init__(self, path: Path, parts: Sequence[PartyData], content_digest: str) -> None:
        vars(self).update(vars(parts[0]))
        self.path, self.parts, self.content_digest = path, tuple(parts), content_digest
        self.n_samples = sum(part.n_samples for part in parts)
        self.nnz = None if self.nnz is None else sum(part.nnz or 0 for part in parts)
        self.row_digest = digest_of(self.ids())

    def of_rows(self, start: int, stop: int) -> PartyData:
        parts, begin = [], 0
        for part in self.parts:
            end = begin + part.n_samples
            if max(start, begin) < min(stop, end):
                parts.append(part.of_rows(max(start, begin) - begin, min(stop, end) - begin))
            begin = end
        if len(parts) == 1:
            return parts[0]
        own = copy(self)
        own.parts, own.n_samples = tuple(parts), stop - start
        own.nnz = None if self.nnz is None else sum(part.nnz or 0 for part in parts)
        return own

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns, of the first shard."""
        return self.parts[0].feature_names

    def ids(self) -> np.ndarray:
        return np.concatenate([part.ids() for part in self.parts])

    def row_pointers(self) -> np.ndarray:
        pointers, filled = [np.zeros(1, dtype=np.int64)], 0
        for part in self.parts:
            own = part.row_pointers()
            pointers.append(own[1:] + (filled - own[0]))
            filled = int(pointers[-1][-1])
        return np.concatenate(pointers)

    def reader(self, keys: tuple[str, ...]) -> RowReader:
        return _JoinedReader(self, keys)

    def load(self) -> np.ndarray | csr_array:
        blocks: list[Any] = [part.load() for part in self.parts]
        if self.nnz is None:
            return np.concatenate(blocks)
        data, indices = (np.concatenate([getattr(b, key) for b in blocks]) for key in ("data", "indices"))
        ends = np.cumsum(np.concatenate([[0], *(np.diff(b.indptr) for b in blocks)]), dtype=np.int64)
        return make_csr(data, indices, ends, (self.n_samples, self.n_features))

    def _read(self, rows: int) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        start = 0
        for part in self.parts:
            for first, block in part.iter_rows(rows):
                yield start + first, block
            start += part.n_samples

    def verify(self) -> None:
        """Read everything and compare it with the digests of the shards and of the whole."""
        whole = ContentDigest(self.kind, self.dtype.name)
        for part in self.parts:
            part.verify()
            part.add_to(whole)
        if whole.text(self.feature_names) != self.content_digest:
            raise FormatError(
                f"{shown(self.path)}: party {self.name}: the shards' rows together are not what was cut; "
                "restore them"
            )


class _JoinedReader(RowReader):
    """Reads rows or entries of all shards, as those of one file."""

    direct = False

    def __init__(self, party: JoinedParty, keys: tuple[str, ...]) -> None:
        self.path = party.path
        self._readers = [part.reader(keys) for part in party.parts]
        first = self._readers[0]
        self.dtypes, self.row_items = first.dtypes, first.row_items
        if any(reader.dtypes != first.dtypes for reader in self._readers):
            raise FormatError(f"{shown(party.path)}: party {party.name}: shards store numbers of other types")
        begins = [part.first_row if part.nnz is None else part.first_entry for part in party.parts]
        counts = [part.n_samples if part.nnz is None else part.nnz for part in party.parts]
        self._ranges = list(zip(begins, itertools.pairwise(itertools.accumulate(counts, initial=0))))

    def check_unchanged(self) -> None:
        for reader in self._readers:
            reader.check_unchanged()

    def read_into(self, key: str, start: int, stop: int, out: np.ndarray) -> None:
        flat, items = out.reshape(-1), self.row_items[key]
        for reader, (begin, (first, last)) in zip(self._readers, self._ranges):
            own = max(start, first), min(stop, last)
            if own[0] < own[1]:
                there = flat[(own[0] - start) * items : (own[1] - start) * items]
                reader.read_into(key, own[0] - first + begin, own[1] - first + begin, there)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


@dataclass(frozen=True, eq=False)
class JoinedLabels(LabelData):
    """The labels of all shards, one after another."""

    parts: tuple[LabelData, ...] = ()

    @classmethod
    def of(cls, path: Path, parts: Sequence[LabelData], row_digest: str) -> JoinedLabels:
        """Put labels together, and refuse what the whole may not be."""
        columns: dict[str, Any] = {
            key: None if getattr(parts[0], key) is None else np.concatenate([getattr(p, key) for p in parts])
            for key in ("y", "sample_weight", "offset")
        }
        columns |= {
            "path": path,
            "n_samples": len(columns["y"]),
            "row_digest": row_digest,
            "parts": tuple(parts),
        }
        labels = cls(**{**vars(parts[0]), **columns})
        if labels.sample_weight is not None:
            check_weights(float(labels.sample_weight.sum()), shown(path))
        return labels

    def ids(self) -> np.ndarray:
        return np.concatenate([part.ids() for part in self.parts])
