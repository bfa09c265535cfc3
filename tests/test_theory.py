"""Docs/theory.md: the counter-example to the paper's theorems, its lemmas corrected, bounds under noise."""

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions


def round_matrix(n_parties, r):
    """One round of Algorithm 1 on (S - 1, z - 1): one sample, D_m = 1, loss (z - 1)^2 / 2, no ridge."""
    m = float(n_parties)
    total = np.array([1.0 - m, m * (1.0 - 1.0 / r)])
    return np.array([total, (np.array([0.0, 1.0]) + r * total) / (1.0 + r)])


def copies(n_parties, lam=1e-9):
    """The example; with a target, so that zero, where rounds begin, is not already the answer."""
    blocks = [np.ones((1, 1)) for _ in range(n_parties)]
    return make_problem(blocks, np.array([1.0]), loss="squared", lam=lam, fit_intercept=False)


@pytest.mark.parametrize("n_parties", [2, 3, 5, 10])
def test_threshold_of_the_penalty(n_parties):
    threshold = (3 * n_parties - 4) / 2
    for factor, converges in ((0.9, False), (1.1, True)):
        radius = np.abs(np.linalg.eigvals(round_matrix(n_parties, factor * threshold))).max()
        assert bool(radius < 1.0) is converges


def test_theorems_1_and_2_of_the_paper_fail_at_their_own_penalty():
    r, n_parties = 2.0, 3
    # Assumption 1.2 with sigma_min = sigma_max = 1, L = 1: all of it holds
    assert r * 1.0 >= 2.0 * 1.0
    assert r * (r + 1.0) > 2.0
    assert r >= 1.0
    growth = np.abs(np.linalg.eigvals(round_matrix(n_parties, r))).max()
    assert growth == pytest.approx(1.2152, abs=1e-4)
    solver = Solver(copies(n_parties), SolverOptions(scheme="jacobi", penalty=r, n_threads=1))
    records = [solver.round() for _ in range(30)]
    assert records[-1].primal_residual / records[-2].primal_residual == pytest.approx(growth, rel=1e-3)
    # Theorem 2: V falls below every eps; here it never comes below its first value again
    assert min(record.lyapunov for record in records) == records[0].lyapunov > 0.1


def lagrangian_steps(problem, r, rounds):
    """Change of the augmented Lagrangian in each round of `jacobi` from the second, and what bounds it.

    Keys: `change`; the promises `printed` (Lemma 4 of the paper), `half` (with r/2, without M - 1),
    `corrected`, and `messages` (the modulus taken in the norm of the messages).
    """
    blocks = [block.matrix for block in problem.blocks]
    n_parties, ridge = len(blocks), problem.regularization
    modulus, smoothness = (1.0, 1.0) if problem.loss.name == "squared" else (0.0, 0.25)
    spectra = [np.linalg.eigvalsh(block.T @ block) for block in blocks]
    largest = np.array([values[-1] for values in spectra])
    gamma = np.array([r * max(values[0], 0.0) + ridge for values in spectra])
    solver = Solver(problem, SolverOptions(scheme="jacobi", penalty=r, n_threads=1))

    def state():
        x = [np.array(weights) for weights in solver.party_weights()]
        return x, np.array(solver.coordinator.last.z), np.array(solver.coordinator.last.u)

    def lagrangian(x, z, u):
        gap = sum(block @ v for block, v in zip(blocks, x, strict=True)) - z
        if problem.loss.name == "squared":
            loss = 0.5 * np.sum((z - problem.y) ** 2)
        else:
            loss = np.sum(np.logaddexp(0.0, z) - problem.y * z)
        return loss + 0.5 * ridge * sum(v @ v for v in x) + u @ gap + 0.5 * r * gap @ gap

    solver.round()  # from here on u is the gradient at z
    before, found = state(), []
    for _ in range(rounds):
        solver.round()
        after = state()
        moves = [new - old for new, old in zip(after[0], before[0], strict=True)]
        squares = np.array([v @ v for v in moves])
        d = np.stack([block @ v for block, v in zip(blocks, moves, strict=True)])
        gain = ((r + modulus) / 2 - smoothness**2 / r) * np.sum((after[1] - before[1]) ** 2)
        found.append(
            {
                "change": lagrangian(*after) - lagrangian(*before),
                "printed": -(gamma / 2 - largest) @ squares - gain,
                "half": -(gamma / 2 - r / 2 * largest) @ squares - gain,
                "corrected": -(gamma / 2 - r / 2 * (n_parties - 1) * largest) @ squares - gain,
                "messages": r / 2 * (np.sum(d.sum(axis=0) ** 2) - 2 * float((d * d).sum()))
                - ridge / 2 * squares.sum()
                - gain,
            }
        )
        before = after
    solver.close()
    return found


