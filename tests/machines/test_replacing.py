"""A board that was replaced: recognised by option 82 at DHCP or by its report, told, and by
`replace: auto` taken for the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from layercake.features.machines.manager import Machines
from layercake.features.machines.module import Whereabouts, offers
from layercake.features.machines.replacing import CLAIMS_S, QUIET_S
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import Refused
from layercake.moduleapi.strangers import HEARD, option82
from tests.machines.test_discovery import Stranger, report
from tests.machines.test_hardware import explained, survey
from tests.support.world import World

NEW, OTHER, OLD = "02:00:00:00:00:01", "02:00:00:00:00:02", "52:54:00:00:00:10"
INVENTORY = """
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, place: {circuit: eth7, remote: SW1}, replace: auto}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, place: {relay: 10.2.0.1, circuit: "00:04:00:07"}}
  n2: {mac: ["52:54:00:00:00:12", "52:54:00:00:00:13"], ip: 10.1.0.12, place: {switch: SW1, port: 7}, replace: auto}
  n3: {mac: "52:54:00:00:00:14", ip: 10.1.0.13, serial: SN-3, replace: auto}
"""


@pytest.fixture
async def site(world: World) -> World:
    """A head with nodes in places; the boot service has heard of nobody for an hour."""
    await world.ops.inventory.apply(INVENTORY, "x.yaml", None, True)
    hears(world, {})
    return world


def hears(world: World, said: Mapping[str, tuple[str, str, str, float]]) -> None:
    """What the boot service says of where cards were heard. Every BMC knows the serial number that
    a stranger says."""
    keeper = world.head.part(Machines)

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        if method == "power.hardware":
            return [{"part": "System", "what": "SerialNumber", "value": "SN-3"}]
        if method != HEARD:
            return True
        silent = ("", "", "", 3600.0)
        return {
            mac: dict(
                zip(
                    ("relay", "circuit", "remote", "seconds_ago"),
                    said.get(mac, silent),
                    strict=True,
                )
            )
            for mac in params["macs"]
            if mac in said or keeper.node_by(mac) is not None
        }

    world.head.modules.host.call = ask  # type: ignore[method-assign]


async def claims(world: World, name: str, mac: str, own_s: float = 3600.0) -> None:
    data = {"mac": mac, "relay": "10.2.0.1", "circuit": "eth7", "remote": "sw1", "own_s": own_s}
    record = world.node(name)
    world.head.listener.event("pxe", record.node.id, "dhcp.place-claimed", "info", "x", data)
    await world.head.part(Machines).replacing.settled()


def macs(world: World, name: str) -> tuple[str, ...]:
    return world.node(name).node.macs


async def test_a_new_board_at_a_place_is_told(site: World) -> None:
    await claims(site, "n1", NEW)
    assert "machine.claims" in site.kinds("n1") and macs(site, "n1") == ("52:54:00:00:00:11",)
    text = explained(site, "n1")
    assert (
        f"{NEW}, which no inventory knows, asks for something to boot from circuit eth7 remote sw1 "
        "relay 10.2.0.1" in text
    )
    assert f"(hint: layercake node set n1 mac={NEW})" in text
    site.clock.now += CLAIMS_S + 1
    assert NEW not in explained(site, "n1")


async def test_a_new_board_is_taken_for_the_node(site: World) -> None:
    await claims(site, "n0", NEW)
    assert (
        macs(site, "n0") == (NEW,)
        and "machine.replaced" in site.kinds("n0")
        and NEW not in explained(site, "n0")
    )
    await claims(site, "n0", OTHER)
    assert macs(site, "n0") == (NEW,), "one was replaced a moment ago"
    assert "machine.disputed" in site.kinds("n0")
    assert "it is not taken for the node: its own card was heard a short while ago" in explained(
        site, "n0"
    )


async def test_two_that_claim_a_place_are_both_refused(site: World) -> None:
    await claims(site, "n0", NEW, own_s=QUIET_S - 1)
    assert macs(site, "n0") == (OLD,) and "machine.disputed" in site.kinds("n0")
    await claims(site, "n0", OTHER)
    await claims(site, "n0", NEW)
    assert macs(site, "n0") == (OLD,)
    assert f"{OTHER} claim the same" in explained(
        site, "n0"
    ) and f"{NEW} claim the same" in explained(site, "n0")
    site.clock.now += CLAIMS_S + 1
    await claims(site, "n0", NEW)
    assert macs(site, "n0") == (NEW,), "the other one has gone"


async def test_a_node_that_lives_or_is_frozen_is_not_replaced(site: World) -> None:
    site.head.part(Machines).replacing.keeps = lambda record: "its agent answers"
    await claims(site, "n0", NEW)
    assert macs(site, "n0") == (OLD,) and "its agent answers" in explained(site, "n0")
    site.head.part(Machines).replacing.keeps = lambda record: ""
    await site.ops.care.freeze("n0", "a look", "me")
    await claims(site, "n0", NEW)
    assert macs(site, "n0") == (OLD,) and "frozen by" in explained(site, "n0")


async def test_a_crowd_that_claims_one_place_costs_nothing(site: World) -> None:
    for n in range(500):
        await claims(site, "n0", f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", own_s=0.0)
    assert len(site.head.part(Machines).replacing.lines(site.node("n0"))) == 8


async def test_a_stranger_that_reports_a_place_is_taken(site: World) -> None:
    one = Stranger(site, "02:00:00:00:00:05")
    cards = [
        {"name": f"eth{n}", "mac": mac}
        for n, mac in enumerate(("02:00:00:00:00:05", "02:00:00:00:00:06"))
    ]
    assert (await one.says(report("SN-77", "7", cards=cards)))["then"] == "reboot"
    assert macs(site, "n2") == ("02:00:00:00:00:05", "02:00:00:00:00:06")


USB_NIC = {"name": "usb0", "mac": "be:3a:f2:b6:05:9f", "driver": "cdc_ether", "slot": "1-1:1.0"}
"""The host interface of a BMC: this MAC address is on each board of the series."""


async def test_a_usb_card_that_all_boards_have_makes_no_two_machines_one(site: World) -> None:
    first = Stranger(site, "02:00:00:00:00:05")
    second = Stranger(site, "02:00:00:00:00:06", "10.1.0.206")
    site.head.part(Machines).replacing.keeps = lambda record: "it is not yet its time"
    for one in (first, second):
        cards = [{"name": "eth0", "mac": one.mac}, USB_NIC]
        assert (await one.says(report("SN-77", "7", cards=cards)))["then"] == "wait"
    site.head.part(Machines).replacing.keeps = lambda record: ""
    assert (await first.says())["then"] == "wait", "another has the same serial number and port"
    assert f"{second.mac} claim the same" in str(site.head.store.events)


async def test_an_address_that_is_not_unique_comes_into_no_entry(site: World) -> None:
    shared = {"name": "eth9", "mac": "02:00:00:00:00:99"}  # not known to be on USB
    other = Stranger(site, "02:00:00:00:00:06", "10.1.0.206")
    await other.says(report("SN-8", "99", cards=[{"name": "eth0", "mac": other.mac}, shared]))
    one = Stranger(site, "02:00:00:00:00:05")
    cards = [{"name": "eth0", "mac": one.mac}, shared, USB_NIC]
    assert (await one.says(report("SN-77", "7", cards=cards)))["then"] == "reboot"
    assert macs(site, "n2") == (one.mac,)


async def test_a_stranger_whose_words_are_of_two_nodes_is_neither(site: World) -> None:
    one = Stranger(site)
    assert (await one.says(report("SN-3", "7")))["then"] == "wait"
    assert macs(site, "n3") == ("52:54:00:00:00:14",) and "n3 claim the same" in str(
        site.head.store.events
    )
    hears(site, {"52:54:00:00:00:12": ("", "", "", 5.0)})
    other = Stranger(site, "02:00:00:00:00:09", "10.1.0.209")
    await site.ops.machines.forget(NEW, "me")
    assert (await other.says(report("SN-8", "7", cards=[])))["then"] == "wait", (
        "n2's own card was heard"
    )
    hears(site, {})
    site.clock.now += QUIET_S
    assert (await other.says())["then"] == "reboot", "it is looked at each time that it speaks"


async def test_what_option_82_said_is_kept_shown_and_adopted(site: World) -> None:
    hears(
        site,
        {
            NEW: ("10.2.0.1", "00:04:00:07", "", 1.0),
            "52:54:00:00:00:11": ("10.2.0.1", "eth9", "sw9", 3.0),
        },
    )
    await Stranger(site).says(report(neighbours={}))
    shown = (await site.ops.machines.one(NEW))["machine"]
    assert (shown["relay"], shown["circuit"], shown["remote"]) == ("10.2.0.1", "00:04:00:07", "")
    assert (
        f"{NEW} at 10.1.0.200, which no inventory knows, has option 82 circuit 00:04:00:07"
        in explained(site, "n1")
    )
    made = site.ops.machines.adopt([], "c1", "mac", "10.1.0.40", [], bmc=False)
    assert 'place: {relay: "10.2.0.1", circuit: "00:04:00:07"}' in made["entries"][0]
    await survey(site, "n1", report("SN-5", "x", neighbours={}))
    assert "machine.moved" in site.kinds(
        "n1"
    ) and "moved: it has option 82 circuit eth9" in explained(site, "n1")
    hears(site, {})
    await survey(site, "n1", report("SN-5", "x", neighbours={}))
    assert "moved: it has option 82 circuit eth9" in explained(site, "n1"), (
        "what was known is not forgotten"
    )


@pytest.mark.parametrize(
    "place",
    [
        "{circuit: a}",
        "{remote: a, relay: 10.0.0.1}",
        "{circuit: a, remote: b, port: 7}",
        "{circuit: a, relay: x}",
        '{circuit: "a\\n", remote: b}',
        "{circuit: a, remot: b}",
        "{}",
    ],
)
async def test_mistakes_in_a_place(world: World, place: str) -> None:
    with pytest.raises(InventoryErrors):
        await world.ops.inventory.plan(
            f'nodes:\n  n0: {{mac: "{OLD}", ip: 10.1.0.10, place: {place}}}\n', "x.yaml"
        )


async def test_places_are_unique_and_told_to_the_boot_service(site: World) -> None:
    with pytest.raises(InventoryErrors, match="place"):
        await site.ops.inventory.plan(
            INVENTORY.replace("serial: SN-3", "place: {remote: sw1, circuit: ETH7}"), "x.yaml"
        )
    facts: Any = None
    told = [
        offers(facts, cast(Whereabouts, site.node(name).node.parts["machines"]), None, facts)
        for name in ("n0", "n1", "n2")
    ]
    assert told == [
        {"option82": option82("", "eth7", "sw1")},
        {"option82": "circuit 00:04:00:07 relay 10.2.0.1"},
        {},
    ]
    await site.ops.care.freeze("n0", "a look", "me")
    with pytest.raises(Refused):
        await site.ops.inventory.take_board(site.node("n0"), [NEW], "x")


CARDLESS = """
nodes:
  n0: {ip: 10.1.0.10, place: {circuit: eth7, remote: sw1}}
  n1: {ip: 10.1.0.11, place: {switch: sw1, port: 7}, replace: auto}
  n2: {ip: 10.1.0.12, serial: SN-3}
