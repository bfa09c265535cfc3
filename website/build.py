"""Build the documentation site: ``python website/build.py [OUT]``. Warnings are errors: a broken link fails.

The pages are those of ``docs/``, readable as they are wherever Markdown is; here they get a navigation, made
from the tables of ``docs/index.md``, and pages generated from the program.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"  # kernels are then functions with docstrings; before Numba is imported

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the repository's root, as they are called on the site.
ROOT_PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
#: Files of the repository by their address.
OWN = re.compile(
    r"https://(github\.com/fastadmm/fastadmm/blob|raw\.githubusercontent\.com/fastadmm/fastadmm)/main/"
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def relink(text: str, folder: Path, titles: Mapping[str, str] | None = None) -> str:
    """Point links to pages of the site; what the site does not hold stays as its text."""

    def one(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if own := OWN.match(target):
            target = os.path.relpath(ROOT / target[own.end() :], folder)
        name, hash_, anchor = target.partition("#")
        if not name or re.match(r"[a-z]+:", target):
            return match[0]
        path = Path(os.path.relpath(folder / name, ROOT))
        if path.parts[0] == "docs":
            new = "/".join(path.parts[1:])
        elif str(path) in ROOT_PAGES:
            new = ROOT_PAGES[str(path)]
        elif (ROOT / path).exists():
            return label if label.startswith("`") else f"`{label}`"
        else:
            new = name  # Sphinx will say that it is broken
        if titles and Path(label).name == path.name:
            label = titles.get(new, label)
        return f"{mark}[{label}]({new}{hash_}{anchor})"

    # Code is not ours to change.
    pieces = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(piece if k % 2 else LINK.sub(one, piece) for k, piece in enumerate(pieces))


def navigation(index: str) -> str:
    """Tables of contents, one per section of the index page, from the links that begin its tables' rows."""
    parts = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption = section.splitlines()[0]
        pages = re.findall(r"^\| \[[^\]]*\]\(([\w/-]+)\.(?:md|ipynb)\)", section, flags=re.MULTILINE)
        if caption == "Use":
            pages.append("api/index")
        if not pages:
            continue
        parts += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
    return "\n".join(parts) + "\n"


def prepare(source: Path) -> None:
    """Write Sphinx's source directory."""
    sys.path.insert(0, str(ROOT / "website"))
    from reference import api_pages, command_line

    shutil.copy(ROOT / "website" / "conf.py", source)
    shutil.copytree(ROOT / "docs" / "img", source / "img")
    shutil.copytree(ROOT / "docs" / "gallery", source / "gallery")
    shutil.copytree(ROOT / "website" / "static", source / "static")
    pages = {page: page.name for page in sorted((ROOT / "docs").glob("*.md"))}
    pages |= {ROOT / name: new for name, new in ROOT_PAGES.items()}
    titles = {
        new: page.read_text(encoding="utf-8").partition("\n")[0].strip("# ") for page, new in pages.items()
    }
    for page, new in pages.items():
        text = relink(page.read_text(encoding="utf-8"), page.parent, titles)
        (source / new).write_text(text, encoding="utf-8")
    index = source / "index.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(text + navigation(text), encoding="utf-8")
    with open(source / "cli.md", "a", encoding="utf-8") as page:
        page.write("\n" + command_line())
    (source / "api").mkdir()
    generated = api_pages()
    for name, text in generated.items():
        (source / "api" / name).write_text(text, encoding="utf-8")
    listed = "\n".join(f"   {name.removesuffix('.rst')}" for name in generated)
    (source / "api" / "index.rst").write_text(
        f"Python reference\n================\n\n.. toctree::\n   :maxdepth: 2\n\n{listed}\n", encoding="utf-8"
    )


def main() -> int:
    """Build into the directory given, ``website/html`` by default; Sphinx's exit code."""
    from sphinx.cmd.build import build_main

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "website" / "html"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs"
        source.mkdir()
        prepare(source)
        # MyST-NB writes beside the pages: everything is built here, and only the pages are kept.
        options = ["-W", "--keep-going", "-q", "-j", "auto", "-b", "html", "-d", f"{folder}/doctrees"]
        code = build_main([*options, str(source), f"{folder}/html"])
        if code == 0:
            shutil.rmtree(out, ignore_errors=True)
            shutil.move(f"{folder}/html", out)
            print(f"{out / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
