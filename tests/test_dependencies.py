"""Few dependencies, each documented; without an extra its feature says in one line what to install."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from fastadmm.errors import ExitCode

from house import the_house
from run_tools import run, write_problem

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")

#: Modules whose distribution has another name.
MODULES = {
    "sklearn": "scikit-learn",
    "nacl": "pynacl",
    "dp_accounting": "dp-accounting",
    "tomli_w": "tomli-w",
    "mlflow": "mlflow-skinny",
}
#: Comes with a dependency that declares it, and is needed only where that is used.
TRANSITIVE = {"threadpoolctl": "scikit-learn", "joblib": "scikit-learn", "llvmlite": "numba"}


def names(requirements):
    """Distributions of a list of requirements, without this one."""
    found = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    return found - {"fastadmm"}


def test_every_import_and_extra_is_declared_tried_and_explained():
    assert len(names(PROJECT["dependencies"])) < 10
    declared = names(PROJECT["dependencies"]).union(*(names(extra) for extra in EXTRAS.values()))
    for own in the_house().modules.values():
        modules = {name.split(".")[0] for name in own.imported()}
        for module in modules - sys.stdlib_module_names - {"fastadmm"}:
            if module in TRANSITIVE:
                requires = metadata.requires(TRANSITIVE[module]) or []
                assert module in names([r for r in requires if "extra ==" not in r])
            else:
                assert MODULES.get(module, module) in declared, f"{own.name}: {module} is not declared"
    # Every extra of a feature is tried.
    assert {extra for extra, _, _ in ABSENT} == EXTRAS.keys() - {"test", "dev", "docs"}
    # Conda recipe has the dependencies of the project.
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\ntests:")[0]
    needed = {line.strip().removeprefix("- ").replace(" ", "") for line in run.splitlines() if line.strip()}
    assert needed == {*PROJECT["dependencies"], "python>=${{python_min}}"}
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in recipe
    host = recipe.partition("  host:\n")[2].partition("  run:")[0]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert set(build) <= {line.strip().removeprefix("- ").replace(" ", "") for line in host.splitlines()}
    assert PROJECT["scripts"] == {"fastadmm": re.search(r"- fastadmm = (.*)", recipe)[1]}
    # The page explains every dependency.
    runtime = [name for name in EXTRAS if name not in ("test", "dev", "docs")]
    for name in names(PROJECT["dependencies"]).union(*(names(EXTRAS[extra]) for extra in runtime)):
        assert f"| `{name}` |" in PAGE, f"docs/reliability.md does not explain {name}"
    for extra in EXTRAS:
        assert f"`{extra}`" in PAGE, f"docs/reliability.md does not name the extra {extra}"
    core = re.search(r"\*\*(\d+) direct dependencies\*\*", PAGE)
    assert int(core[1]) == len(names(PROJECT["dependencies"]))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A partition, a run, tables and owners."""
    home = tmp_path_factory.mktemp("extras")
    write_problem(home / "d.parts", 30, (2, 3))
    assert run("train", home / "d.parts", "-q", "-o", home / "run") == 0
    (home / "sums.toml").write_text("secrecy = 'sums'\n")
    (home / "discrete.toml").write_text("privacy.sampler = 'discrete'\n")
    (home / "kit" / "startup").mkdir(parents=True)
    names = {"client_cert": "c.crt", "client_key": "c.key", "ca_cert": "ca.pem", "username": "a@b.org"}
    admin = {"admin": {**names, "host": "localhost", "port": 1}}
    (home / "kit" / "startup" / "fed_admin.json").write_text(json.dumps(admin))
    parties = 'parties = {party-1 = "nvflare:a", party-2 = "nvflare:b"}'
    (home / "kit.toml").write_text(
        f'data = "{home}/d.parts/labels.h5"\n[federation]\nkit = "{home}/kit"\nrelay = "x.sock"\n{parties}\n'
    )
    rng = np.random.default_rng(0)
    lines = [f"{i},{rng.normal():.3f},{i % 2}" for i in range(30)]
    (home / "t.csv").write_text("id,a,y\n" + "\n".join(lines) + "\n")
    (home / "t.parquet").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    sizes = ("--label", "y", "--sizes", "15,15")
    assert run("owners", "convert", home / "t.csv", *sizes, "-o", home / "d.owners") == 0
    return home


