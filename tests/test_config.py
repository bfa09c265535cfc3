"""Configuration: the same keys in TOML and as options; a mistake is one line that names source and key."""

import json
import math
import tomllib
from pathlib import Path

import pytest
from fastadmm.errors import ConfigError, StorageError
from fastadmm.runs.config import make_config, read_config, solver_options
from fastadmm.settings.keys import KEYS
from fastadmm.settings.run import RunConfig
from fastadmm.store.partition import open_partition

from run_tools import assert_same_run, refused, run, write_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    write_problem(folder / "a.parts", n=120)
    write_problem(folder / "t.parts", n=60, seed=1)
    return folder


# --- make_config ------------------------------------------------------------------------------------------
def test_defaults():
    config = make_config({"data": "a.parts"})
    assert config == RunConfig("a.parts")
    assert (config.lambda_, config.gap, config.rounds, config.intercept) == (1e-4, 1e-6, 10_000, True)
    assert (config.loss, config.scheme, config.x_update, config.acceleration) == ("auto",) * 4
    assert config.checkpoint_seconds == 30.0
    assert config.test is config.penalty is config.time is config.threads is config.checkpoint_rounds is None


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
        "cluster": "dask://scheduler:8786",
        "retry": 2,
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
    path = {"path": True, "path_length": 7, "path_ratio": 0.1, "folds": 3, "rule": "1se", "gap_share": 0.1}
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
    settings = make_config(values).privacy
    assert (settings.mode, settings.epsilon, settings.message_clip) == ("message", 2.0, None)
    values["privacy"] = settings.to_dict()
    assert make_config(values).to_toml() == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"folds": 3}, "key 'folds': belongs to a path"),
        ({"path": True, "lambda": 0.1}, "key 'lambda': a path has many"),
        ({"path": True, "folds": 1}, "key 'folds': 1 fold leaves no rows"),
        ({"path": True, "folds": -2}, "key 'folds': -2 must not be negative"),
        ({"path": True, "rule": "2se"}, "key 'rule': unknown rule '2se'"),
        ({"path": True, "path_values": [1, -1]}, "key 'path_values': [1, -1] must be positive"),
        ({"path": True, "path_values": [1, 1]}, "key 'path_values': [1, 1] has a value twice"),
        ({"path": True, "path_values": 3}, "key 'path_values': 3 is not a list of numbers"),
        ({"path": True, "path_values": [1.0], "path_length": 2}, "key 'path_values': says the grid"),
        ({"path": True, "path_ratio": 2}, "key 'path_ratio': 2.0 must be below 1"),
        ({"gap": 2}, "key 'gap': 2.0 must be below 1"),
        ({"stationarity": 1}, "key 'stationarity': 1.0 must be below 1"),
        ({"path": True, "time": 2}, "key 'time': a path ends"),
        ({"path": True, "validation": 0.1}, "key 'validation': a path chooses by its folds"),
        ({"path": True, "loss": "tukey"}, "key 'path': needs a convex problem"),
        ({"path": True, "privacy": {"mode": "fusion", "epsilon": 1.0}}, "key 'path': every fit of a path"),
        ({"validation": 0.1, "privacy": {"mode": "fusion", "epsilon": 1.0}}, "key 'validation': rounds of a"),
        ({"validation": 1.5}, "key 'validation': the share 1.5 must be between"),
        ({"validation": True}, "key 'validation': True is not a share of the rows or a partition"),
        ({"patience": 3}, "key 'patience': belongs to early stopping"),
        ({"validation": 0.5, "validation_metric": "f1"}, "key 'validation_metric': unknown metric 'f1'"),
        ({"class_weight": "even"}, "key 'class_weight': 'even' is neither"),
        ({"class_weight": {"a": -1}}, "key 'class_weight': -1 of class 'a' must be"),
        ({"class_weight": 2}, "key 'class_weight': 2 is not 'balanced' or a table of numbers"),
    ],
)
def test_keys_of_learning_are_checked(values, message):
    with pytest.raises(ConfigError) as caught:
        make_config({"data": "a.parts", **values}, "here")
    assert str(caught.value).startswith(f"here: {message}")
    assert "\n" not in str(caught.value)


