"""The main job through the command line, as a user does it; help, displays and usage errors."""

import io
import json
import re
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastadmm import ADMMSharingClassifier, Progress
from fastadmm.cli import app as cli
from fastadmm.cli.app import COMMANDS, GROUPS
from fastadmm.cli.display import ProgressDisplay
from fastadmm.cli.options import with_options
from fastadmm.errors import ExitCode
from fastadmm.figures.progress import progress_line, seconds_left
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.schemes.registry import SCHEMES
from fastadmm.settings.keys import PRIVACY, SETTINGS
from fastadmm.solver.history import RoundRecord
from fastadmm.store.model import open_model
from fastadmm.version import __version__
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from run_tools import contradict, printed, python, refused, result_of, run, running, told, write_problem


def test_main_job(tmp_path, capsys):
    """Breast cancer, training and test rows apart."""
    table = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "benign"})
    X = table.drop(columns="benign")
    table[X.columns] = X = ((X - X.mean()) / X.std(ddof=0)).round(6)
    for part, rows in (("train", slice(0, 400)), ("test", slice(400, None))):
        table[rows].to_csv(tmp_path / f"{part}.csv", index=False)
    train, test, out = tmp_path / "train.parts", tmp_path / "test.parts", tmp_path / "run"
    label = ("--label", "benign")
    assert run("convert", tmp_path / "train.csv", "-o", train, "--parties", 3, *label) == 0
    assert run("convert", tmp_path / "test.csv", "-o", test, "--like", train, *label) == 0
    capsys.readouterr()

    assert run("train", train, "--test", test, "--lambda", 0.01, "--out", out) == 0
    stdout, err = capsys.readouterr()
    assert re.fullmatch(
        rf"certified after \d+ rounds?: relative duality gap [\d.e-]+; model in {out / 'model'}\n", stdout
    )
    assert err.startswith("400 samples, 3 parties")
    assert "\x1b" not in stdout + err  # no terminal: no colours

    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert run("resume", out) == 0
    assert "nothing to do: certified" in capsys.readouterr().err
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}

    assert run("predict", out, test, "--out", tmp_path / "p.csv") == 0
    correct = (pd.read_csv(tmp_path / "p.csv")["label"].to_numpy() == table["benign"][400:]).mean()
    assert correct > 0.95
    metrics = told(capsys, "evaluate", out, test)["metrics"]
    assert metrics["accuracy"] == pytest.approx(correct)
    assert metrics["log_loss"] == pytest.approx(result_of(out)["test"]["log_loss"], rel=1e-9)

    reference = LogisticRegression(C=1 / (400 * 0.01), tol=1e-10, max_iter=10_000)
    reference.fit(X[:400].to_numpy(), table["benign"][:400])
    model = open_model(out)
    weights = np.concatenate([party.weights for party in model.parties])
    assert np.abs(weights - reference.coef_[0]).max() < 1e-3
    assert abs(model.intercept - reference.intercept_[0]) < 1e-3


@pytest.mark.parametrize("group", [name for name in GROUPS if name != "align"])
def test_group_alone_prints_its_help(group, capsys):
    assert run(group) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(rf"Usage: \S+ {group} ", out)
    assert "Commands" in out


