"""What is fuzzed: good files of every kind, and the commands that read them."""

import bz2
import gzip
import lzma
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w
from scipy import sparse

from problems import make_vertical_classification
from rounds_tools import three_classes
from run_tools import run, write_blocks, write_problem


@dataclass(frozen=True)
class Command:
    """One command line, in which ``@name`` is a path of the case; and what it may change in place."""

    line: str
    changes: str = ""

    @property
    def outs(self):
        """What it makes."""
        return tuple(word[1:] for word in self.line.split() if word.startswith("@out"))

    def arguments(self, home):
        return [str(home / word[1:]) if word.startswith("@") else word for word in self.line.split()]


@dataclass(frozen=True)
class Subject:
    """What fills a directory with good files, globs of those to spoil, who reads them, and how often.

    Functions and commands fill it; commands may end with what waits for more rounds or exchanges.
    """

    seed: tuple[Callable[[Path], None] | str, ...]
    targets: tuple[str, ...]
    commands: tuple[Command, ...]
    weight: int = 1


def do(line, home):
    code = run(*Command(line).arguments(home))
    assert code in (0, 7), f"{line}: exit code {code}"


def _table(n=24):
    rng = np.random.default_rng(5)
    lines = ["id,age,income,city,rate,y"]
    for i in range(n):
        a, b = rng.normal(size=2)
        city = ["paris", "rome", '"new, york"'][i % 3]
        lines.append(f"{100 + i},{20 + i},{a:.5f},{city},{b:.3e},{'yes' if a + b > 0 else 'no'}")
    return "\n".join(lines) + "\n"


def _numbers(n=24):
    rng = np.random.default_rng(6)
    lines = ["a,b,c,y"]
    lines += [",".join([*(f"{v:.6g}" for v in rng.normal(size=3)), str(i % 2)]) for i in range(n)]
    return "\n".join(lines) + "\n"


def _svm(n=24):
    rng = np.random.default_rng(7)
    lines = []
    for i in range(n):
        cells = [f"{j + 1}:{rng.normal():.5g}" for j in range(8) if rng.random() < 0.5]
        lines.append(" ".join(["+1" if i % 2 else "-1", *cells]))
    return "\n".join(lines) + "\n"


def seed_csv(home):
    (home / "data.csv").write_text(_numbers())


def seed_libsvm(home):
    (home / "data.svm").write_text(_svm())


def seed_packed(home):
    """The same, compressed."""
    for name, module in (("data.csv.gz", gzip), ("data.csv.bz2", bz2), ("data.csv.xz", lzma)):
        (home / name).write_bytes(module.compress(_numbers().encode()))


def seed_npz(home):
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(24, 4)), np.arange(24) % 2
    np.savez(home / "dense.npz", X=X, y=y)
    s = sparse.csr_matrix(np.where(X > 0, X, 0.0))
    np.savez(home / "sparse.npz", data=s.data, indices=s.indices, indptr=s.indptr, shape=s.shape, y=y)


def seed_tables(home):
    """Tables of two parties with ids."""
    (home / "guest.csv").write_text(_table())
    rows = [",".join(line.split(",")[:3]) for line in _table(30).splitlines()[4:]]
    (home / "host.csv").write_text("\n".join(["id,size,cost", *rows]) + "\n")


def seed_gaps(home):
    """Tables with gaps, and a public description of their columns."""
    for name in ("guest", "host"):
        path = home / f"{name}.csv"
        path.write_text(path.read_text().replace(",30,", ",,"))
    numbers = (("age", 90), ("income", 5), ("rate", 5.5), ("size", 90), ("cost", 5))
    (home / "columns.toml").write_text(
        "".join(
            f'[columns.{n}]\ntype = "number"\nlow = -5\nhigh = {high}\nfill = 0.5\n' for n, high in numbers
        )
        + '[columns.city]\ntype = "category"\nlevels = ["rome", "new, york", 3]\nfill = "rome"\n'
    )


def seed_parquet(home):
    """The same tables as Parquet files."""
    import pandas as pd

    for name in ("guest", "host"):
        pd.read_csv(home / f"{name}.csv").to_parquet(home / f"{name}.parquet", index=False)


def seed_problem(home):
    write_problem(home / "data.parts", 40, (3, 4))


def seed_classes(home):
    """The same with more than two classes."""
    blocks, y, _ = make_vertical_classification(40, (3, 4))
    write_blocks(home / "data.parts", blocks, three_classes(y), classes=("a", "b", "c"))


