"""Attacks on the account of whole runs: names, storage, copies, foreign files, edits, two at once."""

import re
import shutil

import numpy as np
import pytest
from fastadmm.errors import ExitCode, PrivacyBudgetError
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import MessageSolver
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run

from run_tools import Killed, in_file, printed, refused, refuses, run, told, within, write_blocks


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A LIBSVM file of 300 rows and 6 columns."""
    path = tmp_path_factory.mktemp("source") / "people.libsvm"
    generator = np.random.default_rng(3)
    lines = []
    for row in generator.normal(size=(300, 6)):
        features = " ".join(f"{k}:{value:.9f}" for k, value in enumerate(row / 3, start=1))
        lines.append(f"{'+1' if row.sum() > 0 else '-1'} {features}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def parts(source):
    made = source.parent / "people.parts"
    assert run("convert", source, "--columns", "3,3", "--names", "bank,shop", "-o", made) == 0
    return made


def configured(parts, ledger, **privacy):
    table = {"mode": "message", "epsilon": 2.0, "delta": 1e-4, "rounds": 3, **privacy}
    values = {"data": str(parts), "lambda": 1e-2, "threads": 1, "ledger": str(ledger), "privacy": table}
    return make_config(values)


def edit(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def kill_after_the_first_round(config, out, monkeypatch):
    def die(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(MessageSolver, "_record", die)
        refuses(Killed, "", start_run, config, out)


def test_two_holders_of_the_same_labels_draw_once(parts, tmp_path, capsys):
    def train(holder, name):
        return run(
            "train", parts, "--privacy", "fusion", "--epsilon", 1, "--delta", 1e-4,
            *in_file(privacy={"label_party": holder, "total_epsilon": 1.9, "label_epsilon": 1.0}),
            "--ledger", tmp_path / "ledger", "-o", tmp_path / name, "-q",
        )  # fmt: skip

    assert train("bank", "one") == 0
    capsys.readouterr()
    assert train("shop", "two") == ExitCode.PRIVACY
    error = capsys.readouterr().err
    assert "shop: 1 releases of 1 run(s) have spent epsilon 0.9999" in error
    assert "with 'randomised labels' it would be 2 of 1.9" in error
    assert error.count("\n") == 1
    labels = [c for c in Ledger(tmp_path / "ledger").charges if c.role == "labels"]
    assert len(labels) == 1


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "options",
    [
        ["--set", "dtype=float32", "--names", "bank,shop"],
        ["--set", "dtype=float32", "--names", "first,second"],
        ["--set", "storage=csr", "--set", "compression=gzip", "--names", "first,second"],
        ["--set", "storage=dense", "--set", "normalize=l2", "--names", "bank,shop"],
        ["--columns", "2,4", "--names", "bank,shop"],
    ],
)
def test_another_conversion_opens_no_fresh_budget(source, parts, tmp_path, capsys, options):
    ledger = tmp_path / "ledger"
    start_run(configured(parts, ledger, rounds=1), tmp_path / "one")
    split = [] if "--columns" in options else ["--columns", "3,3"]
    assert run("convert", source, *split, *options, "-o", tmp_path / "other.parts") == 0
    with pytest.raises(PrivacyBudgetError, match="1 releases of 1 run"):
        start_run(configured(tmp_path / "other.parts", ledger, rounds=1), tmp_path / "two")
    assert len(Ledger(ledger).charges) == 2


def test_a_copied_run_pays_for_what_it_draws(parts, tmp_path, monkeypatch):
    ledger = tmp_path / "ledger"
    kill_after_the_first_round(configured(parts, ledger, total_epsilon=9.0), tmp_path / "one", monkeypatch)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        assert resume_run(tmp_path / name)["status"] == "completed"
    released = {
        path.read_bytes()
        for name in ("one", "two")
        for path in (tmp_path / name / "messages").iterdir()
        if "bank" in path.name
    }
    charges = [c for c in Ledger(ledger).charges if c.party == "bank"]
    assert len(released) == len(charges) == 5  # one round together, two rounds each


def test_backups_are_paid_up_and_stopped_runs_give_back(parts, tmp_path, monkeypatch):
    ledger = tmp_path / "ledger"
    kill_after_the_first_round(configured(parts, ledger), tmp_path / "one", monkeypatch)
    ledger.unlink()
    resume_run(tmp_path / "one")
    assert len(Ledger(ledger).charges) == 6  # three rounds of two parties
    # A run that stops gives back what it did not draw.
    tmp_path = within(tmp_path)
    config = configured(parts, tmp_path / "ledger", total_epsilon=2.6)
    kill_after_the_first_round(config, tmp_path / "one", monkeypatch)
    small = configured(parts, tmp_path / "ledger", total_epsilon=2.6, epsilon=1.9)
    assert start_run(small, tmp_path / "two")["status"] == "completed"
    with pytest.raises(PrivacyBudgetError, match="nothing was sent"):
        resume_run(tmp_path / "one")  # its budget has gone to another, so it draws nothing more
    assert len(list((tmp_path / "one" / "messages").iterdir())) == 2


def test_a_file_that_is_no_ledger_is_not_touched(parts, tmp_path, capsys):
    notes, ledger = tmp_path / "notes.txt", tmp_path / "ledger"
    notes.write_text("what I must not forget")
    start_run(configured(parts, ledger), tmp_path / "two")
    for path in (tmp_path / "two" / "result.json", tmp_path / "two" / "messages" / "round-000003-bank.npz"):
        path.unlink()
    settings = tmp_path / "two" / "run.toml"
    edit(settings, '"../ledger"', '"../notes.txt"')
    refused(capsys, ExitCode.FORMAT, "resume", tmp_path / "two", "-q")
    assert notes.read_text() == "what I must not forget"


def test_an_edited_epsilon_is_charged_as_it_is_drawn(parts, tmp_path, monkeypatch):
    ledger = tmp_path / "ledger"
    kill_after_the_first_round(configured(parts, ledger), tmp_path / "one", monkeypatch)
    settings = tmp_path / "one" / "run.toml"
    settings.write_text(re.sub(r"settings = \"sha256.*", "", settings.read_text()))  # as of older versions
    edit(settings, "epsilon = 2.0", "epsilon = 2000.0")
    before = ledger.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="would be 2000 of 2000"):
        resume_run(tmp_path / "one")  # what it sent at 2 would count at 2000, and two rounds more
    assert ledger.read_bytes() == before
    edit(settings, "epsilon = 2000.0", "epsilon = 2000.0\ntotal_epsilon = 3000.0")
    claimed = resume_run(tmp_path / "one")["privacy"]["epsilon"]
    charges = [c for c in Ledger(ledger).charges if c.party == "bank"]
    assert Ledger(ledger).spent(charges[0].account).epsilon(1e-4) >= claimed > 1999.0


def test_of_two_runs_at_once_the_second_is_refused_before_it_draws(parts, tmp_path, monkeypatch):
    config, seen = configured(parts, tmp_path / "ledger"), []
    original = MessageSolver._record

    def meanwhile(solver):
        if not seen:
            seen.append(solver.n_rounds)
            with pytest.raises(PrivacyBudgetError, match=r"2 more are set aside.*nothing was sent"):
                start_run(config, tmp_path / "two")
        return original(solver)

    monkeypatch.setattr(MessageSolver, "_record", meanwhile)
    assert start_run(config, tmp_path / "one")["status"] == "completed"
    assert seen == [1]
    assert not (tmp_path / "two" / "messages").exists()
    assert len({c.run for c in Ledger(tmp_path / "ledger").charges}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "one", "two"]


def test_tables_of_one_length_without_ids_count_as_the_same_rows(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("one", "two"):
        blocks = [generator.normal(size=(100, 2)) for _ in range(2)]
        write_blocks(tmp_path / f"{name}.parts", blocks, (generator.random(100) < 0.5).astype(float))
    start_run(configured(tmp_path / "one.parts", tmp_path / "ledger", rounds=1), tmp_path / "one")
    with pytest.raises(PrivacyBudgetError, match="1 releases of 1 run"):
        start_run(configured(tmp_path / "two.parts", tmp_path / "ledger", rounds=1), tmp_path / "two")


@pytest.mark.parametrize("kind", ["fusion", "owners", "none"])
def test_force_does_not_remove_the_only_account_of_a_run(source, parts, tmp_path, capsys, kind):
    out = tmp_path / "run"
    private = ("train", parts, "--privacy", "fusion", "--epsilon", 1, "--delta", 1e-4, "-o", out, "-q")
    again = private if kind == "fusion" else ("train", parts, "-o", out, "-q")
    if kind == "owners":
        made = tmp_path / "people.owners"
        assert run("owners", "convert", source, "--sizes", 300, "-o", made) == 0
        again = private = (
            "owners", "train", made, "--epsilon", 1, "--bound", "clip:1", "--step", 0.1, "--rounds", 2,
            "-o", out, "-q",
        )  # fmt: skip
    assert run(*private) == 0
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    capsys.readouterr()
    assert "--force would remove" in refused(capsys, ExitCode.PRIVACY, *again, "--force")
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == kept


@pytest.mark.parametrize("mode", ["fusion", "message"])
def test_what_is_refused_replaces_nothing(parts, tmp_path, capsys, mode):
    out = tmp_path / "run"
    arguments = (
        "train", parts, "--privacy", mode, "--epsilon", 1, "--delta", 1e-4, "--ledger", tmp_path / "ledger",
        "-o", out, "-q",
    )  # fmt: skip
    assert run(*arguments) == 0
    kept = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    refused(capsys, ExitCode.PRIVACY, *arguments, "--force")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize("options", [(), ("--set", "storage=csr", "--set", "dtype=float32")])
def test_owners_rows_in_another_order_and_under_another_name_count(source, tmp_path, capsys, options):
    def train(path, *options):
        made = tmp_path / f"{path.stem}.owners"
        assert run("owners", "convert", path, "--sizes", 300, "--names", path.stem, *options, "-o", made) == 0
        return run(
            "owners", "train", made, "--epsilon", 1, "--bound", "clip:1", "--step", 0.1, "--rounds", 2,
            "--ledger", tmp_path / "ledger", "-o", tmp_path / path.stem, "-q",
        )  # fmt: skip

    backwards = tmp_path / "backwards.libsvm"
    backwards.write_text("".join(reversed(source.read_text().splitlines(keepends=True))))
    assert train(source) == 0
    capsys.readouterr()
    assert train(backwards, *options) == ExitCode.PRIVACY
    assert "have spent epsilon 1;" in capsys.readouterr().err


def test_the_privacy_command_shows_accounts_by_rows_and_role(parts, tmp_path, capsys):
    ledger = tmp_path / "ledger"
    for name in ("one", "two"):
        config = configured(parts, ledger, rounds=1, label_epsilon=1.0, total_epsilon=9.0)
        start_run(config, tmp_path / name)
    text = printed(capsys, "privacy", ledger, "--delta", 1e-4)
    assert text.splitlines()[0].endswith("ledger: 3 account(s)")
    assert re.search(r"labels of the label holder, rows 1 +epsilon = 2 at delta = 0\.0001: 2 release", text)
    assert "features of bank, rows 1" in text
    assert not re.search("[0-9a-f]{16}", text.splitlines()[1])  # no digest of anybody's data
    text = printed(capsys, "privacy", tmp_path / "one")
    assert text.startswith("privacy: epsilon = 2")
    assert "ledger now: bank, features" in text
    accounts = told(capsys, "privacy", ledger)["accounts"]
    assert [(a["role"], a["rows"], a["parties"]) for a in accounts] == [
        ("labels", [1], ["the label holder"]),
        ("features", [1], ["bank"]),
        ("features", [1], ["shop"]),
    ]
    raw = ledger.read_bytes()
    ledger.write_bytes(raw[:-1])
    assert "line(s) after it are missing" in refused(capsys, ExitCode.FORMAT, "privacy", ledger)
    assert run("privacy", tmp_path / "absent") == ExitCode.STORAGE
    assert ledger.read_bytes() == raw[:-1]


def test_force_needs_nothing_to_replace(parts, tmp_path, capsys):
    """A private run into a new directory, with ``--force`` out of habit."""
    arguments = ("train", parts, "--privacy", "message", "--epsilon", 1, "--delta", 1e-3, "-q", "--force")
    assert run(*arguments, "-o", tmp_path / "new") == ExitCode.OK, capsys.readouterr().err
