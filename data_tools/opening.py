"""Opening source files: compression and kind are recognised by content, not by name."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fastadmm.errors import InputError, StorageError
from fastadmm.files.atomic import shown, storage_error, storage_errors
from fastadmm.files.reading import require_regular

#: Called with the number of bytes of the source consumed since the last call (compressed bytes, as on disk).
OnRead = Callable[[int], None]

#: Bytes of text parsed at a time: a few MB keep the arrays in cache and the overhead per block small.
BLOCK_BYTES = 2 << 20

#: A longer line is not a data row (and blocks of complete lines could not stay small).
MAX_LINE_BYTES = 1 << 28

#: First bytes of the compressions that are undone on the fly.
_COMPRESSIONS: tuple[tuple[bytes, str | None, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
)

_WORKBOOK = "a workbook of Excel or another spreadsheet; save its sheet as CSV (UTF-8)"
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

#: First entries of a workbook, which is a zip archive as NPZ files are.
_IN_WORKBOOKS = (b"[Content_Types].xml", b"_rels/", b"xl/", b"docProps/", b"mimetypeapplication/vnd.oasis")


#: What files of other kinds begin with.
_FOREIGN = {
    b"[{": "JSON", b'{"': "JSON", b"<html": "a web page", b"<HTML": "a web page",
    b"<!doc": "a web page", b"<!DOC": "a web page", b"<?xml": "XML",
    b"\x89PNG": "a picture", b"\xff\xd8\xff": "a picture", b"GIF8": "a picture", b"%PDF": "a PDF document",
    b"Rar!": "a RAR archive", b"7z\xbc\xaf\x27\x1c": "a 7z archive", b"\x28\xb5\x2f\xfd": "zstd",
    b"\x93NUMPY": ".npy", b"\x89HDF\r\n\x1a\n": "HDF5",
}  # fmt: skip


class NotUtf8(InputError):
    """Text that is read is not UTF-8; it may have one byte for each character."""


class SourceFile:
    """A source file that can be opened any number of times."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.name, self.shown = Path(path), Path(path).name, shown(path)
        self.encoding: str | None = None
        try:
            with storage_errors(path, "read"):
                self.size, self._state = require_regular(path), self.state()
                with open(self.path, "rb") as raw:
                    self.magic, head = raw.read(8), raw.read(72)
        except ValueError as error:  # a NUL byte
            raise StorageError(f"{self.shown}: cannot read: {error}") from None
        if self.size == 0:
            raise self.refused("file is empty")
        named = self.path.suffix.lower() in _WORKBOOKS or head[22:].startswith(_IN_WORKBOOKS)
        if self.magic.startswith(b"\xd0\xcf\x11\xe0") or (self.is_zip and named):
            raise self.refused(f"is {_WORKBOOK}")
        entry, length = head[22:], int.from_bytes(head[18:20], "little")  # name of the first entry
        first = entry[:length] if self.magic.startswith(b"PK\x03\x04") and length <= len(entry) else b".npy"
        if not first.endswith(b".npy"):
            raise self.refused("is a zip archive without arrays, not an NPZ file: unpack it first")
        foreign = (kind for begin, kind in _FOREIGN.items() if self.magic.startswith(begin))
        if what := next(foreign, ""):
            remedy = "convert reads LIBSVM text, CSV, Parquet and NPZ"
            raise self.refused(f"is no table (it begins as {what}); {remedy}")
        known = (own for own in _COMPRESSIONS if self.magic.startswith(own[0]))
        #: Name of the compression, and what undoes it.
        _, self.compression, self.decompressed = next(known, (b"", None, lambda raw: raw))

    def refused(self, problem: str) -> InputError:
        """The error about the file."""
        return InputError(f"{self.shown}: {problem}")

    def state(self) -> tuple[int, int, int]:
        """What differs once a file has been written to."""
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def check_unchanged(self) -> None:
        """Refuse rows of two states of the file: it is read twice or more."""
        try:
            same = self.state() == self._state
        except OSError:
            same = False
        if not same:
            raise self.refused("changed while it was read; convert it when it is complete")

    @property
    def is_zip(self) -> bool:
        """Whether the file is a zip archive, as NPZ files are."""
        return self.magic.startswith((b"PK\x03\x04", b"PK\x05\x06"))

    @property
    def is_parquet(self) -> bool:
        """Whether the file is a Parquet table."""
        return self.magic.startswith(b"PAR1")

    def open(self, on_read: OnRead | None = None) -> io.BufferedReader:
        """Open the decompressed bytes for sequential reading."""
        with storage_errors(self.path, "read"):
            raw = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed by the reader returned
        stream: Any = io.BufferedReader(_Guarded(self, raw, on_read), buffer_size=1 << 18)
        return stream if self.encoding is None else io.BufferedReader(_Recoded(self, stream, self.encoding))

    def line_blocks(self, on_read: OnRead | None = None) -> Iterator[tuple[int, bytes]]:
        """Stream the text in blocks of complete lines, each with the number of its first line."""
        line, size = 1, 0
        pending: list[bytes] = []  # pieces of a line that has not ended yet
        with self.open(on_read) as stream:
            while piece := stream.read(BLOCK_BYTES):
                cut = piece.rfind(b"\n") + 1
                if cut == 0:
                    pending.append(piece)
                    size += len(piece)
                    if size > MAX_LINE_BYTES:
                        raise self.refused(f"line {line} is longer than {MAX_LINE_BYTES >> 20} MB: no table")
                    continue
                text = b"".join((*pending, piece[:cut]))
                pending = [piece[cut:]]
                size = len(pending[0])
                yield line, text
                line += text.count(b"\n")
        if text := b"".join(pending):
            yield line, text


