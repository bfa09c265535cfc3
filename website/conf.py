"""Sphinx: MyST pages, numpydoc docstrings, formulas as MathML. Nothing is fetched, not even by readers."""

from __future__ import annotations

import re
from typing import Any

import fastadmm
from docutils import nodes
from latex2mathml.converter import convert

project = "fastadmm"
author = "The fastadmm developers"
copyright = author
release = fastadmm.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
nb_execution_mode = "off"  # notebooks hold their outputs; tests run them
# Names such as n_samples occur in many classes; only pages' links have to be unambiguous.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6  # anchors as code hosts make them
smartquotes_action = "qe"  # quotes and ellipses; two hyphens begin an option

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_default_options = {"members": True, "show-inheritance": True}
toc_object_entries = False  # the navigation names modules; and building takes a third less time
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say it, with shapes
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"fastadmm {release}"
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_permalinks_icon = "#"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
# Colours with enough contrast, by a package that the theme brings.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def mathml(formula: str, *, display: bool) -> str:
    """A formula of LaTeX as MathML, which browsers render without help."""
    formula = formula.replace(r"\arg\min", r"\operatorname{arg\,min}").replace(r"\arg", r"\operatorname{arg}")
    text = convert(formula, display="block" if display else "inline")
    if unknown := re.findall(r"\\[A-Za-z]+", text):
        raise ValueError(f"formula {formula!r}: unknown {unknown[0]}")
    return text


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), display=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node.astext(), display=True)}</div>\n')
    raise nodes.SkipNode


def _skip(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn writes: its text refers to pages of its own."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


#: Characters up to which a table's cell and a name in code stay on one line: browsers break after a hyphen.
WHOLE_CELL, WHOLE_CODE = 10, 20


def _whole(app: Any, document: nodes.document, name: str) -> None:
    """Mark what must not be broken over lines: ``1e-3`` in a table, ``--quiet`` in a sentence."""
    short = [node for node in document.findall(nodes.entry) if len(node.astext()) <= WHOLE_CELL]
    short += [node for node in document.findall(nodes.literal) if len(node.astext()) <= WHOLE_CODE]
    for node in short:
        node["classes"].append("whole")


def setup(app: Any) -> dict[str, bool]:
    """Register the formulas' renderer with Sphinx."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-resolved", _whole)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
