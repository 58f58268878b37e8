"""What somebody who is bound to a group may write into the entries of his nodes: what is about the
node alone, and what config.yaml hands to the group."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from imageapi.store.store import ImageStore
from layercake.api.delegation import Delegated, Delegations
from layercake.inventory.changes import Action, Change
from layercake.kraken.errors import Refused
from tests.access.conftest import CONTAINER, OTHER, OWN, RACK, rack
from tests.support.api import served, token
from tests.support.world import World

DELEGATED = {
    "physics": Delegated(
        images=["phys-*"], files=["physics/*"], secrets=["physics-*"], aliases=["*.phys"]
    )
}
BMC = {"driver": "ipmi", "address": "10.9.0.1", "username": "u", "password": {"env": "ANY"}}
OWN_FIELDS = {
    "state": "off",
    "console": "ttyS1",
    "kernel_args": "quiet",
    "remedy": "hold",
    "labels": {"rack": "1"},
    "files": {"/etc/motd": {"content": "hello", "mode": "0600"}},
}
OF_THE_SITE: list[dict[str, Any]] = [
    {"bmc.address": "10.9.0.1"},
    {"bmc.password": {"file": "/etc/layercake/secrets/of-chem0"}},
    {"bmc.password": {"env": "ANY"}},
    {"bmc": BMC},
    {"bmc": {**BMC, "driver": "redfish", "system": "/redfish/v1/Systems/2", "verify_tls": False}},
    {"mac": ["52:54:00:00:00:99"]},
    {"ip": "10.1.0.77"},
    {"aliases": ["ldap"]},
    {"serial": "OF-CHEM0"},
    {"files": {"/etc/x": {"source": "chemistry/x"}}},
    {"files": {"/etc/x": {"tree": "chemistry"}}},
    {"files": {"/etc/x": {"secret": "of-chem0"}}},
    {"files": {"/etc/x": {"content": "{{ nodes }}", "template": True}}},
    {"interfaces": {"data": {"mac": "52:54:00:00:00:20", "addresses": ["10.1.0.11/24"]}}},
]
"""What names, or may take, what is somebody else's."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with rack(tmp_path, delegated=DELEGATED) as found:
        yield found


