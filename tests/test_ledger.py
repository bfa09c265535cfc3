"""The ledger's rules: data and role make an account, a draw makes a charge, a run sets its budget aside."""

import os
import secrets
import sys
from pathlib import Path

import numpy as np
import pytest
from fastadmm.errors import PrivacyBudgetError
from fastadmm.privacy.accounts import FEATURES, Account, columns_digest, rows_digest
from fastadmm.privacy.ledger import Charge, Ledger
from scipy import sparse

from run_tools import running, within

DELTA = 1e-5


def table(rows=40, columns=5, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, columns))
    values[generator.random(values.shape) < 0.4] = 0.0
    return values


def block_account(name, block, ids=None):
    """As :func:`fastadmm.privacy.accounts.feature_account`, of a block in memory."""
    given = block.shape[0] if ids is None else ids
    return Account(rows_digest(given), name, FEATURES, columns_digest([(0, block)], given))


def test_the_same_columns_are_one_account_in_any_storage_and_order():
    X = table()
    one = block_account("bank", X)
    rounded = X.astype(np.float32)
    explicit = sparse.csr_array(X)
    explicit.data[3] = 1e-60  # a zero of float32
    zero = X.copy()
    zero[explicit.nonzero()[0][3], explicit.indices[3]] = 0.0
    for other in (
        *(rounded, np.asfortranarray(X), X[:, ::-1], sparse.csr_array(X)),
        *(sparse.csr_array(rounded[:, [2, 0, 1, 4, 3]]), np.hstack([X, np.zeros((40, 1))])),
    ):
        assert block_account("other name", other).same(one)
        assert block_account("other name", other).columns == one.columns
    assert block_account("b", explicit).columns == block_account("b", zero).columns
    for other in (X + 1e-3, X[:, :4], X[::-1], np.abs(X)):
        assert not block_account("other name", other).same(one)
        assert block_account("bank", other).same(one)  # the same rows and the same name


def test_rows_and_columns_are_known_in_any_order_and_piece():
    X, order = table(), np.random.default_rng(1).permutation(40)
    for ids in (np.arange(100, 140), np.array([f"person {k}" for k in range(40)], dtype=object)):
        one, other = block_account("a", X, ids), block_account("b", X[order], ids[order])
        assert one.rows == other.rows != rows_digest(40)
        assert one.columns == other.columns
        assert block_account("a", X, ids).columns != block_account("a", X, ids[order]).columns
    assert rows_digest(np.arange(40)) == rows_digest(40)  # what a table without ids gets when it is converted
    assert rows_digest(40) != rows_digest(41)
    assert rows_digest(["1", "2"]) != rows_digest([1, 2])
    X = table()
    whole = columns_digest([(0, X)], 40)
    assert columns_digest(((k, X[k : k + 7]) for k in range(0, 40, 7)), 40) == whole
    csr = sparse.csr_array(X)
    assert columns_digest(((k, csr[k : k + 9]) for k in range(0, 40, 9)), 40) == whole
    ledger = Ledger()
    for n in (40, 41):
        ledger.charge(Charge.to(block_account("bank", table(n, seed=n)), "r", "model", pure=1.0), 1.0, DELTA)
    assert len(ledger.accounts()) == 2


