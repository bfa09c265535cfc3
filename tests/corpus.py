"""The same bits? Runs some forty configurations and compares every file and message with another revision's.

    python tests/corpus.py --against HEAD~3          # exit code 1 if anything differs
    python tests/corpus.py --against main --only 'by-files-*'
    python tests/corpus.py --out DIR                 # only run; the results stay in DIR

Both revisions are installed into temporary directories and run one after the other in the same place, by the
command line and public Python names alone. Models, logs, checkpoints, state and printed lines are compared:
HDF5 files attribute by attribute, array by array and byte by byte, texts line by line. What differs between
equal runs is masked: dates, ids, versions, free memory. The clock stands still, and random bits of the
operating system are replaced by seeded ones, so that noise, and digests of what holds an id, are compared
too.
"""

import argparse
import fnmatch
import functools
import hashlib
import io
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

HDF5 = b"\x89HDF"


def _csv(path, X, y, ids=False):
    names = [*(["id"] if ids else []), *(f"c{k}" for k in range(X.shape[1])), "y"]
    lines = [",".join(names)]
    for i, row in enumerate(X):
        lines.append(",".join([*([f"r{i}"] if ids else []), *(f"{v:.6g}" for v in row), str(y[i])]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_sources(home):
    """CSV and LIBSVM files, and two tables with gaps and categories."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(150, 9)) * np.exp(rng.normal(scale=0.5, size=9))
    X[:, 8] = X[:, 0] + 0.1 * rng.normal(size=150)
    z = X @ rng.normal(size=9) / 2 + rng.normal(size=150)
    words = np.where(z > 0.2, "yes", "no")
    for name, part in (("", slice(0, 110)), ("-test", slice(110, 150))):
        _csv(home / f"two{name}.csv", X[part], words[part])
        _csv(home / f"number{name}.csv", X[part], np.round(z[part], 4))
    _csv(home / "count.csv", X[:110], rng.poisson(np.exp(z[:110] / 4)))
    three = np.array(["low", "mid", "high"])[(z > -0.7).astype(int) + (z > 0.9)]
    _csv(home / "three.csv", X[:110], three[:110])
    _csv(home / "three-test.csv", X[110:], three[110:])
    lines = []
    for i in range(60):
        columns = np.sort(rng.choice(200, size=12, replace=False)) + 1
        values = " ".join(f"{k}:{v:.5f}" for k, v in zip(columns, rng.normal(size=12), strict=True))
        lines.append(f"{'+1' if i % 3 else '-1'} {values}\n")
    (home / "sparse.libsvm").write_text("".join(lines), encoding="utf-8")
    big = rng.normal(size=(30000, 8))
    np.savez(home / "big.npz", X=big, y=(big.sum(1) + rng.normal(size=30000) > 0).astype(float))
    guest, host = ["id,age,town,y"], ["id,income,kind"]
    for i in range(70):
        age = "" if i % 11 == 0 else f"{30 + 20 * X[i, 0]:.2f}"
        guest.append(f"r{i},{age},{('Rome', 'Oslo', 'Lima')[i % 3]},{words[i]}")
        if i % 9:
            host.append(f"r{i},{X[i, 1]:.4f},{'ab'[i % 2]}")
    (home / "guest.csv").write_text("\n".join(guest) + "\n", encoding="utf-8")
    (home / "host.csv").write_text("\n".join(host[:1] + host[:0:-1]) + "\n", encoding="utf-8")


class Case:
    """One directory in which commands run; what they print goes to ``output.txt``."""

    def __init__(self, directory):
        self.directory = directory
        self._main = None

    def run(self, line):
        """Run one command here; keep its exit code and all it printed, and return standard output."""
        arguments, code = ["fastadmm", *shlex.split(line)], None
        before, sys.argv = (sys.argv, sys.stdout, sys.stderr), arguments
        sys.stdout.flush()
        # Commands write to the descriptors: they put streams of their own in the place of Python's.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, chdir(self.directory):
            kept = [os.dup(1), os.dup(2)]
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _command()()
            except SystemExit as stop:
                code = stop.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                sys.argv, sys.stdout, sys.stderr = before
                for target, own in enumerate(kept, start=1):
                    os.dup2(own, target)
                    os.close(own)
            out.seek(0)
            err.seek(0)
            printed, said = out.read().decode(), err.read().decode()
        with (self.directory / "output.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ fastadmm {line}\n{printed}{said}exit code {code}\n")
        return printed

    def config(self, name="config.toml", **values):
        """Write a configuration file; ``lam`` is the key lambda. Its name."""
        import tomli_w

        values = {"lambda" if key == "lam" else key: value for key, value in values.items()}
        (self.directory / name).write_text(tomli_w.dumps(values), encoding="utf-8")
        return name

    def fit(self, data, out="run", **values):
        """Train on ``../data/NAME.parts``; a test partition of that name is measured on."""
        given = {"threads": 1, "checkpoint_rounds": 4, "data": f"../data/{data}.parts", **values}
        self.run(f"train --config {self.config(f'{out}.toml', **given)} -o {out}")

    def exchange(self, parties, **values):
        """Train by files until there is a result."""
        config = self.config(threads=1, **values)
        names = " ".join(f"--party {name}" for name in parties)
        self.run(f"coordinator start ../data/two.parts/labels.h5 {names} --config {config} -o run")
        for number in itertools.count():
            requests = sorted((self.directory / "run" / "requests").glob("*"))
            if (self.directory / "run" / "result.json").exists() or not requests or number > 400:
                break
            for request in requests:
                party = request.name.rsplit("-", 1)[0]
                data = f"--data ../data/two.parts/{party}.h5"
                if number == 0:
                    self.run(f"party approve run/requests/{request.name} {data} -o {party}.toml")
                approval = f"--approval {party}.toml" if number == 0 else ""
                answer = f"-o answer-{request.name} --state state-{party} --threads 1"
                self.run(f"party step --in run/requests/{request.name} {data} {answer} {approval}")
            self.run("coordinator step run " + " ".join(f"answer-{request.name}" for request in requests))

    def keep(self, name, **values):
        """Write what a Python call returned: arrays and what JSON can say."""
        for key, value in values.items():
            np.save(self.directory / f"{name}-{key}.npy", np.asarray(value))


@functools.cache
def _command():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="fastadmm")
    return script.load()


CASES = {}


def _case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


def _fits(name, data, **values):
    CASES[name] = lambda case: case.fit(data, **values)


AFTER = "../data/two-test.parts"
FEW = {"lam": 1e-2, "rounds": 25}

_fits("loss-squared", "number", test="../data/number-test.parts", lam=1e-3, rounds=30)
_fits("loss-huber", "number", loss="huber:0.7", **FEW)
_fits("loss-quantile", "number", loss="quantile:0.3", **FEW)
_fits("loss-hinge", "two", loss="hinge", **FEW)
_fits("loss-smoothed-hinge", "two", loss="smoothed_hinge", test=AFTER, **FEW)
_fits("loss-squared-hinge", "two", loss="squared_hinge", directions="both", **FEW)
_fits("loss-poisson", "count", loss="poisson", **FEW)
_fits("loss-sigmoid", "two", loss="sigmoid", lam=1e-2, rounds=15)
_fits("loss-tukey", "number", loss="tukey", scheme="sharing", lam=1e-2, rounds=15)
_fits("loss-welsch", "number", loss="welsch", regularizer="log_sum:0.5", lam=1e-2, rounds=15)
_fits("multinomial-subspace", "three", test="../data/three-test.parts", **FEW)
_fits("multinomial-sharing", "three", scheme="sharing", lam=1e-2, rounds=12)
_fits("multinomial-l1", "three", regularizer="l1", lam=1e-2, rounds=12)
_fits("sparse-subspace", "sparse", **FEW)
_fits("sparse-sharing", "sparse", scheme="sharing", x_update="cg", lam=1e-2, rounds=12)
_fits("sharing", "two", scheme="sharing", test=AFTER, lam=1e-3, rounds=40)
_fits("sharing-no-intercept", "two", scheme="sharing", intercept=False, history=3, lam=1e-3, rounds=25)
_fits("jacobi", "two", scheme="jacobi", penalty=0.5, **FEW)
_fits("gauss-seidel", "two", scheme="gauss-seidel", acceleration="anderson", **FEW)
_fits("both-directions", "two", directions="both", threads=2, lam=1e-4)
_fits("proximal-l1", "two", regularizer="l1", lam=3e-2, rounds=30)
_fits(
    "proximal-elastic-net", "number", regularizer="elastic_net", l1_ratio=0.3, constraint="box:-0.5,1", **FEW
)
_fits("proximal-group-lasso", "two", regularizer="group_lasso", groups=[[[0, 1], [2]], [], []], **FEW)
_fits("proximal-ball", "two", regularizer="none", constraint="ball:1.5", rounds=25)
_fits("sharing-l1", "two", regularizer="l1", scheme="sharing", lam=3e-2, rounds=30)
_fits("sharing-sets", "number", scheme="sharing", party_constraint={"b": "nonnegative"}, **FEW)
_fits("sharing-hinge", "two", loss="hinge", scheme="sharing", constraint="nonnegative", **FEW)
_fits("party-lambda", "two", party_lambda={"a": 1e-3, "c": 0.1}, class_weight={"yes": 2.0}, **FEW)
_fits("early-stopping", "two", validation=0.25, patience=2, seed=3, lam=1e-6, scheme="sharing")
_fits("path", "two", path=True, path_length=4, folds=3, seed=1, rule="1se")
_fits("path-l1", "number", path=True, path_values=[0.3, 0.1, 0.03], folds=0, regularizer="l1")

INSECURE = {"epsilon": 2.0, "delta": 1e-4, "sampler": "insecure_test", "seed": 5}
_fits("private-message", "two", privacy={"mode": "message", "rounds": 4, **INSECURE}, lam=1e-2)
_fits("private-labels", "two", privacy={"mode": "message", "label_epsilon": 1.0, **INSECURE}, lam=1e-2)
_fits("private-fusion", "two", privacy={"mode": "fusion", **INSECURE}, lam=1e-2)
_fits(
    "private-grid", "two", privacy={"mode": "message", "epsilon": 2.0, "delta": 1e-4, "rounds": 2}, lam=1e-2
)


@_case
def everyday(case):
    """Train, look at it, predict, hand over parts, and train on."""
    case.fit("two", lam=1e-3, test=AFTER, rounds=2)
    case.run("resume run --rounds 100 -q")
    for line in (
        "train ../data/two.parts --dry-run --json --memory 2GB --threads 1",
        f"predict run {AFTER} -o predicted.csv",
        "predict run/model/a.h5 ../data/two-test.parts/a.h5 --partial -o a.h5",
        f"evaluate run {AFTER} --json",
        "inspect run --json",
        "inspect ../data/two.parts --json --check",
        "card run",
        "export run -o whole.json",
        "export run --party b -o b.h5",
        "import b.h5 run",
        "privacy run --json",
    ):
        case.run(line)
    case.fit("two", out="again", lam=1e-4, warm_start="run", rounds=3)
    case.run("compare run again --json")
    case.run("worth run --test ../data/two-test.parts --threads 1 --json")


@_case
def commands(case):
    """What looks at data, models and runs, and what is made of them."""
    tables = "--guest ../guest.csv --host ../host.csv --id id --label y"
    case.run(f"convert {tables} --missing mean --dry-run")
    case.run("convert ../two.csv --label y --parties 2 --standardize --split 0.3 -o split.parts --json")
    case.run(f"convert {tables} --missing indicator --types town=category --split group:town=0.3 -o t.parts")
    rng = np.random.default_rng(8)
    age, debt, town = rng.integers(18, 80, 500), np.exp(rng.normal(7.0, 1.0, 500)), rng.integers(3, size=500)
    good = (age - 50) / 15 - np.log(debt / 1000) + town + rng.logistic(size=500) > 1.0
    rows = [f"{a},{d:.0f},{'ABC'[t]},{'yes' if g else 'no'}" for a, d, t, g in zip(age, debt, town, good)]
    (case.directory / "card.csv").write_text("\n".join(["age,debt,town,y", *rows]) + "\n", encoding="utf-8")
    case.run("convert card.csv --label y --columns 'age,town;debt' --names g,h -o card.parts")
    case.run("scorecard bins card.parts --bins age=30,45,60 -o bins.parts")
    case.run("train bins.parts --lambda 1e-2 --threads 1 -o score")
    case.run("scorecard points score -o points")
    case.run("scorecard apply points card.csv -o scores.csv")
    case.run("columns card.parts")
    case.fit("three", out="three", test="../data/three-test.parts", lam=1e-3)
    case.fit("number", out="number", loss="huber:0.7", regularizer="l1", lam=1e-2)
    case.fit("count", out="count", loss="poisson", lam=1e-2)
    case.fit("two", out="two", lam=1e-3, test=AFTER)
    case.fit("two", out="unsure", loss="sigmoid", lam=1e-2, rounds=15)
    case.fit("two", out="private", lam=1e-2, privacy={"mode": "fusion", "epsilon": 2.0, "delta": 1e-4})
    for line in (
        *(f"coefficients {run}" for run in ("score", "three", "number", "count")),
        *(f"infer {run}" for run in ("two --covariance HC1", "count", "three --level 0.9")),
        *(f"verify {run}" for run in ("two", "three", "number", "unsure", "two --digits 30 --json")),
        *(f"evaluate {run}" for run in ("three ../data/three-test.parts", f"two {AFTER} --threshold 0.3")),
        f"evaluate two {AFTER} --reference ../data/two.parts",
        *(f"card {run}" for run in ("score", "private", "two --json")),
        *(f"inspect {what}" for what in ("three", "two/model", "two/model/a.h5", "t.parts/train.parts")),
        f"drift ../data/two.parts {AFTER}",
        f"worth two --test {AFTER} --threads 1",
        "compare two count number",
        "inspect points",
        "privacy private",
        "privacy --epsilon 1 --delta 1e-5 --rounds 20 --parties 3",
        "privacy --noise 2 --delta 1e-5 --rounds 20",
        "privacy --noise 20 --epsilon 1 --delta 1e-6",
        "forecast --owners n:500:1,s:90:0.5,t:9000:3 --curvature 0.1,1 --bound clip:1 --rounds 6",
        "export two -o two.json",
    ):
        case.run(line)


@_case
def contributions(case):
    case.fit("two", lam=1e-2)
    for party in "abc":
        case.run(f"predict run/model/{party}.h5 ../data/two-test.parts/{party}.h5 --partial -o {party}.h5")
    case.run("combine a.h5 b.h5 c.h5 --model run")


@_case
def tables(case):
    """Tables with gaps and categories, aligned, trained and predicted."""
    case.run("align --guest ../guest.csv --host ../host.csv --id id -o rows.h5")
    case.run(
        "convert --guest ../guest.csv --host ../host.csv --id id --label y --align rows.h5 --missing mean "
        "--standardize -o t.parts --json"
    )
    case.run("train t.parts --lambda 1e-2 --threads 1 -o run")
    case.run("predict run ../guest.csv ../host.csv --id id")


@_case
def streamed(case):
    """Under the least memory that is enough: all parties are streamed."""
    case.run("convert ../big.npz --columns 3,5 -o big.parts")
    for scheme in ("subspace", "sharing"):
        values = {"data": "big.parts", "scheme": scheme, "history": 4, "threads": 1, "rounds": 6}
        case.run(f"train --config {case.config(f'{scheme}.toml', memory='9MB', **values)} -o {scheme}")
        needs = re.findall(r"needs at least ([\d.]+) MB", (case.directory / "output.txt").read_text("utf-8"))
        limit = f"{float(needs[-1]) + 0.5:.1f}MB"
        case.run(f"train --config {case.config(f'{scheme}.toml', memory=limit, **values)} -o {scheme}")


def _by_files(name, **values):
    CASES[f"by-files-{name}"] = lambda case: case.exchange(("a", "b", "c"), **values)


_by_files("both", lam=1e-2)
_by_files("one", lam=1e-2, directions="one", gap=1e-4)
_by_files("sharing", lam=1e-2, scheme="sharing", rounds=5)
_by_files("l1", lam=3e-2, regularizer="l1", scheme="sharing", rounds=4)
_by_files("gauss-seidel", lam=1e-2, scheme="gauss-seidel", rounds=3)
_by_files("sets", lam=1e-2, party_constraint={"a": "nonnegative"}, scheme="sharing", loss="hinge", rounds=3)


@_case
def owners(case):
    """Owners of rows: exact, Laplace and Gaussian answers."""
    case.run("owners convert ../two.csv --label y --sizes 50,60 --names n,s -o d.owners --json")
    case.run("owners convert ../number.csv --label y --sizes 30,80 -o r.owners")
    common = "--rounds 5 --threads 1 -q"
    case.run(f"owners train d.owners --epsilon inf --bound clip:1 --step 0.5 {common} -o exact")
    case.run(
        "owners train d.owners --epsilon 2 --bound clip:1 --set method=adaptive --step 0.5 "
        f"{common} -o laplace"
    )
    gauss = "--mechanism gaussian --epsilon 3 --delta 1e-3 --bound features:2"
    gauss += " --set target_bound=3 --set theta_max=5"
    case.run(f"owners train r.owners {gauss} {common} -o gaussian")
    case.run("evaluate laplace ../data/two-test.parts --json")
    case.run("forecast --owners n:500:1,s:90:0.5 --curvature 0.1,1 --bound clip:1 --rounds 6 --json")


@_case
def estimators(case):
    """The estimators, with losses, penalties, path and privacy."""
    import fastadmm as fa

    X, words = _matrix(case.directory.parent / "two.csv")
    _, numbers = _matrix(case.directory.parent / "number.csv")
    y = numbers.astype(float)
    model = fa.ADMMSharingClassifier(parties=[3, 3, 3], alpha=1e-2, n_threads=1).fit(X, words)
    case.keep("classifier", coef=model.coef_, probability=model.predict_proba(X[:9]))
    ridge = fa.ADMMSharingRegressor(parties=2, alpha=1e-3, n_threads=1).fit(
        X, y, sample_weight=np.arange(1, 111.0)
    )
    case.keep("regressor", coef=ridge.coef_, predicted=ridge.predict(X[:9]))
    chosen = fa.ADMMSharingRegressorCV(parties=2, n_threads=1, cv=3).fit(X, y)
    case.keep("cv", coef=chosen.coef_, alpha=chosen.alpha_)


@_case
def functions(case):
    """Problems, solve, path and folds from Python."""
    import fastadmm as fa

    X, words = _matrix(case.directory.parent / "two.csv")
    blocks, y = [X[:, :4], X[:, 4:]], (words == "yes").astype(float)
    problem = fa.make_problem(blocks, y, lam=1e-2, sample_weight=np.arange(1, 111.0), offset=X[:, 0] / 9)
    for scheme in ("subspace", "sharing", "jacobi", "gauss-seidel"):
        result = fa.solve(problem, fa.SolverOptions(scheme=scheme, max_rounds=12, n_threads=1))
        case.keep(scheme, weights=np.concatenate(result.weights), objective=result.objective, gap=result.gap)
    grid = fa.lambda_grid(problem, 3)
    points = fa.path(problem, grid, fa.SolverOptions(n_threads=1))
    case.keep("path", grid=grid, weights=[np.concatenate(p.weights) for p in points])


def _matrix(path):
    cells = np.loadtxt(path, delimiter=",", dtype=str, skiprows=1)
    return cells[:, :-1].astype(float), cells[:, -1]


def run_here(home, names):
    """Run cases below a directory with the package that this process imports."""
    write_sources(home)
    data = Case(home / "data")
    data.directory.mkdir()
    columns = "--label y --columns 'c0,c1,c2;c3,c4;c5,c6,c7,c8' --names a,b,c"
    for name in ("two", "number", "count", "three"):
        task = "--task regression" if name == "count" else ""
        data.run(f"convert ../{name}.csv {columns} {task} -o {name}.parts")
        if (home / f"{name}-test.csv").exists():
            data.run(f"convert ../{name}-test.csv --label y --like {name}.parts -o {name}-test.parts")
    data.run("convert ../sparse.libsvm --parties 3 --features 200 -o sparse.parts")
    for name in names:
        case = Case(home / name)
        case.directory.mkdir()
        begin = time.process_time()
        os.urandom = secrets.token_bytes = _seeded(name)
        secrets.token_hex = lambda size: secrets.token_bytes(size).hex()
        CASES[name](case)
        print(f"{name} {time.process_time() - begin:.1f} s", file=sys.__stderr__, flush=True)


def _seeded(name):
    """Random bits of each size from a stream of their own: what else is drawn does not move them."""
    streams = {}

    def draw(size=32):
        stream = streams.setdefault(size, np.random.default_rng([size, *name.encode()]))
        return stream.bytes(size)

    return draw


def share_compiled_kernels():
    """Let every installation find kernels that one with the same sources has compiled.

    The package keeps them by a digest of their sources; Numba adds a digest of the path, and looks at the
    file's time, which :func:`install` makes the same everywhere.
    """
    from numba.core import caching

    for locator in vars(caching).values():
        if isinstance(locator, type) and hasattr(locator, "get_suitable_cache_subpath"):
            locator.get_suitable_cache_subpath = classmethod(lambda cls, file: Path(file).stem)


def _stop_the_clock():
    """Let no second pass: neither in results nor for lines that are printed every few seconds."""
    time.perf_counter = time.monotonic = lambda: 1000.0


def install(source, site):
    """Install the package of a source tree into a directory."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
    with tempfile.TemporaryDirectory() as copy:  # setuptools builds inside the tree
        for name in ("fastadmm", "kernels", "data_tools", "pyproject.toml", "README.md", "LICENSE"):
            if (source / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source / name, Path(copy) / name, ignore=ignored)
            else:
                shutil.copy(source / name, copy)
        subprocess.run([*command, "--no-build-isolation", "--target", str(site), copy], check=True)
    for path in site.rglob("*.py"):
        os.utime(path, (0, 0))


def run_revision(site, home, names):
    """Run cases in a process that imports the package of an installation."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastadmm-corpus"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("FASTADMM", "PYTHON"))},
        **{"NUMBA_CACHE_DIR": str(cached), "PYTHONPATH": str(site), "COLUMNS": "110", "NO_COLOR": "1"},
        **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        "PYTHONPYCACHEPREFIX": str(site / "pycache"),
    }
    home.mkdir()
    command = [sys.executable, "-P", __file__, "--run", str(home), *names]
    subprocess.run(command, env=environment, check=True, cwd=home)


#: What differs between equal runs, and what stands for it.
_WORDS = (
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"), "<date>"),
    (re.compile(r"(?<![\w.])[0-9a-f]{16}\b"), "<id>"),
    (re.compile(r"limit [\d.]+ [kMGT]?B"), "limit <bytes>"),
    (re.compile(r"\b\d+\.\d+\.\d+[\w.+]*"), "<version>"),
)


def masked(text):
    """A text without times, dates, random ids, digests and versions."""
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def text_items(text):
    # What is compiled depends on the runs before.
    lines = [line for line in text.splitlines() if not line.startswith("fastadmm: compiling")]
    return {f"line {number:05d}": masked(line) for number, line in enumerate(lines, 1)}


def npz_items(path):
    """Types, shapes and contents of the arrays of an NPZ file."""
    with np.load(path) as arrays:
        return {name: _array(arrays[name]) for name in arrays}


def _array(values, storage=""):
    digest = hashlib.sha256(masked(str(values)).encode() if values.dtype.kind == "U" else values.tobytes())
    return f"{values.dtype} {values.shape} {storage}sha256 {digest.hexdigest()}"


def hdf5_items(raw):
    """Attributes, types, shapes and contents of an HDF5 file, and its bytes without what is masked."""
    import h5py

    items = {}
    hidden = []

    def mask(text):
        shown = masked(text)
        if shown != text:
            hidden.append(text.encode())
        return shown

    def visit(name, node):
        for key, value in node.attrs.items():
            items[f"{name}@{key}"] = mask(value) if isinstance(value, str) else repr(value)
        if isinstance(node, h5py.Dataset):
            value = np.asarray(node[()])
            storage = f"{node.chunks} {node.compression} "
            inner = value.tobytes()
            if value.dtype.kind in "SO":
                texts = [v.decode() if isinstance(v, bytes) else str(v) for v in value.ravel().tolist()]
                items[name] = f"{value.shape} {storage}" + " ".join(mask(text) for text in texts)
            elif inner.startswith(HDF5):  # a message that a state keeps
                items.update({f"{name}/{key}": item for key, item in hdf5_items(inner).items()})
                start = raw.find(inner)
                hidden.append(raw[start : start + len(inner) + 4 * node.fletcher32])
            else:
                items[name] = _array(value, storage)

    with h5py.File(io.BytesIO(raw)) as file:
        visit("/", file)
        file.visititems(visit)
    for part in sorted(hidden, key=len, reverse=True):  # a message holds what is hidden outside it, too
        raw = raw.replace(part, bytes(len(part)))
    items["bytes"] = hashlib.sha256(raw).hexdigest()
    return items


def listing(home):
    """What every file below a directory says, masked."""
    found = {}
    for path in sorted(p for p in home.rglob("*") if p.is_file()):
        name = masked(str(path.relative_to(home)))
        raw = path.read_bytes()
        if raw.startswith(HDF5):
            found[name] = hdf5_items(raw)
        elif path.suffix == ".npz":
            found[name] = npz_items(path)
        elif b"\0" in raw:
            found[name] = {"bytes": hashlib.sha256(raw).hexdigest()}
        else:
            found[name] = text_items(raw.decode("utf-8"))
    return found


def differences(here, there):
    """One line for each file and item that differs, ``there`` being the older."""
    lines = []
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            lines.append(f"{name}: new")
        elif name not in here:
            lines.append(f"{name}: gone")
        else:
            one, other = here[name], there[name]
            wrong = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
            for key in wrong[:6]:
                was, now = (side.get(key, "(absent)") for side in (other, one))
                lines.append(f"{name}: {key}\n    was  {was}\n    is   {now}")
            if len(wrong) > 6:
                lines.append(f"{name}: {len(wrong) - 6} more")
    return lines


def checkout(revision, directory):
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", revision], check=True, capture_output=True)
    directory.mkdir()
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory


def main():
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", metavar="REVISION", help="compare with what this revision makes")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="only cases whose name matches")
    parser.add_argument("--out", type=Path, help="keep what the runs left in this new directory")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        share_compiled_kernels()
        _stop_the_clock()
        run_here(given.run, given.names)
        return 0
    names = [name for name in CASES if fnmatch.fnmatch(name, given.only)]
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        temporary = Path(folder)
        kept = given.out.absolute() if given.out else temporary / "kept"
        kept.mkdir()
        sources = {"here": ROOT}
        if given.against:
            sources["there"] = checkout(given.against, temporary / "source")
        listings = {}
        for side, source in sources.items():
            site, home = temporary / f"site-{side}", temporary / "home"
            install(source, site)
            run_revision(site, home, names)
            listings[side] = listing(home)
            (kept / f"{side}.json").write_text(json.dumps(listings[side], indent=1), encoding="utf-8")
            shutil.move(home, kept / side)
        if not given.against:
            return 0
        lines = differences(listings["here"], listings["there"])
        print("\n".join(lines))
        print(f"{len(names)} cases, {len(listings['here'])} files: {len(lines) or 'no'} differences")
        return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
