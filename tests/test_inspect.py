"""``fastadmm inspect`` on every kind of path, for people and for machines."""

import json

import h5py
import numpy as np
import pytest
from fastadmm.errors import ExitCode
from fastadmm.store.elements import write_array, write_strings
from fastadmm.store.h5file import create_h5
from fastadmm.store.partition import create_partition
from fastadmm.store.transform import Transform

from owners_data import write_owners
from run_tools import flipped, printed, refused, told


def test_partitions_and_their_files(tmp_path, capsys):
    parts = tmp_path / "a.parts"
    with create_partition(parts, task="classification", source="a.csv") as partition:
        names, transform = ["[bold]age", "rent\x1b[31m"], Transform(scale=np.ones(2), normalize="l2")
        bank = partition.party("bank", kind="dense", feature_names=names, transform=transform)
        bank.append(np.ones((4, 2)))
        partition.party("shop").append(np.eye(4))
        partition.labels(classes=("-1", "1")).append([0, 1, 1, 1])
    out = printed(capsys, "inspect", parts)
    for word in (
        "bank",
        "shop",
        "dense",
        "csr",
        "classes: -1, 1",
        "counts: 1, 3",
        "source: a.csv",
    ):
        assert word in out
    assert "digests agree" not in out
    assert "digests agree" in printed(capsys, "inspect", parts, "--check")
    found = told(capsys, "inspect", parts)
    assert (found["kind"], found["n_samples"], found["n_features"]) == ("partition", 4, 6)
    assert [party["name"] for party in found["parties"]] == ["bank", "shop"]
    assert found["labels"]["counts"] == [1, 3]
    out = printed(capsys, "inspect", parts / "bank.h5")
    assert "[bold]age" in out  # names are no markup
    assert "\x1b" not in out  # and cannot steer the terminal
    found = told(capsys, "inspect", parts / "bank.h5", "--check")
    assert (found["kind"], found["checked"], found["first_features"][0]) == ("party", True, "[bold]age")
    found = told(capsys, "inspect", parts / "labels.h5")
    assert (found["kind"], found["classes"]) == ("labels", ["-1", "1"])
    # Without labels, and a regression.
    for name, labels, said in (("a", [], "labels: –"), ("b", [1.5, 2.5], "2.5")):
        with create_partition(tmp_path / name, task="regression") as partition:
            partition.party(n_features=1).append(np.ones((2, 1)))
            if labels:
                partition.labels().append(labels)
        found = told(capsys, "inspect", tmp_path / name)["labels"]
        assert found["mean"] == 2.0 if labels else found is None
        assert said in printed(capsys, "inspect", tmp_path / name)


def test_runs_and_models(tmp_path, capsys):
    path = tmp_path / "run"
    (path / "model").mkdir(parents=True)
    (path / "run.toml").write_text('lambda = 1e-4\n[data]\ntrain = "a.parts"\n')
    parties = [{"name": "bank", "n_features": 2, "weight_norm": 1.5, "file": "bank.h5"}]
    result = {"status": "converged", "gap": 1e-7, "objective": np.nan, "parties": parties, "x\nclaim": 1}
    (path / "result.json").write_text(json.dumps(result))
    (path / "model" / "model.toml").write_text('format = "fastadmm-model"\n')
    with create_h5(path / "model" / "bank.h5", "fastadmm-party-model") as file:
        write_array(file, "weights", np.ones(2))
        write_strings(file, "names", ["a", "b"])
        file.attrs["name"] = "bank"
    out = printed(capsys, "inspect", path, "--json")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (found["kind"], found["status"]) == ("run", "converged")
    assert found["result"]["objective"] is None
    assert "\nclaim: 1" not in printed(capsys, "inspect", path)  # no key makes a line of its own
    assert told(capsys, "inspect", path / "model")["kind"] == "model"
    assert "fastadmm-party-model" in printed(capsys, "inspect", path / "model")
    found = told(capsys, "inspect", path / "model" / "bank.h5")
    assert (found["kind"], found["attributes"]["name"]) == ("hdf5", "bank")
    (path / "result.json").unlink()
    assert told(capsys, "inspect", path)["status"] == "unfinished"
    assert "train: a.parts" in printed(capsys, "inspect", path)


@pytest.mark.parametrize(
    ("name", "text", "code", "word"),
    [
        ("", None, ExitCode.FORMAT, "encoding-type"),
        ("", "anndata", ExitCode.FORMAT, "not of fastadmm"),
        ("result.json", "[1]", ExitCode.FORMAT, "result.json: holds no JSON object"),
        ("result.json", "{,", ExitCode.FORMAT, "result.json: not JSON"),
        ("run.toml", "a =", ExitCode.FORMAT, "run.toml: not TOML"),
        ("model.toml", "", ExitCode.STORAGE, "no .h5 file"),
        ("partition.toml", "", ExitCode.FORMAT, "'format'"),
    ],
)
def test_errors(tmp_path, capsys, name, text, code, word):
    thing = tmp_path / "thing"
    if name:
        thing.mkdir()
        (thing / name).write_text(text)
    else:
        with h5py.File(thing, "w") as file:
            file.attrs.update({"encoding-type": text} if text else {})
    error = refused(capsys, int(code), "inspect", thing)
    assert "thing" in error
    assert word in error


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_owners_of_rows(task, tmp_path, capsys):
    path, parts = write_owners(tmp_path / "d.owners", sizes=(30, 50), task=task, kind="csr")
    found = told(capsys, "inspect", path, "--check")
    assert (found["kind"], found["n_samples"], found["n_features"]) == ("owners", 80, 4)
    assert [owner["name"] for owner in found["owners"]] == ["a", "b"]
    assert all(owner["checked"] and owner["storage"] == "csr" for owner in found["owners"])
    y = parts[1][1]
    if task == "classification":
        assert found["owners"][1]["classes"] == ["0", "1"]
        assert found["owners"][1]["counts"] == [int((y < 0).sum()), int((y > 0).sum())]
    else:
        assert found["owners"][1]["max"] == y.max()
    assert "checksums and digests agree" in printed(capsys, "inspect", path, "--check")
    found = told(capsys, "inspect", path / "b.h5")
    assert (found["kind"], found["n_samples"], found["checked"]) == ("owner", 50, False)
    assert "name: b" in printed(capsys, "inspect", path / "b.h5")
    # --check reads the rows: a flipped bit is found.
    with h5py.File(path / "b.h5") as file:
        at = file["X/data"].id.get_chunk_info(0).byte_offset
    (path / "b.h5").write_bytes(flipped((path / "b.h5").read_bytes(), 8 * (at + 9)))
    printed(capsys, "inspect", path)
    error = refused(capsys, ExitCode.FORMAT, "inspect", path, "--check")
    assert "b.h5: key 'X/data': checksum mismatch" in error
