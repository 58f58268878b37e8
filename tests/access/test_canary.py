"""A secret in every place of a head that can hold one, and a search for them wherever somebody
could look.

The head, its modules, the BMC and the node are real processes. What is searched: logs, events, the
answers of all GET routes, command lines and environments of all processes of the head, its backup;
and no process of it leaves a core file.
"""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from headclient import HeadRunError

from docs.generator.interfaces import routes
from imageapi.store.manifest import Signer
from layercake.backup import back_up
from layercake.base.secrets import without_secrets
from layercake.features.access import doors as auth
from layercake.moduleapi.client import COOKIE_VARIABLE
from minos.agent.state import Session
from tests.support.machineroom import Bay
from tests.support.powersite import ROOT, PowerSite
from tests.support.pretended import PretendedNode

pytestmark = pytest.mark.root

ENV_PASSWORD, CEPH_KEY, PASSPHRASE = (
    "canary-environment-7316",
    "Y2FuYXJ5LWNlcGgta2V5LTczMTY=",
    "canary-passphrase-7316",
)


class Site(PowerSite):
    """A head with secrets in all places; `planted` says where each is."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [Bay("n0", "ipmi", 1)])
        self.planted: dict[str, str] = {}

    def start_head(self) -> None:
        auth.create(self.data)
        (self.data / "images").mkdir(exist_ok=True)
        (self.data / "images/node.key").write_text(CEPH_KEY)
        Signer(self.data / "images/signing.key").sign("anything")
        super().start_head()

    def work(self) -> None:
        """What people and nodes do in a day; some of it goes wrong."""
        image = self.directory / "one.squashfs"
        image.write_bytes(b"hsqs" + bytes(5000))
        self.api("POST", "/v1/images", {"path": str(image), "name": "one", "env": {"A": "b"}})
        known = self.api("POST", "/v1/tokens", {"name": "ann", "role": "admin", "exec": True})[
            "token"
        ]
        self.planted |= {"a named token": known, "the BMC's password": self.room.password}
        inventory = self._inventory() + (
            "  n9: {mac: '52:54:00:00:09:09', ip: 10.97.0.99, state: 'off', bmc: {driver: ipmi, "
            "address: 10.97.0.250,"
            " username: admin, timeout_s: 2, password: {env: CANARY_BMC}}}\n"
        )
        self.api("POST", "/v1/inventory/apply", {"yaml": inventory, "file": "room.yaml"})
        for call in ("power.status", "power.sensors"):
            self.api("POST", f"/v1/calls/{call}", {"range": "n0,n9"}, 120)
        for path, body in (
            (
                "/v1/inventory/plan",
                {"yaml": inventory.replace("{env: CANARY_BMC}", self.room.password)},
            ),
            ("/v1/nodes/n0/exec", {"command": ["true"]}),
            ("/v1/tokens", {"name": known, "role": "none"}),
        ):
            with pytest.raises(HeadRunError):
                self.api("POST", path, body)

    def plant(self) -> None:
        """Adds what the head has made itself."""
        self.planted |= {
            "the password in the environment": ENV_PASSWORD,
            "the key of Ceph": CEPH_KEY,
            "the passphrase": PASSPHRASE,
            "the admin token": (self.data / "admin.token").read_text().strip(),
        }
        for file in (*(self.data / "pki").glob("*.key"), self.data / "images/signing.key"):
            if file.exists():
                self.planted[f"the key {file.name}"] = "".join(file.read_text().splitlines()[1:-1])[
                    -40:
                ]

    def processes(self) -> Iterator[int]:
        """The head's process and all that it started."""
        assert self.process is not None
        found = [self.process.pid]
        while found:
            pid = found.pop()
            yield pid
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    os.environ["CANARY_BMC"] = ENV_PASSWORD
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    held: dict[str, str] = {}
    join = PretendedNode.join

    async def overheard(
        self: PretendedNode, http: aiohttp.ClientSession, facts: Mapping[str, str]
    ) -> Session:
        session = await join(self, http, facts)
        held.update(
            {
                "a join token": facts["token"],
                "a session's key": base64.b64encode(session.key).decode(),
                "a node's private key": "".join((session.tls or ("", ""))[1].splitlines()[1:-1])[
                    -40:
                ],
            }
        )
        return session

    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            Site(tmp_path_factory.mktemp("canary") / "site") as found,
        ):
            patch.setattr(PretendedNode, "join", overheard)
            found.api("POST", "/v1/power", {"range": "n0", "action": "cycle", "force": True})
            found.wait(
                "the node is back",
                lambda: held and found.nodes()["n0"]["status"] == "converged",
                240,
            )
            found.planted |= held
            found.work()
            found.plant()
            yield found
    finally:
        del os.environ["CANARY_BMC"]
        resource.setrlimit(resource.RLIMIT_CORE, before)


