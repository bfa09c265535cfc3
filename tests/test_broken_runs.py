"""Broken models and runs: one line that names the file, a documented exit code, nothing half-written."""

import os
import re
import resource
import shutil

import h5py
import numpy as np
import pytest
from fastadmm.errors import StorageError
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run

from run_tools import (
    SignalAfter,
    assert_clean,
    assert_same_run,
    cut,
    edited,
    flipped,
    overwrite,
    refused,
    refuses,
    remake,
    run,
    run_process,
    write_problem,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """a.parts and run/, trained on it."""
    folder = tmp_path_factory.mktemp("broken")
    data = write_problem(folder / "a.parts", n=100, widths=(4, 6, 3))
    start_run(make_config({"data": str(data)}), folder / "run")
    return folder


PARTIES = r"(?s)party = \[.*?\n\]\n"
CERTIFICATE = r"(?s)\[certificate\].*?\["


def replace(old, new):
    def change(model):
        text = (model / "model.toml").read_text()
        assert re.search(old, text)
        (model / "model.toml").write_text(re.sub(old, new, text, count=1))

    return change


def weights(values):
    return edited(
        "party-1.h5", lambda file: remake(file, "weights", data=values, chunks=True, fletcher32=True)
    )


def remove(name):
    return lambda model: (model / name).unlink()


def swap(model):
    (model / "party-1.h5").rename(model / "x")
    (model / "party-2.h5").rename(model / "party-1.h5")
    (model / "x").rename(model / "party-2.h5")


def flip(model):
    with h5py.File(model / "party-1.h5") as file:
        at = file["weights"].id.get_chunk_info(0).byte_offset + 3
    overwrite("party-1.h5", flipped((model / "party-1.h5").read_bytes(), 8 * at))(model)


def other_kind(model):
    shutil.copy(model / "coordinator.h5", model / "party-1.h5")


def directory(model):
    (model / "party-1.h5").unlink()
    (model / "party-1.h5").mkdir()


def fewer(key, count):
    """A list of texts without its end."""
    return lambda file: remake(file, key, data=file[key][:count], dtype=h5py.string_dtype())


def modify(name, key, value):
    return edited(name, lambda file: file.attrs.modify(key, value))


ANOTHER = "'model-id': the file belongs to another model"
MODELS = {
    "no manifest": (remove("model.toml"), 4, "no model.toml"),
    "empty manifest": (overwrite("model.toml", b""), 4, "'format' is None"),
    "manifest of other bytes": (overwrite("model.toml", b"\xff\xfe\x00"), 4, "not TOML"),
    "other format": (replace("fastadmm-model", "fastadmm-partition"), 4, "expected 'fastadmm-model'"),
    "newer version": (replace('"1.2"', '"2.0"'), 4, "upgrade fastadmm"),
    "no parties": (replace(PARTIES, ""), 4, "'party': is missing"),
    "empty list of parties": (replace(PARTIES, "party = []\n"), 4, "'party' is empty"),
    "parties as numbers": (replace(PARTIES, "party = [1, 2]\n"), 4, "'party' must hold tables"),
    "party twice": (replace("{ (name = .party-1.[^}]*) }", r"{ \1 }, { \1 }"), 4, "'party-1' occurs"),
    "party without name": (replace('name = "party-1", ', ""), 4, "'name': is missing"),
    "other number of features": (replace("n_features = 4", "n_features = 5"), 4, "agree with the digest"),
    "unknown loss": (replace('loss = "logistic"', 'loss = "cauchy"'), 4, "unknown loss 'cauchy'"),
    "loss of another task": (replace('loss = "logistic"', 'loss = "squared"'), 4, "does not go with"),
    "unknown task": (replace('"classification"', '"ranking"'), 4, "'ranking'"),
    "no certificate": (replace(CERTIFICATE, "["), 4, "does not agree with the digest"),
    "certificate is text": (
        replace(r"(?s)^(.*)\[certificate\].*?\[", 'certificate = "yes"\n\\1['),
        4,
        "'certificate': is str, not dict",
    ),
    "no party file": (remove("party-2.h5"), 6, "party-2.h5: the weights of party-2 are not here"),
    "half a party file": (cut("party-2.h5", 0.5), 4, "party-2.h5"),
    "party file is a directory": (directory, 6, "is a directory"),
    "files of two parties swapped": (swap, 4, "the file of another party"),
    "file of another kind": (other_kind, 4, "'fastadmm-party-model' is needed"),
    "flipped bit in weights": (flip, 4, "checksum mismatch"),
    "NaN weights": (weights(np.array([1.0, np.nan, 0.0, 1.0])), 4, "NaN or infinity"),
    "too few weights": (weights(np.ones(3)), 4, "3 weights"),
    "no weights": (edited("party-1.h5", lambda f: f.pop("weights")), 4, "weights"),
    "fewer names": (edited("party-1.h5", fewer("var/names", 2)), 4, "2 names for 4 weights"),
    "version of models without a digest": (replace('"1.2"', '"1.1"'), 4, ANOTHER),
    "less privacy asked of the reader": (replace('epsilon = "inf"', "epsilon = 0.0"), 4, "digest"),
    "no digest": (edited("coordinator.h5", lambda f: f.attrs.pop("digest")), 4, "digest"),
    "other party's file of another model": (
        edited("party-1.h5", lambda f: (f.attrs.pop("digest"), f.attrs.modify("model-id", "0"))),
        4,
        ANOTHER,
    ),
    "no intercept": (edited("coordinator.h5", lambda f: f.attrs.pop("intercept")), 4, "intercept"),
    "infinite intercept": (modify("coordinator.h5", "intercept", np.inf), 4, "'intercept': is inf"),
    "intercept as text": (
        edited("coordinator.h5", lambda f: f.attrs.create("intercept", "b")),
        4,
        "intercept",
    ),
    "no classes": (edited("coordinator.h5", lambda f: f.pop("classes")), 4, "'classes': is missing"),
    "one class": (edited("coordinator.h5", fewer("classes", 1)), 4, "holds 1 names"),
}


@pytest.mark.representatives(24)
@pytest.mark.parametrize("name", MODELS)
def test_broken_models(folder, tmp_path, capsys, name):
    change, code, message = MODELS[name]
    shutil.copytree(folder / "run" / "model", tmp_path / "model")
    change(tmp_path / "model")
    for command in ("predict", "evaluate"):
        assert run(command, tmp_path / "model", folder / "a.parts") == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"fastadmm: error: {tmp_path / 'model'}")
        assert err.count("\n") == 1
        assert message in err


