"""A ledger's own limit, totals over runs with their labels, and the cost of a charge."""

import hashlib
import json
from dataclasses import asdict

import numpy as np
import pytest
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.errors import ConfigError, ExitCode, PrivacyBudgetError
from fastadmm.files.seal import chained
from fastadmm.privacy import ledger_file
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import Account, Spent
from fastadmm.privacy.ledger import Charge, Ledger, limit_words, spent_words

from run_tools import flipped, in_file, printed, refused, refuses, run, told, within

ACCOUNT = Account("rows", "bank", "features", "columns")
DELTA = 1e-5


def charge(number=0, account=ACCOUNT, **cost):
    return Charge.to(account, f"run {number}", "message", draw=f"{number:x}", **(cost or {"gdp": 0.1}))


def gaussian(number, epsilon, delta=DELTA):
    return charge(number, gdp=gdp_of(epsilon, delta))


def spent(path):
    return Ledger(path).spent(ACCOUNT).epsilon(DELTA)


@pytest.fixture(params=["file", "memory"])
def ledger(request, tmp_path):
    return Ledger(tmp_path / "l" if request.param == "file" else None)


def test_no_run_may_spend_more_than_the_ledger_states(ledger):
    ledger.state_limit(2.0, DELTA)
    ledger.charge(gaussian(1, 1.0), 100.0, DELTA)
    words = "of 2 at delta 1e-05, which the ledger states; nothing was sent"
    refuses(PrivacyBudgetError, words, ledger.charge, gaussian(2, 1.9), 100.0, DELTA)
    refuses(PrivacyBudgetError, "which the ledger states", ledger.reserve, [gaussian(2, 1.9)], 100.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match="of 1 at delta 1e-05; nothing"):
        ledger.charge(gaussian(2, 0.5), 1.0, DELTA)  # what the run is allowed counts besides
    ledger.charge(charge(3, Account("rows", "bank", "labels"), pure=2.0), 100.0, DELTA)
    with pytest.raises(PrivacyBudgetError, match="which the ledger states"):
        ledger.charge(charge(4, Account("rows", "bank", "labels"), pure=0.1), 100.0, DELTA)
    assert len(ledger.charges) == 2


def test_a_limit_is_stated_once(ledger):
    ledger.charge(gaussian(1, 1.0), 1.0, DELTA)
    words = r"bank: epsilon 1 at delta 1e-05 has been spent, more than 0\.5"
    refuses(PrivacyBudgetError, words, ledger.state_limit, 0.5, DELTA)
    for epsilon, delta in ((np.inf, DELTA), (0.0, DELTA), (1.0, 0.0), (np.nan, DELTA), (1.0, 1.0)):
        refuses(ConfigError, "must be positive", ledger.state_limit, epsilon, delta)
    ledger.state_limit(2.0, 1e-6)
    ledger.state_limit(2.0, 1e-6)
    for epsilon, delta in ((3.0, 1e-6), (1.5, 1e-6), (2.0, DELTA)):
        words = "states its limit already, epsilon 2 at delta 1e-06, and states it once"
        refuses(ConfigError, words, ledger.state_limit, epsilon, delta)
    assert (ledger.limit.epsilon, ledger.limit.delta) == (2.0, 1e-6)


def test_a_run_of_another_delta_does_not_change_how_the_ledger_counts(ledger):
    ledger.charge(gaussian(1, 1.0), 2.0, DELTA)
    assert ledger.limit.delta == DELTA
    third = gaussian(2, 1.2, 1e-3)  # at delta 1e-5 it costs more
    refuses(PrivacyBudgetError, "at delta 1e-05", ledger.charge, third, 2.0, 1e-3)
    assert ledger.limit.delta == DELTA
    with pytest.raises(PrivacyBudgetError, match="at delta 1e-09"):  # nor is a run allowed more at its own
        ledger.charge(gaussian(3, 0.5), 1.6, 1e-9)