"""


async def cardless(world: World) -> None:
    """The nodes of CARDLESS, which never had a card."""
    await world.ops.inventory.apply("nodes: {}\n", "x.yaml", None, True)
    await world.ops.inventory.apply(CARDLESS, "x.yaml", None, True)


async def test_a_node_without_a_card_gets_that_of_the_machine_at_its_place(world: World) -> None:
    await cardless(world)
    hears(world, {})
    assert macs(
        world, "n0"
    ) == () and "no machine was seen yet that has its option 82 circuit eth7" in explained(
        world, "n0"
    )
    await claims(world, "n0", NEW, own_s=0.0)
    assert (
        macs(world, "n0") == (NEW,)
        and "machine.found" in world.kinds("n0")
        and "machine.replaced" not in world.kinds("n0")
    )
    one = Stranger(world, "02:00:00:00:00:05")
    assert (await one.says(report("SN-77", "7", cards=[])))["then"] == "reboot" and macs(
        world, "n1"
    ) == (one.mac,)
    assert "machine.claims" not in world.kinds("n1") and world.node("n1").care.ours, (
        "what runs there is our minOS"
    )
    await claims(world, "n0", OTHER)
    assert macs(world, "n0") == (NEW,) and "machine.claims" in world.kinds("n0"), (
        "the next board is a person's to take"
    )


OWN_WORD = """
nodes:
  n0: {ip: 10.1.0.10, place: {switch: sw1, port: 7}}
  n1: {ip: 10.1.0.11, serial: SN-1}
  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12, serial: SN-2, replace: auto}
  n3: {ip: 10.1.0.13, serial: SN-3, bmc: {driver: ipmi, address: 10.2.0.3, username: u, password: {env: BMC}}}
  n4: {ip: 10.1.0.14, serial: SN-4, replace: auto, place: {switch: sw1, port: 4}}
