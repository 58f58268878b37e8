"""A site of two heads with an address that floats: people name that one alone, and reach whichever
head leads, by a certificate that is good for it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from layercake.heads.member import PROGRAM
from tests.support.several_heads import SiteOfHeads

pytestmark = pytest.mark.root
FLOATING = "10.98.0.9"


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteOfHeads]:
    """Two heads and a witness on one interface; head1 leads."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    made = SiteOfHeads(tmp_path_factory.mktemp("floating"), "10.98.0", "lan0")
    try:
        made.up()
        inside = ["ip", "-n", made.namespace]
        subprocess.run([*inside, "link", "add", "lan0", "up", "type", "bridge"], check=True)
        for name in ("head1", "witness1", "head2"):
            own = f"{made.address(name)}/24"
            subprocess.run([*inside, "addr", "add", own, "dev", "lan0"], check=True)
        made.begin("head1", "--set", f"floating_addresses=[{FLOATING}]")
        made.witness("head1", "witness1")
        made.join("head1", "head2")
        yield made
    finally:
        made.down()


def leader(site: SiteOfHeads) -> str:
    """Who leads, asked at the address that floats as people ask; "" if nobody answers there."""
    data = site.data("head2")
    by = ("--token-file", data / "admin.token", "--ca", data / "pki/ca.pem")
    done = site.run("--url", f"https://{FLOATING}:8443", *by, "heads", "show", "--json")
    found = json.loads(done.stdout) if done.stdout else {}
    return str(found.get("leader", ""))


def test_people_reach_whichever_head_leads_at_one_address(site: SiteOfHeads) -> None:
    config = (site.data("head2") / "config.yaml").read_text()
    assert FLOATING in config  # it is the site's
    site.wait("head1 answers there", lambda: leader(site) == "head1")
    site.kill("head1.serve")
    site.wait("head2 answers there", lambda: leader(site) == "head2")
    site.start("serve", "head1")
    site.wait("head1 follows", lambda: site.has_all("head2", "head1"))
    site.output("heads", "promote", "head1", "--yes", head="head2")
    site.wait("head1 answers there again", lambda: leader(site) == "head1")
