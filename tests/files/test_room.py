"""The nodes' files on a head: what a node gets, what is told when they change, what applying does,
and what nobody sees."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from layercake.features.files import given
from layercake.features.files.node_files import NodeFiles
from layercake.features.files.rendering.template import CLOSES, OPENS
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.kraken.wire import bearer
from tests.support.disk import on_disk
from tests.support.marked_files import note_marked
from tests.support.world import World, node_client

SITE = """
defaults:
  console: ttyS0
  images: []
  authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEGx5xT1kq8N6Yr0Lx0v7Y0b1o2w3e4r5t6y7u8i9o0p me@here"]
nodes:
  n0:
    mac: "52:54:00:00:00:10"
    ip: 10.1.0.10
    files:
      /etc/motd: {source: motd.j2, on_change: write}
      /etc/munge/munge.key: {secret: munge, owner: munge}
      app:/etc/app.conf:
        {content: "name={{ node.name }} key={{ secret('munge') }}\\n", template: true, on_change: reload app.service}
      /: {tree: base}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}
"""
FILES = {
    "motd.j2": "this is {{ node.name }} of {{ nodes | length }}\n",
    "base/etc/issue": "an issue\n",
    "base/usr/local/bin/hello": "#!/bin/sh\n",
    "base/etc/hello.conf.j2": "ip={{ node.ip }}\n",
    ".git/config": "no\n",
}


def put(world: World, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = world.directory / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
async def site(world: World) -> AsyncIterator[World]:
    put(world, FILES)
    (world.directory / "site/base/usr/local/bin/hello").chmod(0o755)
    secrets = world.directory / "secrets/files"
    secrets.mkdir(parents=True, exist_ok=True)
    (secrets / "munge").write_text("line one\nline two\n")
    (secrets / "munge").chmod(0o600)
    await world.ops.inventory.apply(SITE, "site.yaml", None, False)
    yield world
    await world.head.part(NodeFiles).close()


def headers(world: World, name: str = "n0") -> dict[str, str]:
    record = world.node(name)
    session = record.session or world.attach(name)
    return {
        "Authorization": bearer(
            session.key, bytes.fromhex(record.node.id.replace("-", "")), session.number
        )
    }


async def fetched(world: World, client: TestClient[Any, Any]) -> dict[str, dict[str, Any]]:
    answer = await client.get("/node/v1/files", headers=headers(world))
    said = await answer.json()
    wanted = await (await client.get("/node/v1/desired", headers=headers(world))).json()
    assert answer.status == 200 and said["mark"] == wanted["files"]["mark"]
    return {entry["path"]: entry for entry in said["files"]}


def data(entry: dict[str, Any]) -> str:
    return base64.b64decode(entry["data"]).decode()


@pytest.fixture
async def client(site: World) -> AsyncIterator[TestClient[Any, Any]]:
    async with node_client(site) as found:
        yield found


async def test_a_node_gets_its_files_with_what_it_is(
    site: World, client: TestClient[Any, Any]
) -> None:
    found = await fetched(site, client)
    assert (
        data(found["/etc/motd"]) == "this is n0 of 2\n"
        and found["/etc/motd"]["on_change"] == "write"
    )
    assert data(found["/etc/munge/munge.key"]) == "line one\nline two\n"
    assert (found["/etc/munge/munge.key"]["mode"], found["/etc/munge/munge.key"]["owner"]) == (
        "0600",
        "munge",
    )
    assert data(found["/etc/app.conf"]) == "name=n0 key=line one\nline two\n" and found[
        "/etc/app.conf"
    ]["to"] == ["app"]
    assert (
        data(found["/etc/issue"]) == "an issue\n"
        and data(found["/etc/hello.conf"]) == "ip=10.1.0.10\n"
    )
    assert (
        found["/usr/local/bin/hello"]["mode"] == "0755"
        and "/.git/config" not in found
        and "/config" not in found
    )
    assert data(found["/etc/hostname"]) == "n0\n" and len(data(found["/etc/machine-id"])) == 33
    assert "10.1.0.11 n1" in data(found["/etc/hosts"])
    assert data(found["/root/.ssh/authorized_keys"]).startswith("ssh-ed25519 AAAA")
    load_ssh_private_key(data(found["/etc/ssh/ssh_host_ed25519_key"]).encode(), None)


async def test_a_stranger_gets_none(site: World, client: TestClient[Any, Any]) -> None:
    assert (await client.get("/node/v1/files")).status == 401
    wrong = headers(site)
    site.node("n0").session = None
    assert (await client.get("/node/v1/files", headers=wrong)).status == 401


async def test_a_host_key_is_made_once_kept_and_gone_with_the_node(
    site: World, client: TestClient[Any, Any]
) -> None:
    first = data((await fetched(site, client))["/etc/ssh/ssh_host_ed25519_key"])
    lines = site.ops.files.known_hosts(site.head.store)
    assert lines.startswith("n0,10.1.0.10 ssh-ed25519 AAAA") and lines.count("\n") == 1
    await site.head.part(NodeFiles).close()
    await site.restart()
    assert site.ops.files.known_hosts(site.head.store) == lines
    manifest = await site.head.part(NodeFiles).manifest(site.node("n0"))
    assert (
        next(e for e in manifest.entries if e.path == "/etc/ssh/ssh_host_ed25519_key").data.decode()
        == first
    )
    gone = SITE[: SITE.index("  n0:")] + SITE[SITE.index("  n1:") :]
    await site.ops.inventory.apply(gone, "site.yaml", None, True)
    await site.head.database.flush(site.head.store)
    assert not on_disk(site.directory, "SELECT key FROM documents WHERE key LIKE 'hostkey/%'")
    assert site.ops.files.known_hosts(site.head.store) == ""


async def test_what_is_edited_counts_when_the_inventory_is_applied(
    site: World, client: TestClient[Any, Any]
) -> None:
    before, revision = await fetched(site, client), site.node("n0").cfg_revision
    put(site, {"motd.j2": "changed\nfor {{ node.name }}\n", "unused": "x\n"})
    assert data((await fetched(site, client))["/etc/motd"]) == data(before["/etc/motd"])
    plan = await site.ops.inventory.plan(SITE, "site.yaml")
    assert plan["changes"] == [] and plan["files"] == [
        {"path": "motd.j2", "action": "change", "added": 2, "removed": 1, "nodes": 1}
    ]
    applied = await site.ops.inventory.apply(SITE, "site.yaml", plan["digest"], False)
    assert applied["changed"] == [] and site.node("n0").cfg_revision == revision + 1, (
        "it is told to pull"
    )
    assert data((await fetched(site, client))["/etc/motd"]) == "changed\nfor n0\n"
    await site.head.database.flush(site.head.store)
    assert sorted(os.listdir(site.directory / "files")), "the contents are kept"


async def test_a_plan_over_other_files_is_refused(site: World) -> None:
    put(site, {"motd.j2": "one\n"})
    digest = (await site.ops.inventory.plan(SITE, "site.yaml"))["digest"]
    put(site, {"motd.j2": "two\n"})
    with pytest.raises(Refused, match="has changed since it was planned"):
        await site.ops.inventory.apply(SITE, "site.yaml", digest, False)


async def test_a_restart_knows_what_was_in_force(site: World) -> None:
    put(site, {"motd.j2": "edited\n"})
    mark = site.head.part(NodeFiles).mark(site.node("n0"))
    await site.head.part(NodeFiles).close()
    await site.restart()
    assert site.head.part(NodeFiles).mark(site.node("n0")) == mark
    found = await site.ops.files.content("n0", "/etc/motd")
    assert found == [{"for": ["*"], "text": "this is n0 of 2\n", "error": ""}]


async def test_a_source_that_is_missing_is_refused(site: World) -> None:
    other = SITE.replace("motd.j2", "nowhere.j2")
    for work in (
        site.ops.inventory.plan(other, "x"),
        site.ops.inventory.apply(other, "x", None, False),
    ):
        with pytest.raises(InputError, match=r"there is no nowhere.j2 in .*site, and n0 has it"):
            await work


@pytest.mark.parametrize("kind", ["link", "fifo", "big"])
async def test_what_is_no_file_of_a_site_is_refused(site: World, kind: str) -> None:
    path = site.directory / "site/base/odd"
    if kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"x" * (1 << 20) + b"x")
    with pytest.raises(InputError, match="odd"):
        await site.ops.inventory.plan(SITE, "x")


async def test_one_file_that_fails_leaves_the_others_and_other_nodes_alone(
    site: World, client: TestClient[Any, Any]
) -> None:
    put(site, {"motd.j2": "a\n{{ node.ip }}\n{{ nope }}\n"})
    await site.ops.inventory.apply(SITE, "site.yaml", None, False)
    found = await fetched(site, client)
    assert (
        found["/etc/motd"]["error"] == "line 3: 'nope' is undefined"
        and "data" not in found["/etc/motd"]
    )
    assert data(found["/etc/issue"]) == "an issue\n"
    assert "files.failed" in site.kinds("n0") and "files.failed" not in site.kinds("n1")
    assert site.head.part(NodeFiles).errors(site.node("n0")) == [
        "*:/etc/motd: line 3: 'nope' is undefined"
    ]
    assert site.head.part(NodeFiles).errors(site.node("n1")) == []


async def test_a_secret_that_cannot_be_read_is_the_error_of_its_file_alone(
    site: World, client: TestClient[Any, Any]
) -> None:
    await fetched(site, client)
    (site.directory / "secrets/files/munge").write_text("another one\n")
    assert data((await fetched(site, client))["/etc/munge/munge.key"]) == "another one\n", (
        "as it is when it is fetched"
    )
    revision = site.node("n0").cfg_revision, site.node("n1").cfg_revision
    await site.ops.inventory.apply(SITE, "site.yaml", None, False)
    assert (site.node("n0").cfg_revision, site.node("n1").cfg_revision) == (
        revision[0] + 1,
        revision[1],
    ), "who has it is told"
    (site.directory / "secrets/files/munge").unlink()
    found = await fetched(site, client)
    assert "cannot read secret files/munge" in found["/etc/munge/munge.key"]["error"]
    assert "cannot read secret files/munge" in found["/etc/app.conf"]["error"] and data(
        found["/etc/issue"]
    )


async def test_the_marks_of_secrets_in_somebodys_own_words_are_his(
    site: World, client: TestClient[Any, Any]
) -> None:
    """Who may write a line into a file of his node had any secret of the head in its place."""
    mark = f"{OPENS}munge{CLOSES}\n"
    wanted = {"files": {"/etc/own": {"content": mark}}}
    await site.ops.inventory.change("n0", wanted, ())
    found = await fetched(site, client)
    assert data(found["/etc/own"]) == mark


async def test_nobody_is_shown_a_secret(site: World) -> None:
    shown = await site.ops.files.content("n0", "/etc/app.conf")
    assert shown[0]["text"] == "name=n0 key=<secret munge>\n"
    assert (await site.ops.files.content("n0", "/etc/munge/munge.key"))[0][
        "text"
    ] == "<secret munge>"
    assert (await site.ops.files.content("n0", "/etc/ssh/ssh_host_ed25519_key"))[0][
        "text"
    ] == "<secret>\n"
    told = str(
        [
            await site.ops.files.show("n0"),
            await site.ops.inventory.plan(SITE, "x"),
            site.head.store.events,
        ]
    )
    assert "line one" not in told and "PRIVATE" not in told
    with pytest.raises(NotFound, match="/etc/nothing"):
        await site.ops.files.content("n0", "/etc/nothing")


async def test_a_diff_shows_what_applying_would_change(site: World) -> None:
    put(site, {"motd.j2": "this is {{ node.name }}\n"})
    entries = await site.ops.inventory.entries(
        SITE.replace("reload app.service", "restart").replace("an issue", "x"), "x"
    )
    found = await site.ops.files.diff("n0", entries)
    assert [(c["nodes"], c["path"], c["on_change"]) for c in found] == [
        (["n0"], "/etc/motd", "write")
    ]
    assert "-this is n0 of 2\n+this is n0\n" in found[0]["diff"]
    assert await site.ops.files.diff("n1", entries) == []
    leave = await site.ops.inventory.entries(
        SITE.replace("/: {tree: base}", "/etc/hostname: {leave: true}"), "x"
    )
    paths = {c["path"]: c["diff"] for c in await site.ops.files.diff("n0", leave)}
    assert "-an issue\n" in paths["/etc/issue"]


async def test_other_nodes_are_told_when_a_hosts_file_changes(
    site: World, client: TestClient[Any, Any]
) -> None:
    await fetched(site, client)
    revision = site.node("n0").cfg_revision
    await site.ops.inventory.apply(
        SITE + '  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12}\n', "site.yaml", None, False
    )
    assert site.node("n0").cfg_revision > revision
    assert "10.1.0.12 n2" in data((await fetched(site, client))["/etc/hosts"])


async def test_other_nodes_are_told_when_one_node_has_another_address(
    site: World, client: TestClient[Any, Any]
) -> None:
    await fetched(site, client)
    revision = site.node("n0").cfg_revision
    await site.ops.inventory.change("n1", {"ip": "10.1.0.99"}, ())
    assert site.node("n0").cfg_revision > revision
    assert "10.1.0.99 n1" in data((await fetched(site, client))["/etc/hosts"])


async def test_a_change_that_no_other_node_sees_looks_at_the_files_of_that_node_alone(
    site: World, client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand nodes, to look at them all took ten times as long as the change."""
    await fetched(site, client)
    await site.ops.inventory.change("n1", {"kernel_args": "a=1"}, ())
    files = site.head.part(NodeFiles)
    marked = note_marked(files, monkeypatch)
    await site.ops.inventory.change("n0", {"kernel_args": "a=1"}, ())
    assert set(marked) == {"n0"}
    marked.clear()
    (site.directory / "secrets" / "files").mkdir(parents=True, exist_ok=True)
    (site.directory / "secrets" / "files" / "new").write_text("s")
    await site.ops.inventory.change("n1", {"kernel_args": "a=2"}, ())
    assert "n0" in marked, "a secret is another one: it may stand in anybody's files"


