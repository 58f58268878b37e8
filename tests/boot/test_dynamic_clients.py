"""Machines that are not in the inventory, played by real clients (dhclient, udhcpc) on a real
wire."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.dhcp import BOOTP
from scapy.layers.l2 import Ether

from pxe.dynamic.lease_file import FILE
from tests.boot.test_interop import (
    HTTP_UEFI,
    PXE_BIOS,
    PXE_UEFI,
    STRANGER,
    frame,
    is_reply,
    options_of,
    wait_until,
)

pytestmark = [pytest.mark.root, pytest.mark.waits]

NETWORK = {
    "name": "own",
    "subnet": "10.99.0.0/24",
    "gateway": "10.99.0.254",
    "domain": "own.test",
    "guests": ["10.99.0.200-10.99.0.203"],
}
CONF = (
    'initial-delay 0;\nsend host-name = "laptop";\nrequest subnet-mask, routers, domain-name, '
    "host-name;\ntimeout 30;\n"
)
SCRIPT = """#!/bin/sh
case "$reason$1" in
    BOUND|RENEW|REBIND|REBOOT) ip addr replace "$new_ip_address/24" dev "$interface";;
    bound|renew) ip addr replace "$ip/24" dev "$interface"; env > "$LOG.$1";;
esac
"""


@pytest.fixture
def hosting(running: Any, wire: Any) -> Any:
    """The service with four addresses for guests, and a card at the other end that nobody knows."""
    subprocess.run(
        ["ip", "-n", wire.client, "link", "set", wire.client_if, "address", STRANGER], check=True
    )
    running.do(running.service.network_changed("own", NETWORK))
    return running


def leases(running: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = running.do(running.service.call("boot.leases", {}))["leases"]
    return found


class Dhclient:
    """dhclient at the node's end, with its files in a directory."""

    def __init__(self, wire: Any, directory: Path) -> None:
        self._wire, self._directory = wire, directory
        self.leases = directory / "dhclient.leases"
        self.leases.touch()
        self.script = directory / "script"
        self.script.write_text(SCRIPT)
        self.script.chmod(0o755)

    def words(self, conf: str) -> list[str]:
        (self._directory / "dhclient.conf").write_text(conf)
        return [
            "dhclient",
            "-4",
            "-d",
            "-sf",
            str(self.script),
            "-cf",
            str(self._directory / "dhclient.conf"),
            "-lf",
            str(self.leases),
            "-pf",
            str(self._directory / "pid"),
            self._wire.client_if,
        ]

    @contextlib.contextmanager
    def runs(self, conf: str = CONF) -> Iterator[None]:
        client = subprocess.Popen(
            ["ip", "netns", "exec", self._wire.client, *self.words(conf)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            client.kill()  # it gives nothing back, as a laptop that is carried away
            client.wait(60)


@pytest.fixture
def dhclient(wire: Any, tmp_path: Path) -> Dhclient:
    return Dhclient(wire, tmp_path)


def test_dhclient_gets_an_address_renews_it_and_keeps_it_over_a_restart_of_the_head(
    hosting: Any, wire: Any, dhclient: Dhclient, files: dict[str, Any], make_running: Any
) -> None:
    with dhclient.runs(CONF + "supersede dhcp-renewal-time 2;\n"):
        wait_until(lambda: hosting.stats().get("dhcp.acked", 0) >= 2)
        assert hosting.stats()["dhcp.offered"] == 1
        text = dhclient.leases.read_text()
        for line in (
            "fixed-address 10.99.0.200;",
            "option dhcp-lease-time 600;",
            "option routers 10.99.0.254;",
            'option domain-name "own.test";',
            "option dhcp-server-identifier 10.99.0.1;",
        ):
            assert line in text, text
        assert "filename" not in text and "option host-name" not in text
        (one,) = leases(hosting)
        assert (one["mac"], one["address"], one["name"], one["network"]) == (
            STRANGER,
            "10.99.0.200",
            "laptop",
            "own",
        )
        wait_until(lambda: (Path(files["data_dir"]) / FILE).exists())
        hosting.stop()
        again = make_running(wire, files)
        again.start()
        try:
            again.do(again.service.network_changed("own", NETWORK))
            assert [found["address"] for found in leases(again)] == ["10.99.0.200"]
            wait_until(lambda: again.stats().get("dhcp.acked", 0) >= 1)
            assert again.stats().get("dhcp.offered", 0) == 0, "it renewed what it had"
        finally:
            again.stop()
    assert hosting.kinds() == ["dhcp.unknown-mac"] and again.kinds() == []


def test_dhclient_that_starts_again_asks_for_what_it_had(hosting: Any, dhclient: Dhclient) -> None:
    for times in (1, 2):
        with dhclient.runs():
            wait_until(lambda times=times: hosting.stats().get("dhcp.acked", 0) >= times)  # type: ignore[misc]
            wait_until(lambda: "fixed-address" in dhclient.leases.read_text())  # it has noted it
    assert hosting.stats()["dhcp.offered"] == 1


def test_dhclient_that_comes_from_another_network_is_told_so_at_once(
    hosting: Any, wire: Any, dhclient: Dhclient
) -> None:
    dhclient.leases.write_text(f"""lease {{
  interface "{wire.client_if}";
  fixed-address 192.168.1.20;
  option subnet-mask 255.255.255.0;
  option dhcp-lease-time 86400;
  option dhcp-server-identifier 192.168.1.1;
  renew never;
  rebind never;
  expire never;
}}
""")
    with dhclient.runs():
        wait_until(lambda: hosting.stats().get("dhcp.acked", 0) >= 1)
    assert hosting.stats()["dhcp.naked"] >= 1
    assert [one["address"] for one in leases(hosting)] == ["10.99.0.200"]


def test_udhcpc_gets_an_address_and_gives_it_back(
    hosting: Any, wire: Any, dhclient: Dhclient, tmp_path: Path
) -> None:
    words = [
        "env",
        f"LOG={tmp_path}/said",
        "busybox",
        "udhcpc",
        "-i",
        wire.client_if,
        "-f",
        "-n",
        "-R",
        "-s",
        str(dhclient.script),
    ]
    client = subprocess.Popen(
        ["ip", "netns", "exec", wire.client, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (tmp_path / "said.bound").exists())
        wait_until(lambda: "opt53" in (tmp_path / "said.bound").read_text())
        said = dict(
            line.partition("=")[::2] for line in (tmp_path / "said.bound").read_text().splitlines()
        )
        assert (said["ip"], said["lease"], said["serverid"], said["router"]) == (
            "10.99.0.200",
            "600",
            "10.99.0.1",
            "10.99.0.254",
        )
        assert not {"siaddr", "boot_file", "bootfile", "tftp"} & said.keys()
        assert len(leases(hosting)) == 1
    finally:
        client.terminate()
        client.wait(60)
    wait_until(lambda: leases(hosting) == [])
    assert hosting.stats()["dhcp.released"] == 1


@pytest.mark.parametrize("options", [PXE_BIOS, PXE_UEFI, HTTP_UEFI])
def test_firmware_of_a_stranger_is_offered_nothing_to_boot(
    hosting: Any, packets: Any, options: list[Any]
) -> None:
    data = packets.exchange(frame("discover", options, mac=STRANGER), is_reply)
    assert data is not None
    reply, found = Ether(data), options_of(Ether(data))
    assert (reply[BOOTP].yiaddr, reply[BOOTP].siaddr, reply[BOOTP].file.rstrip(b"\0")) == (
        "10.99.0.200",
        "0.0.0.0",
        b"",
    )
    assert (
        not {"boot-file-name", "tftp_server_name", "vendor_class_id", "vendor_specific"}
        & found.keys()
    )


def test_a_flood_of_strangers_leaves_nodes_and_guests_their_addresses(
    hosting: Any, packets: Any, dhclient: Dhclient
) -> None:
    with dhclient.runs():
        wait_until(lambda: hosting.stats().get("dhcp.acked", 0) >= 1)
    for n in range(3000):
        with contextlib.suppress(BlockingIOError):
            packets.sock.send(frame("discover", [], mac=f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}"))
    node = packets.exchange(
        frame("discover", []),
        lambda data: (
            is_reply(data)
            and Ether(data)[BOOTP].xid == 99
            and Ether(data).dst == "52:54:00:00:01:01"
        ),
    )
    assert node is not None and Ether(node)[BOOTP].yiaddr == "10.99.0.11"
    assert [one["address"] for one in leases(hosting)] == ["10.99.0.200"]
    counts = hosting.do(hosting.service.call("boot.guests", {}))
    assert counts == {"own": {"used": 1, "addresses": 4}}
