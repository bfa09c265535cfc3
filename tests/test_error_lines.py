"""What the command line says about mistakes, to the letter: ``error_lines.txt``.

In that file ``> c.toml | key = 1`` writes a file, ``$ train d.parts`` is a command, and below it stand its
exit code and error line. To add a mistake, write its line; ``make error-lines`` fills in what the program
says. What other libraries say is left out.
"""

from __future__ import annotations

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
ERROR = "fastadmm: error: "
FOREIGN = re.compile(r"(Invalid value for '[^']+':|not TOML:|Unable to synchronously open file) ?[^;)]*")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    write_problem(home / "d.parts", 40, (2, 3))
    write_problem(home / "wide.parts", 40, (2, 4))
    write_owners(home / "d.owners")
    lines = (
        "convert three.csv --columns 1,1 --label y --task classification -o three.parts",
        "convert value.csv --columns 1,1 --label y -o value.parts",
        "train d.parts --lambda 1e-2 -q --threads 1 -o run",
        "train d.parts --lambda 1e-2 -q --privacy message --epsilon 1 --delta 1e-3 -o private",
        "owners train d.owners --epsilon 2 --bound clip:1 --step 0.1 --rounds 2 -q -o owners-run",
        "coordinator start d.parts/labels.h5 --party party-1 --party party-2 --lambda 1e-2 -o exchange",
        "party approve exchange/requests/party-1-000000.h5 --data d.parts/party-1.h5 -o approval.toml",
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
    return home


def told(home: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """The table, with what the program says now."""
    lines = []
    with chdir(home):
        for line in text.splitlines():
            if line.startswith("> "):
                name, _, content = line[2:].partition(" | ")
                Path(name).write_text(content.replace("\\n", "\n") + "\n", encoding="utf-8")
            if line.startswith("$ "):
                capsys.readouterr()
                code = run(*shlex.split(line[2:]))
                err = [line for line in capsys.readouterr().err.splitlines() if line.startswith(ERROR)]
                said = FOREIGN.sub(r"\1", " // ".join(text.removeprefix(ERROR) for text in err))
                lines += [line, f"{code} {said.replace(str(home), 'HOME')}".rstrip()]
                for path in (path for path in Path().iterdir() if path.name.startswith((".", "out"))):
                    lines[-1] += f" // leaves {path}"
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif not re.match(r"\d", line):
                lines.append(line)
    return "\n".join(lines) + "\n"


def test_error_lines(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = TABLE.read_text(encoding="utf-8")
    now = told(home, capsys, table)
    if "FASTADMM_WRITE_ERROR_LINES" in os.environ:
        TABLE.write_text(now, encoding="utf-8")
    assert now.splitlines() == table.splitlines()
    assert not re.search(r"(?m)^[01]\b| // ", now), "a success, a defect, several lines, or something left"
