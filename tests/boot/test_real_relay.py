"""The service behind a real relay (isc-dhcp-relay) and a router, asked by a real client (dhclient):
three network namespaces."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boot.test_interop import frame, is_reply, wait_until

pytestmark = [pytest.mark.root, pytest.mark.waits]

FAR_MAC, FAR_NODE = "52:54:00:00:01:02", "6b1f2a3c-0000-4000-8000-000000000002"
FAR = {
    "name": "far",
    "subnet": "10.120.0.0/24",
    "gateway": "10.120.0.1",
    "dns": ["10.1.0.53"],
    "ntp": ["10.1.0.123"],
    "domain": "far.example.org",
    "mtu": 1400,
    "routes": {"10.130.0.0/16": "10.120.0.254"},
}
RECORD = {"name": "n2.far.example.org", "macs": [FAR_MAC], "ip": "10.120.0.50", "network": FAR}
CONF = """initial-delay 0;
supersede dhcp-renewal-time 2;
option routes-of-rfc3442 code 121 = array of unsigned integer 8;
request subnet-mask, routers, host-name, domain-name, domain-name-servers, ntp-servers, interface-mtu, routes-of-rfc3442;
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def far(running: Any, wire: Any, tmp_path: Path) -> Iterator[str]:
    """A namespace behind the wire's other end, which is a router with a relay; its card is far0."""
    name = f"bf{secrets.token_hex(3)}"
    ip("netns", "add", name)
    relay = None
    try:
        ip(
            "link",
            "add",
            "far0",
            "netns",
            name,
            "address",
            FAR_MAC,
            "type",
            "veth",
            "peer",
            "name",
            "down0",
            "netns",
            wire.client,
        )
        ip("-n", name, "link", "set", "far0", "up")
        ip("-n", wire.client, "link", "set", wire.client_if, "address", "52:54:00:00:77:01")
        ip("-n", wire.client, "addr", "add", "10.99.0.254/24", "dev", wire.client_if)
        ip("-n", wire.client, "addr", "add", "10.120.0.1/24", "dev", "down0")
        ip("-n", wire.client, "link", "set", "down0", "up")
        ip("-n", wire.head, "route", "add", "10.120.0.0/24", "via", "10.99.0.254")
        wire.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        log = tmp_path / "relay.log"
        with log.open("w") as out:
            relay = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    wire.client,
                    "dhcrelay",
                    "-4",
                    "-d",
                    "--no-pid",
                    "-a",
                    "-id",
                    "down0",
                    "-iu",
                    wire.client_if,
                    "10.99.0.1",
                ],
                stdout=out,
                stderr=out,
            )
        wait_until(lambda: "Socket/fallback" in log.read_text(), 20)
        yield name
    finally:
        if relay is not None:
            relay.terminate()
            relay.wait(20)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def asked(running: Any, name: str, tmp_path: Path, until: Callable[[], bool]) -> str:
    """What dhclient has noted of its leases when something is so. It is given its address by hand:
    -sf /bin/true gives none."""
    ip("-n", name, "addr", "replace", "10.120.0.50/24", "dev", "far0")
    ip("-n", name, "route", "replace", "default", "via", "10.120.0.1")
    conf, leases = tmp_path / "dhclient.conf", tmp_path / "leases"
    conf.write_text(CONF)
    leases.touch()
    client = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            name,
            "dhclient",
            "-4",
            "-d",
            "-sf",
            "/bin/true",
            "-cf",
            str(conf),
            "-lf",
            str(leases),
            "-pf",
            str(tmp_path / "pid"),
            "far0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(until, 60)
        wait_until(lambda: leases.read_text().count("lease {") >= 2)
    finally:
        client.terminate()
        client.communicate(timeout=60)
    return leases.read_text()


def test_dhclient_behind_a_relay_is_told_its_own_network_and_renews_straight(
    running: Any, far: str, tmp_path: Path
) -> None:
    running.do(running.service.node_changed(FAR_NODE, RECORD))
    text = asked(running, far, tmp_path, lambda: running.stats().get("dhcp.acked", 0) >= 2)
    for line in (
        "fixed-address 10.120.0.50;",
        "option subnet-mask 255.255.255.0;",
        "option routers 10.120.0.1;",
        "option domain-name-servers 10.1.0.53;",
        "option ntp-servers 10.1.0.123;",
        "option interface-mtu 1400;",
        'option domain-name "far.example.org";',
        'option host-name "n2.far.example.org";',
        "option routes-of-rfc3442 16,10,130,10,120,0,254,0,10,120,0,1;",
        "option dhcp-server-identifier 10.99.0.1;",
    ):
        assert line in text, text
    heard = running.do(running.service.call("boot.relays", {}))
    assert (heard["far"]["relay"], heard["far"]["circuit"]) == ("10.120.0.1", "down0")
    assert running.stats()["dhcp.offered"] == 1, "it renewed by a request straight from its address"
    assert running.kinds() == []