class _Guarded(io.RawIOBase):
    """Raw stream over the decompressed bytes; turns every decoder's exceptions into one line."""

    def __init__(self, source: SourceFile, raw: io.FileIO, on_read: OnRead | None) -> None:
        self._source, self._raw, self._on_read = source, raw, on_read
        self._inner = source.decompressed(raw)
        self._count = self._told = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        source = self._source
        try:
            count = self._inner.readinto(buffer)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and (source.compression is None or error.errno is not None):
                raise storage_error(source.path, error, "read") from None
            place = f"{source.compression} data are damaged or truncated after {self._count} bytes of text"
            raise source.refused(f"{place} ({error}): copy or download the file again") from None
        self._count += count
        if not count:
            source.check_unchanged()
        if self._on_read is not None:
            at = self._raw.tell()
            self._on_read(at - self._told)
            self._told = at
        return count

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
            self._raw.close()
        super().close()


class _Recoded(io.RawIOBase):
    """Text of another encoding, as UTF-8."""

    def __init__(self, source: SourceFile, stream: Any, encoding: str) -> None:
        self._stream = io.TextIOWrapper(stream, encoding=encoding, newline="")
        self._ready = b""
        self._problem = f"{source.shown}: not {encoding} text: pass --encoding, or convert the file to UTF-8"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            self._ready = self._ready or self._stream.read(1 << 18).encode("utf-8")
        except UnicodeError:
            raise InputError(self._problem) from None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def check_names(names: Sequence[str], place: str) -> None:
    """Refuse column names that cannot be stored."""
    from fastadmm.store.elements import check_text

    for i, name in enumerate(names, start=1):
        check_text(name, f"{place}: name of column {i}")


# --- one table or data set in many files -----------------------------------------------------------------


#: Bytes of a file in which nothing is compressed, with the name that gzip may add, at most.
_COMPRESSED_NOTHING = 1024


def is_parts(path: str | Path) -> bool:
    """Whether a path stands for many files."""
    with storage_errors(path, "read"):
        return Path(path).is_dir() or (glob.has_magic(str(path)) and not Path(path).exists())


def part_files(path: str | Path) -> list[Path]:
    """The files that a path stands for, in the order of their names."""
    if not is_parts(path):
        return [Path(path)]
    folder = Path(path).is_dir()
    with storage_errors(path, "read"):
        found = list(Path(path).iterdir()) if folder else [Path(name) for name in glob.glob(str(path))]
        parts = sorted(f for f in found if f.name[0] not in "._")
        filled = [part for part in parts if not part.is_file() or not _is_empty(part)]
    if not filled:
        what = "a directory without data files" if folder else "no file has such a name"
        what = "all parts are empty" if parts else what
        raise InputError(f"{shown(path)}: {what}: give a data file, or a directory or pattern of parts")
    seen: dict[tuple[int, int], Path] = {}
    for part in filter(Path.is_file, filled):
        status = part.stat()
        if (other := seen.setdefault((status.st_dev, status.st_ino), part)) is not part:
            raise InputError(
                f"{shown(part)}: is the same file as {other.name}; remove one: rows would count twice"
            )
    return filled


def _is_empty(part: Path) -> bool:
    """Whether a file holds nothing, compressed or not; what is damaged is for those to say who read it."""
    if (size := part.stat().st_size) == 0 or size > _COMPRESSED_NOTHING:
        return size == 0
    try:
        with open(part, "rb") as raw, SourceFile(part).decompressed(raw) as file:
            return not file.read(1)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
        return False


def source_files(path: str | Path, format: str = "auto") -> tuple[list[SourceFile], str]:
    """The opened files that a source stands for, and their format."""
    files = [SourceFile(part) for part in part_files(path)]
    kinds = [format_of(file, format) for file in files]
    for file, kind in zip(files, kinds):
        if kind != kinds[0]:
            problem = "parts of one source have one format (see --format)"
            raise file.refused(f"read as {kind}, but {files[0].shown} as {kinds[0]}: {problem}")
    if kinds[0] == "npz" and len(files) > 1:
        raise InputError(f"{shown(path)}: {len(files)} NPZ files: give one; parts are LIBSVM, CSV or Parquet")
    return files, kinds[0]


def format_of(file: SourceFile, format: str) -> str:
    """What a source is read as: as stated, or as its content and name say."""
    if file.is_parquet:
        if format != "auto":
            raise file.refused("is a Parquet file: leave --format out")
        return "parquet"
    kind = _guessed(file) if format == "auto" else format
    if (kind == "npz") != file.is_zip:
        what = "a zip archive" if file.is_zip else "not a zip archive"
        raise file.refused(f"is {what}, as NPZ files are: check --format")
    return kind


def _guessed(file: SourceFile) -> str:
    """Zip content is NPZ, names such as ``.csv`` and ``.tsv`` CSV, else it is LIBSVM."""
    if file.is_zip:
        return "npz"
    endings = [ending.lower() for ending in file.path.suffixes]
    while endings and endings[-1] in {".gz", ".bz2", ".xz"}:
        endings.pop()
    last, what = endings[-1] if endings else "", ""
    if last == ".npz":
        what = "not an NPZ file (no zip archive inside): truncated or misnamed"
    elif last in _WORKBOOKS:
        what = "is named as an Excel workbook, but holds none: pass --format csv if it is text"
    if what:
        raise file.refused(what)
    return "csv" if last in {".csv", ".data", ".tsv", ".tab"} else "libsvm"


# --- threads that keep the order of what they are given -------------------------------------------------


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """Results in the order of the items, computed by threads a little ahead."""
    from fastadmm.engine.engine import default_threads

    threads, waiting = default_threads(), deque[Future[_Result]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
