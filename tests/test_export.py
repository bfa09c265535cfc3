"""Parts of a model leave and come back to the same bytes; other programs predict the same."""

import json
import shutil
import sys

import numpy as np
import pytest
from fastadmm.data_tools.convert import convert
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from scipy.special import expit

from run_tools import refused, run
from test_predict_evaluate import write_csv


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scaled and normalised parties; a run."""
    folder = tmp_path_factory.mktemp("export")
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 3.0, size=(200, 7))
    y = ["yes" if v else "no" for v in rng.random(200) < expit(0.4 * (X[:, 0] - X[:, 5]))]
    write_csv(folder / "d.csv", X, y)
    options = {"parties": 3, "label": "kind"}
    convert(folder / "d.csv", folder / "d.parts", standardize=True, normalize="l2", **options)
    start_run(make_config({"data": str(folder / "d.parts"), "lambda": 1e-2}), folder / "run")
    return folder


@pytest.mark.parametrize("suffix", ["h5", "json"])
def test_a_part_comes_back_to_the_same_bytes(folder, tmp_path, suffix):
    shutil.copytree(folder / "run" / "model", tmp_path / "m")
    out = tmp_path / f"part.{suffix}"
    assert run("export", tmp_path / "m", "--party", "party-2", "-o", out) == 0
    before = (tmp_path / "m" / "party-2.h5").read_bytes()
    (tmp_path / "m" / "party-2.h5").unlink()
    assert run("import", out, tmp_path / "m") == 0
    assert (tmp_path / "m" / "party-2.h5").read_bytes() == before
    if suffix == "h5":
        assert out.read_bytes() == before
        assert run("import", out, tmp_path / "m") == 0  # already there
    else:
        assert b"party-1" not in out.read_bytes()


def test_misfits_are_one_line(folder, tmp_path, capsys):
    shutil.copytree(folder / "run" / "model", tmp_path / "m")
    start_run(make_config({"data": str(folder / "d.parts"), "lambda": 1e-1}), tmp_path / "other")
    assert run("export", tmp_path / "other", "--party", "party-1", "-o", tmp_path / "o.h5") == 0
    assert run("export", tmp_path / "m", "--party", "party-1", "-o", tmp_path / "p.json") == 0
    (tmp_path / "broken.json").write_text("{")
    document = json.loads((tmp_path / "p.json").read_text())
    (tmp_path / "short.json").write_text(json.dumps({**document, "weights": document["weights"][:-1]}))
    (tmp_path / "odd.json").write_text(json.dumps({**document, "weights": "many"}))
    cases = [
        (["import", tmp_path / "o.h5", tmp_path / "m"], 3, "another model"),
        (["import", tmp_path / "p.json", tmp_path / "m"], 6, "exists already"),
        (["import", tmp_path / "broken.json", tmp_path / "m"], 4, "not JSON"),
        (["import", tmp_path / "short.json", tmp_path / "m"], 4, "weights"),
        (["import", tmp_path / "odd.json", tmp_path / "m"], 4, "weights"),
        (["import", tmp_path / "absent.h5", tmp_path / "m"], 6, "absent.h5"),
        (["export", tmp_path / "m", "--party", "nobody", "-o", tmp_path / "x.h5"], 3, "the model has"),
        (["export", tmp_path / "m", "-o", tmp_path / "x.h5"], 5, "--party"),
        (["export", tmp_path / "m", "-o", tmp_path / "x.pkl"], 5, "end the name with"),
        (["export", tmp_path / "m", "--party", "party-1", "-o", tmp_path / "p.json"], 6, "exists already"),
    ]
    for arguments, code, text in cases:
        capsys.readouterr()
        assert text in refused(capsys, code, *arguments)
        assert not list(tmp_path.glob("x.*"))


def test_a_missing_package_is_named(folder, tmp_path, monkeypatch, capsys):
    for name, suffix in (("skops.io", "skops"), ("onnx", "onnx")):
        monkeypatch.setitem(sys.modules, name, None)
        assert run("export", folder / "run", "-o", tmp_path / f"m.{suffix}") == 5
        assert "fastadmm[export]" in capsys.readouterr().err
        assert not list(tmp_path.iterdir())
