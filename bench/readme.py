"""Measure the README's numbers and draw its picture.

    make readme        or        python -P bench/readme.py [--redraw]

Writes ``bench/readme.json`` (what was measured), the block ``numbers`` in ``README.md`` (from that file and
``bench/apart.json``), the block ``a9a`` in ``docs/performance.md`` and ``docs/img/rounds.svg``. Only the
line about the machine differs between runs; a test checks that the blocks follow from the files.

The data are LIBSVM's a9a and a9a.t, in the directory that the environment
variable ``FASTADMM_DATA`` names, or in ``../shared/data`` beside the repository.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its own modules

from datasets import find_data

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MEASURED, APART = ROOT / "bench" / "readme.json", ROOT / "bench" / "apart.json"
PICTURE = ROOT / "docs" / "img" / "rounds.svg"
PAGE = ROOT / "docs" / "performance.md"

LAMBDAS = (1e-2, 1e-3, 1e-4, 1e-5)
GAP = 1e-6

#: The picture's problem, its limit on rounds, and the penalties that the paper's schemes may choose from.
PICTURE_LAMBDA = 1e-3
PICTURE_ROUNDS = 150
PENALTIES = (0.003, 0.0055, 0.01, 0.018, 0.03, 0.055, 0.1, 0.18, 0.3, 0.55, 1.0, 1.8, 3.0)
OURS = ("sharing", "subspace")


# --- data and reference ----------------------------------------------------------------------------


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


# --- measuring ---------------------------------------------------------------------------------------


def measure(data: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything for the README, and the curves of the picture."""
    X, y = read(data / "a9a.bz2")
    X_test, y_test = read(data / "a9a.t.bz2")
    print("demo", flush=True)
    demo = measure_demo()
    curves = {}
    for parties in (2, 5):
        print(f"picture: {parties} parties", flush=True)
        curves[str(parties)] = measure_curves(split(X, parties), y, newton_optimum(X, y, PICTURE_LAMBDA))
    rows = []
    for lam in LAMBDAS:
        print(f"a9a, lambda {lam:g}", flush=True)
        rows.append(measure_a9a(X, y, X_test, y_test, lam))
    numbers = {
        "demo": demo,
        "picture": {m: summarise_curves(c) for m, c in curves.items()},
        "a9a": rows,
        "machine": describe_machine(),
    }
    return numbers, curves


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
    """One run, stopped at a certified 1e-10 or the picture's limit."""
    from fastadmm import SolverOptions, make_problem, solve

    problem = make_problem(blocks, y, lam=PICTURE_LAMBDA, fit_intercept=False)
    asked = directions(scheme)
    options = SolverOptions(
        scheme=scheme, penalty=penalty, gap=1e-10, max_rounds=PICTURE_ROUNDS, directions=asked
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


def first_below(values: list[float], limit: float) -> int | None:
    """Number of the first round at or below a limit, from 1."""
    return next((k + 1 for k, value in enumerate(values) if value <= limit), None)


def summarise_curves(curves: dict[str, Any]) -> dict[str, Any]:
    """What the README's table says of a picture's panel."""
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
    from fastadmm.solver.metrics import classification_metrics
    from scipy.special import expit

    optimum = newton_optimum(X, y, lam)
    problem = make_problem(split(X, 2), y, lam=lam, fit_intercept=False)
    model = solve(problem, SolverOptions(gap=GAP, directions=directions("subspace")))
    test = classification_metrics(y_test, expit(X_test @ np.concatenate(model.weights)))
    return {
        "lambda": lam,
        "optimum": optimum,
        "objective": model.objective,
        "gap": model.gap,
        "suboptimality": model.objective / optimum - 1.0,
        "log_loss": test["log_loss"],
        "accuracy": test["accuracy"],
    }


def describe_machine() -> dict[str, Any]:
    """Processor and versions, for the reader to judge the times by."""
    import numba
    from fastadmm import __version__

    import sklearn

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {
            "fastadmm": __version__,
            "Python": platform.python_version(),
            "NumPy": np.__version__,
            "Numba": numba.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }


# --- the block of the README ---------------------------------------------------------------------------


def render(numbers: dict[str, Any], apart: list[dict[str, Any]], readme: str, page: str) -> tuple[str, str]:
    """README and page of performance, with their blocks made from the measured numbers alone."""
    return (
        replace_block(readme, "numbers", f"{_exchanges_part(apart)}\n\n{_demo_part(numbers)}"),
        replace_block(page, "a9a", _quality_part(numbers)),
    )


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


def _table(header: list[str], rows: list[list[str]], right_from: int = 1) -> str:
    rule = ["---" if k < right_from else "---:" for k in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def _exponent(value: float) -> str:
    """``1e-05`` as ``1e-5``; two significant digits where the first does not say it all."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _demo_part(numbers: dict[str, Any]) -> str:
    demo = numbers["demo"]
    *alone, pooled, joint = (f"{model['log_loss']:.3f}" for model in demo["models"])
    return (
        f"**The demo.** On 143 patients held out, the joint model of three laboratories has a log loss of "
        f"{joint}; alone they reach {', '.join(alone[:-1])} and {alone[-1]}. scikit-learn on all columns "
        f"reaches {pooled}, with weights that differ by at most {_exponent(demo['largest_difference'])}."
    )


def _quality_part(numbers: dict[str, Any]) -> str:
    rows = [
        [
            _exponent(r["lambda"]),
            f"{r['optimum']:.9f}",
            f"{r['objective']:.9f}",
            _exponent(r["suboptimality"]),
            _exponent(r["gap"]),
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
        + _table(header, rows, right_from=0)
        + f"\n\nMeasured on {machine['cores']} cores ({machine['processor']}), {versions}."
    )


def replace_block(text: str, name: str, block: str) -> str:
    """A page with a new block between its markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    return f"{head}{begin}\n{block}\n{end}{tail}"


# --- the picture ---------------------------------------------------------------------------------------

#: Okabe and Ito's palette.
COLOURS = {"jacobi": "#d55e00", "gauss-seidel": "#009e73", "sharing": "#0072b2", "subspace": "#a3417f"}
LABELS = {
    "jacobi": "jacobi, best of {n} penalties",
    "gauss-seidel": "gauss-seidel, best of {n} penalties",
    "sharing": "sharing, untuned",
    "subspace": "subspace, untuned",
}
INK, FAINT = "#24292e", "#57606b"


def draw_picture(curves: dict[str, Any], path: Path) -> None:
    """Relative suboptimality and certified gap against rounds, for two and five parties."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    matplotlib.rcdefaults()
    matplotlib.rcParams.update(
        {
            "font.family": ["DejaVu Sans"],  # ships with matplotlib
            "font.size": 10,
            "svg.hashsalt": "fastadmm",
            "svg.fonttype": "path",
            "text.color": INK,
            "axes.edgecolor": FAINT,
            "axes.labelcolor": FAINT,
            "xtick.color": FAINT,
            "ytick.color": FAINT,
            "axes.spines.right": False,
            "axes.spines.top": False,
        }
    )
    figure = Figure(figsize=(10.4, 4.9), facecolor="white")
    axes = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.085, right=0.985, top=0.845, bottom=0.225, wspace=0.07)
    titles = {"2": "Two parties (66 + 57 columns)", "5": "Five parties (25 + 25 + 25 + 24 + 24)"}
    for ax, (parties, group) in zip(axes, curves.items()):
        for k, run in enumerate(group["jacobi"]["runs"]):
            if k != group["jacobi"]["best"]:
                _line(ax, run["suboptimality"], color=COLOURS["jacobi"], linewidth=0.8, alpha=0.4)
                if run["status"] == "diverged":
                    end = (len(run["suboptimality"]), run["suboptimality"][-1])
                    ax.plot(*end, marker="x", markersize=5, color=COLOURS["jacobi"], alpha=0.7)
        for scheme, colour in COLOURS.items():
            run = group[scheme]["runs"][group[scheme]["best"]]
            _line(ax, run["suboptimality"], color=colour, linewidth=2.2)
            if scheme in OURS:
                _line(ax, run["gap"], color=colour, linewidth=1.2, linestyle=(0, (1.2, 1.4)))
        ax.axhline(GAP, color=FAINT, linewidth=0.9, linestyle=(0, (6, 3)))
        ax.set_title(titles[parties], loc="left", fontsize=10.5, pad=8)
        ax.set_yscale("log")
        ax.set_ylim(1e-10, 1e4)
        ax.set_yticks([10.0**e for e in range(-10, 5, 2)])
        ax.set_yticks([], minor=True)
        ax.set_xlim(0, PICTURE_ROUNDS)
        ax.set_xlabel("round")
        ax.grid(color="#e6eaef", linewidth=0.8)
        ax.set_axisbelow(True)
    axes[0].set_ylabel("relative suboptimality  (F − F*) / F*")
    axes[1].annotate(
        "default target 10$^{-6}$",
        (PICTURE_ROUNDS, GAP),
        xytext=(-2, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
        color=FAINT,
    )
    handles = [
        Line2D([], [], color=COLOURS[s], linewidth=2.2, label=LABELS[s].format(n=len(PENALTIES)))
        for s in COLOURS
    ]
    handles.insert(
        1,
        Line2D(
            [],
            [],
            color=COLOURS["jacobi"],
            linewidth=0.9,
            alpha=0.5,
            label="jacobi, other penalties (× diverged)",
            marker="x",
            markersize=5,
        ),
    )
    handles.append(
        Line2D(
            [],
            [],
            color=FAINT,
            linewidth=1.2,
            linestyle=(0, (1.2, 1.4)),
            label="certified gap of that scheme",
        )
    )
    figure.legend(
        handles=handles,
        loc="lower center",
        ncol=3,
        frameon=False,
        fontsize=9.5,
        columnspacing=2.4,
        handlelength=2.4,
    )
    figure.text(
        0.085,
        0.945,
        "a9a, logistic loss, λ = 10$^{-3}$: how many rounds a joint model takes",
        fontsize=12,
        weight="bold",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))


def _line(ax: Any, values: list[float], **style: Any) -> None:
    y = np.array(values)
    # Rounding can put the objective of a converged run below the reference optimum: not for a log axis.
    y[~(y > 1e-13)] = np.nan
    ax.plot(np.arange(1, len(y) + 1), y, **style)


def main() -> None:
    """Measure and draw, unless told to redraw, then write."""
    pages = (README, PAGE)
    if "--redraw" not in sys.argv[1:]:
        numbers, curves = measure(find_data("a9a.bz2", "a9a.t.bz2"))
        draw_picture(curves, PICTURE)
        MEASURED.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    numbers, apart = (json.loads(path.read_text(encoding="utf-8")) for path in (MEASURED, APART))
    texts = (path.read_text(encoding="utf-8") for path in pages)
    for path, text in zip(pages, render(numbers, apart, *texts)):
        path.write_text(text, encoding="utf-8")
    print(f"wrote {', '.join(str(path.relative_to(ROOT)) for path in (*pages, MEASURED, PICTURE))}")


if __name__ == "__main__":
    main()
