"""Measure the README's numbers.

    make readme        or        python -P bench/readme.py [--redraw]

Writes ``bench/readme.json`` (what was measured), the block ``numbers`` in ``README.md`` (from that file and
``bench/apart.json``) and the block ``a9a`` in ``docs/performance.md``. Only the line about the machine
differs between runs; a test checks that the blocks follow from the files.

The data are LIBSVM's a9a and a9a.t, in the directory that the environment
variable ``FASTADMM_DATA`` names, or in ``../shared/data`` beside the repository.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data
from machine import describe_machine
from page import DOCS, ROOT, exponent, first_below, keep, measured, table, write_blocks

README, PAGE = ROOT / "README.md", DOCS / "performance.md"

LAMBDAS = (1e-2, 1e-3, 1e-4, 1e-5)
GAP = 1e-6

#: The problem of the table of rounds, its limit, and the penalties that the paper's schemes may choose from.
ROUNDS_LAMBDA = 1e-3
MOST_ROUNDS = 150
PENALTIES = (0.003, 0.0055, 0.01, 0.018, 0.03, 0.055, 0.1, 0.18, 0.3, 0.55, 1.0, 1.8, 3.0)
OURS = ("sharing", "subspace")


def read(path: Path) -> tuple[Any, np.ndarray]:
    """Features as CSR of shape (N, 123) and labels 0 and 1 of shape (N,)."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path), n_features=123)
    return X.tocsr(), (y > 0).astype(float)


def objective(X: Any, y: np.ndarray, lam: float, x: np.ndarray) -> float:
    """Mean logistic loss plus ``lam / 2 |x|^2`` at weights x of shape (d,), no intercept."""
    z = X @ x
    return float(np.mean(np.logaddexp(0.0, z) - y * z) + 0.5 * lam * (x @ x))


def newton_optimum(X: Any, y: np.ndarray, lam: float) -> float:
    """The optimum to machine precision, by Newton's method: shares no code with fastadmm."""
    from scipy.special import expit

    n, d = X.shape
    x = np.zeros(d)
    for _ in range(100):
        p = expit(X @ x)
        gradient = X.T @ (p - y) / n + lam * x
        hessian = (X.T.multiply(p * (1.0 - p)) @ X).toarray() / n + lam * np.eye(d)
        step = np.linalg.solve(hessian, gradient)
        decrement = float(gradient @ step)
        size = 1.0
        while size > 1e-8 and objective(X, y, lam, x - size * step) > objective(X, y, lam, x) + 1e-15:
            size /= 2.0
        x = x - size * step
        if decrement < 1e-28:
            break
    return objective(X, y, lam, x)


def split(X: Any, parties: int) -> list[Any]:
    """The paper's 66 + 57 columns for two parties, else blocks as equal as possible."""
    ranges = [range(66), range(66, 123)] if parties == 2 else np.array_split(np.arange(123), parties)
    return [X[:, r[0] : r[-1] + 1] for r in ranges]


def measure(data: Path) -> dict[str, Any]:
    """Everything for the README and the page."""
    X, y = read(data / "a9a.bz2")
    X_test, y_test = read(data / "a9a.t.bz2")
    print("demo", flush=True)
    demo = measure_demo()
    curves = {}
    for parties in (2, 5):
        print(f"rounds: {parties} parties", flush=True)
        curves[str(parties)] = measure_curves(split(X, parties), y, newton_optimum(X, y, ROUNDS_LAMBDA))
    rows = []
    for lam in LAMBDAS:
        print(f"a9a, lambda {lam:g}", flush=True)
        rows.append(measure_a9a(X, y, X_test, y_test, lam))
    return {
        "demo": demo,
        "picture": {m: summarise_curves(c) for m, c in curves.items()},
        "a9a": rows,
        "machine": describe_machine(),
    }


def measure_demo() -> dict[str, Any]:
    """The demo's table."""
    from fastadmm.cli.demo_run import run_demo

    with tempfile.TemporaryDirectory() as directory:
        result = run_demo(Path(directory) / "demo", say=lambda text: None)
    return {key: result[key] for key in ("models", "rounds", "gap", "largest_difference")}


def measure_curves(blocks: list[Any], y: np.ndarray, optimum: float) -> dict[str, Any]:
    """Suboptimality and gap against rounds: ours untuned, the paper's at every penalty of the grid."""
    curves: dict[str, Any] = {}
    for scheme in ("jacobi", "gauss-seidel"):
        runs = [curve(blocks, y, optimum, scheme, penalty) for penalty in PENALTIES]
        best = min(range(len(runs)), key=lambda k: merit(runs[k]))
        curves[scheme] = {"runs": runs, "best": best}
    for scheme in OURS:
        curves[scheme] = {"runs": [curve(blocks, y, optimum, scheme, None)], "best": 0}
    return curves


def directions(scheme: str) -> str:
    """What parties answer with: in one process they would send no messages here."""
    return "one" if scheme == "subspace" else "auto"


def curve(
    blocks: list[Any], y: np.ndarray, optimum: float, scheme: str, penalty: float | None
) -> dict[str, Any]:
    """One run, stopped at a certified 1e-10 or the limit."""
    from fastadmm import SolverOptions, make_problem, solve

    problem = make_problem(blocks, y, lam=ROUNDS_LAMBDA, fit_intercept=False)
    asked = directions(scheme)
    options = SolverOptions(
        scheme=scheme, penalty=penalty, gap=1e-10, max_rounds=MOST_ROUNDS, directions=asked
    )
    result = solve(problem, options)
    return {
        "penalty": penalty,
        "status": str(result.status),
        "suboptimality": [record.objective / optimum - 1.0 for record in result.history],
        "gap": [record.gap for record in result.history],
    }


