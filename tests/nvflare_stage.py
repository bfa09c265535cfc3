"""A whole federation on one machine's loopback interface: for the demonstration, tests and measurements.

Kits are provisioned as between organisations, with mutual TLS. Every process bears a mark in its
environment, by which it is found and ended, also when its parent died before it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fastadmm.between.kit import INSTALL_HINT, harden, open_kit
from fastadmm.errors import ConfigError, StorageError
from fastadmm.files.modes import make_private

#: Names of the server, which is its host's, and of the administrator who submits jobs.
SERVER, ADMIN = "localhost", "coordinator@example.org"

_MARK = "FASTADMM_STAGE"

#: Seconds in which a process may end by itself.
_GRACE = 3.0

_PROJECT = """\
api_version: 3
name: fastadmm
description: parties on one machine
participants:
  - {{name: {server}, type: server, org: coordinator, fed_learn_port: {port}, admin_port: {port}}}
{sites}
  - {{name: {admin}, type: admin, org: coordinator, role: lead}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config, scheme: tcp}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""

_PROVISION = "import sys; from nvflare.lighter.provision import main; sys.exit(main())"


class Stage:
    """Kits and processes in one directory; leaving the block ends every process."""

    def __init__(self, directory, sites):
        self.directory, self.sites = directory.absolute(), list(sites)
        self.kits = {}
        self.sockets = {name: self.directory / "run" / f"{name}.sock" for name in (SERVER, *sites)}
        self._mark = secrets.token_hex(8)
        self._processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def provision(self):
        """Make keys, certificates and kits, and harden them."""
        make_private(self.directory / "run")
        make_private(self.directory / "logs")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        project = self.directory / "project.yml"
        clients = "\n".join(f"  - {{name: {name}, type: client, org: {_org(name)}}}" for name in self.sites)
        project.write_text(_PROJECT.format(server=SERVER, admin=ADMIN, port=port, sites=clients))
        kits = self.directory / "kits"
        command = [sys.executable, "-P", "-c", _PROVISION, "-p", str(project), "-w", str(kits), "--force"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "No module named 'nvflare" in done.stderr:
            raise ConfigError(f"federation: NVFlare is missing: this {INSTALL_HINT}")
        if done.returncode:
            raise StorageError(f"{project}: NVFlare cannot provision: {(done.stdout + done.stderr)[-300:]}")
        for name in (SERVER, ADMIN, *self.sites):
            self.kits[name] = open_kit(kits / "fastadmm" / "prod_00" / name)
            harden(self.kits[name], self.sockets.get(name))

    def start(self, name):
        """Start NVFlare's process of the server or of a site, as its kit's own script does."""
        kit = self.kits[name]
        module = f"nvflare.private.fed.app.{kit.kind}.{kit.kind}_train"
        who = ["org=coordinator"] if name == SERVER else [f"uid={name}", f"org={_org(name)}"]
        program = [sys.executable, "-P", "-u", "-m", module]
        options = ["-m", str(kit.path), "-s", f"fed_{kit.kind}.json", "--set", "secure_train=true", *who]
        self.spawn(f"nvflare-{name}", [*program, *options, "config_folder=config"], kit.path)

    def spawn(self, name, command, cwd=None, env=None):
        """Start a process that ends with the stage; what it prints goes to ``logs/NAME.txt``."""
        more = {_MARK: self._mark, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with open(self.log(name), "ab") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **more, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    def kill(self, name, number=signal.SIGKILL):
        """Send a signal to a process; SIGKILL by default."""
        process = self._processes[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()

    def lives(self, name):
        return self._processes[name].poll() is None

    def log(self, name):
        """What a process that was spawned has printed."""
        return self.directory / "logs" / f"{name}.txt"

    def jobs(self, name):
        """Processes of the job that runs at the server or a site."""
        own = {process.pid for process in self._processes.values()}
        kit, found = os.fsencode(self.kits[name].path), []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if pid not in own and kit in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def processes(self):
        """All processes of this stage that live."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return sorted(set(found) - {os.getpid()})

    def close(self):
        until = time.monotonic() + _GRACE
        number = signal.SIGTERM
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            for process in self._processes.values():
                process.poll()
            if time.monotonic() > until:
                number = signal.SIGKILL
            time.sleep(0.1)
        for process in self._processes.values():
            process.wait()


def _org(name):
    """An organisation's name, in which NVFlare allows no hyphen."""
    return name.replace("-", "_")
