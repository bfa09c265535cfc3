"""An approval in plain words, for whoever owns the data."""

from __future__ import annotations

from fastadmm.conversation.answering import Answering
from fastadmm.conversation.calls import SUMS
from fastadmm.parties.families import FAMILIES
from fastadmm.rounds.approval import Approval, sees_columns
from fastadmm.rounds.private_terms import Protection
from fastadmm.settings.privacy import ADJACENCIES
from fastadmm.store.party_file import PartyData

__all__ = ["in_plain_words"]


def in_plain_words(approval: Approval, data: PartyData) -> list[str]:
    """What is asked and what it means, for whoever owns the data.

    Parameters
    ----------
    approval : Approval
    data : PartyData

    Returns
    -------
    list of str
        Lines.
    """
    a = approval
    classes = "" if a.n_classes is None else f" with {a.n_classes} classes"
    penalty = a.regularizer if a.l1_ratio is None else f"{a.regularizer} (l1_ratio {a.l1_ratio:g})"
    lines = [
        f"run {a.run} asks {a.party} to take part with {data.n_samples} rows and {data.n_features} columns",
        f"model: loss {a.loss or 'not stated'}{classes}, regularizer {penalty}, lambda {a.least_lambda:g}, "
        f"constraint {a.constraint}",
        f"limits: {a.exchanges} exchanges, {a.directions} vectors of {data.n_samples} numbers, "
        f"until {a.last_day or 'no last day'}",
    ]
    if a.protection is not None:
        return [*lines, *_protection_in_words(a.family, a.protection)]
    lines.append("there is no noise: answers are exact functions of the features (epsilon is infinite)")
    lines.append(
        "when the run ends, one answer proves the model: the message of the weights that this party writes, "
        "which is made of messages that were sent before, and a few sums over all of its rows and columns"
    )
    if a.family in SUMS:
        lines.append(
            "answers are masked: the coordinator sees sums over all parties, as long as it does not work "
            "together with all others, and the keys are the parties': compare the fingerprints by telephone"
        )
    if sees_columns({"family": a.family, "regularizer": a.regularizer, "constraint": a.constraint}):
        number = FAMILIES.get(a.family, Answering).exchanges_per_column
        each = "an exchange" if number == 1 else "two exchanges"
        at_once = a.n_classes or 1  # a target for each class
        columns = min(data.n_features, a.exchanges // number * at_once)
        lines.append(
            f"with {a.regularizer} and constraint {a.constraint} a coordinator that deviates from the "
            f"protocol reads single columns, {a.n_classes or 'one'} in {each} or more: up to {columns} of "
            f"{data.n_features} within these limits, and more where columns hold few different values. "
            "Approve only a coordinator that you trust to be honest"
        )
    else:
        lines.append(
            "answers depend on the features only through the inner products of rows with each other: after "
            f"{data.n_features} vectors a coordinator knows all of these, and with some rows that it knows "
            "already, or columns of few values, it can work out more. No answer shows a single column by "
            "itself. Approve only a coordinator that you trust to be honest"
        )
    return lines


def _protection_in_words(family: str, protection: Protection) -> list[str]:
    p = protection
    if p.sampler == "insecure_test":
        return [
            f"mode {family}, but its noise is seeded, for tests: nothing is protected. Approve no real data"
        ]
    return [
        f"mode {family}: everything that leaves carries noise, drawn here: epsilon {p.epsilon:g} at delta "
        f"{p.delta:g}, where {ADJACENCIES.get(p.adjacency, p.adjacency)}",
        f"each release is charged to your own ledger before it leaves, up to epsilon {p.total_epsilon:g} "
        "over all runs; a repeated request gets the same bytes and costs nothing",
    ]
