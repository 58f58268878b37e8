"""Queries: what they mean, and that no text does anything but mean something or be refused."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.features.nodes.lists.query import MAX_DEPTH, TEXTS, TIMES, Facts, parse
from layercake.features.nodes.queries import NodeQueries
from layercake.fleet.store import WantedImage
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import InputError
from tests.support.api import served
from tests.support.world import World

VARIABLES = {"power": ("UNKNOWN", "OFF", "ON"), "image": ("NONE", "ACTIVE", "ERROR")}


@dataclass
class Plain:
    """A node that is not one."""

    texts: dict[str, str] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    times: dict[str, float | None] = field(default_factory=dict)
    numbers: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """As it was put in."""
        return self.texts.get(name, "")

    def several(self, name: str) -> Collection[str]:
        """As it was put in."""
        return self.lists.get(name, ())

    def amounts(self, name: str) -> Collection[float]:
        """As it was put in."""
        return self.numbers.get(name, ())

    def seconds(self, name: str) -> float | None:
        """As it was put in."""
        return self.times.get(name)


NODE = Plain(
    {
        "power": "ON",
        "image": "ERROR",
        "name": "n7",
        "ip": "10.0.1.9",
        "status": "working",
        "trait:firmware": "uefi",
        "label:rack": "r7",
    },
    {"group": ("gpu", "rack1")},
    {"unchanged": 400.0, "seen": None, "unconverged": 10.0},
)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("image=ERROR and unchanged>5m", True),
        ("status!=converged", True),
        ("group=gpu", True),
        ("group!=gpu", False),
        ("trait:firmware=uefi", True),
        ("ip in 10.0.1.0/24", True),
        ("ip in 10.0.2.0/24", False),
        ("name in n[0-9]", True),
        ("ip in fd00::/64", False),
        ("not name in n[0-9]", False),
        ("power=OFF or power=ON and image=ACTIVE", False),
        ("(power=OFF or power=ON) and image=ERROR", True),
        ("seen>1s", False),
        ("not seen>1s", True),
        ("seen<=1d", False),
        ("label:rack=r7", True),
        ("label:rack!=r7", False),
        ("label:owner=physics", False),
        ("not label:owner=physics", True),
        ("unconverged<1m", True),
        ("unchanged>=0.1h", True),
        ("not not group=rack1", True),
        ("((power=ON))", True),
    ],
)
def test_what_a_query_means(text: str, means: bool) -> None:
    assert parse(text, VARIABLES).test(NODE) is means


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", 1, "a name is missing"),
        ("power", 6, "is missing"),
        ("power=", 7, "a value is missing"),
        ("colour=red", 1, "no 'colour'"),
        ("power=on", 7, "never 'on'"),
        ("power=ON power=OFF", 10, "`and` or `or`"),
        ("(power=ON", 10, r"a \) is missing"),
        ("power=ON)", 9, "`and` or `or`"),
        ("seen>soon", 6, "no time"),
        ("power>ON", 6, "no time"),
        ("name in n[0-", 9, "bad|\\["),
        ("ip in 10.0.0.1/24", 7, "no subnet"),
        ("power in ON", 10, "no range"),
        ("=", 1, "a name is expected"),
        ("power ! ON", 7, "stand"),
        ("name in n[0-9999]", 9, "more than 1024 names"),
        (" or ".join(["name in n1"] * 5), 65, "more than 4 node ranges"),
        ("(" * (MAX_DEPTH + 2), MAX_DEPTH + 2, "nested"),
        ("seen>٣m", 6, "no time"),
        ("not", 4, "a name is missing"),
    ],
)
def test_a_mistake_says_where(text: str, place: int, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        parse(text, VARIABLES)
    assert f"at character {place}," in str(caught.value)


WORDS = st.sampled_from(
    [
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        "=",
        "!=",
        "<",
        ">",
        ">=",
        *VARIABLES,
        *TEXTS,
        *TIMES,
        "group",
        "ON",
        "5m",
        "n[0-9]",
        "n[",
        "10.0.0.0/8",
        "@gpu",
        "!",
        "",
        "1e9",
        "9" * 12,
        "\0",
        "²m",
    ]
)


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(WORDS, max_size=14).map(" ".join),
        st.lists(WORDS, max_size=14).map("".join),
    )
)
def test_no_text_does_harm(text: str) -> None:
    try:
        query = parse(text, VARIABLES)
    except InputError:
        return
    assert query.test(NODE) in (True, False)
    assert query.test(Plain()) in (True, False)


@st.composite
def nodes(draw: st.DrawFn) -> Plain:
    """Any node."""
    return Plain(
        {
            "power": draw(st.sampled_from(VARIABLES["power"])),
            "image": draw(st.sampled_from(VARIABLES["image"])),
        },
        {"group": tuple(draw(st.sets(st.sampled_from("abc"))))},
        {"unchanged": draw(st.one_of(st.none(), st.integers(0, 5).map(float)))},
    )


Meaning = tuple[str, Callable[[Plain], bool]]
_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def _test(name: str, sign: str, value: str) -> Meaning:
    equal = sign == "="
    if name == "group":
        return f"group{sign}{value}", lambda node: (value in node.lists["group"]) == equal
    return f"{name} {sign} {value}", lambda node: (node.texts[name] == value) == equal


def _time(sign: str, seconds: int) -> Meaning:
    def holds(node: Plain) -> bool:
        took = node.times["unchanged"]
        return took is not None and bool(_SIGNS[sign](took, seconds))

    return f"unchanged{sign}{seconds}s", holds


def _not(inner: Meaning) -> Meaning:
    return f"not ({inner[0]})", lambda node: not inner[1](node)


def _two(first: Meaning, word: str, second: Meaning) -> Meaning:
    if word == "and":
        return f"({first[0]}) and ({second[0]})", lambda node: first[1](node) and second[1](node)
    return f"({first[0]}) or {second[0]}", lambda node: first[1](node) or second[1](node)


LEAVES = st.one_of(
    *(
        st.builds(_test, st.just(name), st.sampled_from(("=", "!=")), st.sampled_from(values))
        for name, values in VARIABLES.items()
    ),
    st.builds(_test, st.just("group"), st.sampled_from(("=", "!=")), st.sampled_from("abc")),
    st.builds(_time, st.sampled_from(sorted(_SIGNS)), st.integers(0, 5)),
)
MEANINGS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(_not),
        st.builds(_two, inner, st.just("and"), inner),
        st.builds(_two, inner, st.just("or"), inner),
    ),
    max_leaves=12,
)


@given(MEANINGS, nodes())
def test_a_query_means_what_it_says(meaning: Meaning, node: Plain) -> None:
    text, naive = meaning
    facts: Facts = node
    assert parse(text, VARIABLES).test(facts) == naive(node)


async def test_queries_by_place(world: World) -> None:
    await world.ops.inventory.apply(
        """
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, place: {switch: sw1, port: Gi1/0/7}, serial: SN-1}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, place: {circuit: eth7, remote: sw1}}
""",
        "x.yaml",
        None,
        True,
    )
    for where, names in (
        ("place:switch=sw1", ["n0"]),
        ("place:port=Gi1/0/7 and serial=SN-1", ["n0"]),
        ("place:remote=sw1", ["n1"]),
        ("place:circuit!=eth7", ["n0"]),
        ("serial!=SN-1", ["n1"]),
    ):
        found = await world.head.part(NodeQueries).matching(list(world.head.store), where)
        assert [record.name for record in found] == names, where
    with pytest.raises(InputError, match="place:swtch"):
        await world.head.part(NodeQueries).matching([], "place:swtch=x")


async def test_queries_by_rest(world: World) -> None:
    world.head.engine.post(world.node("n0"), Discovered({"power": "ON"}, "test"))
    async with served(world.head, local=True) as client:

        async def names(where: str) -> list[str]:
            answer = await client.get("/v1/nodes", params={"where": where, "fields": "name"})
            assert answer.status == 200, await answer.text()
            return [node["name"] for node in (await answer.json())["nodes"]]

        assert await names("power=ON") == ["n0"]
        others = world.head.store.names[1:]
        assert await names("not power=ON and status!=converged or name in n0 and power=OFF") == [
            name for name in others if name != "n0"
        ]
        assert (
            await names("unconverged>=0s and (wanted=up or wanted=off) and trait:arch=x86_64")
            == world.head.store.names
        )
        assert (
            await names(
                "unchanged>1d or seen>1s or group=none or network=none or mac=00:00:00:00:00:01"
            )
            == []
        )
        bad = await client.get("/v1/nodes", params={"where": "power=on"})
        assert bad.status == 400 and "at character 7" in (await bad.json())["error"]
        assert (
            await client.get("/v1/nodes", params={"where": "power=ON", "since": "1-1"})
        ).status == 400


async def test_queries_know_what_nodes_run_and_what_there_is(world: World) -> None:
    queries, node = world.head.part(NodeQueries), world.node("n0")
    node.wanted = (WantedImage("two", "blake2b:" + "1" * 64, 1, {}),)
    node.node = dataclasses.replace(node.node, groups=("gpu",), images=("two",))
    node.boots = msgspec.structs.replace(node.boots, runs="b1", agent_runs="b2")
    await world.ops.care.begin("n0", "new DIMM", "ann", None)

    async def names(where: str) -> list[str]:
        return [r.name for r in await queries.matching(list(world.head.store), where)]

    for where in (
        "images=two",
        "image=two",
        "image-set=two",
        "boot-set=b1",
        "agent=b2",
        "stopped=maintenance",
        "group=gpu",
        "groups=gpu",
        "firmware=bios",
    ):
        assert await names(where) == ["n0"], where
    assert await names("image!=ACTIVE and since<1d") == ["n0", "n1"]
    for where, hint in (
        ("status=quarentined", "quarantined"),
        ("group=gpuu", "gpu"),
        ("images=twoo", "two"),
        ("stopped=maintenence", "maintenance"),
        ("firmware=bois", "bios"),
        ("imagess=two", "images"),
    ):
        with pytest.raises(InputError) as caught:
            await names(where)
        assert hint in (caught.value.hint or ""), where


async def test_who_is_bound_is_not_told_of_what_others_have(world: World) -> None:
    queries = world.head.part(NodeQueries)
    for name, group in (("n0", "gpu"), ("n1", "secret")):
        record = world.node(name)
        record.node = dataclasses.replace(record.node, groups=(group,))
    with pytest.raises(InputError) as caught:
        await queries.matching([world.node("n0")], "group=secre", bound=True)
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(InputError, match="secre"):
        await queries.matching([world.node("n0")], "group=secre")
