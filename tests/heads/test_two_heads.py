"""Two heads of a site as processes, and a real etcd: one leads, the other one follows and sends
people on; it leads when the first is killed, stopped, suspended, or told to hand over."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import patience

from layercake import __version__
from layercake.heads.settings import DIRECTORY, KEY
from layercake.heads.store_loop import StoreLoop
from tests.bench._chaosmachines import Versions
from tests.support.etcd import EtcdMembers, free_ports
from tests.support.minibmc import MiniBmc
from tests.support.minisol import MiniSol

LIMIT_S = 90.0
LAYERCAKE = [sys.executable, "-m", "layercake.cli.main"]
INVENTORY = """
nodes:
  n1: {mac: "02:00:00:00:00:01", ip: 10.0.1.1, state: "off"}
  n2: {mac: "02:00:00:00:00:02", ip: 10.0.1.2, state: "off"}
"""
PASSWORD = "LAYERCAKE_TEST_BMC_PASSWORD"
BMC = "{{driver: ipmi, address: 127.0.0.1, port: {}, username: admin, password: {{env: {}}}}}"


def until(what: Callable[[], Any]) -> Any:
    """Waits for what must be seen; what it is."""
    end = time.monotonic() + LIMIT_S
    while not (found := what()):
        assert time.monotonic() < end, "it was not seen"
        time.sleep(0.3)  # a look is a command, most often: a tenth of a second of a processor
    return found


class HeadOfTwo:
    """One of them, at an address of loopback of its own."""

    def __init__(
        self, directory: Path, number: int, members: EtcdMembers, ports: list[int]
    ) -> None:
        self.name = f"head{number}"
        self.data = directory / self.name
        self.address = f"127.0.0.{number}"
        self.port = ports[0]
        self.environment: dict[str, str] = {}
        """What its environment has besides: its version of Layercake."""
        self.log = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        init = ["init", "--data-dir", str(self.data), "--interface", "lo"]
        subprocess.run(
            [*LAYERCAKE, *init, "--address", self.address, "--no-boot"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        config = yaml.safe_load((self.data / "config.yaml").read_text())
        config |= {
            "socket": str(self.data / "api.sock"),
            "api_port": ports[0],
            "heads": {"name": self.name, "store": members.endpoints},
        }
        config["sync"]["port"] = ports[1]
        config["boot"] |= {"http_port": ports[2], "dhcp": "off", "tftp_port": ports[4]}
        config["images"]["http_port"] = ports[3]
        (self.data / "config.yaml").write_text(yaml.safe_dump(config))
        (self.data / DIRECTORY).mkdir()
        (self.data / DIRECTORY / KEY).write_bytes(bytes(32))

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*LAYERCAKE, "serve", "--data-dir", str(self.data)],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it by a signal; its exit status."""
        if self._process is None:
            return 0
        self.send(number)
        status = self._process.wait(LIMIT_S)
        self._process = None
        return status

    def cli(self, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
        """A command at its socket, or at these URLs."""
        token = str(self.data / "admin.token")
        ca = str(self.data / "pki" / "ca.pem")
        where = (
            ["--url", url, "--token-file", token, "--ca", ca]
            if url
            else ["--socket", str(self.data / "api.sock")]
        )
        return subprocess.run(
            [*LAYERCAKE, *where, *arguments], capture_output=True, text=True, timeout=LIMIT_S
        )

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    def heads(self) -> dict[str, Any]:
        """What it says of the heads; {} if it does not answer."""
        done = self.cli("heads", "show", "--json")
        found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return found

    def leads(self) -> bool:
        """Whether it leads, and answers."""
        return bool(
            self.heads().get("leader") == self.name and self.cli("node", "list").returncode == 0
        )

    def follows(self) -> bool:
        """Whether it follows, and has all that there is."""
        found = self.heads()
        own = [one for one in found.get("heads", ()) if one["head"] == self.name]
        return bool(
            own
            and found["leader"] not in ("", self.name)
            and not own[0]["leads"]
            and own[0]["entry"] == found["entry"]
        )


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, members: EtcdMembers
) -> Iterator[tuple[HeadOfTwo, HeadOfTwo]]:
    directory = tmp_path_factory.mktemp("two")
    os.environ[PASSWORD] = "pw"
    ports = free_ports(5)
    one, two = (HeadOfTwo(directory, number, members, ports) for number in (1, 2))
    for name in ("pki", "tokens.json"):
        source = one.data / name
        if source.is_dir():
            shutil.rmtree(two.data / name)
            shutil.copytree(source, two.data / name)
            for own in ("server.pem", "server.key"):
                (two.data / name / own).unlink()
        elif source.exists():
            shutil.copy(source, two.data / name)
    try:
        one.start()
        until(one.leads)
        two.start()
        until(two.follows)
        inventory = directory / "two.yaml"
        inventory.write_text(INVENTORY)
        done = one.cli("apply", "--yes", "--no-wait", str(inventory))
        assert done.returncode == 0, done.stderr
        yield one, two
    finally:
        one.end(signal.SIGKILL)
        two.end(signal.SIGKILL)


