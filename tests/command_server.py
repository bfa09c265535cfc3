"""Runs ``fastadmm`` commands in forks of one process that has imported everything already.

Examples of the documentation start dozens of commands. Each import and each loading of compiled
kernels costs a second; a fork has both. It is a process of its own nevertheless, with its own
directory, environment, standard streams, limit on the size of files, and exit code; it waits for no disk.
Tests that send signals or look at the start itself use processes of their own.
"""

import fcntl
import gc
import io
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

#: Name of the environment's variable that holds a program for the fork to run before the command.
PRELUDE = "FASTADMM_TEST_PRELUDE"

_CLIENT = """#!{python} -IS
import json, os, resource, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), limit]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(request)
    answer = server.recv(1)
sys.exit(answer[0] if answer else 1)
"""


@contextmanager
def command_server(program=__file__):
    """Yield a directory for PATH whose ``fastadmm`` asks the server."""
    # A socket's path has at most some hundred characters: not below pytest's directories.
    place = Path(tempfile.mkdtemp(prefix="fastadmm-"))
    address = place / "socket"
    command = [sys.executable, "-P", program, str(address)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, start_new_session=True)
    # The server ends when its input closes: no fork of this process may hold it.
    os.register_at_fork(after_in_child=server.stdin.close)
    try:
        assert server.stdout.readline() == b"ready\n"
        client = place / "fastadmm"
        client.write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
        client.chmod(0o755)
        yield place
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # its forks with it: some wait for what never comes
        server.communicate()
        shutil.rmtree(place, ignore_errors=True)


def _load():
    """Import what commands import and load the kernels that nearly every run uses: by some commands."""
    import matplotlib.figure  # noqa: F401
    import numpy as np
    import sklearn.linear_model
    import sklearn.metrics  # noqa: F401
    from fastadmm.cli.app import _command

    os.fsync = os.fstat
    _command()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        rng = np.random.default_rng(0)
        table, data, run = (f"{folder}/{name}" for name in ("table.csv", "data.parts", "run"))
        rows = np.column_stack([rng.normal(size=(40, 5)).round(3), rng.integers(0, 2, 40)])
        np.savetxt(table, rows, delimiter=",", header="a,b,c,d,e,y", comments="")
        # One thread: a fork has none but the one that forked.
        train = ("train", data, "--rounds", "20", "--threads", "1", "--quiet", "--force", "--out", run)
        for command in (
            ("convert", table, "--label", "y", "--columns", "3,2", "--out", data),
            (*train, "--scheme", "sharing"),
            train,
            ("predict", run, data),
            ("inspect", run),
        ):
            assert _exit_code(list(command), "") in (0, 7), command
    gc.freeze()


def _serve(address):
    def end(*_):
        # What is its own, by name: never a directory that was only named on its command line.
        place = Path(address).parent
        shutil.rmtree(place / "demo", ignore_errors=True)
        with suppress(OSError):
            for name in ("socket", "fastadmm"):
                (place / name).unlink(missing_ok=True)
            place.rmdir()
        os.killpg(0, signal.SIGKILL)

    # Its input closes with the process that started it, however that one ends, and while this one loads.
    signal.signal(signal.SIGIO, end)
    _signalled(0)
    _load()
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while select.select([listening, 0], [], [])[0] == [listening]:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _command(connection, Path(address).with_name("demo"))
            connection.close()
    end()


def _signalled(file):
    """Have SIGIO sent to this process when the other side of a pipe or socket closes."""
    fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_ASYNC)


def _reap(number, frame):
    """Wait for the forks that have ended, so that their time counts as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _command(connection, demo):
    """Run one command in this fork, and end it; a demo is made once, and a copy of it each later time."""
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    size, request = int.from_bytes(head, "little"), b""
    while len(request) < size:
        request += connection.recv(size - len(request)) or sys.exit("whoever asked has gone")
    # A command ends with the process that waits for it: SIGIO ends a process.
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    _signalled(connection.fileno())
    arguments, directory, environment, limit = json.loads(request)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(directory)
    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(limit))
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    made = Path(arguments[2]) if len(arguments) == 3 and arguments[:2] == ["demo", "--out"] else None
    if made is not None and demo.exists() and not made.exists():
        shutil.copytree(demo, made)
        code = 0
    else:
        code = _exit_code(arguments, environment.get(PRELUDE, ""))
        if made is not None and code == 0:
            shutil.copytree(made, demo)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        connection.sendall(bytes([code & 0xFF]))
        os._exit(code)


def _exit_code(arguments, prelude):
    import traceback

    from fastadmm.cli.app import main

    try:
        exec(prelude, {})
        main(arguments)
    except SystemExit as stop:
        code = stop.code
        return code if isinstance(code, int) else int(code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
