"""Plant small faults, one at a time, in a copy of the installed package: which do the tests survive?

``make mutants N=20 SEED=0`` draws them from all modules. The tests that import the module run first, then all
fast ones, which have to pass without a fault. What survives needs a test, or is no fault.
"""

import ast
import copy
import difflib
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree

import fastadmm

from house import ROOT, the_house

PAIRS = [(ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
OPPOSITE = dict([*PAIRS, *((other, one) for one, other in PAIRS)])
#: A run of tests that takes longer has met a fault that never ends.
SECONDS = 1800


def faulty(node):
    """A node with a fault: another operator, number or branch, or nothing for a statement."""
    made = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            made.ops = [OPPOSITE[type(op)]()]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in OPPOSITE and not of_text(node):
            made.op = OPPOSITE[type(op)]()
        case ast.Constant(value=bool(value)):
            made.value = not value
        case ast.Constant(value=int(value) | float(value)):
            made.value = value + 1
        case ast.IfExp(test=test):
            made.test = ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return ast.Pass()
        case _:
            return None
    return made


def of_text(node):
    """Whether texts are added: most such sums are what people read."""
    return any(
        isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def places(tree):
    """Nodes that may hold a fault: inside functions, but for what only type checkers or people read."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                left = [statement]
                while left:
                    node = left.pop()
                    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.JoinedStr):
                        continue  # functions have their own turn
                    if faulty(node) is not None or isinstance(node, ast.If | ast.While):
                        yield node
                    hidden = getattr(node, "annotation", None)
                    left.extend(child for child in ast.iter_child_nodes(node) if child is not hidden)


def mutated(text, node):
    """The source with the fault in place of a node."""
    if isinstance(node, ast.If | ast.While):
        node, made = node.test, ast.UnaryOp(ast.Not(), node.test)
    else:
        made = faulty(node)
    lines = text.encode().splitlines(keepends=True)
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    words = ast.unparse(made) if isinstance(made, ast.stmt) else f"({ast.unparse(made)})"
    raw = text.encode()
    return (raw[:begin] + words.encode() + raw[end:]).decode()


def importers(module):
    """Test files that import a module; where none does, those that import one that imports it."""
    files = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("test_*.py"))}

    def importing(name):
        package, _, last = name.rpartition(".")
        words = rf"(from|import) {re.escape(name)}\b|from {re.escape(package)} import .*\b{last}\b"
        return [str(path) for path, text in files.items() if re.search(words, text)]

    near = [name for name, others in the_house().imports.items() if module in others]
    return importing(module) or sorted({path for name in near for path in importing(name)})


def failure(site, jobs, files):
    """The first test that fails with the package at a place; "" where none does."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", str(jobs)]
    command += ["-m", "not slow and not repeats", *files]
    environment = {**os.environ, "PYTHONPATH": str(site), "CI": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, timeout=SECONDS, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "a test that never ends"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else "" if done.returncode == 0 else done.stdout[-300:] + done.stderr[-300:]


def main():
    """Draw faults, plant each, and say what found it."""
    number, seed, jobs = map(int, sys.argv[1:])
    modules = the_house().modules.values()
    drawn = random.Random(seed).sample(
        [(module, node) for module in modules for node in places(module.nodes[0])], number
    )
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # Beside it lie its compiled kernels, by a digest of their sources: no fault meets those of another.
        package = Path(folder) / "fastadmm"
        copytree(Path(fastadmm.__file__).parent, package)
        for count, (module, node) in enumerate(drawn, 1):
            file = package / Path(*module.name.split(".")[1:])
            file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
            text = mutated(module.text, node)
            file.write_text(text, encoding="utf-8")
            files = importers(module.name)
            found = (files and failure(Path(folder), jobs, files)) or failure(Path(folder), jobs, [])
            file.write_text(module.text, encoding="utf-8")
            survived += not found
            print(f"{count}. {f'killed by {found}' if found else 'SURVIVED'}")
            lines = difflib.unified_diff(module.text.splitlines(), text.splitlines(), n=0, lineterm="")
            print(module.name, *list(lines)[2:], sep="\n", flush=True)
    print(f"{survived} of {len(drawn)} survived")


if __name__ == "__main__":
    main()
