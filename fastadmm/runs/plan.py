"""What a run runs on, and what it will do and need before it starts: memory, what is streamed, and bytes."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fastadmm.engine.free_cores import OWN, ROOT, control_groups
from fastadmm.engine.spilled import resident_bytes
from fastadmm.errors import ConfigError, InputError
from fastadmm.method.scheme import Scheme, Shape
from fastadmm.problem.constraints import get_constraint
from fastadmm.runs.config import party_constraints, traits_of
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.checks import format_bytes
from fastadmm.settings.run import RunConfig
from fastadmm.store.elements import CHUNK_BYTES
from fastadmm.store.party_file import PartyData
from fastadmm.store.streamed import buffer_bytes
from fastadmm.version import __version__

_PACKAGES = ("numpy", "scipy", "numba", "h5py", "scikit-learn", "pandas")


def describe_environment(n_threads: int) -> dict[str, Any]:
    """Versions, machine and threads, as plain values; no host names or paths."""
    model = _line("/proc/cpuinfo", "model name").partition(":")[2].strip()
    return {
        "fastadmm": __version__,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model or platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "threads": n_threads,
    }


def _line(path: str, name: str) -> str:
    """The first line that begins so in a file of the kernel; empty where there is none."""
    with suppress(OSError), open(path, encoding="utf-8") as file:
        return next((line for line in file if line.startswith(name)), "")
    return ""


def _amount(path: str, name: str) -> int | None:
    """An amount in a file of the kernel, in bytes."""
    with suppress(ValueError, IndexError):
        return int(_line(path, name).split()[1]) * 1024
    return None


def peak_memory() -> int | None:
    """Largest resident memory of this process so far, in bytes, where the system tells."""
    return _amount("/proc/self/status", "VmHWM")


def available_memory() -> int | None:
    """Bytes that machine, control groups and ``ulimit -v`` leave to a new allocation; None if unknown."""
    found = (_amount("/proc/meminfo", "MemAvailable"), _group_memory(), _address_space())
    return min((amount for amount in found if amount is not None), default=None)


def _group_memory(root: Path = ROOT, own: Path = OWN) -> int | None:
    """What the process's control group and those that it is in leave."""
    groups = control_groups("memory", root, own)
    known = [left for version, group in groups if (left := _left_in(group, *_FILES[version])) is not None]
    return min(known, default=None)


#: Files of a control group of each version: its limit, what is used of it, and, in ``memory.stat``, what of
#: that are files read before, which make way.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _left_in(group: Path, limit: str, usage: str, cache: str) -> int | None:
    try:
        most, used = ((group / name).read_text(encoding="ascii").strip() for name in (limit, usage))
        if most == "max":
            return None
        told = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        return max(0, int(most) - int(used) + int(told.get(cache, 0)))
    except (OSError, ValueError):
        return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    return max(0, most - (_amount("/proc/self/status", "VmSize") or 0))


#: Python, NumPy, SciPy, h5py, Numba and the compiled kernels: the peak of a run on a few rows, of the
#: largest of several schemes and losses, and a little more. ``bench/memory.py --streamed`` measures it.
BASE_BYTES = 212 * 2**20

#: Share of the free memory that a run without a limit may take.
SHARE = 0.8


# --- the plan -----------------------------------------------------------------------------------------------


#: Of a checkpoint in memory a second time: a chunk, at most twice as large as usual, and with its checksum.
_WRITTEN_BYTES = 4 * CHUNK_BYTES


@dataclass(frozen=True)
class PartyPlan:
    """What one party's block will cost."""

    name: str
    n_features: int
    storage: str
    streamed: bool  # whether the block stays on disk and is read in every pass
    memory_bytes: int  # what the block holds in memory: all of it, or row pointers


