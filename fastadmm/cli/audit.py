"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, given_options, option, with_options
from fastadmm.cli.terminal import print_json, say
from fastadmm.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy


@dataclass(frozen=True)
class _Claim:
    """The claim to audit, without a run."""

    epsilon: float | None = option("Without a run: epsilon to audit.")
    privacy: str | None = option("Mode to audit, message or fusion. (default: message)")
    delta: float | None = option("Failure probability of the claim. (default: 1e-5)")
    rounds: int | None = option("Number of messages of each party. (default: 1)")
    mu: float | None = option("Ratio of regularisation to step (docs/privacy.md). (default: 100)")
    ball: float | None = option("Bound on each party's weights. (default: 8)")
    target_clip: float | None = option("Bound on targets. (default: the ball)")
    message_clip: float | None = option("Bound on message entries. (default: 2)")
    adjacency: str | None = option("replace_one or zero_out. (default: replace_one)")

    def settings(self) -> tuple[FusionPrivacy | MessagePrivacy, float]:
        """The claim as settings of a private run, and mu; what its mode has not is refused."""
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
    run: Path | None = argument("Private run whose settings and noise to audit.", default=None),
    *,
    claim: _Claim,
    trials: int | None = option("How many numbers of noise to test. (default: 200000)", min=1000),
    as_json: bool = JSON,
) -> int:
    """Test a privacy claim empirically; exit code 9 if it is refuted."""
    from fastadmm.between.audited_hosts import audit_hosts
    from fastadmm.runs import audit as audits

    live = sys.stderr.isatty() and not as_json

    def note(text: str) -> None:
        if live:
            say(f"audit: {text}", error=True)

    own = given_options(claim, *(("epsilon", "delta") if run is None else ()))
    if own and run is not None:
        raise ConfigError(f"audit: a run says that itself; leave out {', '.join(own)}")
    if run is not None:
        rows = audits.audit_run(run, trials, note)
        claimed, mu = audits.claim_of(run)
    else:
        claimed, mu = claim.settings()
        rows = audits.audit_settings(claimed, mu, trials, note=note)
    rows += audits.or_its_end("answers by files", lambda: audit_hosts(claimed, mu, note))
    flagged = any(row.flagged for row in rows)
    if as_json:
        document: dict[str, Any] = {"flagged": flagged, "checks": [row.to_json() for row in rows]}
        print_json(document, allow_nan=False)
    else:
        for row in rows:
            say(f"{'FLAGGED' if row.flagged else 'ok':<8} {row.name}: {row.found}", hang=9)
        say("the claim is refuted" if flagged else "nothing refutes the claim (which is no proof of it)")
    return int(ExitCode.PRIVACY if flagged else ExitCode.OK)
