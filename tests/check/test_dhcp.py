"""What `layercake check` says of DHCP servers, by what the settings say that the head does: made-up
answers, and a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from layercake.check.serving import tftp
from layercake.check.wire.dhcp import Server, judge
from pxe.settings import BootSettings
from tests.check.conftest import HEAD, CheckSite
from tests.check.made import made
from tests.check.test_site import DNSMASQ, serves_dhcp
from tests.support.images import eventually

SITE, OTHER = ("10.99.0.2", "52:54:00:aa:00:02"), ("10.99.0.9", "52:54:00:aa:00:09")
GIVES, BOOTS = (
    Server(gives="10.99.0.120"),
    Server(gives="10.99.0.120", boots="'pxelinux.0' from '10.99.0.9'", host="10.99.0.9"),
)
OURS, PROXY = (
    Server(gives="10.99.0.120", boots="'snponly.efi' from '10.99.0.1'", host=HEAD),
    Server(boots="something to boot"),
)
NAMED = ("10.99.0.2",)


@pytest.mark.parametrize(
    ("mode", "named", "found", "wanted"),
    [
        ("serve", (), {}, ["ok nobody else answered in"]),
        ("serve", (), {OTHER: GIVES}, ["error another DHCP server, 10.99.0.9"]),
        ("serve", NAMED, {SITE: GIVES}, ["warning the site's DHCP server, 10.99.0.2"]),
        ("proxy", NAMED, {SITE: GIVES}, ["ok the site's DHCP server, 10.99.0.2"]),
        ("proxy", NAMED, {SITE: BOOTS}, ["error the site's DHCP server, 10.99.0.2"]),
        (
            "proxy",
            NAMED,
            {SITE: GIVES, OTHER: PROXY},
            ["ok the site's", "error another DHCP server, 10.99.0.9"],
        ),
        ("proxy", NAMED, {}, ["ok no DHCP server of the site gave a stranger an address"]),
        ("proxy", (), {SITE: GIVES}, ["warning another DHCP server, 10.99.0.2"]),
        ("proxy", (), {}, ["warning no DHCP server of the site gave a stranger an address"]),
        ("off", NAMED, {SITE: OURS}, ["ok the site's DHCP server, 10.99.0.2"]),
        ("off", NAMED, {SITE: GIVES}, ["ok the site's DHCP server, 10.99.0.2"]),
        ("off", NAMED, {SITE: BOOTS}, ["warning the site's DHCP server, 10.99.0.2"]),
        ("off", NAMED, {OTHER: OURS}, ["error another DHCP server, 10.99.0.9"]),
    ],
)
def test_who_answers_is_judged_by_the_mode(
    mode: Any, named: tuple[str, ...], found: dict[tuple[str, str], Server], wanted: list[str]
) -> None:
    said = judge(found, BootSettings(dhcp=mode, dhcp_servers=named), HEAD, "in 3 s on br0")
    assert len(said) == len(wanted)
    for finding, text in zip(said, wanted, strict=True):
        assert f"{finding.severity.value} {finding.text}".startswith(text)
        assert finding.hint or text.startswith("ok ")


@pytest.mark.parametrize(
    ("mode", "ports"), [("serve", ["DHCP"]), ("proxy", ["DHCP", "DHCP"]), ("off", [])]
)
def test_only_ports_that_are_to_be_open_are_looked_at(
    tmp_path: Path, mode: Any, ports: list[str]
) -> None:
    site = made(tmp_path)  # its address is not this machine's, so no port of it can be had
    site.settings.sections["boot"] = BootSettings(dhcp=mode)
    assert [
        f.text.split(" for ")[1].split(" ")[0].strip(":")
        for f in tftp.look(site)
        if "UDP port" in f.text
    ] == ["TFTP", *ports]


@pytest.mark.root
def test_a_proxy_beside_a_real_server(site_off: CheckSite, tmp_path: Path) -> None:
    path = site_off.data / "config.yaml"
    found = yaml.safe_load(path.read_text())
    path.write_text(
        yaml.safe_dump(
            {**found, "boot": {**found["boot"], "dhcp": "proxy", "dhcp_servers": ["10.99.0.7"]}}
        )
    )
    namespace = site_off.machine("site", "52:54:00:aa:00:07", "10.99.0.7")
    site_off.spawn(
        namespace,
        [
            *DNSMASQ,
            "--dhcp-range=10.99.0.120,10.99.0.140",
            "--no-ping",
            f"--dhcp-leasefile={tmp_path}/leases",
        ],
    )
    eventually(lambda: serves_dhcp(namespace))
    (said,) = site_off.check("--only", "dhcp", "--listen", "2", code=0)["dhcp"]
    assert (said["severity"], said["text"].partition(" (MAC")[0]) == (
        "ok",
        "the site's DHCP server, 10.99.0.7",
    )
