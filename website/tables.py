"""Tables of settings and schemes in the documentation: ``python website/tables.py`` makes them anew."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from fastadmm.schemes.registry import SCHEMES
from fastadmm.settings.owners import OwnerSettings
from fastadmm.settings.privacy import Privacy, settings_of_modes
from fastadmm.settings.run import RunConfig
from fastadmm.settings.setting import Setting, settings_of

DOCS = Path(__file__).resolve().parents[1] / "docs"

#: For editors, beside the pages.
SCHEMA = "train.schema.json"

#: Pages with tables, between comments that name the family.
PAGES = ("training.md", "privacy.md", "owners.md")

FAMILIES = {
    "RunConfig": settings_of(RunConfig),
    "Privacy": settings_of_modes(),
    "OwnerSettings": settings_of(OwnerSettings),
}

_TYPES = {str: "text", bool: "true, false", int: "whole number", float: "number", dict: "table", list: "list"}
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
}
_SIGNS = {"": "", "positive": " > 0", "not negative": " ≥ 0"}


def table(family: dict[str, Setting]) -> str:
    """Markdown table of a family's keys."""
    rows = ["| key | type | default | option | meaning |", "|---|---|---|---|---|"]
    for setting in family.values():
        option = f"`{setting.flag}`" if setting.help else "–"
        cells = (f"`{setting.key}`", _type(setting), _default(setting), option, setting.doc)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def schemes() -> str:
    """Markdown table of the registry."""
    rows = ["| scheme | rounds | needs | options | remarks |", "|---|---|---|---|---|"]
    for scheme in SCHEMES.values():
        options = ", ".join(f"`{option}`" for option in scheme.options) or "–"
        cells = (f"`{scheme.name}`", scheme.rounds, str(scheme.needs) or "–", options, scheme.remarks)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _type(setting: Setting) -> str:
    kinds = [kind for kind in setting.kinds if not (kind is int and float in setting.kinds)]
    return " or ".join(_TYPES[kind] for kind in kinds) + _SIGNS[setting.sign]


def _default(setting: Setting) -> str:
    if setting.default_doc:
        return setting.default_doc
    if setting.default is None or isinstance(setting.default, Privacy):
        return "unset"
    text = f"`{_toml(setting.default)}`"
    group = setting.group
    return text if group is None or setting.key == group.head else f"{text}, with `{group.head}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and 0 < value < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f'"{value}"' if isinstance(value, str) else str(value)


def filled(page: str) -> str:
    """A page with its tables made anew."""

    def make(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{table(FAMILIES[found[2]])}\n\n{found[3]}"

    page = re.sub(r"(?s)(<!-- settings of (\w+) -->)\n.*?\n(<!-- end of settings -->)", make, page)
    start, end = "<!-- schemes -->", "<!-- end of schemes -->"
    return re.sub(f"(?s){start}\n.*?\n{end}", lambda _: f"{start}\n\n{schemes()}\n\n{end}", page)


def schema(family: dict[str, Setting]) -> dict[str, Any]:
    """JSON schema of a family's keys, for editors of TOML."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: _schema(setting) for key, setting in family.items()},
    }


def _schema(setting: Setting) -> dict[str, Any]:
    if isinstance(setting.default, Privacy):
        return {"description": setting.doc, **schema(FAMILIES["Privacy"])}
    kinds = [kind for kind in setting.kinds if not (kind is int and float in setting.kinds)]
    types = [_JSON_TYPES[kind] for kind in kinds] + (["string"] if setting.none else [])
    limits = {"positive": {"exclusiveMinimum": 0}, "not negative": {"minimum": 0}, "": {}}[setting.sign]
    found: dict[str, Any] = {
        "description": setting.doc,
        "type": types if len(types) > 1 else types[0],
        **limits,
    }
    if setting.default is not None and setting.default != math.inf:
        found["default"] = setting.default
    if setting.below is not None:
        found["exclusiveMaximum"] = setting.below
    return {**found, "enum": list(setting.allowed)} if setting.choices else found


def schema_text() -> str:
    """Content of the file that editors read."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Configuration of fastadmm train"}
    return json.dumps({**head, **schema(FAMILIES["RunConfig"])}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (DOCS / SCHEMA).write_text(schema_text(), encoding="utf-8")
    for name in PAGES:
        path = DOCS / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
