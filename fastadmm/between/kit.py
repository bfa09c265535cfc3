"""A startup kit of NVFlare: what kind it is, and what we change in it before a site starts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.between.nvflare_app import SETTINGS, write_socket
from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import write_json
from fastadmm.files.reading import read_json

_SERVER, _CLIENT = (f"fastadmm.between.nvflare_app.{name}" for name in ("CoordinatorRelay", "PartyRelay"))
_CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
_EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"

#: Classes that a job may name.
ALLOWED = (_SERVER, _CLIENT, _CONTROLLER, _EXECUTOR)

INSTALL_HINT = 'needs the packages of an extra; install it with: pip install "fastadmm[nvflare]"'

#: Where sockets lie unless the operator names another place.
DEFAULT_SOCKETS = Path("/run/fastadmm")

#: Rights of every role; what is not named is denied. Nobody may bring code, and nobody but the machine's own
#: operator may stop a site or look into its files.
_DENIED = dict.fromkeys(
    ("byoc", "clone_job", "download_job", "operate", "server-predeployed-flwr", "shell_commands"), "none"
)
RIGHTS = {
    "project_admin": {"submit_job": "any", "manage_job": "any", "view": "any"} | _DENIED,
    "lead": {"submit_job": "any", "manage_job": "n:submitter", "view": "any"} | _DENIED,
    "org_admin": {"view": "any"} | _DENIED,
    "member": {"view": "any"} | _DENIED,
}


@dataclass(frozen=True)
class Kit:
    """A startup kit."""

    path: Path
    kind: str  # ``server``, ``client`` or ``admin``
    name: str  # of the site, or of the user
    host: str  # of the server
    port: int
    security: str  # ``mtls``, ``tls`` or ``clear``
    certificate: Path  # PEM files
    key: Path  # PEM files
    root: Path  # PEM files

    @property
    def local(self) -> Path:
        """Directory of the site's own settings."""
        return self.path / "local"

    def effective(self, name: str) -> Path:
        """The file of this name that NVFlare reads: the site's own, else the default."""
        own = self.local / name
        return own if own.exists() else self.local / f"{name}.default"


def open_kit(path: str | Path) -> Kit:
    """Read a kit."""
    path = Path(path).absolute()
    for kind, reader in (("server", _server), ("client", _client), ("admin", _admin)):
        file = path / "startup" / f"fed_{kind}.json"
        if file.exists():
            try:
                return Kit(path, kind, **reader(read_json(file), path / "startup"))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                if isinstance(error, FormatError):
                    raise
                raise FormatError(f"{file}: not as NVFlare 2.9 writes it: {error!r}") from None
    raise InputError(
        f"{path}: no NVFlare kit, which has startup/fed_server.json, fed_client.json or fed_admin.json"
    )


def harden(kit: Kit, socket: Path | None = None) -> list[str]:
    """Write a site's own settings over NVFlare's defaults. Doing it again changes nothing."""
    done = []
    try:
        if kit.kind != "admin":
            write_json(kit.local / "authorization.json", {"format_version": "1.0", "permissions": RIGHTS})
            done.append("authorization.json: nobody brings code, runs shell commands, or stops this site")
            write_json(kit.local / "resources.json", _resources(kit))
            done.append(
                f"resources.json: a job may name {len(ALLOWED)} classes and no others; logs stay here"
            )
            if socket is not None or not (kit.local / SETTINGS).exists():
                socket = socket or DEFAULT_SOCKETS / f"{kit.name}.sock"
                write_socket(kit.local, socket.absolute())
                done.append(f"{SETTINGS}: {socket.absolute()}")
        owner = kit.path.stat()
        folders = [kit.path / "startup", kit.local]
        for path in (kit.path, *folders, *(file for folder in folders for file in folder.iterdir())):
            # Nobody but NVFlare's user: a key lets everyone who reads it pose as this site.
            path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
            if os.geteuid() == 0:
                os.chown(path, owner.st_uid, owner.st_gid)
        done.append("modes: NVFlare's user alone reads the kit")
    except OSError as error:
        raise StorageError(f"{error.filename or kit.path}: {error.strerror}") from None
    return done


def _resources(kit: Kit) -> dict[str, Any]:
    resources: dict[str, Any] = read_json(kit.local / "resources.json.default")
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(ALLOWED),
        "allow_log_streaming": False,
    }
    components = resources.get("components", [])
    resources["components"] = [part for part in components if "log_" not in part["id"]]
    if kit.kind == "server":
        # By default all servers of a machine share a directory that everybody may write.
        storage = kit.path / "jobs"
        for part in resources["components"]:
            if part["id"] == "job_manager":
                part["args"]["uri_root"] = str(storage)
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.path / "snapshots")
    return resources


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


def _server(content: Any, startup: Path) -> dict[str, Any]:
    server = content["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    return {"name": host, "host": host, "port": int(port)} | _security(server, startup, "ssl")


def _client(content: Any, startup: Path) -> dict[str, Any]:
    host, _, port = content["servers"][0]["service"]["target"].rpartition(":")
    client = content["client"]
    return {"name": client["fqsn"], "host": host, "port": int(port)} | _security(client, startup, "ssl")


def _admin(content: Any, startup: Path) -> dict[str, Any]:
    admin = content["admin"]
    names = {"ssl_cert": admin["client_cert"], "ssl_private_key": admin["client_key"]}
    admin = admin | names | {"ssl_root_cert": admin["ca_cert"]}
    return {"name": admin["username"], "host": admin["host"], "port": int(admin["port"])} | _security(
        admin, startup, "ssl"
    )


def _security(content: Any, startup: Path, prefix: str) -> dict[str, Any]:
    files = {"certificate": "cert", "key": "private_key", "root": "root_cert"}
    found: dict[str, Any] = {name: startup / content[f"{prefix}_{key}"] for name, key in files.items()}
    return found | {"security": content.get("connection_security", "mtls")}
