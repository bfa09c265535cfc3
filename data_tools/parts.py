"""One table or data set in many files: a directory of parts, or a pattern such as ``day-*.parquet``."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from fastadmm.data_tools.opening import SourceFile, guess_format
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown, storage_errors

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
    with storage_errors(path, "read"):
        parts = _parts(path)
        _check_parts(parts)
        filled = [part for part in parts if not _is_empty(part)]
    if not filled:
        what = "a directory without data files" if Path(path).is_dir() else "no file has such a name"
        what = "all parts are empty" if parts else what
        raise InputError(f"{shown(path)}: {what}: give a data file, or a directory or pattern of parts")
    return filled


def _parts(path: str | Path) -> list[Path]:
    """What a directory or pattern stands for, with empty files."""
    folder = Path(path).is_dir()
    found = list(Path(path).iterdir()) if folder else [Path(name) for name in glob.glob(str(path))]
    return sorted(f for f in found if f.name[0] not in "._")


def _is_empty(part: Path) -> bool:
    """Whether a file holds nothing, compressed or not."""
    if not part.is_file() or (size := part.stat().st_size) > _COMPRESSED_NOTHING:
        return False
    return size == 0 or SourceFile(part).holds_nothing()


def _check_parts(parts: Sequence[Path]) -> None:
    """Refuse what would leave rows out or count them twice."""
    known: dict[tuple[int, int], Path] = {}
    for part in parts:
        if part.is_dir():
            raise InputError(
                f"{shown(part)}: is a directory among parts: name the files by a pattern, such as "
                f"'{shown(part.parent)}/*/*{next((p.suffix for p in parts if p.is_file()), '')}'"
            )
        if part.is_file():  # reading it says what else may be wrong
            about = part.stat()
            first = known.setdefault((about.st_dev, about.st_ino), part)
            if first is not part:
                raise InputError(f"{shown(part)}: the same file as {shown(first)}: give each part once")


def source_files(path: str | Path, format: str = "auto") -> tuple[list[SourceFile], str]:
    """The opened files that a source stands for, and their format."""
    files = [SourceFile(part) for part in part_files(path)]
    kinds = [format_of(file, format) for file in files]
    for file, kind in zip(files, kinds):
        if kind != kinds[0]:
            raise InputError(
                f"{file.shown}: read as {kind}, but {files[0].shown} as {kinds[0]}: parts of one source have "
                "one format (see --format)"
            )
    if kinds[0] == "npz" and len(files) > 1:
        raise InputError(f"{shown(path)}: {len(files)} NPZ files: give one; parts are LIBSVM, CSV or Parquet")
    return files, kinds[0]


def format_of(file: SourceFile, format: str) -> str:
    """What a source is read as: as stated, or as its content and name say."""
    if file.is_parquet:
        if format != "auto":
            raise InputError(f"{file.shown}: is a Parquet file: leave --format out")
        return "parquet"
    kind = guess_format(file) if format == "auto" else format
    if (kind == "npz") != file.is_zip:
        raise InputError(
            f"{file.shown}: is {'' if file.is_zip else 'not '}a zip archive, as NPZ files are: check --format"
        )
    return kind
