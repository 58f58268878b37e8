"""A running site goes over to Ceph: the head's settings change, no node is touched, and the next
image is read from the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cephrun import POOL, CephRun
from sampleimages import plain_image

from tests.vm.conftest import Site

pytestmark = pytest.mark.vm


def use(site: Site, images: dict[str, str]) -> None:
    """Starts the head anew with other settings of its image store."""
    site.head.stop()
    site.head.configure({"images": images})
    site.head.start()
    site.head.wait_converged(60)


@pytest.fixture
def ceph(site: Site) -> Iterator[CephRun]:
    with CephRun(site.rack) as found:
        use(
            site,
            {
                "store": "rbd",
                "conf": str(found.conf),
                "keyring": str(found.keyring("layercake")),
                "pool": POOL,
                "node_keyring": str(found.keyring("node")),
            },
        )
        try:
            yield found
        finally:
            site.head.cli("image", "roll", "n[0-1]", "plain-1")
            site.head.cli("image", "remove", "in-ceph", "--yes")
            use(site, {"store": "file", "conf": "", "keyring": "", "pool": "", "node_keyring": ""})


def test_images_out_of_ceph_beside_those_of_before(site: Site, ceph: CephRun) -> None:
    before = site.facts()

    def ready() -> bool:
        events = site.head.api("GET", "/v1/events?kind=images.ready")["events"]
        return any("monitors 10.99.0.1:6789" in e["text"] for e in events)

    site.head.wait("the head has seen the cluster", ready, 120)
    body = {
        "path": str(plain_image("in-ceph")),
        "name": "in-ceph",
        "systemd": False,
        "command": ["/init"],
    }
    digest = site.head.api("POST", "/v1/images", body)["image"]["digest"]
    assert not list((site.head.data / "images").glob(f"*{digest.partition(':')[2]}*")), (
        "it is in the cluster only"
    )
    site.head.cli("image", "roll", "n[0-1]", "in-ceph", "--canary", "1")
    for name in ("n0", "n1"):
        assert "in-ceph line" in site.head.cli("node", "logs", name).stdout
        assert site.head.nodes()[name]["images"]["running"][0]["digest"] == digest
    after = site.facts()
    assert [after[n][0::2] for n in before] == [before[n][0::2] for n in before], (
        "no node was booted for it"
    )
    key = ceph.key_file("node").read_text().strip()
    told = (
        repr(site.head.api("GET", "/v1/events?limit=5000"))
        + repr(site.head.nodes())
        + site.head.log()
    )
    told += "".join(site.rack.console(n) for n in (0, 1))
    assert key not in told
