"""What is declared of a setting, once; all that reads, writes, shows or compares settings derives from it.

A family of settings is a frozen dataclass whose fields carry a :class:`Setting` each::

    rounds: int = declare("method", "stop after so many rounds", sign="positive", default=10000)

Key, type and default are the field's own. Plain dataclasses carry this, not pydantic: importing
pydantic takes as long as all of ``fastadmm --help``, its messages are several lines and not ours, and of what
it offers we would use the types of some sixty fields.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

#: Heading in the help for options that a first run does not need.
MORE = "More options"

#: What a setting decides: the ``objective``, the ``data``, the ``method`` by which the objective is minimised
#: and when that ends, the privacy ``budget``, the ``place`` where a run works, or the ``output`` it keeps.
Role = Literal["objective", "data", "method", "budget", "place", "output"]

#: Kinds of runs besides a plain fit, as errors call them. A setting names those that it does not go with.
Kind = Literal["path", "private run", "run between parties", "worth"]


@dataclass(frozen=True)
class Group:
    """Settings that mean something only where another one, the head, is set."""

    head: str
    panel: str
    without: str


@dataclass(frozen=True)
class Setting:
    """One setting. Key, type and default come from the field that carries it."""

    role: Role
    doc: str
    help: str = ""
    option: str = ""
    sign: Literal["", "positive", "not negative"] = ""
    infinite: bool = False
    below: float | None = None
    most: float | None = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    words: Callable[[], tuple[str, ...]] | None = None
    wanted: str = ""
    check: Callable[[Any], Any] | None = None
    panel: str = ""
    group: Group | None = None
    only_with: tuple[str, ...] = ()
    not_with: tuple[Kind, ...] = ()
    is_path: bool = False
    is_limit: bool = False
    resumed: bool = False
    in_model: bool = False
    solver: str = ""
    estimator: str = ""
    none: str = ""
    default_doc: str = ""
    key: str = ""
    name: str = ""
    kinds: tuple[type, ...] = ()
    default: Any = None

    @property
    def allowed(self) -> tuple[str, ...]:
        """The only texts allowed; none where all are."""
        return self.choices() if callable(self.choices) else self.choices

    @property
    def offered(self) -> tuple[str, ...]:
        """The texts that a shell offers for the option."""
        return self.words() if self.words else self.allowed

    @property
    def flag(self) -> str:
        """Name of the option, whether the command line has it or not."""
        return self.option or f"--{self.key.replace('_', '-')}"


def declare(role: Role, doc: str = "", help: str = "", *, default: Any = None, **more: Any) -> Any:
    """A field that carries a setting; without a default it is None, without ``doc`` that is the help."""
    return field(default=default, metadata={"setting": Setting(role, doc or help, help, **more)})


@cache
def settings_of(family: Any) -> dict[str, Setting]:
    """The settings among the fields of a dataclass, by key, in the order of their declarations."""
    hints = get_type_hints(family)
    declared: dict[str, Setting] = {}
    for own in fields(family):
        if "setting" not in own.metadata:
            continue
        key = own.name.rstrip("_")
        default = None if own.default is MISSING else own.default
        kinds = kinds_of(hints[own.name])
        declared[key] = replace(own.metadata["setting"], key=key, name=own.name, kinds=kinds, default=default)
    return declared


def kinds_of(hint: Any) -> tuple[type, ...]:
    """Python types of a type hint, without None; of a table of settings, a dictionary."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(kind for part in get_args(hint) if part is not type(None) for kind in kinds_of(part))
    kind = get_origin(hint) or hint
    if kind is float:
        return (int, float)
    return (dict,) if hasattr(kind, "__dataclass_fields__") else (kind,)