def seed_exchange(home):
    """A run by files in its third exchange: what passes, what both sides keep, and an approval."""
    do("coordinator start @data.parts/labels.h5 --party party-1 --party party-2 --lambda 1e-2 -o @run", home)
    for number in (0, 1, 2):
        for party in ("party-1", "party-2"):
            request = home / "run" / "requests" / f"{party}-{number:06d}.msg"
            shutil.copy(request, home / f"{party}.request{number}.h5")
            if number == 2 and party == "party-1":
                shutil.copytree(home / "state-party-1", home / "before")
            do(f"party step --data @data.parts/{party}.h5 --state @state-{party} --in @{party}.request{number}.h5 "
               f"-o @{party}.message{number}.h5 --threads 1", home)  # fmt: skip
        if number < 2:
            do(f"coordinator step @run @party-1.message{number}.h5 @party-2.message{number}.h5", home)
    do("party approve @party-1.request0.h5 --data @data.parts/party-1.h5 -o @approval.toml", home)


#: Configuration files.
CONFIGS = {
    "config": {
        "lambda": 1e-2, "rounds": 2, "gap": 1e-6, "loss": "logistic", "regularizer": "elastic_net", "l1_ratio": 0.5,
        "constraint": "box:-1,1", "intercept": True, "threads": 1, "checkpoint_rounds": 5, "scheme": "auto",
    },
    "owners": {
        "epsilon": [1.0, 0.5], "bound": "clip:1", "rounds": 3, "mechanism": "laplace", "theta_max": 5.0, "loss": "logistic",
        "lambda": 0.01, "intercept": True, "method": "constant", "step": 0.1, "weights": "size", "threads": 1,
    },
    "private": {
        "lambda": 0.1, "rounds": 10, "privacy": {
            "mode": "message", "epsilon": 1.0, "delta": 1e-3, "rounds": 1, "ball": 2.0, "message_clip": 2.0,
            "adjacency": "replace_one"},
    },
    "total": {"privacy": {"total_epsilon": 9}},
}  # fmt: skip


def seed_config(home):
    for name, values in CONFIGS.items():
        (home / f"{name}.toml").write_text(tomli_w.dumps(values))


#: A dense and a sparse partition; tables of two parties with an alignment of their rows.
_PARTITIONS = (
    seed_csv, seed_libsvm, "convert @data.csv --label y --parties 2 --standardize -o @dense.parts",
    "convert @data.svm --parties 2 --set normalize=l2 --set storage=csr -o @sparse.parts")  # fmt: skip
_TABLES = (seed_tables, "align --guest @guest.csv --host @host.csv --id id -o @rows.json")
_OWNERS = "owners convert @data.csv --label y --sizes 12,12 -o @data.owners"

_EXCHANGE_FILES = (
    "party-1.message2.h5", "party-1.message2.h5", "party-1.request2.h5", "party-1.request2.h5", "party-1.request0.h5",
    "approval.toml", "approval.toml", "before/*.*", "run/parties.json", "run/checkpoint.h5", "run/requests/*",
    "run/answers.journal", "data.parts/party-1.h5")  # fmt: skip

_STEPS = (
    Command("party step --data @data.parts/party-1.h5 --state @before --in @party-1.request2.h5 -o @out.h5 --threads 1", "before"),
    Command("coordinator step @run @party-1.message2.h5 @party-2.message2.h5", "run"),
    Command("coordinator step @run", "run"),
)  # fmt: skip

_EXCHANGE_COMMANDS = (
    *_STEPS,
    Command("party step --data @data.parts/party-1.h5 --state @before --in @party-1.request2.h5 -o @out.h5 --threads 1 "
            "--approval @approval.toml", "before"),
    Command("party step --data @data.parts/party-1.h5 --state @before --in @party-1.request0.h5 -o @out.h5 --threads 1", "before"),
    Command("party approve @party-1.request0.h5 --data @data.parts/party-1.h5 -o @out.toml"),
    Command("coordinator repair @run", "run"),
)  # fmt: skip

_RUN = (
    *_PARTITIONS, "train @dense.parts --lambda 1e-2 --rounds 2 --gap 1e-12 --threads 1 -o @run -q",
    *(f"predict --partial @run @dense.parts/{name}.h5 -o @{name}.contribution.h5" for name in ("party-1", "party-2")),
    "export @run --party party-1 -o @part.h5")  # fmt: skip

_FIT = "--lambda 1e-2 --rounds 2 --threads 1 -q"