def test_limits_are_of_files_and_protected(tmp_path):
    path = tmp_path / "l"
    Ledger(path).state_limit(1.0, DELTA)
    open_before = Ledger(path)
    Ledger(path).charge(gaussian(1, 0.6), 9.0, DELTA)
    refuses(PrivacyBudgetError, "which the ledger states", open_before.charge, gaussian(2, 0.9), 9.0, DELTA)
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        try:
            assert ledger_file._parse(flipped(good, bit)).limit.epsilon == 1.0
        except ledger_file._Refused:
            continue
    for size in range(len(good)):
        refuses(ledger_file._Refused, "", ledger_file._parse, good[:size])
    # What is charged, stated and set aside by one name holds for the others.
    tmp_path = within(tmp_path)
    first = Ledger(tmp_path / "l")
    first.state_limit(2.0, DELTA)
    (tmp_path / "soft").symlink_to("l")
    (tmp_path / "hard").hardlink_to(tmp_path / "l")
    first.reserve([gaussian(1, 1.8)], 9.0, DELTA)
    for name in ("soft", "hard"):
        with pytest.raises(PrivacyBudgetError, match="1 more are set aside by runs under way"):
            Ledger(tmp_path / name).charge(gaussian(2, 1.0), 9.0, DELTA)
    first.charge(gaussian(1, 1.8), 9.0, DELTA)
    for name in ("soft", "hard"):
        assert Ledger(tmp_path / name).charges == [gaussian(1, 1.8)]
        with pytest.raises(PrivacyBudgetError, match="which the ledger states"):
            Ledger(tmp_path / name).charge(gaussian(2, 1.0), 9.0, DELTA)


#: As version 2.0 wrote it: a charge of epsilon 1 at delta 1e-5 to the account above.
OLDER = b'{"format": "fastadmm-privacy-ledger", "version": "2.0", "heads": ["HEAD", "HEAD"]}\n'


def older():
    start = hashlib.sha256(b'{"format": "fastadmm-privacy-ledger", "version": 2.0').hexdigest()[:32]
    line, digest = chained(json.dumps(asdict(gaussian(1, 1.0))).encode()[:-1], start)
    heads = [ledger_file._head(0, start), ledger_file._head(1, digest)]
    return OLDER.replace(b"HEAD", heads[0], 1).replace(b"HEAD", heads[1], 1) + line


def test_an_older_ledger_is_counted_as_it_was_until_its_owner_says_more(tmp_path):
    path = tmp_path / "l"
    path.write_bytes(older())
    assert Ledger(path).charges == [gaussian(1, 1.0)]
    Ledger(path).charge(gaussian(2, 0.5), 2.0, DELTA)
    assert Ledger(path).limit is None
    assert path.read_bytes().startswith(older()[:60])
    Ledger(path).state_limit(2.0, DELTA)
    refuses(PrivacyBudgetError, "which the ledger states", Ledger(path).charge, gaussian(3, 1.9), 9.0, DELTA)
    assert len(Ledger(path).charges) == 2


def test_the_command_states_a_limit_and_shows_it(tmp_path, capsys):
    path = tmp_path / "own.jsonl"
    assert "limit  epsilon 3.0 at delta 1e-06 for each account, as its owner stated" in printed(
        capsys, "privacy", path, "--set-limit", 3, "--delta", 1e-6
    )
    assert "states its limit already" in refused(capsys, ExitCode.CONFIG, "privacy", path, "--set-limit", 4)
    assert told(capsys, "privacy", path) == {"limit": {"epsilon": 3.0, "delta": 1e-6}, "accounts": []}
    assert "name the file" in refused(capsys, ExitCode.CONFIG, "privacy", tmp_path, "--set-limit", 4)


