"""``fastadmm export``, ``import`` and ``serve``: a party's part of a model, or all, for other programs."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import say
from fastadmm.errors import ConfigError


@app.command()
def export(
    model: Path = opt.argument("Run directory or model directory."),
    out: Path = opt.written(default=...),
    party: str | None = opt.PARTY,
    allow_infinite_epsilon: bool = opt.INFINITE_EPSILON,
    force: bool = opt.FORCE,
) -> None:
    """Export the whole model, as OUT ends in .json or .onnx, or one party's part, a .h5."""
    from fastadmm.runs.export import export_model, export_party

    if party is None:
        export_model(model, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"model in {out}")
    else:
        export_party(model, party, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"part of {party} in {out}")


@app.command(name="import")
def import_part(
    file: Path = opt.argument("A party's .h5, from 'fastadmm export --party'."),
    model: Path = opt.argument("Run directory or model directory."),
    force: bool = opt.FORCE,
) -> None:
    """Put a party's exported part back into its model, with the same bytes."""
    from fastadmm.runs.export import import_party

    say(f"part of {import_party(file, model, force=force)} in {model}")


@app.command()
def serve(
    model: Path = opt.argument("Run or model directory, or one party's file of a model."),
    party: str | None = opt.PARTY,
    combine: bool = opt.flag("Only add up contributions, without reading weights.", "--combine"),
    address: str = opt.option("Address to listen on; 0.0.0.0 means all.", default="127.0.0.1"),
    allow_host: list[str] | None = opt.option(
        "Also answer requests sent to this name; may be repeated. (default: names of this machine "
        "for itself, and --address)",
        metavar="NAME",
    ),
    port: int = opt.option("Port; 0 chooses a free one.", default=8000, min=0, max=65535),
    allow_infinite_epsilon: bool = opt.INFINITE_EPSILON,
    max_rows: int = opt.option("Largest number of rows in a request.", default=10_000),
) -> None:
    """Score rows over HTTP: predictions, or one party's contributions, from JSON rows."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("serve: needs FastAPI and uvicorn: pip install 'fastadmm[serve]'") from None
    from fastadmm.runs.service import LOCAL_NAMES, listen, make_app, open_service, run_server

    service = open_service(model, party, combine, max_rows, allow_infinite_epsilon=allow_infinite_epsilon)
    own = [] if address in ("0.0.0.0", "::", "") else [address]
    web = make_app(service, [*LOCAL_NAMES, *own, *(allow_host or ())])
    sock = listen(address, port)
    where = f"[{address}]" if ":" in address else address
    what = ", ".join(service.describe()["parties"])
    line = f"serving {what} at http://{where}:{sock.getsockname()[1]} (API: /openapi.json)"
    run_server(web, sock, lambda: say(line))
