"""NVFlare between a coordinator and sites: bytes arrive, losses are survived, strangers are refused."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fastadmm.between.carrier import Carrier, session
from fastadmm.between.kit import ALLOWED, check, harden, open_kit, write_job
from fastadmm.between.nvflare_app import END, SIMULATED, SimulatedAgent, read_socket
from fastadmm.between.recipe import VerticalGLMRecipe, _begun
from fastadmm.between.socket import Lost, Server, Socket, serve
from fastadmm.errors import ConfigError, FastadmmError, InputError, StorageError
from fastadmm.runs.config import make_config
from fastadmm.runs.train import start_run
from fastadmm.version import __version__

from federation_tools import Parties
from nvflare_stage import ADMIN, SERVER, Stage
from rounds_tools import NAMES, data_of, part_of, separate
from run_tools import refuses
from scripts import script_of

pytest.importorskip("nvflare", reason='needs NVFlare: pip install "fastadmm[nvflare]"')

SITES = ("bank", "shop")


@pytest.fixture(scope="module")
def stage():
    with TemporaryDirectory(prefix="fa") as directory, Stage(Path(directory), SITES) as stage:
        stage.provision()
        yield stage


def own_kit(stage, name, directory):
    """A copy, of a user that is not root where the tests may choose one."""
    shutil.copytree(stage.kits[name].path, directory / name)
    if os.geteuid() == 0:
        for path in (directory / name, *(directory / name).rglob("*")):
            os.chown(path, 65534, 65534)
    return open_kit(directory / name)


def failed(kit, *private):
    """What a check complains of, but for what this machine is: no server, no agent, no users."""
    usual = ("nobody listens there", "no agent answers", "nothing was named")
    found = [finding.text for finding in check(kit, private) if not finding.ok]
    return [text for text in found if not any(words in text for words in usual)]


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_hardened_kit_is_right(stage, tmp_path):
    for name in (SERVER, "bank", ADMIN):
        kit = own_kit(stage, name, tmp_path)
        assert failed(kit) == []
        harden(kit)  # the copy lies elsewhere
        before = {path: path.read_bytes() for path in kit.path.rglob("*") if path.is_file()}
        harden(kit)
        assert {path: path.read_bytes() for path in before} == before


def test_a_kit_as_it_comes_is_not(stage, tmp_path):
    kit = own_kit(stage, "bank", tmp_path)
    for name in ("authorization.json", "resources.json", "fastadmm.json"):
        (kit.local / name).unlink()
    found = "\n".join(failed(kit))
    assert "authorization.json.default: key 'permissions' lets jobs do more" in found
    assert "resources.json.default: key 'class_allow_list' lets jobs do more" in found
    assert "fastadmm.json: cannot read: No such file or directory" in found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kit: edit(kit.local / "authorization.json", lambda c: c["permissions"].update(lead="any")),
         "authorization.json: key 'permissions' lets jobs do more"),
        (lambda kit: edit(kit.local / "resources.json", lambda c: c["class_allow_list"].append("os.")),
         "resources.json: key 'class_allow_list' lets jobs do more"),
        (lambda kit: edit(kit.path / "startup/fed_server.json",
                          lambda c: c["servers"][0].update(connection_security="tls")),
         "fed_server.json: connection_security is tls; must be mtls"),
        (lambda kit: (kit.local / SIMULATED).write_text("{}"), "fastadmm-simulated.json: of a simulation"),
        (lambda kit: kit.key.chmod(0o644), "server.key: others may read it"),
        (lambda kit: (kit.local / "authorization.json").write_text("{"), "not JSON"),
    ],
    ids=["rights", "classes", "tls", "simulated", "mode", "json"],
)  # fmt: skip
def test_what_is_wrong_is_named(change, words, stage, tmp_path):
    kit = own_kit(stage, SERVER, tmp_path)
    change(kit)
    found = failed(open_kit(kit.path))
    assert any(words in text for text in found), found


def test_what_nvflare_may_read(stage, tmp_path):
    kit = own_kit(stage, "bank", tmp_path)
    data, ledger = tmp_path / "party.h5", tmp_path / "agent"
    data.write_text("private")
    (ledger / "deep").mkdir(parents=True)
    (ledger / "deep" / "ledger.json").write_text("{}")
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        for parent in list(tmp_path.parents)[:-2]:
            parent.chmod(0o755)
    user = "nobody" if os.geteuid() == 0 else ""
    data.chmod(0o644)
    found = failed(kit, data, ledger)
    assert [text for text in found if text.startswith(str(data)) and user in text and "can read it" in text]
    assert [text for text in found if text.startswith(str(ledger))]
    if os.geteuid() == 0:
        data.chmod(0o600)
        (ledger / "deep").chmod(0o700)
        ledger.chmod(0o700)
        assert failed(kit, data, ledger) == []
        os.chown(kit.path, 0, 0)
        assert any("belongs to root" in text for text in failed(kit, data))


def test_wrong_kits_and_hosts(stage, tmp_path):
    refuses(InputError, "no NVFlare kit", open_kit, tmp_path)
    with (
        pytest.raises(InputError, match="the kit of a client; an administrator's is needed"),
        session(stage.kits["bank"]),
    ):
        pass
    with pytest.raises(Lost, match=f"server localhost:{stage.kits[ADMIN].port}"), session(stage.kits[ADMIN]):
        pass
    kit = own_kit(stage, ADMIN, tmp_path)
    edit(kit.path / "startup" / "fed_admin.json", lambda c: c["admin"].update(host="nowhere.invalid"))
    changed = open_kit(kit.path)
    with pytest.raises(Lost, match=r"^server nowhere\.invalid:.* does not answer"), session(changed):
        pass


@pytest.mark.parametrize("file", ["certificate", "key", "root"])
def test_an_administrators_kit_without_a_file(stage, tmp_path, file):
    path = getattr(kit := own_kit(stage, ADMIN, tmp_path), file)
    path.unlink()
    with (
        pytest.raises(StorageError, match=rf"{path}: No such file or directory; copy the kit of"),
        session(open_kit(kit.path)),
    ):
        pass


def test_another_version(stage, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("fastadmm.between.kit.version", lambda name: "2.8.0")
        assert failed(own_kit(stage, "bank", tmp_path)) == ["nvflare 2.8.0 is installed; 2.9.x is needed"]
    relay = serve(tmp_path / "s", lambda *_: json.dumps({"bank": "0.0.1"}).encode())
    with pytest.raises(ConfigError, match=r"^site 'bank': has fastadmm 0\.0\.1, not .* as here$"):
        Carrier(stage.kits[ADMIN], tmp_path / "s", {"Bank": "bank"}).ask("Bank", b"", 5)
    with pytest.raises(ConfigError, match=r"s: the job that runs is without 'Shop' \(site 'shop'\)$"):
        Carrier(stage.kits[ADMIN], tmp_path / "s", {"Shop": "shop"}).ask("Shop", b"", 5)
    relay.stop(0)


def test_a_loss_is_said_before_the_server_is_waited_for(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("fastadmm.between.carrier._RETURN", 0.0)
    relay = serve(tmp_path / "s", lambda *_: json.dumps({"bank": __version__}).encode())
    said = []
    carrier = Carrier(stage.kits[ADMIN], tmp_path / "s", {"Bank": "bank"}, said.append)
    carrier.ask("Bank", b"", 5)
    relay.stop(0)
    refuses(Lost, "'bank/Bank' is lost", carrier.ask, "Bank", b"", 5)
    assert said == []  # it was raised
    # The question of another party, of the same exchange.
    refuses(Lost, "does not answer", carrier.ask, "Bank", b"", 5)
    assert said == ["the job is lost"]


def configured(stage, **values):
    """A configuration for sites of their own."""
    parties = {name.title(): f"nvflare:{name}" for name in SITES}
    places = {"kit": str(stage.kits[ADMIN].path), "relay": str(stage.sockets[SERVER])}
    return {"data": "labels.h5", "lambda": 1e-2, "federation": {**places, "parties": parties}, **values}


def components(file):
    """The classes that a job's file names, with arguments."""
    found = {}

    def look(node):
        for one in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            look(one)
        if isinstance(node, dict) and "path" in node:
            found[node["path"]] = node["args"]

    look(json.loads(file.read_text()))
    return found


