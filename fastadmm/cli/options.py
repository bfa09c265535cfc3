"""Options of commands, made from the declarations of settings and from the fields of dataclasses."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fastadmm.errors import ConfigError
from fastadmm.other_names import KEYS
from fastadmm.settings.setting import Setting, declare
from fastadmm.settings.setting import settings_of as declared_in


def option(help: str, *names: str, default: Any = None, panel: str | None = None, **how: Any) -> Any:
    """An option of a command. Whether a path can be read is said by the command, with its exit code."""
    return typer.Option(default, *names, help=help, rich_help_panel=panel, readable=False, **how)


def argument(help: str, default: Any = ..., **how: Any) -> Any:
    """An argument of a command, required unless it has a default."""
    return typer.Argument(default, help=help, readable=False, **how)


def flag(help: str, *names: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return option(help, *names, default=False, panel=panel)


def written(metavar: str = "FILE", default: Any = None, usual: str = "") -> Any:
    """The option for what a command writes."""
    text = f"What to write. (default: {usual})" if usual else "What to write."
    return option(text, "--out", "-o", default=default, metavar=metavar)


Task = StrEnum("Task", "auto classification regression")

#: Columns that a table on the screen shows at most.
SHOWN = 20

FORCE = flag("Replace what is there.", "--force")
JSON = flag("Print one JSON document.", "--json")
QUIET = flag("Show only errors and the result.", "--quiet", "-q")
LABEL = option("Label column.", "--label", metavar="NAME")
LABELS = option("Label file of the same rows.", "--labels", metavar="LABELS.h5")
WEIGHT = option("Column of sample weights, beside the labels.", "--weight", metavar="NAME")
OFFSET = option("Column that is added to scores, beside the labels.", "--offset", metavar="NAME")
EXPOSURE = option("Column of exposures of counts: its logarithm is the offset.", "--exposure", metavar="NAME")
POSITIVE = option("Label that is counted, as class 1 (default: yes, true, bad, 1 ...).", metavar="VALUE")
TASK = option("What labels are: classes, or a number to predict.", default=Task.auto)
PARTY = option("Name of the party.", "--party", metavar="NAME")
DRY_RUN = flag("Show what would be done, and write nothing.", "--dry-run")
CONFIG = option("TOML file with settings; options override it.", "--config", metavar="FILE.toml")
ID = option("Id column; TABLE:NAME for one of several tables.", "--id", metavar="NAME")
EPSILON = option("Privacy budget, the epsilon of each party or owner for one record.", "--epsilon")
DELTA = option("Failure probability of the guarantee, below 1/N.", "--delta")
ROUNDS = option("Rounds at most; in each a party sends once, an owner answers once.", "--rounds", min=1)

#: For commands that give out what tells weights.
INFINITE_EPSILON = flag(
    "Give out exact weights of a private run, or what tells them: for these epsilon is infinite.",
    "--allow-infinite-epsilon",
)

Duplicates = StrEnum("Duplicates", "refuse first last drop")
DUPLICATES = option(
    "Repeated ids in a table: refuse, keep the first or last row, or drop all.", default=Duplicates.refuse
)


@dataclass(frozen=True)
class IdPattern:
    """What of ids is compared."""

    id_pattern: str | None = declare("data", "what of ids is compared, as C-0*([0-9]+)")


@dataclass(frozen=True)
class OneTable(IdPattern):
    """How the ids of one table are read."""

    duplicates: str = declare("data", "repeated ids", choices=tuple(Duplicates), default="refuse")
    separator: str | None = declare("data", "between CSV cells, where it is not recognised")


@dataclass(frozen=True)
class CsvLayout(OneTable):
    """How tables and their ids are written."""

    no_header: bool = declare("data", "true: the first line of CSV is data", default=False)


def with_options(
    register: Callable[[Any], Any],
    of: str = "",
    as_here: Callable[[Setting], Setting | None] = lambda setting: setting,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a command with an option for each setting that has a help text, and ``--set`` for all.

    Settings are those of a training ``of`` parties or owners, as this command has them, if it does. The
    command receives what was given on the command line as ``options``, by key. A parameter that is a
    dataclass becomes an option for each of its fields, which are annotated as parameters are.
    """

    def settings() -> dict[str, Setting]:
        if of == "owners":
            from fastadmm.settings.owners import OwnerSettings

            known = declared_in(OwnerSettings)
        else:
            from fastadmm.settings.keys import PRIVACY, SETTINGS

            known = SETTINGS | {f"privacy.{key}": setting for key, setting in PRIVACY.items()}
        return {key: own for key, setting in known.items() if (own := as_here(setting)) is not None}

    return lambda command: register(_Command(command, settings if of else dict))


