"""Print pip constraints with the lowest version that pyproject.toml allows of every direct dependency.

Usage: python tests/lowest.py [EXTRA ...]
"""

import re
import sys
import tomllib
from pathlib import Path

#: Test tools of the time: newer ones warn of what older libraries do.
TOOLS = ("pytest<9",)


def lowest(extras: list[str]) -> list[str]:
    """Lines of a constraints file: the core's dependencies, and those of the extras named."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", text) for text in wanted]
    return [f"{match[1]}=={match[2]}" for match in found if match] + list(TOOLS)


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
