"""What a correct inventory becomes: layers, ranges, defaults, ids, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imageapi.spec.names import NAME
from layercake.base.secrets import SecretRef
from layercake.features.machines.module import Whereabouts
from layercake.features.tpm.module import TpmPart
from layercake.fleet.wishes import Wishes
from layercake.head.modules import standard
from layercake.inventory.fields import IMAGE
from layercake.inventory.load import load as load_with
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node, NodeRecords, groups_of, node_id
from layercake.kraken.errors import InputError
from powerman.inventory import Bmc
from pxe.inventory import Boot
from tests.support.inventory import bmc_of, load

RACK = """\
defaults: {firmware: bios, arch: x86_64, console: ttyS0, kernel_args: "mitigations=off", state: up, images: []}
groups:
  ipmi: {bmc: {driver: ipmi, username: admin, password: {file: /etc/bmc}}}
  redfish: {bmc: {driver: redfish, username: admin, password: {env: BMC_PASSWORD}, verify_tls: false}}
  quiet: {kernel_args: quiet, images: [debian]}
nodes:
  n0: {groups: [ipmi], mac: 52:54:00:00:00:0A, ip: 10.99.0.50, firmware: bios, bmc: {address: 10.98.1.10, port: 623}}
  n1: {groups: [redfish, quiet], mac: ["52:54:00:00:00:0b", "52:54:00:00:00:0c"], ip: 10.99.0.51, firmware: uefi,
       state: off, bmc: {address: "https://10.98.1.11:8000", system: /redfish/v1/Systems/1}}
"""


def test_layers_go_from_defaults_over_groups_to_the_node() -> None:
    inventory = load(RACK, "rack.yaml", {"debian"})
    assert list(inventory.nodes) == ["n0", "n1"]
    assert inventory.nodes["n0"] == Node(
        id=node_id("n0"),
        name="n0",
        macs=("52:54:00:00:00:0a",),
        ip="10.99.0.50",
        groups=("ipmi",),
        parts={
            "head": Wishes(),
            "machines": Whereabouts(),
            "tpm": TpmPart(),
            "pxe": Boot(kernel_args="mitigations=off"),
            "powerman": Bmc(
                driver="ipmi",
                address="10.98.1.10",
                port=623,
                username="admin",
                password=SecretRef(file="/etc/bmc"),
            ),
        },
    )
    assert inventory.nodes["n1"] == Node(
        id=node_id("n1"),
        name="n1",
        macs=("52:54:00:00:00:0b", "52:54:00:00:00:0c"),
        ip="10.99.0.51",
        firmware="uefi",
        state="off",
        images=("debian",),
        groups=("redfish", "quiet"),
        parts={
            "head": Wishes(),
            "machines": Whereabouts(),
            "tpm": TpmPart(),
            "pxe": Boot(kernel_args="quiet"),
            "powerman": Bmc(
                driver="redfish",
                address="https://10.98.1.11:8000",
                port=8000,
                username="admin",
                password=SecretRef(env="BMC_PASSWORD"),
                system="/redfish/v1/Systems/1",
                verify_tls=False,
            ),
        },
    )
    assert inventory.groups == {"ipmi": ("n0",), "redfish": ("n1",), "quiet": ("n1",)}
    assert groups_of(inventory.nodes) == inventory.groups


def test_the_id_follows_from_the_name_for_ever() -> None:
    assert node_id("n0") == "b66cfd8d-8b0a-5cb3-b904-9d8d54fda657"


def test_a_range_declares_nodes_that_count_up() -> None:
    inventory = load("""\
groups: {r: {bmc: {driver: redfish}}}
nodes:
  c[00-15]: {groups: [r], mac: "52:54:00:00:00:f8+", ip: 10.0.0.250+, bmc: {address: "https://10.1.0.1+:8000"}}
""")
    assert list(inventory.nodes) == [f"c{i:02}" for i in range(16)]
    last = inventory.nodes["c15"]
    assert (last.macs, last.ip) == (("52:54:00:00:01:07",), "10.0.1.9")
    bmc = bmc_of(inventory, last.name)
    assert bmc is not None and bmc.address == "https://10.1.0.16:8000"


def test_a_range_takes_one_listed_value_per_node() -> None:
    inventory = load("""\
