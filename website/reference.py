"""Pages made from the program itself: all commands with their options, all modules with their docstrings."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

PACKAGES = {
    "fastadmm.sklearn": "Estimators",
    "fastadmm": "Public names",
    "fastadmm.problem": "Problem: losses, regularisers, sets, targets",
    "fastadmm.proof": "Proof: what is printed as proved",
    "fastadmm.solver": "Solver, paths and cross-validation",
    "fastadmm.schemes": "Schemes: the choice among them",
    "fastadmm.pooled": "Pooled: all columns in one process",
    "fastadmm.method": "What schemes share",
    "fastadmm.conversation": "Conversation with parties",
    "fastadmm.coordinator": "Coordinator: rounds",
    "fastadmm.coordinator.subspace": "Coordinator: span of directions",
    "fastadmm.coordinator.proximal": "Coordinator: non-smooth penalties and sets",
    "fastadmm.coordinator.admm": "Coordinator: sharing, jacobi, gauss-seidel",
    "fastadmm.parties": "Parties",
    "fastadmm.parties.xupdate": "Updates of a party",
    "fastadmm.blocks": "Blocks",
    "fastadmm.engine": "Threads and pieces of work",
    "fastadmm.kernels": "Kernels",
    "fastadmm.files": "Files as such",
    "fastadmm.store": "Partitions, models and their parts",
    "fastadmm.data_tools": "Data tools",
    "fastadmm.settings": "Settings",
    "fastadmm.runs": "Runs, models and predictions",
    "fastadmm.between": "Between organisations",
    "fastadmm.cluster": "Rows over several processes",
    "fastadmm.inference": "Standard errors and tests",
    "fastadmm.judging": "Curves, intervals and drift",
    "fastadmm.secrecy": "Sums only: grid, masks, keys",
    "fastadmm.privacy": "Privacy",
    "fastadmm.owners": "Owners of rows",
    "fastadmm.figures": "Figures",
    "fastadmm.reports": "Reports",
    "fastadmm.tracking": "Tracking",
    "fastadmm.worth": "What each party's data add",
}


def command_line() -> str:
    """Markdown for all commands in the groups of ``--help``, by typer's own writer of documentation."""
    import re

    import typer
    from fastadmm.cli.app import PANELS, _command
    from typer.cli import get_docs_for_click

    command = _command()
    context = typer.Context(command, info_name="fastadmm")
    text = get_docs_for_click(obj=command, ctx=context, name="fastadmm")
    head, *parts = re.split(r"(?m)^(?=## )", text)
    of_command = {part.split("`")[1].removeprefix("fastadmm "): part for part in parts}
    pieces = [head.partition("**Commands**")[0]]
    for panel, names in PANELS.items():
        pieces += [f"# {panel}\n\n", *(of_command[name] for name in names)]
    # One level down: the page has a title of its own.
    return re.sub(r"(?m)^#", "##", "".join(pieces)).replace("`fastadmm`", "The program", 1)


def modules(package: str) -> list[str]:
    """Names of a package's modules that declare what is public, the package first."""
    top = importlib.import_module(package)
    names = [m.name for m in pkgutil.iter_modules(top.__path__, f"{package}.") if not m.ispkg]
    return [name for name in names if public(importlib.import_module(name))]


def public(module: ModuleType) -> list[str]:
    """What a module itself defines of what it declares public.

    Parameters
    ----------
    module : module
    """
    return [
        name
        for name in getattr(module, "__all__", ())
        if getattr(getattr(module, name), "__module__", module.__name__) == module.__name__
    ]


def api_pages() -> dict[str, str]:
    """reStructuredText of each package's page, by file name."""
    pages = {}
    for package, title in PACKAGES.items():
        parts = [title, "=" * len(title), ""]
        if package == "fastadmm":
            parts += ["Everything here is importable from ``fastadmm`` or from the module named.", ""]
        for name in modules(package):
            parts += [name, "-" * len(name), "", f".. automodule:: {name}", ""]
        pages[f"{package}.rst"] = "\n".join(parts)
    return pages
