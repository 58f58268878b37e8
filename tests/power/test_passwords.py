"""New passwords of many BMCs: the old one of each is used until its BMC was seen to take the new
one, whatever fails, and wherever it is cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from layercake.base.secrets import SecretRef
from layercake.features.power.passwords import AT_ONCE, BmcPasswords, Changed
from layercake.kraken.errors import InputError, OperationFailed, Refused, Unreachable
from powerman.driver import LoginRefused, PowerState
from tests.support.api import served
from tests.support.world import World

NODES = 6


def inventory(file: Callable[[int], str], count: int = NODES) -> str:
    """So many nodes with a BMC; where the password of each is."""
    nodes = [
        f'  n{i}: {{mac: "52:54:00:00:01:{i:02x}", ip: 10.1.0.{10 + i}, bmc: {{driver: ipmi, '
        f"address: 10.2.0.{10 + i}, username: admin, password: {file(i)}}}}}"
        for i in range(count)
    ]
    return "\n".join(["defaults: {images: []}", "nodes:", *nodes])


class Bmcs:
    """The BMCs, as the head's powerman finds them: it logs in by what the head says is a node's
    password. `silent` answer nobody, `cut` keep the old one, `lost` take the new one and do not
    answer any more; `left` cannot."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.takes: dict[str, str] = dict.fromkeys((f"n{i}" for i in range(NODES)), "old-one")
        self.silent: set[str] = set()
        self.cut: set[str] = set()
        self.lost: set[str] = set()
        self.left: set[str] = set()
        self.asked: list[str] = []
        self.busy = self.most = 0

    def used(self, name: str) -> str:
        """What the head logs in with."""
        record = self.site.world.node(name)
        part = record.node.parts[self.site.world.head.table.caller["power.password"]]
        ref = getattr(part, "password")  # noqa: B009 (the head knows no module's struct)
        passwords = self.site.world.head.part(BmcPasswords)
        return self.site.world.head.vault.open(passwords.current(record, ref)).reveal()

    async def answer(self, call: str, params: Mapping[str, Any]) -> Any:
        record = self.site.world.head.store.find(params["node"])
        assert record is not None
        name = record.name
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(0)
            return self._answer(call, name, params)
        finally:
            self.busy -= 1

    def _answer(self, call: str, name: str, params: Mapping[str, Any]) -> Any:
        if name in self.silent:
            raise Unreachable(f"cannot reach the BMC of {name}: no answer")
        if call == "power.log-in":
            if self.used(name) != self.takes[name]:
                raise OperationFailed(f"cannot log in at the BMC of {name}: wrong password")
            return {}
        assert call == "power.password"
        self.asked.append(name)
        if name in self.left:
            return {"where": name, "left": "it has no accounts"}
        if name in self.cut:
            raise OperationFailed(f"cannot log in at the BMC of {name}: wrong password")
        self.takes[name] = params["password"]
        if name in self.lost:
            raise Unreachable(f"cannot reach the BMC of {name}: no answer")
        return {"where": name, "left": ""}


class Site:
    """A head, its secrets, and its nodes' BMCs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.secrets = world.head.vault.directory
        self.bmcs = Bmcs(self)

    async def have(self, file: Callable[[int], str]) -> None:
        for i in range(NODES):
            path = self.secrets / file(i)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old-one\n")
            path.chmod(0o600)
        text = inventory(lambda i: f"{{file: {self.secrets}/{file(i)}}}")
        await self.world.ops.inventory.apply(text, "rack.yaml", None, True)

    async def change(self, nodes: str = "@all", new: str = "") -> dict[str, str]:
        """Changes them; what failed on each node, "" for those that went well."""
        passwords = self.world.head.part(BmcPasswords)
        return {c.node: c.error async for c in await passwords.change(nodes, new, "ann")}

    def works(self) -> dict[str, bool]:
        """Of which nodes the head's password is what their BMCs take."""
        return {n: self.bmcs.used(n) == takes for n, takes in self.bmcs.takes.items()}

    def written(self, file: str) -> str:
        return self.world.head.vault.open(SecretRef(file=file)).reveal()


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    world = World(tmp_path)
    try:
        world.open()
        found = Site(world)
        world.answer_calls(monkeypatch, found.bmcs.answer)
        yield found
    finally:
        await world.close_head()
        world.client.close()


def shared(i: int) -> str:
    return "bmc"


def own(i: int) -> str:
    return f"bmc/n{i}"


