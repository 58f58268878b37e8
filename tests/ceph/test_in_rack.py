"""The same cluster inside a rack's network, where its machines find it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cephrun import POOL, CephRun
from vrack.rack import Rack

pytestmark = pytest.mark.root


def test_cluster_is_reached_at_the_heads_address_inside_the_rack(tmp_path: Path) -> None:
    with Rack(tmp_path / "rack", 1) as rack, CephRun(rack) as ceph:
        listing = [
            "rados",
            "-c",
            str(ceph.conf),
            "--id",
            "node",
            "--keyring",
            str(ceph.keyring("node")),
            "-p",
            POOL,
            "ls",
        ]
        assert ceph.address == "10.99.0.1"
        assert rack.run(listing).returncode == 0
        ceph.stop_osd()
        ceph.start_osd()
        assert rack.run(listing).returncode == 0
        listening = rack.run(["ss", "-Hltn", "sport", "=", ":6789"]).stdout.splitlines()
        assert len(listening) == 1 and "10.99.0.1:6789" in listening[0]
