"""The head's DNS as a site has it: a real head, told by settings and an inventory, asked by dig
from a machine on its network."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.check.conftest import HEAD, IPMI, CheckSite
from tests.support.images import eventually

pytestmark = pytest.mark.root


def turn_on(site: CheckSite) -> None:
    """Has the settings say that the head answers DNS."""
    path = site.data / "config.yaml"
    found = yaml.safe_load(path.read_text())
    assert "dns" not in found["boot"], (
        "a head of version 0.1 can read settings as `init` writes them"
    )
    path.write_text(
        yaml.safe_dump(
            {**found, "boot": {**found["boot"], "dns": {"serve": True, "domain": "site.test"}}}
        )
    )


def dig(site: CheckSite, namespace: str, *words: str) -> list[str]:
    """The lines that dig prints in a namespace."""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "dig", "+short", f"@{HEAD}", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout.split()


def command(site: CheckSite, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the CLI, on the head."""
    return subprocess.run(
        [sys.executable, "-m", "layercake.cli.main", "--socket", str(site.socket), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_names_of_an_applied_inventory_and_of_the_next(site_off: CheckSite) -> None:
    turn_on(site_off)
    machine = site_off.machine("admin", "52:54:00:aa:00:07", "10.99.0.7")
    site_off.start_head()
    site_off.apply()
    eventually(lambda: dig(site_off, machine, "n0.site.test") == ["10.99.0.50"])
    assert dig(site_off, machine, "n0-bmc.site.test") == [IPMI[0]]
    assert dig(site_off, machine, "-x", "10.99.0.51") == ["n1.site.test."]
    shown = command(site_off, "dns", "n1")
    assert (shown.returncode, shown.stdout.splitlines()[1].split()) == (
        0,
        ["n1", "A", "10.99.0.51", "n1"],
    ), shown.stderr
    whole: Any = yaml.safe_load(command(site_off, "--json", "dns").stdout)
    assert whole["serves"] and whole["domains"] == ["site.test"] and len(whole["records"]) > 18
    networks: Any = yaml.safe_load(command(site_off, "--json", "networks").stdout)
    assert networks["networks"][0]["dns"] == [HEAD], "what nodes are told"
    second = yaml.safe_load(site_off.inventory())
    second["nodes"]["n0"] |= {"aliases": ["db"], "ip": "10.99.0.60"}
    del second["nodes"]["n1"]
    site_off.api(
        "POST",
        "/v1/inventory/apply",
        {"yaml": yaml.safe_dump(second), "file": "site.yaml", "allow_remove": True},
    )
    eventually(lambda: dig(site_off, machine, "db.site.test") == ["n0.site.test.", "10.99.0.60"])
    eventually(lambda: dig(site_off, machine, "n1.site.test") == [])
    assert command(site_off, "dns", "n1.site.test").returncode == 1


def test_a_port_of_dns_that_another_program_has(site_off: CheckSite) -> None:
    turn_on(site_off)
    site_off.spawn(
        site_off.head,
        [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            f"--listen-address={HEAD}",
            "--bind-interfaces",
            "--user=root",
            "--pid-file=",
        ],
    )
    eventually(lambda: ":53" in site_off.in_head("ss", "-Hlun", "sport = :53"))
    found = site_off.check("--only", "tftp", code=1)
    assert "UDP port 53" in found["tftp"][0]["text"] and "for DNS" in found["tftp"][0]["text"]