"""


async def known_by_their_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC", "calvin-of-the-bmc")
    await world.ops.inventory.apply("nodes: {}\n", "x.yaml", None, True)
    await world.ops.inventory.apply(OWN_WORD, "x.yaml", None, True)


@pytest.mark.parametrize(
    ("name", "number", "port", "why"),
    [
        ("n0", "SN-77", "7", "by the port that it has heard by LLDP"),
        ("n1", "SN-1", "99", "by its serial number"),
        ("n2", "SN-2", "99", "by its serial number"),
        ("n4", "SN-4", "99", "by its serial number"),
        ("n3", "SN-3", "99", "by its serial number"),
    ],
    ids=["port", "serial", "board", "elsewhere", "bmc"],
)
async def test_the_own_word_of_a_stranger_makes_it_no_node(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, number: str, port: str, why: str
) -> None:
    await known_by_their_word(world, monkeypatch)
    hears(world, {})
    world.head.engine.post(world.node(name), Discovered({"power": "ON"}, "the test"))
    before = macs(world, name)
    one = Stranger(world)
    for said in (report(number, port, cards=[]), None):
        assert (await one.says(said))["then"] == "wait"
        await world.head.part(Machines).replacing.settled()
    assert macs(world, name) == before
    assert "machine.claims" in world.kinds(name) and "machine.found" not in world.kinds(name)
    text = explained(world, name)
    assert "nobody but the machine itself says so" in text and why in text
    assert f"layercake node set {name} mac={NEW}" in text
    await world.ops.inventory.change(name, {"mac": NEW}, [])
    assert (await one.says())["then"] == "reboot", "a person has said that it is"


@pytest.mark.parametrize("person", [True, False], ids=["person", "alone"])
async def test_the_key_of_a_tpm_is_trusted_if_a_person_took_the_machine_in(
    world: World, monkeypatch: pytest.MonkeyPatch, person: bool
) -> None:
    """`tpm: required` takes it for the node's then."""
    await known_by_their_word(world, monkeypatch)
    hears(world, {})
    key = "ab" * 32
    name, said = ("n3", report("SN-3", "99", cards=[], tpm_ek=key))
    if not person:
        name, said = ("n4", report("SN-4", "4", cards=[], tpm_ek=key))
    one = Stranger(world)
    first = await one.says(said)
    assert first["then"] == ("wait" if person else "reboot")
    if person:
        await world.ops.inventory.change(name, {"mac": NEW}, [])
        assert (await one.says(said))["then"] == "reboot"
    record = world.node(name)
    assert record.node.macs == (NEW,)
    assert world.head.part(Machines).endorsement(record) == (key if person else "")


