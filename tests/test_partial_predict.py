"""Predictions from the parties' contributions are those of the whole model; misfits are refused."""

import shutil

import numpy as np
import pytest
from fastadmm.runs.config import make_config
from fastadmm.runs.predict import combine_contributions, partial_predict, predict_partition
from fastadmm.runs.train import start_run
from fastadmm.store.model import Model, open_model, write_model
from fastadmm.store.partition import create_partition

from problems import make_vertical_classification
from run_tools import refused, run, within, write_blocks, write_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.parts, test.parts (with an offset), other.parts (same parties, other rows), run/."""
    folder = tmp_path_factory.mktemp("partial")
    blocks, y, _ = make_vertical_classification(120, (3, 2, 4))
    offset = np.linspace(-1.0, 1.0, 120)
    write_blocks(folder / "train.parts", blocks, y)
    write_blocks(folder / "test.parts", blocks, y, offset=offset)
    write_blocks(folder / "other.parts", [b[:100] for b in blocks], y[:100])
    with create_partition(folder / "turned.parts", task="classification") as writer:
        for block in blocks:
            writer.party(n_features=block.shape[1], kind="dense").append(block, ids=np.arange(120)[::-1])
        writer.labels(classes=("no", "yes")).append(y, ids=np.arange(120)[::-1])
    start_run(make_config({"data": str(folder / "train.parts"), "lambda": 1e-2}), folder / "run")
    for m in (1, 2, 3):
        partial_predict(folder / "run", folder / "test.parts" / f"party-{m}.h5", folder / f"c{m}.h5")
    return folder


def parts(folder):
    return [folder / f"c{m}.h5" for m in (1, 2, 3)]


def test_the_sum_is_the_prediction_to_the_bit(folder):
    whole = predict_partition(folder / "run", folder / "test.parts")
    got = combine_contributions(
        folder / "run", parts(folder)[::-1], labels=folder / "test.parts" / "labels.h5"
    )
    assert np.array_equal(got.score, whole.score)
    assert np.array_equal(got.mean, whole.mean)
    assert got.label == whole.label
    assert np.array_equal(got.ids, whole.ids)


def test_commands_and_absent_parties(folder, tmp_path, capsys):
    # The coordinator has the shared part alone, each party its own file alone.
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("model.toml", "coordinator.h5"):
        shutil.copy(folder / "run" / "model" / name, shared / name)
    for m in (1, 2, 3):
        assert run("export", folder / "run", "--party", f"party-{m}", "-o", tmp_path / f"own{m}.h5") == 0
        features = folder / "train.parts" / f"party-{m}.h5"
        assert run("predict", "--partial", tmp_path / f"own{m}.h5", features, "-o", tmp_path / f"{m}.h5") == 0
    files = [tmp_path / f"{m}.h5" for m in (1, 2, 3)]
    assert run("combine", *files, "--model", shared, "-o", tmp_path / "combined.csv") == 0
    assert run("predict", folder / "run", folder / "train.parts", "-o", tmp_path / "whole.csv") == 0
    assert (tmp_path / "combined.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert "120 predictions" in capsys.readouterr().out
    tmp_path = within(tmp_path)
    two = parts(folder)[:2]
    err = refused(capsys, 3, "combine", *two, "-m", folder / "run", "-o", tmp_path / "p.csv")
    assert "no contribution of party-3" in err
    assert not list(tmp_path.iterdir())


def test_misfits_are_one_line(folder, tmp_path, capsys):
    one, two, three = parts(folder)
    for name, rows in (("short", "other"), ("turned", "turned")):
        partial_predict(folder / "run", folder / f"{rows}.parts" / "party-3.h5", tmp_path / f"{name}.h5")
    again = tmp_path / "again"
    start_run(make_config({"data": str(folder / "train.parts"), "lambda": 2e-2}), again)
    partial_predict(again, folder / "test.parts" / "party-3.h5", tmp_path / "foreign.h5")
    combine = ["combine", "-m", folder / "run", "-o", tmp_path / "p.csv"]
    cases = [
        ([*combine, one, two, tmp_path / "short.h5"], 3, "100 rows, but"),
        ([*combine, one, two, tmp_path / "turned.h5"], 3, "another order"),
        ([*combine, one, two, tmp_path / "foreign.h5"], 3, "made with another model"),
        ([*combine, one, two, three, "--labels", folder / "train.parts" / "labels.h5"], 3, "there is none"),
    ]
    for arguments, code, text in cases:
        capsys.readouterr()
        assert text in refused(capsys, code, *arguments)
        assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("kind", ["multinomial", "scales"])
def test_other_models(tmp_path, kind):
    rng = np.random.default_rng(3)
    if kind == "multinomial":
        X, y = rng.normal(size=(90, 5)), rng.integers(0, 3, 90).astype(float)
        write_blocks(tmp_path / "d.parts", [X[:, :3], X[:, 3:]], y, classes=("a", "b", "c"))
        start_run(make_config({"data": str(tmp_path / "d.parts"), "lambda": 1e-2}), tmp_path / "run")
    else:
        write_problem(tmp_path / "d.parts", 90, (3, 2))
        start_run(make_config({"data": str(tmp_path / "d.parts")}), tmp_path / "plain")
        plain = open_model(tmp_path / "plain")
        scaled = [type(p)(**{**vars(p), "scale": s}) for p, s in zip(plain.parties, (0.25, 1.75))]
        write_model(tmp_path / "run", Model(**{**vars(plain), "parties": scaled}))
    for m in (1, 2):
        partial_predict(tmp_path / "run", tmp_path / "d.parts" / f"party-{m}.h5", tmp_path / f"{m}.h5")
    files = [tmp_path / "1.h5", tmp_path / "2.h5"]
    got, whole = (
        combine_contributions(tmp_path / "run", files),
        predict_partition(tmp_path / "run", tmp_path / "d.parts"),
    )
    assert np.array_equal(got.score, whole.score)
    assert got.label == whole.label
