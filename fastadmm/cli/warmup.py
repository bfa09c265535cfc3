"""``fastadmm warmup``: compile the kernels now, not in the first run."""

from __future__ import annotations

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command()
def warmup() -> None:
    """Compile the kernels that 'train' needs by default, so that the first run starts sooner."""
    from fastadmm.cli.warmup_run import warm_up

    def tell(name: str, seconds: float) -> None:
        say(f"{name:36} {seconds:6.2f} s")

    result = warm_up(tell)
    seconds, n = sum(k["seconds"] for k in result["compiled"]), len(result["compiled"])
    place = (
        f"kept in {result['directory']}" if result["directory"] else "not kept: no place can be written to"
    )
    say(f"{n} kernels compiled in {seconds:.1f} s, {place}" if n else f"nothing to compile; {place}")
