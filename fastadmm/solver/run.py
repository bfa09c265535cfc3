"""What a run drives: rounds, one after the other, and what there is to say of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastadmm.conversation.exchange import Talk, Traffic
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.proof.claim import Proof
from fastadmm.solver.ending import program_line
from fastadmm.solver.history import RoundRecord, Status


class Run(Protocol):
    """A training in progress, private or not; what only some kinds have is empty by default."""

    problem: Problem
    engine: Engine
    n_rounds: int  # rounds done
    last_record: RoundRecord | None
    private: bool = False  # whether what parties send is protected
    clips_rows: bool = False  # whether weights are for rows clipped to norm 1
    sums_only: bool = False  # whether the coordinator knows of messages only their sum
    traffic: Traffic | None = None  # of a run that is not private

    @property
    def name(self) -> str:
        """Name of the scheme."""

    @property
    def intercept(self) -> Any:
        """Of the current model."""

    def prepare(self) -> None:
        """Look at all data before the first round, which otherwise does it."""
        return None

    def round(self) -> RoundRecord:
        """Make one round."""

    def next_round(self) -> Talk[RoundRecord]:
        """The talk of a round."""

    def stop_reason(self, record: RoundRecord) -> Status | None:
        """Why to stop after this round, or None to go on."""

    def describe(self, status: Status, record: RoundRecord) -> str:
        """One sentence on why it stopped."""

    def party_weights(self) -> list[np.ndarray]:
        """Weights of the joint model, of shape (d_m,) or (d_m, C) per party."""

    def spill(self, directory: Path) -> None:
        """Keep messages in a scratch file, which has no name and is gone with the process.

        Before the first round, and of schemes that say they can.
        """
        return None

    def close(self) -> None:
        """Stop the threads, and give back what was set aside."""

    def party_notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""

    def reason(self) -> str:
        """Why this method, in a few words."""

    def program(self) -> str:
        """Which of the two programs runs, and why: pooled, or parties as between organisations."""
        return program_line(self.name)

    def hint(self) -> str:
        """A line where the other program would have been much faster; else empty."""
        return ""

    def notes(self) -> list[str]:
        """Further lines on the method."""
        return []

    def advice(self) -> str:
        """A warning that is known before the first round; else empty."""
        return ""

    def proof_of(self, weights: list[np.ndarray], intercept: Any, kept: bool) -> Proof | None:
        """What is proved of a model, ``kept`` of an earlier round or that of the last; None where nothing."""
        return None

    def kept_model(self) -> tuple[list[np.ndarray], Any, RoundRecord] | None:
        """Weights, intercept and round of an earlier model to return instead of the last; else None."""
        return None

    def held_weights(self, weights: list[np.ndarray]) -> tuple[list[np.ndarray], list[float]]:
        """What each party stores of the joint weights, and the factor that makes them the joint ones."""
        return weights, [1.0] * len(weights)

    def check_budget(self) -> None:
        """Refuse a new run that a ledger has no room for."""
        return None

    def export(self) -> dict[str, Any]:
        """State of the coordinator; nothing where stored messages are the state."""
        return {}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        """Each party's own arrays."""
        return [{} for _ in self.problem.names]

    def write_rows(self, write: Callable[..., dict[str, str]]) -> dict[str, str]:
        """Let every worker write its rows of the state, where several share them; digests of their files."""
        return {}

    def restore(self, saved: dict[str, Any], parties: list[dict[str, np.ndarray]]) -> None:
        """Continue from exported state."""
        return None

    def statement(self) -> Any:
        """The :class:`~fastadmm.privacy.statement.PrivacyStatement` of a private run; else None."""
        return None

    def mechanism(self) -> dict[str, float]:
        """The numbers behind the statement, for audits."""
        return {}

    def compare(self, weights: list[np.ndarray], intercept: Any) -> Any:
        """A private result beside what sending nothing gives, as ``result.json`` has it; else None."""
        return None
