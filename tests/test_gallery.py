"""The gallery's notebooks: complete and clean as they lie there, and they run to what they show.

``make gallery WRITE=1`` writes what they run to.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from page_outputs import NUMBER, agrees
from run_tools import forking_commands

nbformat = pytest.importorskip("nbformat")

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
NAMES = sorted(path.stem for path in GALLERY.glob("*.ipynb"))


def read(name):
    """A notebook, and its cells of code."""
    notebook = nbformat.read(GALLERY / f"{name}.ipynb", 4)
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(cell):
    """What a cell prints and shows, but for pictures."""
    outputs = [output.get("data", output) for output in cell.outputs]
    kinds = ("text", "text/html", "text/plain")
    texts = (next((output[kind] for kind in kinds if kind in output), "") for output in outputs)
    return re.sub(r"(?m) +$", "", "\n".join(texts))


def run(name, monkeypatch, folder, rows="10_000_000"):
    """The cells as they ran in a folder, with other rows than those of the largest tables."""
    nbclient = pytest.importorskip("nbclient")
    path = [str(forking_commands()), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("TMPDIR", str(folder))
    notebook, cells = read(name)
    cells[0].source = cells[0].source.replace("ROWS = 10_000_000", f"ROWS = {rows}")
    options = {"timeout": 1200, "record_timing": False, "coalesce_streams": True}
    nbclient.NotebookClient(notebook, **options).execute(cwd=str(folder))
    if "FASTADMM_WRITE_GALLERY" in os.environ and rows == "10_000_000":
        nbformat.write(notebook, GALLERY / f"{name}.ipynb")
    return cells


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_from_top_to_bottom_and_can_be_coloured(name):
    lexers, token = pytest.importorskip("ipython_pygments_lexers"), pytest.importorskip("pygments.token")
    _, cells = read(name)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not [out for out in cell.outputs if out.output_type == "error" or out.get("name") == "stderr"]
        # Someone's machine, colours, times.
        assert not re.search(r"/(home|root|work|tmp|usr)/|\x1b|\b\d+(\.\d+)? ?m?s\b", said(cell)), said(cell)
        tokens = lexers.IPython3Lexer().get_tokens(cell.source)
        assert not [text for kind, text in tokens if kind in token.Error], cell.source
    assert (GALLERY / f"{name}.ipynb").stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_to_what_it_shows(name, monkeypatch, tmp_path, request):
    if name == "paper":
        monkeypatch.setenv("FASTADMM_DATA", str(request.getfixturevalue("shared_data")))
    ran = run(name, monkeypatch, tmp_path)
    for after, before in zip(ran, read(name)[1], strict=True):
        assert agrees(said(after), said(before)), said(after)
        assert [out.output_type for out in before.outputs] == [out.output_type for out in after.outputs]


def words(text):
    """Text without numbers, their units, and what aligns them."""
    return re.sub(r"\b[kMG]?B\b|[\W_]+", " ", NUMBER.sub("", text)).replace("streamed", "in memory")


@pytest.mark.slow
def test_a_hundredth_of_the_rows_says_the_same(monkeypatch, tmp_path):
    ran = run("large", monkeypatch, tmp_path, rows="100_000")
    for after, before in zip(ran, read("large")[1], strict=True):
        assert words(said(before)) == words(said(after))