class _Command:
    """A command with options made from settings."""

    def __init__(self, command: Callable[..., Any], settings: Callable[[], dict[str, Setting]]) -> None:
        update_wrapper(self, command)
        self.__annotations__ = command.__annotations__  # since Python 3.14 a wrapper has not got them
        self._command, self._declared = command, settings

    @cached_property
    def _own(self) -> inspect.Signature:
        return inspect.signature(self._command, eval_str=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Parameters that are dataclasses."""
        kinds = {name: parameter.annotation for name, parameter in self._own.parameters.items()}
        return {name: kind for name, kind in kinds.items() if is_dataclass(kind)}

    @cached_property
    def _settings(self) -> dict[str, Setting]:
        """What ``options`` may hold, by its whole key, as ``privacy.epsilon``."""
        return self._declared()

    @cached_property
    def _keys(self) -> dict[str, Setting]:
        """What groups of options have for ``--set`` alone."""
        return {key: s for group in self._groups.values() for key, s in declared_in(group).items()}

    @property
    def __signature__(self) -> inspect.Signature:
        parameters: list[inspect.Parameter] = []
        for parameter in self._own.parameters.values():
            if parameter.name == "options":
                parameters += [_parameter(key, s) for key, s in self._settings.items() if s.help]
            elif parameter.name in self._groups:
                parameters += _of_group(parameter.annotation)
            else:
                parameters.append(parameter)
        if self._keys or not all(s.help for s in self._settings.values()):
            parameters.append(_set_parameter(self._keys))
        return self._own.replace(parameters=parameters)

    def __call__(self, **values: Any) -> Any:
        found = self._set(values.pop("set_", None) or ())
        for name, group in self._groups.items():
            given = {f.name: values.pop(f.name) for f in fields(group) if f.name in values}
            given |= {key: found.pop(key) for key in declared_in(group) if key in found}
            values[name] = group(**given)
        if "options" in self._own.parameters:
            for key in self._settings:
                value = values.pop(_python_name(key), None)
                if value is not None:
                    _put(found, key, str(value) if isinstance(value, Path) else value)
            values["options"] = found
        return self._command(**values)

    def _set(self, pairs: Iterable[str]) -> dict[str, Any]:
        """Settings by ``--set``: values in TOML, or texts without quotes."""
        import tomllib

        known = self._settings.keys() | self._keys.keys()
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
            _put(
                found, key, value if key not in self._keys else _checked(self._keys[key], value, text, found)
            )
        return found

    def setting_of(self, flag: str) -> tuple[str, Setting] | None:
        """Key and setting of what is no option, by the name that its option would have."""
        # Of two with one name that of the run itself is meant.
        hidden = [*self._keys.items(), *((key, s) for key, s in self._settings.items() if not s.help)]
        return {s.flag: (key, s) for key, s in reversed(hidden)}.get(flag)


def _put(found: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a whole key, perhaps in a table."""
    table, _, inner = key.rpartition(".")
    (found.setdefault(table, {}) if table else found)[inner] = value


def _python_name(key: str) -> str:
    """The parameter of a command for a whole key, which may be a word of Python or another parameter."""
    return key.replace(".", "_") + "_"


def _set_parameter(keys: dict[str, Setting]) -> inspect.Parameter:
    """The option ``--set``, which lists the keys that groups of options have for it."""
    text = "Sets what has no option of its own, by its key; may be repeated."
    told = [f"{key} ({': '.join(filter(None, (s.doc, ', '.join(s.allowed))))})" for key, s in keys.items()]
    text += f" Keys: {', '.join(told)}." if keys else ""
    return _keyword("set_", option(text, "--set", metavar="KEY=VALUE"), list[str] | None)


def _checked(setting: Setting, value: Any, text: str, found: dict[str, Any]) -> Any:
    """The value of a key of a group; lists grow by what is said again."""
    from fastadmm.settings.checks import check_value

    if setting.kinds[-1] is list and not isinstance(value, list):
        value = [*found.get(setting.key, ()), text]
    elif setting.kinds[-1] is str and not isinstance(value, str):
        value = text
    try:
        return check_value(setting, value)
    except ValueError as error:
        raise ConfigError(f"--set {setting.key}: {error}") from None


def _of_group(group: Any) -> Iterator[inspect.Parameter]:
    """Parameters from the fields of a dataclass, under the heading ``panel`` of the class that has them."""
    hints = get_type_hints(group, include_extras=True)
    for f in fields(group):
        if "setting" in f.metadata:
            continue
        owner = next(c for c in group.__mro__ if f.name in inspect.get_annotations(c))
        panel = getattr(owner, "panel", getattr(group, "panel", None))
        option: Any = copy(f.default)
        option.rich_help_panel = option.rich_help_panel or panel
        yield _keyword(f.name, option, hints[f.name])


def given_options(group: Any, *but: str) -> list[str]:
    """Options and keys of a dataclass that do not have their defaults."""
    return [
        f"--set {f.name}" if "setting" in f.metadata else f"--{f.name.rstrip('_').replace('_', '-')}"
        for f in fields(group)
        if f.name not in but
        and getattr(group, f.name) not in (getattr(f.default, "default", f.default), [], None)
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
    yes = setting.key == plain or not plain.startswith("no_")
    forms = {bool: str(yes).lower(), dict: "'{NAME = VALUE}'"}
    forms |= {list: f"[{value}]"} if value[:1].isdigit() else {}
    value = forms.get(setting.kinds[-1], "VALUE" if value[:1] in ("", "-") else value)
    return f"{option}: not an option, but a key of settings; write --set {key}={value}"


def given(option: str, argv: list[str]) -> str:
    """The value beside an option, empty for none."""
    for k, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == option:
            return value or (argv[k + 1] if k + 1 < len(argv) else "")
    return ""


def _parameter(key: str, setting: Setting) -> inspect.Parameter:
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
    how: dict[str, Any] = {"readable": False, "autocompletion": complete}
    option = typer.Option(names, help=_help(setting), rich_help_panel=panel, **how)
    return _keyword(_python_name(key), None, Annotated[kind | None, option])


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


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

STATE = option("The party's own directory: approvals, state, audit log.", default=..., metavar="DIR")

OWN = option("The label holder's own features of these rows, if it has any.", metavar="PARTY.h5")

LEDGER = option("Privacy ledger shared by all runs on these data.", metavar="FILE")

TEST = option("Other rows, on which the model is measured and nothing learned.", metavar="PARTY.h5")

VALIDATION = option("Features of the rows that early stopping watches.", metavar="PARTY.h5")

THREADS = option("Threads; the result does not depend on it.", min=1)


def base_of(
    config: Path | None, read: Callable[[Path], dict[str, Any]], *added: str
) -> tuple[dict[str, Any], str]:
    """Settings of a configuration file without what a run adds to it, and what errors call their place."""
    if config is None:
        return {}, "command line"
    from fastadmm.files.atomic import shown

    return {key: value for key, value in read(config).items() if key not in added}, shown(config)


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
