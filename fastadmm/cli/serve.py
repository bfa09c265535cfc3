"""``fastadmm serve``: a model, or one party's part of it, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import InfiniteEpsilon
from fastadmm.cli.terminal import say


@app.command()
def serve(
    model: Annotated[
        Path, typer.Argument(readable=False, help="Run or model directory, or one party's file of a model.")
    ],
    party: Annotated[
        str | None, typer.Option(help="With a directory: serve only this party's contributions.")
    ] = None,
    combine: Annotated[
        bool, typer.Option("--combine", help="Only add up contributions, without reading weights.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 means all.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also answer requests sent to this name; may be repeated. (default: names of this machine "
            "for itself, and --host)",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535)] = 8000,
    allow_infinite_epsilon: InfiniteEpsilon = False,
    max_rows: Annotated[int, typer.Option(help="Largest number of rows in a request.")] = 10_000,
) -> None:
    """Score rows over HTTP: predictions, or one party's contributions, from JSON rows."""
    from fastadmm.errors import ConfigError
    from fastadmm.runs.service import open_service
    from fastadmm.runs.service_app import listen, make_app, run_server
    from fastadmm.runs.service_door import LOCAL_NAMES

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("serve: needs FastAPI and uvicorn: pip install 'fastadmm[serve]'") from None
    service = open_service(model, party, combine, max_rows, allow_infinite_epsilon=allow_infinite_epsilon)
    own = [] if host in ("0.0.0.0", "::", "") else [host]
    web = make_app(service, [*LOCAL_NAMES, *own, *(allow_host or ())])
    sock = listen(host, port)
    where = f"[{host}]" if ":" in host else host
    what = ", ".join(service.describe()["parties"])
    line = f"serving {what} at http://{where}:{sock.getsockname()[1]} (API: /docs, /openapi.json)"
    run_server(web, sock, lambda: say(line))
