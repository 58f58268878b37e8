"""Heads and agents of two versions side by side: the one that is built from this checkout, and
0.1.0 as it was built then.

The rack is pretended, the rest is real: heads as processes, agents under their supervisors,
containers. Whoever is upgraded, or goes back, no container is started anew and no node joins again.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headclient import HeadRunError
from hostnode import ROOT
from hostsite import HostSite
from smallimages import build_plain_image

from imageapi.store.manifest import Signer
from minos.build import builder, python, sets

pytestmark = pytest.mark.root

OLD = Path(__file__).with_name("layercake-0.1.0-py3-none-any.whl")
Pids = dict[str, tuple[int, dict[str, int]]]


@pytest.fixture(scope="module")
def site() -> Iterator[HostSite]:
    """A head of the old version; h0 and h1 have old agents, h2 a new one."""
    with tempfile.TemporaryDirectory(prefix="layercake-versions-") as scratch:
        directory = Path(scratch)
        with zipfile.ZipFile(OLD) as wheel:
            wheel.extractall(directory / "old")
        images = {
            name: build_plain_image(directory / f"{name}.squashfs", name) for name in ("one", "two")
        }
        found = HostSite(directory / "site", 3, images)
        found.code = directory / "old"
        for node in found.nodes[:2]:
            node.code = directory / "old"
        found.nodes[2].boot = "first"
        try:
            found.up()
            told(found, 1)
            yield found
        finally:
            found.down()


def pids(site: HostSite) -> Pids:
    """The agent and the containers of each node."""
    return {node.name: (node.agent, node.containers()) for node in site.nodes}


def head_of(site: HostSite, code: Path) -> str:
    """Ends the head, and starts one of another version over the same data. Returns its version,
    when all is in sync."""
    site.stop_head()
    site.code = code
    site.start_head()
    site.wait(
        "all are converged",
        lambda: all(n["status"] == "converged" for n in site.states().values()),
        120,
    )
    return str(site.api("GET", "/v1/status")["version"])


def joins(site: HostSite) -> dict[str, int]:
    return {node.name: len(site.history(node.name, "node.joined")) for node in site.nodes}


def starts(site: HostSite) -> dict[str, int]:
    return {
        node.name: len({e["text"] for e in site.history(node.name, "image.started")})
        for node in site.nodes
    }


def told(site: HostSite, times: int) -> None:
    """Waits until the head has been told that each node has started so many images: a node is
    converged a moment before."""
    site.wait(f"{times} images have started", lambda: min(starts(site).values()) >= times, 60)


def rolled(site: HostSite, image: str) -> Pids:
    """Rolls all nodes, agents of whatever version, with this head."""
    told = site.until_over(site.roll("h[0-2]", image, batch="2", health_timeout_s=0.2))
    assert (told["state"], set(site.running().values())) == ("done", {image})
    return pids(site)


def test_a_head_upgrade_and_back_touches_no_node(site: HostSite) -> None:
    assert site.api("GET", "/v1/status")["version"] == "0.1.0"
    before = pids(site)
    assert all(agent and containers for agent, containers in before.values())
    old = site.code

    assert head_of(site, ROOT) != "0.1.0"
    assert (
        pids(site) == before
        and joins(site) == dict.fromkeys(before, 1)
        and starts(site) == dict.fromkeys(before, 1)
    )
    after = rolled(site, "two")
    told(site, 2)
    assert all(after[n][0] == before[n][0] and after[n][1] != before[n][1] for n in before), (
        "it works with agents of both versions"
    )

    assert head_of(site, old) == "0.1.0"
    assert (
        pids(site) == after
        and joins(site) == dict.fromkeys(before, 1)
        and starts(site) == dict.fromkeys(before, 2)
    )
    rolled(site, "one")
    assert head_of(site, ROOT) != "0.1.0"


def test_agents_are_replaced_in_place_by_the_head_and_old_ones_are_told_of(site: HostSite) -> None:
    if site.code != ROOT:
        head_of(site, ROOT)
    interpreter = python.own()
    agent = python.agent(interpreter, python.closure(interpreter, builder.ROOT, builder.ENTRIES))
    for name in ("first", "second"):
        (site.data / "boot" / name).mkdir(parents=True)
        for file in (*sets.FILES, sets.AGENT):
            (site.data / "boot" / name / file).write_bytes(
                agent if file == sets.AGENT else name.encode()
            )
        sets.sign(
            site.data / "boot" / name, name, Signer(site.data / "images" / "signing.key").sign
        )
    site.wait("h2 has told which agent it runs", lambda: site.states()["h2"]["boots"]["agent"], 60)
    before, started, joined = pids(site), starts(site), joins(site)

    request = {"range": "h[0-2]", "image": "second", "agent_only": True, "by": "a test"}
    with pytest.raises(
        HeadRunError, match=r"403 .*cannot replace the agent of h0, h1.*layercake boot roll"
    ):
        site.api("POST", "/v1/boot/roll", request)
    number = int(site.api("POST", "/v1/boot/roll", {**request, "range": "h2"})["roll"]["id"])
    assert site.until_over(number)["state"] == "done"
    after = pids(site)
    assert after["h2"][0] != before["h2"][0] and after["h2"][1] == before["h2"][1], (
        "another agent, the same container"
    )
    assert {n: after[n] for n in ("h0", "h1")} == {n: before[n] for n in ("h0", "h1")}
    assert site.states()["h2"]["boots"]["agent"] == "second"
    assert starts(site) == started and joins(site) == joined
    assert rolled(site, "two")["h2"][0] == after["h2"][0]
