"""Configuration: the same keys in TOML and as options; a mistake is one line that names source and key."""

import tomllib
from pathlib import Path

import pytest
from fastadmm.errors import ConfigError
from fastadmm.runs.config import make_config, read_config, recorded, solver_options
from fastadmm.settings.keys import KEYS
from fastadmm.settings.run import RunConfig

from run_tools import assert_same_run, run, write_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    write_problem(folder / "a.parts", n=120)
    write_problem(folder / "t.parts", n=60, seed=1)
    return folder


def test_defaults_and_targets():
    config = make_config({"data": "a.parts"})
    assert config == RunConfig("a.parts")
    assert (config.lambda_, config.gap, config.rounds, config.intercept) == (1e-4, 1e-6, 10_000, True)
    assert (config.loss, config.scheme, config.x_update, config.acceleration) == ("auto",) * 4
    assert config.checkpoint_seconds == 30.0
    assert config.test is config.penalty is config.time is config.threads is config.checkpoint_rounds is None
    # A problem that is not convex has its own target.
    config = make_config({"data": "a.parts", "loss": "tukey:2.0", "stationarity": 1e-3})
    assert "gap" not in config.to_toml()
    assert make_config(config.to_toml()) == config
    options = solver_options(make_config({"data": "a", "rounds": 3, "time": 2, "threads": 1, "gap": 0.5}))
    assert (options.max_rounds, options.max_seconds, options.n_threads, options.gap) == (3, 2.0, 1, 0.5)
    # Whole numbers are numbers and unset is none.
    config = make_config({"data": "a", "lambda": 1, "gap": 0, "time": 5, "penalty": None, "test": None})
    assert config.lambda_ == 1.0
    assert isinstance(config.lambda_, float)
    assert config.gap == 0.0
    assert config.time == 5.0
    assert config.penalty is None


def test_every_key_reaches_the_configuration_and_back():
    values = {
        "data": "a.parts",
        "test": "t.parts",
        "loss": "squared",
        "lambda": 0.5,
        "regularizer": "elastic_net",
        "l1_ratio": 0.25,
        "constraint": "nonnegative",
        "intercept": False,
        "scheme": "gauss-seidel",
        "penalty": 2.0,
        "acceleration": "none",
        "x_update": "auto",
        "gap": 1e-3,
        "rounds": 7,
        "time": 3.0,
        "threads": 1,
        "cluster": "mpi",
        "checkpoint_rounds": 4,
        "checkpoint_seconds": 9.5,
        "privacy": {"mode": "message", "epsilon": 2.0, "message_clip": "none"},
        "ledger": "ledger.jsonl",
        "memory": "512MiB",
        "history": 12,
        "directions": "auto",
    }
    learning = {
        "class_weight": {"yes": 2.0},
        "party_lambda": {"bank": 0.1},
        "party_constraint": {"bank": "nonnegative"},
        "warm_start": "model",
        "validation": 0.25,
        "validation_metric": "auc",
        "patience": 3,
        "seed": 4,
    }
    path = {"path": True, "path_length": 7, "path_ratio": 0.1, "folds": 3, "rule": "1se"}
    # Keys in the order of the documentation; some do not go together.
    assert {*values, "secrecy", "stationarity", *learning, *path, "path_values", "groups"} == set(KEYS)
    for others in (
        learning,
        {"class_weight": "balanced", "seed": 1, **path},
        {"directions": "both"},
        {"secrecy": "sums"},
    ):
        open_run = {key: values[key] for key in ("data", "gap")} | others
        assert make_config(make_config(open_run).to_toml()) == make_config(open_run)
        assert others.items() <= make_config(open_run).to_toml().items()
    given = {"data": "a.parts", "path": True, "path_values": [1.0, 0.1]}
    assert make_config(make_config(given).to_toml()) == make_config(given)
    assert make_config(given | {"gap_share": 0.1}) == make_config(given)  # of runs of earlier versions
    settings = make_config(values).privacy
    assert (settings.mode, settings.epsilon, settings.message_clip) == ("message", 2.0, None)
    values["privacy"] = settings.to_dict()
    assert make_config(values).to_toml() == values


def test_relative_paths_count_from_the_file(tmp_path):
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "c.toml"
    file.write_text('data = "../a.parts"\ntest = "/abs/t.parts"\n')
    values = read_config(file)
    assert Path(values["data"]) == tmp_path / "sub" / ".." / "a.parts"
    assert values["test"] == "/abs/t.parts"


def test_files_are_configurations(folder, tmp_path):
    file = folder / "ours.toml"
    file.write_text('data = "a.parts"\ntest = "t.parts"\nlambda = 0.1\nrounds = 3\ngap = 0\n')
    assert run("train", "--config", file, "--rounds", 2, "--quiet", "--out", tmp_path / "run") == 7
    written = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert (written["lambda"], written["rounds"], written["gap"]) == (0.1, 2, 0.0)
    assert (tmp_path / "run" / written["data"]).resolve() == folder / "a.parts"
    assert (tmp_path / "run" / written["test"]).resolve() == folder / "t.parts"
    train = ["train", folder / "a.parts", "--test", folder / "t.parts", "--scheme", "sharing"]
    assert run(*train, "--lambda", 0.01, "--quiet", "--out", tmp_path / "one") == 0
    config = tmp_path / "one" / "run.toml"
    assert run("train", "--config", config, "--quiet", "--out", tmp_path / "two") == 0
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_a_run_that_workers_of_dask_began_goes_on(tmp_path):
    """In this process, as workers give the same bits; for a new run the line says what there is."""
    text = 'data = "a.parts"\ncluster = "dask://scheduler:8786"\nretry = 2\n'
    (tmp_path / "run.toml").write_text(f'{text}[provenance]\nrow_digest = "x"\n')
    assert recorded(tmp_path).config.cluster == "none"
    with pytest.raises(
        ConfigError, match="key 'cluster': unknown choice 'dask://scheduler:8786'; choose none, mpi"
    ):
        make_config({"data": "a.parts", "cluster": "dask://scheduler:8786"})
