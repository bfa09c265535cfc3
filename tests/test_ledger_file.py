"""The ledger's file: whatever happens to it, it never says that less was spent."""

import os

import pytest
from fastadmm.errors import FormatError, PrivacyBudgetError, StorageError
from fastadmm.privacy import ledger_file
from fastadmm.privacy.ledger import Charge, Ledger

from run_tools import Killed, flipped, refuses, within

OLD = (
    '{"format": "fastadmm-privacy-ledger", "version": "1.0"}\n'
    '{"run": "r", "data": "sha256:1", "party": "bank", "release": "message 1", "gdp": 0.1, '
    '"pure": 0.0, "rho": 0.0}\n'
    '{"run": "r", "data": "labels of bank", "party": "bank", "release": "randomised labels", "gdp": 0.0, '
    '"pure": 1.0, "rho": 0.0}\n'
)


def charges(count, run="run"):
    return [
        Charge(run, "rows", f"party-{t % 3}", f"message {t}", gdp=0.01 * (t + 1), columns="c", draw=f"{t:x}")
        for t in range(count)
    ]


def written(path, count=20):
    ledger = Ledger(path)
    for charge in charges(count):
        ledger.charge(charge, 100.0, 1e-5)
    return path.read_bytes()


def cost(path):
    """What the ledger says was spent; None if it is refused."""
    try:
        found = Ledger(path).charges
    except (FormatError, StorageError):
        return None
    return sum(c.gdp + c.pure + c.rho for c in found)


def test_every_flipped_bit_is_refused_or_harmless(tmp_path):
    path = tmp_path / "l"
    good = written(path)
    spent = cost(path)
    refused = 0
    for bit in range(8 * len(good)):
        try:
            found = ledger_file._parse(flipped(good, bit)).charges
        except ledger_file._Refused:
            refused += 1
        else:
            assert sum(charge.gdp for charge in found) == spent
    # Nothing but the two places of the header, of which one is enough.
    assert refused >= 8 * (len(good) - 2 * ledger_file._HEAD_BYTES)