def test_words_for_an_owner(tmp_path):
    ledger = Ledger(tmp_path / "l")
    assert spent_words(ledger.spent(ACCOUNT), DELTA) == "nothing of these data"
    ledger.charge(gaussian(1, 1.0), 1.0, DELTA)
    spent = ledger.spent(ACCOUNT)
    assert spent_words(spent, ledger.delta(0.1)) == "epsilon 1 at delta 1e-05, in 1 release(s) of 1 run(s)"
    assert limit_words(ledger).startswith("none stated; counts at delta 1e-05")
    ledger.state_limit(4.0, DELTA)
    assert spent_words(spent, DELTA, 4.0) == "epsilon 1 of 4.0 at delta 1e-05, in 1 release(s) of 1 run(s)"
    unspent = ledger.spent(Account("other", "shop"))
    assert spent_words(unspent, DELTA, ledger.most) == "nothing of these data of 4.0 at delta 1e-05"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("limit"), np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    for name in "ab":
        values = rng.normal(size=400) + 0.5 * y
        lines = "".join(f"{i},{y[i]},{values[i]:.3f}\n" for i in range(400))
        (folder / f"{name}.csv").write_text(f"id,y,{name}\n" + lines)
    (folder / "b.csv").write_text((folder / "b.csv").read_text().replace("id,y,b", "id,z,b"))
    convert_tables(folder / "a.csv", [folder / "b.csv"], folder / "p", id="id", label="y", drop=["z"])
    return folder / "p"


@pytest.mark.parametrize("mode", ["fusion", "message"])
def test_a_statement_adds_up_the_labels_of_all_runs(parts, tmp_path, mode):
    config = in_file(ledger=str(tmp_path / "l"), privacy={"label_epsilon": 1.0, "total_epsilon": 4.0})
    for k in range(3):
        asked = ("--privacy", mode, "--epsilon", 1, *config, "--quiet")
        assert run("train", parts, "-o", tmp_path / f"r{k}", *asked) == ExitCode.OK
        found = json.loads((tmp_path / f"r{k}" / "privacy.json").read_text())
        said = f"; {k} other run(s) in this ledger; all together epsilon"
        assert (said in found["one_line"]) == (k > 0)
        assert found["one_line"].endswith(f", label epsilon {k + 1}") == (k > 0)


def test_an_approval_or_configuration_cannot_raise_the_ledgers_limit(parts, tmp_path, capsys):
    Ledger(tmp_path / "l").state_limit(1.5, DELTA)
    asked = ("train", parts, "--privacy", "fusion", "--epsilon", 1, "--quiet")
    config = in_file(ledger=str(tmp_path / "l"), privacy={"total_epsilon": 100.0})
    assert run(*asked, *config, "-o", tmp_path / "one") == ExitCode.OK
    for delta in (1e-5, 1e-3):
        assert run(*asked, *config, "--delta", delta, "-o", tmp_path / f"{delta}") == ExitCode.PRIVACY
        assert "of 1.5 at delta 1e-05, which the ledger states" in capsys.readouterr().err


def test_bounds_of_many_mechanisms():
    rng = np.random.default_rng(2)
    for trial in range(90):
        ledger, costs = Ledger(), []
        for k in range(int(rng.integers(1, 16))):
            costs.append({
                "gdp": float(rng.choice([0.0, rng.uniform(0, 0.5)])),
                "pure": float(rng.choice([0.0, rng.uniform(0, 0.4)])),
                "rho": float(rng.choice([0.0, rng.uniform(0, 0.01)])) if trial % 3 == 0 else 0.0,
            })  # fmt: skip
            ledger.charge(charge(k, **costs[-1]), 1e9, DELTA)
        exact = ledger.spent(ACCOUNT).epsilon(DELTA)
        assert not ledger.spent(ACCOUNT).exceeds(exact * (1 + 1e-12), DELTA)
        assert ledger.spent(ACCOUNT).exceeds(exact * (1 - 1e-6), DELTA) or exact == 0.0
    # Very many pure mechanisms cost no more than as zcdp.
    many = Spent(0.0, tuple(np.linspace(0.001, 0.002, 3000).tolist()), 0.0, 3000, 1)
    assert many.epsilon(DELTA) < 0.1 * sum(many.pure)
