"""What the tests of parties elsewhere share: agents in this process, and what carries bytes to them."""

from contextlib import contextmanager

import numpy as np
import pytest
from fastadmm.between.agent import Agent
from fastadmm.between.consent import agent_approve, approve_fingerprints, shown_digest
from fastadmm.between.coordinator import RUN, Coordinator
from fastadmm.between.schema import Refusal, Request, answer_of, encoded, open_envelope
from fastadmm.between.socket import Lost, Socket, serve
from fastadmm.between.train import new_run
from fastadmm.errors import InputError
from fastadmm.runs.folder import EXCHANGE, RunFolder
from fastadmm.store.party_file import PartyWriter, open_party
from scipy import sparse

from rounds_tools import NAMES

CALLER = "coordinator"


def confirmed(approve, *what, **how):
    """What an owner approves after having looked at it."""
    lines, _ = approve(*what, **how)
    assert len(lines) <= 24
    return approve(*what, **how, confirm=shown_digest(lines))


class Parties:
    """Agents by name, which can be killed: another one then begins with what is on disk."""

    def __init__(self, folder, names=NAMES, **options):
        self.folder, self.names, self.options = folder, names, options
        self.said = []
        self.agents = {}

    def home(self, name):
        return self.folder / name

    def agent(self, name):
        if name not in self.agents:
            home = self.home(name)
            others = home / "others" / f"{name}.h5"
            rows = {"test": others, "validation": others} if others.exists() else {}
            more = {**rows, **self.options.get(name, {})}
            self.agents[name] = Agent(
                home / f"{name}.h5", home / "agent", threads=1, say=self.said.append, **more
            )
        return self.agents[name]

    def approve(self, run):
        for name in self.names:
            own = run / RUN, self.home(name) / f"{name}.h5", self.home(name) / "agent"
            confirmed(agent_approve, *own)

    def begin(self, **values):
        """A run that all have approved, with the fingerprints that sums only need."""
        run = begin_run(self.folder, **values)
        self.approve(run.path)
        if values.get("secrecy") == "sums":
            self.compare_keys(run.path)
        return run

    def compare_keys(self, run):
        """Every party refuses until it has been told the fingerprints that the others' owners see."""
        with federated(RunFolder(run, EXCHANGE), self.ask) as training:
            with pytest.raises(InputError, match=r"refused \(keys\)"):
                training.advance()
            run_id = training.run
        for name in self.names:
            state = self.home(name) / "agent"
            lines = (state / run_id / "keys.txt").read_text().splitlines()
            others = [line.split(": ")[1] for line in lines if "(this party)" not in line]
            approve_fingerprints(run_id, others, state)

    def kill(self, name):
        """As SIGKILL does: nothing is written any more, and the system closes what was open."""
        agent = self.agents.pop(name)
        agent.close()

    def ask(self, name, raw, seconds):
        return self.agent(name).handle(CALLER, name, raw)

    def close(self):
        for name in list(self.agents):
            self.kill(name)


def party_file(path, features, name=""):
    """The file of a party with these features, dense or sparse."""
    names = [f"c{j}" for j in range(features.shape[1])]
    kind = "csr" if sparse.issparse(features) else "dense"
    with PartyWriter(
        path, name=name or path.stem, n_features=len(names), kind=kind, feature_names=names, force=True
    ) as writer:
        writer.append(features, ids=np.arange(features.shape[0]))
    return open_party(path)


class Asker:
    """A coordinator that asks one party's agent whatever it likes."""

    run = "0123456789abcdef"

    def __init__(self, home, features, name="A", **options):
        home.mkdir(exist_ok=True)
        self.home, self.state, self.name, self.options = home, home / "state", name, options
        self.data = party_file(home / f"{name}.h5", features)
        self.said = []
        self.previous, self.answered = -1, ""
        self.agent = None
        self.wake()

    def wake(self, **options):
        """The agent's process ends, and another begins."""
        self.close()
        self.options |= options
        self.agent = Agent(self.data.path, self.state, threads=1, say=self.said.append, **self.options)

    def request(self, calls, number=None):
        here = self.previous + 1 if number is None else number
        return encoded(Request(self.run, self.name, here, self.previous, calls, self.answered))

    def heard(self, envelope, calls):
        """The answer of an envelope, or the code of a refusal."""
        found = answer_of(envelope, calls[-1], self.data.n_samples, "answer")
        if isinstance(found, Refusal):
            return None, found.code
        self.previous, self.answered = found.number, found.digest
        return found.answer, ""

    def ask(self, *calls):
        got = self.agent.handle(CALLER, self.name, self.request(list(calls)))
        return self.heard(open_envelope(got, len(got), "answer"), list(calls))

    def close(self):
        if self.agent is not None:
            self.agent.close()


class SocketParties(Parties):
    """Agents that are asked at sockets, as those of other processes are."""

    def __init__(self, folder):
        super().__init__(folder)
        self.sockets = {}

    def ask(self, name, raw, seconds):
        if name not in self.sockets:
            path = self.home(name) / "s"
            self.sockets[name] = serve(path, self.agent(name).handle), Socket(path)
        return self.sockets[name][1].ask(name, raw, seconds, CALLER)

    def kill(self, name):
        if name in self.sockets:
            self.sockets.pop(name)[0].stop(0)
        super().kill(name)


class Killing:
    """Carries bytes; before or after some exchange it kills a party, or the coordinator."""

    def __init__(self, parties, at, who):
        self.parties, self.at, self.who, self.asked = parties, at, who, 0

    def __call__(self, name, raw, seconds):
        self.asked += 1
        if self.asked == self.at:
            if self.who == "party before":
                self.parties.agent(name)
                self.parties.kill(name)
                raise Lost("nobody there")
            self.parties.ask(name, raw, seconds)
            if self.who == "party after":
                self.parties.kill(name)
            raise Lost("the answer was lost")
        return self.parties.ask(name, raw, seconds)


def begin_run(folder, names=NAMES, **values):
    """A run directory with its description; ``caller`` and ``own`` are no settings."""
    out = folder / "labels" / "run"
    own, caller = values.pop("own", None), str(values.pop("caller", CALLER))
    labels = folder / "labels" / "labels.h5"
    new, fill = new_run(labels, names, out, dict(values), "test", own=own, say=print)
    with new.begin(fill, force=False):
        run = Coordinator(new, lambda *_: b"", lambda _: None)
        run.write_description(caller)
        run.close()
    return new


@contextmanager
def federated(folder, ask):
    with folder.held():
        run = Coordinator(RunFolder(folder.path, EXCHANGE), ask, lambda _: None)
        try:
            yield run
        finally:
            run.close()


def advance(folder, ask):
    """Go on with a run, to its end if nothing is in the way."""
    with federated(folder, ask) as run:
        return run.advance()


def lost(folder, ask):
    with pytest.raises(Lost):
        advance(folder, ask)


def train_with(parties, **values):
    folder = parties.begin(**values)
    advance(folder, parties.ask)
    return folder.path
