"""Pipes are not waited for; numbers and brackets without end are one line."""

import json
import os
import re
import signal
from pathlib import Path

import fastadmm
import pytest
from fastadmm.errors import ExitCode, FormatError, StorageError
from fastadmm.files.reading import parse_json, parse_toml, read_bytes, read_json

from run_tools import refuses, run, write_problem

DIGITS = "9" * 6000
DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DIGITS, DEEP, "{", b"\xff", f'{{"a": {DIGITS}}}', ""])
def test_json_that_nobody_writes_is_one_line(text):
    refuses(FormatError, r"^file: not (our )?JSON", parse_json, text, "file")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 65 + "]" * 65, "too deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "too deep"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' occurs twice"),
        ("NaN", "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        ("1e309", "1e309 is no finite number"),
        ("9" * 309, "309 digits is no finite number"),
        ('"\\ud800"', "surrogates"),
        ('{"\\udfff": 1}', "surrogates"),
    ],
)
def test_json_of_others_has_nothing_that_no_code_expects(text, says):
    refuses(FormatError, rf"^file: not JSON: .*{says}", parse_json, text, "file", foreign=True)
    if "occurs" not in says:
        parse_json(text, "file")  # ours may have an infinite number


def test_files_and_json_of_others_are_what_they_say(tmp_path):
    document = {"ä": [1, -2.5, "\U0001f600", None, True, {"x": [[]]}], "y": 10**300}
    assert parse_json(json.dumps(document), "file", foreign=True) == document
    assert parse_json("[" * 64 + "]" * 64, "file", foreign=True)
    for wrong, says in ((DIGITS, "TOML: a number of thousands of digits"), (DEEP, "our TOML: .*too deep")):
        refuses(FormatError, f"^file: not {says}", parse_toml, f"a = {wrong}", "file")
    # Json is decoded in one place.
    package = Path(fastadmm.__file__).parent
    found = {p.name for p in package.rglob("*.py") if re.search(r"json\.loads?\(", p.read_text("utf-8"))}
    assert found - OWN == {"reading.py"}
    # A file that is too long is not read.
    (tmp_path / "long").write_bytes(b"x" * 11)
    refuses(FormatError, "11 bytes", read_bytes, tmp_path / "long", most=10)
    refuses(StorageError, "directory", read_json, tmp_path)


#: Journals and pipes of this user's own processes.
OWN = {"audit.py", "carrier.py", "keys.py", "ledger.py", "ledger_file.py", "memory.py"}
OWN |= {"party_tasks.py", "session.py"}


@pytest.mark.parametrize("text", [f"a = {DIGITS}", f"a = {DEEP}", "a", b"\xff"])
def test_toml_that_nobody_writes_is_one_line(text):
    refuses(FormatError, r"^file: not (our )?TOML", parse_toml, text, "file")


COMMANDS = [
    "inspect @pipe",
    "train @data.parts --config @pipe -o @out",
    "train @pipe.parts -o @out",
    "convert @pipe --parties 2 -o @out.parts",
    "convert --guest @pipe --id id --label y -o @out.parts",
    "convert --guest @t.csv --id id --label y --align @pipe -o @out.parts",
    "align psi-respond @t.csv --id id --request @pipe -o @out",
    "predict --partial @pipe @data.parts/party-1.h5 -o @out",
    "coordinator start @pipe --party a -o @out",
    "party step --data @data.parts/party-1.h5 --state @state --in @pipe -o @out",
    "predict @run @pipe -o @out",
    "inspect @run/model",
    "export @run --party party-1 -o @out.h5",
    "import @pipe @run",
    "party step --data @data.parts/party-1.h5 --state @state --in @request.h5 -o @pipe",
    "owners train @pipe.owners --epsilon 1 --bound clip:1 --step 0.1 --rounds 1 -o @out",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("pipes")
    write_problem(home / "data.parts", 20, (2, 2))
    (home / "t.csv").write_text("id,a,y\n1,2,0\n2,3,1\n")
    out = home / "run"
    assert run("train", home / "data.parts", "--lambda", 1e-2, "--threads", 1, "-q", "-o", out) == 0
    assert run("export", out, "--party", "party-1", "-o", home / "part.h5") == 0
    labels = home / "data.parts" / "labels.h5"
    parties = ("--party", "party-1", "--party", "party-2")
    assert run("coordinator", "start", labels, *parties, "--lambda", 1e-2, "-o", home / "exchange") == 0
    (home / "exchange" / "requests" / "party-1-000000.msg").rename(home / "request.h5")
    for name in ("rounds.jsonl", "model/party-1.h5"):
        (out / name).unlink()
        os.mkfifo(out / name)
    os.mkfifo(home / "pipe")
    for name in ("pipe.parts/partition.toml", "pipe.owners/owners.toml"):
        (home / name).parent.mkdir()
        os.mkfifo(home / name)
    return home


@pytest.mark.parametrize("line", COMMANDS)
def test_a_pipe_is_refused_and_not_waited_for(home, line, capsys):
    words = [str(home / word[1:]) if word.startswith("@") else word for word in line.split()]
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for the pipe"))
    signal.alarm(20)
    try:
        code = run(*words)
    finally:
        signal.alarm(0)
    err = capsys.readouterr().err
    assert code == ExitCode.STORAGE, err
    assert "not a regular file" in err or "not made by" in err
    assert err.count("\n") == 1
    assert not list(home.glob("out*"))