async def test_of_two_at_the_place_of_a_node_without_a_card_none_is_taken(world: World) -> None:
    await cardless(world)
    hears(world, {})
    both = [Stranger(world, f"02:00:00:00:00:0{n}", f"10.1.0.20{n}") for n in (5, 6)]
    world.head.part(Machines).replacing.keeps = lambda record: "a look"
    await both[0].says(report("SN-1", "7", cards=[]))
    world.head.part(Machines).replacing.keeps = lambda record: ""
    assert (await both[1].says(report("SN-2", "7", cards=[])))["then"] == "wait" and macs(
        world, "n1"
    ) == ()
    assert "machine.disputed" in world.kinds("n1")


async def test_an_inventory_without_cards_takes_none_away(world: World) -> None:
    await cardless(world)
    hears(world, {})
    await claims(world, "n0", NEW)
    assert (await world.ops.inventory.plan(CARDLESS, "x.yaml"))["changes"] == []
    await world.ops.inventory.apply(
        CARDLESS.replace("10.1.0.10", "10.1.0.20"), "x.yaml", None, True
    )
    assert macs(world, "n0") == (NEW,) and world.node("n0").node.ip == "10.1.0.20"
    await world.ops.inventory.apply(CARDLESS.replace("eth7", "eth8"), "x.yaml", None, True)
    assert macs(world, "n0") == (), "it is somewhere else: another machine is meant"
    await claims(world, "n0", NEW)
    await world.ops.inventory.apply(
        CARDLESS.replace("eth7", "eth8").replace(
            "{ip: 10.1.0.12", f'{{mac: "{NEW}", ip: 10.1.0.12'
        ),
        "x.yaml",
        None,
        True,
    )
    assert macs(world, "n0") == () and macs(world, "n2") == (NEW,), "what an entry says is so"
    await world.ops.inventory.change("n2", {}, ["mac"])
    assert macs(world, "n2") == ()


