"""How packages find their parts: on first use, so that importing them costs nothing, and in a clone."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any


def load_on_use(
    package: dict[str, Any], module_of: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package."""

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package['__name__']}.{module_of[name]}"), name)
        package[name] = value
        return value

    return get, lambda: sorted({*package, *module_of})


def adopt(package: dict[str, Any], *names: str) -> None:
    """Make folders beside a package its subpackages, so that a clone works as it lies there."""
    (home,) = package["__path__"]
    for name in names:
        beside = os.path.join(os.path.dirname(home), name)
        spec = spec_from_file_location(
            f"{package['__name__']}.{name}",
            os.path.join(beside, "__init__.py"),
            submodule_search_locations=[beside],
        )
        if not os.path.isdir(os.path.join(home, name)) and spec is not None and spec.loader is not None:
            package[name] = sys.modules[spec.name] = module_from_spec(spec)
            spec.loader.exec_module(package[name])