#: Extra, module that is not installed, command; ``@`` marks a path, ``@out`` what must not appear.
_MESSAGE = "--privacy message --epsilon 1 --delta 1e-3"
ABSENT = [
    (
        "compression",
        "hdf5plugin",
        "convert @t.csv --label y --parties 1 --set compression=zstd -o @out.parts",
    ),
    ("parquet", "pyarrow", "convert --guest @t.parquet --host @t.csv --id id --label y -o @out.parts"),
    ("psi", "nacl", "align psi-request @t.csv --id id -o @out --secret @out.key"),
    ("report", "matplotlib", "report @run -o @out.html"),
    ("report", "jinja2", "report @run -o @out.html"),
    ("export", "onnx", "export @run -o @out.onnx"),
    ("privacy", "opendp", f"train @d.parts {_MESSAGE} --config @discrete.toml -q -o @out"),
    ("secrecy", "cryptography", "train @d.parts -q --config @sums.toml -o @out"),
    ("mpi", "mpi4py", "train @d.parts -q --cluster mpi -o @out"),
    ("serve", "fastapi", "serve @run --port 0"),
    ("serve", "uvicorn", "serve @run --port 0"),
    ("nvflare", "nvflare", "federate align @kit.toml @t.csv --id id -o @task"),
    ("mlflow", "mlflow", "train @d.parts -q --log-to mlflow -o @out"),
]


@pytest.mark.representatives(5)
@pytest.mark.parametrize(
    ("extra", "module", "line"), ABSENT, ids=[f"{e}-{m}-{i}" for i, (e, m, _) in enumerate(ABSENT)]
)
def test_absent_extra_is_one_line(extra, module, line, home, monkeypatch, capsys):
    for name in {module, *(name for name in sys.modules if name.split(".")[0] == module)}:
        monkeypatch.setitem(sys.modules, name, None)
    # The one module of ours that imports an extra at once, as if nothing had been imported before.
    monkeypatch.delitem(sys.modules, "fastadmm.runs.service", raising=False)
    capsys.readouterr()
    code = run(*(str(home / word[1:]) if word.startswith("@") else word for word in line.split()))
    err = capsys.readouterr().err
    assert code == ExitCode.CONFIG, err
    assert len([text for text in err.splitlines() if text.startswith("fastadmm: error: ")]) == 1
    assert f"fastadmm[{extra}]" in err
    assert not [path.name for path in home.iterdir() if path.name.startswith(("out", "."))]


@pytest.mark.repeats
def test_scikit_learn_is_used_by_its_public_interface():
    # Underscored names may go away with any version; the one helper is what estimators elsewhere use, too.
    names = {name for module in the_house().modules.values() for name in module.imported()}
    parts = {part for name in names if name.split(".")[0] == "sklearn" for part in name.split(".")}
    private = {part for part in parts if part.startswith("_")}
    assert private == {"_check_sample_weight"}


WHERE = "import fastadmm.kernels, fastadmm.data_tools.matrices, fastadmm; print(fastadmm.kernels.__file__)"


def imported_from(directory):
    # -S: without site-packages there is no installed fastadmm; nothing of the two modules needs more.
    path = [p for p in sys.path if p.endswith("site-packages")]
    code = f"import sys; sys.path += {path}; {WHERE}"
    # `make` keeps the current directory off the path; a user's python has it there.
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    made = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=plain,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_plain_python_in_a_clone():
    assert imported_from(ROOT) == str(ROOT / "kernels" / "__init__.py")


def test_a_foreign_package_beside_an_installation_is_left_alone(tmp_path):
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fastadmm", tmp_path / "fastadmm", ignore=ignore)
    for name in ("kernels", "data_tools"):
        shutil.copytree(ROOT / name, tmp_path / "fastadmm" / name, ignore=ignore)
    foreign = tmp_path / "kernels"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("raise RuntimeError('another package of this name')\n")
    assert imported_from(tmp_path) == str(tmp_path / "fastadmm" / "kernels" / "__init__.py")
