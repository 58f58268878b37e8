"""What people are shown of the history: all of it, their own nodes, or what a viewer may see; and
what is no revision gets nowhere."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from patience import patience

from layercake.features.history.history import VIEWING, Repositories
from tests.history.conftest import Site
from tests.history.test_commits import apply, rack

HOSTILE = [
    "--output=/tmp/x",
    "-n1",
    "HEAD:nodes",
    "HEAD^{tree}",
    "refs/heads/main",
    "main",
    "../../etc/passwd",
    "HEAD~1 --all",
    "HEAD@{1}",
    "abc",
    "g" * 40,
    "HEAD~99999999",
    "\x1b[2Jdeadbeef",
    "2026-99-99",
    "",
]


@pytest.fixture
async def admin(site: Site) -> dict[str, str]:
    who = await site.token("ada", "admin")
    await apply(site, who, rack(site, "quiet"), reason="because of n1")
    await apply(site, who, rack(site, "debug"), reason="ticket 7")
    return who


async def test_what_is_in_force_can_be_applied_and_changes_nothing(
    site: Site, admin: dict[str, str]
) -> None:
    shown = await site.ask("GET", "/v1/inventory/show", admin)
    planned = await site.ask("POST", "/v1/inventory/plan", admin, json={"yaml": shown["yaml"]})
    assert planned["changes"] == planned["networks"] == []
    before = await site.ask("GET", "/v1/inventory/show?revision=HEAD~1", admin)
    planned = await site.ask("POST", "/v1/inventory/plan", admin, json={"yaml": before["yaml"]})
    assert [c["fields"] for c in planned["changes"]] == [{"kernel_args": ["debug", "quiet"]}]


async def test_the_log_and_a_blame_say_who_and_why(site: Site, admin: dict[str, str]) -> None:
    log = (await site.ask("GET", "/v1/inventory/log", admin))["changes"]
    assert [(c["by"], c["why"], c["token"]) for c in log[:2]] == [
        ("ada", "ticket 7", "ada"),
        ("ada", "because of n1", "ada"),
    ]
    one = (await site.ask("GET", "/v1/inventory/log?range=n1", admin))["changes"]
    assert [c["nodes"] for c in one] == [["n1"], ["n1"]]
    lines = (await site.ask("GET", "/v1/nodes/n0/blame", admin))["lines"]
    said = {line["field"]: (line["value"], line["change"]["why"]) for line in lines}
    assert said["kernel_args"] == ('"debug"', "ticket 7")
    assert said["bmc.username"] == ('"root"', "because of n1")


async def test_a_difference_is_by_key(site: Site, admin: dict[str, str]) -> None:
    found = await site.ask("GET", "/v1/inventory/diff?before=HEAD~1&after=HEAD", admin)
    assert found["changes"] == [
        {"node": "n0", "action": "change", "fields": {"kernel_args": ["quiet", "debug"]}}
    ]
    found = await site.ask("GET", "/v1/inventory/diff?before=HEAD~2&after=HEAD", admin)
    assert [n["node"] for n in found["networks"]] == ["far"]


async def test_who_is_bound_sees_his_own_nodes_and_no_other_name(
    site: Site, admin: dict[str, str]
) -> None:
    bound = await site.token("bob", "operator", "a")
    answers = [
        await site.ask("GET", f"/v1/inventory/{path}", bound)
        for path in ("log", "show", "show?revision=HEAD~1", "diff?before=HEAD~2", "log?range=@all")
    ]
    answers.append(await site.ask("GET", "/v1/nodes/n0/blame", bound))
    assert all("n0" in str(one) for one in answers)
    for hidden in ("n1", "10.20.0.11", "ticket", "PATCH", "127.0.0.1", "far"):
        assert not any(hidden in str(one) for one in answers), hidden
    for path in (
        "/v1/inventory/log?range=n1",
        "/v1/inventory/diff?range=n1",
        "/v1/nodes/n1/blame",
        "/v1/inventory/history.git/HEAD",
    ):
        await site.refused("GET", path, bound)
    nobodys = await site.token("eve", "operator", "nowhere")
    assert (await site.ask("GET", "/v1/inventory/log", nobodys))["changes"] == []
    assert (await site.ask("GET", "/v1/inventory/show", nobodys))["yaml"] == ""
    assert (await site.ask("GET", "/v1/inventory/diff", nobodys))["changes"] == []


async def test_who_is_given_a_node_sees_nothing_of_its_time_with_others(
    site: Site, admin: dict[str, str]
) -> None:
    heir = await site.token("eve", "operator", "heirs")
    text = rack(site, "mine").replace("groups: [a]", "groups: [heirs]")
    text = text.replace("groups: {", "groups: {heirs: {}, ")
    await apply(site, admin, text)
    now = await site.ask("GET", "/v1/inventory/show", heir)
    assert "mine" in now["yaml"]
    assert (await site.ask("GET", "/v1/inventory/show?revision=HEAD~1", heir))["yaml"] == ""
    (change,) = (await site.ask("GET", "/v1/inventory/diff?before=HEAD~2", heir))["changes"]
    assert change["action"] == "add"
    assert change["fields"]["kernel_args"] == [None, "mine"]
    assert (await site.ask("GET", "/v1/nodes/n0/blame", heir))["lines"]
    assert (await site.ask("GET", "/v1/nodes/n0/blame?revision=HEAD~1", heir))["lines"] == []
    past = await site.ask("GET", "/v1/inventory/diff?before=HEAD~2&after=HEAD~1", heir)
    assert past["changes"] == []


async def test_a_viewer_sees_no_command_line_and_no_bmc(site: Site, admin: dict[str, str]) -> None:
    viewer = await site.token("vic", "viewer")
    answers = [
        await site.ask("GET", path, viewer)
        for path in (
            "/v1/inventory/show",
            "/v1/inventory/diff?before=HEAD~2",
            "/v1/nodes/n0/blame",
            "/v1/inventory/log",
        )
    ]
    assert "10.20.0.10" in str(answers[0])
    for hidden in ("quiet", "debug", "10.9.0.1", "root", "PATCH", "127.0.0.1"):
        assert not any(hidden in str(one) for one in answers), hidden


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_what_is_no_revision_is_refused(site: Site, admin: dict[str, str], text: str) -> None:
    for path, key in (("show", "revision"), ("log", "revision"), ("diff", "before")):
        if text or path == "show":
            query = {key: text}
            said = await site.refused("GET", f"/v1/inventory/{path}", admin, params=query)
            assert "revision" in said and "\x1b" not in said
    body = {"revision": text or "..", "moved": ""}
    assert await site.refused("POST", "/v1/inventory/revert/plan", admin, json=body)


async def test_a_revision_is_also_a_time(site: Site, admin: dict[str, str]) -> None:
    said = await site.refused("GET", "/v1/inventory/show?revision=1969-01-01", admin)
    assert "layercake inventory log" in said
    shown = await site.ask("GET", "/v1/inventory/show?revision=2026-11-27T08:00", admin)
    log = (await site.ask("GET", "/v1/inventory/log", admin))["changes"]
    assert shown["revision"] == log[0]["revision"]


async def test_one_clones_it_with_a_token_that_sees_all(
    site: Site, admin: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    import asyncio

    await site.history.caught_up()
    target = tmp_path_factory.mktemp("clone") / "inventory"
    url = str(site.client.make_url("/v1/inventory/history.git"))
    header = f"http.extraHeader=Authorization: {admin['Authorization']}"
    words = ["git", "-c", header, "clone", "--quiet", url, str(target)]
    done = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    said = (await done.communicate())[1].decode()
    assert done.returncode == 0, said
    assert 'kernel_args: "debug"' in next(target.glob("nodes/*/n0.yaml")).read_text()
    operator = await site.token("olaf", "operator")
    for who in (operator, {}):
        async with site.client.get("/v1/inventory/history.git/HEAD", headers=who) as answer:
            assert answer.status in (401, 403)
    for path in ("config", "refs/heads/main", "..%2flayercake.db", "objects/../config"):
        async with site.client.get(f"/v1/inventory/history.git/{path}", headers=admin) as answer:
            assert answer.status == 404, path


async def test_those_who_only_look_keep_nobody_waiting(site: Site) -> None:
    """A viewer who asked 21 times at once had an administrator refused."""
    admin = await site.token("admin", "admin")
    viewer = await site.token("viewer", "viewer")
    paths = ("show", "log", "diff?before=HEAD&after=HEAD")
    repositories = site.world.head.part(Repositories)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(repositories.viewers.turn())
        waiting = [asyncio.create_task(_answer(site, viewer)) for _ in range(VIEWING.waiting + 1)]
        async with asyncio.timeout(patience(60.0)):
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert "under way already" in done.pop().result()
        for path in paths:
            await site.ask("GET", f"/v1/inventory/{path}", admin)
        for one in waiting:
            one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def _answer(site: Site, who: dict[str, str]) -> str:
    async with site.client.get("/v1/inventory/show", headers=who) as answer:
        return str(await answer.text())
