"""The house: no room reaches back, no circle, the order that the plan draws, and limits for functions."""

import ast
import importlib
import re

from house import PLAN, ROOT, House, code_lines, marks, plan, the_house
from mutants import importers, mutated, places

TEXT = PLAN.read_text(encoding="utf-8")


def test_the_plan_is_what_there_is():
    assert sorted(plan(TEXT)) == sorted(the_house().rooms())
    # The way of a number names what there is.
    names = re.findall(r"`(fastadmm\.[\w.]+)`", TEXT)
    assert len(names) > 20
    for name in names:
        parts = name.split(".")
        depth = next(n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in the_house().modules)
        found = importlib.import_module(".".join(parts[:depth]))
        for part in parts[depth:]:
            found = getattr(found, part)
    # No circles not even lazy ones.
    assert not the_house().circle()
    # Imports follow the order of the plan.
    assert not the_house().against_the_order(plan(TEXT))


def test_no_count_is_above_its_mark():
    counts, most = the_house().counts(), marks()
    assert counts.keys() == most.keys()
    above = {what: (number, most[what]) for what, number in counts.items() if number > most[what]}
    assert not above, "marks of [tool.house] only fall: make it smaller"


def test_the_counting_itself(tmp_path):
    # A test of absences must be able to fail.
    (tmp_path / "kernels").mkdir()
    (tmp_path / "data_tools").mkdir()
    files = {
        "low/__init__.py": "",
        "low/a.py": "def f():\n    from fastadmm.high import b\n    return b",
        "high/__init__.py": "from fastadmm.low.a import f",
        "high/b.py": "from fastadmm.high import f\n"
        + f"def g({', '.join('abcdefghijklm')}):\n"
        + "    f()\n" * 80,
    }
    for name, text in files.items():
        path = tmp_path / "fastadmm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    small = House(tmp_path)
    assert small.functions == {"fastadmm.low.a:f:1": (3, 0), "fastadmm.high.b:g:2": (81, 13)}
    assert small.pairs() == ["high and low"]
    assert set(small.circle()) == {"fastadmm.high", "fastadmm.high.b", "fastadmm.low.a"}
    assert small.against_the_order(["low", "high"]) == ["fastadmm.low.a imports fastadmm.high.b"]
    assert code_lines('"""One.\n\nTwo."""\n\n# three\nx = (\n    1\n)  # four\n') == 3
    (tmp_path / "kernels" / "k.py").write_text(
        "_A, B = 1, -2.0\nC: int = 2**3\nD = 'x'\ne = 5\nF = np.uint64(7)\n"
    )
    assert list(House(tmp_path).modules["fastadmm.kernels.k"].constants()) == ["_A", "B", "C", "F"]
    assert plan("## The rooms\n| room | |\n| `a` | x |\n| `b` | y |\n\n## Next\n| `c` | |\n") == ["a", "b"]


def test_make_and_mutants_find_what_they_need():
    module = the_house().modules["fastadmm.proof.prove"]
    drawn = list(places(module.nodes[0]))
    assert {ast.Compare, ast.Constant, ast.BinOp, ast.If} <= {type(node) for node in drawn}
    plain = ast.dump(module.nodes[0])
    for node in drawn[::10]:
        assert ast.dump(ast.parse(mutated(module.text, node))) != plain
    assert str(ROOT / "tests" / "test_proof.py") in importers(module.name)
    # Python puts no script's folder on its path here: the recipe or the script has to.
    recipes = (ROOT / "Makefile").read_text().splitlines()
    found = [line for line in recipes if re.search(r"python (-P )?(tests|bench)/[\w/]+\.py", line)]
    assert len(found) > 10
    for line in found:
        script = ROOT / re.search(r"python (?:-P )?([\w/]+\.py)", line)[1]
        text = script.read_text()
        beside = {path.stem for path in script.parent.glob("*.py")}
        imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
        told = f"PYTHONPATH={script.parent.name}" in line or "sys.path" in text
        assert told or not beside & imported, line


def test_no_function_within_another_hides_what_is_imported():
    """It would call itself, where the other was meant."""
    for module in the_house().modules.values():
        imported = {
            alias.asname or alias.name
            for node in module.nodes[0].body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for outer in module.functions:
            inner = {node.name for node in ast.walk(outer) if isinstance(node, ast.FunctionDef)}
            assert not (inner - {outer.name}) & imported, module.name
