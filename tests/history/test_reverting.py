"""A change is undone: planned, gated, and with what has moved on since kept or taken back."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.features.inventory.reading import Readers
from tests.history.conftest import Site
from tests.history.test_commits import apply, rack


@pytest.fixture
async def admin(site: Site) -> dict[str, str]:
    who = await site.token("ada", "admin")
    await apply(site, who, rack(site, "quiet"))
    return who


async def set_entry(site: Site, who: dict[str, str], node: str, **values: Any) -> None:
    await site.ask("PATCH", f"/v1/nodes/{node}", who, json={"set": values})


async def plan(site: Site, who: dict[str, str], revision: str, moved: str = "") -> Any:
    body = {"revision": revision, "moved": moved}
    return await site.ask("POST", "/v1/inventory/revert/plan", who, json=body)


async def revert(site: Site, who: dict[str, str], revision: str, **more: Any) -> Any:
    body = {"revision": revision, "confirm_secrets": True, **more}
    return await site.ask("POST", "/v1/inventory/revert", who, json=body)


def arguments(site: Site, node: str) -> str:
    return str(site.world.node(node).node.parts["pxe"].kernel_args)  # type: ignore[attr-defined]


async def test_a_change_is_undone_and_no_other(site: Site, admin: dict[str, str]) -> None:
    await set_entry(site, admin, "n0", kernel_args="debug")
    await set_entry(site, admin, "n1", kernel_args="other")
    planned = await plan(site, admin, "HEAD~1")
    assert [(c["node"], c["fields"]) for c in planned["changes"]] == [
        ("n0", {"kernel_args": ["debug", "quiet"]})
    ]
    assert planned["moved"] == []
    await revert(site, admin, "HEAD~1", digest=planned["digest"], reason="it was wrong")
    assert (arguments(site, "n0"), arguments(site, "n1")) == ("quiet", "other")
    await site.history.caught_up()
    undone = site.git("log", "-1", "--skip=2", "--format=%h", "--abbrev=10").strip()
    assert site.git("log", "-1", "--format=%s") == f"revert {undone}: change kernel_args of n0\n"
    assert "it was wrong" in site.git("log", "-1", "--format=%b")


async def test_several_changes_are_undone_together(site: Site, admin: dict[str, str]) -> None:
    await set_entry(site, admin, "n0", kernel_args="one")
    await set_entry(site, admin, "n0", kernel_args="two")
    await set_entry(site, admin, "n1", kernel_args="other")
    await revert(site, admin, "HEAD~3..HEAD")
    assert (arguments(site, "n0"), arguments(site, "n1")) == ("quiet", "")


async def test_what_has_moved_on_is_shown_and_kept_or_taken_back(
    site: Site, admin: dict[str, str]
) -> None:
    await set_entry(site, admin, "n0", kernel_args="one", boot_timeout=700)
    await set_entry(site, admin, "n0", kernel_args="two")
    planned = await plan(site, admin, "HEAD~1")
    assert [
        (m["node"], m["field"], m["before"], m["after"], m["now"]) for m in planned["moved"]
    ] == [("n0", "kernel_args", '"quiet"', '"one"', '"two"')]
    body = {"revision": "HEAD~1"}
    said = await site.refused("POST", "/v1/inventory/revert", admin, json=body)
    assert "kernel_args" in said and "--keep" in said and "--take-back" in said
    assert [list(c["fields"]) for c in planned["changes"]] == [["boot_timeout"]]
    kept = await plan(site, admin, "HEAD~1", "keep")
    await revert(site, admin, "HEAD~1", moved="keep", digest=kept["digest"])
    assert arguments(site, "n0") == "two"
    back = await plan(site, admin, "HEAD~2", "take-back")
    await revert(site, admin, "HEAD~2", moved="take-back", digest=back["digest"])
    assert arguments(site, "n0") == "quiet"


async def test_nodes_and_networks_that_were_added_or_removed(
    site: Site, admin: dict[str, str]
) -> None:
    text = rack(site, "quiet").split("  n1:")[0]
    await apply(site, admin, text, allow_remove=True)
    assert site.world.head.store.lookup("n1") is None
    await revert(site, admin, "HEAD")
    assert site.world.node("n1").node.network == "far"
    body = {"revision": "HEAD"}
    said = await site.refused("POST", "/v1/inventory/revert", admin, json=body)
    assert "would remove n1" in said
    await revert(site, admin, "HEAD", allow_remove=True)
    assert site.world.head.store.lookup("n1") is None
    more = text.replace(
        "networks: {", "networks: {near: {subnet: 10.30.0.0/24, gateway: 10.30.0.1}, "
    )
    await apply(site, admin, more)
    assert "near" in site.world.head.networks.by_name
    planned = await plan(site, admin, "HEAD")
    assert [n["node"] for n in planned["networks"]] == ["near"]
    await revert(site, admin, "HEAD", digest=planned["digest"])
    assert list(site.world.head.networks.by_name) == ["far"]


async def test_what_others_have_by_now_is_not_taken_from_them(
    site: Site, admin: dict[str, str]
) -> None:
    await set_entry(site, admin, "n0", ip="10.20.0.99")
    await set_entry(site, admin, "n1", ip="10.20.0.10")
    body = {"revision": "HEAD~1"}
    said = await site.refused("POST", "/v1/inventory/revert/plan", admin, json=body)
    assert "10.20.0.10 of n0 is n1's" in said


async def test_a_frozen_node_is_not_reverted(site: Site, admin: dict[str, str]) -> None:
    await set_entry(site, admin, "n0", kernel_args="one")
    freeze = {"range": "n0", "reason": "work"}
    await site.ask("POST", "/v1/guard/freeze", admin, json=freeze)
    assert "frozen" in await site.refused(
        "POST", "/v1/inventory/revert", admin, json={"revision": "HEAD"}
    )


async def test_a_plan_of_before_is_not_done(site: Site, admin: dict[str, str]) -> None:
    await set_entry(site, admin, "n0", kernel_args="one")
    planned = await plan(site, admin, "HEAD")
    await set_entry(site, admin, "n1", kernel_args="other")
    body = {"revision": planned["revision"], "digest": planned["digest"]}
    said = await site.refused("POST", "/v1/inventory/revert", admin, json=body)
    assert "changed since" in said


async def test_only_who_may_change_the_whole_site_reverts(
    site: Site, admin: dict[str, str]
) -> None:
    for who in (await site.token("olaf", "operator"), await site.token("bob", "admin", "a")):
        for path in ("revert", "revert/plan", "rebuild"):
            body = {} if path == "rebuild" else {"revision": "HEAD"}
            await site.refused("POST", f"/v1/inventory/{path}", who, json=body)


async def test_keys_of_another_version_are_left_out_and_named(
    site: Site, admin: dict[str, str]
) -> None:
    """A revision that a Layercake with another key has written."""
    await site.history.caught_up()
    path = next(p for p in site.git("ls-tree", "-r", "--name-only", "HEAD").split() if "n0.y" in p)
    text = site.git("show", f"HEAD:{path}") + 'hologram: "on"\nbmc.hologram: 7\n'
    stream = (
        "commit refs/heads/main\ncommitter old <> 1000000 +0000\ndata 3\nold\n"
        f"from {site.git('rev-parse', 'main').strip()}\n"
        f"M 100644 inline {path}\ndata {len(text)}\n{text}\ndone\n"
    )
    site.feed("fast-import", "--quiet", "--done", data=stream)
    await set_entry(site, admin, "n0", kernel_args="one")
    planned = await plan(site, admin, "HEAD")
    assert sorted(planned["unknown"]) == ["n0: bmc.hologram", "n0: hologram"]
    await revert(site, admin, "HEAD", digest=planned["digest"])
    assert arguments(site, "n0") == "quiet"
    assert not {"hologram"} & set(
        (await site.ask("GET", "/v1/inventory/show", admin))["yaml"].split()
    )


async def test_the_undoing_of_a_few_nodes_starts_no_process(site: Site) -> None:
    admin = await site.token("ada", "admin")
    await site.ask("PATCH", "/v1/nodes/n0", admin, json={"set": {"kernel_args": "one"}})
    await site.history.caught_up()
    assert "kernel_args" in str(await plan(site, admin, "HEAD"))
    assert not site.world.head.part(Readers).pids