async def test_a_node_that_runs_keeps_its_card_when_its_entry_says_where_it_is_instead(
    site: World,
) -> None:
    plain = 'nodes:\n  n3: {mac: "52:54:00:00:00:14", ip: 10.1.0.13}\n'
    await site.ops.inventory.apply(plain, "x.yaml", None, True)
    for entry in (
        "serial: SN-3",
        "serial: SN-3, place: {switch: sw1, port: 9}",
        "place: {switch: sw1, port: 9}",
    ):
        await site.ops.inventory.apply(
            f"nodes:\n  n3: {{ip: 10.1.0.13, {entry}}}\n", "x.yaml", None, True
        )
        assert macs(site, "n3") == ("52:54:00:00:00:14",), entry


async def test_a_machine_that_is_found_while_an_inventory_is_read_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cardless(world)
    hears(world, {})
    whole, found = world.ops.inventory.reader.read, [("n0", NEW), ("n0", OTHER)]

    async def slow(aside: Any, text: str, file: str) -> Any:
        read = await whole(aside, text, file)
        await claims(world, *found.pop(0))
        return read

    monkeypatch.setattr(world.ops.inventory.reader, "read", slow)
    await world.ops.inventory.apply(CARDLESS, "x.yaml", None, True)
    assert macs(world, "n0") == (NEW,)
    await world.ops.inventory.change("n0", {}, ["mac"])
    world.clock.now += CLAIMS_S + 1
    named = CARDLESS.replace("{ip: 10.1.0.12", f'{{mac: "{OTHER}", ip: 10.1.0.12')
    await world.ops.inventory.apply(named, "x.yaml", None, True)
    assert (macs(world, "n0"), macs(world, "n2")) == ((), (OTHER,)), "what an entry says is so"
