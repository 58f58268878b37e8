"""Nodes in a second network, behind a router and a real DHCP relay: from power-off to a running image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from vrack import relayed
from vrack.relayed import RelayedNetwork
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec

if TYPE_CHECKING:
    from tests.vm.conftest import Site

LIMIT_S = 300.0
SLOTS = (3, 4)
BIOS, UEFI = "n3", "n4.far.test"
FAR = {BIOS, UEFI}


def machines() -> list[VmSpec]:
    """The machines for the slots: SeaBIOS with iPXE, and OVMF's own PXE, so that TFTP is on the way too. One's name has dots."""
    return [VmSpec(Firmware.BIOS, BmcKind.IPMI, name=BIOS, ip=relayed.address(SLOTS[0])),
            VmSpec(Firmware.UEFI, BmcKind.REDFISH, name=UEFI, ip=relayed.address(SLOTS[1]), nic_rom=NicRom.FIRMWARE)]


def nodes_behind_a_relay_boot(site: Site) -> None:
    """Both boot at once over the relay, are told what their own network has, and go again."""
    near = site.inventory()
    with RelayedNetwork(site.rack, SLOTS) as network:
        text = network.inventory(_with_far(site))
        (site.head.data / "far.yaml").write_text(text)
        planned = site.head.cli("plan", str(site.head.data / "far.yaml")).stdout
        assert "network far: is new, subnet 10.120.0.0/24, gateway 10.120.0.1" in planned
        try:
            site.head.apply(text)
            site.head.wait_converged(LIMIT_S, FAR)
            site.told(*FAR)
            for name in FAR:
                _has_its_network(site, name)
            _is_shown(site)
        finally:
            site.head.cli("node", "off", ",".join(sorted(FAR)), "--yes")
            site.head.wait("they are off", lambda: not any(site.rack.vm_alive(slot) for slot in SLOTS), LIMIT_S)
            site.head.apply(near, allow_remove=True)


def _with_far(site: Site) -> str:
    """The inventory of the near nodes with the far ones."""
    near, every = yaml.safe_load(site.inventory()), yaml.safe_load(site.rack.inventory(images=["plain-1"]))
    near["nodes"] |= {name: every["nodes"][name] for name in FAR}
    return str(yaml.safe_dump(near, sort_keys=False))


def _has_its_network(site: Site, name: str) -> None:
    offers = [e for e in site.head.history(name) if e["kind"] == "boot.offer-sent"]
    assert offers and all(e["data"]["relay"] == relayed.ROUTER for e in offers), "each request came by the relay"
    assert all(e["data"]["circuit"] == "rdown" for e in offers), "the relay says on which of its interfaces"

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
    inside = site.head.cli("node", "exec", name, "--container", "plain-1", "--", "cat", "/etc/hosts").stdout
    assert full in inside, "and images know it"


def _is_shown(site: Site) -> None:
    found = {n["name"]: n for n in site.head.api("GET", "/v1/networks")["networks"]}
    assert (found["far"]["nodes"], found["far"]["relay"]["relay"]) == (2, relayed.ROUTER)
    assert (found[""]["subnet"], found[""]["nodes"], found[""]["relay"]) == ("10.99.0.0/24", 2, None)
    assert "10.120.0.1 port rdown" in site.head.cli("networks").stdout
