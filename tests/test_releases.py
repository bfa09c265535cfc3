"""Noisy releases on disk: drawn once, written ahead, charged, used; killed anywhere, damaged anyhow."""

import io
import os
import shutil
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from fastadmm.errors import ExitCode, FormatError, PrivacyBudgetError, StorageError
from fastadmm.privacy import releases as module
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.releases import Payment, Releases
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run

from run_tools import Killed, flipped, refused, refuses, write_blocks

COST = Charge("run", "data of a", "a", "message 1", pure=1.0)


def obtain(directory, ledger, total=1.0, question="q", draws=None):
    """One release of five random numbers."""
    draws = [] if draws is None else draws

    def draw():
        draws.append(np.frombuffer(os.urandom(40), dtype=np.int64))
        return {"integers": draws[-1]}

    payment = Payment(ledger, [COST], total, 0.0)
    return Releases(directory).obtain("one", question, payment, draw, lambda found: found["integers"])


def hidden(directory):
    return [path for path in directory.iterdir() if path.name.startswith(".")]


def dying(source, target, after=False, replace=os.replace):
    """End where a release gets its final name, before or after."""
    used = str(source).endswith(".pending")
    if not used or after:
        replace(source, target)
    if used:
        raise Killed


@pytest.mark.parametrize("place", ["before the charge", "before the rename", "after the rename"])
def test_killed_anywhere_a_release_is_drawn_and_charged_once(tmp_path, monkeypatch, place):
    directory, path, draws = tmp_path / "messages", tmp_path / "ledger", []
    charge = Ledger.charge_all

    def die_charging(*_):
        raise Killed

    with monkeypatch.context() as patched:
        if place == "before the charge":
            patched.setattr(Ledger, "charge_all", die_charging)
        else:
            patched.setattr(module.os, "replace", partial(dying, after=place == "after the rename"))
        refuses(Killed, "", obtain, directory, Ledger(path), draws=draws)
    assert len(list(directory.iterdir())) == 1
    assert Ledger.charge_all is charge
    np.testing.assert_array_equal(obtain(directory, Ledger(path), draws=draws), draws[0])
    assert len(draws) == 1
    assert hidden(directory) == []
    assert len(Ledger(path).charges) == 1


