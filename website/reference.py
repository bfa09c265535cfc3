"""Pages made from the program itself: all commands with their options, exported names and kernels."""

import pkgutil
from collections.abc import Mapping

import fastadmm
import fastadmm.kernels


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


def api_pages() -> dict[str, str]:
    """reStructuredText of the exported names and of the kernels, by file name."""
    homes: dict[str, list[str]] = {}
    for name in fastadmm.__all__:
        homes.setdefault(getattr(fastadmm, name).__module__, []).append(name)
    kernels = {f"fastadmm.kernels.{m.name}": None for m in pkgutil.iter_modules(fastadmm.kernels.__path__)}
    return {
        "fastadmm.rst": _page("Public names", homes),
        "fastadmm.kernels.rst": _page("Kernels", kernels),
    }


def _page(title: str, modules: Mapping[str, list[str] | None]) -> str:
    """Modules with these of their members, or with all that they declare public."""
    parts = [title, "=" * len(title), ""]
    for name, members in modules.items():
        parts += [name, "-" * len(name), "", f".. automodule:: {name}"]
        parts += [*([f"   :members: {', '.join(members)}"] if members else []), ""]
    return "\n".join(parts)
