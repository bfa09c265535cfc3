"""Every scheme, and the choice among them."""

from fastadmm.coordinator.admm.scheme import ADMM_SCHEMES
from fastadmm.coordinator.proximal.scheme import Proximal
from fastadmm.coordinator.subspace.scheme import Subspace, SummedSubspace, pairs_suit
from fastadmm.errors import ConfigError
from fastadmm.method.scheme import Options, Scheme
from fastadmm.other_names import choose_instead
from fastadmm.pooled.scheme import Pooled
from fastadmm.problem.traits import Traits

#: By name. ``auto`` takes the first that a problem suits and that has what was asked for.
SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme for scheme in (Subspace(), Proximal(), *ADMM_SCHEMES, Pooled())
}

#: What trains from sums of the parties' messages alone.
SUMMED = SummedSubspace()

#: What every scheme is for.
ANY = Traits()

#: Options that only some schemes have, with the value that asks for nothing.
_OPTIONS = {"penalty": None, "acceleration": "auto", "x_update": "auto", "directions": "auto"}


def choose_scheme(options: Options, traits: Traits = ANY, apart: bool = False) -> tuple[Scheme, str]:
    """Resolve ``auto``, and check that the options go with the scheme.

    ``apart``: whether rounds are wanted although one party has all columns.
    """
    name = options.scheme
    if name not in ("auto", *SCHEMES):
        raise ConfigError(f"scheme: unknown scheme {name!r}; {choose_instead(name, ('auto', *SCHEMES))}")
    _check_options(options, traits)
    given = [option for option, usual in _OPTIONS.items() if getattr(options, option) != usual]
    if options.secrecy == "sums":
        return _choose_summed(name, traits, given)
    suited = [scheme for scheme in SCHEMES.values() if scheme.needs.met_by(traits)]
    if name == "auto" or (name == "pooled" and not (traits.convex and traits.a_sum)):  # as among parties
        alone = traits.n_parties == 1 and traits.a_sum and not (apart or given) and options.history is None
        if alone and SCHEMES["pooled"] in suited:
            suited.insert(0, SCHEMES["pooled"])
        able = [scheme for scheme in suited if {*given[:1]} <= {*scheme.options}]
        chosen = (able or suited)[0]
        reason = chosen.why(traits, given)
    else:
        chosen, reason = SCHEMES[name], "asked for"
        if chosen not in suited:
            order = list(SCHEMES)
            later = [f"{s.name!r} or " for s in suited if order.index(s.name) > order.index(name)]
            raise ConfigError(f"scheme: {name!r} needs {chosen.needs}; choose {''.join(later[:1])}'auto'")
    for option in given:
        if option not in chosen.options:
            other = next(s.name for s in SCHEMES.values() if option in s.options)
            advice = f"choose {other!r}" if option == "directions" else f"choose scheme {other!r}"
            raise ConfigError(f"{option}: scheme {chosen.name!r} has none; leave it out, or {advice}")
    return chosen, reason


def _choose_summed(name: str, traits: Traits, given: list[str]) -> tuple[Scheme, str]:
    """Refuse what sums alone do not train."""
    if name not in ("auto", SUMMED.name):
        raise ConfigError(f"secrecy: 'sums' goes with the scheme {SUMMED.name!r}, not with {name!r}")
    if not SUMMED.needs.met_by(traits):
        raise ConfigError(f"secrecy: 'sums' needs {SUMMED.needs}; leave it out")
    if given:
        raise ConfigError(f"{given[0]}: there is no choice with secrecy 'sums'; leave it out")
    return SUMMED, "asked for" if name == SUMMED.name else SUMMED.why(traits, given)


def _check_options(options: Options, traits: Traits) -> None:
    """Refuse an option that does not go with the problem, whatever the scheme."""
    if not traits.ridge and options.x_update != "auto":
        raise ConfigError(
            f"x_update: {options.x_update!r} solves squared l2 without a constraint only; leave it out"
        )
    if options.directions == "both" and not pairs_suit(traits):
        raise ConfigError(
            "directions: 'both' needs a smooth convex loss and one predictor per sample; choose 'one' or "
            "'auto'"
        )
    if not traits.convex and options.acceleration == "anderson":
        raise ConfigError(
            "acceleration: 'anderson' does not keep the descent of a non-convex problem; leave it out"
        )