def found_in(site: Site, text: bytes, *but: str) -> list[str]:
    return [
        what for what, secret in site.planted.items() if what not in but and secret.encode() in text
    ]


def test_all_is_planted(site: Site) -> None:
    assert {
        "a named token",
        "the BMC's password",
        "the password in the environment",
        "the key of Ceph",
        "the passphrase",
        "the admin token",
        "a join token",
        "a session's key",
        "a node's private key",
        "the key signing.key",
    } <= set(site.planted)
    assert [
        what
        for what in site.planted
        if what.startswith("the key ") and "signing" not in what and "Ceph" not in what
    ]
    assert all(len(secret) > 10 for secret in site.planted.values())


def test_no_log_holds_one(site: Site) -> None:
    logs = [p for p in (site.directory / "head.log", *site.data.rglob("*.log")) if p.is_file()]
    assert len(logs) >= 4 and all(
        p.name in ("head.log", "pxe.log", "powerman.log", "imageapi.log") for p in logs
    )
    assert {
        p.name: found_in(site, p.read_bytes()) for p in logs if found_in(site, p.read_bytes())
    } == {}


def test_no_answer_and_no_event_holds_one(site: Site) -> None:
    seen = 0
    for route in routes():
        path = re.sub(r"{\w+}", "n0" if "nodes" in route.path else "one", route.path)
        if route.method != "GET" or path.endswith(("/ws", "/follow")):
            continue
        try:
            answer = json.dumps(
                site.api(
                    "GET", path + ("?limit=5000" if "limit" in route.query else ""), timeout=120
                )
            )
        except (HeadRunError, ValueError) as error:  # a refusal is an answer too
            answer = str(error)
        seen += 1
        assert found_in(site, answer.encode()) == [], path
    assert (
        seen > 15
        and len(site.api("GET", "/v1/events?limit=5000")["events"]) > 10
        and site.api("GET", "/v1/audit")["audit"]
    )


def test_no_process_shows_one(site: Site) -> None:
    """The head itself was given one in its environment, by the test; nobody else gets it."""
    assert site.process is not None
    pids = list(site.processes())
    assert len(pids) >= 4
    for pid in pids:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        shown = Path(f"/proc/{pid}/environ").read_bytes()
        assert found_in(site, line) == [], line
        assert (
            found_in(
                site,
                shown,
                *(("the password in the environment",) if pid == site.process.pid else ()),
            )
            == []
        ), line
    assert ENV_PASSWORD.encode() in Path(f"/proc/{site.process.pid}/environ").read_bytes(), (
        "it was there to be seen"
    )


def test_what_is_not_encrypted_of_a_backup_holds_none(site: Site, tmp_path: Path) -> None:
    held = back_up(site.data, tmp_path / "backup", PASSPHRASE.encode())
    assert {"admin.token", "images/node.key", "images/signing.key"} <= set(held)
    data = (tmp_path / "backup").read_bytes()
    assert found_in(site, data) == [] and (tmp_path / "backup").stat().st_mode & 0o077 == 0


def test_no_process_leaves_a_core_file(site: Site) -> None:
    """The head's is tried: it is ended by a signal that makes one."""
    assert site.process is not None
    for pid in site.processes():
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits), Path(
            f"/proc/{pid}/cmdline"
        ).read_bytes()
    head, site.process = site.process, None
    head.send_signal(signal.SIGABRT)
    _, status = os.waitpid(head.pid, 0)
    head.returncode = -signal.SIGABRT
    assert os.WTERMSIG(status) == signal.SIGABRT and not os.WCOREDUMP(status)


def test_a_core_would_be_refused_to_a_collector_too() -> None:
    """RLIMIT_CORE is nothing to a program that core_pattern names; what the kernel does not dump it
    does not hand over either."""
    body = (
        "import os, resource; from layercake.base.process import leave_no_core; {call}"
        "resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * "
        "2); os.abort()"
    )
    for call, dumped in (("", True), ("leave_no_core();", False)):
        made = subprocess.Popen(
            [sys.executable, "-c", body.format(call=call)],
            cwd="/dev/shm",
            env={**without_secrets(os.environ), "PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)),
        )
        _, status = os.waitpid(made.pid, 0)
        made.returncode = -6
        for file in (*Path("/dev/shm").glob("core"), *Path("/dev/shm").glob(f"core.{made.pid}")):
            file.unlink()
        assert os.WCOREDUMP(status) is dumped, call


def test_a_plain_environment_has_no_place_for_a_secret() -> None:
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "x",
        "LC_ALL": "C",
        "CANARY_BMC": "s",
        "LAYERCAKE_PASSPHRASE": "s",
        COOKIE_VARIABLE: "s",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HTTPS_PROXY": "http://user:s@h",
    }
    assert without_secrets(given) == {"PATH": "/bin", "PYTHONPATH": "x", "LC_ALL": "C"}