@pytest.mark.parametrize("file", [shared, own], ids=["one file", "a file each"])
async def test_all_get_a_new_one_and_the_files_have_it(
    site: Site, file: Callable[[int], str]
) -> None:
    await site.have(file)
    assert await site.change() == dict.fromkeys(site.bmcs.takes, "")
    assert all(site.works().values()) and "old-one" not in site.bmcs.takes.values()
    assert {site.written(file(i)) for i in range(NODES)} == set(site.bmcs.takes.values())
    assert len(set(site.bmcs.takes.values())) == len({file(i) for i in range(NODES)})
    kept = [p.name for p in site.secrets.rglob(".*")]
    assert kept == [] and site.bmcs.most <= AT_ONCE
    assert {(site.secrets / file(i)).stat().st_mode & 0o777 for i in range(NODES)} == {0o600}


async def test_while_some_fail_each_is_reached_by_what_it_takes(site: Site) -> None:
    await site.have(shared)
    site.bmcs.silent, site.bmcs.cut, site.bmcs.left = {"n1"}, {"n2"}, {"n3"}
    failed = await site.change()
    assert failed["n1"].endswith("no answer; its password is as it was")
    assert failed["n2"].endswith("wrong password; the old password still works")
    assert failed["n3"] == "it has no accounts; the old password still works"
    assert {n for n, why in failed.items() if not why} == {"n0", "n4", "n5"}
    assert all(site.works().values()), "whatever it takes, the head knows it"
    assert site.written("bmc") == "old-one", "a node that comes now has a BMC with the old one"

    await site.world.restart()
    assert all(site.works().values()), "a head that starts knows it too"
    site.bmcs.silent = site.bmcs.cut = site.bmcs.left = set()
    site.bmcs.asked.clear()


async def test_what_failed_goes_on_when_it_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.have(shared)
    site.bmcs.silent = {"n1"}
    await site.change()
    await site.world.restart()
    site.world.answer_calls(monkeypatch, site.bmcs.answer)
    site.bmcs.silent, site.bmcs.asked = set(), []
    assert set((await site.change()).values()) == {""}
    assert site.bmcs.asked == ["n1"], "those that take it are left alone"
    assert {site.written("bmc")} == set(site.bmcs.takes.values())
    assert site.world.head.database.documents("bmcpassword/") == {}


async def test_one_that_is_lost_half_way_is_shown_and_found_out_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.have(own)
    bmcs = site.bmcs
    answer = bmcs.answer

    async def goes_silent(call: str, params: Mapping[str, Any]) -> Any:
        try:
            return await answer(call, params)
        finally:
            bmcs.silent |= bmcs.lost if call == "power.password" else set()

    site.world.answer_calls(monkeypatch, goes_silent)
    bmcs.lost = {"n4"}
    failed = await site.change("n[4-5]")
    assert failed["n5"] == "" and "which password it takes is not known" in failed["n4"]
    passwords = site.world.head.part(BmcPasswords)
    (text,) = passwords.uncertain(site.world.node("n4"))
    assert "`layercake power password n4`" in text
    assert passwords.uncertain(site.world.node("n5")) == []
    bmcs.lost, bmcs.silent = set(), set()
    assert await site.change("n4") == {"n4": ""}
    assert all(site.works().values()) and passwords.uncertain(site.world.node("n4")) == []


async def test_some_of_those_that_share_a_file_are_refused_and_nothing_is_done(site: Site) -> None:
    await site.have(shared)
    with pytest.raises(InputError, match="n2, n3, n4, n5 have theirs from the same file, bmc"):
        await site.change("n[0-1]")
    assert site.bmcs.asked == [] and [p.name for p in site.secrets.rglob(".*")] == []
    await site.change()


async def test_a_person_may_say_which_by_a_file(site: Site) -> None:
    await site.have(shared)
    (site.secrets / "next").write_text("A-new-one-2026!\n")
    await site.change(new="next")
    assert set(site.bmcs.takes.values()) == {"A-new-one-2026!"} == {site.written("bmc")}
    for wrong in ("short", "with spaces in it", "x" * 21, "pässword-long"):
        (site.secrets / "next").write_text(wrong)
        with pytest.raises(InputError) as refused:
            await site.change(new="next")
        assert wrong not in f"{refused.value}"
    with pytest.raises(InputError, match="cannot read secret missing"):
        await site.change(new="missing")
    assert set((await site.change()).values()) == {""}, "a mistake holds up nobody"


