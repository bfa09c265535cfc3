"""Sequences of requests to a party on pairs of neighbours: what the coordinator sees of them must not differ.

``python tests/neighbours.py 2000`` tries so many, through agents and by files; ``test_neighbours.py`` has a
share.
"""

import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from fastadmm import Privacy
from fastadmm.between import session as sessions
from fastadmm.between.agent import party_approve, party_step
from fastadmm.between.approval import privacy_text
from fastadmm.between.consent import agent_approve, approve_fingerprints, asked_file
from fastadmm.between.hub import open_letter, sealed
from fastadmm.between.schema import code_of, open_envelope, table_digest
from fastadmm.errors import FastadmmError
from fastadmm.secrecy.keys import fingerprint, new_private_key, public_key
from fastadmm.version import __version__

from federation_tools import CALLER, Asker, confirmed

RUN = Asker.run
MODES = ("message", "fusion", "subspace_sums")


def neighbours(rng):
    """Two tables that differ in one row, as far as features go at all."""
    n, d = int(rng.integers(4, 24)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    X[rng.random(n) < rng.choice([0.0, 0.3, 0.9])] = 0.0
    if rng.random() < 0.2:
        X[:, -1] = X[:, 0]
    other, row = X.copy(), int(rng.integers(n))
    kind = int(rng.integers(6))
    scale = (0.0, 1.0, 1e-300, 5e-324, 1e12, 1e28)[kind]
    other[row] = scale * np.clip(rng.normal(size=d), -3.0, 3.0)
    return (X, other) if rng.random() < 0.5 else (other, X)


class Coordinator(Asker):
    """Asks one party, also by files; what it sees of it is in ``seen``."""

    def __init__(self, home, X, mode, terms, by_files=False):
        self.ledger = home / "ledger.jsonl" if mode in ("message", "fusion") else None
        self.seen = []
        self.keys = []
        self.mode, self.by_files, self.files = mode, by_files, 0
        super().__init__(home, X, "a", ledger=self.ledger)
        self.terms = {**terms, "row_digest": self.data.row_digest}
        if not by_files:
            self.ask([("start", self.terms)])
            confirmed(agent_approve, asked_file(RUN, self.state), self.data.path, self.state)
        elif (raw := self.encoded([("start", self.terms)])) is not None:
            party_approve(self.letter(raw), self.data.path, home / "approval.toml")

    def encoded(self, calls, number=None):
        """A request with this party's own key in its place; None for what no message can say."""
        if self.keys:
            keys = np.concatenate([np.frombuffer(key, dtype="<i8") for key in self.keys])
            calls = [(name, {"keys": keys} if "keys" in given else given) for name, given in calls]
        try:
            return self.request(calls, number)
        except (ValueError, TypeError, OverflowError):
            return None

    def letter(self, raw):
        self.files += 1
        path = self.home / f"request-{self.files}.h5"
        path.write_bytes(sealed(raw))
        return path

    def ask(self, calls, number=None):
        """What the party answers; nothing where it refuses."""
        raw = self.encoded(calls, number)
        if raw is None:
            self.seen.append("not sent")
            return {}
        if self.by_files:
            got = self.by_file(raw)
        else:
            answer = self.agent.handle(CALLER, "a", raw)
            got = open_envelope(answer, len(answer), "answer"), len(answer)
        if got is None:
            return {}
        found, code = self.heard(got[0], calls)
        self.seen.append((code or "answer", got[1]))
        if found and "key" in found:
            self.keys = [found["key"].tobytes(), *(public_key(new_private_key()) for _ in range(2))]
        return found or {}

    def by_file(self, raw):
        request = self.letter(raw)
        out = self.home / f"answer-{self.files}.h5"
        approval = self.home / "approval.toml" if self.previous < 0 else None
        try:
            more = {"approval": approval, "ledger": self.ledger, "threads": 1}
            party_step(self.data.path, self.home / "step", request, out, **more)
        except FastadmmError as error:
            text = re.sub(r"/\S*/(pair-.)/", "", str(error))
            text = re.sub(r"sha256:[0-9a-f]+|[0-9a-f]{64}", "DIGEST", text)
            self.seen.append((code_of(error), int(error.exit_code), text))
            return None
        return open_letter(out, 1 << 30), out.stat().st_size

    def files_written(self):
        """Names and sizes of all that the party keeps."""
        homes = [self.home / "state", self.home / "step"]
        found = [path for home in homes for path in home.rglob("*")] + [self.home / "ledger.jsonl"]
        return sorted(
            (str(path.relative_to(self.home)), path.stat().st_size) for path in found if path.is_file()
        )


def vector(rng, n):
    """Numbers of every size, mostly of the length that is wanted."""
    n = max(0, n + int(rng.choice([0] * 60 + [-1, 1])))
    kind = int(rng.integers(8))
    made = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3)
    if kind == 0:
        made = made * 10.0 ** rng.choice([rng.uniform(-320, 155), rng.uniform(-30, 28)])
    elif kind == 1 and n:
        made = np.zeros(n)
        made[rng.integers(n)] = 10.0 ** rng.uniform(-30, 30)
    elif kind == 2:
        made = np.full(n, rng.choice([0.0, 1.0, 5e-324, 1e29, 1e30, -1e100]))
    elif kind == 3 and n and rng.random() < 0.1:
        made[rng.integers(n)] = rng.choice([np.nan, np.inf, -np.inf])
    return made


