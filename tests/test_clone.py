"""A clone works as it lies there; an installation takes nothing from beside it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