async def test_another_one_than_the_one_under_way_is_refused(site: Site) -> None:
    await site.have(shared)
    site.bmcs.silent = {"n1"}
    await site.change()
    (site.secrets / "next").write_text("A-new-one-2026!\n")
    with pytest.raises(InputError, match="another one is prepared for file"):
        await site.change(new="next")


async def test_frozen_nodes_and_those_without_a_file_are_left(site: Site) -> None:
    text = inventory(lambda i: "{env: BMC}" if i else f"{{file: {site.secrets}/bmc}}", 2)
    site.secrets.mkdir(parents=True, exist_ok=True)
    (site.secrets / "bmc").write_text("old-one\n")
    text += '\n  n9: {mac: "52:54:00:00:01:99", ip: 10.1.0.99}\n'
    await site.world.ops.inventory.apply(text, "rack.yaml", None, True)
    failed = await site.change()
    assert failed == {
        "n0": "",
        "n1": "its password is in an environment variable BMC, which the head cannot write",
        "n9": "the inventory names no password of its BMC",
    }
    await site.world.ops.care.freeze("n0", "work", "ann")
    with pytest.raises(Refused, match="cannot change the password of the BMC of n0"):
        await site.change("n0")


async def test_who_leaves_has_no_more_begun_and_none_half_done(site: Site) -> None:
    await site.have(own)
    passwords = site.world.head.part(BmcPasswords)
    results = await passwords.change("@all", "", "ann")
    await anext(results)
    with pytest.raises(Refused, match="some are being changed"):
        await site.change("n0")
    await results.aclose()
    await passwords.stop()
    assert all(site.works().values())
    assert all(not passwords.uncertain(site.world.node(f"n{i}")) for i in range(NODES))


async def test_the_api_says_it_line_by_line_and_shows_no_password(site: Site) -> None:
    await site.have(own)
    async with served(site.world.head, local=True) as api:
        answer = await api.post("/v1/power/password", json={"range": "@all"})
        text = await answer.text()
        refused = await api.post("/v1/power/password", json={"range": "n77"})
        audit = await (await api.get("/v1/audit")).text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert {row["node"] for row in rows} == set(site.bmcs.takes)
    assert refused.status == 400 and "n77" in await refused.text()
    said = text + audit + "".join(e.text for e in site.world.head.store.events)
    assert not [p for p in site.bmcs.takes.values() if p in said]
    kinds = [e.kind for e in site.world.head.store.events]
    assert kinds.count("power.password-changed") == NODES


async def test_powerman_is_told_the_new_one_as_soon_as_a_bmc_takes_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.have(shared)
    site.bmcs.silent = {"n1"}
    sent: list[Any] = []
    monkeypatch.setattr(
        site.world.head.modules.host, "send", lambda module, message: sent.append(message)
    )
    await site.change()
    records = [(m.node_changed.node, json.loads(m.node_changed.json).get("bmc")) for m in sent]
    told = {node: bmc["password"] for node, bmc in records if isinstance(bmc, dict)}
    by_name = {n: told.get(site.world.node(n).node.id) for n in site.bmcs.takes}
    assert by_name["n0"] == site.bmcs.takes["n0"] and by_name["n1"] in (None, "old-one")


# -- powerman


@pytest.mark.parametrize("back", [True, False], ids=["goes back", "is stuck"])
async def test_a_bmc_that_does_not_take_what_it_was_given_gets_the_old_one_back(
    world: Any, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    given: list[str] = []
    refused = LoginRefused("cannot log in: wrong password")

    async def takes(self: Any, new: str) -> None:
        if given and not back:
            raise refused
        given.append(new)

    async def asked(self: Any) -> PowerState:
        if self is not first:
            raise refused
        return PowerState.OFF

    first = world.drivers["n1"]
    monkeypatch.setattr(type(first), "set_password", takes)
    monkeypatch.setattr(type(first), "state", asked)
    old = world.service.bmc_of("n1").spec.password
    with pytest.raises(LoginRefused):
        await world.service.set_password("n1", "a-new-one-16ch")
    assert given == ["a-new-one-16ch", *([old] if back else [])]


async def test_a_login_is_tried_anew_and_not_by_a_session_that_there_is(world: Any) -> None:
    first = world.drivers["n1"]
    await world.service.log_in("n1")
    assert world.drivers["n1"] is not first and world.drivers["n1"].calls == ["state", "close"]


def test_a_change_is_shown_without_what_it_changes_to() -> None:
    assert "password" not in Changed("n0", "bmc/n0").__dataclass_fields__
