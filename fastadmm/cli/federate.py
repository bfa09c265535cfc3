"""``fastadmm federate``: training between organisations over NVFlare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app

if TYPE_CHECKING:
    from fastadmm.solver.history import RoundRecord

group = typer.Typer(
    help="Train between organisations, over NVFlare with mutual TLS.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="federate")

_Kit = Annotated[
    Path, typer.Argument(readable=False, help="A startup kit, as `nvflare provision` writes it.")
]


@group.command()
def harden(
    kit: _Kit,
    socket: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Socket between NVFlare's process and the agent (at the server: the coordinator). "
            "Default: /run/fastadmm/SITE.sock.",
        ),
    ] = None,
) -> None:
    """Replace NVFlare's defaults in a kit: rights, classes that jobs may use, file modes."""
    from fastadmm.federation.kit import harden as harden_kit
    from fastadmm.federation.kit import open_kit

    for line in harden_kit(open_kit(kit), socket):
        typer.echo(line)


@group.command()
def check(
    kit: _Kit,
    private: Annotated[
        list[Path] | None,
        typer.Option(
            readable=False,
            metavar="PATH",
            help="What NVFlare's user must not read: data, labels, ledger, agent's directory; repeatable.",
        ),
    ] = None,
) -> None:
    """Check a kit and its machine before a site starts: users, rights, certificates, port, versions."""
    from fastadmm.errors import ConfigError
    from fastadmm.federation.check import check as check_kit
    from fastadmm.federation.kit import open_kit

    found = check_kit(open_kit(kit), private or [])
    for finding in found:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.text}")
    failed = [finding for finding in found if not finding.ok]
    if failed:
        raise ConfigError(f"{kit}: {len(failed)} of {len(found)} checks failed")


@group.command()
def status(kit: _Kit) -> None:
    """Show which sites are connected and which jobs run; KIT is the administrator's."""
    from datetime import datetime

    from fastadmm.federation.admin import session
    from fastadmm.federation.kit import open_kit

    opened = open_kit(kit)
    with session(opened) as server:
        state, jobs = server("check_status", "server"), server("list_jobs")
    for client in state.get("clients", []):
        seen = datetime.fromtimestamp(client["client_last_conn_time"])
        typer.echo(f"site {client['client_name']}: connected, last heard of {seen:%F %T}")
    for job in jobs:
        typer.echo(f"job {job['job_id']}: {job['status']}, submitted {job['submit_time'][:19]}")


@group.command()
def train(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG.toml",
            readable=False,
            help="Settings of 'fastadmm train', and an address per party.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", readable=False, help="Directory of the run; an existing one goes on."),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print rounds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Begin a run, or go on with it, until the model is certified."""
    import sys

    from fastadmm.cli.train import report_result
    from fastadmm.federation.train import federate as go

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def rounds(record: RoundRecord) -> None:
        if not quiet:
            say(f"round {record.round}: objective {record.objective:.6g}, gap {record.gap:.2e}")

    return report_result(go(config, out, say, rounds), out, as_json)


@group.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(readable=False, metavar="DIR", help="Directory to create and keep, with every file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Play it on this machine: a server, three sites, a party killed on the way."""
    import json
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from fastadmm.cli.federate_demo import made, run_federate_demo

    with TemporaryDirectory(prefix="fastadmm-") if keep is None else nullcontext(made(keep)) as directory:
        result = run_federate_demo(Path(directory), (lambda text: None) if as_json else typer.echo)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        _check_same(result)
        return
    typer.echo("")
    for name, path, sees in result["processes"]:
        typer.echo(f"{name:20} holds and sees: {sees}\n{'':20} files: {path}")
    metrics = result["metrics"]
    typer.echo(
        f"\n{result['message']}, over {result['jobs']} NVFlare jobs in {result['seconds']:.0f} s; weights "
        f"{'equal' if result['same'] else 'DIFFER FROM'} those of one process to the last bit\n"
        f"test patients: log loss {metrics['log_loss']:.4f}, accuracy {metrics['accuracy']:.4f}\n"
        "Here all processes run as you; between organisations each has a user of its own, "
        "which 'fastadmm federate check' verifies."
    )
    typer.echo("all processes have ended" + (f"; files: {keep}" if keep else "; all files are removed"))
    _check_same(result)


def _check_same(result: dict[str, Any]) -> None:
    from fastadmm.errors import FastadmmError

    if not result["same"]:
        raise FastadmmError("federate demo: weights differ from those of one process; please report it")
