"""Options of commands, made from the declarations of settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.settings.setting import Setting

__all__ = ["in_a_file", "with_options"]


def with_options(
    settings: Iterable[Setting], privacy: Iterable[Setting] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each setting that has a help text, in place of its parameter ``options``.

    The command receives what was given on the command line as a dictionary by key.

    Parameters
    ----------
    settings : iterable of Setting
    privacy : iterable of Setting
        Those of the table ``[privacy]``.

    Returns
    -------
    callable
        A decorator.
    """
    tables: dict[str, tuple[str, Setting]] = {s.name: ("", s) for s in settings}
    tables |= {f"privacy_{s.name}": ("privacy", s) for s in privacy}
    told = {name: place for name, place in tables.items() if place[1].help}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def wrapper(**values: Any) -> Any:
            given: dict[str, Any] = {}
            for name, (table, setting) in told.items():
                value = values.pop(name)
                if value is not None:
                    target = given.setdefault(table, {}) if table else given
                    target[setting.key] = _read(setting, value)
            return command(options=given, **values)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name != "options":
                parameters.append(parameter)
                continue
            parameters += [_parameter(name, setting) for name, (_, setting) in told.items()]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        # Of two with one name that of the run itself is meant.
        files_only = {s.flag: (table, s) for table, s in reversed(tables.values()) if not s.help}
        wrapper.files_only = files_only  # type: ignore[attr-defined]
        return wrapper

    return decorate


def in_a_file(error: Any, argv: list[str]) -> str | None:
    """What to write into a file, for an option that is a key which only files have.

    Parameters
    ----------
    error : Exception
        What the command line's library raised.
    argv : list of str
        The command line.

    Returns
    -------
    str or None
        One sentence; None for any other error.
    """
    option = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    files_only = getattr(getattr(context, "command", None), "callback", None)
    found = getattr(files_only, "files_only", {}).get(option)
    if found is None:
        return None
    table, setting = found
    line = f"{table}{'.' if table else ''}{setting.key} = {_toml(setting, _given(str(option), argv))}"
    return f"{option}: not an option; write {line!r} into a TOML file, and give it with --config"


def _given(option: str, argv: list[str]) -> str:
    """The value beside an option, empty for none."""
    for k, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == option:
            return value or (argv[k + 1] if k + 1 < len(argv) else "")
    return ""


def _toml(setting: Setting, text: str) -> str:
    """The text of an option as a value in TOML."""
    kind = setting.kinds[-1]
    if kind is bool:
        return "true"
    if kind is dict:
        name, _, value = text.rpartition("=")
        quoted = value if _is_number(value) else f'"{value}"'
        return f"{{{name} = {quoted}}}" if name else "{NAME = VALUE}"
    if kind is list:
        return f"[{text.replace(',', ', ') or '...'}]"
    return f'"{text}"' if kind is str and text else text or "VALUE"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(setting: Setting, value: Any) -> Any:
    if setting.from_text is not None:
        return setting.from_text(value)
    return str(value) if isinstance(value, Path) else value


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    """The parameter of the command from which the option is made."""
    kind: Any = setting.kinds[-1]
    names = setting.flag
    if setting.from_text is not None:
        kind = str
    elif setting.is_path:
        kind = Path
    elif kind is bool and setting.default:
        names = f"{names}/--no-{names.removeprefix('--')}"
    panel = setting.panel or (setting.group.panel if setting.group else None)
    # Readable or not is said by the command, with the exit code of storage errors.
    option = typer.Option(names, help=_help(setting), rich_help_panel=panel, readable=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _help(setting: Setting) -> str:
    default = setting.default
    if default in (None, False) or setting.default_doc:
        return setting.help
    if default is True:
        return f"{setting.help} (default: {setting.key})"
    text = f"{default:.0e}".replace("e-0", "e-") if isinstance(default, float) and default < 1e-3 else default
    return f"{setting.help} (default: {text})"
