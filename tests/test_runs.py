"""What a run leaves on disk, what it shows, and what it says when it diverges."""

import json
import math
import re
import threading
import tomllib
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest
from fastadmm.errors import StorageError
from fastadmm.runs.checkpoint import checkpoints
from fastadmm.runs.config import make_config
from fastadmm.runs.folder import RoundLog
from fastadmm.runs.train import resume_run, start_run
from fastadmm.settings.checks import format_bytes, parse_bytes
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from problems import make_vertical_classification
from run_tools import (
    Notes,
    assert_clean,
    model_digests,
    n_lines,
    refused,
    run,
    write_blocks,
    write_problem,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.parts, test.parts and run/, trained by sharing with a test set."""
    folder = tmp_path_factory.mktemp("runs")
    write_problem(folder / "train.parts", n=200, widths=(4, 6, 3))
    write_problem(folder / "test.parts", n=90, widths=(4, 6, 3), seed=1)
    start_run(configuration(folder), folder / "run")
    return folder


def configuration(folder, **changes):
    values = {
        "data": str(folder / "train.parts"),
        "test": str(folder / "test.parts"),
        "lambda": 1e-2,
        "scheme": "sharing",
        "checkpoint_rounds": 4,
    }
    return make_config({**values, **changes})


def test_files_of_a_run(folder):
    named = "checkpoints dual.npy environment.json model privacy.json result.json rounds.jsonl run.toml"
    assert " ".join(sorted(p.name for p in (folder / "run").iterdir())) == named
    assert_clean(folder / "run")
    # Environment names no machine.
    text = (folder / "run" / "environment.json").read_text()
    assert " ".join(sorted(json.loads(text))) == "cores fastadmm packages processor python system threads"
    for file in ("environment.json", "result.json", "run.toml", "rounds.jsonl"):
        assert str(folder) not in (folder / "run" / file).read_text()
        assert str(Path.home()) not in (folder / "run" / file).read_text()
    values = tomllib.loads((folder / "run" / "run.toml").read_text())
    assert values["data"] == "../train.parts"
    assert values["test"] == "../test.parts"
    assert set(values["provenance"]) == {"row_digest", "content", "labels", "test", "settings"}
    # A party's file holds its own state; the coordinator's holds no weights.
    found = checkpoints(folder / "run" / "checkpoints")
    assert len(found) == 2
    model = open_model(folder / "run")
    for party in model.parties:
        with h5py.File(found[-1] / f"{party.name}.h5") as file:
            assert np.array_equal(file["weights"][:], party.weights)
    shapes: list[tuple[int, ...]] = []
    with h5py.File(found[-1] / "coordinator.h5") as file:
        file.visititems(lambda name, item: shapes.append(item.shape) if hasattr(item, "shape") else None)
    assert shapes
    assert not {(4,), (6,), (3,)} & set(shapes)
    assert checkpoints(folder / "absent") == []


def test_results_and_logs_agree(folder):
    model, data = open_model(folder / "run"), open_partition(folder / "train.parts")
    z = model.linear_predictor(data)
    loss = np.mean(np.logaddexp(0, z) - data.labels.y * z)
    penalty = 0.5 * 1e-2 * sum(float(p.weights @ p.weights) for p in model.parties)
    assert model.certificate["objective"] == pytest.approx(loss + penalty, rel=1e-12)
    result = json.loads((folder / "run" / "result.json").read_text())
    last = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[-1])
    for key in ("seconds", "test"):
        assert result[key] == last[key]
    for key in ("objective", "gap", "gap_absolute"):  # what is proved, next to what the last round found
        assert result[key] == pytest.approx(last[key], rel=1e-6)
    for key in ("gap", "gap_absolute"):
        assert result[key] == result["certificate"][key]
    assert result["objective"] <= result["certificate"]["objective"]  # which is rounded up
    assert result["status"] == "converged"
    assert result["rounds"] == last["round"] == n_lines(folder / "run" / "rounds.jsonl")
    assert result["gap"] <= 1e-6
    assert (result["scheme"], result["loss"], result["lambda"]) == ("sharing", "logistic", 1e-2)
    assert result["n_samples"] == 200
    assert [p["name"] for p in result["parties"]] == ["party-1", "party-2", "party-3"]
    model = open_model(folder / "run")
    assert result["intercept"] == model.intercept
    for entry, party in zip(result["parties"], model.parties, strict=True):
        assert (folder / "run" / "model" / entry["file"]).exists()
        assert entry["n_features"] == len(party.weights)
        assert entry["weight_norm"] == pytest.approx(np.linalg.norm(party.weights), rel=1e-12)
    lines = (folder / "run" / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["round"] for r in records] == list(range(1, len(lines) + 1))
    assert " ".join(sorted(records[0])) == (
        "accelerated augmented_lagrangian dual_residual gap gap_absolute lyapunov objective penalty "
        "primal_residual round seconds test weight_norms"
    )
    seconds = [r["seconds"] for r in records]
    assert seconds == sorted(seconds)
    assert set(records[-1]["test"]) == {"log_loss", "accuracy", "auc"}
    assert len(records[-1]["weight_norms"]) == 3


def test_checkpoint_every_so_many_seconds(folder, tmp_path):
    config = configuration(folder, checkpoint_rounds=None, checkpoint_seconds=1e-9, gap=0.0, rounds=5)
    start_run(config, tmp_path / "run")
    names = [p.name for p in checkpoints(tmp_path / "run" / "checkpoints")]
    assert names == ["round-00000004", "round-00000005"]


def test_from_another_thread(folder, tmp_path):
    """Signals belong to the main thread; a run elsewhere does without."""
    results: list[dict] = []
    thread = threading.Thread(
        target=lambda: results.append(start_run(configuration(folder), tmp_path / "run"))
    )
    thread.start()
    thread.join()
    assert results[0]["status"] == Status.CONVERGED
    assert model_digests(tmp_path / "run") == model_digests(folder / "run")


def test_a_failure_leaves_nothing(folder, tmp_path, monkeypatch):
    import fastadmm.runs.fit as module

    def fail(n_threads):
        raise StorageError("no")

    monkeypatch.setattr(module, "describe_environment", fail)
    with pytest.raises(StorageError):
        start_run(configuration(folder), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def record(k):
    return RoundRecord(k, 0.1 * k, 0.5, float("inf"), 0.5, 1.0, 1.0, 0.5, 2.0, 0.1, [1.0, float("nan")])


def test_notes_logs_and_numbers(folder, tmp_path):
    notes = Notes()
    start_run(configuration(folder), tmp_path / "run", display=notes)
    assert notes.lines[0] == "200 samples, 3 parties (party-1: 4, party-2: 6, party-3: 3 features)"
    assert re.match(r"memory: about [\d.]+ MB \(data [\d.]+ kB, ", notes.lines[1])
    text = "\n".join(notes.lines)
    assert "party-2: x-update 'gram'" in text
    assert "scheme 'sharing'" in text
    amounts = (0, 999, 1000, 10**6, 5 * 10**9, 8192 * 10**9)
    assert ", ".join(map(format_bytes, amounts)) == "0 B, 999 B, 1.0 kB, 1.0 MB, 5.0 GB, 8.2 TB"
    # What is too little and what is enough are never written alike.
    assert format_bytes(1_400_000_000, math.floor) == "1.4 GB"
    assert format_bytes(1_400_000_001, math.ceil) == "1.5 GB"
    assert parse_bytes(format_bytes(1_449_000_000, math.ceil)) >= 1_449_000_000
    # Log drops what is computed again.
    path = tmp_path / "rounds.jsonl"
    with closing(RoundLog(path)) as log:
        for k in range(1, 6):
            log.append(record(k))
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole) + '{"round": 6')
    with closing(RoundLog(path, 3)) as log:
        assert path.read_text() == "".join(whole[:3])
        log.append(record(4))
    assert path.read_text() == "".join(whole[:4])
    assert [json.loads(line)["gap"] for line in whole] == [None] * 5


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Three parties with the same columns, but for differences that the store cannot take for copies."""
    blocks, y, _ = make_vertical_classification(200, (5, 5, 5), duplicate=True)
    rng = np.random.default_rng(0)
    noisy = [block + 1e-9 * rng.normal(size=block.shape) for block in blocks]
    return write_blocks(tmp_path_factory.mktemp("copies") / "c.parts", noisy, y)


def test_divergence(copies, tmp_path, capsys):
    out = tmp_path / "run"
    train = ["train", copies, "--quiet", "--out", out]
    assert run(*train, "--scheme", "jacobi") == 8
    stdout, err = capsys.readouterr()
    assert stdout == ""
    assert err.count("\n") == 1
    assert err.startswith("fastadmm: error: scheme 'jacobi' diverges with 3 parties: after ")
    assert re.search(r"; use scheme .*'sharing'", err)
    assert not (out / "model").exists()
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "diverged"
    assert result["rounds"] == n_lines(out / "rounds.jsonl")
    assert run("predict", out, copies) == 6
    assert run("report", out) == 0
    assert "diverge" in (out / "report.html").read_text().lower()
    capsys.readouterr()
    assert "the run is over" in refused(capsys, 5, "resume", out)
    for scheme in ("sharing", "auto"):
        assert run(*train, "--scheme", scheme, "--force") == 0


def test_divergence_after_a_limit_or_by_overflow(copies, tmp_path, capsys):
    config = make_config({"data": str(copies), "scheme": "jacobi", "rounds": 5})
    assert start_run(config, tmp_path / "run")["status"] == Status.MAX_ROUNDS
    assert (tmp_path / "run" / "model").exists()
    assert resume_run(tmp_path / "run", changes={"rounds": 5000})["status"] == Status.DIVERGED
    assert not (tmp_path / "run" / "model").exists()
    # No bound on the gradient: values grow until they are infinite; files stay valid JSON.
    options = ["--scheme", "jacobi", "--loss", "squared", "--lambda", 1e-8, "--json", "--quiet"]
    assert run("train", copies, *options, "--out", tmp_path / "infinite") == 8
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "diverged"
    assert err.count("\n") == 1
    for line in (tmp_path / "infinite" / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
