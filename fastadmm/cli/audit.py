"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from pathlib import Path

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import say, tell
from fastadmm.errors import ExitCode


@app.command()
def audit(
    run: Path = opt.argument("Private run whose settings and noise to audit."),
    *,
    trials: int | None = opt.option("How many numbers of noise to test. (default: 200000)", min=1000),
    as_json: bool = opt.JSON,
) -> int:
    """Test a privacy claim empirically; exit code 9 if it is refuted."""
    from fastadmm.between.audited_hosts import audit_hosts
    from fastadmm.runs import audit as audits

    live = sys.stderr.isatty() and not as_json

    def note(text: str) -> None:
        if live:
            say(f"audit: {text}", error=True)

    rows, claimed, mu = audits.audit_run(run, trials, note)
    rows += audits.or_its_end("answers by files", lambda: audit_hosts(claimed, mu, note))
    flagged = any(row.flagged for row in rows)
    lines = [f"{'FLAGGED' if row.flagged else 'ok':<8} {row.name}: {row.found}" for row in rows]
    lines.append("the claim is refuted" if flagged else "nothing refutes the claim (which is no proof of it)")
    document = {"flagged": flagged, "checks": [row.to_json() for row in rows]}
    tell(as_json, document, lambda: lines, allow_nan=False)
    return int(ExitCode.PRIVACY if flagged else ExitCode.OK)