def test_draws_that_are_torn_missing_or_long(tmp_path, monkeypatch):
    directory, path, draws = tmp_path / "messages", tmp_path / "ledger", []
    with monkeypatch.context() as patched:
        patched.setattr(module.os, "replace", dying)
        refuses(Killed, "", obtain, directory, Ledger(path), draws=draws)
    (pending,) = hidden(directory)
    raw = pending.read_bytes()
    for torn in (raw[:-1], raw[: len(raw) // 2], b"", bytes([raw[0] ^ 1]) + raw[1:]):
        pending.write_bytes(torn)
        refuses(PrivacyBudgetError, "nothing was sent", obtain, directory, Ledger(path), draws=draws)
        assert list(directory.iterdir()) == []
    assert len(draws) == 1  # refused before anything is drawn
    pending.write_bytes(raw[:-1])
    np.testing.assert_array_equal(obtain(directory, Ledger(path), 2.0, draws=draws), draws[1])
    assert [c.pure for c in Ledger(path).charges] == [1.0, 1.0]
    # Names as long as the system allows.
    payment = Payment(Ledger(), [COST], 1.0, 0.0)
    Releases(tmp_path).obtain("n" * 251, "q", payment, lambda: {"x": 1}, lambda found: found)


def test_a_charged_release_that_is_missing_is_charged_again_or_refused(tmp_path):
    directory, path, draws = tmp_path / "messages", tmp_path / "ledger", []
    obtain(directory, Ledger(path), draws=draws)
    shutil.rmtree(directory)
    refuses(PrivacyBudgetError, "it would be 2", obtain, directory, Ledger(path), draws=draws)
    assert len(draws) == 1
    obtain(directory, Ledger(path), 2.0, draws=draws)
    assert Ledger(path).spent(COST.account).epsilon(0.0) == 2.0
    # A stored release whose ledger was lost is charged where it is used.
    obtain(directory, Ledger(tmp_path / "other"), draws=draws)
    assert len(draws) == 2
    assert len(Ledger(tmp_path / "other").charges) == 1


def old_file(**values):
    """As older versions wrote it: no draw, no digest."""
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def damages(raw, rng, count):
    for _ in range(count):
        yield flipped(raw, int(rng.integers(8 * len(raw))))
    for length in rng.integers(len(raw), size=count):
        yield raw[:length]
        yield raw + bytes(int(length) % 30 + 1)
    yield raw[: -module._COMMENT]  # as if it had never had a digest


def test_damage_is_one_line_also_of_older_versions(tmp_path):
    rng, ledger, draws = np.random.default_rng(0), Ledger(), []
    obtain(tmp_path, ledger, draws=draws)
    path = tmp_path / "one.npz"
    with np.load(path) as archive:  # still an archive like any other
        np.testing.assert_array_equal(archive["integers"], draws[0])
    for changed in damages(path.read_bytes(), rng, 300):
        path.write_bytes(changed)
        refuses(FormatError, "not a released message, or damaged", obtain, tmp_path, ledger, draws=draws)
    assert len(draws) == 1
    # Damaged files of older versions give no traceback.
    rng, path = np.random.default_rng(0), tmp_path / "one.npz"
    raw, seen = old_file(integers=np.arange(5), target="q"), 0
    for changed in damages(raw, rng, 300):
        path.write_bytes(changed)
        with suppress(FormatError):
            found = obtain(tmp_path, Ledger())
            np.testing.assert_array_equal(found, np.arange(5))  # in padding and dates that zip does not check
            seen += 1
    assert 0 < seen < 100
    path.write_bytes(raw)
    np.testing.assert_array_equal(obtain(tmp_path, Ledger()), np.arange(5))
    path.unlink()
    os.mkfifo(path)
    refuses(FormatError, "", obtain, tmp_path, Ledger())


def test_a_full_disk_keeps_nothing_half_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    draws, ledger = [], Ledger(tmp_path / "ledger")
    with monkeypatch.context() as patched:
        patched.setattr(module.os, "fsync", full)
        refuses(StorageError, "No space left", obtain, tmp_path / "messages", ledger, draws=draws)
    assert list((tmp_path / "messages").iterdir()) == []
    assert ledger.charges == []
    obtain(tmp_path / "messages", ledger, draws=draws)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    rng = np.random.default_rng(0)
    blocks = [rng.uniform(-0.5, 0.5, size=(200, d)) for d in (3, 2)]
    y = (blocks[0][:, 0] + 0.2 * rng.normal(size=200) > 0).astype(float)
    write_blocks(folder / "train.parts", blocks, y)
    return folder / "train.parts"


def configured(parts, mode, **changes):
    table = {"mode": mode, "epsilon": 2.0, "delta": 1e-4, "label_epsilon": 1.0, **changes}
    return make_config({"data": str(parts), "lambda": 1e-2, "threads": 1, "privacy": table})


FILES = {
    "message": ["labels.npz", "round-000001-party-1.npz", "round-000001-party-2.npz"],
    "fusion": ["labels.npz", "fusion-party-2.npz"],
}


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("mode", "victim"), [(mode, name) for mode, names in FILES.items() for name in names]
)
@pytest.mark.parametrize("charged", [False, True])
def test_a_run_that_is_killed_with_a_release_in_its_hand(parts, tmp_path, monkeypatch, mode, victim, charged):
    out = tmp_path / "run"
    use = Releases._use

    def die(self, pending, path, draw, payment):
        if path.name != victim:
            return use(self, pending, path, draw, payment)
        if charged:
            payment.charge(draw)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Releases, "_use", die)
        with pytest.raises(Killed):
            start_run(configured(parts, mode), out)
    (pending,) = hidden(out / "messages")
    first = pending.read_bytes()
    assert resume_run(out)["status"] == "completed"
    assert (out / "messages" / victim).read_bytes() == first
    assert sorted(path.name for path in (out / "messages").iterdir()) == sorted(FILES[mode])
    charges = Ledger(out / "privacy-ledger.jsonl").charges
    assert len(charges) == 3


@pytest.mark.parametrize("mode", ["message", "fusion"])
def test_deleted_messages_are_not_drawn_for_nothing(parts, tmp_path, capsys, mode):
    out = tmp_path / "run"
    start_run(configured(parts, mode), out)
    shutil.rmtree(out / "messages")
    (out / "result.json").unlink()
    assert "it would be" in refused(capsys, ExitCode.PRIVACY, "resume", out, "-q")
    assert not (out / "messages").exists()


def test_a_run_that_drew_twice_says_what_both_cost(parts, tmp_path):
    out = tmp_path / "run"
    config = configured(parts, "message", total_epsilon=9.0)
    before = start_run(config, out)["privacy"]
    (out / "messages" / "round-000001-party-2.npz").unlink()
    (out / "result.json").unlink()
    after = resume_run(out)["privacy"]
    assert before["epsilon"] == pytest.approx(2.0)
    assert after["epsilon"] > 2.8  # two messages of party-2
    assert after["parties"][0]["gdp"] == before["parties"][0]["gdp"]
    assert after["parties"][1]["gdp"] == pytest.approx(before["parties"][1]["gdp"] * 2**0.5)


def test_labels_that_were_drawn_twice_are_stated_twice(parts, tmp_path):
    out = tmp_path / "run"
    assert start_run(configured(parts, "fusion", total_epsilon=9.0), out)["privacy"]["label_epsilon"] == 1.0
    shutil.rmtree(out / "messages")
    (out / "result.json").unlink()
    after = resume_run(out)["privacy"]
    assert after["label_epsilon"] == 2.0
    assert after["parties"][1]["gdp"] > 0.0
    assert after["epsilon"] > 2.8
