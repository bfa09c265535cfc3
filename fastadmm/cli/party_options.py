"""Options that a party has by files and over a network alike."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path, typer.Option(metavar="PARTY.h5", readable=False, help="The party's features; they stay here.")
]

Ledger = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        readable=False,
        help="Your privacy ledger; a private run is charged to it before anything leaves.",
    ),
]

Test = Annotated[
    Path | None,
    typer.Option(
        metavar="PARTY.h5", readable=False, help="Features of test rows; the party answers with their scores."
    ),
]

Validation = Annotated[
    Path | None,
    typer.Option(
        metavar="PARTY.h5", readable=False, help="Features of the rows that early stopping watches."
    ),
]

Threads = Annotated[int | None, typer.Option(min=1, help="Threads; answers do not depend on it.")]
