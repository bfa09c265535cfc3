"""``fastadmm inspect`` on every kind of path, for people and for machines."""

import json
import shutil

import h5py
import numpy as np
import pytest
from fastadmm.cli.app import main
from fastadmm.errors import ExitCode
from fastadmm.store.elements import write_array, write_strings
from fastadmm.store.h5file import create_h5
from fastadmm.store.partition import create_partition
from fastadmm.store.transform import Transform

from owners_data import write_owners


@pytest.fixture
def parts(tmp_path):
    path = tmp_path / "a.parts"
    with create_partition(path, task="classification", source="a.csv") as partition:
        names = ["[bold]age", "rent\x1b[31m"]
        transform = Transform(scale=np.ones(2), normalize="l2")
        partition.party("bank", kind="dense", feature_names=names, transform=transform).append(
            np.ones((4, 2))
        )
        partition.party("shop").append(np.eye(4))
        partition.labels(classes=("-1", "1")).append([0, 1, 1, 1])
    return path


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    (path / "model").mkdir(parents=True)
    (path / "run.toml").write_text('lambda = 1e-4\n[data]\ntrain = "a.parts"\n')
    (path / "environment.json").write_text('{"python": "3.11"}')
    (path / "rounds.jsonl").write_text('{"round": 1, "gap": 0.5}\n{"round": 2, "gap": NaN}\n{"round": 3, "g')
    result = {
        "status": "converged",
        "gap": 1e-7,
        "objective": float("nan"),
        "parties": [{"name": "bank", "n_features": 2, "weight_norm": 1.5, "file": "bank.h5"}],
    }
    (path / "result.json").write_text(json.dumps(result))
    (path / "model" / "model.toml").write_text('format = "fastadmm-model"\n')
    with create_h5(path / "model" / "bank.h5", "fastadmm-party-model") as file:
        write_array(file, "weights", np.ones(2))
        write_strings(file, "names", ["a", "b"])
        file.attrs["name"] = "bank"
    return path