def merit(run: dict[str, Any]) -> tuple[float, float]:
    """Smaller is better: rounds to 1e-6, then where the run ends."""
    return first_below(run["suboptimality"], GAP) or math.inf, abs(run["suboptimality"][-1])


def summarise_curves(curves: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a number of parties."""
    summary = {}
    for scheme, group in curves.items():
        best = group["runs"][group["best"]]
        summary[scheme] = {
            "penalty": best["penalty"],
            "rounds": [first_below(best["suboptimality"], limit) for limit in (1e-3, GAP)],
            "certified": first_below(best["gap"], GAP),
            "end": best["suboptimality"][-1],
            # Worse after all rounds than before the first: it did not converge, whatever it was called.
            "failed": [
                run["penalty"]
                for run in group["runs"]
                if run["status"] == "diverged" or run["suboptimality"][-1] > run["suboptimality"][0]
            ],
        }
    return summary


def measure_a9a(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray, lam: float) -> dict[str, Any]:
    """Quality of the certified model."""
    from fastadmm import SolverOptions, make_problem, solve
    from fastadmm.problem.losses import get_loss
    from fastadmm.solver.metrics import quick_of

    optimum = newton_optimum(X, y, lam)
    problem = make_problem(split(X, 2), y, lam=lam, fit_intercept=False)
    model = solve(problem, SolverOptions(gap=GAP, directions=directions("subspace")))
    test = quick_of(get_loss("logistic"), y_test, X_test @ np.concatenate(model.weights))
    return {
        "lambda": lam,
        "optimum": optimum,
        "objective": model.objective,
        "gap": model.gap,
        "suboptimality": model.objective / optimum - 1.0,
        "log_loss": test["log_loss"],
        "accuracy": test["accuracy"],
    }


def render(numbers: dict[str, Any], apart: list[dict[str, Any]]) -> dict[Path, dict[str, str]]:
    """Blocks of README and of the page of performance, made from the measured numbers alone."""
    return {
        README: {"numbers": f"{_exchanges_part(apart)}\n\n{_demo_part(numbers)}"},
        PAGE: {"a9a": _quality_part(numbers)},
    }


def _exchanges_part(apart: list[dict[str, Any]]) -> str:
    """Exchanges between organisations of one kind of fit, beside two peers."""
    fits = [case for case in apart if case["kind"] == "smooth, ridge" and not case["wide"]]
    ours = [case["ours"][0] for case in fits if case["ours"]]
    if len(ours) < len(fits):
        raise ValueError("bench/apart.json: not all of these fits are certified")
    most = max(ours)

    def peer(counts: list[int | None]) -> str:
        reached = [count for count in counts if count is not None]
        mean = math.exp(statistics.fmean(map(math.log, reached)))
        return f"in {len(reached)} of them, after {mean:.0f}"

    lbfgs = peer([case["lbfgs"] for case in fits])
    admm = peer([case["sharing"] and case["sharing"][0] for case in fits])
    sent = max(case["ours"][1] for case in fits)
    return (
        f"**Exchanges between organisations.** {len(fits)} ridge models (logistic, squared, Huber loss) "
        f"of public data, each party with at most 40 columns: at most **{most} exchanges**, the proof of "
        f"0.0001 % included, and {math.ceil(sent):,} bytes a row. L-BFGS, which proves nothing, gets as near "
        f"{lbfgs} exchanges; sharing ADMM {admm} (geometric means). "
        "[Models that need more](https://github.com/fastadmm/fastadmm/blob/main/docs/performance.md"
        "#exchanges-between-organisations), such as a lasso, are measured too."
    )


def _demo_part(numbers: dict[str, Any]) -> str:
    demo = numbers["demo"]
    *alone, pooled, joint = (f"{model['log_loss']:.3f}" for model in demo["models"])
    return (
        f"**The demo.** On 143 patients held out, the joint model of three laboratories has a log loss of "
        f"{joint}; alone they reach {', '.join(alone[:-1])} and {alone[-1]}. scikit-learn on all columns "
        f"reaches {pooled}, with weights that differ by at most {exponent(demo['largest_difference'])}."
    )


def _quality_part(numbers: dict[str, Any]) -> str:
    rows = [
        [
            exponent(r["lambda"]),
            f"{r['optimum']:.9f}",
            f"{r['objective']:.9f}",
            exponent(r["suboptimality"]),
            exponent(r["gap"]),
            f"{r['log_loss']:.5f}",
            f"{r['accuracy']:.4f}",
        ]
        for r in numbers["a9a"]
    ]
    header = [
        "λ",
        "optimum F\\*",
        "F reached",
        "true (F − F\\*)/F\\*",
        "certified gap",
        "test log loss",
        "accuracy",
    ]
    machine = numbers["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        "**Certificates.** a9a, 66 + 57 columns, no intercept, scheme `subspace`, no tuning. "
        "F\\* is from an independent Newton solver; the certified gap never lies below the truth:\n\n"
        + table(header, rows, right_from=0)
        + f"\n\nMeasured on {machine['cores']} cores ({machine['processor']}), {versions}."
    )


def main() -> None:
    """Measure, unless told not to, then write."""
    if "--redraw" not in sys.argv[1:]:
        keep("readme", measure(find_data("a9a.bz2", "a9a.t.bz2")))
    for page, blocks in render(measured("readme"), measured("apart")).items():
        write_blocks(page, blocks)


if __name__ == "__main__":
    main()
