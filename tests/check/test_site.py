"""`layercake check` as a person runs it: on a site that is as it has to be, and on one with many
faults at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from layercake.check.machine import synchronised
from layercake.check.table import CHECKS
from tests.check.conftest import DEAD, HEAD, REDFISH, CheckSite, ip
from tests.support.images import eventually

pytestmark = pytest.mark.root

DNSMASQ = (
    "dnsmasq",
    "--no-daemon",
    "--conf-file=/dev/null",
    "--port=0",
    "--interface=eth0",
    "--bind-interfaces",
    "--user=root",
)
_NFT = """
table inet site {
  chain input {
    type filter hook input priority 0; policy accept;
    iifname "br0" udp dport { 69, 623 } drop
  }
}
"""


def test_a_site_that_is_well_has_nothing_to_do(site: CheckSite) -> None:
    found = site.check(code=0)
    assert list(found) == [check.name for check in CHECKS]
    # The clock is this machine's own: nobody may keep it right where the tests run.
    wrong = [
        r
        for name, results in found.items()
        for r in results
        if r["severity"] != "ok" and name != "time"
    ]
    assert not wrong
    assert [r["severity"] for r in found["time"]] == ["ok" if synchronised() else "warning"]
    assert found["bmc"][0]["text"] == "all 3 answer and take the login"
    assert "undionly.kpxe, snponly.efi fetched" in found["tftp"][0]["text"]
    assert "2 files fetched" in found["http"][0]["text"]
    assert "3 clocks" in found["bmc-clock"][0]["text"]


def test_without_a_head_the_data_directory_is_read(site_off: CheckSite) -> None:
    found = site_off.check("--listen", "1")
    assert found["bmc"][0]["text"].startswith("there are no nodes yet")
    assert "ports are free" in found["tftp"][0]["text"]
    assert found["http"][0]["severity"] == "error"
    assert "layercake boot build" in found["http"][0]["hint"]
    file = site_off.directory / "site.yaml"
    file.write_text(
        site_off.inventory({"n1": {"password": {"file": str(site_off.data / "secrets/none")}}})
    )
    found = site_off.check("--inventory", str(file), "--only", "bmc", "--only", "bmc-clock", code=1)
    assert list(found) == ["bmc", "bmc-clock"]
    assert [(r["severity"], r["nodes"]) for r in found["bmc"]] == [("error", "n1")]
    assert "2 clocks" in found["bmc-clock"][0]["text"]


def test_a_port_that_another_program_has(site_off: CheckSite) -> None:
    other = site_off.spawn(
        site_off.head,
        [
            "/usr/bin/python3",
            "-c",
            f"import socket, time; s = socket.socket(2, 2); "
            f"s.bind(('{HEAD}', 69)); time.sleep(1000)",
        ],
    )
    eventually(lambda: ":69" in site_off.in_head("ss", "-Hlun", "sport = :69"))
    found = site_off.check("--only", "tftp", code=1)
    other.kill()
    assert "UDP port 69" in found["tftp"][0]["text"]
    assert "python3" in found["tftp"][0]["text"]


def serves_dhcp(namespace: str) -> bool:
    """Whether somebody listens on the port there."""
    words = ["ip", "netns", "exec", namespace, "ss", "-Hlun", "sport = :67"]
    return ":67" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def plant(site: CheckSite) -> None:
    """More than eight faults."""
    rogue = site.machine("rogue", "52:54:00:aa:00:01", "10.99.0.7")
    site.spawn(
        rogue,
        [
            *DNSMASQ,
            "--dhcp-range=10.99.0.120,10.99.0.140",
            "--dhcp-boot=pxelinux.0,rogue,10.99.0.7",
            "--no-ping",
            f"--dhcp-leasefile={site.directory}/leases",
        ],
    )
    site.machine("twin", "52:54:00:aa:00:02", HEAD)
    site.machine("thief", "52:54:00:aa:00:03", "10.99.0.51")
    site.set_clock(0, 1_700_000_000)
    site.in_head("nft", "-f", "-", given=_NFT)
    site.in_head("sysctl", "-qw", "net.ipv4.conf.br0.forwarding=1")
    site.small_disk(site.data / "images")
    (minos,) = (site.data / "boot").glob("*/minos.img")
    minos.unlink()
    eventually(lambda: serves_dhcp(rogue))


def test_all_planted_faults_are_found_at_once(site_bad: CheckSite) -> None:
    site = site_bad
    plant(site)
    found = site.check(code=1)

    def one(name: str, text: str, severity: str = "error", nodes: str = "") -> None:
        said = [
            r
            for r in found[name]
            if text in r["text"] and (r["severity"], r["nodes"]) == (severity, nodes)
        ]
        assert said, (name, found[name])

    one("dhcp", "10.99.0.7 (MAC address 52:54:00:aa:00:01)")
    assert any("pxelinux.0" in r["text"] for r in found["dhcp"])
    one("addresses", f"another machine has the head's address {HEAD}: 52:54:00:aa:00:02")
    one("addresses", "10.99.0.51 of n1 is used by 52:54:00:aa:00:03", nodes="n1")
    one("bmc", f"do not answer: cannot reach the BMC at {DEAD}", nodes="n3")
    one("bmc", "do not take user or password", nodes="n1")
    one("bmc-clock", "that of n0 is", "warning", nodes="n0")
    one("bmc-boot", "the inventory says uefi", "warning", nodes="n2")
    one("filter", "TFTP (udp 69)")
    one("routing", "the head routes from br0 to mgmt0")
    one("disk", "images (images) has 0.0 GB free")
    one("http", "minos.img is not there", nodes="n[0-3]")
    for name in ("interface", "lldp", "tftp", "certificates", "limits"):
        assert [r["severity"] for r in found[name]] == ["ok"], found[name]


def test_kea_and_a_proxy_are_found_too(site: CheckSite, tmp_path: Path) -> None:
    config = tmp_path / "kea.json"
    config.write_text(
        """{"Dhcp4": {"interfaces-config": {"interfaces": ["eth0"], "dhcp-socket-type": "raw"},
        "lease-database": {"type": "memfile", "persist": false}, "valid-lifetime": 600, "control-socket": {"socket-type": "unix",
        "socket-name": "%s"}, "subnet4": [{"subnet": "10.99.0.0/24", "pools": [{"pool": "10.99.0.200 - 10.99.0.210"}]}]}}"""
        % (tmp_path / "kea.sock")
    )
    kea = site.machine("kea", "52:54:00:aa:00:11", "10.99.0.8")
    server = site.spawn(
        kea,
        [
            "env",
            f"KEA_PIDFILE_DIR={tmp_path}",
            f"KEA_LOCKFILE_DIR={tmp_path}",
            "kea-dhcp4",
            "-c",
            str(config),
        ],
    )
    proxy = site.machine("proxy", "52:54:00:aa:00:12", "10.99.0.9")
    other = site.spawn(
        proxy, [*DNSMASQ, "--dhcp-range=10.99.0.0,proxy", "--pxe-service=x86PC,install,pxelinux"]
    )

    eventually(lambda: serves_dhcp(kea) and serves_dhcp(proxy))
    try:
        texts = [r["text"] for r in site.check("--only", "dhcp", code=1)["dhcp"]]
    finally:
        server.terminate()
        other.terminate()
        ip("-n", kea, "link", "set", "eth0", "down")
        ip("-n", proxy, "link", "set", "eth0", "down")
    assert len(texts) == 2
    assert any("10.99.0.8" in t and "addresses (10.99.0.20" in t for t in texts)
    assert any("10.99.0.9" in t and "addresses" not in t for t in texts)


def test_an_unknown_check_is_a_mistake(site: CheckSite) -> None:
    with pytest.raises(AssertionError, match="there is no such check"):
        site.check("--only", "dhpc")


def test_a_person_reads_one_line_each(site: CheckSite) -> None:
    argv = [
        "layercake.cli.main",
        "check",
        "--data-dir",
        str(site.data),
        "--only",
        "disk",
        "--only",
        "interface",
    ]
    text = site.in_head(sys.executable, "-m", *argv)
    assert [line.split()[:2] for line in text.splitlines()] == [["ok", "interface"], ["ok", "disk"]]
    assert REDFISH not in text
