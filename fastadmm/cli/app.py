"""The ``fastadmm`` console script: assembles the commands, maps errors to exit codes.

Commands import what they need inside their bodies, so that ``--help`` stays fast.
Paths are declared with ``readable=False``: the commands check them, and an unreadable one ends with the
exit code of storage errors, not of usage errors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.models import CommandInfo, TyperInfo

from fastadmm.cli.terminal import say
from fastadmm.errors import ExitCode, FastadmmError

_SETTINGS: dict[str, Any] = {
    "name": "fastadmm",
    "help": "Train one joint linear model for parties that hold different columns about the same rows.",
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

app = typer.Typer(**_SETTINGS)


def new_group(how: dict[str, Any] | None = None, **purposes: str) -> typer.Typer:
    """A group of commands by one name or several; alone it shows its help, unless it is told otherwise."""
    settings = _SETTINGS["context_settings"]
    group = typer.Typer(context_settings=settings, **{"no_args_is_help": True, **(how or {})})
    for name, purpose in purposes.items():
        app.add_typer(group, name=name, help=purpose)
    return group


def _register(names: Iterable[str] | None = None) -> None:
    # Importing a command's module registers it; the modules import nothing heavy at the top.
    from importlib import import_module

    for name in names or (*COMMANDS, *GROUPS):
        import_module(f"fastadmm.cli.{_BESIDE.get(name, name)}")


def _name(command: CommandInfo) -> str:
    return command.name or command.callback.__name__  # type: ignore[union-attr]


@cache
def _command(name: str | None = None) -> Callable[..., Any]:
    """All commands or one, built once in a process: building all takes as long as many a command."""
    _register([name] if name else None)
    return _built(
        [command for command in app.registered_commands if name in (None, _name(command))],
        [group for group in app.registered_groups if name in (None, group.name)],
    )


def _listing() -> Callable[..., Any]:
    """All commands without their options, which ``--help`` does not show."""
    _register()
    return _built(
        [
            CommandInfo(_name(command), help=getdoc(command.callback), callback=_nothing)
            for command in app.registered_commands
        ],
        [TyperInfo(typer.Typer(), name=group.name, help=group.help) for group in app.registered_groups],
    )


def _nothing() -> None:
    pass


def _version(wanted: bool) -> None:
    if wanted:
        from fastadmm.version import __version__

        say(f"fastadmm {__version__}")
        raise typer.Exit


def _program_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _built(commands: list[CommandInfo], groups: list[TyperInfo]) -> Callable[..., Any]:
    program = typer.Typer(**_SETTINGS)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for command in commands:
        command.rich_help_panel = panels[_name(command)]
    for group in groups:
        group.rich_help_panel = panels[str(group.name)]
    program.callback()(_program_options)  # a group of commands, even of one
    program.registered_commands, program.registered_groups = commands, groups
    built: Any = typer.main.get_command(program)
    # A module that was imported earlier registered earlier; the order of the help is ours.
    built.commands = {name: built.commands[name] for name in panels if name in built.commands}
    _one_style(built)
    return built


def _help_text(command: Any, context: Any) -> str:
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
            chosen.setdefault(panel, []).append((_ways(parameter), _purpose(parameter, context)))
    width = max(len(name) for rows in [*sections.values(), *last.values()] for name, _ in rows)
    for title, rows in (sections | last).items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(min(width, 26)), text) for name, text in rows], col_max=26)
    return str(formatter.getvalue())


def _ways(parameter: Any) -> str:
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


#: What stands for a value in the help, by typer's names of types.
_VALUES = {"path": "PATH", "integer": "N", "int": "N", "float": "NUMBER", "text": "TEXT", "str": "TEXT"}


def _one_style(command: Any) -> None:
    """Values in capitals, choices and defaults in the text: what typer shows depends on its version."""
    command.get_help = partial(_help_text, command)
    for child in getattr(command, "commands", {}).values():
        _one_style(child)
    context = typer.Context(command, **_SETTINGS["context_settings"])
    for parameter in filter(None, [*command.params, command.get_help_option(context)]):
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
            parameter.display_type_rich = lambda ctx: ""  # on the page of the site: the name says enough
            continue
        text = parameter.help or ""
        if parameter.metavar is None:
            parameter.metavar, choices = _value(parameter, context)
            if any(choice not in text for choice in choices):
                text += f" One of {', '.join(choices)}."
        default = parameter.default
        if parameter.show_default is True and "(default" not in text and default not in (None, False, "", []):
            parameter.show_default = False
            text += f" (default: {_default(parameter)})"
        parameter.help = text


def _value(parameter: Any, context: Any) -> tuple[str, list[str]]:
    """What stands for the value of an option, and what it may be if that is one of a few words."""
    if parameter.is_flag:
        return "", []
    show = getattr(parameter, "display_type", None) or parameter.make_metavar
    name = str(show(ctx=context))
    plain = name.lower().removesuffix("...").strip("<>[]").removeprefix("list[").strip("[]")
    if "|" in plain:
        return "KIND", plain.split("|")
    return _VALUES.get(plain.split()[0], plain.upper()), []


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is True:
        return str(parameter.opts[0]).removeprefix("--")
    if isinstance(default, float):
        return f"{default:g}".replace("e-0", "e-")
    return str(getattr(default, "value", default))


def _program(argv: list[str]) -> Callable[..., Any]:
    """What a command line needs of the program."""
    if any(key.endswith("_COMPLETE") for key in os.environ):  # a shell asks for names of options
        return _command()
    if argv in ([], ["-h"], ["--help"], ["--version"]):
        return _listing()
    return _command(argv[0]) if argv[0] in (*COMMANDS, *GROUPS) else _command()


#: Groups of commands.
GROUPS: tuple[str, ...] = ("align", "party", "coordinator", "agent", "federate", "owners", "scorecard")

#: Panels of ``--help`` with their commands and groups, in their order.
PANELS: dict[str, tuple[str, ...]] = {
    "From data to a model": ("demo", "convert", "inspect", "train", "resume", "verify", "report"),
    "Use and judge a model": (
        "predict",
        "evaluate",
        "drift",
        "columns",
        "coefficients",
        "infer",
        "compare",
        "worth",
        "export",
        "import",
        "combine",
        "card",
        "scorecard",
        "serve",
    ),
    "Privacy": ("privacy", "audit"),
    "Parties on machines of their own": (*GROUPS[:-2], "status"),
    "Owners of different rows": ("forecast", "owners"),
    "This installation": ("warmup",),
}

#: Commands in the module of another.
_BESIDE = {
    "card": "report", "combine": "predict", "compare": "report", "coordinator": "federate",
    "coefficients": "columns", "drift": "columns", "evaluate": "predict", "import": "export",
    "infer": "columns", "party": "agent",
    "resume": "train", "serve": "export", "status": "agent", "verify": "report",
}  # fmt: skip

#: Order of the commands in ``--help``.
COMMANDS = tuple(name for names in PANELS.values() for name in names if name not in GROUPS)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; a :class:`FastadmmError` becomes one line on stderr and its exit code."""
    if argv is None:
        argv = sys.argv[1:]
    try:
        with _announcing_compilation(argv):
            code = _program(argv)(args=argv or ["--help"], prog_name="fastadmm", standalone_mode=False)
        sys.stdout.flush()
        # What typer makes of Ctrl-C; a command that was interrupted itself returns our code.
        if code == ExitCode.INTERRUPTED and not isinstance(code, ExitCode):
            raise KeyboardInterrupt
    except FastadmmError as error:
        kind = "waiting" if error.exit_code == ExitCode.WAITING else "error"
        code, said = error.exit_code, f"{kind}: {_one_line(error)}"
    except (typer.Abort, KeyboardInterrupt, SystemError) as stop:
        # Where a signal meets compiled code of a library, Python may say that it came out of a wrong place.
        if isinstance(stop, SystemError) and not isinstance(stop.__cause__, KeyboardInterrupt):
            raise
        # A run that was interrupted between rounds has said so itself, and how to go on.
        code, said = ExitCode.INTERRUPTED, "interrupted"
    except SystemExit as stop:
        # click turns a broken pipe into SystemExit(1), our code for a defect; standard streams raise none.
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        code, said = ExitCode.STORAGE, "error: the other end has closed the connection; try again"
    except MemoryError:
        code, said = ExitCode.INPUT, "error: not enough memory; use a larger machine or fewer rows"
    except Exception as error:
        # Usage errors of click, which typer bundles or depends on, according to its version.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help is said
            print(error.format_message().rstrip("\n"))
            sys.exit(int(ExitCode.USAGE))
        from fastadmm.cli.usage import usage_line

        code, said = ExitCode.USAGE, f"error: {_one_line(usage_line(error, argv, GROUPS))}"
    else:
        sys.exit(int(code) if isinstance(code, int) else 0)
    say(f"fastadmm: {said}", error=True)
    sys.exit(int(code))


def _announcing_compilation(argv: list[str]) -> AbstractContextManager[None]:
    """Say once, when the first kernel is compiled and not loaded, why nothing seems to happen."""
    if not argv or argv[0] == "warmup" or {"--json", "--quiet", "-q"} & set(argv):
        return nullcontext()
    from fastadmm.kernels.compilation import watching

    said = False

    def tell(name: str, seconds: float | None) -> None:
        nonlocal said
        if not said:
            said = True
            say("fastadmm: compiling kernels, once (a few seconds)", error=True)

    return watching(tell)


#: Characters of an error, beyond which its middle is left out: a cell or a name can have any length.
_LONGEST = 1000


def _one_line(error: object) -> str:
    text = " ".join(str(error).split())
    # Words of the user's files: control characters must not reach the terminal.
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} … {text[-190:]}"