async def _patch(api: Any, headers: dict[str, str], values: dict[str, Any]) -> tuple[int, str]:
    body = {"set": values, "confirm_secrets": True, "at_once": True}
    async with api.patch(f"/v1/nodes/{OWN}", json=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("values", OF_THE_SITE, ids=str)
async def test_what_is_the_sites_is_not_for_who_is_bound(
    world: World, values: dict[str, Any]
) -> None:
    before = world.head.store.named(OWN).node
    async with served(world.head, local=False) as api:
        bound = await token(world.head, "ann", "admin", "physics")
        status, text = await _patch(api, bound, values)
    assert status == 403 and "not delegated to the groups physics" in text, text
    assert world.head.store.named(OWN).node == before


@pytest.mark.parametrize("field", OWN_FIELDS)
async def test_what_is_about_the_node_alone_is(world: World, field: str) -> None:
    async with served(world.head, local=False) as api:
        bound = await token(world.head, "ann", "admin", "physics")
        status, text = await _patch(api, bound, {field: OWN_FIELDS[field]})
    assert status == 200, text


async def test_an_administrator_of_the_site_may_all_of_it(world: World) -> None:
    async with served(world.head, local=False) as api:
        everywhere = await token(world.head, "root", "admin")
        for values in ({"aliases": ["ldap"]}, {"bmc.address": "10.9.0.1"}):
            status, text = await _patch(api, everywhere, values)
            assert status == 200, text


async def test_what_is_delegated_may_be_named(world: World) -> None:
    async with served(world.head, local=False) as api:
        bound = await token(world.head, "ann", "admin", "physics")
        status, text = await _patch(api, bound, {"aliases": ["gpu.phys"]})
        assert status == 200, text
        status, text = await _patch(api, bound, {"aliases": ["gpu.phys", "head"]})
        assert status == 403, text
        status, text = await _patch(api, bound, {"aliases": []})
        assert status == 200, f"to name less needs nobody: {text}"


async def test_an_image_that_needs_secrets_is_for_whom_it_is_delegated_to(
    world: World, tmp_path: Path
) -> None:
    attach = {"kind": "iscsi", "portal": "10.1.0.2:3260", "target": "iqn.2024-01.org.example:x"}
    login: dict[str, Any] = {"lun": 0, "user": "u", "secret": "of-all"}
    mount: dict[str, Any] = {
        "target": "/x",
        "kind": "attach",
        "attach": attach | login,
        "fstype": "ext4",
    }
    for name in ("chem-data", "phys-data"):
        file = tmp_path / f"{name}.squashfs"
        file.write_bytes(b"hsqs" + name.encode() * 10)
        world.head.part(ImageStore).add(file, name, {**CONTAINER, "mounts": [mount]})
    async with served(world.head, local=False) as api:
        bound = await token(world.head, "ann", "admin", "physics")
        status, text = await _patch(api, bound, {"images": ["chem-data"]})
        assert status == 403 and "it needs secrets" in text, text
        for path in ("/v1/images/roll", "/v1/rolls"):
            body: dict[str, Any] = {"range": OWN, "image": "chem-data"}
            async with api.post(path, json=body, headers=bound) as answer:
                assert answer.status == 403 and "it needs secrets" in await answer.text(), path
        body = {"range": OWN, "image": "phys-data", "at_once": True}
        async with api.post("/v1/images/roll", json=body, headers=bound) as answer:
            assert "it needs secrets" not in await answer.text()


async def test_files_that_may_tell_of_others_are_not_shown(world: World) -> None:
    async with served(world.head, local=False) as api:
        everywhere = await token(world.head, "root", "admin")
        bound = await token(world.head, "ann", "admin", "physics")
        own = {"/etc/motd": {"content": "hello"}}
        of_all = {"/etc/all": {"content": "{{ nodes | length }}", "template": True}}
        status, text = await _patch(api, everywhere, {"files": own | of_all})
        assert status == 200, text
        shown = {}
        for path in ("/etc/hosts", "/etc/all", "/etc/motd"):
            for who in (everywhere, bound):
                url = f"/v1/nodes/{OWN}/files/content"
                async with api.get(url, params={"file": path}, headers=who) as answer:
                    text = (await answer.json())["files"][0]["text"]
                    shown[path, who is bound] = text
        assert OTHER in shown["/etc/hosts", False] and shown["/etc/all", False] != ""
        assert shown["/etc/motd", True] == shown["/etc/motd", False] == "hello"
        for path in ("/etc/hosts", "/etc/all"):
            assert shown[path, True] == "<not shown to who is bound to groups>\n"
        body = {"range": OWN, "yaml": RACK}
        async with api.post("/v1/files/diff", json=body, headers=bound) as answer:
            assert answer.status == 403, await answer.text()
        async with api.post("/v1/files/diff", json={"range": OWN}, headers=bound) as answer:
            assert answer.status == 200, await answer.text()


@pytest.mark.parametrize(
    "site",
    [
        {"files": {"/etc/motd": {"content": "hi {{ name }}", "template": True}}},
        {"bmc.boot": "network"},
        {"tpm": "required", "secrets": "quoted"},
        {"aliases": ["ldap"], "console": "ttyS1"},
    ],
    ids=lambda site: "-".join(site),
)
async def test_what_the_site_has_said_stays(world: World, site: dict[str, Any]) -> None:
    """A value that is as usual is no word of an entry: to set it takes the site's word away."""
    usual: dict[str, tuple[dict[str, Any], list[str]]] = {
        "files": ({"files": {"/etc/motd": {"content": "{{ secret('x') }}", "template": True}}}, []),
        "bmc.boot": ({}, ["bmc"]),
        "tpm": ({"tpm": "none"}, []),
        "aliases": ({"serial": "X"}, []),
    }
    wanted, unset = usual[next(iter(site))]
    async with served(world.head, local=False) as api:
        status, text = await _patch(api, await token(world.head, "root", "admin"), site)
        assert status == 200, text
        before = world.head.store.named(OWN).node
        bound = await token(world.head, "ann", "admin", "physics")
        for body in ({"set": wanted, "unset": unset}, {"set": {"secrets": "any"}}):
            async with api.patch(f"/v1/nodes/{OWN}", json=body, headers=bound) as answer:
                found = await answer.text()
                assert answer.status == 403 or world.head.store.named(OWN).node == before, found
    assert world.head.store.named(OWN).node == before


def test_a_template_of_ones_own_is_not_handed_over_by_files() -> None:
    everything = Delegations({"physics": Delegated(files=["*"])})
    change = Change(OWN, Action.CHANGE, {"files./etc/x.template": (None, True)})
    with pytest.raises(Refused):
        everything.refuse_change(("physics",), change)
    change = Change(OWN, Action.CHANGE, {"files./etc/x.content": ("a", "b")})
    everything.refuse_change(("physics",), change)
    with pytest.raises(Refused):
        everything.refuse_change(("physics",), change, {"/etc/x"})


async def test_groups_of_ranges_are_those_of_now(world: World) -> None:
    """Also while a change of many nodes is carried out little by little."""
    store = world.head.store
    record = store.named(OWN)
    assert [r.name for r in store.select("@physics")] == [OWN]
    async with world.head.desire.transaction() as transaction:
        wanted = dataclasses.replace(record.node, groups=("chemistry",))
        world.head.desire.images(transaction, record, (), node=wanted)
        transaction.after(store.names_and_groups)
    assert sorted(r.name for r in store.select("@chemistry")) == [OTHER, OWN]


def test_a_field_that_nobody_has_thought_of_is_the_sites() -> None:
    delegations = Delegations(DELEGATED)
    for field in ("new", "bmc.new", "files./etc/x.new", "interfaces.data.new", "thermalnew"):
        change = Change(OWN, Action.CHANGE, {field: (None, "x")})
        delegations.refuse_change(None, change)
        with pytest.raises(Refused, match="not delegated"):
            delegations.refuse_change(("physics",), change)


def test_each_list_is_asked_for_by_some_field() -> None:
    named = {
        "files": "files./etc/x.source",
        "secrets": "files./etc/x.secret",
        "aliases": "aliases",
        "images": "images",
    }
    assert set(named) == set(get_type_hints(Delegated))
    for kind, field in named.items():
        given = {"aliases": ["a.phys"], "images": ["one"]}.get(kind, "physics-x")
        value = "physics/x" if kind == "files" else given
        change = Change(OWN, Action.CHANGE, {field: (None, value)})
        Delegations(DELEGATED).refuse_change(("chemistry", "physics"), change)
        if kind != "images":
            with pytest.raises(Refused):
                Delegations(DELEGATED).refuse_change(("chemistry",), change)
