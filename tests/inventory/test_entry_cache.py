"""An inventory that is read with what is remembered of those before is as one that is read anew,
its mistakes too."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from layercake.head.modules import standard
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import EntryCache

PARTS = standard().parts
NAMES = st.sampled_from(["n1", "n2", "n[1-3]", "n[2-5]", "m[0-1]", "N", "n[1-", "m0", "m[0-1],n9"])
MACS = st.sampled_from(
    [*(f"52:54:00:00:{last}" for last in ("00:01", "00:01+", "00:02", "01:00+", "02:00+")), "x"]
)
IPS = st.sampled_from(["10.0.0.1", "10.0.0.1+", "10.0.0.20+", "10.0.1.0+", "10.0.1.9", "nowhere"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "firmware": st.sampled_from(["bios", "uefi", "off"]),
    "state": st.sampled_from(["up", "off", True]),
    "kernel_args": st.sampled_from(["quiet", "", 1]),
    "images": st.sampled_from([[], ["a"], ["b"], ["a", "a"]]),
    "labels": st.sampled_from([{"rack": "1"}, {"rack": 1}, {"rack": "2", "row": "x"}]),
    "place": st.sampled_from(["s1/1", "s1/2"]),
    "bmc": st.sampled_from([None, "none", {"port": 1}, {"driver": "ipmi"}, 7]),
}
GROUPS = st.dictionaries(
    st.sampled_from(["a", "b"]), st.fixed_dictionaries({}, optional=VALUES), max_size=2
)
NODES = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"mac": MACS, "ip": IPS},
        optional={**VALUES, "groups": st.sampled_from([["a"], ["b"], ["a", "b"], []])},
    ),
    max_size=4,
)
NETWORKS = st.sampled_from(
    [{}, *({"one": {"subnet": subnet}} for subnet in ("10.0.0.0/28", "10.0.0.0/24", "10.0.1.0/24"))]
)
INVENTORY = st.fixed_dictionaries(
    {"groups": GROUPS, "nodes": NODES},
    optional={
        "networks": NETWORKS,
        "defaults": st.fixed_dictionaries({}, optional=VALUES),
        "odd": st.none(),
    },
)
ABOUT = st.fixed_dictionaries(
    {},
    optional={
        "known_images": st.sampled_from([{"a"}, {"a", "b"}]),
        "known_arches": st.sampled_from([["x86_64"], ["aarch64"]]),
        "known_profiles": st.sampled_from([{"": "x86_64"}, {"": "aarch64"}]),
        "heads": st.sampled_from([["10.0.0.7/24"], ["10.0.0.1/24"]]),
    },
)


def yaml(value: Any, deep: int = 0) -> str:
    """As YAML, a line for each node: places differ from one reading to the next."""
    if isinstance(value, dict):
        inner = [f"{quoted(key)}: {yaml(its, deep + 1)}" for key, its in value.items()]
        return (
            "".join(f"\n{'  ' * deep}{line}" for line in inner)
            if deep < 2 and inner
            else "{" + ", ".join(inner) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml, value)) + "]"
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool | int)
        else quoted(value)
    )


def quoted(word: str) -> str:
    return f'"{word}"'


def read(text: str, about: dict[str, Any], cache: EntryCache | None) -> object:
    """What comes of it: the inventory, or its mistakes with their places."""
    try:
        found = load(text, "t.yaml", parts=PARTS, cache=cache, **about)
    except InventoryErrors as errors:
        return errors.problems
    return list(found.nodes.items()), found.groups, found.networks


A = {"mac": "52:54:00:00:00:01", "ip": "10.0.0.1"}
B = {"mac": "52:54:00:00:01:00+", "ip": "10.0.0.20+"}


@settings(max_examples=100)
@given(st.lists(st.tuples(INVENTORY, ABOUT), min_size=2, max_size=4))
@example(
    [
        ({"groups": {}, "nodes": {"n1": A, "n[2-5]": B}}, {}),
        ({"groups": {}, "nodes": {"n[2-5]": B, "n1": A}}, {}),
        ({"groups": {}, "nodes": {"n1": A, "n[1-3]": B}}, {}),
        ({"groups": {}, "nodes": {"n1": {**A, "ip": "10.0.0.21"}, "n[2-5]": B}}, {}),
    ]
)
@example([({"groups": {}, "nodes": {"n1": A}}, {"known_arches": ["aarch64"]})])
def test_what_is_remembered_makes_no_difference(
    inventories: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    cache = EntryCache()
    for inventory, about in inventories:
        text = yaml(inventory)
        assert read(text, about, cache) == read(text, about, None)


def test_entries_that_stand_as_before_are_the_same_objects_and_others_are_forgotten() -> None:
    cache = EntryCache()

    def nodes(**entries: dict[str, str]) -> dict[str, Any]:
        return dict(load(yaml({"nodes": entries}), "t.yaml", parts=PARTS, cache=cache).nodes)

    first = nodes(n1=A, n2={"mac": "52:54:00:00:00:02", "ip": "10.0.0.2"})
    second = nodes(n0={"mac": "52:54:00:00:00:03", "ip": "10.0.0.3"}, n1=A)
    assert second["n1"] is first["n1"] and list(second) == ["n0", "n1"]
    third = nodes(n2={"mac": "52:54:00:00:00:02", "ip": "10.0.0.2"})
    assert third == {"n2": first["n2"]} and third["n2"] is not first["n2"], (
        "it was not in the inventory before"
    )
