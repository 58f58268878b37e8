"""Inventories of simulated nodes: made up, and a site's own without its BMCs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import InputError
from layercake.sim import inventory
from tests.sim.played import playing

SITE = """
defaults: {state: up, images: [debian-12], firmware: uefi}
networks:
  rack2: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}
groups:
  left: {domain: true}
  bmcs: {bmc: {driver: redfish, username: admin, password: {file: /etc/layercake/secrets/bmc}, verify_tls: false}}
nodes:
  c[00-07]: {mac: 52:54:00:00:01:00+, ip: 10.99.1.10+, groups: [left, bmcs], bmc: {address: https://10.98.2.10+:8000}, priority: 5}
  d[00-07]: {mac: "52:54:00:00:02:00+", ip: 10.20.0.10+, groups: [bmcs], bmc: {address: 10.98.3.10+}, profile: virtual}
  one: {mac: 52:54:00:00:03:00, ip: 10.99.1.100, bmc: {driver: redfish, address: "https://b", system: /redfish/v1/Systems/1}}
  hand: {mac: 52:54:00:00:03:01, ip: 10.99.1.200, bmc: null}
"""


@pytest.mark.parametrize("nodes", [1, 40, 41, 1000])
def test_made_up_nodes_are_in_racks_and_have_all_of_their_own(nodes: int) -> None:
    simulated = inventory.simulated_site(inventory.generated(nodes))
    assert len(simulated.identities) == nodes and simulated.images == ["one"]
    for what in ("name", "id", "mac", "ip", "bmc"):
        assert len({getattr(identity, what) for identity in simulated.identities}) == nodes, what
    assert all(
        node.domains == (f"rack{name[1:5]}",) for name, node in simulated.inventory.nodes.items()
    )


@pytest.mark.parametrize("nodes", [0, 100_001])
def test_a_fleet_has_bounds(nodes: int) -> None:
    with pytest.raises(InputError, match="1 to 100000"):
        inventory.generated(nodes)


def test_a_hundred_thousand_nodes_are_an_inventory() -> None:
    text = inventory.generated(100_000)
    assert text.count("\n") < 6000 and "r2499n[00-39]" in text


def test_a_sites_inventory_keeps_its_nodes_and_no_bmc_of_its_own() -> None:
    text = inventory.replaced(SITE)
    for word in ("password", "admin", "verify_tls", "https", "redfish,", "driver: redfish"):
        assert word not in text, word
    simulated = inventory.simulated_site(text, heads=["10.99.1.1/24"])
    by_name = {identity.name: identity for identity in simulated.identities}
    assert (by_name["c03"].bmc, by_name["d03"].bmc, by_name["hand"].bmc) == (
        "10.98.2.13:8000",
        "10.98.3.13:623",
        "",
    )
    assert (
        by_name["one"].bmc == "b:623/redfish/v1/Systems/1"
        and by_name["c03"].mac == "52:54:00:00:01:03"
    )
    assert simulated.profiles == [("", "x86_64"), ("virtual", "x86_64")] and simulated.images == [
        "debian-12"
    ]
    assert simulated.inventory.nodes["d00"].network == "rack2" and simulated.inventory.nodes[
        "c00"
    ].domains == ("left",)


def test_the_head_gets_an_address_that_no_node_has() -> None:
    text = """
nodes:
  n[0-9]: {mac: "52:54:00:00:00:00+", ip: 10.9.3.1+}
  m: {mac: "52:54:00:00:01:00", ip: 10.9.9.1}
"""
    simulated = inventory.simulated_site(inventory.replaced(text))
    assert simulated.head == "10.9.0.1/20"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("{", "not YAML"),
        ("nodes: {}", "cannot simulate 0 nodes"),
        (SITE, "which one the head is in"),
        ("nodes: {n: {mac: x, ip: 10.0.0.9}}", "1 mistake"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "i.yaml").write_text(text)
    with pytest.raises(InputError, match=why):
        inventory.of_file(tmp_path / "i.yaml")


@pytest.mark.root
def test_a_site_is_played_with_its_own_inventory_and_settings(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("s")
    (folder / "i.yaml").write_text(SITE)
    (folder / "c.yaml").write_text(
        json.dumps(
            {
                "interface": "eth9",
                "address": "10.99.1.1",
                "prefix": 24,
                "slurm": {"conf": "/etc/slurm.conf"},
                "sync": {"hello_s": 2, "dead_s": 6},
                "secrets": "/etc/layercake/secrets",
            }
        )
    )
    with playing(
        folder / "d", inventory=str(folder / "i.yaml"), config=str(folder / "c.yaml"), dhcp=True
    ) as sim:
        sim.until(
            "all but the one that a person switches", lambda: sim.nodes()["converged"] == 17, 60
        )
        assert sim.nodes()["asking"] == 1
        config = (folder / "d" / "config.yaml").read_text()
        assert "slurm" not in config and "secrets" not in config and "eth9" not in config


Run = Callable[..., Any]


def test_the_command_prints_an_inventory(run: Run, tmp_path: Path) -> None:
    assert "r0000n[00-02]" in run("sim", "inventory", "--nodes", "3").out
    (tmp_path / "i.yaml").write_text(SITE)
    assert "driver: sim" in run("sim", "inventory", "--of", str(tmp_path / "i.yaml")).out
    assert run("sim", "inventory", "--of", str(tmp_path / "none")).code == 2
    for wrong in (("--loss", "two"), ("--delay", "15"), ("--loss", "101%"), ("--nodes", "100001")):
        assert run("sim", "run", "--dir", str(tmp_path / "d"), *wrong).code == 2
    assert not (tmp_path / "d").exists()
