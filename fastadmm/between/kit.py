"""A startup kit of NVFlare: what we change in it before a site starts, and whether the site is safe then."""

import os
import pwd
import socket as sockets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from fastadmm.between import nvflare_app as app
from fastadmm.errors import ConfigError, FastadmmError, InputError, StorageError
from fastadmm.files.atomic import write_json
from fastadmm.files.reading import read_json
from fastadmm.files.seal import damaged

#: Classes that a job may name.
ALLOWED = (
    *(f"{app.__name__}.{one.__name__}" for one in (app.CoordinatorRelay, app.PartyRelay)),
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)

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

#: What makes a site's settings safe: of each file, these keys.
_SAFE: dict[str, dict[str, Any]] = {
    "authorization.json": {"permissions": RIGHTS},
    "resources.json": {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(ALLOWED),
        "allow_log_streaming": False,
    },
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
    for kind in ("server", "client", "admin"):
        file = path / "startup" / f"fed_{kind}.json"
        if file.exists():
            content = read_json(file)
            with damaged(file, "provision the kits again", "not as NVFlare 2.9 writes it"):
                return _described(path, kind, content)
    raise InputError(
        f"{path}: no NVFlare kit, which has startup/fed_server.json, fed_client.json or fed_admin.json"
    )


def harden(kit: Kit, socket: Path | None = None) -> list[str]:
    """Write a site's own settings over NVFlare's defaults. Doing it again changes nothing."""
    done = []
    try:
        if kit.kind != "admin":
            safe = {"format_version": "1.0", **_SAFE["authorization.json"]}
            write_json(kit.local / "authorization.json", safe)
            write_json(kit.local / "resources.json", _resources(kit))
            done += [
                "authorization.json: nobody brings code, runs shell commands, or stops this site",
                f"resources.json: a job may name {len(ALLOWED)} classes and no others; logs stay here",
            ]
            if socket is not None or not (kit.local / app.SETTINGS).exists():
                socket = socket or DEFAULT_SOCKETS / f"{kit.name}.sock"
                app.write_socket(kit.local, socket.absolute())
                done.append(f"{app.SETTINGS}: {socket.absolute()}")
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
    resources |= _SAFE["resources.json"]
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


def fill_job(job: Any, sites: Sequence[str]) -> None:
    """Name in a job of NVFlare what every site has installed."""
    from nvflare.collab.runtime.controller import CollabController
    from nvflare.collab.runtime.executor import CollabExecutor

    job.set_app_packages(["fastadmm"])
    job.job.min_clients, job.job.mandatory_clients = len(sites), list(sites)
    # How often sites ask for what is to be done, in seconds; twice before the job begins.
    job.to_server({"server": {"task_request_interval": 0.5}})
    job.to_server(app.CoordinatorRelay(), id="relay")
    job.to_server(CollabController(server_obj_id="relay"), id="controller")
    for site in sites:
        job.to(app.PartyRelay(), site, id="relay")
        job.to(CollabExecutor(client_obj_id="relay"), site, tasks=["*"])


def write_job(directory: Path, sites: Sequence[str]) -> Path:
    """Write a job's folder."""
    from nvflare.job_config.api import FedJob

    job = FedJob("fastadmm")
    fill_job(job, sites)
    job.export_job(str(directory))
    return directory / "fastadmm"


def _described(path: Path, kind: str, content: Any) -> Kit:
    """A kit, as its own file says."""
    if kind == "admin":
        own, files = content["admin"], ("client_cert", "client_key", "ca_cert")
        name, host, port = own["username"], own["host"], own["port"]
    else:
        server, files = content["servers"][0], ("ssl_cert", "ssl_private_key", "ssl_root_cert")
        host, _, port = server["service"]["target"].rpartition(":")
        own = server if kind == "server" else content["client"]
        name = host if kind == "server" else own["fqsn"]
    certificate, key, root = (path / "startup" / own[file] for file in files)
    security = own.get("connection_security", "mtls")
    return Kit(path, kind, name, host, int(port), security, certificate, key, root)


#: Versions of NVFlare whose security settings were examined.
NVFLARE = "2.9."


class Finding(NamedTuple):
    """What one check found."""

    ok: bool
    text: str  # one line, which begins with the file or the site


def check(kit: Kit, private: Sequence[Path] = ()) -> list[Finding]:
    """Check a kit and the machine that it lies on."""
    steps: list[Callable[[Kit], Iterator[Finding]]] = [_version, _secured, _modes]
    if kit.kind != "admin":
        steps += [_settings, _socket]
    found: list[Finding] = []
    for step in steps:
        try:
            found.extend(step(kit))
        except FastadmmError as error:
            found.append(Finding(False, str(error)))
    return found if kit.kind == "admin" else [*found, *_private(kit, private)]


def _found(ok: bool, place: object, good: str, bad: str) -> Finding:
    return Finding(ok, f"{place}: {good if ok else bad}")


def _version(kit: Kit) -> Iterator[Finding]:
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}") from None
    good = found.startswith(NVFLARE)
    yield Finding(good, f"nvflare {found} is installed" + ("" if good else f"; {NVFLARE}x is needed"))


