"""The clocks of nodes, which the head keeps."""

from __future__ import annotations

import pytest

from tests.vm.conftest import Site

pytestmark = pytest.mark.vm


def test_the_head_keeps_the_nodes_clocks_and_shows_how_well(site: Site) -> None:
    for node in ("n0", "n1"):
        site.head.wait(f"{node} tells of its clock", lambda: site.head.nodes()[node]["clock"], 180)  # noqa: B023
        clock = site.head.nodes()[node]["clock"]
        assert clock["server"] == "10.99.0.1" and abs(clock["off_ms"]) < 60_000
        assert f"ms off {clock['server']}" in site.head.cli("node", "show", node).stdout
        kernel = site.head.cli("node", "exec", node, "--", "busybox", "adjtimex").stdout
        assert "PLL" in kernel and "UNSYNC" not in kernel, "the kernel's own loop has it"