def test_descent_with_and_without_the_number_of_parties():
    for step in lagrangian_steps(copies(3, lam=1e-3), 2.0, 12):
        assert step["printed"] < 0.0
        assert step["half"] < 0.0
        assert step["change"] > 0.0
        # one sample, equal parties: what is lost is the overshoot, and the corrected form is an equality
        assert step["change"] == pytest.approx(step["corrected"], rel=1e-9)
    # (c) alone: r (r + 1) > 2, two equal blocks that are not of full column rank.
    block = np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    problem = make_problem(
        [block, block], np.array([1.0, -1.0, 2.0]), loss="squared", lam=1e-3, fit_intercept=False
    )
    for step in lagrangian_steps(problem, 1.01, 40):
        assert step["messages"] <= 0.0
        assert step["change"] <= step["messages"] + 1e-12


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("n_parties", [1, 2, 3, 4, 6])
def test_lemma_4_corrected_holds_for_random_blocks(loss, n_parties):
    rng = np.random.default_rng(n_parties)
    exceeded = 0
    for k in range(6):
        n = int(rng.integers(3, 12))
        shared = rng.normal(size=(n, 2))  # alike in every second case: there the sum overshoots
        blocks = [
            shared + 0.1 * rng.normal(size=(n, 2)) if k % 2 else rng.normal(size=(n, rng.integers(1, 4)))
            for _ in range(n_parties)
        ]
        y = rng.normal(size=n) if loss == "squared" else np.arange(n) % 2.0
        problem = make_problem(blocks, y, loss=loss, lam=10.0 ** rng.uniform(-3, 0), fit_intercept=False)
        steps = lagrangian_steps(problem, 10.0 ** rng.uniform(-0.5, 1.0), 6)
        scale = 1e-9 * max(1.0, *(abs(value) for step in steps for value in step.values()))
        for step in steps:
            assert step["change"] <= step["messages"] + scale
            assert step["messages"] <= step["corrected"] + scale
            exceeded += step["change"] > step["half"] + scale
    if n_parties <= 2:
        assert exceeded == 0
    elif loss == "squared":  # the form without M - 1 fails here as well
        assert exceeded > 0


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_the_state_is_bounded_by_the_noise_of_one_round(loss, size):
    rng = np.random.default_rng(4)
    blocks = [rng.standard_normal((60, d)) for d in (3, 5, 2)]
    y = (blocks[0][:, 0] + rng.standard_normal(60) > 0).astype(float)
    problem = make_problem(blocks, y, loss=loss, lam=1e-3, constraint="ball:2", fit_intercept=False)
    options = SolverOptions(scheme="sharing", penalty=0.1, acceleration="none", gap=0, n_threads=1)
    solver = Solver(problem, options)
    solver.prepare()
    noise_norms = [0.0] * len(blocks)

    def noised(m, step):
        def answer(w, scaled_penalty):
            noise, made = size * rng.standard_normal(60), step(w, scaled_penalty)
            noise_norms[m] = float(np.linalg.norm(noise))
            return {**made, "message": made["message"] + noise}

        return answer

    for m, party in enumerate(solver.parties):
        party.step = noised(m, party.step)
    reach = [2.0 * np.linalg.norm(block, 2) for block in blocks]
    slope = np.sqrt(60.0)
    for _ in range(150):
        solver.round()
        state = solver.coordinator.last
        for party, limit in zip(solver.parties, reach):
            assert np.linalg.norm(party.block.matrix @ party.weights) <= limit * (1 + 1e-12)
        assert np.linalg.norm(state.u) <= slope * (1 + 1e-12)
        most = sum(reach) + sum(noise_norms) + 2.0 * slope / 0.1
        assert np.linalg.norm(state.z) <= most * (1 + 1e-9)
    solver.close()
