"""The help of a command: its options by group, as wide as the terminal."""

from __future__ import annotations

import re
from typing import Any


def help_text(command: Any, context: Any) -> str:
    """Usage, purpose, and one section for each group of arguments, options and commands."""
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, child in getattr(command, "commands", {}).items():
        panel = getattr(child, "rich_help_panel", None) or "Commands"
        sections.setdefault(panel, []).append((name, (child.help or "").strip().split("\n\n")[0]))
    last: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if not getattr(parameter, "hidden", False):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or usual
            chosen = sections if panel in ("Arguments", "Options") else last
            chosen.setdefault(panel, []).append((_name(parameter), _purpose(parameter, context)))
    width = max(len(name) for rows in [*sections.values(), *last.values()] for name, _ in rows)
    for title, rows in (sections | last).items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(min(width, 26)), text) for name, text in rows], col_max=26)
    return str(formatter.getvalue())


def _name(parameter: Any) -> str:
    """The ways to write it that are ours, and what stands for its value."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    long = [name for name in parameter.opts if name.startswith("--")]
    short = [name for name in parameter.opts if not name.startswith("--")]
    names = ", ".join([*long[:1], *short, *parameter.secondary_opts])
    return f"{names} {parameter.metavar}" if parameter.metavar else names


def _purpose(parameter: Any, context: Any) -> str:
    """What it does, with its range and whether it is required in brackets, as the library adds them."""
    record = parameter.get_help_record(context)
    text = " ".join(record[1].split()) if record else ""
    return re.sub(r"\bx>=(?=[\d.]+\])", "at least ", text)