def scale(rng):
    """A positive number of any size."""
    return float(10.0 ** rng.choice([rng.uniform(-3, 3), rng.uniform(-29, 29), rng.uniform(-300, 140)]))


def step(rng):
    return float(2.0 ** rng.integers(-140, 60)) if rng.random() < 0.98 else scale(rng)


class Hostile:
    """Makes calls of a mode; it keeps count of what an answered one changes."""

    def __init__(self, rng, mode, n):
        self.rng, self.mode, self.n = rng, mode, n
        self.exchange, self.round, self.directions = 2, 1, 0  # the first was the sum of squares

    def calls(self):
        rng = self.rng
        if self.mode in ("message", "fusion"):
            own = "noisy" if self.mode == "message" else "fuse"
            before = [self.one("settle")] if self.mode == "message" and rng.random() < 0.3 else []
            other = str(rng.choice(["settle", "fuse", "noisy", "keep"]))
            return [*before, self.one(own if rng.random() < 0.9 else other)]
        usual = "respond_masked"
        others = ["sum_squares", "prove_masked", "orthonormalise", "forget"]
        others += ["finish"] * (rng.random() < 0.3)
        before = [self.one("set_metric")] if rng.random() < 0.3 else []
        if self.directions and rng.random() < 0.5:
            before.append(self.one("orthonormalise"))
        made = self.one(usual if rng.random() < 0.7 else str(rng.choice(others)))
        return [*before, made, *([self.one(usual)] if rng.random() < 0.1 else [])]

    def one(self, name):
        rng, n, k = self.rng, self.n, self.directions
        number = self.exchange if rng.random() < 0.97 else int(rng.integers(1, 9))
        arguments = {
            "noisy": {"target": vector(rng, n), "round": self.round if rng.random() < 0.8 else 99},
            "settle": {"target": vector(rng, n)},
            "keep": {"model_id": "0" * 32},
            "fuse": {
                "target": vector(rng, n),
                "classes": (rng.random(n) < 0.5) * 1.0 if rng.random() < 0.9 else vector(rng, n),
            },
            "set_metric": {"curvature": np.abs(vector(rng, n)) + (scale(rng) if rng.random() < 0.2 else 0.1)},
            "respond_masked": {
                "exchange": number,
                "gradient": vector(rng, n),
                "coefficients": vector(rng, k),
                "units": 2.0 ** rng.integers(*((-300, 300) if rng.random() < 0.2 else (-60, 20)), size=2),
                "measured": min(k, 2),
                "step": step(rng),
            },
            "orthonormalise": {"factors": np.resize(vector(rng, 2 * k), (2, k)), "kept": max(0, k - 2)},
            "forget": {"direction": vector(rng, k)},
            "sum_squares": {"exchange": number},
            "prove_masked": {
                "exchange": number,
                "u": vector(rng, n),
                "eps": abs(scale(rng)),
                "scale": float(rng.random()),
                "kept": bool(rng.random() < 0.1),
                "step": step(rng),
            },
            "finish": {"model_id": "0" * 32},
        }
        made = arguments[name]
        if self.mode == "subspace_sums" and name in ("prove_masked", "finish"):
            made["coefficients"] = vector(rng, k)
        return name, made

    def heard(self, calls, answer):
        if answer:
            self.exchange += sum("exchange" in arguments for _, arguments in calls)
            self.round += sum(name == "noisy" for name, _ in calls)
            for name, arguments in calls:
                if name == "respond_masked":
                    self.directions += 2
                elif name == "orthonormalise":
                    self.directions += len(arguments["factors"]) - 2
                elif name == "forget":
                    self.directions -= 1


