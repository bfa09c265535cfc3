"""Model directories: what goes in comes out, each party's part in its own file and nothing else in it."""

import shutil
import tomllib

import h5py
import numpy as np
import pytest
import tomli_w
from fastadmm.errors import FormatError, StorageError
from fastadmm.runs.config import make_config
from fastadmm.runs.train import resume_run, start_run
from fastadmm.store.model import Model, PartyModel, content_id, open_model, open_shared_part, write_model
from fastadmm.store.transform import Transform

from run_tools import model_digests, refuses, within, write_problem


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    transforms = [Transform("l2"), Transform("none", center=rng.normal(size=4), scale=rng.uniform(1, 2, 4))]
    return Model(
        loss="logistic",
        task="classification",
        lam=1e-3,
        intercept=-0.25,
        classes=("benign ünd", "malignant"),
        parties=[
            PartyModel("lab", rng.normal(size=3), ["a", "b", "c"], transforms[0]),
            PartyModel("clinic", rng.normal(size=4), ["d", "e", "f", "größe"], transforms[1]),
        ],
        certificate={"status": "converged", "objective": 0.1, "gap": 1e-7, "gap_absolute": 1e-8, "rounds": 9},
    )


def assert_same(one, other):
    for key in ("loss", "task", "lam", "intercept", "classes", "certificate"):
        assert getattr(one, key) == getattr(other, key)
    for a, b in zip(one.parties, other.parties, strict=True):
        assert (a.name, a.feature_names) == (b.name, b.feature_names)
        assert np.array_equal(a.weights, b.weights)
        assert a.transform.digest() == b.transform.digest()


def test_models_are_whole_and_kept(model, tmp_path):
    for name in ("one", "two"):
        write_model(tmp_path / name, model)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    # Existing models are kept.
    tmp_path = within(tmp_path)
    write_model(tmp_path / "m", model)
    refuses(StorageError, "exists already", write_model, tmp_path / "m", model)
    write_model(tmp_path / "m", Model(**{**vars(model), "intercept": 2.0}), force=True)
    assert open_model(tmp_path / "m").intercept == 2.0
    # A failure leaves nothing.
    tmp_path = within(tmp_path)
    model.certificate["status"] = object()
    refuses(TypeError, "", write_model, tmp_path / "m", model)
    assert not list(tmp_path.iterdir())
    tmp_path = within(tmp_path)
    refuses(FormatError, r"no model\.toml: not a model", open_model, tmp_path)
    (tmp_path / "run.toml").write_text("")
    refuses(StorageError, "no model yet: finish it with 'fastadmm resume'", open_model, tmp_path)
    refuses(StorageError, "", open_model, tmp_path / ("n" * 300))


def test_each_file_holds_its_own_part_alone(model, tmp_path):
    write_model(tmp_path / "m", model)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == [
        "clinic.h5",
        "coordinator.h5",
        "lab.h5",
        "model.toml",
    ]
    with h5py.File(tmp_path / "m" / "lab.h5") as file:
        assert set(file) == {"weights", "var", "transform"}
        assert np.array_equal(file["weights"][:], model.parties[0].weights)
    with h5py.File(tmp_path / "m" / "coordinator.h5") as file:
        assert set(file) == {"classes"}
        assert file.attrs["intercept"] == -0.25
    other = (tmp_path / "m" / "lab.h5").read_bytes()
    assert b"clinic" not in other
    assert "größe".encode() not in other
    manifest = tomllib.loads((tmp_path / "m" / "model.toml").read_text())
    assert manifest["lambda"] == 1e-3
    assert manifest["certificate"] == model.certificate


def older(path, version, ids):
    """Make a model one of an older format, whose id was a digest of its exact numbers."""
    values = tomllib.loads((path / "model.toml").read_text())
    shared, _ = open_shared_part(path)
    old = content_id(values, shared.intercept, shared.classes, shared.scales, values["certificate"])
    values |= {"version": version, "id": old}
    (path / "model.toml").write_text(tomli_w.dumps(values if ids else {**values, "id": "none"}))
    for file in path.glob("*.h5"):
        with h5py.File(file, "r+") as opened:
            opened.attrs["encoding-version"] = version
            opened.attrs.pop("digest", None)
            if ids:
                opened.attrs["model-id"] = old
            else:
                del opened.attrs["model-id"]
    return old


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_models_open_as_what_they_were(model, tmp_path, version, ids):
    write_model(tmp_path / "m", model)
    old = older(tmp_path / "m", version, ids)
    opened = open_model(tmp_path / "m")
    assert_same(opened, model)
    assert opened.model_id == old
    if ids:
        text = (tmp_path / "m" / "model.toml").read_text()
        (tmp_path / "m" / "model.toml").write_text(text.replace("objective = 0.1", "objective = 0.2"))
        refuses(FormatError, "belongs to another model", open_model, tmp_path / "m")


def test_ids_are_of_the_run_not_of_the_data(tmp_path):
    data = write_problem(tmp_path / "a.parts", 60, (3, 2))
    config = make_config({"data": str(data), "rounds": 2, "gap": 1e-15, "scheme": "sharing"})
    for name in ("one", "two"):
        start_run(config, tmp_path / name)
    one, two = (open_model(tmp_path / name) for name in ("one", "two"))
    assert one.model_id != two.model_id
    assert model_digests(tmp_path / "one") == model_digests(tmp_path / "two")  # all else is the same
    shutil.rmtree(tmp_path / "one" / "model")
    (tmp_path / "one" / "result.json").unlink()
    resume_run(tmp_path / "one")
    assert open_model(tmp_path / "one").model_id == one.model_id  # parts handed out before still fit
    resume_run(tmp_path / "one", changes={"rounds": 3})
    assert open_model(tmp_path / "one").model_id != one.model_id  # another model