def test_a_recipes_job_names_what_is_installed(stage, tmp_path):
    """It holds no code, and is the carrier's."""
    VerticalGLMRecipe(configured(stage), name="glm", min_clients=2).export(str(tmp_path))
    own, known = tmp_path / "glm", write_job(tmp_path / "known", SITES)
    files = [path.relative_to(own) for path in own.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json"}
    assert "custom" not in {part for path in files for part in path.parts}
    for path in files:
        ours, theirs = (json.loads((job / path).read_text()) for job in (own, known))
        assert {**ours, "name": ""} == {**theirs, "name": ""}
        if path.name != "meta.json":
            found = components(own / path)
            assert set(found) <= set(ALLOWED)
            assert all(found[name] == {} for name in found if name.startswith("fastadmm."))


def sites_of(folder):
    """What the sites a and b are told."""
    return {site: {"data": str(folder / name / f"{name}.h5")} for site, name in zip("ab", NAMES)}


def recipe_with(folder, own, **values):
    config = {"data": str(folder / "labels" / "labels.h5"), "lambda": 1e-2, **values}
    recipe = VerticalGLMRecipe({key: value for key, value in config.items() if value is not None}, name="glm")
    recipe.set_per_site_config(own)
    return recipe


@pytest.mark.parametrize(
    ("own", "values", "words"),
    [
        ({"data": None}, {}, r"site 'b': key 'data' is missing"),
        ({}, {"secrecy": "sums"}, r"key 'secrecy': nobody compares keys in the simulator"),
        ({"state": "x"}, {}, r"site 'b': key 'state' is unknown; known: data, ledger"),
        ({"data": "no.h5"}, {}, r"no\.h5"),
        ({}, {"data": None}, r"key 'data' is missing: name the label file"),
        ({}, {"federation": {"parties": {"x": "nvflare:b"}}}, r"parties: party-1 is not 'nvflare:a'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_simulation_is_one_line(own, values, words, tmp_path):
    sim_env = pytest.importorskip("nvflare.recipe").SimEnv
    separate(data_of(tmp_path), tmp_path)
    sites = sites_of(tmp_path)
    sites["b"] = {key: value for key, value in {**sites["b"], **own}.items() if value is not None}
    with pytest.raises(FastadmmError, match=words) as caught:
        recipe_with(tmp_path, sites, **values).run(sim_env(clients=["a", "b"], workspace_root=str(tmp_path)))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "glm").exists()


def test_what_is_wrong_with_a_recipe_is_one_line(stage, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"^min_clients: 3, but there are 2 sites, and all are needed$"):
        VerticalGLMRecipe(configured(stage), min_clients=3).export(str(tmp_path))
    with pytest.raises(ConfigError, match=r"^config: no site is named: "):
        VerticalGLMRecipe({"data": "labels.h5"}).export(str(tmp_path))
    refuses(StorageError, r"no\.toml", VerticalGLMRecipe, tmp_path / "no.toml")
    monkeypatch.setattr("fastadmm.between.recipe.Recipe", object)
    with pytest.raises(
        ConfigError, match=r"NVFlare is missing: this needs the packages of an extra; install"
    ):
        VerticalGLMRecipe({"data": "labels.h5"})


def test_a_simulation_has_the_bits_of_one_process(tmp_path):
    """The simulator is played, in this process."""
    values = {"lambda": 1e-2}
    separate(data := data_of(tmp_path), tmp_path)
    start_run(make_config({"data": str(data), "threads": 1, **values}), tmp_path / "one")
    ways, ended = dict(zip("ab", NAMES)), threading.Event()

    class Played(pytest.importorskip("nvflare.recipe").SimEnv):
        def deploy(self, job):
            local = tmp_path / "glm" / "local"
            assert set(json.loads((local / "resources.json").read_text())["class_allow_list"]) == set(ALLOWED)
            for site in ("server", *ways):
                (tmp_path / "glm" / site).mkdir()
            options = json.loads((local / SIMULATED).read_text())
            agents = {site: SimulatedAgent(options[site]) for site in ways}

            def answer(caller, party, raw):
                if not party:
                    ended.set() if raw == END else None
                    return b"{}"
                site, _, name = party.partition("/")
                return agents[site].ask(name, raw, 60.0, "server")

            relay = serve(read_socket(local), answer)
            assert ended.wait(60)
            relay.stop()
            for agent in agents.values():
                agent.close()
            return "glm"

    run = recipe_with(tmp_path, sites_of(tmp_path), **values).execute(
        Played(clients=list(ways), workspace_root=str(tmp_path))
    )
    workspace = Path(run.get_result())
    assert (workspace / "server" / "run" / "result.json").exists()
    for site, name in ways.items():
        (part,) = workspace.glob(f"{site}/state/*/{name}.h5")
        assert part_of(part) == part_of(tmp_path / "one" / "model" / f"{name}.h5")


def test_a_recipe_trains_where_agents_answer(stage, tmp_path):
    """NVFlare's part is played: the job begins at once. Approvals come when the recipe says that it waits."""
    spec = pytest.importorskip("nvflare.recipe.spec")
    separate(data := data_of(tmp_path), tmp_path)
    start_run(make_config({"data": str(data), "threads": 1, "lambda": 1e-2}), tmp_path / "one")
    parties, out = Parties(tmp_path), tmp_path / "run"
    relay, asked_for = stage.sockets[SERVER], list[str]()
    servers = list[Server]()

    def answer(caller, party, raw):
        asked_for.append(raw.decode() if not party else "")
        name = party.rpartition("/")[2]
        return parties.agent(name).handle("server", name, raw) if party else versions

    class Played(spec.ExecEnv):
        def deploy(self, job):
            servers.append(serve(relay, answer))
            return "job"

        get_job_status = get_job_result = lambda self, job_id, timeout=0.0: None
        abort_job = get_job_status

    def say(line):
        if line.startswith("waiting: "):
            parties.approve(out)

    ways = dict(zip(NAMES, SITES))
    versions = json.dumps(dict.fromkeys(ways.values(), __version__)).encode()
    table = configured(stage)["federation"]
    assert isinstance(table, dict)
    table["parties"] = {name: f"nvflare:{site}" for name, site in ways.items()}
    values = {"data": str(tmp_path / "labels" / "labels.h5"), "lambda": 1e-2, "federation": table}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastadmm.between.recipe._PAUSE", 0.01)
        run = VerticalGLMRecipe(values, out=out, say=say).execute(Played())
    servers[0].stop(0)
    parties.close()
    assert run.get_job_id() == "job"
    assert run.get_result() == str(out)
    assert asked_for[-1] == "end"
    for name in NAMES:
        (part,) = parties.home(name).glob(f"agent/*/{name}.h5")
        assert part_of(part) == part_of(tmp_path / "one" / "model" / f"{name}.h5")


class Echo:
    """Agents that say who asked what."""

    def __init__(self, stage):
        self.stage, self.servers = stage, dict[str, Server]()

    def answer(self, caller, party, raw):
        return f"{caller} asks {party}: ".encode() + raw

    def start(self, name):
        self.servers[name] = serve(self.stage.sockets[name], self.answer)

    def stop(self, name):
        self.servers.pop(name).stop(0)


@pytest.fixture(scope="module")
def agents(stage):
    for name in (SERVER, *SITES):
        stage.start(name)
    agents = Echo(stage)
    for name in SITES:
        agents.start(name)
    yield agents
    for name in list(agents.servers):
        agents.stop(name)


@pytest.fixture(scope="module")
def carrier(stage, agents, tmp_path_factory):
    """Its first job is that of a recipe."""
    exported = tmp_path_factory.mktemp("exported")
    VerticalGLMRecipe(configured(stage), name="glm").export(str(exported))
    until = time.monotonic() + 60
    while True:
        with suppress(Lost), session(stage.kits[ADMIN]) as server:
            if len(server("check_status", "server").get("clients", [])) == len(SITES):
                server("submit_job", str(exported / "glm"))
                break
        assert time.monotonic() < until
    assert _begun(Socket(stage.sockets[SERVER]), lambda: time.monotonic() > until)
    with Carrier(stage.kits[ADMIN], stage.sockets[SERVER], {name.title(): name for name in SITES}) as carrier:
        asked(carrier, "Bank", b"")
        yield carrier


def asked(carrier, party, raw, seconds=90):
    """As the coordinator does: a party that is lost is asked again."""
    until = time.monotonic() + seconds
    while True:
        try:
            return carrier.ask(party, raw, 20)
        except Lost:
            assert time.monotonic() < until
            time.sleep(0.5)


slow = pytest.mark.slow


@slow
def test_every_byte_arrives_and_the_caller_is_known(carrier):
    raw = bytes(range(256)) * 20_000
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda name: carrier.ask(name.title(), raw, 60), SITES))
    assert answers == [f"server asks {name.title()}: ".encode() + raw for name in SITES]


@slow
def test_a_site_loads_nothing_of_ours_but_the_socket(stage, carrier):
    for name in SITES:
        (job,) = stage.jobs(name)
        maps = Path(f"/proc/{job}/maps").read_text()
        assert "python" in maps
        assert not [package for package in ("numba", "llvmlite", "h5py", "pandas") if f"/{package}/" in maps]


@slow
def test_an_agent_that_is_away_costs_no_job(stage, agents, carrier):
    job = carrier.job
    agents.stop("shop")
    begin = time.monotonic()
    refuses(Lost, r"localhost\.sock: party 'shop/Shop' is lost", carrier.ask, "Shop", b"x", 20)
    assert time.monotonic() - begin < 22
    agents.start("shop")
    assert asked(carrier, "Shop", b"y") == b"server asks Shop: y"
    assert carrier.job == job


@slow
def test_a_coordinator_that_comes_back_finds_its_job(stage, carrier):
    again = Carrier(stage.kits[ADMIN], stage.sockets[SERVER], {"b": "bank"})
    assert again.ask("b", b"x", 20) == b"server asks b: x"
    assert again.job == ""


def spoiled(directory, change):
    job = write_job(directory, SITES)
    for site in SITES:
        edit(job / f"app_{site}" / "config" / "config_fed_client.json", change)
    return job


@slow
def test_hostile_jobs_are_refused(stage, carrier, tmp_path):
    trace = tmp_path / "was-here"
    code = write_job(tmp_path / "code", SITES)
    (code / "app_bank" / "custom").mkdir()
    (code / "app_bank" / "custom" / "mine.py").write_text(f"open({str(trace)!r}, 'w')\n")
    popen = {"path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}}
    other = spoiled(tmp_path / "class", lambda c: c["components"][0].update(popen))
    arguments = spoiled(tmp_path / "args", lambda c: c["components"][0].update(args={"socket": "/x"}))
    with session(stage.kits[ADMIN]) as server:
        numbers = [server("submit_job", str(job)) for job in (code, other, arguments)]
        until, left = time.monotonic() + 90, set(numbers)
        while left:
            assert time.monotonic() < until
            time.sleep(0.5)
            left = {n for n in left if not server("get_job_meta", n)["status"].startswith("FINISHED")}
        status = [server("get_job_meta", number)["status"] for number in numbers]
        details = server("get_job_meta", numbers[0])["job_deploy_detail"]
    assert "FINISHED:COMPLETED" not in status
    assert any("BYOC not permitted" in text for text in details), details
    logs = [(stage.kits["bank"].path / number / "log.txt").read_text() for number in numbers[1:]]
    assert "'subprocess.Popen'" in logs[0]
    assert "is not in allow_list" in logs[0]
    assert "unexpected keyword argument 'socket'" in logs[1]
    assert not trace.exists()
    assert asked(carrier, "Bank", b"x") == b"server asks Bank: x"


@slow
def test_an_administrator_may_not(stage, carrier):
    with session(stage.kits[ADMIN]) as server:
        for command in (["shutdown", "all"], ["cat_target", "bank", None, "log.txt"], ["restart", "all"]):
            refuses(ConfigError, "not authorized", server, *command)


@slow
def test_a_stranger_is_refused_by_both_sides(stage, carrier, tmp_path):
    port = stage.kits[ADMIN].port
    with Stage(tmp_path / "x", ["bank"]) as other:
        other.provision()
        kit = other.kits["bank"]
        theirs = ssl.create_default_context(cafile=str(kit.root))
        with (
            socket.create_connection(("localhost", port), 10) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            theirs.wrap_socket(plain, server_hostname="localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(kit.certificate, kit.key)
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            speak(context, port)


def speak(context, port):
    plain = socket.create_connection(("localhost", port), 10)
    with plain, context.wrap_socket(plain) as secure:
        secure.sendall(b"x")
        if not (said := secure.recv(1)):
            raise EOFError
        return said


EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "vertical_glm"


@slow
class TestExample:
    """Beside the others, which share a server and sites."""

    def test_it_runs_to_what_it_shows(self, tmp_path):
        """In NVFlare's simulator, to the bits of one process."""
        said = ""
        for program in ("prepare_data.py", "job.py"):
            more = ["--workspace", str(tmp_path / "w")] if program == "job.py" else []
            command = [sys.executable, "-P", str(EXAMPLE / program), *more]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            said += done.stdout
        readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
        shown = [line for line in readme.splitlines() if re.match(r"(breast_cancer|diabetes): ", line)]
        assert shown == [line for line in said.splitlines() if re.match(r"(breast_cancer|diabetes): ", line)]
        settings = script_of(str(EXAMPLE / "job.py")).SETTINGS
        for table, values in settings.items():
            parts = tmp_path / "data" / table / "parts"
            start_run(make_config({"data": str(parts), **values}), tmp_path / table)
            for site in ("site-1", "site-2"):
                (part,) = (tmp_path / "w" / table / site).glob(f"state/*/{site}.h5")
                assert part_of(part) == part_of(tmp_path / table / "model" / f"{site}.h5")
