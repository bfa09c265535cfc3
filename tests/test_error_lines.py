"""What the command line says about mistakes, to the letter: ``error_lines.txt`` and ``file_mistakes.txt``.

In these files ``> c.toml | key = 1`` writes a file, ``$ train d.parts`` is a command, and below it stand its
exit code and error line. To add a mistake, write its line; ``make snapshots`` fills in what the program
says. What other libraries say is left out.
"""

import itertools
import os
import re
import shlex
import shutil
from contextlib import chdir
from pathlib import Path

import h5py
import pytest

from owners_data import write_owners
from run_tools import run, write_problem

TABLE = Path(__file__).with_name("error_lines.txt")
FILES = Path(__file__).with_name("file_mistakes.txt")
ERROR = "fastadmm: error: "
FOREIGN = re.compile(
    r"(not TOML:|not valid (?:JSON|TOML):|no regular expression:|Unable to synchronously open file|"
    r"a damaged Parquet file \() ?[^;)]*"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Partitions, runs, owners and damaged files, under the names that the table uses."""
    home = tmp_path_factory.mktemp("home")
    (home / "x.csv").write_text("age,bmi,y\n" + "".join(f"{20 + i},{i % 7}.5,{i % 2}\n" for i in range(30)))
    (home / "guest.csv").write_text("id,age,y\na,1,no\nb,,yes\nc,3,no\nc,4,yes\n")
    (home / "host.csv").write_text("id,bmi,town\nb,2.5,Rome\nc,3.5,Oslo\nq,1.5,Rome\n")
    (home / "three.csv").write_text("a,b,y\n" + "".join(f"{i % 5},{i % 3},{i % 3}\n" for i in range(30)))
    (home / "value.csv").write_text("a,b,y\n" + "".join(f"{i % 5},{i % 3},{i * i / 7}\n" for i in range(30)))
    (home / "junk.h5").write_text("no HDF5")
    (home / "junk.toml").write_text("key = = 1\n")
    (home / "empty").mkdir()
    (home / "full").mkdir()
    (home / "full" / "note.txt").write_text("keep me")
    os.mkfifo(home / "pipe")
    (home / "loop").symlink_to("loop")
    for name in ("damaged", "parts", "mixed"):
        (home / name).mkdir()
    (home / "damaged" / "partition.toml").write_text("format = 'fastadmm-part")
    write_problem(home / "d.parts", 40, (2, 3))
    write_problem(home / "wide.parts", 40, (2, 4))
    write_problem(home / "one.parts", 40, (3,))
    write_owners(home / "d.owners")
    lines = (
        "convert three.csv --columns 1,1 --label y --task classification -o three.parts",
        "convert value.csv --columns 1,1 --label y -o value.parts",
        "train d.parts --lambda 1e-2 -q --threads 1 -o run",
        "train d.parts --lambda 1e-2 -q --privacy message --epsilon 1 --delta 1e-3 -o private",
        "owners train d.owners --epsilon 2 --bound clip:1 --step 0.1 --rounds 2 -q -o owners-run",
        "coordinator start d.parts/labels.h5 --party party-1 --party party-2 --lambda 1e-2 -o exchange",
        "party approve exchange/requests/party-1-000000.msg --data d.parts/party-1.h5 -o approval.toml",
        "predict run/model/party-1.h5 d.parts/party-1.h5 --partial -o part.h5",
        "export run --party party-1 -o party-1.h5",
    )
    with chdir(home):
        for line in lines:
            assert run(*shlex.split(line)) in (0, 7), line
        shutil.copytree("d.parts", "cut.parts")
        raw = Path("cut.parts/party-1.h5").read_bytes()
        Path("cut.parts/party-1.h5").write_bytes(raw[: len(raw) // 2])
        shutil.copytree("run", "no-model")
        shutil.rmtree("no-model/model")
        shutil.copytree("run", "future")
        manifest = Path("future/model/model.toml")
        manifest.write_text(re.sub('version = "[0-9.]+"', 'version = "9.0"', manifest.read_text()))
        shutil.copy("d.parts/labels.h5", "future.h5")
        with h5py.File("future.h5", "a") as file:
            file.attrs["encoding-version"] = "9.0"
        with h5py.File(shutil.copy("d.parts/labels.h5", "unversioned.h5"), "a") as file:
            del file.attrs["encoding-version"]
    return home


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A model of a table with marks, dates and words for missing cells."""
    home = tmp_path_factory.mktemp("tables")
    cities = ("Rome", "Oslo", "?")
    rows = "".join(
        f"{i};{1 + i % 7}.000,{i % 10}5;2010-01-{10 + i};{cities[i % 3]};{i}%;{('no', 'yes')[i % 2]}\n"
        for i in range(12)
    )
    (home / "old.csv").write_text("id;income;joined;city;share;y\n" + rows)
    lines = (
        "convert --guest old.csv --id id --label y --types joined=days --na-values ? --missing most-frequent "
        "-o ugly.parts",
        "train ugly.parts -q --threads 1 --rounds 3 -o ugly",
    )
    with chdir(home):
        for line in lines:
            assert run(*shlex.split(line)) in (0, 7), line
    return home


def _content(text):
    return re.sub(
        r"\\(x..|[ntr0])", lambda match: f'"{match[0]}"'.encode().decode("unicode_escape")[1:-1], text
    )


def told(home, capsys, text):
    """The table, with what the program says now."""
    lines = []
    with chdir(home):
        for line in text.splitlines():
            if line.startswith("> "):
                file, _, content = line[2:].partition(" | ")
                name, _, encoding = file.partition(":")
                Path(name).write_bytes((_content(content) + "\n").encode(encoding or "utf-8"))
            if line.startswith("$ "):
                capsys.readouterr()
                code = run(*shlex.split(line[2:]))
                out, errors = capsys.readouterr()
                err = [line for line in errors.splitlines() if line.startswith(ERROR)]
                if code == 0:  # what was noticed stands above the summary
                    err = [*itertools.takewhile(lambda line: not line.startswith("out"), out.splitlines())]
                    err += [line.removeprefix("fastadmm: ") for line in errors.splitlines()]
                said = FOREIGN.sub(r"\1", " // ".join(text.removeprefix(ERROR) for text in err))
                lines += [line, f"{code} {said.replace(str(home), 'HOME')}".rstrip()]
                for path in (path for path in Path().iterdir() if path.name.startswith((".", "out"))):
                    lines[-1] += f" // leaves {path}" if code else ""
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif not re.match(r"\d", line):
                lines.append(line)
    return "\n".join(lines) + "\n"


def _compare(table, home, capsys):
    known = table.read_text(encoding="utf-8")
    now = told(home, capsys, known)
    if "FASTADMM_WRITE_SNAPSHOTS" in os.environ:
        table.write_text(now, encoding="utf-8")
    assert now.splitlines() == table.read_text(encoding="utf-8").splitlines()
    return now


def test_error_lines(home, capsys):
    now = _compare(TABLE, home, capsys)
    assert not re.search(r"(?m)^[01]\b| // ", now), "a success, a defect, several lines, or something left"
    assert (home / "full" / "note.txt").read_text() == "keep me"


@pytest.mark.repeats
def test_no_mistake_in_a_file_is_silent(tables, capsys):
    now = _compare(FILES, tables, capsys)
    assert not re.search(r"(?m)^0$|^1\b|^[2-9].* // ", now), "silent, a defect, or several lines"
    assert now.count("\n$ ") >= 200