def test_help_lists_commands_and_fits_the_terminal(capsys, monkeypatch):
    for arguments in (["--help"], ["-h"], []):
        out = printed(capsys, *arguments)
        positions = [re.search(rf"(?m)^\W*{command}\s", out).start() for command in COMMANDS]
        assert positions == sorted(positions)
    # No line is broken by the terminal, and every option is there.
    for width in (60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        for name in ("train", "convert", "owners", "privacy"):
            out = printed(capsys, name, "--help")
            assert max(map(len, out.splitlines())) <= width, name
    assert "--help, -h" in out


def test_help_names_every_option_of_train(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = printed(capsys, "train", "--help")
    shown = set(re.findall(r"--[\w-]+", out))
    for setting in (*(s for s in SETTINGS.values() if s.key != "privacy"), *PRIVACY.values()):
        assert (setting.flag in shown) == bool(setting.help), setting.key
    assert "(default: 1e-4)" in out
    assert len(shown - {"--help"}) <= 24


def test_settings_without_an_option_are_set_by_their_keys(tmp_path, capsys):
    write_problem(tmp_path / "a.parts")
    given = (
        "history=1",
        "constraint = box:0,1",
        "privacy.seed=3",
        "party_lambda={a=0.5}",
        "warm_start='x y'",
    )
    train = ("train", tmp_path / "a.parts", "--dry-run", "--quiet")
    assert run(*train, "--set", "history=1", "--set", "constraint = box:0,1", "--rounds", 1) == 0
    found = with_options(lambda made: made, "parties")(lambda *, options: options)._set(given)
    plain = {"history": 1, "constraint": "box:0,1", "party_lambda": {"a": 0.5}, "warm_start": "x y"}
    assert found == {**plain, "privacy": {"seed": 3}}
    for wrong, message in (
        ("penalti=2", "--set penalti: not a setting of this command; did you mean penalty?"),
        ("xyz=2", "--set xyz: not a setting of this command; known keys: acceleration, "),
        ("penalty", "--set penalty: write KEY=VALUE"),
        ("penalty=big", "key 'penalty': 'big' is not a number"),
    ):
        assert message in refused(capsys, 5, *train, "--set", wrong)
    for old, message in (
        (("--penalty", 2), "--set penalty=2"),
        (("--no-intercept",), "--set intercept=false"),
        (("--rho", 2), "--set penalty=2"),
        (("--label-epsilon", 2), "--set privacy.label_epsilon=2"),
        (("--pooled",), "--scheme pooled"),
    ):
        assert message in refused(capsys, 2, *train, *old)


def test_a_regression_on_two_classes_is_pointed_out(tmp_path, capsys):
    write_problem(tmp_path / "a.parts")
    for loss, warned in (("squared", 1), ("huber", 1), ("logistic", 0), ("hinge", 0)):
        assert run("train", tmp_path / "a.parts", "--loss", loss, "-o", tmp_path / loss) == 0
        assert capsys.readouterr().err.count("warning") == warned, loss
        labels, parties = tmp_path / "a.parts/labels.h5", ("--party", "a", "--party", "b")
        assert run("coordinator", "start", labels, *parties, "--loss", loss, "-o", tmp_path / f"c{loss}") == 0
        assert "".join(capsys.readouterr()).count("warning") == warned, loss


@pytest.mark.parametrize(
    "program", [[sys.executable, "-m", "fastadmm"], [Path(sys.executable).with_name("fastadmm")]]
)
def test_the_package_is_the_command(program):
    answer = subprocess.run([*program, "--version"], check=False, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, f"fastadmm {__version__}\n")


HEAVY = {"numpy", "numba", "llvmlite", "scipy", "sklearn", "pandas", "h5py", "matplotlib"}


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        (
            "from fastadmm.cli.app import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass",
            HEAVY,
        ),
        ("import fastadmm; dir(fastadmm)", HEAVY | {"rich", "typer"}),
        ("import fastadmm.between.socket", HEAVY),  # what forwards bytes
    ],
)
def test_help_and_imports_are_light(program, heavy):
    """They load no library that computes, so that they come at once."""
    done = python(f"{program}\nimport sys\nprint(*sys.modules, file=sys.stderr)", check=True)
    assert not heavy & set(done.stderr.split())


