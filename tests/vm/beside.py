"""A head in proxy mode beside a DHCP server of the site: from power-on to nodes that run their
images, which a restart of the head does not touch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vrack.siteserver import ADDRESS, CARD, Kind, SiteServer

if TYPE_CHECKING:
    from tests.vm.conftest import Site

LIMIT_S = 150.0
BOTH = ("n0", "n1")


def nodes_boot_beside_the_sites_server(site: Site) -> None:
    """n0 by SeaBIOS and iPXE, n1 by OVMF's own PXE; the site's server has their addresses and
    nothing else of them."""
    before = site.facts()
    _again(site, "proxy")
    assert site.facts() == before, "nobody is touched by it"
    start = time.time()
    config = "\n".join(
        [
            "port=0",
            f"interface={CARD}",
            "bind-interfaces",
            "dhcp-range=10.99.0.0,static",
            *(f"dhcp-host={node.mac},{node.ip}" for node in site.rack.nodes[:2]),
        ]
    )
    with SiteServer(site.rack, Kind.DNSMASQ, config):
        site.head.cli("power", "cycle", "n[0-1]", "--yes")
        site.head.wait(
            "both were off",
            lambda: all("power.cycled" in _kinds(site, name, start) for name in BOTH),
            LIMIT_S,
        )
        site.head.wait_converged(LIMIT_S, set(BOTH))
    for name in BOTH:
        seen = _kinds(site, name, start)
        order = [
            k
            for k in seen
            if k in ("boot.offer-sent", "boot.address-taken", "boot.script-sent", "node.joined")
        ]
        assert order[:2] == ["boot.offer-sent", "boot.address-taken"] and order[-2:] == [
            "boot.script-sent",
            "node.joined",
        ]
        assert not {
            "boot.other-address",
            "boot.no-address",
            "dhcp.other-server",
            "boot.stalled",
        } & set(seen)
        taken = next(e for e in site.head.history(name) if e["kind"] == "boot.address-taken")
        assert taken["data"]["server"] == ADDRESS
    assert "boot.nbp-sent" in _kinds(site, "n1", start), "OVMF's own PXE fetched a boot program"
    assert f"of DHCP server {ADDRESS}" in site.head.cli("node", "explain", "n0").stdout
    _again(site, "serve")


def _kinds(site: Site, name: str, since: float) -> list[str]:
    return [e["kind"] for e in site.head.history(name) if e["at"] >= since]


def _again(site: Site, mode: str) -> None:
    """The head is started again, in another mode."""
    site.head.stop()
    site.head.configure(
        {"boot": {"dhcp": mode, "dhcp_servers": [ADDRESS] if mode == "proxy" else []}}
    )
    site.head.start()
    site.head.wait_converged(LIMIT_S)
