"""Options of commands, made from the declarations of settings and from the fields of dataclasses."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from fastadmm.errors import ConfigError
from fastadmm.other_names import KEYS

if TYPE_CHECKING:
    from fastadmm.settings.setting import Setting

#: Names that other programs would read as what it is not.
_NOT_CSV = (".parquet", ".json", ".jsonl", ".xlsx", ".xls", ".h5", ".npz", ".html", ".pdf", ".png", ".svg")


def option(help: str, *names: str, default: Any = None, panel: str | None = None, **how: Any) -> Any:
    """An option of a command. Whether a path can be read is said by the command, with its exit code."""
    return typer.Option(default, *names, help=help, rich_help_panel=panel, readable=False, **how)


def argument(help: str, default: Any = ..., **how: Any) -> Any:
    """An argument of a command, required unless it has a default."""
    return typer.Argument(default, help=help, readable=False, **how)


def flag(help: str, *names: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return option(help, *names, default=False, panel=panel)


#: Columns that a table on the screen shows at most; a file has all.
SHOWN = 20

FORCE = flag("Replace an existing file.", "--force")
JSON = flag("Print one JSON document.", "--json")
QUIET = flag("Show only errors and the result.", "--quiet", "-q")

#: For commands that give out what tells weights.
INFINITE_EPSILON = flag(
    "Give out exact weights of a private run, or what tells them: for these epsilon is infinite.",
    "--allow-infinite-epsilon",
)

#: For commands that read the ids of one table.
ID_PATTERN = option("What of ids is compared, as 'C-0*([0-9]+)'.", metavar="REGEX")

SEPARATOR = option("Separator between CSV cells (default: recognised).", metavar="CHAR")

Duplicates = StrEnum("Duplicates", "refuse first last drop")
DUPLICATES = option(
    "Repeated ids in a table: refuse, keep the first or last row, or drop all.", default=Duplicates.refuse
)


@dataclass(frozen=True)
class IdOptions:
    """Options for the ids of several tables."""

    id_pattern: str | None = ID_PATTERN
    duplicates: Duplicates = DUPLICATES


@dataclass(frozen=True)
class CsvOptions:
    """Options for the layout of CSV text."""

    separator: str | None = SEPARATOR
    encoding: str | None = option("Encoding of CSV text (default: recognised).", metavar="NAME")
    no_header: bool = flag("The first line of CSV is data: columns are called c1, c2, ...", "--no-header")

    @property
    def layout(self) -> dict[str, Any]:
        """How CSV text is laid out."""
        return {"separator": self.separator, "encoding": self.encoding, "header": not self.no_header}


def common(settings: Iterable[Setting]) -> list[Setting]:
    """Settings of which the rare ones are no options: ``--set`` and a file of settings have them."""
    from fastadmm.settings.setting import MORE

    return [replace(setting, help="") if setting.panel == MORE else setting for setting in settings]


def with_options(
    settings: Callable[[], tuple[Iterable[Setting], Iterable[Setting]]] = lambda: ((), ()),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each setting that has a help text, and ``--set`` for all, as ``options``.

    The command receives what was given on the command line as a dictionary by key. A parameter that is a
    dataclass becomes an option for each of its fields, which are annotated as parameters are.
    """
    return lambda command: _Command(command, settings)


_SET: Any = inspect.Parameter(
    "set_",
    inspect.Parameter.KEYWORD_ONLY,
    default=option(
        "Any setting by its key, as in a TOML file; may be repeated.",
        "--set",
        metavar="KEY=VALUE",
    ),
    annotation=list[str] | None,
)


class _Command:
    """A command with options made from settings."""

    def __init__(self, command: Callable[..., Any], settings: Callable[[], Any]) -> None:
        update_wrapper(self, command)
        self.__annotations__ = command.__annotations__  # since Python 3.14 a wrapper has not got them
        self._command, self._settings = command, settings

    @cached_property
    def _tables(self) -> dict[str, tuple[str, Setting]]:
        """Table and setting of each parameter that may be an option."""
        own, privacy = self._settings()
        return {s.name: ("", s) for s in own} | {f"privacy_{s.name}": ("privacy", s) for s in privacy}

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self._command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "options":
                parameters += [_parameter(name, s) for name, (_, s) in self._tables.items() if s.help]
                if not all(s.help for _, s in self._tables.values()):
                    parameters.append(_SET)
            elif is_dataclass(parameter.annotation):
                parameters += _of_group(parameter.annotation)
            else:
                parameters.append(parameter)
        return signature.replace(parameters=parameters)

    def __call__(self, **values: Any) -> Any:
        own = inspect.signature(self._command, eval_str=True).parameters
        for group in (parameter for parameter in own.values() if is_dataclass(parameter.annotation)):
            names = [f.name for f in fields(group.annotation)]
            values[group.name] = group.annotation(**{name: values.pop(name) for name in names})
        if "options" in own:
            found = self._set(values.pop(_SET.name, None) or ())
            for name, (table, setting) in self._tables.items():
                value = values.pop(name) if setting.help else None
                if value is not None:
                    target = found.setdefault(table, {}) if table else found
                    target[setting.key] = str(value) if isinstance(value, Path) else value
            values["options"] = found
        return self._command(**values)

    def _set(self, pairs: Iterable[str]) -> dict[str, Any]:
        """Settings by ``--set``: values in TOML, or texts without quotes."""
        import tomllib

        known = {".".join(filter(None, (table, s.key))) for table, s in self._tables.values()}
        found: dict[str, Any] = {}
        for pair in pairs:
            key, equals, text = (part.strip() for part in pair.partition("="))
            if not equals:
                raise ConfigError(f"--set {pair}: write KEY=VALUE")
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(known))}"
                raise ConfigError(f"--set {key}: not a setting of this command; {hint}")
            try:
                value = tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError:
                value = text
            table, _, inner = key.rpartition(".")
            (found.setdefault(table, {}) if table else found)[inner] = value
        return found

    def setting_of(self, flag: str) -> tuple[str, Setting] | None:
        """Key and setting of what is no option, by the name that its option would have."""
        # Of two with one name that of the run itself is meant.
        named = reversed([(table, s) for table, s in self._tables.values() if not s.help])
        return {s.flag: (f"{table}.{s.key}".strip("."), s) for table, s in named}.get(flag)