def _secured(kit: Kit) -> Iterator[Finding]:
    file, good = kit.path / "startup" / f"fed_{kit.kind}.json", f"connection_security is {kit.security}"
    yield _found(kit.security == "mtls", file, good, f"{good}; must be mtls: provision the kits again")


def _modes(kit: Kit) -> Iterator[Finding]:
    for path in (kit.path, kit.key, kit.local):
        try:
            wrong = path.stat().st_mode & 0o077
            text = f"others may read it; run: fastadmm federate harden {kit.path}"
        except OSError as error:
            wrong, text = True, str(error.strerror)
        if wrong:
            yield Finding(False, f"{path}: {text}")
            return
    yield Finding(True, f"{kit.path}: its owner alone reads it")


def _settings(kit: Kit) -> Iterator[Finding]:
    for name, wanted in _SAFE.items():
        file = kit.effective(name)
        found = read_json(file)
        wrong = [key for key in wanted if found.get(key) != wanted[key]]
        key = wrong[0] if wrong else ""
        bad = f"key {key!r} lets jobs do more; run: fastadmm federate harden {kit.path}"
        yield _found(not wrong, file, "nobody brings code or reads files", bad)


def _socket(kit: Kit) -> Iterator[Finding]:
    path, simulated = app.read_socket(kit.local), kit.local / app.SIMULATED
    if simulated.exists():
        yield Finding(False, f"{simulated}: of a simulation, whose sites' processes have features; remove it")
    if kit.kind == "server":
        yield _found(path.parent.is_dir(), path.parent, "is there", "no such directory")
        return
    with sockets.socket(sockets.AF_UNIX) as probe, _as_user(kit.path.stat().st_uid):
        try:
            probe.connect(str(path))
            yield Finding(True, f"{path}: an agent answers")
        except OSError as error:
            text = f"{path}: no agent answers: {error.strerror}; start it with: fastadmm agent run"
            yield Finding(False, text)


def _private(kit: Kit, private: Sequence[Path]) -> Iterator[Finding]:
    owner = kit.path.stat().st_uid
    user = _user(owner)
    if owner == 0:
        text = "belongs to root, who reads everything; give NVFlare a user of its own"
        yield Finding(False, f"{kit.path}: {text}")
        return
    if not private:
        yield Finding(False, f"{kit.path}: nothing was named that {user!r} must not read; use --private PATH")
    for path in private:
        if not path.exists() and os.geteuid() != owner:
            yield Finding(False, f"{path}: no such file; nothing was checked")
            continue
        inside = [path, *(path.rglob("*") if path.is_dir() else ())]
        with _as_user(owner):
            seen = next((file for file in inside if os.access(file, os.R_OK, effective_ids=True)), None)
        able = f"NVFlare's user {user!r} can read it"
        yield _found(seen is None, seen or path, f"{user!r} cannot read it", able)


@contextmanager
def _as_user(owner: int) -> Iterator[None]:
    """See files as NVFlare's user does."""
    if os.geteuid() == owner:
        yield
        return
    if os.geteuid() != 0:
        raise ConfigError(f"federate check: run it as {_user(owner)!r}, to whom the kit belongs, or as root")
    entry, before = pwd.getpwuid(owner), os.getgroups()
    os.setgroups(os.getgrouplist(entry.pw_name, entry.pw_gid))
    os.setegid(entry.pw_gid)
    os.seteuid(owner)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def _user(owner: int) -> str:
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)
