"""What a private run takes as public, in one place: its settings, record ids, N and widths, and nothing else.

A theorem bounds what *messages* give away, given the public inputs. Anything else that enters a public
target reveals the rows or labels that it was made from, however strong the noise: with weights that balance
the classes, the first target of mode "message" takes four values, two for each true label.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastadmm.errors import ConfigError
from fastadmm.problem.problem import Problem
from fastadmm.settings.privacy import DifferentialPrivacy

__all__ = ["check_public_inputs", "curvature_unit", "preparation_not_covered"]


def check_public_inputs(problem: Problem, settings: DifferentialPrivacy) -> None:
    """Refuse weights and offsets, which a private run would publish although they may depend on labels or
    rows.

    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    for what, found in (
        ("sample_weight", (problem.weight != 1.0).any()),
        ("offset", problem.offset.any()),
    ):
        if found:
            raise ConfigError(
                f"{what}: privacy: mode {settings.mode!r} takes neither sample weights nor offsets: public "
                "targets would give away the labels or rows that they were made from; remove them"
            )


def curvature_unit(problem: Problem, settings: DifferentialPrivacy) -> float:
    """Curvature of the loss, which scales the public penalty: without labels where these are protected.

    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    y = problem.y if settings.label_epsilon is None else problem.y[:0]
    return problem.loss.penalty_unit(y, problem.weight, problem.offset, problem.lam)


def preparation_not_covered(
    settings: DifferentialPrivacy, unproved: Mapping[str, str] | None
) -> tuple[str, ...]:
    """What a statement does not cover if nobody said how columns were prepared (arrays, in estimators).

    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    if unproved is not None or settings.public_scaling:
        return ()
    return (
        "how columns were prepared before they were given: scales, fills or categories computed from the "
        "private rows void epsilon",
    )
