"""Node ranges: what they stand for, and what is said when they are wrong."""

from __future__ import annotations

import re
import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from layercake.inventory.ranges import MAX_NODES, MAX_TEXT, expand, fold, names_of
from layercake.kraken.errors import InputError

KNOWN = [f"n{i}" for i in range(12)] + ["head1"]
GROUPS = {"ipmi": ["n0", "n2"], "redfish": ["n1", "n3"], "none": []}


def clustershell(text: str) -> list[str]:
    return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n0", ["n0"]),
        ("n[0-3,7]", ["n0", "n1", "n2", "n3", "n7"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n3,n1", ["n1", "n3"]),
        ("@ipmi", ["n0", "n2"]),
        ("@ipmi,@redfish", ["n0", "n1", "n2", "n3"]),
        ("n[0-3]!@ipmi", ["n1", "n3"]),
        ("n[0-3]&@ipmi", ["n0", "n2"]),
        ("n[0-8/4]", ["n0", "n4", "n8"]),
    ],
)
def test_ranges_stand_for_nodes(text: str, names: list[str]) -> None:
    assert expand(text, KNOWN, GROUPS) == names


@given(
    st.sets(st.from_regex(r"[a-zA-Z_.-]{1,3}[0-9]{1,4}", fullmatch=True), min_size=1, max_size=12)
)
def test_a_whole_group_is_in_the_order_of_its_names_spelled_out(names: set[str]) -> None:
    """As ClusterShell sorts them."""
    names = {f"n{name}" for name in names}
    spelled = clustershell(",".join(sorted(names)))
    assert names_of(",".join(sorted(names))) == spelled
    assert expand("@all", names) == expand("@some", [*names, "head"], {"some": names}) == spelled
    assert expand("@all", [*names, "head", "r1n2"]) == clustershell(
        ",".join(sorted({*names, "head", "r1n2"}))
    )


OPERANDS = ["n0", "n[0-3]", "n[2-9/3]", "n[01-03]", "a-b.c", "r[1-2]n[1-3]", "n5", "x"]


@given(
    st.lists(st.tuples(st.sampled_from(",!&^"), st.sampled_from(OPERANDS)), max_size=6),
    st.sampled_from(OPERANDS),
)
def test_operators_do_what_they_do_in_clustershell(rest: list[tuple[str, str]], first: str) -> None:
    text = first + "".join(f"{operator}{operand}" for operator, operand in rest)
    right = clustershell(text)
    if right:
        assert names_of(text) == right
    else:
        with pytest.raises(InputError, match="names no node"):
            names_of(text)


def test_no_range_goes_through_many_nodes_many_times() -> None:
    known = [f"n{i}" for i in range(10_000)]
    groups = {"half": known[::2], "none": []}
    for text in ("@all" + "!@all" * 1600, "@half" + "^@half" * 80, "n0" + ",@all" * 40):
        with pytest.raises(InputError, match=r"its groups have \d+ nodes together"):
            expand(text, known, groups)
    began = time.process_time()
    assert len(expand("@all" + "!@none" * 9000, known, groups)) == 10_000
    assert expand("@all" + "^@half" * 30 + "!n1" * 2000, known, groups)[0] == "n0"
    assert time.process_time() - began < 10.0, "it was minutes"


