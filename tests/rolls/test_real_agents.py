"""Rolls over eight real agents on this machine, each in its own namespaces, and a head in a process
that can be killed."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headclient import HeadRunError
from hostsite import HostSite
from smallimages import build_plain_image

pytestmark = [pytest.mark.root, pytest.mark.waits]

# Whoever has the address 10.97.0.15 (h5) finds that this image does not suit it.
PICKY = """#!/bin/sh
trap 'exit 0' TERM
echo "@MARKER@ starts"
if /bin/busybox grep -q 10.97.0.15 /proc/net/fib_trie; then
    echo "@MARKER@ cannot find its configuration"
    exit 7
fi
while :; do sleep 1 & wait $!; done
"""
WELL = "! /bin/busybox grep -q 10.97.0.15 /proc/net/fib_trie"
"""A health check that h5 alone does not pass; its image runs on."""
STUBBORN = """#!/bin/sh
trap '' TERM
echo "@MARKER@ starts"
while :; do sleep 1; done
"""
ALL = "h[0-7]"


@pytest.fixture(scope="module")
def site() -> Iterator[HostSite]:
    with tempfile.TemporaryDirectory(prefix="layercake-rolls-") as scratch:
        directory = Path(scratch)
        images = {
            name: build_plain_image(directory / f"{name}.squashfs", name) for name in ("one", "two")
        }
        images["picky"] = build_plain_image(directory / "picky.squashfs", "picky", script=PICKY)
        images["stubborn"] = build_plain_image(
            directory / "stubborn.squashfs", "stubborn", script=STUBBORN
        )
        found = HostSite(directory / "site", 8, images, groups=("test", "small", "small"))
        try:
            found.up()
            found.api(
                "POST",
                "/v1/images",
                {
                    "path": str(images["two"]),
                    "name": "sick",
                    "systemd": False,
                    "command": ["/init"],
                    "stop_timeout_s": 2,
                    "health": {
                        "kind": "exec",
                        "command": ["/bin/sh", "-c", WELL],
                        "interval_s": 0.2,
                        "retries": 2,
                        "start_s": 0.5,
                    },
                },
            )
            yield found
        finally:
            found.down()


@pytest.fixture(autouse=True)
def _restored(site: HostSite) -> Iterator[None]:
    """Each test begins with all nodes running the image `one`."""
    site.api("POST", "/v1/images/roll", {"range": ALL, "image": "one"})
    site.wait("all run one", lambda: set(site.running().values()) == {"one"}, 120)
    site.wait("all starts are told", lambda: told_of_starts(site), 120)
    yield


def told_of_starts(site: HostSite) -> bool:
    """Whether each node's last start that was told is of what it runs: agents gather events, and a
    busy head takes them late."""
    running = site.running()
    told = {
        n.name: [e["data"]["image"] for e in site.history(n.name, "image.started")]
        for n in site.nodes
    }
    return all(images and images[-1] == running[name] for name, images in told.items())


def starts(site: HostSite, since: float) -> dict[str, int]:
    """How many containers each node has started since."""
    site.wait("all starts are told", lambda: told_of_starts(site), 120)
    return starts_told(site, since)


def starts_told(site: HostSite, since: float) -> dict[str, int]:
    """The same as far as it was told and kept. One is told twice when the head died before it said
    that it heard, and is lost when it died before it had written it."""
    return {
        n.name: len({e["text"] for e in site.history(n.name, "image.started") if e["at"] >= since})
        for n in site.nodes
    }


def test_a_whole_roll_with_canary_batches_and_stages(site: HostSite) -> None:
    begin = time.time()
    number = site.roll(
        ALL, "two", batch="2", canary=1, health_timeout_s=0.5, stages=["test", "small", "all"]
    )
    told = site.until_over(number)
    assert (told["state"], told["counts"]) == ("done", {"done": 8})
    assert set(site.running().values()) == {"two"}
    assert starts(site, begin) == {f"h{i}": 1 for i in range(8)}
    staged = [
        min(e["at"] for e in site.history(n.name, "image.staged") if e["at"] > begin)
        for n in site.nodes
    ]
    switched = {
        n.name: min(e["at"] for e in site.history(n.name, "image.roll") if e["at"] > begin)
        for n in site.nodes
    }
    assert max(staged) <= min(switched.values()), "nothing switches before all is staged"
    assert switched["h0"] < switched["h1"] < switched["h3"], "the stages follow each other"

    def gaps() -> list[float]:
        return [
            e["data"]["gap_ms"]
            for n in site.nodes
            for e in site.history(n.name, "image.rolled")
            if e["at"] > begin
        ]

    site.wait("all tell their gap", lambda: len(gaps()) == 8, 120)
    site.wait(
        "the other image is let go",
        lambda: not any(list(layers(site, n.name)) for n in site.nodes),
        120,
    )


def layers(site: HostSite, name: str) -> set[str]:
    """Images that are mounted on a node beside the one it runs."""
    node = next(n for n in site.nodes if n.name == name)
    running = site.states()[name]["images"]["running"][0]["digest"].partition(":")[2]
    return {p.name for p in node.inside(node.directory / "run/layers").iterdir()} - {running}


def test_an_image_that_fails_on_one_node_takes_back_that_batch_and_no_other(site: HostSite) -> None:
    begin = time.time()
    told = site.until_over(site.roll(ALL, "picky", batch="2", health_timeout_s=0.5))
    assert told["state"] == "failed"
    assert "h5" in told["reason"]
    stands = {n["name"]: n["state"] for n in told["nodes"]}
    assert stands == {
        "h0": "done",
        "h1": "done",
        "h2": "done",
        "h3": "done",
        "h4": "rolled back",
        "h5": "rolled back",
        "h6": "skipped",
        "h7": "skipped",
    }
    assert site.running() == {f"h{i}": "picky" if i < 4 else "one" for i in range(8)}
    count = starts(site, begin)
    assert [count[f"h{i}"] for i in (0, 1, 2, 3, 6, 7)] == [1, 1, 1, 1, 0, 0], (
        "the others were not touched"
    )
    trouble = next(n["trouble"] for n in site.show(told["id"])["nodes"] if n["name"] == "h5")
    assert "exit status 7" in trouble
    assert "cannot find its configuration" in trouble


def test_an_image_whose_health_check_fails_on_one_node_takes_back_that_batch_and_no_other(
    site: HostSite,
) -> None:
    begin = time.time()
    told = site.until_over(site.roll(ALL, "sick", batch="2", health_timeout_s=0.5))
    assert told["state"] == "failed"
    assert "h5" in told["reason"]
    stands = {n["name"]: n["state"] for n in told["nodes"]}
    assert [stands[f"h{i}"] for i in range(8)] == ["done"] * 4 + ["rolled back"] * 2 + [
        "skipped"
    ] * 2
    assert site.running() == {f"h{i}": "sick" if i < 4 else "one" for i in range(8)}
    count = starts(site, begin)
    assert [count[f"h{i}"] for i in (0, 1, 2, 3, 6, 7)] == [1, 1, 1, 1, 0, 0], (
        "the others were not touched"
    )
    assert "exec /bin/sh" in next(
        n["trouble"] for n in site.show(told["id"])["nodes"] if n["name"] == "h5"
    )


def test_a_roll_goes_on_when_the_head_was_killed(site: HostSite) -> None:
    begin = time.time()
    number = site.roll(ALL, "two", batch="2", health_timeout_s=1.0)
    site.wait("it is under way", lambda: site.show(number)["counts"].get("done", 0) >= 2, 120)
    site.kill_head()
    time.sleep(0.5)
    site.start_head()
    told = site.until_over(number)
    assert (told["state"], told["counts"]) == ("done", {"done": 8})
    assert set(site.running().values()) == {"two"}
    twice = [name for name, count in starts_told(site, begin).items() if count > 1]
    assert not twice, [(e["kind"], e["text"]) for e in site.history(twice[0]) if e["at"] >= begin]


def test_a_node_that_dies_while_it_switches_fails_its_batch_and_comes_back_to_what_was(
    site: HostSite,
) -> None:
    site.api("POST", "/v1/images/roll", {"range": "h[2-3]", "image": "stubborn"})
    site.wait(
        "stubborn runs", lambda: site.running()["h2"] == site.running()["h3"] == "stubborn", 120
    )
    number = site.roll(ALL, "two", batch="4", health_timeout_s=3.0)
    node = site.nodes[2]
    site.wait("h2 switches", lambda: site.states()["h2"]["state"]["image"] == "UPDATE", 120)
    node.kill()
    told = site.until_over(number)
    stands = {n["name"]: n["state"] for n in told["nodes"]}
    assert told["state"] == "failed"
    assert "h2 lost" in told["reason"]
    assert [stands[f"h{i}"] for i in range(4, 8)] == ["skipped"] * 4
    assert stands["h2"] == "failed"
    site.start_node(node)
    site.wait("h2 runs what it ran before", lambda: site.running()["h2"] == "stubborn", 120)
    before = {f"h{i}": "stubborn" if i in (2, 3) else "one" for i in range(8)}
    site.wait("the batch is back", lambda: site.running() == before, 120)


def test_a_container_that_ignores_sigterm_is_killed_and_the_roll_goes_on(site: HostSite) -> None:
    site.api("POST", "/v1/images/roll", {"range": "h0", "image": "stubborn"})
    site.wait("stubborn runs", lambda: site.running()["h0"] == "stubborn", 120)
    begin = time.time()
    told = site.until_over(site.roll("h[0-1]", "two", batch="1", health_timeout_s=0.2))
    assert told["state"] == "done"
    assert time.time() - begin > 2.0, "it had its two seconds to stop"
    site.wait(
        "the kill is told",
        lambda: any(e["at"] > begin for e in site.history("h0", "image.killed")),
        120,
    )


def test_a_busy_node_waits_and_the_others_do_not(site: HostSite) -> None:
    node = site.nodes[1]
    node.set_busy(True)
    try:
        site.wait("h1 is BUSY", lambda: site.states()["h1"]["state"]["busy"] == "BUSY", 120)
        number = site.roll("h[0-3]", "two", batch="1", health_timeout_s=0.2)
        expected = {"done": 3, "busy": 1}
        site.wait("the others are through", lambda: site.show(number)["counts"] == expected, 120)
        assert site.running()["h1"] == "one"
        with pytest.raises(
            HeadRunError, match=rf"roll {number} to two, by root for a test, has it \(rolling\)"
        ):
            site.roll("h[1-4]", "one")
    finally:
        node.set_busy(False)
    assert site.until_over(number)["state"] == "done"
    assert site.running()["h1"] == "two"
