"""Choose the scheme from what is asked, and say why."""

from __future__ import annotations

from fastadmm.coordinator.admm.schemes import SCHEMES
from fastadmm.errors import ConfigError

__all__ = ["DIRECTIONS", "PROXIMAL", "SCHEME_NAMES", "SUBSPACE", "choose_directions", "choose_scheme"]

#: The scheme that needs no penalty; see :mod:`fastadmm.coordinator.subspace.subspace`.
SUBSPACE = "subspace"

#: The same for regularisers with kinks and for sets; see :mod:`fastadmm.coordinator.proximal.proximal`.
PROXIMAL = "proximal"

#: Every scheme, the default first.
SCHEME_NAMES: tuple[str, ...] = (SUBSPACE, PROXIMAL, *SCHEMES)

#: What the parties of ``subspace`` may answer with in a round.
DIRECTIONS: tuple[str, ...] = ("auto", "one", "both")

#: Messages in single precision are not asked to certify a smaller relative gap.
_SINGLE_GAP = 1e-9


def choose_directions(asked: str, suited: bool, gap: float, exchange: bool) -> tuple[bool, str]:
    """Whether parties answer with both directions in a round of ``subspace``, and why.

    Parameters
    ----------
    asked : {"auto", "one", "both"}
    suited : bool
        Whether the problem is convex and smooth, and has one predictor per sample.
    gap : float
        Relative gap that is wanted; 0 for as small as it gets.
    exchange : bool
        Whether a round is an exchange between machines: then rounds cost more than arithmetic.

    Returns
    -------
    both : bool
    reason : str
        One clause for the log.

    Raises
    ------
    ConfigError
        If both are asked for and the problem is not suited.
    """
    if asked not in DIRECTIONS:
        raise ConfigError(f"directions: unknown choice {asked!r}; choose {', '.join(DIRECTIONS)}")
    if asked == "both" and not suited:
        raise ConfigError(
            "directions: 'both' needs a smooth convex loss and one predictor per sample; choose 'one' or "
            "'auto'"
        )
    if asked != "auto":
        return asked == "both", "asked for"
    if not suited:
        return False, "loss with kinks, not convex, or with several predictors per sample"
    if gap < _SINGLE_GAP:
        return False, "the gap is too small for messages in single precision"
    if exchange:
        return True, "a round is an exchange: two directions in single precision are no more bytes"
    return False, "rounds are cheap in one process: fewer directions are less arithmetic"


def choose_scheme(
    scheme: str,
    penalty: float | None = None,
    acceleration: str = "auto",
    x_update: str = "auto",
    smooth: bool = True,
    ridge: bool = True,
    convex: bool = True,
    suited: bool = True,
) -> tuple[str, str]:
    """Resolve ``auto``, and check that the options go with the scheme.

    Parameters
    ----------
    scheme : str
        "auto" or a name of :data:`SCHEME_NAMES`.
    penalty : float or None
    acceleration, x_update : str
        Options that only the ADMM schemes have; one that is set makes
        "auto" choose ``sharing``.
    smooth : bool
        Whether the loss has a continuous derivative; ``subspace`` smooths
        the kinks of one that has not.
    ridge : bool
        Whether the regulariser is squared l2 without a constraint, which
        ``subspace`` and the x-updates that have a name need.
    convex : bool
        Whether loss and regulariser are convex; extrapolation has no
        guarantee where one is not.
    suited : bool
        Whether ``proximal`` can run: one predictor per sample, and at most
        64 parties, with more of which its small problems are no longer small.

    Returns
    -------
    name : str
    reason : str
        One clause for the log.

    Raises
    ------
    ConfigError
        If the scheme is unknown, or an option does not go with it.
    """
    if scheme not in ("auto", *SCHEME_NAMES):
        raise ConfigError(f"scheme: unknown scheme {scheme!r}; choose auto, {', '.join(SCHEME_NAMES)}")
    options = {
        "penalty": penalty is not None,
        "acceleration": acceleration != "auto",
        "x_update": x_update != "auto",
    }
    given = [name for name, is_given in options.items() if is_given]
    if not ridge and x_update != "auto":
        raise ConfigError(f"x_update: {x_update!r} solves squared l2 without a constraint only; leave it out")
    if not convex and acceleration == "anderson":
        raise ConfigError(
            "acceleration: 'anderson' does not keep the descent of a non-convex problem; leave it out"
        )
    if scheme == "auto":
        if given:
            return "sharing", f"{given[0]} is an option of ADMM"
        if not ridge:
            if not suited:
                return "sharing", "more than 64 parties, or one predictor per class"
            return PROXIMAL, "regularizer or constraint beyond squared l2: fewest rounds"
        if not smooth:
            return SUBSPACE, "squared l2, and the loss's kinks can be smoothed: fewest rounds"
        if not convex:
            return SUBSPACE, "smooth non-convex loss with squared l2: monotone descent in fewest rounds"
        return SUBSPACE, "smooth loss with squared l2: fewest rounds"
    if scheme == SUBSPACE and not ridge:
        raise ConfigError(
            "scheme: 'subspace' needs regularizer l2 without a constraint; choose 'proximal' or 'auto'"
        )
    if scheme == PROXIMAL and not suited:
        raise ConfigError(
            "scheme: 'proximal' needs a convex problem with one predictor per sample and at most 64 parties; "
            "choose 'sharing' or 'auto'"
        )
    if scheme in (SUBSPACE, PROXIMAL) and given:
        raise ConfigError(f"{given[0]}: scheme {scheme!r} has none; leave it out, or choose scheme 'sharing'")
    return scheme, "asked for"