@pytest.fixture
def led(pair: tuple[HeadOfTwo, HeadOfTwo]) -> tuple[HeadOfTwo, HeadOfTwo]:
    """The one that leads and the one that follows."""
    one, two = pair
    until(lambda: one.leads() or two.leads())
    leader, other = (one, two) if one.leads() else (two, one)
    until(other.follows)
    return leader, other


def names(head: HeadOfTwo) -> list[str]:
    return [node["name"] for node in json.loads(head.cli("node", "list", "--json").stdout)["nodes"]]


def test_a_follower_says_who_leads_and_sends_people_there(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    refused = follower.cli("node", "list")
    assert refused.returncode != 0
    assert f"{leader.name} leads, at {leader.url}" in refused.stderr
    for url in (follower.url, f"https://127.0.0.9:1,{follower.url}"):
        done = leader.cli("node", "list", "--json", url=url)
        assert done.returncode == 0, done.stderr
        assert [node["name"] for node in json.loads(done.stdout)["nodes"]] == ["n1", "n2"]
    gone = leader.cli("node", "list", url="https://127.0.0.9:1,https://127.0.0.8:1")
    assert gone.returncode == 3


def test_prometheus_gets_of_a_follower_its_own_numbers(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    tls = ssl.create_default_context(cafile=str(leader.data / "pki" / "ca.pem"))
    with urllib.request.urlopen(f"{follower.url}/v1/metrics", context=tls) as answer:
        page = answer.read().decode()
    assert answer.url.startswith(follower.url), "it was not sent on"
    assert f'layercake_heads_leader{{head="{follower.name}"}} 0\n' in page
    assert "layercake_nodes" not in page


def test_the_heads_are_shown_with_lag_lease_and_versions(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    until(lambda: "getting ready" not in leader.cli("heads").stdout)
    shown = leader.cli("heads").stdout
    version = re.escape(__version__)
    led_by = rf"^{leader.name} \(this one\) +leader +\d+ +0 +[1-5]\.\d s +{version} "
    assert re.search(led_by, shown, re.MULTILINE), shown
    followed = rf"^{follower.name} +follower +\d+ +\d +\d\.\d s +{version} "
    assert re.search(followed, shown, re.MULTILINE), shown
    assert len(re.findall(r"^http://\S+ +(?:leader|member) .* MB .* 3\.", shown, re.M)) == 3, shown
    roles = f"heads     {leader.name} leads, {follower.name} follows\n"
    until(lambda: roles in leader.cli("status").stdout)


def test_a_change_survives_the_kill_of_the_leader(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    mark = f"k{os.getpid()}"
    done = leader.cli("node", "set", "n1", f"kernel_args={mark}")
    assert done.returncode == 0, done.stderr
    leader.end(signal.SIGKILL)
    began = time.monotonic()
    until(follower.leads)
    took = time.monotonic() - began
    shown = follower.cli("inventory", "show")
    assert mark in shown.stdout, shown.stderr
    leader.start()
    until(leader.follows)
    assert names(follower) == ["n1", "n2"]
    assert took < LIMIT_S


def says_of(asked: HeadOfTwo, about: HeadOfTwo, field: str = "trouble") -> str:
    """What a head knows that another one says of itself."""
    heads = asked.heads().get("heads", ())
    return next((str(one[field]) for one in heads if one["head"] == about.name), "")


@contextlib.contextmanager
def console() -> Iterator[tuple[int, Callable[[str], None]]]:
    """The port of a BMC on loopback, and what has its machine say a line on its console."""
    loop = StoreLoop()
    sol = MiniSol()

    async def begin() -> tuple[asyncio.DatagramTransport, MiniBmc]:
        return await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: MiniBmc(sol=sol), local_addr=("127.0.0.1", 0)
        )

    async def send_text(text: str) -> None:
        sol.write(f"{text}\r\n".encode())

    async def end() -> None:
        sol.stop()
        transport.close()

    transport, bmc = loop.wait(begin())
    try:
        yield bmc.port, lambda text: loop.wait(send_text(text))
    finally:
        loop.stop(end())


def test_what_a_console_has_said_can_be_read_after_the_kill_of_the_leader(
    led: tuple[HeadOfTwo, HeadOfTwo], tmp_path: Path
) -> None:
    leader, follower = led

    def console_log(head: HeadOfTwo) -> str:
        path = head.data / "consoles/n1.log"
        return path.read_text() if path.exists() else ""

    with console() as (port, say):
        inventory = tmp_path / "console.yaml"
        bmc = BMC.format(port, PASSWORD)
        inventory.write_text(INVENTORY.replace("10.0.1.1,", f"10.0.1.1, bmc: {bmc},"))
        done = leader.cli("apply", "--yes", "--no-wait", str(inventory))
        assert done.returncode == 0, done.stderr
        say("the first words")
        until(lambda: "the first words" in console_log(follower))
        kept = follower.data / "consoles"
        shutil.rmtree(kept)
        kept.touch()  # nothing can be written there
        say("the words meanwhile")
        until(lambda: "File exists" in says_of(leader, follower, "consoles"))
        kept.unlink()
        until(lambda: "the words meanwhile" in console_log(follower))
        until(lambda: not says_of(leader, follower, "consoles"))
        say("the last words")
        until(lambda: "the last words" in console_log(leader))
        began = time.monotonic()
        until(lambda: "the last words" in console_log(follower))
        assert time.monotonic() - began < patience(1.0)
        leader.end(signal.SIGKILL)
        until(follower.leads)
        until(lambda: "the last words" in follower.cli("console", "n1", "--log").stdout)
        shown = follower.cli("console", "n1", "--log").stdout
        assert shown.index("the first words") < shown.index("the last words")
        assert f"--- {follower.name} leads from here on; what was said after" in shown
        assert "the last words" in follower.cli("console", "--grep", "last words", "n1").stdout
    leader.start()
    until(leader.follows)
    until(lambda: f"--- {follower.name} leads from here on" in console_log(leader))


def test_one_that_is_told_to_hands_over(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    epoch = leader.heads()["epoch"]
    logged = leader.log.stat().st_size
    wrong = leader.cli("heads", "promote", "--yes", "nobody")
    assert wrong.returncode != 0
    assert "there are head1, head2" in wrong.stderr
    done = leader.cli("heads", "promote", "--yes", follower.name)
    assert done.returncode == 0, done.stderr
    until(follower.leads)
    until(leader.follows)
    assert follower.heads()["epoch"] == epoch + 1
    assert names(follower) == ["n1", "n2"]
    said = follower.cli("events").stdout
    assert f"{leader.name} hands over to {follower.name}" in said, "it was written before"
    assert "database.unwell" not in said
    assert " ERROR " not in leader.log.read_text()[logged:]


def test_one_that_was_suspended_finds_that_another_leads(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    leader.send(signal.SIGSTOP)
    try:
        until(follower.leads)
        done = follower.cli("node", "set", "n2", "kernel_args=later")
        assert done.returncode == 0, done.stderr
    finally:
        leader.send(signal.SIGCONT)
    until(leader.follows)
    assert leader.cli("node", "set", "n2", "kernel_args=never").returncode != 0
    assert "later" in follower.cli("inventory", "show").stdout


def test_a_stop_in_order_hands_over_and_loses_nothing(led: tuple[HeadOfTwo, HeadOfTwo]) -> None:
    leader, follower = led
    assert leader.end() == 0
    until(follower.leads)
    assert names(follower) == ["n1", "n2"]
    leader.start()
    until(leader.follows)


def test_without_its_store_a_leader_serves_and_changes_nothing(
    led: tuple[HeadOfTwo, HeadOfTwo], members: EtcdMembers
) -> None:
    leader, _ = led
    members.kill(0, 1)
    try:
        for _ in range(2):
            refused = leader.cli("node", "set", "n1", "kernel_args=no")
            assert "the store of the heads does not answer" in refused.stderr
        assert names(leader) == ["n1", "n2"]
        shown = leader.cli("heads")
        assert shown.returncode == 1
        assert "down" in shown.stdout
        assert leader.heads()["leader"] == leader.name, "nobody else can, and it goes on to serve"
    finally:
        members.start_missing()
    until(lambda: leader.cli("node", "set", "n1", "kernel_args=quiet").returncode == 0)
    assert "quiet" in leader.cli("inventory", "show").stdout


class Changes:
    """Somebody who changes an entry again and again, at whoever leads."""

    def __init__(self, head: HeadOfTwo, urls: str) -> None:
        self._head = head
        self._urls = urls
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self.may = {""}
        """What the entry may be: what was acknowledged last, and what may have been done since."""

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._over.is_set():
                return
            value = f"change{number}"
            done = self._head.cli("node", "set", "n1", f"kernel_args={value}", url=self._urls)
            if done.returncode == 0:
                self.may = {value}
                self.acknowledged += 1
            elif "cannot say whether" in done.stderr or done.returncode == 3:
                self.may.add(value)

    def more(self) -> None:
        """Waits until a further one is acknowledged."""
        seen = self.acknowledged
        until(lambda: self.acknowledged > seen)

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def upgrade(head: HeadOfTwo, environment: dict[str, str]) -> None:
    assert head.end() == 0
    head.environment = environment
    head.start()
    until(head.follows)


def test_heads_are_upgraded_one_by_one_while_people_change_things(
    led: tuple[HeadOfTwo, HeadOfTwo], tmp_path: Path
) -> None:
    """The next version keeps its database in another form. As the last test of these two."""
    leader, follower = led
    newer = Versions(tmp_path).make_next()
    with Changes(leader, f"{leader.url},{follower.url}") as changes:
        upgrade(follower, newer)
        changes.more()
        versions = {one["head"]: one["version"] for one in leader.heads()["heads"]}
        assert versions[leader.name] != versions[follower.name]
        done = leader.cli("heads", "promote", "--yes", follower.name)
        assert done.returncode == 0, done.stderr
        until(follower.leads)
        changes.more()
        until(lambda: "a head of a newer version has led" in says_of(follower, leader))
        refused = follower.cli("heads", "promote", "--yes", leader.name)
        assert "a head of a newer version has led" in refused.stderr
        upgrade(leader, newer)
        assert not says_of(follower, leader)
        done = follower.cli("heads", "promote", "--yes", leader.name)
        assert done.returncode == 0, done.stderr
        until(leader.leads)
        changes.more()
    either = f"{leader.url},{follower.url}"  # a busy machine may have made the other one lead again
    shown = leader.cli("inventory", "show", url=either)
    assert any(f'"{value}"' in shown.stdout for value in changes.may), (shown, changes.may)
    listed = leader.cli("node", "list", "--json", url=either)
    assert [node["name"] for node in json.loads(listed.stdout)["nodes"]] == ["n1", "n2"], listed
