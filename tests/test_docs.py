"""README and docs: examples run, links lead somewhere, numbers are the measured ones, no private paths."""

import doctest
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from pathlib import Path

import fastadmm
import pytest

from house import the_house
from page_outputs import agrees, anchor_of
from run_tools import forking_commands
from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MARKED = re.compile(r"<!-- runnable -->\n```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
#: Printed between the outputs of two commands.
END = "--- end of the output ---"

#: Files of the repository by their address: the README's links have to work on a package index, too.
OWN = re.compile(
    r"^https://(github\.com/fastadmm/fastadmm/blob|raw\.githubusercontent\.com/fastadmm/fastadmm)/main/"
)

#: Hosts that a reader can reach; anything else is a slip.
HOSTS = {
    "127.0.0.1",  # the reader's own machine
    "anndata.readthedocs.io",
    "arxiv.org",
    "cran.r-project.org",
    "doi.org",
    "fastadmm.github.io",
    "github.com",
    "json-schema.org",
    "keepachangelog.com",
    "raw.githubusercontent.com",
    "semver.org",
    "www.apache.org",
    "www.csie.ntu.edu.tw",
    "www.w3.org",
}


def examples(page):
    """Language, text and output shown (in a block of its own) of the examples marked runnable, in order."""
    return MARKED.findall(page.read_text(encoding="utf-8"))


def tracked_texts():
    """Every text file that git tracks; where there is no git, the ones a release is made of."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n")[:-1] if listed.returncode == 0 else []
    patterns = ["*.*", "docs/**/*", "fastadmm/**/*", "kernels/*", "data_tools/*", "tests/*", "bench/*"]
    files = [ROOT / name for name in names] or [path for each in patterns for path in ROOT.glob(each)]
    for path in {*files, *PAGES}:
        if path.is_file():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_the_readme_runs(tmp_path):
    run_examples(ROOT / "README.md", tmp_path)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "page", [p for p in PAGES if examples(p) and p.name != "README.md"], ids=lambda p: p.name
)
def test_marked_examples_run(page, tmp_path):
    run_examples(page, tmp_path)


def run_examples(page, tmp_path):
    """Run a page's examples; where the page shows outputs, it shows these."""
    # One directory per page: an example may use what an earlier one made.
    names = {}
    path = [str(forking_commands()), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    env = {**os.environ, "PATH": os.pathsep.join(path), "COLUMNS": "80"}
    for language, text, shown in examples(page):
        if language == "console":
            commands = re.findall(r"(?m)^\$ (.*)$", text)
            outputs = [part.partition("\n")[2] for part in re.split(r"(?m)^\$ ", text)[1:]]
            assert commands, f"{page.name}: a console example needs lines that start with '$ '"
            done = subprocess.run(
                ["bash", "-euc", "".join(f"{command}\necho '{END}'\n" for command in commands)],
                cwd=tmp_path,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=400,
            )
            assert done.returncode == 0, done.stdout
            for command, printed, output in zip(commands, done.stdout.split(f"{END}\n"), outputs):
                assert not output or agrees(printed, output), f"{page.name}: $ {command}\n{printed}"
        elif language == "python":
            with redirect_stdout(io.StringIO()) as stream:
                exec(compile(text, str(page), "exec"), names)
            assert not shown or agrees(stream.getvalue(), shown), f"{page.name}: {stream.getvalue()}"
        elif language == "pycon":
            test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            said = []
            runner.run(test, out=said.append, clear_globs=False)
            assert not runner.summarize(verbose=False).failed, "".join(said)
            names.update(test.globs)
        else:
            pytest.fail(f"{page.name}: examples in {language} cannot be run")


@pytest.mark.parametrize(
    ("shown", "yes"),
    [
        ("rounds 5\nloss 0.1235\ngap 6.4e-14 in 0.3 s\n", True),
        ("rounds 5\n...\n", True),
        ("...\ngap 8.1e-15 in 7 s\n", True),
        ("...\nloss 0.12 ...\n...\n", True),
        ("rounds 6\n...\n", False),
        ("rounds 5\nloss 0.1245\n...\n", False),
        ("rounds 5\nloss 0.1235\n", False),
        ("...\nloss 0.1235\n", False),
        ("loss 0.1235\n...\n", False),
    ],
)
def test_outputs_are_compared_to_the_digits_shown(shown, yes):
    assert agrees("rounds 5\nloss 0.12349\ngap 6.4e-14 in 1.2 s\n", shown) == yes


def test_the_readme_is_whole():
    assert [language for language, *_ in examples(ROOT / "README.md")] == ["python", "console"]
    # Readme works on a package index.
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900  # a stranger reads it
    text = without_code(text)
    assert not [
        target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith("https://")
    ]
    # A page says at once which question it answers.
    for page in (ROOT / "docs").glob("*.md"):
        begin = page.read_text(encoding="utf-8").splitlines()[2:4]
        assert page.name == "index.md" or "?" in "".join(begin), page.name
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, (
            f"docs/index.md does not list {page.name}"
        )


def test_every_marker_belongs_to_an_example():
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("<!-- runnable -->") == len(examples(page)), page.name


def without_code(text):
    """Markdown without fenced, indented-fence and inline code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_relative_links_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        target = OWN.sub(f"{os.path.relpath(ROOT, page.parent)}/", target)
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.is_relative_to(ROOT), f"{page.name}: {target} leaves the repository"
        assert path.exists(), f"{page.name}: {target} does not exist"
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(anchor_of, headings), f"{page.name}: {target} has no such heading"


def test_readme_numbers_are_the_measured_ones_and_hold_what_it_claims():
    script = script_of("bench/readme.py")
    numbers = json.loads((ROOT / "bench" / "readme.json").read_text(encoding="utf-8"))
    apart = json.loads((ROOT / "bench" / "apart.json").read_text(encoding="utf-8"))
    for page, blocks in script.render(numbers, apart).items():
        text = page.read_text(encoding="utf-8")
        assert script_of("bench/page.py").with_blocks(text, blocks) == text, "run: make readme"
    picture = script_of("bench/idea.py")
    assert picture.draw(numbers["demo"]) == picture.PICTURE.read_text(encoding="utf-8"), "run: make readme"
    # Measured numbers hold what the readme claims.
    numbers = json.loads((ROOT / "bench" / "readme.json").read_text(encoding="utf-8"))
    assert [row["lambda"] for row in numbers["a9a"]] == [1e-2, 1e-3, 1e-4, 1e-5]
    for row in numbers["a9a"]:
        # "the certified gap never lies below the truth", up to rounding of F itself
        assert row["gap"] <= 1e-6
        assert row["suboptimality"] <= row["gap"] + 1e-15
    alone, joint = numbers["demo"]["models"][:3], numbers["demo"]["models"][-1]
    assert joint["joint"]
    assert joint["log_loss"] < min(model["log_loss"] for model in alone)
    assert numbers["machine"]["versions"]["fastadmm"] == fastadmm.__version__


def test_pictures_are_plain_svg():
    pictures = list((ROOT / "docs" / "img").glob("*.svg"))
    assert pictures
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")
        assert "<script" not in text
        assert "dc:date" not in text
        assert path.name in shown, f"{path.name} is not shown anywhere"


def test_changelog_knows_the_version_and_tells_things_once():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(version)}\]", text, re.MULTILINE)
    assert fastadmm.__version__ == version
    for name, pattern in (("CITATION.cff", "^version: (.*)$"), ("conda/recipe.yaml", '^  version: "(.*)"$')):
        assert re.findall(f"(?m){pattern}", (ROOT / name).read_text(encoding="utf-8")) == [version], name
    assert text.index("## [Unreleased]") < text.index(f"## [{version}]")
    # Merges bring old entries back; they were long lines, and some came twice.
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > 130]
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) == len(set(entries))


@pytest.mark.slow
def test_source_archive_holds_every_file(tmp_path):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    subprocess.run(
        [sys.executable, "-P", "-m", "build", "--sdist", "--no-isolation", "-o", str(tmp_path), str(ROOT)],
        capture_output=True,
        check=True,
    )
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert set(listed.stdout.splitlines()) - held <= {".gitignore"}


def test_no_machine_paths_and_only_public_hosts():
    # Put together here, so that this file does not contain what it looks for.
    private = re.compile(
        "(?<![A-Za-z0-9_.])/(?:" + "|".join(["work", "home", "root", "Users", "mnt"]) + ")/[a-z]"
    )
    for path, text in tracked_texts():
        name = path.relative_to(ROOT)
        found = private.search(text)
        assert found is None, f"{name}: machine path {found[0]}" if found else ""
        if path.suffix not in (".svg", ".py"):  # tests invent hosts
            for host in re.findall(r"https?://([A-Za-z0-9.-]+)", text):
                assert host in HOSTS or name.name == "LICENSE", f"{name}: {host}"


TRUSTED = ROOT / "docs" / "certificate.md"
ROOM = sorted((ROOT / "fastadmm" / "proof").glob("*.py"))
SUMS = [ROOT / "kernels" / f"{name}.py" for name in ("compensated", "fused_multiply_add")]
PLAIN = [ROOT / "fastadmm" / "runs" / f"{name}.py" for name in ("recompute", "plain")]


def reached(paths):
    """These files and all that they import, in however many steps."""
    house = the_house()
    found = set()
    left = [module.name for module in house.modules.values() if module.path in paths]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(house.imports[name])
    return {house.modules[name].path for name in found}


def lines(paths):
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_no_more_lines_are_trusted_than_the_page_says():
    block = (
        TRUSTED.read_text(encoding="utf-8").split("<!-- lines:begin -->")[1].split("<!-- lines:end -->")[0]
    )
    told = [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) \|$", block, re.MULTILINE)]
    below = reached(ROOM) - {*ROOM, *SUMS}
    found = [lines(part) for part in (ROOM, SUMS, below, [*PLAIN, ROOT / "fastadmm" / "runs" / "verify.py"])]
    assert all(real <= number for real, number in zip(found, told, strict=True)), (found, told)


def test_neither_proof_reaches_what_finds_models():
    rooms = {path.relative_to(ROOT).parts[:2] for path in reached(ROOM)}
    assert not rooms & {("fastadmm", name) for name in ("coordinator", "parties", "solver", "runs")}
    formulas = {path.relative_to(ROOT).as_posix() for path in reached(PLAIN)}
    allowed = {"fastadmm/runs/recompute.py", "fastadmm/runs/plain.py", "fastadmm/errors.py"}
    assert formulas - {"fastadmm/__init__.py", "fastadmm/runs/__init__.py"} <= allowed