def first_terms(rng, mode, n):
    """Of a run about N rows."""
    hostile = rng.random() < 0.2
    terms = {
        "family": mode,
        "regularization": scale(rng) if hostile else float(10.0 ** rng.uniform(-2, 1)),
        "x_update": str(rng.choice(["auto", "auto", "gram", "kernel", "cg"])),
        "regularizer": "l2",
        "l1_ratio": -1.0,
        "constraint": "all",
        "n_samples": n,
        "position": 0,
        "loss": "logistic",
        "release": __version__,
        "table": table_digest(),
        "parties": "a,b,c",
        "penalty": 0.0,
    }
    given = {"mode": mode, "epsilon": float(rng.choice([0.1, 1.0, 100.0])), "delta": 1e-6}
    if mode == "fusion":
        terms["privacy"] = privacy_text(Privacy(**given))
    if mode == "message":
        kind = str(rng.choice(["replace_one", "zero_out"]))
        settings = Privacy(**given, rounds=6, adjacency=kind)
        terms["privacy"] = privacy_text(settings)
        terms["penalty"] = scale(rng) if rng.random() < 0.1 else float(10.0 ** rng.uniform(-3, 12))
    return terms


def differing(seed, folder, length=10):
    """One sequence on one pair; what differs, or nothing."""
    rng = np.random.default_rng(seed)
    kinds = len(MODES)
    mode, by_files = MODES[seed % kinds], (seed // kinds) % 4 == 3
    pair = neighbours(rng)
    n = len(pair[0])
    terms = first_terms(rng, mode, n)
    homes, kind = (folder / "pair-0", folder / "pair-1"), sp.csr_array if rng.random() < 0.3 else np.asarray
    sides = [Coordinator(home, kind(X), mode, terms, by_files) for home, X in zip(homes, pair)]
    try:
        for calls in [[("start", terms)], *opening(mode)]:
            for side in sides:
                side.ask([(name, side.terms if name == "start" else said) for name, said in calls])
                if calls[-1][0] == "show_key" and side.keys and not by_files:
                    approve_fingerprints(
                        RUN, [fingerprint(key) for key in side.keys[1:]], side.home / "state"
                    )
        hostile = Hostile(rng, mode, n)
        for _ in range(length):
            calls = hostile.calls()
            number = None if rng.random() < 0.9 else int(rng.integers(0, 9))
            for _ in range(1 + int(rng.random() < 0.1)):
                answers = [side.ask(calls, number) for side in sides]
            hostile.heard(calls, answers[0])
            if rng.random() < 0.1:
                for side in sides:
                    side.wake()
        for one, other in zip(sides[0].seen, sides[1].seen):
            if one != other:
                return f"seed {seed}, {mode}: {one} and {other}"
        if sides[0].files_written() != sides[1].files_written():
            both = [set(side.files_written()) for side in sides]
            return f"seed {seed}, {mode}: files {sorted(both[0] ^ both[1])}"
        return ""
    finally:
        for side in sides:
            side.close()


def opening(mode):
    if mode in ("message", "fusion"):
        return []
    keys = np.zeros(12, dtype="<i8")  # each coordinator puts those of its run there
    return [[("show_key", {})], [("introduce", {"keys": keys}), ("sum_squares", {"exchange": 1})]]


def try_all(seeds, folder):
    """What differs, of so many sequences."""
    sessions._EXCHANGES = 4  # snapshots, as a long run has them
    found = []
    for seed in seeds:
        home = folder / str(seed)
        home.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow, which is what is tried
            found.append(differing(seed, home))
        shutil.rmtree(home)
    return [text for text in found if text]


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as directory:
        different = try_all(range(first, first + count), Path(directory))
    print(*different, f"{len(different)} of {count} sequences differ", sep="\n")
    sys.exit(bool(different))
