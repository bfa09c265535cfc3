"""Scripts of this repository as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def script_of(place: str) -> ModuleType:
    """A script such as ``bench/readme.py``, as a module."""
    path = ROOT / place
    spec = importlib.util.spec_from_file_location(place.removesuffix(".py").replace("/", "_"), path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # of scripts that share something
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
