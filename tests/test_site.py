"""The documentation site: its links, its navigation from docs/index.md, and that warnings are errors."""

import json
import re
import tarfile
from pathlib import Path

import fastadmm
import pytest

from scripts import script_of

ROOT = Path(__file__).resolve().parents[1]


def load(name):
    return script_of(f"website/{name}.py")


@pytest.fixture
def build(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")  # restored afterwards: the script sets it for itself
    return load("build")


def test_links_lead_to_the_site(build):
    docs = ROOT / "docs"
    assert build.relink("[a](solver.md#x) ![i](img/a.svg)", docs) == "[a](solver.md#x) ![i](img/a.svg)"
    assert build.relink("[r](../README.md) [c](../CHANGELOG.md)", docs) == "[r](readme.md) [c](changelog.md)"
    assert build.relink("[p](docs/privacy.md#limits)", ROOT) == "[p](privacy.md#limits)"
    assert build.relink("[w](https://arxiv.org) [here](#a)", docs) == "[w](https://arxiv.org) [here](#a)"
    assert build.relink("[bench/readme.py](../bench/readme.py)", docs) == "`bench/readme.py`"
    titles = {"privacy.md": "What is protected"}
    for label, shown in (("docs/privacy.md", "What is protected"), ("there", "there")):
        target = "https://github.com/fastadmm/fastadmm/blob/main/docs/privacy.md"
        assert build.relink(f"[{label}]({target})", ROOT, titles) == f"[{shown}](privacy.md)"
    code = "`[a](../x.md)`\n```\n[b](../y.md)\n```\n"
    assert build.relink(code, docs) == code
    assert "(nowhere.md)" in build.relink("[n](nowhere.md)", docs)  # left for Sphinx to refuse


def test_navigation_holds_every_page_once(build):
    text = build.relink((ROOT / "docs" / "index.md").read_text(encoding="utf-8"), ROOT / "docs")
    entries = [line for line in build.navigation(text).splitlines() if line and line[0] not in ":`"]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    pages |= {f"gallery/{path.stem}" for path in (ROOT / "docs" / "gallery").glob("*.ipynb")}
    assert sorted(entries) == sorted(pages | {"readme", "contributing", "changelog", "api/index"})
    for caption in ("Use", "Gallery", "Check", "Taking part"):
        assert f":caption: {caption}" in build.navigation(text)


def test_versions_lie_beside_each_other(tmp_path):
    for version in ("0.9", "0.10.1"):
        page = tmp_path / version / "index.html"
        page.parent.mkdir()
        page.write_text(version, encoding="utf-8")
        with tarfile.open(tmp_path / f"site-{version}.tar.gz", "w:gz") as archive:
            archive.add(page, "index.html")
    site = tmp_path / "site"
    site.mkdir()
    add_versions = load("versions").add_versions
    assert add_versions(site, sorted(tmp_path.glob("*.tar.gz"))) == ["0.10.1", "0.9"]
    assert json.loads((site / "versions.json").read_text(encoding="utf-8")) == ["0.10.1", "0.9"]
    assert (site / "0.9" / "index.html").read_text(encoding="utf-8") == "0.9"
    with pytest.raises(ValueError, match=r"site-1\.2\.3\.tar\.gz"):
        add_versions(site, [tmp_path / "other.tar.gz"])


def test_reference_covers_exported_names_kernels_and_commands():
    reference = load("reference")
    pages = reference.api_pages()
    listed = re.findall(r":members: (.*)", pages["fastadmm.rst"])
    assert sorted(", ".join(listed).split(", ")) == sorted(fastadmm.__all__)
    assert ".. automodule:: fastadmm.kernels.logistic" in pages["fastadmm.kernels.rst"]
    text = reference.command_line()
    for command in ("convert", "train", "owners forecast", "party step", "align psi-request"):
        name = command if command != "owners forecast" else "forecast"
        assert f"`fastadmm {name}`" in text
    assert "--lambda" in text


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    pytest.importorskip("docutils")
    conf = load("conf")
    text = conf.mathml(r"x^+ = \arg\min_x \tfrac12 \|D_m x - w\|^2", display=True)
    assert text.startswith("<math")
    assert 'display="block"' in text
    assert "\\" not in text
    with pytest.raises(ValueError, match=r"unknown \\nosuchthing"):
        conf.mathml(r"\nosuchthing x", display=False)
