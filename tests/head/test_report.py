"""The report of a morning: what it says of what happened, and how it is shown."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from layercake.client.output import Output
from layercake.features.status.commands import page, show_report, what
from layercake.fleet import events
from tests.support.api import served
from tests.support.world import World

DAY = 86400.0


async def asked(world: World, **query: str) -> dict[str, Any]:
    await world.restart()  # what happened is in the database then
    async with (
        served(world.head, local=True) as client,
        client.get("/v1/report", params=query) as answer,
    ):
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


def happened(world: World) -> None:
    store = world.head.store
    store.event(world.node("n0"), events.POWER_ORDER_FAILED, "long ago")
    world.clock.now += 2 * DAY
    for name in ("n0", "n0", "n1"):
        store.event(
            world.node(name), events.POWER_ORDER_FAILED, f"{name}: the BMC says <b>no</b> \x1b[2J"
        )
    store.event(world.node("n1"), events.BOOT_SLOW, "3 m, usually 40 s")
    store.event(None, events.HEAD_SLOW, "its loop is 300 ms late")
    store.event(world.node("n1"), events.REMEDY_HELD, "no witness")
    store.event(world.node("n0"), events.JOIN_REFUSED, "a wrong token")
    store.event(world.node("n0"), events.FILES_FAILED, "motd, line 3")
    store.event(world.node("n0"), events.DESIRED_STATE, "wanted up by ada")
    store.event(world.node("n0"), events.MUTATION_DONE, "as usual")


async def test_it_says_what_happened_since_yesterday(world: World) -> None:
    happened(world)
    found = await asked(world)
    told = {
        name: [(line["kind"], line["count"], line["nodes"]) for line in lines]
        for name, lines in found["sections"].items()
    }
    assert told["failed"] == [("power.order-failed", 3, {"n0": 2, "n1": 1})]
    assert told["slow"] == [("head.slow", 1, {"": 1}), ("node.boot-slow", 1, {"n1": 1})]
    assert told["held"] == [("remedy.held", 1, {"n1": 1})]
    assert told["security"] == [("join.refused", 1, {"n0": 1})] and told["warned"] == [
        ("files.failed", 1, {"n0": 1})
    ]
    assert ("desired.state", 1, {"n0": 1}) in told["changed"] and "mutation.done" not in str(told)
    assert sum(found["nodes"].values()) == 2 and found["until"] - found["since"] == DAY
    line = found["sections"]["failed"][0]
    assert (
        line["node"] == "n1" and "the BMC says" in line["text"] and "has failed" in line["meaning"]
    )
    longer = await asked(world, hours="72")
    assert longer["sections"]["failed"][0]["count"] == 4


async def test_what_nobody_could_mean_is_refused(world: World) -> None:
    async with served(world.head, local=True) as client:
        for hours in ("0", "-1", "x", "99999999"):
            async with client.get("/v1/report", params={"hours": hours}) as answer:
                assert answer.status == 400, hours


async def test_it_is_shown_as_text_and_as_a_page(world: World) -> None:
    happened(world)
    found = await asked(world)
    found["outages"] = [
        {
            "domain": "",
            "where": "the site",
            "seconds": 61.0,
            "silent": 1,
            "members": 2,
            "nodes": ["n0"],
        }
    ]
    shown = io.StringIO()
    with redirect_stdout(shown):
        out = Output()
        out.colour = False
        show_report(found, out)
    text = shown.getvalue()
    assert (
        "Failed\n     3  power.order-failed of n[0-1]\n" in text
        and "n1: the BMC says <b>no</b>" in text
        and "\x1b" not in text
    )
    assert "OUTAGE    of the site, for 61s: 1 of 2 nodes are silent" in text
    made = page(found)
    assert (
        "&lt;b&gt;no&lt;/b&gt;" in made
        and "<b>no" not in made
        and "<script" not in made
        and "\x1b" not in made
    )
    assert "<h2 class=held>Held back</h2>" in made and "http" not in made.replace(
        "<!doctype html>", ""
    ).replace("<html", "")


def test_a_node_set_that_is_long_is_counted_and_not_cut_off() -> None:
    line = {"kind": "boot.slow", "node": "", "count": 9}
    few, many = ({f"n{number}": 1 for number in range(0, most, 3)} for most in (9, 400))
    assert what({**line, "nodes": few}) == "boot.slow of n[0,3,6]"
    assert what({**line, "nodes": many}) == "boot.slow of 134 nodes"