def test_an_interrupt_that_a_library_wraps_is_an_interrupt(capsys, monkeypatch):
    """Cython: a signal in the end of a ``with`` of h5py."""

    def program(**_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise SystemError("__exit__ returned a result with an exception set") from stop

    monkeypatch.setattr(cli, "_program", lambda argv: program)
    with pytest.raises(SystemExit) as stop:
        cli.main(["inspect", "x"])
    assert stop.value.code == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "fastadmm: interrupted\n"


def test_help_of_what_is_asked_for_is_that_of_the_whole_program(capsys, monkeypatch):
    """Only what a command line needs is built; nobody sees that."""

    def shown(program, *arguments):
        problem = ""
        try:
            program(args=list(arguments), standalone_mode=False)
        except (Exception, SystemExit) as error:
            problem = str(error)
        return capsys.readouterr().out + problem

    whole = cli._command()
    assert shown(cli._program(["--help"]), "--help") == shown(whole, "--help")
    assert cli._program(["--help"]) is not whole
    for name in ("train", "import", "owners", "privacy"):
        assert cli._program([name]) is not whole
        for arguments in ([name, "--help"], [name, "--bogus"]):
            assert shown(cli._program(arguments), *arguments) == shown(whole, *arguments)
    assert cli._program(["bogus"]) is whole
    assert cli._program(["--install-completion"]) is whole
    monkeypatch.setenv("_FASTADMM_COMPLETE", "complete_bash")
    assert cli._program([]) is whole


@pytest.mark.parametrize(
    ("option", "begin", "known"),
    [("--scheme", "s", SCHEMES), ("--loss", "h", LOSSES), ("--regularizer", "l", REGULARIZERS)],
)
def test_a_shell_completes_names_of_the_registry(monkeypatch, capsys, option, begin, known):
    monkeypatch.setattr(sys, "argv", ["fastadmm"])
    for name, value in (("_FASTADMM_COMPLETE", "complete_bash"), ("COMP_CWORD", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_WORDS", f"fastadmm train {option} {begin}")
    assert run() == 0
    assert capsys.readouterr().out.split() == [name for name in known if name.startswith(begin)]


def test_a_reader_that_leaves_early(tmp_path):
    data = write_problem(tmp_path / "a.parts", n=10_000, widths=(2, 2))
    assert run("train", data, "--quiet", "--out", tmp_path / "run") == 0
    for command, first in (("predict", "id,score,probability,label\n"), ("evaluate", None)):
        # With the program's own treatment of its standard streams.
        program = [sys.executable, "-P", "-m", "fastadmm", command, tmp_path / "run", data]
        with running(program) as process:
            assert first is None or process.stdout.readline() == first
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(60) == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write_problem(tmp_path_factory.mktemp("small") / "a.parts")


def test_quiet(small, tmp_path, capsys):
    assert run("train", small, "--quiet", "--out", tmp_path / "run") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("certified after ")
    assert out.count("\n") == 1
    assert run("resume", tmp_path / "run", "-q") == 0
    assert capsys.readouterr().err == ""


def test_json(small, tmp_path, capsys):
    config = tmp_path / "directions.toml"
    config.write_text("history = 2\n")
    stopped = ["--rounds", 1, "--config", config]
    for arguments, code in (([], 0), (stopped, 7), (["--force", "--quiet"], 0)):
        out_directory = tmp_path / f"run{code}"
        assert run("train", small, "--json", "--out", out_directory, *arguments) == code
        document = json.loads(capsys.readouterr().out)
        assert document == {**result_of(out_directory), "run": str(out_directory)}
        assert run("resume", out_directory, "--json", "--rounds", 5000) == 0
        assert json.loads(capsys.readouterr().out)["status"] == "converged"


def test_a_contradiction_is_an_error(small, tmp_path, capsys, monkeypatch):
    contradict(monkeypatch)
    assert run("train", small, "--quiet", "--out", tmp_path / "run") == ExitCode.CONTRADICTION
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"fastadmm: error: contradiction after \d+ rounds?: planted; .*report it\n", err)
    result = result_of(tmp_path / "run")
    assert result["status"] == result["certificate"]["claim"] == "contradiction"
    assert result["gap"] is result["gap_absolute"] is None


def test_at_rounding_is_a_warning(tmp_path, capsys):
    data = write_problem(tmp_path / "a.parts")
    assert run("train", data, "--quiet", "--gap", 1e-17, "--out", tmp_path / "run") == ExitCode.NOT_CONVERGED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fastadmm: warning: at the limit of double precision after ")
    assert err.count("\n") == 1
    assert result_of(tmp_path / "run")["certificate"]["claim"] == "at_rounding"


def test_what_cannot_be_proved_without_a_regulariser_is_said_beforehand(small, tmp_path, capsys):
    said = "nothing bounds the weights: what is proved is proved among models in which no column contributes "
    none = ["--regularizer", "none"]
    assert run("train", small, *none, "--out", tmp_path / "none") == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(said)] == [f"{said}more than 1000 standard deviations"]
    assert result_of(tmp_path / "none")["certificate"]["claim"] == "certified_within"
    for name, bounded in (("box", [*none, "--set", "constraint=box:-1,1"]), ("l2", [])):
        assert run("train", small, *bounded, "--out", tmp_path / name) == 0
        assert said not in capsys.readouterr().err
        assert result_of(tmp_path / name)["certificate"]["claim"] == "certified"


def rounds(gaps):
    return deque(RoundRecord(k + 1, float(k), 0.5, g, g, 1.0, 1.0, 1.0, 1.0, 1.0) for k, g in enumerate(gaps))


def test_displays_that_draw_now_and_then(monkeypatch, capsys):
    falling = rounds([10.0 ** -(k / 2) for k in range(7)])  # half a digit per second
    assert seconds_left(falling, 1e-6) == pytest.approx(6.0)
    assert seconds_left(falling, 1e-3) == 0.0
    assert seconds_left(falling, 1.0) == 0.0
    assert seconds_left(falling, 0.0) is None
    assert seconds_left(rounds([1.0] * 9), 1e-6) is None
    assert seconds_left(rounds([1.0, 0.1]), 1e-6) is None
    assert seconds_left(rounds([float("inf"), *[0.1] * 9]), 1e-6) is None
    now = [0.0]
    monkeypatch.setattr("fastadmm.cli.display.time.monotonic", lambda: now[0])
    display = ProgressDisplay(live=False)
    display.start(1e-6, 100)
    for record in rounds([0.5**k for k in range(13)]):
        now[0] += 1.0
        display.round(record)
    display.stop()
    lines = capsys.readouterr().err.splitlines()
    assert [int(re.search(r"round (\d+)", line)[1]) for line in lines] == [5, 10, 13]
    assert re.match(r"ETA \d+ s · round 13 · ", lines[-1])


def test_a_line_of_progress_fits_the_terminal(capsys):
    records = deque(
        RoundRecord(9990 + k, 1e4 * k, -123456.789e7, 0.9**k, 0.9**k, 1.0, 1.0, 1.0, 1.0, 1.0)
        for k in range(10)
    )
    records.append(replace(records.pop(), test={"log_loss": 0.123456789}))
    told = replace(records[-1], exchanges=12)
    assert "gap 3.9e-01 · 12 exchanges · test" in progress_line(deque([told]), 1e-6, 100)
    line = progress_line(records, 1e-6, 100)
    wanted = "ETA 339 h 14 min · round 9999 · gap 3.9e-01 · test log loss 0.1235 · objective -1.23457e+12"
    assert line == wanted
    assert len(line) > 80 >= len(progress_line(records, 1e-6, 80))
    assert progress_line(records, 1e-6, 48).endswith("round 9999 · gap 3.9e-01")


class Notebook(io.StringIO):
    """A stream that redraws lines, as that of a notebook does."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize("tol", [1e-9, 1e-2])
def test_progress_in_a_notebook_is_one_line_that_ends(tol, monkeypatch):
    X, y = load_breast_cancer(return_X_y=True)
    stream = Notebook()
    monkeypatch.setattr("sys.stderr", stream)
    model = ADMMSharingClassifier(parties=3, tol=tol, callbacks=Progress()).fit(X / X.max(axis=0), y)
    # With an empty cache, a line about compiling comes first.
    shown = stream.getvalue()[stream.getvalue().index("\r") :]
    last, rest = shown.split("\r")[-1].split("\n")
    assert last.startswith(f"round {model.n_rounds_} · gap")
    assert rest == ""
    assert shown.count("\n") == 1
