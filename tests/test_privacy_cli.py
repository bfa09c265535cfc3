"""``fastadmm privacy`` and ``fastadmm audit``: figures, files, and one clear line for every mistake."""

import json

import pytest
from fastadmm.data_tools.synthetic import make_vertical_classification
from fastadmm.errors import ExitCode
from fastadmm.privacy.accounting import noise_multiplier

from run_tools import run, write_blocks


def shown(capsys, *arguments):
    assert run(*arguments, "--json") == ExitCode.OK
    return json.loads(capsys.readouterr().out)


def test_each_of_three_follows_from_the_other_two(capsys):
    noise = shown(capsys, "privacy", "--epsilon", 1, "--rounds", 10)
    assert noise["multiplier"] == pytest.approx(noise_multiplier(1.0, 1e-5, 10))
    epsilon = shown(capsys, "privacy", "--rounds", 10, "--noise", noise["multiplier"], "--parties", 2)
    assert epsilon["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert epsilon["joint"] == pytest.approx(1.465, abs=1e-3)
    rounds = shown(capsys, "privacy", "--epsilon", 1, "--noise", noise["multiplier"])
    assert rounds["rounds"] == 10
    for wrong in (
        ("--epsilon", 1),
        ("--epsilon", 1, "--noise", 1, "--rounds", 1),
        ("--epsilon", -1, "--rounds", 1),
    ):
        assert run("privacy", *wrong) == ExitCode.CONFIG


@pytest.mark.repeats
def test_statement_and_audit_of_a_run(tmp_path, capsys):
    blocks, y, _ = make_vertical_classification(300, (4, 3))
    data = write_blocks(tmp_path / "a.parts", blocks, y)
    private = ["--privacy", "message", "--epsilon", 2, "--delta", 1e-4, "-q"]
    assert run("train", data, "-o", tmp_path / "run", "--lambda", 1e-2, *private) == ExitCode.OK
    assert run("train", data, "-o", tmp_path / "plain", "-q") == ExitCode.OK
    capsys.readouterr()
    for path in ("run", "run/model"):
        assert run("privacy", tmp_path / path) == ExitCode.OK
        assert "epsilon = 2 at delta = 0.0001" in capsys.readouterr().out
    assert run("privacy", tmp_path / "plain") == ExitCode.OK
    assert "epsilon = infinity" in capsys.readouterr().out
    assert run("privacy", data) == ExitCode.FORMAT
    assert run("audit", tmp_path / "plain") == ExitCode.CONFIG
    capsys.readouterr()
    assert run("audit", tmp_path / "run", "--trials", 4000, "--json") == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert not found["flagged"]
    assert found["checks"][0]["epsilon"] == pytest.approx(2.0, rel=1e-4)  # the noise on record

    # a run whose record says that it used a quarter of the noise
    record = json.loads((tmp_path / "run" / "privacy.json").read_text())
    record["mechanism"]["sigma"] /= 4
    record["mechanism"]["grid"] /= 4
    (tmp_path / "run" / "privacy.json").write_text(json.dumps(record))
    assert run("audit", tmp_path / "run", "--trials", 4000) == ExitCode.PRIVACY
    shown = capsys.readouterr().out
    assert "FLAGGED  cost of the noise on record" in shown
    record["mechanism"]["sigma"] = -1.0
    (tmp_path / "run" / "privacy.json").write_text(json.dumps(record))
    assert run("audit", tmp_path / "run") == ExitCode.FORMAT
    (tmp_path / "run" / "privacy.json").write_text("{}x")
    assert run("audit", tmp_path / "run") == ExitCode.FORMAT
