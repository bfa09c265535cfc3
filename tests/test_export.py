"""Parts of a model leave and come back to the same bytes; other programs predict the same."""

import shutil

import h5py
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


def test_a_part_comes_back_to_the_same_bytes(folder, tmp_path):
    shutil.copytree(folder / "run" / "model", tmp_path / "m")
    out = tmp_path / "part.h5"
    assert run("export", tmp_path / "m", "--party", "party-2", "-o", out) == 0
    before = (tmp_path / "m" / "party-2.h5").read_bytes()
    (tmp_path / "m" / "party-2.h5").unlink()
    assert run("import", out, tmp_path / "m") == 0
    assert (tmp_path / "m" / "party-2.h5").read_bytes() == before
    assert out.read_bytes() == before
    assert run("import", out, tmp_path / "m") == 0  # already there
    with h5py.File(out, "r+") as file:
        file.attrs["note"] = "other bytes"
    assert run("import", out, tmp_path / "m", "--force") == 0
    assert run("export", tmp_path / "m", "--party", "party-2", "-o", tmp_path / "part.json") == 5


def test_another_file_is_not_replaced_in_silence(folder, tmp_path, capsys):
    shutil.copytree(folder / "run" / "model", tmp_path / "m")
    assert run("export", tmp_path / "m", "--party", "party-1", "-o", tmp_path / "p.h5") == 0
    with h5py.File(tmp_path / "p.h5", "r+") as file:
        file.attrs["note"] = "other bytes"
    assert "exists already" in refused(capsys, 6, "import", tmp_path / "p.h5", tmp_path / "m")
