"""The comparison of revisions: what is masked and what is not (the comparison itself: ``make corpus``)."""

import json

import h5py
import numpy as np
import pytest

import corpus


def write(home, identifier="0123456789abcdef", weight=1.5, gap=0.25):
    home.mkdir()
    with h5py.File(home / "model.h5", "w") as file:
        file.attrs["model-id"] = f"{identifier}-3"
        file.create_dataset("weights", data=np.array([weight, 2.0]))
        file.create_dataset("names", data=["a", "b"])
    inner = (home / "model.h5").read_bytes()
    with h5py.File(home / "state.h5", "w") as file:
        file.attrs["run"] = identifier
        file.create_dataset("message", data=np.frombuffer(inner, np.uint8))
    (home / "model.toml").write_text(f'id = "{identifier}-3"\nlambda = 0.1\n')
    (home / "rounds.jsonl").write_text(json.dumps({"round": 1, "gap": gap, "run": identifier}) + "\n")
    (home / "output.txt").write_text(f"run {identifier}: limit {len(identifier)}.5 GB, until 2030-01-02\n")


def test_what_counts_and_what_does_not(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "other", "fedcba9876543210")
    one, other = corpus.listing(tmp_path / "one"), corpus.listing(tmp_path / "other")
    assert one.keys() == {"model.h5", "state.h5", "model.toml", "rounds.jsonl", "output.txt"}
    assert not corpus.differences(one, other)
    # Files that come and go.
    assert corpus.differences({"a": {}, "b": {}}, {"b": {}, "c": {}}) == ["a: new", "c: gone"]
    # Numbers are not taken for ids.
    assert corpus.masked("gap 0.1234567890123456 of 1234567") == "gap 0.1234567890123456 of 1234567"
    # Some forty configurations.
    assert 40 <= len(corpus.CASES) <= 60


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (
            {"weight": np.nextafter(1.5, 2)},
            {"model.h5: weights", "model.h5: bytes", "state.h5: message/weights"},
        ),
        ({"gap": np.nextafter(0.25, 1)}, {"rounds.jsonl: line 00001"}),
    ],
)
def test_the_last_bit_counts(tmp_path, changed, found):
    write(tmp_path / "one")
    write(tmp_path / "other", **changed)
    lines = corpus.differences(corpus.listing(tmp_path / "one"), corpus.listing(tmp_path / "other"))
    assert found <= {line.partition("\n")[0] for line in lines}
