"""The NVFlare job of a run: which sites take part, and the names of components that they have already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ALLOWED", "write_job"]

_SERVER, _CLIENT = (f"fastadmm.between.nvflare_app.{name}" for name in ("CoordinatorRelay", "PartyRelay"))
_CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
_EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"

#: Classes that a job may name.
ALLOWED = (_SERVER, _CLIENT, _CONTROLLER, _EXECUTOR)


def write_job(directory: Path, sites: Sequence[str]) -> Path:
    """Write a job's folder."""
    job = directory / "fastadmm"
    config = job / "app" / "config"
    config.mkdir(parents=True)
    relay = {"id": "relay", "args": {}}
    files = {
        job / "meta.json": {
            "name": "fastadmm",
            "resource_spec": {},
            "min_clients": len(sites),
            "mandatory_clients": list(sites),
            "deploy_map": {"app": ["server", *sites]},
        },
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "controller", "path": _CONTROLLER, "args": {"server_obj_id": "relay"}}],
            "components": [relay | {"path": _SERVER}],
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            "executors": [
                {"tasks": ["*"], "executor": {"path": _EXECUTOR, "args": {"client_obj_id": "relay"}}}
            ],
            "components": [relay | {"path": _CLIENT}],
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return job
