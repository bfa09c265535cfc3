"""Private runs and what only runs in one process do for speed: they never meet.

What a private run computes from exact data is what its theorems and audits were written for: noisy messages,
public targets, and for mode "fusion" the label holder's own fit by one direction a round. Each shape below
would take another method if all columns could be read at once.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import Privacy, SolverOptions, make_problem, solve
from fastadmm.conversation.answering import Answering
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.subspace import stacked, stacked_newton
from fastadmm.coordinator.subspace.stacked import StackedRows
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.sends_columns import SendsColumns
from fastadmm.privacy.baseline import late_fusion
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.fusion_sender import FusionParty
from fastadmm.privacy.message import MessageSolver
from fastadmm.privacy.message_sender import MessageSender
from fastadmm.solver.loop import run_rounds

#: What only runs without privacy may call.
FAST = [
    (DirectionParty, "prepared"),
    (DirectionParty, "know"),
    (SendsColumns, "send_columns"),
    (SubspaceMethod, "_best_of_all_columns"),
    (StackedRows, "__init__"),
    (stacked, "ascend"),
    (stacked, "sampled_start"),
    (stacked_newton, "Preconditioner"),
    (ProximalMethod, "__init__"),
]

#: Rows, columns of each party and share of stored entries.
SHAPES = {
    "few columns": (300, (4, 3), 1.0),
    "dense columns in place": (9000, (30, 8), 1.0),
    "sparse columns": (6000, (80, 80), 0.05),
    "sparse Hessian-vector products": (3000, (900, 300), 0.01),
    "few rows": (60, (300, 50), 1.0),
    "many sparse columns to a row": (300, (900, 400), 0.02),
}

RUNS = {
    "message": lambda given, options: run_rounds(
        MessageSolver(given, options, Privacy(mode="message", epsilon=4.0, rounds=2))
    ),
    "fusion": lambda given, options: run_rounds(
        FusionSolver(given, options, Privacy(mode="fusion", epsilon=4.0, delta=1e-5))
    ),
    "late fusion": lambda given, options: late_fusion(given, options.n_threads),
}


def problem(shape):
    (n, widths, density), rng = SHAPES[shape], np.random.default_rng(0)
    if density == 1.0:
        blocks = [rng.normal(size=(n, d)) / np.sqrt(d) for d in widths]
    else:
        blocks = [sp.random_array((n, d), density=density, rng=rng, format="csr") for d in widths]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    return make_problem(blocks, (z + rng.logistic(size=n) > 0.0) * 1.0, lam=1e-3)


@pytest.fixture
def refusing(monkeypatch):
    """Have all of that fail; what was called."""
    called = []

    def refuse(name):
        def refused(*given, **more):
            called.append(name)
            raise AssertionError(f"{name} in a private run")

        return refused

    for owner, name in FAST:
        monkeypatch.setattr(owner, name, refuse(name))
    return called


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", RUNS)
@pytest.mark.representatives(8)
def test_private_runs_take_no_fast_path(mode, shape, threads, refusing):
    RUNS[mode](problem(shape), SolverOptions(n_threads=threads))
    assert not refusing


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_problems_without_privacy_do(shape, refusing):
    with pytest.raises(AssertionError, match="in a private run"):
        solve(problem(shape), SolverOptions(n_threads=1))


@pytest.mark.parametrize("party", [MessageSender, FusionParty])
def test_private_parties_prepare_nothing_before_they_answer(party):
    assert party.prepared is Answering.prepared