def test_every_truncation_is_refused_or_harmless(tmp_path):
    path = tmp_path / "l"
    good = written(path)
    for size in range(len(good)):
        refuses(ledger_file._Refused, "", ledger_file._parse, good[:size])
    for size in (0, 1, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        refuses(FormatError, "not a privacy ledger", Ledger, path)


def test_a_lost_line_is_missed(tmp_path):
    path = tmp_path / "l"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    refuses(FormatError, r"line 20: not a privacy ledger: 1 line\(s\) after it are missing", Ledger, path)
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    refuses(FormatError, "line 5: not a privacy ledger: its digest is another", Ledger, path)
    path.write_bytes(b"".join([*lines[:4], lines[5], lines[4], *lines[6:]]))
    assert cost(path) is None


@pytest.mark.parametrize(
    "content", [b"", b"my notes, no newline at the end", b"a\nb", b'{"format": "x"', OLD[:30].encode()]
)
def test_what_is_not_a_ledger_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes"
    path.write_bytes(content)
    ledger = Ledger()
    # as if it came after the ledger was opened
    ledger.path, ledger._file = path, ledger_file.LedgerFile(path)
    for attempt in (
        lambda: Ledger(path),
        lambda: ledger.charge(charges(1)[0], 9.0, 1e-5),
        lambda: ledger.reserve(charges(1), 9.0, 1e-5),
    ):
        refuses(FormatError, "line 1: not a privacy ledger", attempt)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes"]


def test_what_is_no_file_is_refused_and_no_new_line_is_an_old_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        refuses(FormatError, "not a regular file", Ledger, path)
    refuses(StorageError, "", Ledger(tmp_path / "absent" / "l").charge, charges(1)[0], 9.0, 1e-5)
    # A refused charge leaves no file.
    tmp_path = within(tmp_path)
    ledger = Ledger(tmp_path / "l")
    refuses(PrivacyBudgetError, "", ledger.charge, Charge("r", "rows", "p", "m", pure=2.0), 1.0, 1e-5)
    refuses(PrivacyBudgetError, "", ledger.reserve, [Charge("r", "rows", "p", "m", pure=2.0)], 1.0, 1e-5)
    assert os.listdir(tmp_path) == []
    tmp_path = within(tmp_path)
    path = tmp_path / "l"
    raw = written(path, 2)
    path.write_bytes(OLD.splitlines(keepends=True)[0].encode() + b"".join(raw.splitlines(keepends=True)[1:]))
    assert cost(path) is None


def operations(monkeypatch, stop_at, torn):
    """Die at the n-th write, sync, link or truncation, a write perhaps half done."""
    count = 0

    def watched(name):
        original = getattr(os, name)

        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == stop_at:
                if name == "write" and torn:
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise Killed
            return original(*arguments, **options)

        return call

    for name in ("write", "fsync", "link"):
        monkeypatch.setattr(ledger_file.os, name, watched(name))
    return lambda: count


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_no_kill_makes_a_ledger_unreadable_or_loses_a_charge(tmp_path, monkeypatch, before, torn):
    made, step = charges(5), 0
    while True:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "l"
        if before:
            written(path, before)
        with monkeypatch.context() as patched:
            count = operations(patched, step, torn)
            try:
                Ledger(path).charge_all(made[before : before + 2], 100.0, 1e-5)
                done = True
            except Killed:
                done = False
        reopened = Ledger(path)
        found = len(reopened.charges)
        assert found in ((before + 2,) if done else range(before, before + 3))
        # The next one goes on as if nothing had happened.
        reopened.charge_all(made[before:], 100.0, 1e-5)
        assert [c.draw for c in Ledger(path).charges] == [c.draw for c in made]
        if done:
            break
    assert count() == step - 1 >= 4


@pytest.mark.parametrize("name", ["link", "unlink"])
def test_a_killed_process_leaves_nothing_beside_its_ledger(tmp_path, monkeypatch, name):
    path = tmp_path / "l"
    child = os.fork()
    if child == 0:
        setattr(ledger_file.os, name, lambda *_: os._exit(0))
        Ledger(path).charge(charges(1)[0], 100.0, 1e-5)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    written(path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["l"]


def test_the_directory_is_synchronised_when_a_ledger_is_made(tmp_path, monkeypatch):
    seen = []
    original = os.fsync
    monkeypatch.setattr(
        ledger_file.os, "fsync", lambda fd: (seen.append(os.readlink(f"/proc/self/fd/{fd}")), original(fd))
    )
    written(tmp_path / "l", 1)
    assert str(tmp_path) in seen


def test_an_old_ledger_counts_and_is_protected_from_its_next_charge_on(tmp_path):
    path = tmp_path / "l"
    path.write_text(OLD)
    ledger = Ledger(path)
    charged = [(c.role, c.rows, c.party) for c in ledger.charges]
    assert charged == [("features", "", "bank"), ("labels", "", "bank")]
    assert path.read_text() == OLD  # reading changes nothing
    # Rows are not known, so they are any rows: of the party of that name, and of the labels.
    labels = Charge("new", "rows", "anyone", "randomised labels", pure=0.5, role="labels")
    refuses(PrivacyBudgetError, "", ledger.charge, labels, 1.2, 1e-5)
    with pytest.raises(PrivacyBudgetError):
        ledger.charge(Charge("new", "rows", "bank", "message 1", gdp=0.1), 0.45, 1e-5)
    # The run that made them goes on without paying twice.
    assert not ledger.charge(Charge("r", "rows", "bank", "message 1", gdp=0.1), 9.0, 1e-5)
    assert ledger.charge(Charge("r", "rows", "bank", "message 2", gdp=0.1), 9.0, 1e-5)
    raw = path.read_bytes()
    assert raw.startswith(OLD.encode())
    assert len(Ledger(path).charges) == 3
    for bit in range(8 * len(raw)):
        try:
            found = ledger_file._parse(flipped(raw, bit)).charges
        except ledger_file._Refused:
            continue
        assert found[:2] == ledger_file._parse(OLD.encode()).charges
        assert len(found) == 3
    for size in range(len(raw)):
        try:
            ledger_file._parse(raw[:size])
        except ledger_file._Refused:
            continue
        assert size <= len(OLD) + raw[len(OLD) :].index(b"\n")  # a ledger of 1.0 has no count


def test_changes_by_others_are_noticed(tmp_path):
    path, made = tmp_path / "l", charges(9)
    one, other = Ledger(path), Ledger(path)
    one.charge_all(made[:3], 100.0, 1e-5)
    backup = path.read_bytes()
    other.charge_all(made[3:5], 100.0, 1e-5)
    one.charge_all(made[4:6], 100.0, 1e-5)  # of which one was charged by the other
    assert one.charges == made[:6] == Ledger(path).charges
    later = path.read_bytes()
    path.write_bytes(backup)
    other.charge_all(made[6:7], 100.0, 1e-5)
    assert other.charges == [*made[:3], made[6]] == Ledger(path).charges
    damaged = bytearray(later)
    damaged[len(backup) // 2] ^= 1
    path.write_bytes(damaged)
    for ledger in (one, other):
        refuses(FormatError, "not a privacy ledger", ledger.charge_all, made[7:], 100.0, 1e-5)
    path.write_bytes(later)
    for ledger in (one, other):
        ledger.check_all(made[:1], 100.0, 1e-5)
        assert ledger.charges == made[:6]
    # Whoever else charges is noticed at the next charge.
    path, made = tmp_path / "l", charges(8)
    one, other = Ledger(path), Ledger(path)
    for k, charge in enumerate(made):
        (one, other)[k % 2].charge(charge, 100.0, 1e-5)
    assert one.charges == made[:7]
    assert other.charges == made == Ledger(path).charges