def test_a_card_on_the_heads_link_that_belongs_behind_the_relay_gets_nothing(
    running: Any, packets: Any
) -> None:
    running.do(running.service.node_changed(FAR_NODE, RECORD))
    assert packets.exchange(frame("discover", [], mac=FAR_MAC), is_reply) is None
    assert running.kinds() == ["dhcp.other-network"]


def test_a_node_of_the_heads_network_behind_the_relay_gets_nothing(
    running: Any, far: str, tmp_path: Path
) -> None:
    running.do(running.service.node_changed(FAR_NODE, {**RECORD, "macs": ["52:54:00:00:01:03"]}))
    ip("-n", far, "link", "set", "far0", "address", "52:54:00:00:01:01")
    (tmp_path / "leases").touch()
    conf = tmp_path / "dhclient.conf"
    conf.write_text("timeout 3;\n")
    done = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            far,
            "dhclient",
            "-4",
            "-1",
            "-d",
            "-sf",
            "/bin/true",
            "-cf",
            str(conf),
            "-lf",
            str(tmp_path / "leases"),
            "-pf",
            str(tmp_path / "pid"),
            "far0",
        ],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    event = next(e for e in running.link.events if e[1] == "dhcp.other-network")
    assert event[4]["relay"] == "10.120.0.1" and "speaks for network far" in event[2]


def test_a_stranger_behind_the_relay_gets_an_address_of_that_network_and_renews_straight(
    running: Any, far: str, tmp_path: Path
) -> None:
    """No node is in that network. The first of its addresses for guests is the one that dhclient is
    given by hand."""
    running.do(
        running.service.network_changed("far", {**FAR, "guests": ["10.120.0.50-10.120.0.51"]})
    )
    text = asked(running, far, tmp_path, lambda: running.stats().get("dhcp.acked", 0) >= 2)
    for line in (
        "fixed-address 10.120.0.50;",
        "option routers 10.120.0.1;",
        "option dhcp-lease-time 600;",
        'option domain-name "far.example.org";',
        "option dhcp-server-identifier 10.99.0.1;",
    ):
        assert line in text, text
    assert running.stats()["dhcp.offered"] == 1 and "host-name" not in text
    (one,) = running.do(running.service.call("boot.leases", {}))["leases"]
    assert (one["mac"], one["network"]) == (FAR_MAC, "far")


def test_another_board_in_a_nodes_place_is_told_by_what_the_relay_adds(
    running: Any, far: str, tmp_path: Path
) -> None:
    """The relay is real; firmware is played by dhclient, which says that it is PXE."""
    place = "circuit down0 relay 10.120.0.1"
    running.do(
        running.service.node_changed(
            FAR_NODE, {**RECORD, "macs": ["52:54:00:00:01:03"], "option82": place}
        )
    )
    (tmp_path / "leases").touch()
    conf = tmp_path / "dhclient.conf"
    conf.write_text(
        "timeout 3;\ninitial-delay 0;\nsend vendor-class-identifier "
        '"PXEClient:Arch:00007:UNDI:003001";\n'
    )
    done = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            far,
            "dhclient",
            "-4",
            "-1",
            "-d",
            "-sf",
            "/bin/true",
            "-cf",
            str(conf),
            "-lf",
            str(tmp_path / "leases"),
            "-pf",
            str(tmp_path / "pid"),
            "far0",
        ],
        capture_output=True,
        timeout=120,
        check=False,
    )
    event = next((e for e in running.link.events if e[1] == "dhcp.place-claimed"), None)
    assert event is not None, done.stderr
    assert event[0] == FAR_NODE and event[4]["mac"] == FAR_MAC and event[2].endswith(place)
    heard = running.do(running.service.call("boot.heard", {"macs": [FAR_MAC]}))[FAR_MAC]
    assert (heard["relay"], heard["circuit"]) == ("10.120.0.1", "down0")