def test_the_longest_text_is_read_once() -> None:
    began = time.process_time()
    assert names_of("n," * (MAX_TEXT // 2 - 1) + "n") == ["n"]
    assert time.process_time() - began < 1.0, "each operator looked through all that follows"


def test_a_number_of_any_length_is_a_name() -> None:
    for digits in (101, 5000):
        long = "9" * digits
        assert names_of(f"n{long},n1,a-{long}.b") == [f"a-{long}.b", "n1", f"n{long}"]
        with pytest.raises(InputError, match="there is no node"):
            expand(f"n-1.x{long}", KNOWN)


def test_all_must_be_spelled() -> None:
    assert set(expand("@all", KNOWN, GROUPS)) == set(KNOWN)
    for text in ("", "   ", "*", "n*"):
        with pytest.raises(InputError):
            expand(text, KNOWN, GROUPS)


def test_an_unknown_node_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        expand("haed1", KNOWN, GROUPS)
    assert "there is no node haed1" in caught.value.message
    assert caught.value.hint == "did you mean head1?"


def test_an_unknown_group_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        expand("@impi", KNOWN, GROUPS)
    assert caught.value.hint == "did you mean ipmi?"


def test_several_unknown_nodes_are_counted() -> None:
    with pytest.raises(InputError, match="no node n12 and 3 more"):
        expand("n[10-15]", KNOWN, GROUPS)


@pytest.mark.parametrize("text", ["n[0-3]!n[0-3]", "@none"])
def test_no_node_at_all_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="names no node"):
        expand(text, KNOWN, GROUPS)


BAD_SYNTAX = [
    "n[0-",
    "n0]",
    "n[3-1]",
    "n[a]",
    "n[]",
    "n 0",
    "n;reboot",
    "n[0-3",
    "n[[0]]",
    "n$(id)",
    ",",
    "n[0--1]",
    "\n",
]


@pytest.mark.parametrize("text", BAD_SYNTAX)
def test_bad_syntax_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        expand(text, KNOWN, GROUPS)
    with pytest.raises(InputError):
        names_of(text)


@pytest.mark.parametrize(
    "text",
    ["n[0-99999999]", "n[0-999]x[0-999]", "n[0-99999],m[0-99999]", "n[" + "0-9999," * 14 + "1]"],
)
def test_a_huge_range_is_refused_before_it_takes_memory(text: str) -> None:
    with pytest.raises(InputError, match=f"more than {MAX_NODES}"):
        expand(text, KNOWN, GROUPS)


@pytest.mark.parametrize("text", ["n[0-9999]", "n[0-9999]!n[1-2]", "n[0-1500]"])
def test_a_range_far_larger_than_the_rack_is_refused_before_it_takes_time(text: str) -> None:
    with pytest.raises(InputError, match=r"far more names than there are nodes \(13\)"):
        expand(text, KNOWN, GROUPS)


def test_two_dimensions() -> None:
    names = names_of("rack[1-2]n[01-16]")
    assert len(names) == 32
    assert (names[0], names[-1]) == ("rack1n01", "rack2n16")


NUMBER = st.one_of(st.integers(0, 12).map(str), st.integers(0, 120).map("{:03d}".format))
NAME = st.builds("{}{}{}".format, st.sampled_from(["n", "rack-", "x"]), NUMBER, st.just(""))
NAME_OF_TWO = st.builds("r{}n{}{}".format, NUMBER, NUMBER, st.sampled_from(["", "-ib", "b"]))


@given(st.sets(NAME | st.sampled_from(["a", "b1234567890123", "n-1x"]), min_size=1, max_size=40))
def test_fold_says_what_clustershell_says(names: set[str]) -> None:
    folded = fold(names)
    assert set(names_of(folded)) == names
    of_short = {name for name in names if name != "b1234567890123"}
    theirs = str(NodeSet.fromlist(sorted(of_short), resolver=RESOLVER_NOGROUP))
    assert sorted(_items(fold(of_short))) == sorted(_items(theirs))


def _items(text: str) -> list[str]:
    return re.split(r",(?![^\[]*\])", text)


@given(st.sets(NAME_OF_TWO, max_size=60))
def test_fold_of_several_numbers_is_unfolded_to_the_same_names(names: set[str]) -> None:
    assert not names or set(names_of(fold(names))) == names


def test_racks_fold_at_both_numbers() -> None:
    names = [f"rack{rack}n{place:02d}" for rack in range(9, 12) for place in range(4)]
    assert fold([*names, "rack12n00"]) == "rack[9-11]n[00-03],rack12n00"


def test_fold_is_the_way_back() -> None:
    assert fold(["n0", "n1", "n2", "n7"]) == "n[0-2,7]"
