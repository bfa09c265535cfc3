"""One order of addition: leaves from the data alone, added by halves, and nothing else adds up rows."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import fastadmm
import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.engine.stacked import StackedRows
from fastadmm.engine.tree import add_by_halves, halved, leaves_of, node_range, sum_leaves
from fastadmm.kernels.vectors import add_by_halves as add_rows_by_halves
from fastadmm.kernels.vectors import total_and_size
from hypothesis import given, settings
from hypothesis import strategies as st

COORDINATOR = Path(fastadmm.__file__).parent / "coordinator"

#: What holds a number for every row in the coordinator's modules, by its last name.
ROW_VECTORS = {
    *("gradient", "curvature", "likely", "messages", "total", "mismatch", "pull", "residual", "residuals"),
    *("image", "images", "base", "along", "z", "u", "h", "weight", "offset", "spread", "moved", "there"),
    *("slopes", "s", "scaled", "metric", "omega", "pressed", "_fresh", "last_residual"),
}

#: What has such a name and is a vector of coefficients, of intercepts or of one party's weights.
SMALL = {
    "class_root.py: slope = float(gradient @ step)",
    "class_root.py: gradient = gradient - gradient.mean()",
    "weights_program.py: excess[mine & ~free] = residual[mine & ~free] - residual[inside].mean()",
    "summed.py: self.spread = np.append(self.spread, np.abs(factors) @ spread + self._rounded(factors))",
    "summed.py: return float(np.abs(self.point.coefficients) @ self.spread)",
    "summed.py: self.spread = np.abs(merging) @ self.spread + self._rounded(merging)",
}

#: Sums that no engine could be asked for by name.
SUMS = {"sum", "mean", "dot", "max", "min", "norm", "einsum", "vdot", "inner", "average", "std"}


def slow_sum(values):
    """The sum by halves, as the text says it."""
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return slow_sum(values[:middle]) + slow_sum(values[middle:])


def sum_of(v, rows):
    """What the kernel adds up for a leaf."""
    out = np.zeros(2)
    total_and_size(v, out, *rows)
    return float(out[0])


@given(n=st.integers(1, 10**6), level=st.integers(0, 6))
@settings(max_examples=50, deadline=None)
def test_leaves_of_a_node_are_leaves_of_the_whole(n, level):
    level = min(level, n.bit_length() - 1)
    whole = halved(n, 1 << level)
    assert whole[0][0] == 0
    assert whole[-1][1] == n
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise([*whole, (n, n)]))
    for index in range(1 << level):
        assert node_range(n, level, index) == whole[index]
    for up in range(level):
        start, stop = node_range(n, up, (1 << up) - 1)
        inside = [(a - start, b - start) for a, b in whole if start <= a]
        assert list(halved(stop - start, 1 << (level - up))) == inside


def test_how_many_leaves():
    assert [leaves_of(n) for n in (1, 4095, 8191, 8192, 32561, 10**5, 10**6)] == [1, 1, 1, 2, 4, 16, 64]
    assert leaves_of(10**9) == 4096  # 256 cores, sixteen times each
    assert leaves_of(2000, entries=2000 * 500.0) == 2
    assert leaves_of(3, entries=1e9) == 2
    # Sums of a million numbers from a hundred million entries.
    assert leaves_of(10**6, 1e8, 1e8 / 1e6) == 64
    assert leaves_of(10**6, 1e8, 0.01) == 16
    assert leaves_of(10**6, 1e8, 0.01, fewest=4) == 4


@pytest.mark.parametrize("n_leaves", [1, 2, 8, 64])
def test_three_ways_to_add_leaves_are_one(n_leaves):
    values = list(np.random.default_rng(0).normal(size=n_leaves) * 10.0 ** np.arange(n_leaves))
    ranges = halved(n_leaves, n_leaves)
    slow = slow_sum(values)
    assert add_by_halves(values) == slow
    assert sum_leaves(lambda rows: values[rows[0]], ranges) == slow
    rows = np.array([values] * 5).T.copy()
    add_rows_by_halves(rows, 1, 4)
    assert rows[0].tolist() == [values[0], slow, slow, slow, values[0]]
    pairs = [(v, np.array([v, -v])) for v in values]
    number, array = sum_leaves(lambda rows: pairs[rows[0]], ranges)
    assert number == slow
    assert list(array) == [slow, -slow]


@pytest.mark.parametrize("threads", [1, 3])
def test_large_sums_of_leaves_are_added_in_slices(threads, monkeypatch):
    rng, jobs = np.random.default_rng(2), []
    leaves = list(rng.normal(size=(16, 300, 101)))
    slow = slow_sum([leaf.copy() for leaf in leaves])
    with Engine(threads) as engine:
        shared = engine._shared
        monkeypatch.setattr(
            engine, "_shared", lambda f, items, *a: jobs.append(len(items)) or shared(f, items, *a)
        )
        found = engine.sums(lambda rows: leaves[rows[0]].copy(), halved(16, 16))
        np.testing.assert_array_equal(found, slow)
        assert jobs == [16, 3]
        turned = engine.sums(lambda rows: leaves[rows[0]].copy().T, halved(16, 16))
        np.testing.assert_array_equal(turned, slow.T)


def test_few_leaves_are_added_as_many_are(monkeypatch):
    u, v = np.random.default_rng(3).normal(size=(2, 3, 20_000)) * 10.0 ** np.arange(3)[:, np.newaxis]
    with Engine(1) as engine:
        assert len(engine.leaves(20_000)) == Engine.few_leaves
        few = engine.dot(u, v[0]), engine.total(u[0]), engine.total_and_size(v)
        monkeypatch.setattr(Engine, "few_leaves", 0)
        many = engine.dot(u, v[0]), engine.total(u[0]), engine.total_and_size(v)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
    assert few[1] == slow_sum([sum_of(u[0], rows) for rows in halved(20_000, 4)])


@pytest.mark.parametrize("light", [True, False])
def test_pieces_of_work_change_no_bit(light):
    values = np.random.default_rng(1).normal(size=200_000)
    with Engine(1) as engine:
        leaves = engine.leaves(len(values))
        assert len(leaves) == 16
        slow = slow_sum([float(values[a:b].sum()) for a, b in leaves])
        for size in (1, 10**8):  # with memory for few sums
            found = engine.sums(lambda rows: float(values[slice(*rows)].sum()), leaves, light, size)
            assert found == slow
        by_leaf = np.zeros((len(leaves), 2))
        for own, rows in zip(by_leaf, leaves, strict=True):
            total_and_size(values, own, *rows)
        slow = slow_sum(by_leaf[:, 0].tolist())
        assert engine.total(values) == slow
        total, of_sizes = engine.total_and_size(np.array([values, -values]))
        assert list(total) == [slow, -slow]
        assert of_sizes[0] == of_sizes[1] == engine.total(np.abs(values))
        assert engine.mean(values) == slow / len(values)
        assert engine.norm(values) ** 2 == pytest.approx(float(values @ values))
        assert engine.largest(values) == values.max()
        assert list(engine.each_largest([values, -values], -1.0)) == [-values.min(), values.max()]
        np.testing.assert_allclose(engine.combine(np.ones((1, 2)), np.array([values, values])), [2 * values])


def test_stacked_rows():
    rng = np.random.default_rng(2)
    u, v = rng.normal(size=(4, 3 * 10_000)), rng.normal(size=3 * 10_000)
    with Engine(1) as engine:
        stacked = StackedRows(engine, 10_000)
        np.testing.assert_allclose(stacked.dot(u, v), u @ v, rtol=1e-9, atol=1e-9)
        assert stacked.norm(v) == pytest.approx(np.linalg.norm(v))
        longer = np.pad(u, ((0, 0), (0, 7)), constant_values=1.0)
        np.testing.assert_allclose(
            stacked.combine(np.arange(4.0), longer), np.arange(4.0) @ longer, atol=1e-12
        )


# --- the house rule


def last_name(node):
    """``c`` of ``a.b.c[...]``, also of its transpose or of a reshaped copy."""
    while True:
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "T"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value if node.func.attr in ("reshape", "ravel", "astype", "copy") else node.func
        else:
            break
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def sums_of_rows(tree):
    """Lines that add up rows themselves, outside of functions of a leaf's rows."""
    found = []

    def visit(node, inside):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            names = [argument.arg for argument in node.args.args]
            inside = inside or names in (["rows"], ["part"])
        product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if product and not inside and {last_name(node.left), last_name(node.right)} & ROW_VECTORS:
            found.append(node.lineno)
        if not inside and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            function = node.func
            across = any(k.arg == "axis" and ast.unparse(k.value) == "0" for k in node.keywords)
            if function.attr in SUMS and not across and last_name(function.value) != "engine":
                of = [function.value, *node.args[:1]]
                if {last_name(one) for one in of} & ROW_VECTORS and "rows" not in ast.unparse(function.value):
                    found.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, False)
    return found


def test_what_the_rule_sees():
    seen = "x = self.u @ v\ny = gradient.sum()\nz = np.linalg.norm(self.last.u)\nw = np.abs(z).max()\n"
    assert sums_of_rows(ast.parse(seen)) == [1, 2, 3]
    fine = "engine.dot(u, z)\nc @ square\ndef piece(rows):\n    return u[slice(*rows)].sum()\n"
    assert sums_of_rows(ast.parse(fine)) == []


def test_the_coordinator_adds_up_rows_through_the_engine_alone():
    found = set()
    for path in sorted(COORDINATOR.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        found |= {f"{path.name}: {lines[line - 1].strip()}" for line in sums_of_rows(ast.parse(text))}
    assert found == SMALL
