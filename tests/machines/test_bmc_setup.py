"""BMCs that are set up from inside: a foreign one, one that is played with what real ones do wrong,
and through a head."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from vrack.ipmi_bmc import write_config
from vrack.metal import end, spawn

from imageapi.events import unheard
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.features.access import doors
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from layercake.kraken.events import EventKind, Severity
from layercake.node import bmc as nodebmc
from layercake.node.serving import Serving
from layercake.node.wiring import open_url
from minos.agent.state import Config, Session
from minos.bmc.device import Refusal
from minos.bmc.setup import Setup, Wanted, read
from tests.support.api import adopt
from tests.support.inbandbmc import Account, InbandBmc
from tests.support.world import World

WANTED = Wanted("operator", "a-secret-of-20-bytes", "10.2.0.7", "255.255.255.0", "10.2.0.1")

# -- a foreign BMC


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[int]:
    """ipmi_sim, which keeps its LAN parameters in files: its port. Its own user is admin, with the
    password factory."""
    port = free_port()
    argv = write_config(
        tmp_path / "bmc",
        "x",
        "127.0.0.1",
        port,
        "factory",
        ["/bin/true"],
        lan={"ip_addr_src": "dhcp", "mac_addr": "52:54:00:00:00:0b"},
    )
    process = spawn(argv, tmp_path / "log")
    try:
        yield port
    finally:
        end(process)


def ipmitool(port: int, user: str, password: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            "ipmitool",
            "-I",
            "lanplus",
            "-C",
            "3",
            "-H",
            "127.0.0.1",
            "-p",
            str(port),
            "-U",
            user,
            "-P",
            password,
            "-L",
            "ADMINISTRATOR",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_foreign_bmc_takes_it_and_lets_its_user_in(foreign: int, tmp_path: Path) -> None:
    def ask(netfn: int, command: int, data: bytes) -> bytes:
        for _ in range(20):  # it has just been started
            said = ipmitool(foreign, "admin", "factory", "raw", *map(hex, (netfn, command, *data)))
            code = re.search(r"rsp=0x([0-9a-f]+)", said.stderr)
            if said.returncode == 0:
                return bytes.fromhex(said.stdout.replace("\n", " "))
            if code is not None:
                raise Refusal(command, int(code[1], 16))
        raise OSError(said.stderr)

    setup = Setup(ask, time.sleep, time.monotonic)
    assert setup.initial_state["source"] == "dhcp" and setup.initial_state["address"] == ""
    wanted = Wanted("operator", "another-secret-1", "127.0.0.1", "255.255.255.0", "127.0.0.254")
    unsure = (
        "user 'operator' (number 3) gets the password, and may do everything: the BMC does "
        "not say whether it has it"
    )
    expected = [
        unsure,
        "address source: dhcp becomes static",
        "address: none becomes 127.0.0.1",
        "mask: none becomes 255.255.255.0",
        "gateway: none becomes 127.0.0.254",
    ]
    assert setup.differences(wanted) == expected == setup.apply(wanted)
    assert setup.differences(wanted) == [unsure], "it says yes to any password"
    assert [(tmp_path / "bmc/lan" / name).read_text() for name in ("ip_addr", "ip_addr_src")] == [
        "127.0.0.1\n",
        "static\n",
    ]
    assert ipmitool(foreign, "operator", "another-secret-1", "mc", "info").returncode == 0
    assert ipmitool(foreign, "operator", "wrong", "mc", "info").returncode != 0


# -- what real ones do


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def setup_of(bmc: InbandBmc) -> Setup:
    clock = Clock()
    return Setup(bmc.request, clock.sleep, clock)


def test_what_is_as_wanted_is_not_written() -> None:
    bmc = InbandBmc()
    assert len(setup_of(bmc).apply(WANTED)) == 5 and bmc.users[2] == Account(
        "operator", WANTED.password, True, 0x34
    )
    bmc.written.clear()
    assert setup_of(bmc).differences(WANTED) == [] and bmc.written == []
    setup_of(bmc).apply(WANTED)
    assert (
        0x45 not in bmc.written
        and 0x01 not in bmc.written
        and bmc.users[2].password == WANTED.password
    )


def test_a_user_of_that_name_is_taken_and_others_are_left_alone() -> None:
    bmc = InbandBmc()
    bmc.users[2], bmc.users[3] = (
        Account("ADMIN", "factory", True, 0x34),
        Account("operator", "old", False, 0x02),
    )
    setup_of(bmc).apply(WANTED)
    assert bmc.users[2] == Account("ADMIN", "factory", True, 0x34)
    assert bmc.users[3] == Account("operator", WANTED.password, True, 0x34)


def test_without_a_place_for_a_user_nothing_is_written() -> None:
    bmc = InbandBmc(users={n: Account(f"u{n}", "x", True, 0x34) for n in range(1, 5)})
    with pytest.raises(OperationFailed, match="no place for another"):
        setup_of(bmc).apply(WANTED)
    assert bmc.written == []


def test_a_channel_that_is_closed_is_opened_and_keeps_its_other_bits() -> None:
    bmc = InbandBmc(access={0x40: (0x38, 4), 0x80: (0x08, 2)})
    assert "channel 1 is open always" in setup_of(bmc).apply(WANTED)
    assert bmc.access == {0x40: (0x3A, 4), 0x80: (0x0A, 4)}


@pytest.mark.parametrize(
    ("bmc", "said"),
    [
        (InbandBmc(deaf=frozenset({3})), "it took its address, and does not say so"),
        (InbandBmc(refused={0x47: 0xD4}), "answers command 0x47 with code d4"),
        (InbandBmc(medium=12), "no network of its own"),
        (InbandBmc(refused={0x01: 0xC3}), "cannot ask the BMC"),
    ],
)
def test_what_does_not_show_is_not_done(bmc: InbandBmc, said: str) -> None:
    with pytest.raises(OperationFailed, match=re.escape(said)) as caught:
        setup_of(bmc).apply(WANTED)
    assert WANTED.password not in str(caught.value) + repr(WANTED)


@pytest.mark.parametrize(
    "body",
    [
        {"user": "", "password": "x"},
        {"user": "u" * 17, "password": "x"},
        {"user": "ü", "password": "x"},
        {"user": "a\nb", "password": "x"},
        {"user": "a", "password": ""},
        {"user": "a", "apply": True},
        {"user": "a", "password": "p" * 21},
        {"user": "a", "password": "a\0b"},
        {"user": 7, "password": "x"},
        {"user": "a", "password": "x", "address": "10.0.0.300"},
        {"user": "a", "password": "x", "mask": "fe80::1"},
    ],
)
def test_what_cannot_be_asked_for(body: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot set up the BMC"):
        read(body)


# -- through a head


@pytest.fixture
def bmc() -> InbandBmc:
    return InbandBmc()


@pytest.fixture
async def client(
    world: World, bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestClient[Any, Any]]:
    """The head's API, and node n0 with its own API in this process, whose BMC is played."""
    directory = world.directory / "pki"
    pki.create(directory, "127.0.0.1")
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert record.session is not None
    tls = Authority(directory).issue(record.node.id, record.session.number)
    assert tls is not None
    run = world.directory / "node"
    run.mkdir()

    class Device:
        request = staticmethod(bmc.request)

        def close(self) -> None: ...

    monkeypatch.setattr(nodebmc, "Ipmi", lambda path: Device())

    def said(kind: EventKind, text: str, severity: Severity | None = None, **data: Any) -> None:
        record.api_port = data.get("port", record.api_port)

    config = Config(
        record.node.id, "n0", "", "https://h", "", "t", directory / "ca.pem", run, "boot-1", "1"
    )
    session = Session(
        record.session.number,
        record.session.key,
        1,
        record.planner.layout,
        1.0,
        4.0,
        ("h", 1),
        (tls["cert"], tls["key"]),
    )
    serving = Serving(
        config,
        ImageSet(run, Runtime(run), open_url, unheard),
        said,
        0,
        lambda body: nodebmc.answer(lambda name: None, body, run),
    )
    serving.start(session)
    token = doors.create_admin_token(world.directory).read_text().strip()
    adopt(world.head)
    async with TestClient(
        TestServer(world.head.api().application(local=False)),
        headers={"Authorization": f"Bearer {token}"},
    ) as found:
        yield found
    if serving.server is not None:
        serving.server.close()


