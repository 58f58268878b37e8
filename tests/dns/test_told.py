"""What the DNS of the head is told, and what nodes are told of it: settings, inventory, the
modules' records, DHCP and minOS."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from layercake.head.modules import built_in
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node
from layercake.moduleapi.fields import Mistake
from powerman import module as power
from pxe import module as boot
from pxe.dns_settings import DnsSettings, forward, subnets
from pxe.inventory import Boot
from pxe.packets import dhcp
from pxe.subnet import of, own
from tests.support.site import boot_settings, site

PARTS = {module.name: module.part for module in built_in() if module.part is not None}


def read(text: str) -> Mapping[str, Node]:
    return load(textwrap.dedent(text), "rack.yaml", parts=PARTS).nodes


def mistakes(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(InventoryErrors) as caught:
        read(text)
    return [(p.line, p.message, p.hint) for p in caught.value.problems]


def test_aliases_of_nodes_and_of_a_range() -> None:
    nodes = read("""
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, aliases: db}
          n[1-2]: {mac: "52:54:00:00:00:02+", ip: 10.0.0.2+, aliases: [[web, git.example.org], login]}
          n3: {mac: "52:54:00:00:00:05", ip: 10.0.0.5}
    """)
    parts = [node.parts["pxe"] for node in nodes.values()]
    assert [part.aliases for part in parts if isinstance(part, Boot)] == [
        ("db",),
        ("web", "git.example.org"),
        ("login",),
        (),
    ]
    told = [
        boot.record(_facts(node), node.parts["pxe"], lambda secret: "")  # type: ignore[arg-type]
        for node in nodes.values()
    ]
    assert [record["aliases"] for record in told] == [
        ["db"],
        ["web", "git.example.org"],
        ["login"],
        [],
    ]
    again = [Node.from_record(node.to_record(), PARTS) for node in nodes.values()]
    assert again == list(nodes.values()), "they outlive the head"


def test_a_name_is_one_nodes() -> None:
    assert mistakes("""
        nodes:
          n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1, aliases: [db, n2]}
          n1: {mac: "52:54:00:00:00:02", ip: 10.0.0.2, aliases: [db]}
          n2: {mac: "52:54:00:00:00:03", ip: 10.0.0.3}
          n3: {mac: "52:54:00:00:00:04", ip: 10.0.0.4, aliases: [n3]}
          n4: {mac: "52:54:00:00:00:05", ip: 10.0.0.5, aliases: [n1]}
    """) == [
        (4, "name db of node n1 is taken", "node n0 has it, line 3"),
        (5, "name n2 of node n2 is taken", "node n0 has it, line 3"),
        (6, "name n3 of node n3 is taken", "node n3 has it, line 6"),
        (7, "name n1 of node n4 is taken", "node n1 has it, line 4"),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[a, a]", "stands there twice"),
        ("UPPER", "is not a name"),
        ("[a..b]", "is not a name"),
        ("'-a'", "is not a name"),
        ("'a b'", "is not a name"),
        ("'12'", "is not a name"),
        ("7", "expected text"),
        ("layercake", "cannot be an alias"),
        ("localhost", "cannot be an alias"),
        (f"[{'a' * 64}]", "is not a name"),
        (f"[{', '.join(f'a{n}' for n in range(17))}]", "16 at most"),
        ('"a\\n"', "is not a name"),
    ],
)
def test_what_is_no_alias(value: str, message: str) -> None:
    (found,) = mistakes(f"""
        nodes:
          n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, aliases: {value}}}
    """)
    assert message in found[1]


@dataclasses.dataclass(frozen=True)
class Facts:
    id: str
    name: str
    macs: tuple[str, ...]
    ip: str
    arch: str = "x86_64"
    firmware: str = "bios"
    boot_set: str = ""
    offers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    network: Mapping[str, Any] | None = None
    other_heads: tuple[str, ...] = ()


def _facts(node: Node, **offers: str) -> Facts:
    return Facts(node.id, node.name, node.macs, node.ip, offers=offers)


@pytest.mark.parametrize(
    ("bmc", "ip"),
    [
        ("{driver: ipmi, address: 10.1.0.1}", "10.1.0.1"),
        ("{driver: redfish, address: 'https://10.1.0.1:8000'}", "10.1.0.1"),
        ("{driver: redfish, address: 'https://[fd00::7]'}", "fd00::7"),
        ("{driver: ipmi, address: bmc7.example.org}", None),
        ("null", None),
    ],
)
def test_the_address_of_a_bmc_comes_from_the_power_module(bmc: str, ip: str | None) -> None:
    node = read(f"""
        nodes:
          n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {bmc}}}
    """)["n0"]
    offered = power.offers(_facts(node), node.parts.get("powerman"), None, site())  # type: ignore[arg-type]
    assert offered == ({"bmc-ip": ip} if ip else {})
    found = boot.record(_facts(node, **offered), node.parts["pxe"], lambda secret: "")  # type: ignore[arg-type]
    assert found["bmc"] == (ip or "")


FAR = {"name": "far", "subnet": "10.20.0.0/24", "gateway": "10.20.0.1"}


def test_nodes_are_told_the_head_where_their_network_has_no_servers_of_its_own() -> None:
    on = boot_settings(dns=["10.1.0.53"], boot={"dns": DnsSettings(serve=True, domain="site.test")})
    off = boot_settings(dns=["10.1.0.53"])
    assert (
        own(on).options[dhcp.DNS] == bytes((10, 99, 0, 1))
        and own(on).options[dhcp.DOMAIN] == b"site.test"
    )
    assert (
        own(off).options[dhcp.DNS] == bytes((10, 1, 0, 53)) and dhcp.DOMAIN not in own(off).options
    )
    assert of(FAR, on).options[dhcp.DNS] == bytes((10, 99, 0, 1)) and of(FAR, off).options[
        dhcp.DNS
    ] == bytes((10, 1, 0, 53))
    words = of({**FAR, "dns": ["10.9.9.9"], "domain": "far.test"}, on).kernel_parameters(
        "10.20.0.5"
    )
    assert "layercake.dns=10.9.9.9" in words and "layercake.domain=far.test" in words
    assert {"layercake.dns=10.99.0.1", "layercake.domain=site.test"} <= set(
        of(FAR, on).kernel_parameters("10.20.0.5")
    )


def test_settings() -> None:
    assert not DnsSettings().serve, "nothing is open to the network by default"
    assert (forward(None), forward([]), forward(["10.1.0.53"])) == (None, (), ("10.1.0.53",))
    assert subnets(["10.0.0.0/8"]) == ("10.0.0.0/8",)
    for value in ("10.0.0.0/8", ["10.0.0.1/8"], ["x"], ["10.0.0.0/8"] * 65):
        with pytest.raises(Mistake):
            subnets(value)
    with pytest.raises(Mistake):
        forward(["localhost"])
