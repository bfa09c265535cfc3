"""What must hold inside the house, counted: ``make house`` prints it, ``test_house.py`` tests it.

Rooms are the folders of ``fastadmm/``, with ``kernels`` and ``data_tools``, and the modules that lie there.
Their order is the table of ``docs/architecture.md``, lowest first: a room imports from itself and from rooms
above it in the table. Every import counts: those inside functions and those for type checkers, too.
"""

import ast
import gc
import io
import re
import sys
import tokenize
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "docs" / "architecture.md"

#: Rooms whose numeric constants are counted: what decides how a model is found.
SOLVING = (
    "kernels",
    "engine",
    "blocks",
    "problem",
    "proof",
    "conversation",
    "parties",
    "coordinator",
    "solver",
)
NUMBER = re.compile(r"[-+*/<>() .e\d]*\d[-+*/<>() .e\d]*|np\.\w+\(\d+\)")

LINES, PARAMETERS = 80, 12

QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def text(self):
        """Its source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def nodes(self):
        """Its syntax tree, node by node, the whole module first."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def functions(self):
        """Its functions, those within others, too."""
        return (node for node in self.nodes if isinstance(node, ast.FunctionDef))

    @property
    def room(self):
        """The folder below ``fastadmm``, or the module that lies there; "" for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    def imported(self):
        """Names that stand behind ``from`` and ``import``, wherever they stand."""
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.name}: a relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def constants(self):
        """Names in capitals that it gives to numbers."""
        for node in self.nodes[0].body:
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    pairs = list(zip(names, values))
                case ast.Assign(targets=[name], value=value) | ast.AnnAssign(target=name, value=value):
                    pairs = [(name, value)]
                case _:
                    continue
            for name, value in pairs:
                if isinstance(name, ast.Name) and name.id.isupper() and NUMBER.fullmatch(ast.unparse(value)):
                    yield name.id


class House:
    """The modules of the package and who imports whom."""

    def __init__(self, root=ROOT):
        self.root = root
        self.modules = {}
        for folder in ("fastadmm", "kernels", "data_tools"):
            name = folder if folder == "fastadmm" else f"fastadmm.{folder}"
            for path in sorted((root / folder).rglob("*.py")):
                parts = path.relative_to(root / folder).with_suffix("").parts
                full = ".".join([name, *(part for part in parts if part != "__init__")])
                self.modules[full] = Module(full, path)

    @cached_property
    def imports(self):
        """The modules that each module imports; of ``from package import module``, the module."""
        found = {}
        for module in self.modules.values():
            names = {n if n in self.modules else n.rpartition(".")[0] for n in module.imported()}
            found[module.name] = (names & self.modules.keys()) - {module.name}
        return found

    def rooms(self):
        return {module.room for module in self.modules.values()} - {""}

    def pairs(self):
        """Rooms that import from each other."""
        room = {name: module.room for name, module in self.modules.items()}
        doors = {(room[name], room[other]) for name, others in self.imports.items() for other in others}
        return [f"{a} and {b}" for a, b in sorted(doors) if a < b and (b, a) in doors]

    def circle(self):
        """Modules that import each other in turn; one circle, or none."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return error.args[1]
        return []

    def against_the_order(self, order):
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

    @cached_property
    def functions(self):
        """Lines without docstring, and parameters, of every function."""
        found = {}
        for module in self.modules.values():
            for node in module.functions:
                lines = (node.end_lineno or 0) - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                a = node.args
                named = [p for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg not in ("self", "cls")]
                parameters = len(named) + bool(a.vararg) + bool(a.kwarg)
                found[f"{module.name}:{node.name}:{node.lineno}"] = lines, parameters
        return found

    def counts(self):
        """What has a mark in ``[tool.house]`` of ``pyproject.toml``, as it is."""
        modules = self.modules.values()
        pages, tests = (self.root / "docs").glob("*.md"), (self.root / "tests").rglob("*.py")
        return {
            "lines": sum(module.text.count("\n") for module in modules),
            "code_lines": sum(code_lines(module.text) for module in modules),
            "modules": len(modules),
            "long_functions": sum(lines > LINES for lines, _ in self.functions.values()),
            "wide_functions": sum(parameters > PARAMETERS for _, parameters in self.functions.values()),
            "constants": sum(len(list(m.constants())) for m in modules if m.room in SOLVING),
            "two_way_pairs": len(self.pairs()),
            "words": sum(len(path.read_text(encoding="utf-8").split()) for path in pages),
            "test_lines": sum(path.read_text(encoding="utf-8").count("\n") for path in tests),
        }


@cache
def the_house():
    """That of this repository, read once for a process; no collection of garbage looks at it again."""
    gc.disable()
    house = House()
    _ = [module.nodes for module in house.modules.values()]
    gc.enable()
    gc.freeze()
    return house


def code_lines(text):
    """Lines that hold more than comments and strings that stand alone."""
    lines = set()
    statement = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if any(one.type != tokenize.STRING for one in statement):
                lines.update(n for one in statement for n in range(one.start[0], one.end[0] + 1))
            statement = []
        elif token.type not in QUIET:
            statement.append(token)
    return len(lines)


def marks():
    """The counts that the house must not exceed; they may only fall."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["house"]


def plan(text):
    """Rooms in the order of the table of ``docs/architecture.md``."""
    table = text.partition("## The rooms")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def main():
    """Print the counts; exit code 1 where one is above its mark or an import reaches back."""
    house, above = the_house(), 0
    wrong = house.circle() or house.against_the_order(plan(PLAN.read_text(encoding="utf-8")))
    print("circles or imports against the order:", *(wrong or ["none"]), sep="\n    ")
    counts = house.counts()
    for what, most in marks().items():
        print(f"{what}: {counts[what]} of at most {most}{', ABOVE ITS MARK' * (counts[what] > most)}")
        above += counts[what] > most
    for name, (n, p) in sorted(house.functions.items(), key=lambda item: -item[1][0]):
        if n > LINES or p > PARAMETERS:
            print(f"    {name}: {n} lines, {p} parameters")
    return int(bool(wrong) or above > 0)


if __name__ == "__main__":
    sys.exit(main())
