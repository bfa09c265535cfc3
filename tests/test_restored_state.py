"""A state that lacks something, or has another shape, is refused when it is restored, not in a round."""

import copy
from functools import reduce

import numpy as np
import pytest
from fastadmm import SolverOptions
from fastadmm.blocks.block import DenseBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.problem.problem import TestSet, make_problem
from fastadmm.secrecy.keys import new_private_key, public_key
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.solver import Solver

REFUSED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
ENGINE = Engine(1)
OPTIONS = {"gap": 1e-12, "n_threads": 1}


def solver_of(kind):
    rng = np.random.default_rng(1)
    n, d = (200, 60) if kind == "proximal" else (40, 60) if kind == "few rows" else (60, 4)
    blocks = [rng.normal(size=(n, d)) for _ in range(2)]
    y = (blocks[0][:, 0] + rng.normal(size=n) > 0.0) * 1.0
    more = {"regularizer": "l1"} if kind == "proximal" else {}
    watched = None
    if kind == "early stopping":
        rows = TestSet([DenseBlock(b[:20]) for b in blocks], y[:20], np.ones(20), np.zeros(20))
        watched = EarlyStopping(rows, patience=50)
        blocks, y = [b[20:] for b in blocks], y[20:]
    problem = make_problem(blocks, y, lam=1e-3, **more)
    scheme = {"proximal": "proximal", "few rows": "subspace"}.get(kind, "sharing")
    options = SolverOptions(scheme=scheme, directions="one" if kind == "few rows" else "auto", **OPTIONS)
    return Solver(problem, options, early=watched)


@pytest.mark.parametrize(
    ("kind", "key", "spoil"),
    [
        *(
            ("sharing", "method/metric", spoil)
            for spoil in (lambda m: m[:-1], np.negative, lambda m: m[:, None])
        ),
        *(("proximal", f"method/directions/{key}", None) for key in ("hessian", "curvature")),
        ("proximal", "method/directions/curvature", lambda c: c[:-1]),
        *(("proximal", "method/usual", spoil) for spoil in (None, lambda _: "x")),
        *(("few rows", f"method/{key}", None) for key in ("usual", "asked_images")),
        ("few rows", "method/asked_images", lambda m: m[:-1]),
        *(("early stopping", key, None) for key in ("validation", "tightened")),
    ],
)
def test_states_that_lack_something_are_refused(kind, key, spoil):
    solver = solver_of(kind)
    *path, last = key.split("/")
    for _ in range(40):
        solver.round()
        if last in reduce(dict.__getitem__, path, solver.export()):
            break
    state, parties = copy.deepcopy((solver.export(), solver.export_parties()))
    solver_of(kind).restore(*copy.deepcopy((state, parties)))
    place = reduce(dict.__getitem__, path, state)
    value = place.pop(last)
    if spoil is not None:
        place[last] = np.ascontiguousarray(spoil(value)) if isinstance(value, np.ndarray) else spoil(value)
    with pytest.raises(REFUSED):
        solver_of(kind).restore(state, parties)


def test_the_best_weights_of_all_parties_are_there():
    solver = solver_of("early stopping")
    solver.round()
    state, parties = copy.deepcopy((solver.export(), solver.export_parties()))
    del parties[1]["best_weights"]
    with pytest.raises(KeyError, match="best_weights"):
        solver_of("early stopping").restore(state, parties)


@pytest.mark.parametrize("answered", [[[3.0]], 3.0, [np.nan], [-1.0], [], [1.0, 2.0]], ids=str)
def test_a_party_knows_how_often_it_has_answered(answered):
    def party_with(key):
        party = MaskedDirectionParty("a", DenseBlock(np.eye(10, 3)), 1.0, ENGINE)
        party.position, party.private = 0, key
        return party

    party = party_with(private := new_private_key())
    party.introduce(np.frombuffer(public_key(private) + public_key(new_private_key()), dtype="<i8"))
    saved = party.export()
    with pytest.raises(ValueError, match="answered"):
        party_with(private).restore({**saved, "answered": np.array(answered)})
