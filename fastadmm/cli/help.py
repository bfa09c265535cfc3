"""The help of a command: its options by group, as wide as the terminal.

Written without a library of layouts: importing one takes longer than everything else that ``--help`` does.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from fastadmm.cli.terminal import styled, wrapped

#: Columns at most: longer lines are hard to read.
_WIDEST = 100

#: Columns at most for the name of an option, whose text begins in the next line if it is longer.
_LONGEST = 26


def help_text(command: Any, context: Any) -> str:
    """Usage, purpose, and one section for each group of arguments, options and commands."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    usage = f"{_bold('Usage:')} {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    parts = [usage, *(wrapped(" ".join(text.split()), width) for text in _paragraphs(command.help or ""))]
    options: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if not getattr(parameter, "hidden", False):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or usual
            options.setdefault(panel, []).append((_name(parameter), _purpose(parameter, context)))
    commands: dict[str, list[tuple[str, str]]] = {}
    for name, child in getattr(command, "commands", {}).items():
        panel = getattr(child, "rich_help_panel", None) or "Commands"
        commands.setdefault(panel, []).append((name, _paragraphs(child.help or "")[0]))
    listed = max((len(name) for rows in commands.values() for name, _ in rows), default=0)
    parts += [_section(title, rows, width, listed) for title, rows in commands.items()]
    parts += [_section(title, options[title], width) for title in sorted(options, key=_first)]
    return "\n\n".join(parts)


def _first(title: str) -> bool:
    return title not in ("Arguments", "Options")


def _paragraphs(text: str) -> list[str]:
    return text.strip().split("\n\n") or [""]


def _name(parameter: Any) -> str:
    """The ways to write it that are ours, and what stands for its value."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    long = [name for name in parameter.opts if name.startswith("--")]
    short = [name for name in parameter.opts if not name.startswith("--")]
    return ", ".join([*long[:1], *short, *parameter.secondary_opts]) + (
        f" {parameter.metavar}" if parameter.metavar else ""
    )


def _purpose(parameter: Any, context: Any) -> str:
    """What it does, with its range and whether it is required in brackets, as the library adds them."""
    record = parameter.get_help_record(context)
    text = " ".join(record[1].split()) if record else ""
    return re.sub(r"\bx>=(?=[\d.]+\])", "at least ", text)


def _section(title: str, rows: Iterable[tuple[str, str]], width: int, least: int = 0) -> str:
    rows = list(rows)
    left = max([least, *(len(name) for name, _ in rows if len(name) <= _LONGEST)])
    lines = [_bold(f"{title}:")]
    for name, text in rows:
        begin = " " * (left + 4)
        body = wrapped(begin + text, width).lstrip()
        joint = " " * (left - len(name) + 2) if len(name) <= left else f"\n{begin}"
        lines.append(f"  {styled(name, '36', sys.stdout)}{joint if body else ''}{body}")
    return "\n".join(lines)


def _bold(text: str) -> str:
    return styled(text, "1", sys.stdout)