SUBJECTS = {
    "csv": Subject((seed_csv,), ("data.csv",), (
        Command("convert @data.csv --label y --parties 2 -o @out.parts"),
        Command("convert @data.csv --label y --parties 2 --standardize --set storage=csr -o @out.parts"),
        Command("convert @data.csv --task regression --no-header --label c4 --parties 3 -o @out.parts"),
        Command("owners convert @data.csv --label y --sizes 12,12 -o @out.owners"),
    ), 3),
    "libsvm": Subject((seed_libsvm,), ("data.svm",), (
        Command("convert @data.svm --parties 2 -o @out.parts"),
        Command("convert @data.svm --features 8 --columns 4,4 --set normalize=l2 --set storage=csr -o @out.parts"),
        Command("convert @data.svm --set zero_based=true --parties 2 --task regression -o @out.parts"),
        Command("owners convert @data.svm --sizes 12,12 -o @out.owners"),
    ), 3),
    "packed": Subject((seed_packed,), ("data.csv.*",), (
        Command("convert @data.csv.gz --label y --parties 2 -o @out.parts"),
        Command("convert @data.csv.bz2 --label y --parties 2 -o @out.parts"),
        Command("convert @data.csv.xz --label y --parties 2 -o @out.parts"),
    )),
    "npz": Subject((seed_npz,), ("*.npz",), (
        Command("convert @dense.npz --parties 2 -o @out.parts"),
        Command("convert @sparse.npz --parties 2 -o @out.parts"),
        Command("owners convert @dense.npz --sizes 12,12 -o @out.owners"),
    ), 2),
    "tables": Subject(_TABLES, ("guest.csv", "host.csv"), (
        Command("convert --guest @guest.csv --host @host.csv --id id --label y -o @out.parts"),
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --missing mean -o @out.parts"),
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --missing indicator --categorical age "
                "--duplicates drop -o @out.parts"),
        Command("align --guest @guest.csv --host @host.csv --id id -o @out.json"),
        Command("align --guest @guest.csv --host @host.csv --id id --set duplicates=first -o @out.json"),
    ), 2),
    "described": Subject((
        *_TABLES, seed_gaps, "convert --guest @guest.csv --host @host.csv --id id --label y --public-columns @columns.toml -o @described.parts",
    ), ("columns.toml", "guest.csv", "described.parts/*.h5"), (
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --public-columns @columns.toml -o @out.parts"),
        Command("convert @guest.csv --drop id --label y --public-columns @columns.toml --parties 2 -o @out.parts"),
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --like @described.parts -o @out.parts"),
        Command("train @described.parts --privacy fusion --epsilon 9 --delta 1e-2 --lambda 1e-1 --threads 1 -q -o @out"),
    ), 2),
    "ids": Subject(_TABLES, ("rows.json",), (
        Command("convert --guest @guest.csv --id id --label y --align @rows.json -o @out.parts"),
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --align @rows.json -o @out.parts"),
    )),
    "parquet": Subject((*_TABLES, seed_parquet), ("*.parquet",), (
        Command("convert --guest @guest.parquet --host @host.parquet --id id --label y -o @out.parts"),
        Command("convert --guest @guest.parquet --host @host.parquet --id id --label y --missing median -o @out.parts"),
        Command("align --guest @guest.parquet --host @host.parquet --id id -o @out.json"),
    ), 2),
    "psi": Subject((
        *_TABLES, "align psi-request @guest.csv --id id -o @request.psi --secret @guest.key",
        "align psi-respond @host.csv --id id --request @request.psi -o @response.psi",
    ), ("request.psi", "response.psi", "guest.key", "guest.csv", "host.csv"), (
        Command("align psi-request @guest.csv --id id -o @out.psi --secret @out.key"),
        Command("align psi-respond @host.csv --id id --request @request.psi -o @out.psi"),
        Command("align psi-finish @guest.csv --id id --secret @guest.key --response @response.psi -o @out.json"),
    )),
    "partition": Subject((*_PARTITIONS, *_TABLES, "convert --guest @guest.csv --host @host.csv --id id --label y -o @tables.parts"), ("*.parts/party-*.h5", "*.parts/host.h5", "*.parts/guest.h5", "*.parts/labels.h5",
                                          "*.parts/partition.toml"), (
        Command("inspect --check @THIS"),
        Command("inspect --json @THIS"),
        Command("inspect @DIR"),
        Command(f"train @DIR {_FIT} -o @out"),
        Command(f"train @DIR {_FIT} --regularizer l1 -o @out"),
        Command("train @DIR --dry-run --json"),
        Command(f"train @dense.parts --test @DIR {_FIT} -o @out"),
        Command("convert @data.csv --label y --like @dense.parts -o @out.parts"),
        Command("convert --guest @guest.csv --host @host.csv --id id --label y --like @tables.parts -o @out.parts"),
        Command("coordinator start @DIR/labels.h5 --party party-1 --party party-2 -o @out"),
    ), 6),
    "model": Subject(_RUN, ("run/model/*", "*.contribution.h5", "part.h5"), (
        Command("inspect @run/model"),
        Command("inspect --json @THIS"),
        Command("predict @run @dense.parts -o @out.csv"),
        Command("evaluate @run @dense.parts --json", "run"),
        Command("card @run -o @out.md"),
        Command("combine @party-1.contribution.h5 @party-2.contribution.h5 --model @run -o @out.csv"),
        Command("combine @party-1.contribution.h5 --model @run -o @out.csv"),
        Command("predict --partial @run/model/party-1.h5 @dense.parts/party-1.h5 -o @out.h5"),
        Command("import @part.h5 @run --force", "run"),
        Command("export @run --party party-1 -o @out.h5"),
        Command("export @run -o @out.json"),
    ), 4),
    "run": Subject(_RUN, ("run/*.*", "run/checkpoints/*/*.h5"), (
        Command("inspect @run"),
        Command("inspect --json @run"),
        Command("resume @run --rounds 4 -q", "run"),
        Command("report @run -o @out.html"),
        Command("card @run --json"),
        Command("evaluate @run @dense.parts", "run"),
    ), 3),
    "private": Subject((
        *_PARTITIONS, seed_config,
        "train @sparse.parts --privacy message --epsilon 1 --delta 1e-3 --lambda 1e-1 --threads 1 --ledger @ledger.jsonl -o @run -q",
    ), ("run/*.*", "ledger.jsonl", "run/model/*", "run/messages/*"), (
        Command("inspect @run"),
        Command("privacy @run"),
        Command("train @sparse.parts --privacy message --epsilon 1 --delta 1e-3 --config @total.toml --lambda 1e-1 --threads 1 --ledger "
                "@ledger.jsonl -o @out -q", "ledger.jsonl"),
        Command("report @run -o @out.html"),
        Command("card @run"),
        Command("resume @run -q", "run"),
    ), 2),
    "rounds": Subject((seed_problem, seed_exchange), ("party-1.request2.h5", "party-1.message2.h5", "data.parts/party-1.h5", "run/*.*",
                                      "run/*/*.msg", "before/*"), (*_STEPS, Command("inspect @THIS")), 3),
    "owners": Subject((
        seed_csv, _OWNERS,
        "owners train @data.owners --epsilon 5 --bound clip:1 --step 0.1 --rounds 3 --threads 1 -o @run -q",
        "owners convert @data.csv --label y --sizes 12,12 --set storage=csr -o @sparse.owners",
    ), ("*.owners/*", "run/*.*", "run/*/*"), (
        Command("owners train @DIR --epsilon 5 --bound clip:1 --step 0.1 --rounds 2 --threads 1 -o @out -q"),
        Command("owners train @DIR --epsilon 5 --bound clip:1 --step 0.1 --rounds 2 --threads 1 --stream -o @out -q"),
        Command("forecast @DIR --epsilon 5 --bound clip:1 --pilot @DIR --json"),
        Command("owners resume @run -q", "run"),
        Command("inspect @THIS"),
        Command("inspect @DIR"),
        Command("predict @run @data.csv -o @out.csv"),
        Command("card @run"),
    ), 3),
    "config": Subject((*_PARTITIONS, seed_config, _OWNERS), ("config.toml", "owners.toml", "private.toml"), (
        Command("train @dense.parts --config @config.toml -q -o @out"),
        Command("train @sparse.parts --config @config.toml --dry-run"),
        Command("train @sparse.parts --config @private.toml -q -o @out"),
        Command("owners train @data.owners --config @owners.toml -q -o @out"),
        Command("coordinator start @dense.parts/labels.h5 --party party-1 --party party-2 --set scheme=sharing --config @config.toml -o @out"),
    ), 3),
}  # fmt: skip


#: What passes between organisations and what they keep of it: fuzzed by itself, with ledgers and partitions.
EXCHANGE = {
    "exchange": Subject((seed_problem, seed_exchange), _EXCHANGE_FILES, _EXCHANGE_COMMANDS, 5),
    "classes": Subject((seed_classes, seed_exchange), _EXCHANGE_FILES, _EXCHANGE_COMMANDS, 2),
    "private": SUBJECTS["private"],
    "partition": SUBJECTS["partition"],
}  # fmt: skip


def make_seeds(home, subjects=SUBJECTS):
    """Make the good files of every subject below `home`, once."""
    for name, subject in subjects.items():
        made = home / f"{name}.made"
        if not made.exists():
            shutil.rmtree(home / name, ignore_errors=True)
            (home / name).mkdir(parents=True)
            for step in subject.seed:
                do(step, home / name) if isinstance(step, str) else step(home / name)
            made.touch()
