"""Start of the program, conversion of a file, and the memory of a run, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from datasets import synthetic

PROGRAM = "from fastadmm.cli.app import main; main()"


def start(*arguments, program=PROGRAM):
    """Run a command to its end; what it printed."""
    command = [sys.executable, "-P", "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("what", ["python", "import", "help"])
def bench_start(benchmark, what):
    benchmark.group = "start-up"
    programs = {"python": "pass", "import": "import fastadmm", "help": PROGRAM}
    benchmark.pedantic(lambda: start("--help", program=programs[what]), rounds=7, warmup_rounds=1)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """LIBSVM text, a million non-zeros."""
    from sklearn.datasets import dump_svmlight_file

    dataset = synthetic(50_000)
    path = tmp_path_factory.mktemp("data") / "data.libsvm"
    dump_svmlight_file(dataset.X, dataset.y, str(path), zero_based=False)
    return path


def bench_convert(benchmark, source):
    from fastadmm.data_tools.convert import convert

    benchmark.group = "LIBSVM text, 1 million non-zeros"
    out = source.with_name("data.parts")
    benchmark.pedantic(lambda: convert(source, out, columns="100,100", force=True), rounds=5, warmup_rounds=1)


def bench_train(benchmark, source):
    from fastadmm.data_tools.convert import convert

    benchmark.group = "train from files, 1 million non-zeros"
    data = convert(source, source.with_name("train.parts"), columns="100,100", force=True).path
    program = (
        "import sys, pathlib\n"
        "from fastadmm.runs.config import make_config\n"
        "from fastadmm.runs.environment import peak_memory\n"
        "from fastadmm.runs.train import start_run\n"
        "config = make_config({'data': sys.argv[1], 'gap': 0.5})\n"
        "start_run(config, pathlib.Path(sys.argv[2]), force=True)\n"
        "print(peak_memory())\n"
    )
    peaks = []

    def train():
        peaks.append(int(start(data, source.with_name("run"), program=program)))

    benchmark.pedantic(train, rounds=3, warmup_rounds=1)
    benchmark.extra_info["peak_bytes"] = max(peaks)
