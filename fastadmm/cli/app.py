"""The ``fastadmm`` console script: assembles the commands, maps errors to exit codes.

Commands import what they need inside their bodies, so that ``--help`` stays fast.
"""

from __future__ import annotations

import sys

import typer

from fastadmm.errors import ExitCode, FastadmmError

app = typer.Typer(
    name="fastadmm",
    help="Train one joint linear model over vertically split features, certified by a duality gap.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _register() -> None:
    # Importing a command's module registers it; the modules import nothing heavy at the top.
    from importlib import import_module

    from importlib.util import find_spec

    for name in COMMANDS:
        if find_spec(f"fastadmm.cli.{name}") is None:
            continue
        import_module(f"fastadmm.cli.{name}")


#: Order of the commands in ``--help``.
COMMANDS: tuple[str, ...] = (
    "demo",
    "convert",
    "inspect",
    "train",
    "resume",
    "predict",
    "evaluate",
    "report",
)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; a :class:`FastadmmError` becomes one line on stderr and its exit code."""
    _register()
    try:
        code = app(args=argv, standalone_mode=False)
    except FastadmmError as error:
        print(f"fastadmm: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print("fastadmm: interrupted", file=sys.stderr)
        sys.exit(int(ExitCode.INTERRUPTED))
    sys.exit(int(code) if isinstance(code, int) else 0)