def call(capsys, *argv):
    with pytest.raises(SystemExit) as stop:
        main(["inspect", *map(str, argv)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def as_json(capsys, *argv):
    code, out, err = call(capsys, *argv, "--json")
    assert (code, err) == (0, "")

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(out, parse_constant=refuse)


def test_partition(parts, capsys):
    code, out, err = call(capsys, parts)
    assert (code, err) == (0, "")
    for word in ("bank", "shop", "dense float64", "csr float64", "scale, rows l2", "-1: 1", "1: 3", "a.csv"):
        assert word in out
    assert "digests agree" not in out
    assert "digests agree" in call(capsys, parts, "--check")[1]
    found = as_json(capsys, parts)
    assert (found["kind"], found["n_samples"], found["n_features"]) == ("partition", 4, 6)
    assert [party["name"] for party in found["parties"]] == ["bank", "shop"]
    assert found["parties"][1]["density"] == 0.25
    assert found["labels"]["counts"] == [1, 3]


def test_partition_without_labels_and_regression(tmp_path, capsys):
    for name in ("a", "b"):
        with create_partition(tmp_path / name, task="regression") as partition:
            partition.party(n_features=1).append(np.ones((2, 1)))
            if name == "b":
                partition.labels().append([1.5, 2.5])
    assert as_json(capsys, tmp_path / "a")["labels"] is None
    assert as_json(capsys, tmp_path / "b")["labels"]["mean"] == 2.0
    assert "none" in call(capsys, tmp_path / "a")[1]
    assert "2.5" in call(capsys, tmp_path / "b")[1]


def test_party_and_labels_files(parts, capsys):
    _, out, _ = call(capsys, parts / "bank.h5")
    assert "[bold]age" in out  # names are no markup
    assert "\x1b" not in out  # and cannot steer the terminal
    found = as_json(capsys, parts / "bank.h5", "--check")
    assert (found["kind"], found["checked"], found["first_features"][0]) == ("party", True, "[bold]age")
    found = as_json(capsys, parts / "labels.h5")
    assert (found["kind"], found["classes"]) == ("labels", ["-1", "1"])
    assert "class 1" in call(capsys, parts / "labels.h5")[1]


def test_run(run, capsys):
    found = as_json(capsys, run)
    assert (found["kind"], found["status"], found["has_model"]) == ("run", "converged", True)
    assert found["last_round"] == {"round": 2, "gap": None}
    assert found["result"]["objective"] is None


def test_unfinished_run(run, capsys):
    (run / "result.json").unlink()
    shutil.rmtree(run / "model")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "2.h5").touch()
    found = as_json(capsys, run)
    assert (found["status"], found["checkpoints"], found["has_model"]) == ("unfinished", 1, False)
    assert "last round.gap" in call(capsys, run)[1]
    (run / "rounds.jsonl").unlink()
    assert as_json(capsys, run)["last_round"] is None
    assert call(capsys, run)[0] == 0


def test_model(run, capsys):
    found = as_json(capsys, run / "model")
    assert found["kind"] == "model"
    assert "fastadmm-party-model" in call(capsys, run / "model")[1]
    found = as_json(capsys, run / "model" / "bank.h5")
    assert (found["kind"], found["attributes"]["name"]) == ("hdf5", "bank")


def write(path, name, text):
    path.mkdir()
    (path / name).write_text(text)


def foreign(path):
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [
        (lambda path: h5py.File(path, "w").close(), ExitCode.FORMAT, "encoding-type"),
        (foreign, ExitCode.FORMAT, "not of fastadmm"),
        (
            lambda path: write(path, "result.json", "[1]"),
            ExitCode.FORMAT,
            "result.json: holds no JSON object",
        ),
        (lambda path: write(path, "result.json", "{,"), ExitCode.FORMAT, "result.json: not JSON"),
        (lambda path: write(path, "run.toml", "a ="), ExitCode.FORMAT, "run.toml: not TOML"),
        (lambda path: write(path, "model.toml", ""), ExitCode.STORAGE, "no .h5 file"),
        (lambda path: write(path, "partition.toml", ""), ExitCode.FORMAT, "'format'"),
    ],
)
def test_errors(tmp_path, capsys, make, code, word):
    make(tmp_path / "thing")
    found, out, err = call(capsys, tmp_path / "thing")
    assert (found, out) == (int(code), "")
    assert err.count("\n") == 1
    assert "thing" in err
    assert word in err


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_owners_of_rows(task, tmp_path, capsys):
    path, parts = write_owners(tmp_path / "d.owners", sizes=(30, 50), task=task, kind="csr")
    found = as_json(capsys, path, "--check")
    assert (found["kind"], found["n_samples"], found["n_features"]) == ("owners", 80, 4)
    assert [owner["name"] for owner in found["owners"]] == ["a", "b"]
    assert all(owner["checked"] and owner["storage"] == "csr" for owner in found["owners"])
    y = parts[1][1]
    if task == "classification":
        assert found["owners"][1]["classes"] == ["0", "1"]
        assert found["owners"][1]["counts"] == [int((y < 0).sum()), int((y > 0).sum())]
    else:
        assert found["owners"][1]["max"] == y.max()
    code, out, _ = call(capsys, path, "--check")
    assert code == 0
    assert "checksums and digests agree" in out
    found = as_json(capsys, path / "b.h5")
    assert (found["kind"], found["n_samples"], found["checked"]) == ("owner", 50, False)
    code, out, _ = call(capsys, path / "b.h5")
    assert code == 0
    assert "Owner b" in out
    # --check reads the rows: a flipped bit is found.
    with h5py.File(path / "b.h5") as file:
        at = file["X/data"].id.get_chunk_info(0).byte_offset
    raw = bytearray((path / "b.h5").read_bytes())
    raw[at + 9] ^= 1
    (path / "b.h5").write_bytes(raw)
    assert call(capsys, path)[0] == 0
    code, _, err = call(capsys, path, "--check")
    assert code == ExitCode.FORMAT
    assert "b.h5: key 'X/data': checksum mismatch" in err