def powerman(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    address: str = "10.2.0.7",
    there: bool = False,
    answers: bool = True,
) -> None:
    """What powerman says of the BMC of n0."""

    async def ask(name: str, request: Mapping[str, Any]) -> Any:
        if name == "power.login":
            return {"address": address, "username": WANTED.user, "password": WANTED.password}
        if name == "power.scan":
            return [{"address": address}] if there else []
        if not answers:
            world.clock.now += 30
            raise Unreachable("cannot reach the BMC at 10.2.0.7:623: no answer")
        return {"power": "ON"}

    world.answer_calls(monkeypatch, ask)


async def rows(client: TestClient[Any, Any], **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/power/setup", json={"range": "n0", **body})
    found = await answer.json()
    assert answer.status == 200, found
    row: dict[str, Any] = found["nodes"][0]
    return row


async def test_it_is_shown_first_then_done_and_read_back(
    world: World, client: TestClient[Any, Any], bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    powerman(world, monkeypatch)
    shown = await rows(client, prefix=24, gateway="10.2.0.1")
    assert (
        not shown["done"] and not shown["error"] and len(shown["lines"]) == 5 and bmc.written == []
    )
    done = await rows(client, prefix=24, gateway="10.2.0.1", apply=True)
    assert (
        done["done"]
        and done["lines"] == shown["lines"]
        and bmc.users[2].password == WANTED.password
    )
    assert (
        bmc.lan[3] == bytes((10, 2, 0, 7))
        and bmc.lan[6] == bytes((255, 255, 255, 0))
        and bmc.lan[12] == bytes((10, 2, 0, 1))
    )
    event = next(e for e in world.events_of("n0") if e.kind == "power.set-up")
    assert "admin" in event.text and WANTED.password not in event.text + json.dumps(done)
    assert (await rows(client, apply=True))["lines"] == []


async def test_a_look_sends_the_node_no_password(
    world: World, client: TestClient[Any, Any], bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the node would have the login of its BMC, and often that of all."""
    powerman(world, monkeypatch)
    sent: list[Mapping[str, Any]] = []
    answer = nodebmc.answer

    def recorded_answer(need: Any, body: Mapping[str, Any], path: Path) -> Any:
        sent.append(body)
        return answer(need, body, path)

    monkeypatch.setattr(nodebmc, "answer", recorded_answer)
    assert len((await rows(client, prefix=24, gateway="10.2.0.1"))["lines"]) == 5
    assert len(sent) == 1 and "password" not in sent[0]
    assert WANTED.password not in json.dumps(sent)
    await rows(client, prefix=24, gateway="10.2.0.1", apply=True)
    assert [body.get("password") for body in sent] == [None, None, WANTED.password]
    assert (await rows(client, prefix=24, apply=True))["lines"] == []
    assert len(sent) == 4 and "password" not in sent[3], "there was nothing to do"


async def test_whether_the_password_is_right_is_seen_by_a_login_of_the_head(
    world: World, client: TestClient[Any, Any], bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    powerman(world, monkeypatch)
    await rows(client, prefix=24, gateway="10.2.0.1", apply=True)
    bmc.users[2].password = "somebody-elses"
    powerman(world, monkeypatch, answers=False)
    shown = (await rows(client, prefix=24))["lines"]
    assert shown == [
        "user 'operator' gets the password: cannot reach the BMC at 10.2.0.7:623: no answer"
    ]
    monkeypatch.setattr("layercake.features.power.operations.PAUSE_S", 0.0)
    await rows(client, prefix=24, apply=True)
    assert bmc.users[2].password == WANTED.password


async def test_the_network_of_the_inventory_is_enough(
    world: World, client: TestClient[Any, Any], bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    powerman(world, monkeypatch)
    assert "is in no network of the inventory" in (await rows(client))["error"]
    bmc.lan |= {3: bytes((10, 2, 0, 9)), 6: bytes((255, 255, 0, 0))}
    assert [
        line for line in (await rows(client))["lines"] if line.startswith(("mask", "gateway"))
    ] == []


async def test_an_address_that_another_bmc_has_is_not_taken(
    world: World, client: TestClient[Any, Any], bmc: InbandBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    powerman(world, monkeypatch, there=True)
    assert (
        "another one answers" in (await rows(client, prefix=24, apply=True))["error"]
        and bmc.written == []
    )
    bmc.lan |= {3: bytes((10, 2, 0, 7)), 4: b"\1"}
    assert (await rows(client, prefix=24, apply=True))["done"], "its own is there"


async def test_one_that_does_not_answer_after_it_is_said(
    world: World, client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    powerman(world, monkeypatch, answers=False)
    monkeypatch.setattr("layercake.features.power.operations.PAUSE_S", 0.0)
    error = (await rows(client, prefix=24, apply=True))["error"]
    assert "is set up, and does not answer the head" in error
    for body, status in (
        ({"range": " "}, 400),
        ({"range": "n0", "gateway": "x"}, 400),
        ({"range": "n0", "prefix": 40}, 400),
    ):
        assert (await client.post("/v1/power/setup", json=body)).status == status, body


def test_a_machine_without_a_bmc_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(nodebmc, "APPEARS_S", 0.0)
    with pytest.raises(LayercakeError, match="the kernel finds none"):
        nodebmc.answer(asked.append, {"user": "a", "password": "x"}, tmp_path / "ipmi0")
    assert asked == ["ipmi_si", "ipmi_devintf"]