OWN = ["run.toml", "rounds.jsonl", "result.json", "checkpoints", "environment.json"]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", OWN)
def test_something_else_under_a_name_of_ours(folder, tmp_path, capsys, name):
    """A directory where a file belongs, or the other way round."""
    out = tmp_path / "run"
    config = make_config({"data": str(folder / "a.parts"), "gap": 0.0, "rounds": 9, "scheme": "sharing"})
    start_run(config, out, display=SignalAfter(4))
    if (out / name).is_dir():
        shutil.rmtree(out / name)
        (out / name).write_text("")
    else:
        (out / name).unlink()
        (out / name).mkdir()
    err = refused(capsys, 7 if name == "environment.json" else 6, "resume", out, "--quiet")
    assert name == "environment.json" or name in err


def test_out_is_taken(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    train = ["train", folder / "a.parts", "--quiet", "--out"]
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for name in ("file", "full"):
        refused(capsys, 6, *train, tmp_path / name, "--force")
    shutil.copytree(folder / "a.parts", tmp_path / "run" / "a.parts")  # --force must not delete data
    assert run("train", tmp_path / "run" / "a.parts", "--out", tmp_path / "run", "--force", "--quiet") == 6
    assert "it also holds a.parts" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run" / "a.parts")
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    (tmp_path / "empty").mkdir()
    assert run(*train, tmp_path / "empty") == 0
    (tmp_path / "run" / "worth.json").write_text("{}")
    assert run(*train, tmp_path / "run", "--force", "--lambda", 0.5) == 0
    assert "lambda = 0.5" in (tmp_path / "run" / "run.toml").read_text()


def test_not_enough_memory(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fastadmm.runs.load.available_memory", lambda: 10 * 2**20)
    assert run("train", folder / "a.parts", "--out", tmp_path / "run") == 3
    err = capsys.readouterr().err
    assert re.search(r"needs about [\d.]+ MB of memory, but only 10\.4 MB is free", err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["train", "predict"])
def test_full_disk_at_the_start_and_at_predictions(folder, tmp_path, command):
    given = (folder / "a.parts", "--quiet") if command == "train" else (folder / "run", folder / "a.parts")
    code, _, err = run_process(
        *(command, *given, "--out", tmp_path / "p.csv"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert (code, err.count("\n")) == (6, 1)
    assert command == "train" or "p.csv" in err
    assert not list(tmp_path.iterdir())


def test_a_failing_disk_is_one_line(folder, tmp_path, monkeypatch):
    """fsync fails at the checkpoint: the error names it, and the run goes on later."""
    limits = {"gap": 0.0, "rounds": 12, "checkpoint_rounds": 5}
    config = make_config({"data": str(folder / "a.parts"), "scheme": "sharing", **limits})
    start_run(config, tmp_path / "whole")
    real, calls = os.fsync, []

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == 12:
            raise OSError(5, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        refuses(StorageError, "cannot write: Input/output error", start_run, config, tmp_path / "run")
    assert_clean(tmp_path / "run")
    resume_run(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