nodes:
  "n[8-10]":
    mac: ["52:54:00:00:00:01", ["52:54:00:00:00:02", "52:54:00:00:00:03"], "52:54:00:00:00:04"]
    ip: [10.0.0.8, 10.0.0.9, 10.0.0.10]
    bmc: {driver: ipmi, address: [10.1.0.8, 10.1.0.9, 10.1.0.10], port: [623, 624, 625]}
""")
    ports = {
        name: found.port
        for name in inventory.nodes
        if (found := bmc_of(inventory, name)) is not None
    }
    assert {n.name: (n.ip, n.macs[-1][-2:], ports[n.name]) for n in inventory.nodes.values()} == {
        "n8": ("10.0.0.8", "01", 623),
        "n9": ("10.0.0.9", "03", 624),
        "n10": ("10.0.0.10", "04", 625),
    }


@pytest.mark.parametrize(
    ("bmc", "address", "port"),
    [
        ("driver: ipmi, address: bmc-n0.example", "bmc-n0.example", 623),
        ("driver: ipmi, address: 'fd00::1', port: 1623", "fd00::1", 1623),
        ("driver: redfish, address: 10.1.0.1", "https://10.1.0.1", 443),
        ("driver: redfish, address: 10.1.0.1, port: 8443", "https://10.1.0.1:8443", 8443),
        ("driver: redfish, address: 'https://10.1.0.1/'", "https://10.1.0.1", 443),
        ("driver: redfish, address: 'http://10.1.0.1'", "http://10.1.0.1", 80),
        ("driver: redfish, address: 'fd00::1'", "https://[fd00::1]", 443),
        ("driver: redfish, address: 'https://[fd00::1]:8000'", "https://[fd00::1]:8000", 8000),
    ],
)
def test_bmc_addresses_take_their_drivers_form(bmc: str, address: str, port: int) -> None:
    found = bmc_of(
        load(f'nodes:\n  n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: {{{bmc}}}}}\n'), "n0"
    )
    assert found is not None
    assert (found.address, found.port) == (address, port)


def test_image_names_are_those_that_the_store_takes() -> None:
    assert IMAGE.pattern == NAME.pattern
    names = ("App2.0-rc1:2026.11", "debian")
    text = (
        f'nodes:\n  n0: {{mac: "52:54:00:00:00:01", ip: 10.0.0.1, images: [{", ".join(names)}]}}\n'
    )
    assert load(text, "", set(names)).nodes["n0"].images == names


def test_bmc_null_takes_the_groups_bmc_away() -> None:
    inventory = load("""\
groups: {g: {bmc: {driver: ipmi}}}
nodes:
  n0: {groups: [g], mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: null}
""")
    assert bmc_of(inventory, "n0") is None


def test_records_go_to_json_and_back_without_secrets() -> None:
    for node in load(RACK).nodes.values():
        record = json.loads(json.dumps(node.to_record()))
        assert standard().node(record) == node
    assert load(RACK).nodes["n0"].to_record()["bmc"]["password"] == {"file": "/etc/bmc"}


def test_a_record_of_an_older_version_gets_defaults_and_an_incomplete_one_is_refused() -> None:
    node = standard().node(
        {"id": "x", "name": "n0", "macs": [], "ip": "10.0.0.1", "from_the_future": 1}
    )
    assert (node.state, node.parts) == (
        "up",
        {"pxe": Boot(), "head": Wishes(), "machines": Whereabouts(), "tpm": TpmPart()},
    )
    with pytest.raises(InputError, match="macs is missing"):
        standard().node({"id": "x", "name": "n0"})
    with pytest.raises(InputError, match="field `driver`"):
        standard().node({"id": "x", "name": "n0", "macs": [], "ip": "", "bmc": {"address": "a"}})


def test_an_empty_inventory_has_no_nodes(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("nodes:\n")
    assert load(empty).nodes == {}
    assert load("").nodes == {}


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read inventory .*: No such file"):
        load(tmp_path / "nothing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InputError, match="byte 5 is not UTF-8"):
        load(tmp_path / "latin.yaml")


def test_a_node_without_a_bmc_says_so_in_either_way() -> None:
    text = """
