"""The page of theorems and the functions that implement them name each other."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import fastadmm.privacy
import pytest

from page_outputs import anchor_of
from scripts import script_of

PAGE = Path(__file__).parents[1] / "docs" / "privacy.md"
TEXT = PAGE.read_text(encoding="utf-8")


_PARTS = re.split(r"^#{2,4} (.+)$", TEXT, flags=re.MULTILINE)

#: Text of every section by anchor, up to the next heading.
SECTIONS = {anchor_of(heading): body for heading, body in zip(_PARTS[1::2], _PARTS[2::2])}


#: Modules elsewhere that sections name.
OTHERS = [
    *("fastadmm.conversation.gate", "fastadmm.between.host", "fastadmm.between.approval"),
    *("fastadmm.between.approval", "fastadmm.runs.export"),
    *("fastadmm.settings.privacy", "fastadmm.reports.records", "fastadmm.parties.direction"),
]


def documented():
    """Docstrings of public functions, classes and methods of the package and its settings, by full name."""
    found = {}
    package = [info.name for info in pkgutil.iter_modules(fastadmm.privacy.__path__, "fastadmm.privacy.")]
    for place in [*package, *OTHERS]:
        module = importlib.import_module(place)
        for name, value in vars(module).items():
            member = inspect.unwrap(value) if callable(value) else None
            if name.startswith("_") or getattr(member, "__module__", None) != place:
                continue
            found[f"{place}.{name}"] = inspect.getdoc(member) or ""
            if inspect.isclass(member):
                for method, value in vars(member).items():
                    if not method.startswith("_") and inspect.isfunction(value):
                        found[f"{place}.{name}.{method}"] = inspect.getdoc(value) or ""
    return found


DOCUMENTED = documented()
IMPLEMENTED = [
    (anchor, name)
    for anchor, body in SECTIONS.items()
    for names in re.findall(r"\*Implemented by:\*((?:[\s,]*`[\w.]+`)+)", body)
    for name in re.findall(r"`([\w.]+)`", names)
]
NAMED = [
    (name, anchor)
    for name, text in DOCUMENTED.items()
    for anchor in re.findall(r"docs/privacy\.md#([\w-]+)", text)
]


@pytest.mark.parametrize("theorem", ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "noise-on-a-grid"])
def test_every_theorem_names_what_implements_it(theorem):
    named = [name for anchor, name in IMPLEMENTED if anchor.split("-")[0] == theorem or anchor == theorem]
    assert named


@pytest.mark.parametrize(("anchor", "name"), IMPLEMENTED)
def test_the_function_that_a_section_names_names_the_section(anchor, name):
    assert name in DOCUMENTED
    assert f"docs/privacy.md#{anchor}" in DOCUMENTED[name]


@pytest.mark.parametrize(("name", "anchor"), NAMED)
def test_the_section_that_a_docstring_names_names_the_function(name, anchor):
    assert anchor in SECTIONS
    assert name in {n for a, n in IMPLEMENTED if a == anchor}


def test_the_page_has_the_measured_table_and_a_proof_of_each():
    import json

    bench = script_of("bench/private_messages.py")
    record = json.loads((PAGE.parents[1] / "bench" / "private_messages.json").read_text(encoding="utf-8"))
    assert bench.BEGIN + bench.table(record) + bench.END in TEXT
    # Every theorem has a proof.
    for anchor, body in SECTIONS.items():
        if re.match(r"t\d-", anchor):
            assert "*Proof.*" in body, anchor
            assert "∎" in body, anchor