def test_accounts_and_rules_in_plain_loops():
    """The vectorised digest beside one written with Python's numbers."""
    import hashlib
    import struct

    def mix(v):
        v = (v + 0x9E3779B97F4A7C15) % 2**64
        v = ((v ^ v >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        v = ((v ^ v >> 27) * 0x94D049BB133111EB) % 2**64
        return v ^ v >> 31

    X = table(6, 3)
    columns = []
    for column in X.T:
        first = second = 0
        for row, value in enumerate(column):
            if value:
                bits = struct.unpack("<I", struct.pack("<f", value))[0]
                h = mix((bits + mix(mix(row))) % 2**64)
                first, second = (first + h) % 2**64, (second + mix(h)) % 2**64
        columns.append(struct.pack("<QQ", first, second))
    expected = hashlib.sha256(b"columns\n" + b"".join(sorted(columns))).hexdigest()[:32]
    assert block_account("p", X).columns == expected
    # Accounts hang together by name and by columns.
    X, ledger = table(), Ledger()
    blocks = [("bank", X), ("shop", X), ("shop", X + 1.0)]
    for run, (name, block) in enumerate(blocks):
        ledger.charge(Charge.to(block_account(name, block), str(run), "model", pure=1.0), 9.0, DELTA)
    for name, block in blocks:
        assert ledger.spent(block_account(name, block)).releases == 3
    assert [len(group) for group in ledger.accounts()] == [3]
    assert ledger.spent(block_account("bank", X), run="1").releases == 1


def test_a_draw_is_charged_once_at_its_cost(tmp_path):
    path, draw = tmp_path / "l", secrets.token_hex(8)
    first = Charge("run", "rows", "bank", "message 1", gdp=0.1, draw=draw)
    assert Ledger(path).charge(first, 9.0, DELTA)
    assert not Ledger(path).charge(first, 9.0, DELTA)  # the stored message is sent again
    assert Ledger(path).charge(
        Charge("run", "rows", "bank", "message 1", gdp=0.1, draw=secrets.token_hex(8)), 9.0, DELTA
    )
    assert Ledger(path).spent(Account("rows", "bank")).releases == 2
    # A charge is the same only at the same cost and on the same rows.
    tmp_path = within(tmp_path)
    path = tmp_path / "l"
    Ledger(path).charge(Charge("run", "rows", "bank", "model", pure=2.0), 2.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match="1 releases"):
        Ledger(path).charge(Charge("run", "rows", "bank", "model", pure=1.0), 2.0, DELTA)
    assert Ledger(path).charge(Charge("run", "rows", "bank", "model", pure=2000.0), 9999.0, DELTA)
    assert Ledger(path).spent(Account("rows", "bank")).pure == (2.0, 2000.0)
    assert Ledger(path).charge(Charge("run", "others", "bank", "model", pure=2.0), 2.0, DELTA)
    assert not Ledger(path).charge(Charge("run", "rows", "bank", "model", pure=2.0 * (1 + 1e-12)), 2.0, DELTA)


def planned(run, count=4):
    return [Charge(run, "rows", "bank", f"message {t}", pure=0.25) for t in range(count)]


def drawn(charge):
    return Charge(
        charge.run, charge.rows, charge.party, charge.release, pure=charge.pure, draw=secrets.token_hex(8)
    )


def test_the_second_of_two_runs_is_refused_before_it_draws(tmp_path):
    one, two = Ledger(tmp_path / "l"), Ledger(tmp_path / "l")
    one.reserve(planned("one"), 1.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match=r"4 more are set aside.*nothing was sent"):
        two.reserve(planned("two"), 1.0, DELTA)
    one.charge(drawn(planned("one")[0]), 1.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match=r"spent epsilon 0\.25, 3 more are set aside"):
        two.charge(drawn(planned("two")[0]), 1.0, DELTA)
    two.reserve(planned("two"), 2.0, DELTA)
    for charge in planned("one")[1:]:
        one.charge(drawn(charge), 1.0 + 1.0, DELTA)
    for charge in planned("two"):
        two.charge(drawn(charge), 2.0, DELTA)
    assert os.listdir(tmp_path) == ["l"]  # used up, so nothing is left of the reservations
    assert Ledger(tmp_path / "l").spent(Account("rows", "bank")).pure == (0.25,) * 8


def test_plans_are_kept_apart_and_end_with_their_process(tmp_path):
    ledger = Ledger(tmp_path / "l")
    ledger.reserve(planned("one"), 1.0, DELTA)
    with pytest.raises(PrivacyBudgetError):
        ledger.charge(Charge("one", "rows", "bank", "something else", pure=0.25), 1.0, DELTA)
    with pytest.raises(PrivacyBudgetError):
        ledger.check_all([Charge("one", "rows", "bank", "something else", pure=0.25)], 1.0, DELTA)
    ledger.check_all(planned("one"), 1.0, DELTA)
    assert Ledger(tmp_path / "l").charges == []
    # A killed process keeps no reservation.
    tmp_path = within(tmp_path)
    with running([sys.executable, "-c", _HOLD, tmp_path / "l"]) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(PrivacyBudgetError, match="3 more are set aside"):
            Ledger(tmp_path / "l").reserve(planned("two", 3), 1.0, DELTA)
    assert len(os.listdir(tmp_path)) == 2
    Ledger(tmp_path / "l").reserve(planned("two", 3), 1.0, DELTA)
    assert os.listdir(tmp_path) == ["l"]
    with pytest.raises(PrivacyBudgetError, match="1 releases of 1 run"):
        Ledger(tmp_path / "l").reserve(planned("two", 4), 1.0, DELTA)  # what was drawn stays charged


_HOLD = """
import sys, time
from pathlib import Path
from fastadmm.privacy.ledger import Charge, Ledger
ledger = Ledger(Path(sys.argv[1]))
ledger.reserve([Charge("dead", "rows", "bank", f"message {t}", pure=0.25) for t in range(4)], 1.0, 1e-5)
ledger.charge(Charge("dead", "rows", "bank", "message 0", pure=0.25, draw="a"), 1.0, 1e-5)
print("held", flush=True)
time.sleep(60)
"""


def test_a_reservation_goes_although_the_disk_fails_once(tmp_path, monkeypatch):
    from fastadmm.privacy.ledger import Reservation

    reservation, unlink, failed = Reservation(tmp_path / "ledger"), Path.unlink, []

    def fails_once(path, **options):
        if not failed:
            failed.append(path)
            raise OSError(5, "Input/output error")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", fails_once)
    reservation.free()
    assert failed
    assert not list(tmp_path.iterdir())
