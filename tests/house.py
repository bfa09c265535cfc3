"""What must hold inside the house, counted: ``make house`` prints it, ``test_house.py`` tests it.

Rooms are the folders of ``fastadmm/``, with ``kernels`` and ``data_tools``, and the modules that lie there.
Their order is the table of ``docs/architecture.md``, lowest first: a room imports from itself and from rooms
above it in the table. Every import counts: those inside functions and those for type checkers, too.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Rooms whose numeric constants are counted: what decides how a model is found.
SOLVING = {
    "kernels",
    "engine",
    "blocks",
    "problem",
    "proof",
    "conversation",
    "parties",
    "coordinator",
    "solver",
}

PLAN = ROOT / "docs" / "architecture.md"

LINES, PARAMETERS = 80, 12


@dataclass
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The folder below ``fastadmm``, or the module that lies there; "" for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    def imported(self) -> Iterator[str]:
        """Names that stand behind ``from`` and ``import``, wherever they stand."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.name}: a relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


class House:
    """The modules of the package and who imports whom."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules: dict[str, Module] = {}
        for folder, name in (
            ("fastadmm", "fastadmm"),
            ("kernels", "fastadmm.kernels"),
            ("data_tools", "fastadmm.data_tools"),
        ):
            for path in sorted((root / folder).rglob("*.py")):
                parts = path.relative_to(root / folder).with_suffix("").parts
                full = ".".join([name, *(part for part in parts if part != "__init__")])
                self.modules[full] = Module(full, path)

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules that each module imports; of ``from package import module``, the module."""
        found = {}
        for module in self.modules.values():
            names = set()
            for name in module.imported():
                names.add(name if name in self.modules else name.rpartition(".")[0])
            found[module.name] = (names & self.modules.keys()) - {module.name}
        return found

    def rooms(self) -> set[str]:
        """All rooms."""
        return {module.room for module in self.modules.values()} - {""}

    def doors(self) -> Counter[tuple[str, str]]:
        """How many imports lead from one room to another."""
        room = {name: module.room for name, module in self.modules.items()}
        return Counter(
            (room[name], room[other])
            for name, others in self.imports.items()
            for other in others
            if room[name] != room[other]
        )

    def pairs(self) -> list[str]:
        """Rooms that import from each other."""
        doors = self.doors()
        return [f"{a} and {b}" for a, b in sorted(doors) if a < b and (b, a) in doors]

    def circles(self) -> list[str]:
        """Modules that import each other, directly or by others."""
        return [" ".join(sorted(part)) for part in strong_components(self.imports) if len(part) > 1]

    def against_the_order(self, order: list[str]) -> list[str]:
        """Imports of a room that stands later in the plan, and of the package's own face."""
        place = {name: number for number, name in enumerate(order)}
        wrong = []
        for name, others in sorted(self.imports.items()):
            here = self.modules[name].room
            for other in sorted(others):
                there = self.modules[other].room
                if here and (not there or place[there] > place[here]):
                    wrong.append(f"{name} imports {other}")
        return wrong

    def functions(self) -> Iterator[tuple[str, int, int]]:
        """Name, lines without docstring, and parameters of every function."""
        for module in self.modules.values():
            for name, node in _functions(module.tree):
                lines = (node.end_lineno or 0) - node.lineno + 1
                first = node.body[0]
                if ast.get_docstring(node) is not None:
                    lines -= (first.end_lineno or 0) - first.lineno + 1
                a = node.args
                named = [p for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]
                yield f"{module.name}:{name}", lines, len(named) + bool(a.vararg) + bool(a.kwarg)

    def long_functions(self) -> dict[str, tuple[int, int]]:
        """Functions beyond the limits."""
        return {name: (n, p) for name, n, p in self.functions() if n > LINES or p > PARAMETERS}

    def constants(self) -> list[str]:
        """Numbers with a name in capitals, in the rooms that find a model."""
        return [
            f"{module.name}:{name}"
            for module in self.modules.values()
            if module.room in SOLVING
            for name in _constants(module.tree)
        ]

    def counts(self, root: Path = ROOT) -> dict[str, int]:
        """What has a mark in ``[tool.house]`` of ``pyproject.toml``, as it is."""
        functions = list(self.functions())
        return {
            "lines": sum(module.text.count("\n") for module in self.modules.values()),
            "code_lines": sum(code_lines(module.text) for module in self.modules.values()),
            "modules": len(self.modules),
            "long_functions": sum(lines > LINES for _, lines, _ in functions),
            "wide_functions": sum(parameters > PARAMETERS for _, _, parameters in functions),
            "constants": len(self.constants()),
            "two_way_pairs": len(self.pairs()),
            "words": sum(
                len(path.read_text(encoding="utf-8").split()) for path in (root / "docs").glob("*.md")
            ),
            "test_lines": sum(
                path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py")
            ),
        }


def _constants(tree: ast.Module) -> Iterator[str]:
    """Names in capitals that a module gives to numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            names = target.elts if several else [target]
            values = node.value.elts if several else [node.value]
            for name, value in zip(names, values):
                if isinstance(name, ast.Name) and name.id.isupper() and _is_number(value):
                    yield name.id


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.Call):  # np.uint64(1)
        return len(node.args) == 1 and ast.unparse(node.func).startswith("np.") and _is_number(node.args[0])
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def code_lines(text: str) -> int:
    """Lines that hold more than comments and strings that stand alone."""
    quiet = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in quiet:
            statement.append(token)
        elif token.type == tokenize.NEWLINE:
            if not all(one.type == tokenize.STRING for one in statement):
                lines.update(n for one in statement for n in range(one.start[0], one.end[0] + 1))
            statement = []
    return len(lines)


def marks(root: Path = ROOT) -> dict[str, int]:
    """The counts that the house must not exceed; they may only fall."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["house"]


def _functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        name = above
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            name = f"{above}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            yield name, node
        yield from _functions(node, name)


def strong_components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Tarjan's algorithm: sets of nodes that reach each other."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            place = stack.index(node)
            found.append(stack[place:])
            del stack[place:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def plan(text: str | None = None) -> list[str]:
    """Rooms in the order of the table of ``docs/architecture.md``."""
    text = PLAN.read_text(encoding="utf-8") if text is None else text
    return re.findall(
        r"^\| `(\w+)` \|", text.partition("## The rooms")[2].partition("\n## ")[0], re.MULTILINE
    )


def main() -> int:
    """Print the counts; exit code 1 where one is above its mark or an import reaches back."""
    house, above = House(), 0
    none = {"circles": house.circles(), "imports against the order": house.against_the_order(plan())}
    for what, found in none.items():
        print(f"{what}: {len(found) or 'none'}", *found, sep="\n    ")
    counts = house.counts()
    for what, most in marks().items():
        print(f"{what}: {counts[what]} of at most {most}{', ABOVE ITS MARK' * (counts[what] > most)}")
        above += counts[what] > most
    for name, (n, p) in sorted(house.long_functions().items(), key=lambda item: -item[1][0]):
        print(f"    {name}: {n} lines, {p} parameters")
    largest = sorted(house.modules.values(), key=lambda module: -module.text.count("\n"))[:5]
    print("largest modules:", ", ".join(f"{m.name} {m.text.count(chr(10))}" for m in largest))
    return int(any(none.values()) or above > 0)


if __name__ == "__main__":
    sys.exit(main())
