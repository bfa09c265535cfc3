"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import given_options, with_options
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy


@dataclass(frozen=True)
class _Claim:
    """The claim to audit, without a run."""

    epsilon: Annotated[float | None, typer.Option(help="Without a run: epsilon to audit.")] = None
    privacy: Annotated[
        str | None, typer.Option(help="Mode to audit, message or fusion. (default: message)")
    ] = None
    delta: Annotated[float | None, typer.Option(help="Failure probability of the claim. (default: 1e-5)")] = (
        None
    )
    rounds: Annotated[int | None, typer.Option(help="Number of messages of each party. (default: 1)")] = None
    mu: Annotated[
        float | None, typer.Option(help="Ratio of regularisation to step (docs/privacy.md). (default: 100)")
    ] = None
    ball: Annotated[float | None, typer.Option(help="Bound on each party's weights. (default: 8)")] = None
    target_clip: Annotated[float | None, typer.Option(help="Bound on targets. (default: the ball)")] = None
    message_clip: Annotated[float | None, typer.Option(help="Bound on message entries. (default: 2)")] = None
    adjacency: Annotated[str | None, typer.Option(help="replace_one or zero_out. (default: replace_one)")] = (
        None
    )

    def settings(self) -> tuple[FusionPrivacy | MessagePrivacy, float]:
        """The claim as settings of a private run, and mu; what its mode has not is refused."""
        from fastadmm.errors import ConfigError
        from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy, Privacy

        if self.epsilon is None:
            raise ConfigError("audit: give a run, or --epsilon and the settings to audit")
        given = {key: value for key, value in asdict(self).items() if value is not None}
        mode, mu = given.pop("privacy", "message"), given.pop("mu", None)
        if mode != "message" and mu is not None:
            raise ConfigError("--mu: mode 'message' has one; leave it out")
        settings = Privacy(mode=mode, **given)
        assert isinstance(settings, (FusionPrivacy, MessagePrivacy))  # mode 'none' has no epsilon
        return settings, 100.0 if mu is None else mu


@app.command()
@with_options()
def audit(
    run: Annotated[
        Path | None, typer.Argument(readable=False, help="Private run whose settings and noise to audit.")
    ] = None,
    *,
    claim: _Claim,
    trials: Annotated[
        int | None, typer.Option(min=1000, help="How many numbers of noise to test. (default: 200000)")
    ] = None,
    canaries: Annotated[
        bool,
        typer.Option("--canaries", help="Also train once on the run's data, with every record as a canary."),
    ] = False,
    paper: Annotated[
        int | None,
        typer.Option(
            min=2, help="Instead, audit the paper's calibration with this many columns, as a demonstration."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Test a privacy claim empirically; exit code 9 if it is refuted."""
    import json

    from fastadmm.between.audited_hosts import audit_hosts
    from fastadmm.errors import ConfigError, ExitCode
    from fastadmm.runs import audit as audits
    from fastadmm.settings.privacy import FusionPrivacy

    live = sys.stderr.isatty() and not as_json

    def note(text: str) -> None:
        if live:
            say(f"audit: {text}", error=True)

    own = given_options(claim, *(("epsilon", "delta") if run is None else ()))
    own += ["--paper"] * (run is not None and paper is not None)
    if own and (run is not None or paper is not None):
        what = "the paper's calibration" if run is None else "a run"
        raise ConfigError(f"audit: {what} says that itself; leave out {', '.join(own)}")
    if paper is not None:
        epsilon, delta = (1.0 if claim.epsilon is None else claim.epsilon), claim.delta or 1e-5
        rows = audits.audit_paper(paper, epsilon, delta, trials)
    elif run is not None:
        rows = audits.audit_run(run, trials, canaries, note)
        claimed, mu = audits.claim_of(run)
    else:
        if canaries and claim.epsilon is not None:
            raise ConfigError("audit: --canaries needs a run, whose data it trains on")
        claimed, mu = claim.settings()
        if isinstance(claimed, FusionPrivacy):
            rows = audits.audit_fusion(claimed, None, trials, note)
        else:
            rows = audits.audit_settings(claimed, mu, trials, None, note)
    if paper is None:
        rows += audits.or_its_end("answers by files", lambda: audit_hosts(claimed, mu, note))
    flagged = any(row.flagged for row in rows)
    if as_json:
        document: dict[str, Any] = {"flagged": flagged, "checks": [row.to_json() for row in rows]}
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        for row in rows:
            say(f"{'FLAGGED' if row.flagged else 'ok':<8} {row.name}: {row.found}", hang=9)
            if row.power:
                say(f"{'':<8} {row.power}")
        say("the claim is refuted" if flagged else "nothing refutes the claim (which is no proof of it)")
    return int(ExitCode.PRIVACY if flagged else ExitCode.OK)
