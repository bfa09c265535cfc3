"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app


@app.command()
def audit(
    run: Annotated[
        Path | None, typer.Argument(readable=False, help="Private run whose settings and noise to audit.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Without a run: epsilon to audit.")] = None,
    privacy: Annotated[
        str, typer.Option(help="Without a run: mode to audit, message or fusion.")
    ] = "message",
    delta: Annotated[float, typer.Option(help="Failure probability of the claim.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Number of messages of each party.")] = 1,
    mu: Annotated[float, typer.Option(help="lambda N / (tau r) of the x-update.")] = 100.0,
    ball: Annotated[float, typer.Option(help="Bound on each party's weights.")] = 8.0,
    target_clip: Annotated[float | None, typer.Option(help="Bound on targets. (default: the ball)")] = None,
    message_clip: Annotated[float, typer.Option(help="Bound on message entries.")] = 2.0,
    adjacency: Annotated[str, typer.Option(help="replace_one or zero_out.")] = "replace_one",
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
    from fastadmm.runs import audit as audits

    live = sys.stderr.isatty() and not as_json

    def note(text: str) -> None:
        if live:
            print(f"audit: {text}", file=sys.stderr, flush=True)

    if paper is not None:
        rows = audits.audit_paper(paper, 1.0 if epsilon is None else epsilon, delta, trials)
    elif run is not None:
        rows = audits.audit_run(run, trials, canaries, note)
    elif epsilon is None:
        raise ConfigError("audit: give a run, or --epsilon and the settings to audit")
    else:
        if canaries:
            raise ConfigError("audit: --canaries needs a run, whose data it trains on")
        from fastadmm.settings.privacy import Privacy

        if privacy == "fusion":
            claim = Privacy(mode="fusion", epsilon=epsilon, delta=delta)
            rows = audits.audit_fusion(claim, None, trials, note)
        elif privacy == "message":
            claim = Privacy(
                mode="message",
                epsilon=epsilon,
                delta=delta,
                rounds=rounds,
                ball=ball,
                target_clip=target_clip,
                message_clip=message_clip,
                adjacency=adjacency,
            )
            rows = audits.audit_settings(claim, mu, trials, None, note)
        else:
            raise ConfigError(f"--privacy: {privacy!r} is not 'message' or 'fusion'")
    flagged = any(row.flagged for row in rows)
    if as_json:
        document: dict[str, Any] = {"flagged": flagged, "checks": [row.to_json() for row in rows]}
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        for row in rows:
            print(f"{'FLAGGED' if row.flagged else 'ok':<8} {row.name}: {row.found}")
            if row.power:
                print(f"{'':<8} {row.power}")
        print("the claim is refuted" if flagged else "nothing refutes the claim (which is no proof of it)")
    return int(ExitCode.PRIVACY if flagged else ExitCode.OK)