async def test_who_was_not_told_since_something_failed_is_told_by_the_next_change(
    site: World, client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetched(site, client)
    revision = site.node("n0").cfg_revision

    def fails(rows: object) -> None:
        raise OSError("no more threads")

    with monkeypatch.context() as patch:
        patch.setattr(given, "site", fails)
        with pytest.raises(OSError, match="no more threads"):
            await site.ops.inventory.change("n1", {"ip": "10.1.0.99"}, ())
    assert site.node("n0").cfg_revision == revision
    await site.ops.inventory.change("n1", {"kernel_args": "a=1"}, ())
    assert site.node("n0").cfg_revision > revision
    assert "10.1.0.99 n1" in data((await fetched(site, client))["/etc/hosts"])


async def test_a_change_of_one_node_changes_no_files_of_others(
    site: World, client: TestClient[Any, Any]
) -> None:
    before = await fetched(site, client)
    put(site, {"motd.j2": "edited\n", "new": "n\n"})
    await site.ops.inventory.change("n1", {"files": {"/etc/new": {"source": "new"}}}, ())
    assert (await site.ops.files.content("n1", "/etc/new"))[0]["text"] == "n\n"
    assert data((await fetched(site, client))["/etc/motd"]) == data(before["/etc/motd"])


async def test_contents_that_were_altered_where_they_are_kept_are_not_used(site: World) -> None:
    for path in (site.directory / "files").iterdir():
        path.write_bytes(b"evil")
    await site.head.part(NodeFiles).close()
    await site.restart()
    manifest = await site.head.part(NodeFiles).manifest(site.node("n0"))
    assert all(
        "altered where it is kept" in e.error
        for e in manifest.entries
        if e.path in ("/etc/motd", "/etc/issue")
    )
    assert Path(site.directory, "files").is_dir()
