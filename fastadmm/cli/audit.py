"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import with_options
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.settings.privacy import Privacy


@dataclass(frozen=True)
class _Claim:
    """The claim to audit, without a run."""

    epsilon: Annotated[float | None, typer.Option(help="Without a run: epsilon to audit.")] = None
    privacy: Annotated[str, typer.Option(help="Without a run: mode to audit, message or fusion.")] = "message"
    delta: Annotated[float, typer.Option(help="Failure probability of the claim.")] = 1e-5
    rounds: Annotated[int, typer.Option(help="Number of messages of each party.")] = 1
    mu: Annotated[float, typer.Option(help="Ratio of regularisation to step (docs/privacy.md).")] = 100.0
    ball: Annotated[float, typer.Option(help="Bound on each party's weights.")] = 8.0
    target_clip: Annotated[float | None, typer.Option(help="Bound on targets. (default: the ball)")] = None
    message_clip: Annotated[float, typer.Option(help="Bound on message entries.")] = 2.0
    adjacency: Annotated[str, typer.Option(help="replace_one or zero_out.")] = "replace_one"

    def settings(self) -> Privacy:
        """The claim as settings of a private run."""
        from fastadmm.errors import ConfigError
        from fastadmm.settings.privacy import Privacy

        if self.epsilon is None:
            raise ConfigError("audit: give a run, or --epsilon and the settings to audit")
        if self.privacy == "fusion":
            return Privacy(mode="fusion", epsilon=self.epsilon, delta=self.delta)
        if self.privacy == "message":
            return Privacy(
                mode="message",
                epsilon=self.epsilon,
                delta=self.delta,
                rounds=self.rounds,
                ball=self.ball,
                target_clip=self.target_clip,
                message_clip=self.message_clip,
                adjacency=self.adjacency,
            )
        raise ConfigError(f"--privacy: {self.privacy!r} is not 'message' or 'fusion'")


@app.command()
@with_options()
def audit(
    run: Annotated[
        Path | None, typer.Argument(readable=False, help="Private run whose settings and noise to audit.")
    ] = None,
    *,
    claim: _Claim,
    trials: Annotated[
        int | None,
        typer.Option(min=1000, help="How many numbers of noise to test. (default: 200000)"),
    ] = None,
    canaries: Annotated[
        bool,
        typer.Option(
            "--canaries",
            help="Also train once on the run's data, with every record as a canary.",
        ),
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

    from fastadmm.errors import ConfigError, ExitCode
    from fastadmm.rounds.audited_hosts import audit_hosts
    from fastadmm.runs import audit as audits

    live = sys.stderr.isatty() and not as_json

    def note(text: str) -> None:
        if live:
            say(f"audit: {text}", error=True)

    if paper is not None:
        rows = audits.audit_paper(paper, 1.0 if claim.epsilon is None else claim.epsilon, claim.delta, trials)
    elif run is not None:
        rows = audits.audit_run(run, trials, canaries, note)
        claimed, mu = audits.claim_of(run)
    else:
        if canaries and claim.epsilon is not None:
            raise ConfigError("audit: --canaries needs a run, whose data it trains on")
        claimed, mu = claim.settings(), claim.mu
        if claimed.mode == "fusion":
            rows = audits.audit_fusion(claimed, None, trials, note)
        else:
            rows = audits.audit_settings(claimed, claim.mu, trials, None, note)
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
