"""The demonstration: the whole job on real data, in seconds."""

import sys
from pathlib import Path

import pytest
from fastadmm.cli.demo_run import run_demo

from run_tools import assert_clean, printed, run


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "demo-run"
    return out, run_demo(out, say=lambda text: None)


def test_files_and_table(demo):
    out, document = demo
    assert {p.name for p in out.iterdir()} == {"run", "test.csv", "test.parts", "train.csv", "train.parts"}
    assert Path(document["report"]) == out / "run" / "report.html"
    assert (out / "run" / "report.html").stat().st_size > 10_000
    assert (out / "run" / "evaluation.json").exists()
    assert_clean(out)
    _, document = demo
    rows = {row["name"]: row for row in document["models"]}
    assert len(rows) == 5
    joint = next(row for row in rows.values() if row["joint"])
    pooled = rows["pooled (scikit-learn)"]
    alone = [row for name, row in rows.items() if name.endswith(" alone")]
    assert [row["n_features"] for row in alone] == [9, 9, 12]
    assert joint["n_features"] == pooled["n_features"] == 30
    assert abs(joint["log_loss"] - pooled["log_loss"]) < 1e-4
    assert joint["accuracy"] == pooled["accuracy"]
    assert all(joint["log_loss"] < 0.6 * row["log_loss"] for row in alone)
    assert joint["auc"] > 0.01 + max(row["auc"] for row in alone)  # what joining is for
    assert document["gap"] <= 1e-6
    assert document["largest_difference"] < 1e-3
    assert document["exchanges"] == 3
    assert 0 < document["bytes_per_row"] < document["pooled_bytes_per_row"] == 8 * 12


def test_a_plain_install_gets_all_but_the_report(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    out = printed(capsys, "demo", "--out", tmp_path / "demo")
    assert "joint (fastadmm, 3 parties)" in out
    *_, verify, holds = out.splitlines()
    assert verify == f"  fastadmm verify {tmp_path / 'demo' / 'run'}"
    assert run("verify", tmp_path / "demo" / "run") == 0
    assert holds == f"      {capsys.readouterr().out.strip()}"
    assert 'the report needs matplotlib and jinja2: pip install "fastadmm[report]"' in out.splitlines()
    assert not (tmp_path / "demo" / "run" / "report.html").exists()
    assert_clean(tmp_path / "demo")


@pytest.mark.repeats
def test_between_organisations_it_has_the_same_bits(tmp_path, capsys):
    out = printed(capsys, "federate", "demo", "--keep", tmp_path / "d")
    assert "kill -9: the agent of lab-surface" in out
    assert "waiting: lab-size, lab-surface, lab-outline have not approved" in out
    assert "weights equal those of one process to the last bit" in out
    assert run("federate", "demo", "--keep", tmp_path / "d") == 6