@dataclass(frozen=True)
class Plan:
    """Estimated memory of a run, in bytes, and what follows from its limit."""

    scheme: str
    parties: list[PartyPlan]
    data: int  # feature blocks in memory, of the training and the test partition
    limit: int | None  # what the run may take; None where neither the user nor the system says
    history: int  # directions per party, or differences of the acceleration
    buffers: int = 0  # what is read ahead of the computation, and written of a checkpoint at a time
    factorisation: int = 0  # preparing the x-updates
    state: int = 0  # messages, z, u and work vectors
    acceleration: int = 0  # anderson history
    streamed_tests: list[bool] = field(default_factory=list)  # which blocks of the test partition are
    spilled: int = 0  # messages in a scratch file, at most; ``state`` has what of them is in memory at a time

    @property
    def summands(self) -> dict[str, int]:
        """What the total is the sum of: with the interpreter."""
        names = ("data", "buffers", "factorisation", "state", "acceleration")
        return {name: getattr(self, name) for name in names} | {"program": BASE_BYTES}

    @property
    def total(self) -> int:
        """Sum of the parts and the interpreter."""
        return sum(self.summands.values())

    @property
    def limited(self) -> bool:
        """Whether the limit changes how the run works."""
        return self.spilled > 0 or any([*self.streamed_tests, *(p.streamed for p in self.parties)])

    @property
    def parts(self) -> str:
        """The summands, in words."""
        return ", ".join(f"{name} {format_bytes(amount)}" for name, amount in self.summands.items())

    def sentence(self) -> str:
        """One line for the log."""
        limit = f"; limit {format_bytes(self.limit)}" if self.limit is not None else ""
        return f"memory: about {format_bytes(self.total)} ({self.parts}){limit}"

    def lines(self, *, whole: bool = True) -> list[str]:
        """The plan, for people: one line will do where it has no limits to say."""
        lines = [self.sentence()]
        for p in self.parties if whole or self.limited else []:
            place = "streamed" if p.streamed else "in memory"
            lines.append(f"{p.name}: {p.storage}, {p.n_features} features, {place}")
        if self.spilled:
            most = format_bytes(self.spilled)
            lines.append(f"messages: in a scratch file in the run directory, up to {most}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The whole plan, for machines."""
        document = asdict(self)
        streamed = any(document.pop("streamed_tests"))
        return {**document, "test_streamed": streamed, "program": BASE_BYTES, "total": self.total}


def make_plan(
    parties: Sequence[PartyData],
    test: Sequence[PartyData],
    n_samples: int,
    config: RunConfig,
    n_outputs: int = 1,
    limit: int | None = None,
    n_threads: int = 1,
    apart: bool = False,
) -> Plan:
    """Plan a run from the partition's headers; ``apart``: of parties that are elsewhere."""
    shape = _shape(parties, n_samples, config, n_outputs, n_threads)
    scheme, _ = choose_scheme(config, shape.traits, apart)
    history = scheme.history(shape, config)
    if config.history is not None:
        history = min(history, config.history)
    state, acceleration = scheme.state_bytes(shape, history)
    blocks = [*parties, *test]
    whole = Plan(
        scheme=scheme.name,
        parties=[],
        data=sum(_memory_bytes(p) for p in blocks),
        limit=limit,
        history=history,
        factorisation=scheme.factor_bytes(shape, config),
        state=state,
        acceleration=acceleration,
        buffers=min(_WRITTEN_BYTES, state),
    )
    placed, streamed = _placed(whole, blocks, n_threads)
    if limit is not None and placed.total > limit and config.privacy.mode == "none" and not config.path:
        placed, streamed = _placed(_spilled(whole, scheme, shape, config), blocks, n_threads)
    planned = []
    for p, away in zip(parties, streamed):
        held = _pointer_bytes(p) if away else _memory_bytes(p)
        planned.append(PartyPlan(p.name, p.n_features, p.kind, away, held))
    return replace(placed, parties=planned, streamed_tests=streamed[len(parties) :])


def _spilled(plan: Plan, scheme: Scheme, shape: Shape, config: RunConfig) -> Plan:
    """The plan with messages in a scratch file, where the scheme can have them there."""
    spilled, n = scheme.spilled_bytes(shape, config, plan.history), shape.n_samples
    if not spilled:
        return plan
    state = plan.state + resident_bytes(spilled // (8 * n), n, shape.n_threads) - spilled
    return replace(plan, state=state, buffers=min(_WRITTEN_BYTES, state + spilled), spilled=spilled)


def _shape(
    parties: Sequence[PartyData], n_samples: int, config: RunConfig, n_outputs: int, n_threads: int
) -> Shape:
    """What the scheme's needs follow from."""
    sets = party_constraints(config, [p.name for p in parties])
    own = [get_constraint(text) for text in ([sets] if isinstance(sets, str) else sets)]
    ball = any(math.isfinite(one.radius) for one in own)
    known = {"n_parties": len(parties), "n_outputs": n_outputs, "ball": ball}
    traits = traits_of(config, own, vector=n_outputs > 1, **known)
    densities = [1.0 if p.nnz is None else p.nnz / max(1, n_samples * p.n_features) for p in parties]
    return Shape(traits, n_samples, n_outputs, [p.n_features for p in parties], densities, n_threads)


def _placed(plan: Plan, blocks: Sequence[PartyData], n_threads: int) -> tuple[Plan, list[bool]]:
    """The plan, and which blocks it streams: they stay in memory, the largest first, while they fit."""
    if plan.limit is None or plan.total <= plan.limit:
        return plan, [False] * len(blocks)
    pointers = [_pointer_bytes(p) for p in blocks]
    data, buffers = sum(pointers), plan.buffers + max(buffer_bytes(p, n_threads) for p in blocks)
    streamed = [True] * len(blocks)
    more = [_memory_bytes(p) - own for p, own in zip(blocks, pointers)]
    room = plan.limit - replace(plan, data=data, buffers=buffers).total
    for k in sorted(range(len(blocks)), key=lambda k: -more[k] - pointers[k]):
        if more[k] <= room:
            streamed[k], room, data = False, room - more[k], data + more[k]
    return replace(plan, data=data, buffers=buffers), streamed


def check_limit(plan: Plan, given: bool, free: int | None, place: str, workers: int = 1) -> None:
    """Refuse a plan that does not fit, in one line that says what it would need and for what."""
    if plan.limit is None or plan.total <= plan.limit:
        return
    more = "raise the limit" if workers == 1 else "raise the limit or start more workers"
    needed = format_bytes(plan.total, math.ceil)
    if given:
        spilled = " and keeps messages in a scratch file" if plan.spilled else ""
        raise ConfigError(
            f"memory: {format_bytes(plan.limit, math.floor)} is too little: training {place} needs at least "
            f"{needed} even when it streams every block{spilled} ({plan.parts}); {more}"
        )
    if free is not None and plan.total > free:
        said = f"but only {format_bytes(free, math.floor)} is free; use a larger machine or fewer rows"
        raise InputError(f"{place}: training needs about {needed} of memory, {said}")


def _memory_bytes(party: PartyData) -> int:
    if party.nnz is None:
        # Narrower values are held twice while they are widened.
        return (8 + party.dtype.itemsize % 8) * party.n_samples * party.n_features
    return (12 + 2 * (party.dtype.itemsize % 8)) * party.nnz + 8 * party.n_samples


def _pointer_bytes(party: PartyData) -> int:
    """Of a streamed block; those of a dense one are kept if it turns out to be mostly zero."""
    return 8 * party.n_samples
