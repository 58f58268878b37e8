"""A node's other name in the history: one commit, who asked and why; and its log goes on before."""

from __future__ import annotations

import pytest

from layercake.fleet import events
from tests.history.conftest import Site
from tests.history.test_commits import apply, rack

ASKED = {"range": "n0", "to": "gpu0", "by": "grace", "reason": "it has cards now"}


@pytest.fixture
async def admin(site: Site) -> dict[str, str]:
    who = await site.token("ada", "admin")
    await apply(site, who, rack(site, "quiet"))
    return who


async def test_it_is_one_commit_and_the_log_of_the_node_goes_on_before_it(
    site: Site, admin: dict[str, str]
) -> None:
    await site.ask("POST", "/v1/nodes/rename", admin, json=ASKED)
    body = {"set": {"kernel_args": "debug"}}
    await site.ask("PATCH", "/v1/nodes/gpu0", admin, json=body)
    await site.history.caught_up()
    message = site.git("log", "-1", "--skip=1", "--format=%an|%B")
    assert message.startswith("ada for grace|rename n0 to gpu0: ")
    assert "it has cards now" in message and "POST /v1/nodes/rename" in message
    files = site.git("show", "--format=", "--name-status", "-M100%", "HEAD~1").split()
    assert [files[0], *(path.rpartition("/")[2] for path in files[1:])] == [
        "R100",
        "n0.yaml",
        "gpu0.yaml",
    ]
    log = await site.ask("GET", "/v1/inventory/log?nodes=gpu0", admin)
    said = [change["what"] for change in log["changes"]]
    assert said[0] == "change kernel_args of gpu0" and said[1].startswith("rename n0 to gpu0")
    assert len(said) == 4, "its entry was made, and changed, under the old name"
    blame = await site.ask("GET", "/v1/nodes/gpu0/blame", admin)
    of = {line["field"]: line["change"]["what"] for line in blame["lines"]}
    assert of["kernel_args"] == "change kernel_args of gpu0"
    assert "n0" in of["ip"] and "gpu0" not in of["ip"], "whoever gave the address is still named"


async def test_undoing_it_says_how(site: Site, admin: dict[str, str]) -> None:
    await site.ask("POST", "/v1/nodes/rename", admin, json=ASKED)
    await site.history.caught_up()
    body = {"revision": "HEAD"}
    planned = await site.ask("POST", "/v1/inventory/revert/plan", admin, json=body)
    assert any("layercake node rename gpu0 n0" in w["message"] for w in planned["warnings"])
    said = await site.refused("POST", "/v1/inventory/revert", admin, json=body)
    assert "it would remove gpu0" in said and "layercake node rename gpu0 n0" in said
    back = {"range": "gpu0", "to": "n0"}
    await site.ask("POST", "/v1/nodes/rename", admin, json=back)
    text = rack(site, "quiet")
    planned = await site.ask("POST", "/v1/inventory/plan", admin, json={"yaml": text})
    assert planned["changes"] == []


async def test_whoever_has_a_part_of_the_site_gives_no_names(
    site: Site, admin: dict[str, str]
) -> None:
    bound = await site.token("eve", "admin", "a")
    operator = await site.token("otto", "operator")
    for who in (bound, operator):
        await site.refused("POST", "/v1/nodes/rename", who, json=ASKED)
    assert site.world.head.store.names == ["n0", "n1"]
    viewer = await site.token("vera", "viewer")
    body = {"range": "n0", "to": "gpu0"}
    planned = await site.ask("POST", "/v1/nodes/rename/plan", viewer, json=body)
    assert planned["renamed"] == [{"node": "n0", "to": "gpu0", "running": False}]
    assert site.world.head.store.names == ["n0", "n1"]


async def test_it_is_audited_and_an_old_event_is_asked_for_by_the_new_name(
    site: Site, admin: dict[str, str]
) -> None:
    store = site.world.head.store
    store.event(store.named("n0"), events.DESIRED_STATE, "before it was renamed")
    await site.ask("POST", "/v1/nodes/rename", admin, json=ASKED)
    found = await site.ask("GET", "/v1/events?node=gpu0", admin)
    assert "before it was renamed" in [event["text"] for event in found["events"]]
    audit = await site.ask("GET", "/v1/audit", admin)
    assert any("/v1/nodes/rename" in str(change) for change in audit["audit"])


async def test_a_name_is_the_same_after_a_kill(site: Site, admin: dict[str, str]) -> None:
    number = site.world.node("n0").node.id
    await site.ask("POST", "/v1/nodes/rename", admin, json=ASKED)
    await site.restart()
    assert site.world.head.store.names == ["gpu0", "n1"]
    assert site.world.node("gpu0").node.id == number
    assert site.git("log", "-1", "--format=%s").startswith("rename n0 to gpu0")