def test_a_problem_that_is_not_convex_has_its_own_target():
    values = {"data": "a.parts", "loss": "tukey:2.0", "stationarity": 1e-3}
    config = make_config(values)
    assert "gap" not in config.to_toml()
    assert make_config(config.to_toml()) == config
    log_sum = {"data": "a", "regularizer": "log_sum"}
    for wrong, message in (
        ({**values, "gap": 1e-3}, "'gap': loss tukey:2.0 with regularizer l2 is not convex"),
        ({"data": "a", "stationarity": 1e-3}, "'stationarity': loss auto with regularizer l2 is con"),
        ({**log_sum, "gap": 0}, "'gap': loss auto with regularizer log_"),
        ({"data": "a", "regularizer": "log_sum:0"}, "'regularizer': log_sum: width '0' must be"),
        ({**log_sum, "loss": "hinge"}, "'regularizer': log_sum is not"),
        ({**values, "acceleration": "anderson"}, "'acceleration': 'anderson' does not keep the"),
        ({**values, "stationarity": -1.0}, "'stationarity': -1.0 must be a finite number"),
    ):
        with pytest.raises(ConfigError) as caught:
            make_config(wrong, "here")
        assert str(caught.value).startswith(f"here: key {message}")
        assert "\n" not in str(caught.value)


def test_whole_numbers_are_numbers_and_unset_is_none():
    config = make_config({"data": "a", "lambda": 1, "gap": 0, "time": 5, "penalty": None, "test": None})
    assert config.lambda_ == 1.0
    assert isinstance(config.lambda_, float)
    assert config.gap == 0.0
    assert config.time == 5.0
    assert config.penalty is None


@pytest.mark.parametrize(
    "keys", ["lamda lambda", "round rounds", "shceme scheme", "x-update x_update", "gaps gap"]
)
def test_unknown_key_names_the_nearest(keys):
    written, meant = keys.split()
    with pytest.raises(ConfigError, match=rf"^here: unknown key '{written}'; did you mean '{meant}'\?$"):
        make_config({"data": "a", written: 1}, "here")


def test_unknown_key_far_from_all():
    with pytest.raises(ConfigError, match=r"unknown key 'qqq'; known keys: data, test, loss, lambda"):
        make_config({"data": "a", "qqq": 1})


WRONG = [
    (key, value, message)
    for key, message, values in (
        ("data", "is not text", (3, {"train": "a"})),
        ("test", "is not text", (True,)),
        ("loss", "is not text", (1,)),
        ("loss", "unknown loss 'cauchy'; choose auto, logistic, squared, huber", ("cauchy",)),
        ("lambda", "is not a number", ("1e-4", True, [1e-4])),
        ("lambda", "must be positive", (0, -1, math.nan, math.inf)),
        ("lambda", "too large", (10**400,)),
        ("intercept", "is not true or false", (1, "yes")),
        ("scheme", "unknown scheme 'admm'; did you mean 'sharing'?", ("admm",)),
        ("scheme", "unknown scheme ''", ("",)),
        ("constraint", "unknown constraint 'bounds:-1,1'; did you mean 'box:-1,1'?", ("bounds:-1,1",)),
        ("constraint", "unknown constraint 'box:-1:1'; choose ", ("box:-1:1",)),
        ("penalty", "must be positive", (0.0,)),
        ("penalty", "is not a number", ("auto",)),
        ("acceleration", "unknown choice 'on'; choose auto, anderson, none", ("on",)),
        ("acceleration", "is not text", (True,)),
        ("x_update", "unknown choice 'lu'; choose auto, gram, kernel, cg", ("lu",)),
        ("gap", "not negative", (-1e-6,)),
        ("gap", "finite", (math.inf, math.nan)),
        ("rounds", "must be positive", (0, -5)),
        ("rounds", "is not a whole number", (1.5, True)),
        ("rounds", "too large", (10**30,)),
        ("time", "must be positive", (0,)),
        ("time", "is not a number", ("1h",)),
        ("threads", "must be positive", (0,)),
        ("threads", "is not a whole number", (2.0,)),
        ("checkpoint_rounds", "must be positive", (0,)),
        ("checkpoint_seconds", "must be positive", (-1.0,)),
    )
    for value in values
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG)
def test_wrong_values(key, value, message):
    with pytest.raises(ConfigError) as error:
        make_config({"data": "a", key: value}, "run.toml")
    assert str(error.value).startswith(f"run.toml: key {key!r}: ")
    assert message in str(error.value)
    with pytest.raises(ConfigError) as error:  # the same as an option
        make_config({"data": "a"}, "run.toml", {key: value})
    assert str(error.value).startswith(f"command line: key {key!r}: ")


