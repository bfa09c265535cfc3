"""Install the wheel and the source archive as a user would, and try them: ``python tests/wheels.py``.

For every Python named: the wheel with the newest and with the lowest versions of what it depends on, the
source archive with the newest; each in an environment of its own, which goes afterwards. Needs ``build`` and
``uv`` (``pip install build uv``). The lowest version is the lowest that ``pyproject.toml`` allows and that
has a wheel for that Python.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LOWEST = ("--resolution", "lowest-direct", "--only-binary", ":all:")
#: Ways to install: name, archive, options.
WAYS = (("newest", "*.whl", ()), ("lowest", "*.whl", LOWEST), ("source", "*.tar.gz", ()))

#: What is tried in each environment. The README that is run is the one inside the package.
TRY = """
import re, subprocess, sys
from importlib import metadata
from pathlib import Path

def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words[0]}: exit code {done.returncode}\\n{done.stdout}{done.stderr}")
    return done.stdout

distribution = metadata.distribution("fastadmm")
assert not Path(distribution.locate_file("kernels")).exists()
assert Path(distribution.locate_file("fastadmm/py.typed")).exists()
assert call("fastadmm", "--version") == f"fastadmm {distribution.version}\\n"
assert "From data to a model" in call("fastadmm", "--help")
readme = distribution.read_text("METADATA")
examples = dict(re.findall(r"<!-- runnable -->\\n```(\\w+)\\n(.*?)```", readme, re.DOTALL))
exec(examples["python"])
if "--shell" in sys.argv:
    lines = [line[2:] for line in examples["console"].splitlines() if line.startswith("$ ")]
    call("bash", "-euc", "\\n".join(lines))
    assert Path("demo-run/run/report.html").exists()
else:
    assert "joint" in call("fastadmm", "demo")
shown = ("numpy", "scipy", "numba", "h5py", "scikit-learn", "pandas", "typer", "rich")
print(", ".join(f"{name} {metadata.version(name)}" for name in shown))
"""


def call(*words, **more):
    """Run a command, and give its standard output; what it says if it fails becomes the error."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def requirements(wheel):
    """Direct dependencies of a wheel, so that an installer can choose the lowest of each."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [requirement for requirement in found if ";" not in requirement]


def tried(archive, python, options):
    """Install an archive into a new environment, and try it: versions of what it depends on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Nothing of the caller's environment, and kernels compiled by this one.
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
        plain |= {"PATH": f"{folder}/bin{os.pathsep}{plain['PATH']}", "NUMBA_CACHE_DIR": f"{folder}/cache"}
        uv = (sys.executable, "-m", "uv")
        call(*uv, "venv", "--quiet", "--python", python, folder, "--allow-existing", env=plain)
        # The demo has to work without extras, the README with the one that it names.
        install = (*uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", *options)
        needed = requirements(archive) if options else []
        call(*install, archive, *needed, env=plain)
        for extra, asked in (("", ()), ("[report]", ("--shell",))):
            if extra:
                call(*install, f"fastadmm{extra} @ {archive.as_uri()}", env=plain)
            work = folder / f"a directory{extra}"
            work.mkdir()
            # What the newest libraries warn of is an error soon.
            strict = {} if options else {"PYTHONWARNINGS": "error"}
            versions = call(folder / "bin" / "python", "-Pc", TRY, *asked, cwd=work, env=plain | strict)
            if options or archive.suffix != ".whl":
                break
        call(*uv, "pip", "check", "--python", folder / "bin" / "python", env=plain)
        return versions.splitlines()[-1]


def main():
    """Try all of them; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="versions or interpreters")
    parser.add_argument("--dist", type=Path, help="directory that has the archives (default: build them)")
    asked = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        dist = asked.dist or Path(name)
        if asked.dist is None:
            call(sys.executable, "-P", "-m", "build", "--outdir", dist, ROOT)
        for python in asked.python:
            for way, pattern, options in WAYS:
                (archive,) = dist.resolve().glob(pattern)
                begin = time.monotonic()
                try:
                    said = tried(archive, python, options)
                except RuntimeError as error:
                    said, failed = f"FAILED\n{error}", failed + 1
                version = re.sub(r".*/python", "", python)
                print(f"{version} {way}, {time.monotonic() - begin:.0f} s: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