def _of_group(group: Any) -> Iterator[inspect.Parameter]:
    """Parameters from the fields of a dataclass, under the heading ``panel`` of the class that has them."""
    hints = get_type_hints(group, include_extras=True)
    for f in fields(group):
        owner = next(c for c in group.__mro__ if f.name in inspect.get_annotations(c))
        panel = getattr(owner, "panel", getattr(group, "panel", None))
        option: Any = copy(f.default)
        option.rich_help_panel = option.rich_help_panel or panel
        yield inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=hints[f.name]
        )


@dataclass(frozen=True)
class Ids:
    """Options for how the ids of a table are read."""

    panel: ClassVar[str | None] = None
    duplicates: Duplicates = DUPLICATES
    separator: str | None = SEPARATOR
    id_pattern: str | None = ID_PATTERN


def given_options(group: Any, *but: str) -> list[str]:
    """Options of a dataclass that do not have their defaults."""
    return [
        f"--{f.name.rstrip('_').replace('_', '-')}"
        for f in fields(group)
        if f.name not in but and getattr(group, f.name) not in (getattr(f.default, "default", None), [])
    ]


def plain_values(group: Any) -> dict[str, Any]:
    """Values of a dataclass whose fields are options, choices as text."""
    values = {f.name: getattr(group, f.name) for f in fields(group)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def in_a_file(context: Any, option: str, argv: list[str]) -> str:
    """What to write for an option that is only a key of settings; empty for any other."""
    command = getattr(getattr(context.command, "callback", None), "__wrapped__", None)
    if not isinstance(command, _Command):
        return ""
    plain, value = option.strip("-").lower().replace("-", "_"), given(option, argv)
    meant = KEYS.get(plain, (plain.removeprefix("no_"), ""))[0].replace("_", "-")
    found = command.setting_of(option) or command.setting_of(f"--{meant}")
    if found is None:
        return ""
    key, setting = found
    forms = {bool: str(not plain.startswith("no_")).lower(), list: f"[{value}]", dict: "'{NAME = VALUE}'"}
    value = forms.get(setting.kinds[-1], "VALUE" if value[:1] in ("", "-") else value)
    return f"{option}: not an option, but a key of settings; write --set {key}={value}"


def given(option: str, argv: list[str]) -> str:
    """The value beside an option, empty for none."""
    for k, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == option:
            return value or (argv[k + 1] if k + 1 < len(argv) else "")
    return ""


def check_csv(out: Path | None) -> None:
    """Refuse a name that promises another format than CSV."""
    if out is not None and out.suffix.lower() in _NOT_CSV:
        from fastadmm.files.atomic import shown

        raise ConfigError(f"{shown(out)}: what is written is CSV; choose a name that ends in .csv")


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    """The parameter of the command from which the option is made."""
    kind: Any = setting.kinds[-1]
    names = setting.flag
    if setting.is_path:
        kind = Path
    elif kind is bool and setting.default:
        names = f"{names}/--no-{names.removeprefix('--')}"
    panel = setting.panel or (setting.group.panel if setting.group else None)
    # Readable or not is said by the command, with the exit code of storage errors.
    complete = (lambda: list(setting.offered)) if setting.choices or setting.words else None
    option = typer.Option(
        names,
        help=_help(setting),
        rich_help_panel=panel,
        readable=False,
        autocompletion=complete,
    )
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


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str, option: str) -> float:
    """Seconds of a time such as ``90``, ``30m`` or ``1h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text.strip())
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"{option} {text!r}: no time; write seconds, or 30m, 1h or 2d")
    return float(found[1]) * _UNITS[found[2]]


DATA = option("The party's features; they stay here.", default=..., metavar="PARTY.h5")

LEDGER = option("Your privacy ledger; a private run is charged to it before anything leaves.", metavar="FILE")

TEST = option("Features of test rows; the party answers with their scores.", metavar="PARTY.h5")

VALIDATION = option("Features of the rows that early stopping watches.", metavar="PARTY.h5")

THREADS = option("Threads; answers do not depend on it.", min=1)


@contextmanager
def settings_of(config: Path | None) -> Iterator[None]:
    """Name the configuration file in every ConfigError that does not say where its value came from."""
    try:
        yield
    except ConfigError as error:
        from fastadmm.files.atomic import shown

        if config is None or shown(config) in str(error) or str(error).startswith("command line:"):
            raise
        raise ConfigError(f"{shown(config)}, with the command line: {error}") from None