#: Mistakes that only the whole reveals: values of a file, options, and who named the key at fault.
WRONG_TOGETHER = [
    ({"gap": 1e-3, "loss": "sigmoid"}, {"data": "a"}, "run.toml", "gap"),
    ({"stationarity": 1e-3}, {"data": "a"}, "run.toml", "stationarity"),
    ({"loss": "sigmoid"}, {"gap": 1e-3}, "command line", "gap"),
    ({"loss": "hinge", "regularizer": "log_sum"}, {"data": "a"}, "run.toml", "regularizer"),
    ({"loss": "hinge"}, {"regularizer": "log_sum"}, "command line", "regularizer"),
    ({"regularizer": "l1"}, {"scheme": "subspace"}, "command line", "scheme"),
    ({"scheme": "subspace"}, {"regularizer": "l1"}, "run.toml", "scheme"),
    ({"lambda": 0.1}, {"patience": 3}, "command line", "patience"),
    ({"patience": 3}, {"lambda": 0.1}, "run.toml", "patience"),
    ({"regularizer": "elastic_net"}, {"party_lambda": {"p": 1.0}}, "command line", "party_lambda"),
    ({"path": True}, {"validation": 0.2}, "command line", "validation"),
    ({"validation": 0.2}, {"path": True}, "run.toml", "validation"),
    ({"privacy": {"mode": "message", "epsilon": 1.0}}, {"path": True}, "command line", "path"),
]


@pytest.mark.parametrize(("values", "options", "place", "key"), WRONG_TOGETHER)
def test_who_gave_the_wrong_value(values, options, place, key):
    with pytest.raises(ConfigError) as error:
        make_config({"data": "a", **values}, "run.toml", options)
    assert str(error.value).startswith(f"{place}: key {key!r}: ")


@pytest.mark.parametrize(
    ("options", "place"), [({"rounds": 0}, "command line"), ({"delta": 0.1}, "run.toml")]
)
def test_who_gave_the_wrong_privacy(options, place):
    table = {"mode": "message", "rounds": -1}
    with pytest.raises(ConfigError) as error:
        make_config({"data": "a", "privacy": table}, "run.toml", {"privacy": {"epsilon": 1.0, **options}})
    assert str(error.value).startswith(f"{place}: privacy: rounds: ")


@pytest.mark.parametrize("groups", [[1], [[0]], [[[0, "a"]]], [[[True]]], [[[-1]]], "all", [[], 3]])
def test_groups_are_lists_of_lists_of_columns(groups):
    with pytest.raises(ConfigError, match=r"run\.toml: key .groups.: ") as error:
        make_config({"data": "a", "regularizer": "group_lasso", "groups": groups}, "run.toml")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="l1 has no parameter 'groups'"):
        make_config({"data": "a", "regularizer": "l1", "groups": [[[0]]]}, "run.toml")


def test_groups_of_a_file_are_those_of_the_problem(folder, tmp_path):
    parts = open_partition(folder / "a.parts")
    widths = [party.n_features for party in parts.parties]
    groups = [[[j] for j in range(widths[0])], *([] for _ in widths[1:])]
    file = folder / "groups.toml"
    file.write_text(f'data = "a.parts"\nregularizer = "group_lasso"\nlambda = 0.05\ngroups = {groups}\n')
    assert run("train", "--config", file, "--quiet", "--out", tmp_path / "run") == 0
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["groups"] == groups
    assert tomllib.loads((tmp_path / "run" / "model" / "model.toml").read_text())["groups"] == groups
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    # A group of one column is its absolute value: another problem than with whole parties as groups.
    file.write_text('data = "a.parts"\nregularizer = "group_lasso"\nlambda = 0.05\n')
    assert run("train", "--config", file, "--quiet", "--out", tmp_path / "whole") == 0
    whole = json.loads((tmp_path / "whole" / "result.json").read_text())
    assert abs(result["objective"] - whole["objective"]) > 1e-6
    for wrong, message in ((groups[:-1], "one entry per party"), ([[[0]], *groups[1:]], "exactly once")):
        file.write_text(f'data = "a.parts"\nregularizer = "group_lasso"\ngroups = {wrong}\n')
        assert run("train", "--config", file, "--quiet", "--out", tmp_path / message) != 0
        assert not (tmp_path / message / "model").exists()


def test_solver_options():
    options = solver_options(make_config({"data": "a", "rounds": 3, "time": 2, "threads": 1, "gap": 0.5}))
    assert (options.max_rounds, options.max_seconds, options.n_threads, options.gap) == (3, 2.0, 1, 0.5)


