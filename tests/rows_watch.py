"""Watches modules at run time for sums over rows that no engine adds up, whatever their vectors are called.

Run as a program (``python rows_watch.py PREFIX ...``) it imports the modules whose names begin so with
every call and matrix product replaced by one that looks at shapes: the number of rows is a prime, so a
dimension is a multiple of it only where it is that of rows. What is given rows and answers with numbers
for none has added them up, or looked for the largest, in an order of its own, and among the rows that are
here alone. Functions that an engine calls for the rows of a leaf may do so. Fits of every scheme follow,
each resumed once; what was seen is printed, as JSON.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np
import scipy.sparse as sp

#: A prime, from which on a job has two leaves.
ROWS = 8209

#: What asks nothing about numbers.
HARMLESS = {
    "len",
    "isinstance",
    "id",
    "type",
    "hasattr",
    "getattr",
    "setattr",
    "callable",
    "repr",
    "zip",
    "enumerate",
}

#: What chooses rows and adds up none.
CHOICES = {"flatnonzero", "take"}

#: What only runs where rows are so few that they are one leaf, or where all of them are here.
ONE_LEAF = {"barrier", "central_path", "few_rows", "path_rows", "predictor_newton", "wide"}
ONE_LEAF |= {"interior_point", "kinked_columns", "row_ascent", "row_kernel"}

#: What needs its own frame.
SPECIAL = {"super", "locals", "globals", "vars"}

found: set[tuple[str, int]] = set()
sites: set[tuple[str, int, int]] = set()
products: set[tuple[str, int, int]] = set()
run: set[tuple[str, int, int]] = set()


class Watched(ast.NodeTransformer):
    """Calls and matrix products, with the place where they stand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _call(self, node: ast.expr, how: str, parts: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
        place = (self.name, node.lineno, node.col_offset)
        sites.add(place)
        made = ast.Call(ast.Name(how, ast.Load()), [ast.Constant(place), *parts], keywords)
        return ast.copy_location(made, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in SPECIAL:
            return node
        return self._call(node, "__watched_call__", [node.func, *node.args], node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return node
        products.add((self.name, node.lineno, node.col_offset))
        return self._call(node, "__watched_product__", [node.left, node.right], [])


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles what is watched from its changed tree; nothing is kept."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = Watched(fullname).visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds what is watched, before all others."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self.prefixes = prefixes

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith(self.prefixes):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = Loader(name, spec.origin)
        return spec


def arrays(things: Iterable[Any]) -> Iterator[np.ndarray]:
    """Arrays among some things, also in lists and tuples of them."""
    for thing in things:
        if isinstance(thing, np.ndarray):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from arrays(thing)


def numbers(thing: Any) -> bool:
    """Whether something is a number, an array, or several of them."""
    if isinstance(thing, (list, tuple)):
        return any(map(numbers, thing))
    return isinstance(thing, (int, float, np.number, np.ndarray)) and not isinstance(thing, bool)


def of_rows(things: Iterable[Any]) -> bool:
    """Whether an array among some things has a number for every row."""
    return any(size and size % ROWS == 0 for array in arrays(things) for size in array.shape)


def in_leaf(frame: FrameType | None, prefixes: tuple[str, ...]) -> bool:
    """Whether an engine called for the rows of a leaf: they are what its function is given."""
    while frame is not None:
        caller = frame.f_back
        of = "" if caller is None else caller.f_globals.get("__name__", "")
        if of.startswith("fastadmm.engine"):
            code = frame.f_code
            given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
            return any(
                isinstance(one, tuple) and len(one) == 2 and all(type(k) is int for k in one) for one in given
            )
        if not of.startswith(prefixes):
            return False
        frame = caller
    return False


def watch(prefixes: tuple[str, ...]) -> None:
    """Import modules of these names as they are watched."""

    def look(place: tuple[str, int, int], given: Iterable[Any], answer: Any) -> None:
        run.add(place)
        added = numbers(answer) and of_rows(given) and not of_rows([answer])
        if added and not in_leaf(sys._getframe(2), prefixes):
            found.add(place[:2])

    def call(place: tuple[str, int, int], function: Any, /, *given: Any, **named: Any) -> Any:
        answer = function(*given, **named)
        module = getattr(function, "__module__", None) or ""
        if hasattr(function, "py_func"):  # a kernel, and its range of rows last
            whole = (
                len(given) > 1
                and all(isinstance(k, int) for k in given[-2:])
                and given[-1] - given[-2] >= ROWS
            )
            if whole and not in_leaf(sys._getframe(1), prefixes):
                found.add(place[:2])
            run.add(place)
        elif module.startswith("fastadmm") or getattr(function, "__name__", "") in HARMLESS | CHOICES:
            run.add(place)
        else:
            look(place, [getattr(function, "__self__", None), *given, *named.values()], answer)
        return answer

    def product(place: tuple[str, int, int], left: Any, right: Any, /) -> Any:
        answer = left @ right
        look(place, [left, right], answer)
        return answer

    builtins.__watched_call__ = call
    builtins.__watched_product__ = product
    sys.meta_path.insert(0, Finder(prefixes))


def fits() -> None:
    """Short fits of every scheme and family of losses."""
    from fastadmm.problem.losses import LOSSES
    from fastadmm.problem.problem import make_problem
    from fastadmm.solver.options import SolverOptions
    from fastadmm.solver.solver import Solver

    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(ROWS, 4)), rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 2))]
    z = sum(block.sum(axis=1) for block in blocks) * 0.3 + rng.normal(size=ROWS)
    labels, counts, classes = (
        (z > 0.0) * 1.0,
        np.floor(np.exp(np.clip(z, -3.0, 2.0))),
        np.digitize(z, [-1.0, 1.0]) * 1.0,
    )
    targets = {"squared": z, "huber": z, "quantile": z, "tukey": z, "welsch": z, "multinomial": classes}
    targets |= {"poisson": counts, "negative_binomial": counts, "gamma": counts + 0.5, "tweedie": counts}

    def fit(
        loss: str,
        scheme: str = "auto",
        rounds: int = 4,
        secrecy: str = "none",
        history: int | None = 3,
        columns: Sequence[Any] = blocks,
        **about: Any,
    ) -> None:
        problem = make_problem(columns, targets.get(loss, labels), loss=loss, **{"lam": 1e-3, **about})
        options = SolverOptions(scheme=scheme, gap=1e-12, n_threads=1, history=history, secrecy=secrecy)
        first, second = Solver(problem, options), Solver(problem, options)
        for _ in range(rounds):
            first.round()
        second.restore(*copy.deepcopy((first.export(), first.export_parties())))
        second.round()
        second.party_weights()

    for loss in LOSSES:
        fit(loss)
        fit(loss, regularizer="l1", lam=1e-2)
    narrow, wide = (
        [sp.random_array((ROWS, d), density=3.0 / d, rng=rng) for d in (w, w + 1)] for w in (30, 900)
    )
    for penalty in ("l2", "l1"):  # all columns at once, and as they are
        for loss in ("logistic", "multinomial"):
            fit(loss, regularizer=penalty, history=None)
        for columns in (narrow, wide):
            fit("logistic", regularizer=penalty, history=None, columns=columns)
    for columns in (narrow, wide):
        fit("hinge", history=None, columns=columns)
        for penalty in ("l2", "l1"):
            fit("multinomial", regularizer=penalty, history=None, columns=columns)
    fit("logistic", history=None, columns=[wide[0], rng.normal(size=(ROWS, 9))], rounds=2)
    for loss in ("logistic", "quantile", "multinomial"):
        weight = rng.random(ROWS) + 0.5
        fit(loss, rounds=14, fit_intercept=False, sample_weight=weight, lam=1e-6)
        fit(loss, regularizer="elastic_net", rounds=14)
        fit(loss, constraint="box:-0.1,0.2")
        fit(loss, constraint="ball:0.3")
        fit(loss, "sharing", 12)
    for scheme in ("jacobi", "gauss-seidel"):
        fit("logistic", scheme)
    for penalty in ("group_lasso", "log_sum"):
        fit("logistic", regularizer=penalty, lam=1e-2)
    for loss in ("logistic", "squared"):
        for scheme in ("subspace", "sharing"):
            fit(loss, scheme, 14, secrecy="sums")


def main() -> None:
    """Command line."""
    prefixes = tuple(sys.argv[1:])
    watch(prefixes)
    fits()
    left = {}
    for name, seen in (("calls", sites), ("products", products)):
        asked = {place for place in seen if place[0].rpartition(".")[2] not in ONE_LEAF}
        left[name] = len(asked - run) / len(asked)
    print(json.dumps({"found": sorted(found), "left": left}))


if __name__ == "__main__":
    main()