groups: {g: {bmc: {driver: ipmi}}}
nodes:
  n0: {groups: [g], mac: "52:54:00:00:00:01", ip: 10.0.0.1, bmc: none}
  n1: {groups: [g], mac: "52:54:00:00:00:02", ip: 10.0.0.2, bmc: null}
  n2: {mac: "52:54:00:00:00:03", ip: 10.0.0.3}
"""
    assert [n.parts.get("powerman") for n in load(text).nodes.values()] == [None, None, None]


def the_mistake(text: str, **known: Any) -> tuple[int, str, str]:
    """(line, message, hint) of the one mistake in it."""
    with pytest.raises(InventoryErrors) as caught:
        load_with(text, "rack.yaml", parts=standard().parts, **known)
    (found,) = {(p.line, p.message, p.hint) for p in caught.value.problems}
    return found


def test_a_node_that_no_boot_set_is_for_is_a_mistake_where_it_stands() -> None:
    text = """
defaults: {firmware: uefi}
nodes:
  n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1}
  c[0-7]:
    arch: aarch64
    mac: "52:54:00:00:01:00+"
    ip: 10.0.1.0+
"""
    assert the_mistake(text, known_arches=["x86_64"])[:2] == (
        6,
        "node c[0-7]: no boot set is for aarch64",
    )
    assert (
        len(load_with(text, parts=standard().parts, known_arches=["x86_64", "aarch64"]).nodes) == 9
    )
    assert len(load(text).nodes) == 9


def test_a_profile_that_no_boot_set_is_of() -> None:
    text = """
nodes:
  n0: {mac: "52:54:00:00:00:01", ip: 10.0.0.1}
  g[0-1]:
    profile: gpus
    mac: "52:54:00:00:01:00+"
    ip: 10.0.1.0+
"""
    assert the_mistake(text, known_profiles={"gpu": "x86_64", "server": "x86_64"}) == (
        5,
        "node g[0-1]: no boot set is of profile gpus",
        "`layercake profile build gpus` makes one; did you mean gpu?",
    )
    mixed = {"gpus": "aarch64", "": "x86_64", "server": "x86_64"}
    assert the_mistake(text, known_arches=["x86_64", "aarch64"], known_profiles=mixed) == (
        5,
        "node g[0-1]: the boot sets of profile gpus are for aarch64, the node is of x86_64",
        "write one for x86_64 as its profile: server",
    )
    arm = text.replace("profile: gpus", "arch: aarch64\n    firmware: uefi")
    assert the_mistake(arm, known_arches=["x86_64", "aarch64"], known_profiles=mixed) == (
        5,
        "node g[0-1]: the site's default boot set is for x86_64, the node is of aarch64",
        "write one for aarch64 as its profile: gpus",
    )
    assert the_mistake(arm, known_arches=["x86_64", "aarch64"], known_profiles={"": "x86_64"})[
        2
    ] == ("`layercake profile build NAME --arch aarch64` makes a profile for it")
    assert (
        len(load_with(text, parts=standard().parts, known_profiles={"gpus": "x86_64"}).nodes)
        == len(load(text).nodes)
        == 3
    )


def test_parts_of_stored_nodes_are_shared_where_they_are_the_same() -> None:
    parts = standard().parts
    nodes = [*load(RACK, "rack.yaml", {"debian"}).nodes.values()]
    order = [nodes[0], nodes[1], nodes[1], nodes[0]]
    records = NodeRecords(parts)
    read = [records.node(json.loads(json.dumps(node.to_record()))) for node in order]
    assert read == order == [Node.from_record(node.to_record(), parts) for node in order]
    assert (
        read[1].parts["powerman"] is read[2].parts["powerman"]
        and read[0].parts["powerman"] is not read[3].parts["powerman"]
    )
    with pytest.raises(InputError, match="port"):
        records.node({**nodes[1].to_record(), "bmc": {**nodes[1].to_record()["bmc"], "port": True}})