# --- files ------------------------------------------------------------------------------------------------
def test_relative_paths_count_from_the_file(tmp_path):
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "c.toml"
    file.write_text('data = "../a.parts"\ntest = "/abs/t.parts"\n')
    values = read_config(file)
    assert Path(values["data"]) == tmp_path / "sub" / ".." / "a.parts"
    assert values["test"] == "/abs/t.parts"


@pytest.mark.parametrize(
    "content", [b"data = ", b"\xff\xfe", b"data = 'a'\ndata = 'b'\n", b"{}", b"data: a.parts\n"]
)
def test_not_toml(tmp_path, content):
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.toml: not TOML: "):
        read_config(tmp_path / "c.toml")


def test_no_file(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path, tmp_path / "absent" / "c.toml"):
        with pytest.raises(StorageError, match="cannot read"):
            read_config(path)


# --- through the command line -----------------------------------------------------------------------------
def test_config_file_and_options(folder, tmp_path):
    file = folder / "ours.toml"
    file.write_text('data = "a.parts"\ntest = "t.parts"\nlambda = 0.1\nrounds = 3\ngap = 0\n')
    assert run("train", "--config", file, "--rounds", 2, "--quiet", "--out", tmp_path / "run") == 7
    written = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert (written["lambda"], written["rounds"], written["gap"]) == (0.1, 2, 0.0)
    assert (tmp_path / "run" / written["data"]).resolve() == folder / "a.parts"
    assert (tmp_path / "run" / written["test"]).resolve() == folder / "t.parts"


def test_run_toml_is_a_configuration(folder, tmp_path):
    train = ["train", folder / "a.parts", "--test", folder / "t.parts", "--scheme", "sharing"]
    assert run(*train, "--lambda", 0.01, "--quiet", "--out", tmp_path / "one") == 0
    config = tmp_path / "one" / "run.toml"
    assert run("train", "--config", config, "--quiet", "--out", tmp_path / "two") == 0
    assert_same_run(tmp_path / "one", tmp_path / "two")


WRONG_OPTIONS = {
    5: "--lambda -1;--gap inf;--rounds 0;--scheme admm",
    2: "--lambda small;--rounds 1.5;--lamda 1;--lambda;extra.parts",
    6: f"--test absent.parts;--config absent.toml;--out absent/run;--out {'n' * 300};--out .",
}


@pytest.mark.parametrize(
    ("arguments", "code"), [(each, code) for code, all in WRONG_OPTIONS.items() for each in all.split(";")]
)
def test_wrong_options(folder, tmp_path, monkeypatch, capsys, arguments, code):
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in arguments else ["--out", "run"]
    assert run("train", folder / "a.parts", "--quiet", *out, *arguments.split()) == code
    stdout, err = capsys.readouterr()
    assert stdout == ""
    assert err.startswith("fastadmm: error: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "key 'data' is missing"),
        ("data = 'a.parts'\nlamda = 1", "unknown key 'lamda'; did you mean 'lambda'?"),
        ("data = 'a.parts'\nlambda = 'x'", "key 'lambda': 'x' is not a number"),
        ("data = 'a.parts'\n[solver]\ngap = 1", "unknown key 'solver'"),
        ("data = ", "not TOML"),
    ],
)
def test_wrong_files(folder, tmp_path, capsys, text, message):
    (folder / "wrong.toml").write_text(text)
    err = refused(capsys, 5, "train", "--config", folder / "wrong.toml", "--out", tmp_path / "run")
    assert err.startswith(f"fastadmm: error: {folder / 'wrong.toml'}: ")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_neither_data_nor_config(tmp_path, capsys):
    assert "give a partition directory, or --config" in refused(capsys, 5, "train", "--out", tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_estimators_names_are_the_same_settings(tmp_path):
    """λ, the gap and the limit on rounds: their names in Python are taken from files and options, too."""
    file = tmp_path / "c.toml"
    file.write_text('data = "d"\nalpha = 0.5\ntol = 1e-3\nmax_rounds = 7\n')
    config = make_config(read_config(file), "c.toml")
    assert (config.lambda_, config.gap, config.rounds) == (0.5, 1e-3, 7)
    with pytest.raises(
        ConfigError, match=r"c\.toml: keys 'tol' and 'gap' are the same setting; leave one out"
    ):
        make_config({"data": "d", "tol": 1e-3, "gap": 1e-3}, "c.toml")
    config = make_config({"data": "d", "tol": 1e-3}, "c.toml", {"gap": 1e-4})
    assert config.gap == 1e-4
