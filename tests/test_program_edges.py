"""Standard streams that are closed, full or left, odd surroundings, places that are not ours to replace."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from run_tools import refused, run, write_problem

pytestmark = pytest.mark.skipif(os.name == "nt", reason="shells, devices and links of POSIX")
PROGRAM = f"{shlex.quote(sys.executable)} -P -m fastadmm"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_problem(home / "d.parts", 40, (2, 3))
    assert run("train", home / "d.parts", "-q", "--threads", 1, "-o", home / "run") == 0
    return home


def shell(home, command, **variables):
    return subprocess.run(
        ["bash", "-c", command.replace("fastadmm", PROGRAM)],
        cwd=home, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "command", "made"),
    [
        ("2>&1 | true", "train d.parts --threads 1", "result.json"),
        ("<&- >&- 2>&-", "train d.parts --threads 1", "result.json"),
        (">&- 2>/dev/full", "card run", ""),
    ],
)
def test_output_may_be_lost_but_never_the_work(home, tmp_path, ends, command, made):
    out = tmp_path / "out"
    done = shell(home, f"set -o pipefail; fastadmm {command} -o {shlex.quote(str(out))} {ends}")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert (out / made).stat().st_size > 500


def test_odd_folders_and_outputs_are_one_line(home, tmp_path):
    for command in ("predict run d.parts", "inspect run --json"):
        done = shell(home, f"fastadmm {command} >/dev/full")
        assert done.returncode == 6
        assert done.stderr.startswith("fastadmm: error: standard output: cannot write: No space left")
        assert done.stderr.count("\n") == 1
    # A deleted working directory is one line.
    for command in ("train d.parts", "demo", f"inspect {shlex.quote(str(home / 'run'))}"):
        done = shell(home, f"mkdir gone && cd gone && rmdir ../gone && fastadmm {command}")
        error = "fastadmm: error: the working directory is gone; change to another one\n"
        assert (done.returncode, done.stderr) == (6, error)
    # A folder whose name is no text.
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/n\xff")
    os.symlink(home, odd)
    inside = tmp_path / "x"
    for command in ("card run", f"predict run d.parts -o {shlex.quote(str(inside))}"):
        done = shell(Path(odd), f"fastadmm {command}")
        assert done.returncode == 0, done.stderr


def test_a_terminal_of_ascii_gets_escapes_and_a_table_utf_8(home):
    done = shell(home, "fastadmm inspect run", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    (home / "t.csv").write_text("id,a,y\n\xe4,1,0\n\xfc,2,1\n\xf6,3,0\n", encoding="utf-8")
    assert (
        run("convert", "--guest", home / "t.csv", "--id", "id", "--label", "y", "-o", home / "t.parts") == 0
    )
    assert run("train", home / "t.parts", "-q", "-o", home / "t.run") == 0
    done = shell(home, "fastadmm predict t.run t.parts", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert "\xfc," in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("NUMBA_NUM_THREADS", "0", 5), ("SOURCE_DATE_EPOCH", "x", 5), ("SOURCE_DATE_EPOCH", "0", 0),
        ("NUMBA_OPT", "x", 0),
    ],
)  # fmt: skip
def test_a_bad_variable_is_one_line(home, variable, value, code):
    done = shell(home, "fastadmm predict run d.parts", **{variable: value})
    assert done.returncode == code
    assert done.stderr.count("\n") == (code > 0)
    if code:
        wanted = f"fastadmm: error: {variable}='{value}': not a whole number from"
        assert done.stderr.startswith(wanted)


def test_force_replaces_only_files_and_folders_of_ours(home, tmp_path, capsys):
    elsewhere, pipe = tmp_path / "elsewhere", tmp_path / "pipe"
    elsewhere.mkdir()
    (elsewhere / "kept.csv").write_text("keep me")
    (tmp_path / "link").symlink_to(elsewhere / "kept.csv")
    (tmp_path / "folder").symlink_to(elsewhere / "run")
    os.mkfifo(pipe)
    os.mkfifo(tmp_path / "pipe.html")
    assert run("train", home / "d.parts", "-q", "--threads", 1, "-o", elsewhere / "run") == 0
    kept = (elsewhere / "run" / "run.toml").read_bytes()
    capsys.readouterr()
    for command in (("predict", home / "run", home / "d.parts"), ("card", home / "run")):
        for place, why in ((pipe, "no regular file"), (tmp_path / "link", "a link to")):
            assert run(*command, "--force", "-o", place) == 6
            assert f"{place}: not replaced: it is {why}" in capsys.readouterr().err
    assert "no regular file" in refused(capsys, 6, "report", home / "run", "-o", tmp_path / "pipe.html")
    assert run("train", home / "d.parts", "-q", "--force", "-o", tmp_path / "folder") == 6
    assert "not replaced: it is a link to" in capsys.readouterr().err
    assert (elsewhere / "run" / "run.toml").read_bytes() == kept
    assert (elsewhere / "kept.csv").read_text() == "keep me"
    assert pipe.is_fifo()


def changed(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_edited_settings_and_parts_are_refused_by_all_who_read_them(home, tmp_path, capsys):
    for name in ("a", "b"):
        shutil.copytree(home / "run", tmp_path / name)
    changed(tmp_path / "a" / "run.toml", "lambda = 0.0001", "lambda = 0.001")
    for command in ("inspect", "compare", "card", "report", "resume"):
        more = [tmp_path / "b"] if command == "compare" else []
        assert run(command, tmp_path / "a", *more) == 4, command
        assert "run.toml: damaged, or changed since it was written" in capsys.readouterr().err
    (tmp_path / "b" / "result.json").unlink()
    (tmp_path / "d.parts").symlink_to(home / "d.parts")
    settings = tmp_path / "b" / "run.toml"
    settings.write_text(settings.read_text().split("[provenance]")[0])
    assert "provenance" in refused(capsys, 4, "resume", tmp_path / "b", "-q")
    # A changed part is not imported nor a changed model resumed.
    model = tmp_path / "run"
    shutil.copytree(home / "run", model)
    part, raw = tmp_path / "part.h5", tmp_path / "changed.h5"
    for out in (part, raw):
        assert run("export", model, "--party", "party-1", "-o", out) == 0
    whole = (model / "model" / "party-1.h5").read_bytes()
    with h5py.File(raw, "r+") as file:
        file["weights"][0] = 2 * file["weights"][0]
    capsys.readouterr()
    assert run("import", raw, model, "--force") == 4
    assert "changed since it was written (its digest differs)" in capsys.readouterr().err
    (model / "model" / "party-1.h5").unlink()
    assert run("import", part, model) == 0
    assert (model / "model" / "party-1.h5").read_bytes() == whole
    assert run("resume", model) == 0
    shutil.copy(raw, model / "model" / "party-1.h5")
    assert "its digest differs" in refused(capsys, 4, "resume", model)


def test_a_request_that_changed_on_its_way_is_not_answered(home, tmp_path, capsys):
    labels, parties = home / "d.parts" / "labels.h5", ("--party", "party-1", "--party", "party-2")
    assert run("coordinator", "start", labels, *parties, "-o", tmp_path / "x") == 0
    (request,) = (tmp_path / "x" / "requests").glob("party-1-*.msg")
    raw = bytearray(request.read_bytes())
    raw[len(raw) // 2] ^= 1
    request.write_bytes(raw)
    capsys.readouterr()
    arguments = ("--data", home / "d.parts" / "party-1.h5", "-o", tmp_path / "approval.toml")
    assert run("party", "approve", request, *arguments) == 4
    assert "changed since it was written (its digest differs)" in capsys.readouterr().err
