"""A journal: what a kill cut goes, what is damaged is named, and room is used again."""

import os
import struct
import zlib
from functools import partial

import pytest
from fastadmm.between.journal import Journal
from fastadmm.errors import FormatError

from run_tools import flipped, refuses

pytestmark = pytest.mark.usefixtures("quiet")


RECORDS = [[b"one", b""], [b"two" * 9, b"x"], [b""]]


def written_journal(path):
    """The bytes of a journal with the records above, and where each ends."""
    journal = Journal(path)
    ends = [path.stat().st_size]
    for parts in RECORDS:
        journal.append(parts)
        ends.append(ends[0] + journal.n_bytes)
    journal.close()
    assert path.stat().st_size == ends[-1]
    return path.read_bytes(), ends


@pytest.mark.parametrize("room", [0, 5000])
def test_a_journal_drops_what_a_kill_cut(room, tmp_path):
    path = tmp_path / "j"
    whole, ends = written_journal(path)
    for size in range(0 if not room else ends[0], len(whole) + 1):
        path.write_bytes(content := whole[:size] + bytes(room))
        journal = Journal(path)
        # A record that is whole stays, even where its end of 8 bytes is missing.
        n = sum(content[: end - 8] == whole[: end - 8] for end in ends[1:])
        assert list(journal.records()) == RECORDS[:n]
        journal.append([b"next"])
        assert list(journal.records()) == [*RECORDS[:n], [b"next"]]
        journal.drop_last()
        assert path.stat().st_size == ends[n]
        journal.close()
    # A disk may keep the later pages of a record and lose the first.
    path.write_bytes(whole[: ends[0]] + bytes(30) + whole[ends[0] + 30 : ends[1] - 1])
    assert list(Journal(path).records()) == []


def test_a_kill_while_all_records_are_dropped_leaves_them_or_none(tmp_path, monkeypatch):
    path, write = tmp_path / "j", os.write
    written_journal(path)

    def some(size, file, raw):
        write(file, raw[:size])
        raise KeyboardInterrupt

    for size in range(13):
        journal = Journal(path)
        with monkeypatch.context() as killed:
            killed.setattr("os.write", partial(some, size))
            with pytest.raises(KeyboardInterrupt):
                journal.restart()
        found = Journal(path)
        assert list(found.records()) in (RECORDS, [])
        found.close()


def test_a_journal_names_where_it_is_damaged(tmp_path):
    path = tmp_path / "j"
    whole, ends = written_journal(path)
    # Mark, checksum, size and content of all, the last one too; its end alone can be made again.
    for at in range(ends[3] - 8):
        path.write_bytes(changed := flipped(whole, 8 * at + 7))
        record = sum(end <= at for end in ends)
        if record and at >= ends[record] - 8:
            continue
        words = f"record {record}, at byte {ends[record - 1]}," if record else "its beginning, at byte 0,"
        refuses(FormatError, rf"{path}: {words} is damaged", Journal, path)
        assert path.read_bytes() == changed
    path.write_bytes(whole[: ends[0]] + bytes(ends[1] - ends[0]) + whole[ends[1] :])
    refuses(FormatError, "record 1, at byte", Journal, path)
    path.write_bytes(whole)
    journal = Journal(path)
    path.write_bytes(changed)
    refuses(FormatError, "record 3, at byte", list, journal.records())


def test_a_long_record_is_on_disk_before_its_end(tmp_path, monkeypatch):
    path, synchronised = tmp_path / "j", []
    journal = Journal(path)
    monkeypatch.setattr(
        "fastadmm.between.journal.synchronise_data", lambda file: synchronised.append(path.read_bytes())
    )
    journal.append([bytes(range(1, 256)) * 40])
    (first,) = synchronised
    assert first.count(b"end1") == 0
    assert first.count(bytes(range(1, 256))) == 40
    assert path.read_bytes().count(b"end1") == 1
    journal.append([b"short"])
    assert synchronised[-1].count(b"end1") == 2


def test_a_journal_begins_again(tmp_path):
    path = tmp_path / "j"
    _, ends = written_journal(path)
    journal = Journal(path)
    journal.append([b"more"])
    journal.restart()
    assert list(journal.records()) == []
    journal.append([b"other"])
    left = path.read_bytes()
    journal.close()
    path.write_bytes(left)
    again = Journal(path)
    assert list(again.records()) == [[b"other"]]
    again.close()
    path.write_bytes(left[: ends[0]] + bytes(10) + left[ends[0] + 10 :])
    refuses(FormatError, "record 1, at byte", Journal, path)
    # Files of version 0.2: no head, and checksums that begin with nothing.
    old = b"".join(
        struct.pack("<4sIQ", b"rec1", zlib.crc32(content), len(content)) + content
        for content in (struct.pack("<QQ", 1, 3) + b"old", struct.pack("<QQ", 1, 5) + b"older")
    )
    path.write_bytes(old)
    journal = Journal(path)
    journal.append([b"new"])
    assert list(journal.records()) == [[b"old"], [b"older"], [b"new"]]
    journal.restart()
    journal.append([b"new"])
    journal.close()
    assert list(Journal(path).records()) == [[b"new"]]
    # Later ones had a head, and records without an end.
    head = struct.pack("<4sI", b"jrn2", 7)
    content = struct.pack("<QQ", 1, 3) + b"old"
    record = struct.pack("<4sIQ", b"rec1", zlib.crc32(content, 7), len(content)) + content
    path.write_bytes(head + zlib.crc32(head).to_bytes(4, "little") + record + record)
    journal = Journal(path)
    journal.append([b"new"])
    journal.close()
    assert list(Journal(path).records()) == [[b"old"], [b"old"], [b"new"]]
    assert path.read_bytes().startswith(b"jrn3")
    assert path.read_bytes().count(b"end1") == 3
