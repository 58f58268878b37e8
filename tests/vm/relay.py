"""Nodes in other networks, from power-off to a running image: two behind a router and a real DHCP
relay, one in a VLAN that the head is in itself besides, and that has no router, and one in a
network of IPv6 alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from vrack import relayed
from vrack.faults import UNTAGGED, FaultyNetwork
from vrack.relayed import RelayedNetwork
from vrack.spec import (
    BRIDGE,
    SIDE_ADDRESS,
    SIDE_BRIDGE,
    SIDE_SUBNET,
    SIX_ADDRESS,
    SIX_SUBNET,
    BmcKind,
    Firmware,
    NicRom,
    VmSpec,
)

if TYPE_CHECKING:
    from tests.vm.conftest import Site

LIMIT_S = 300.0
SLOTS = (3, 4)
BIOS, UEFI = "n3", "n4.far.test"
FAR = {BIOS, UEFI}
SIDE = "n5"
SIX = "n6"
SIDE_SLOT = 5
VLAN = 40
EVERY, ALL_SLOTS = {BIOS, UEFI, SIDE, SIX}, (*SLOTS, 5, 6)
_NO_IPV4 = ("-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n")


def machines() -> list[VmSpec]:
    """The machines for the slots: SeaBIOS with iPXE, and OVMF's own PXE, so that TFTP is on the way
    too. One's name has dots. The last two are in the networks at the head's side."""
    return [
        VmSpec(Firmware.BIOS, BmcKind.IPMI, name=BIOS, ip=relayed.address(SLOTS[0])),
        VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            name=UEFI,
            ip=relayed.address(SLOTS[1]),
            nic_rom=NicRom.FIRMWARE,
        ),
        VmSpec(Firmware.UEFI, BmcKind.IPMI, name=SIDE, ip="10.121.0.55", nic_rom=NicRom.FIRMWARE),
        VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            name=SIX,
            ip="fd00:121::56",
            nic_rom=NicRom.FIRMWARE,
            more=_NO_IPV4,
        ),
    ]


def nodes_in_other_networks_boot(site: Site) -> None:
    """All boot at once, two of them over the relay, are told what their own network has, and go
    again."""
    near = site.inventory()
    vlan = FaultyNetwork(
        site.rack,
        (SIDE_SLOT,),
        uplinks={UNTAGGED: BRIDGE, VLAN: SIDE_BRIDGE},
        vlans={SIDE_SLOT: VLAN},
    )
    with RelayedNetwork(site.rack, SLOTS) as network, vlan:
        text = network.inventory(_with_far(site))
        (site.head.data / "far.yaml").write_text(text)
        planned = site.head.cli("plan", str(site.head.data / "far.yaml")).stdout
        assert "network far: is new, subnet 10.120.0.0/24, gateway 10.120.0.1" in planned
        try:
            site.head.apply(text)
            site.head.wait_converged(LIMIT_S, EVERY)
            site.told(*EVERY)
            for name in FAR:
                _has_its_network(site, name)
            _faces_the_head(site)
            _others_agree(site)
            _is_shown(site)
        finally:
            site.head.cli("node", "off", ",".join(sorted(EVERY)), "--yes")
            site.head.wait(
                "they are off",
                lambda: not any(site.rack.vm_alive(slot) for slot in ALL_SLOTS),
                LIMIT_S,
            )
            site.head.apply(near, allow_remove=True)


def _with_far(site: Site) -> str:
    """The inventory of the near nodes with the far ones."""
    near, every = (
        yaml.safe_load(site.inventory()),
        yaml.safe_load(site.rack.inventory(images=["plain-1"])),
    )
    near["nodes"] |= {name: every["nodes"][name] for name in EVERY}
    near["networks"] = {
        "side": {"subnet": SIDE_SUBNET},
        "six": {"subnet": SIX_SUBNET, "domain": "six.test"},
    }
    return str(yaml.safe_dump(near, sort_keys=False))


def _has_its_network(site: Site, name: str) -> None:
    offers = [e for e in site.head.history(name) if e["kind"] == "boot.offer-sent"]
    assert offers and all(e["data"]["relay"] == relayed.ROUTER for e in offers), (
        "each request came by the relay"
    )
    assert all(e["data"]["circuit"] == "rdown" for e in offers), (
        "the relay says on which of its interfaces"
    )

    def said(*command: str) -> str:
        return site.head.cli("node", "exec", name, "--", *command).stdout

    def serves() -> bool:
        """An agent that has just begun does not serve yet."""
        return site.head.cli("node", "exec", name, "--", "id", check=False).returncode == 0

    site.head.wait(f"{name} serves", serves, 60)
    assert "10.130.0.0/16 via 10.120.0.1" in said("ip", "route")
    assert "mtu 1400" in said("ip", "link")
    assert said("cat", "/etc/resolv.conf") == "search far.test\nnameserver 10.99.0.1\n"
    assert said("hostname").strip() == name
    full = name if "." in name else f"{name}.far.test"
    assert f"{full} {name.partition('.')[0]}" in said("cat", "/etc/hosts")
    inside = site.head.cli(
        "node", "exec", name, "--container", "plain-1", "--", "cat", "/etc/hosts"
    ).stdout
    assert full in inside, "and images know it"


def _faces_the_head(site: Site) -> None:
    """All that it was told of the head is the head's address in its own network: it has no way to
    another one."""
    words = site.head.cli("node", "exec", SIDE, "--", "cat", "/proc/cmdline").stdout
    assert (
        f"layercake.head=https://{SIDE_ADDRESS}:8443" in words
        and f"layercake.sync={SIDE_ADDRESS}:" in words
    )
    assert "default" not in site.head.cli("node", "exec", SIDE, "--", "ip", "route").stdout
    assert not [e for e in site.head.history(SIDE) if e["kind"] == "dhcp.other-network"]
    assert "side" in site.head.cli("networks").stdout
    addresses = site.head.cli("node", "exec", SIX, "--", "ip", "addr").stdout
    assert "fd00:121::56/64" in addresses and "inet 10." not in addresses, "it has no IPv4"
    assert (
        f"layercake.head=https://[{SIX_ADDRESS}]:8443"
        in site.head.cli("node", "exec", SIX, "--", "cat", "/proc/cmdline").stdout
    )


def _others_agree(site: Site) -> None:
    """What foreign programs make of the head, in each of its networks."""

    def said(*command: str) -> str:
        done = site.rack.run(command, 60)
        return done.stdout + done.stderr

    for server in (SIDE_ADDRESS, SIX_ADDRESS, "10.99.0.1"):
        assert said("dig", "+short", f"@{server}", "n6.six.test", "AAAA").strip() == "fd00:121::56"
        assert "n4.far.test." in said(
            "kdig", "+short", f"@{server}", "-x", relayed.address(SLOTS[1])
        )
        assert "System clock wrong by" in said(
            "chronyd", "-Q", "-t", "20", f"server {server} iburst maxsamples 1"
        )


def _is_shown(site: Site) -> None:
    found = {n["name"]: n for n in site.head.api("GET", "/v1/networks")["networks"]}
    assert (found["far"]["nodes"], found["far"]["relay"]["relay"]) == (2, relayed.ROUTER)
    assert (found[""]["subnet"], found[""]["nodes"], found[""]["relay"]) == (
        "10.99.0.0/24",
        2,
        None,
    )
    assert "10.120.0.1 port rdown" in site.head.cli("networks").stdout
