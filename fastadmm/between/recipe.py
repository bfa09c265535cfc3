"""A recipe of NVFlare: training between organisations as one of its jobs.

The job names the relays that every site has installed; neither code nor arguments travel with it. The
coordinator is in the process that executes the recipe. In the simulator each site's process has an agent; in
production the owners' own agents answer.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastadmm.between.consent import agree
from fastadmm.between.coordinator import RUN
from fastadmm.between.kit import ALLOWED, INSTALL_HINT, fill_job
from fastadmm.between.nvflare_app import END, HELLO, SIMULATED, write_socket
from fastadmm.between.socket import Lost, Say, Socket, again, pauses
from fastadmm.between.train import Setup, begun, persistent, setup_of, train_run
from fastadmm.errors import ConfigError, StorageError, WaitingError
from fastadmm.files.atomic import storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.runs.config import read_config
from fastadmm.store.party_file import open_party

try:
    from nvflare.recipe.spec import Recipe
except ImportError:  # which is said where a recipe is made
    Recipe = object

__all__ = ["VerticalGLMRecipe"]

#: What a site's own configuration may have: options of ``agent run``.
_KEYS = ("data", "ledger", "test", "threads", "validation")

#: Seconds between two looks at a job that begins, or at approvals, and until a job has begun.
_LOOK, _PAUSE, _BEGIN = 0.1, 5.0, 300.0


class VerticalGLMRecipe(Recipe):
    """Train a generalised linear model of all sites' columns, of which each site keeps its own.

    Its ``execute`` takes an environment of NVFlare. In the simulator every site names its data and
    approves what is asked: ``set_per_site_config(recipe, {"site-1": {"data": "bank.h5"}, ...})``. In
    production agents run at the sites (``fastadmm agent run``), and ``config`` has the table ``federation``
    of ``fastadmm federate train``.

    Parameters
    ----------
    config : str, pathlib.Path or dict
        Settings of ``fastadmm train``, as a TOML file or a dictionary; ``data`` is the label file.
    name : str
        Name of the job.
    min_clients : int, optional
        Number of sites. All take part in every round, so any other number is refused.
    out : str or pathlib.Path, optional
        Directory of the run, which is continued if it is there; by default ``NAME`` here. In the simulator it
        is ``server/run`` in the workspace, new each time.
    say : callable, optional
        Is given each line about the course of the run; by default it is printed.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any],
        *,
        name: str = "vertical_glm",
        min_clients: int | None = None,
        out: str | Path | None = None,
        say: Say = print,
    ) -> None:
        if Recipe is object:
            raise ConfigError(f"recipe: NVFlare is missing: this {INSTALL_HINT}")
        from nvflare.job_config.api import FedJob

        if isinstance(config, Mapping):
            self._values, self._place, self._home = dict(config), "config", Path.cwd()
        else:
            path = Path(config)
            self._values, self._place = read_config(path), str(path)
            self._home = path.absolute().parent
        self._min_clients, self._out, self._say = min_clients, Path(out or name).absolute(), say
        self._own: dict[str, dict[str, Any]] = {}
        super().__init__(FedJob(name))

    def run(
        self, env: Any, server_exec_params: dict | None = None, client_exec_params: dict | None = None
    ) -> Any:
        """Submit the job, and train.

        Parameters
        ----------
        env : nvflare.recipe.spec.ExecEnv
            Where the job runs.
        server_exec_params, client_exec_params : dict, optional
            As of every recipe.

        Returns
        -------
        nvflare.recipe.run.Run
            The job, which has ended with the model trained.
        """
        from nvflare.recipe.sim_env import SimEnv

        deploy = partial(super().run, env, server_exec_params, client_exec_params)
        return self._simulate(env, deploy) if isinstance(env, SimEnv) else self._train_at(deploy)

    # --- the job ------------------------------------------------------------------------------------------

    def _apply_per_site_config(self, config: dict[str, dict[str, Any]]) -> None:
        for site, own in config.items():
            for key in own:
                if key not in _KEYS:
                    raise ConfigError(f"site {site!r}: key {key!r} is unknown; known: {', '.join(_KEYS)}")
        self._own = config

    def _sites(self) -> list[str]:
        """Names of all sites: those with configurations of their own, or those of addresses."""
        table = self._values.get("federation")
        if not self._own and isinstance(table, Mapping):
            addresses = setup_of(dict(self._values), self._place, self._home).addresses
            sites = [at for way, at in addresses.values() if way == "nvflare"]
        else:
            sites = list(self._own)
        if not sites:
            raise ConfigError(
                f"{self._place}: no site is named: give set_per_site_config each site's data, "
                'or the configuration a table federation.parties with NAME = "nvflare:SITE"'
            )
        if self._min_clients not in (None, len(sites)):
            raise ConfigError(
                f"min_clients: {self._min_clients}, but there are {len(sites)} sites, and all are needed"
            )
        return sites

    def _prepare_client_apps(self) -> None:
        fill_job(self._job, self._sites())

    # --- the simulator ------------------------------------------------------------------------------------

    def _simulate(self, env: Any, deploy: Callable[[], Any]) -> Any:
        """Train beside the simulator, which returns when its job has ended."""
        workspace = Path(env.workspace_root).absolute() / self.name
        # A socket's path must be short.
        with TemporaryDirectory(prefix="fastadmm-") as short, ThreadPoolExecutor(1) as pool:
            relay, ended = Socket(Path(short) / "server.sock"), threading.Event()
            setup = self._setup_simulated(env, relay.path)
            # What is wrong is said before anything begins.
            begun(setup, Path(short) / "run", lambda line: None)
            self._write_simulated(workspace, relay.path)
            training = pool.submit(self._train_simulated, setup, relay, workspace, ended)
            try:
                run = deploy()
            finally:
                ended.set()
            training.result()
            return run

    def _setup_simulated(self, env: Any, relay: Path) -> Setup:
        """The configuration, with the party of each site, as its features say."""
        sites, named = list(env.clients or [f"site-{k + 1}" for k in range(env.num_clients)]), self._sites()
        if sorted(sites) != sorted(named):
            raise ConfigError(f"SimEnv: has the sites {', '.join(sites)}, not {', '.join(named)}")
        if self._values.get("secrecy") == "sums":
            raise ConfigError(
                f"{self._place}: key 'secrecy': nobody compares keys in the simulator; leave it out"
            )
        addresses = {}
        for site in named:
            own = self._own.get(site, {})
            if "data" not in own:
                raise ConfigError(f"site {site!r}: key 'data' is missing: name the party's features")
            addresses[open_party(Path(own["data"])).name] = f"nvflare:{site}"
        table = dict(self._values.get("federation", {"parties": addresses}))
        for party, address in addresses.items():
            if table["parties"].get(party) != address:
                raise ConfigError(f"{self._place}: federation.parties: {party} is not {address!r}")
        values = self._values | {"federation": table | {"kit": "", "relay": str(relay)}}
        return setup_of(values, self._place, self._home)

    def _write_simulated(self, workspace: Path, relay: Path) -> None:
        """The directory ``local``, of which the simulator gives each site a copy."""
        local = workspace / "local"
        with storage_errors(local):
            local.mkdir(parents=True, exist_ok=True)
            resources = local / "resources.json"
            known: dict[str, Any] = read_json(resources) if resources.exists() else {"format_version": 2}
            allowed = sorted(set(ALLOWED).union(known.get("class_allow_list", ())))
            write_json(resources, known | {"class_allow_list": allowed})
            write_socket(local, relay)
            sites = {site: {"state": str(workspace / site / "state")} for site in self._own}
            for site, own in self._own.items():
                for key, value in own.items():
                    sites[site][key] = value if key == "threads" else os.path.abspath(value)
            write_json(local / SIMULATED, sites)

    def _train_simulated(self, setup: Setup, relay: Socket, workspace: Path, ended: threading.Event) -> None:
        def ask(party: str, raw: bytes, seconds: float) -> bytes:
            place = f"{setup.addresses[party][1]}/{party}"
            try:
                return persistent(partial(relay.ask, place, raw, seconds), self._say, ended)
            except Lost as error:
                if not ended.is_set():
                    raise
                raise StorageError(
                    f"{workspace}: the simulation has ended early; its logs say why"
                ) from error

        try:
            if not _begun(relay, ended.is_set):
                return  # the simulator's own error is raised
            folder = begun(setup, workspace / "server" / "run", self._say)
            for site, own in self._own.items():
                agree(folder.path / RUN, Path(own["data"]), workspace / site / "state")
            with folder.held():
                train_run(folder, ask, self._say)
        finally:
            with suppress(Lost):
                relay.ask("", END, _PAUSE)

    # --- between organisations ----------------------------------------------------------------------------

    def _train_at(self, deploy: Callable[[], Any]) -> Any:
        """Submit the job, and train with the owners' agents, whose approvals are waited for."""
        setup = setup_of(dict(self._values), self._place, self._home)
        if setup.nvflare is None:
            raise ConfigError(f"{self._place}: table 'federation.parties' names no site of NVFlare")
        folder = begun(setup, self._out, self._say)
        run = deploy()
        relay = Socket(setup.nvflare[1])
        _begun(relay, lambda: str(run.get_status()).startswith("FINISHED"))
        with setup.opened(self._say) as ask, folder.held():
            train = partial(train_run, folder, ask, self._say)
            again(train, pauses(math.inf, _PAUSE), self._say, kinds=(WaitingError,), words="waiting: {}")
        # NVFlare has nothing of the result.
        run.get_result = lambda timeout=0.0, clean_up=True: str(folder.path)
        return run


def _begun(relay: Socket, ended: Callable[[], bool]) -> bool:
    """Whether a job has begun, before it has ended."""
    for pause in pauses(_BEGIN, _LOOK):
        if ended():
            break
        with suppress(Lost):
            relay.ask("", HELLO, _PAUSE)
            return True
        time.sleep(pause)
    return False
