"""``fastadmm audit``: try to refute a privacy claim, from outside."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import print_json, say
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.settings.setting import declare

if TYPE_CHECKING:
    from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy


@dataclass(frozen=True)
class _Claim:
    """The claim to audit, without a run."""

    epsilon: float | None = opt.EPSILON
    privacy: str | None = opt.option("Differential privacy: none, fusion or message. (default: message)")
    delta: float | None = opt.DELTA
    rounds: int | None = declare("method", "messages of each party")
    mu: float | None = declare("budget", "ratio of regularisation to step")
    ball: float | None = declare("budget", "bound on each party's weights")
    target_clip: float | None = declare("budget", "bound on targets")
    message_clip: float | None = declare("budget", "bound on message entries")
    adjacency: str | None = declare("budget", "replace_one or zero_out")
    paper: int | None = declare("data", "columns, to audit the paper's calibration instead", sign="positive")

    def settings(self) -> tuple[FusionPrivacy | MessagePrivacy, float]:
        """The claim as settings of a private run, and mu; what its mode has not is refused."""
        from fastadmm.settings.privacy import FusionPrivacy, MessagePrivacy, Privacy

        if self.epsilon is None:
            raise ConfigError("audit: give a run, or --epsilon and the settings to audit")
        given = {key: value for key, value in asdict(self).items() if value is not None}
        mode, mu = given.pop("privacy", "message"), given.pop("mu", None)
        if mode != "message" and mu is not None:
            raise ConfigError("mu: mode 'message' has one; leave it out")
        settings = Privacy(mode=mode, **given)
        assert isinstance(settings, (FusionPrivacy, MessagePrivacy))  # mode 'none' has no epsilon
        return settings, 100.0 if mu is None else mu


@app.command()
@opt.with_options()
def audit(
    run: Path | None = opt.argument("Private run whose settings and noise to audit.", default=None),
    *,
    claim: _Claim,
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

    paper = claim.paper
    own = opt.given_options(claim, *(("epsilon", "delta", "paper") if run is None else ()))
    if own and (run is not None or paper is not None):
        what = "the paper's calibration" if run is None else "a run"
        raise ConfigError(f"audit: {what} says that itself; leave out {', '.join(own)}")
    if paper is not None:
        epsilon, delta = (1.0 if claim.epsilon is None else claim.epsilon), claim.delta or 1e-5
        rows = audits.audit_paper(paper, epsilon, delta)
    elif run is not None:
        rows = audits.audit_run(run, trials, note)
        claimed, mu = audits.claim_of(run)
    else:
        claimed, mu = claim.settings()
        rows = audits.audit_settings(claimed, mu, trials, note=note)
    if paper is None:
        rows += audits.or_its_end("answers by files", lambda: audit_hosts(claimed, mu, note))
    flagged = any(row.flagged for row in rows)
    if as_json:
        document: dict[str, Any] = {"flagged": flagged, "checks": [row.to_json() for row in rows]}
        print_json(document, allow_nan=False)
    else:
        for row in rows:
            say(f"{'FLAGGED' if row.flagged else 'ok':<8} {row.name}: {row.found}")
            if row.power:
                say(f"{'':<8} {row.power}")
        say("the claim is refuted" if flagged else "nothing refutes the claim (which is no proof of it)")
    return int(ExitCode.PRIVACY if flagged else ExitCode.OK)
