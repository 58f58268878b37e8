"""Text from outside: what looks clean is not gone through word by word, and still nothing unclean
comes through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.base.text import cleaned, lines_of_proc, of_mountinfo, parse_json

_WORD = st.text(
    st.sampled_from(
        ["a", "\x00", "\ud800", "\udfff", "\ud83d", "\ude00", "😀", "ä", "\\", '"', "u", "d"]
    ),
    max_size=6,
)
_VALUES = st.recursive(
    _WORD | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORD, inner, max_size=3),
    max_leaves=6,
)


@given(
    _VALUES,
    st.booleans(),
    st.sampled_from(["utf-8", "utf-16", "utf-16-be", "utf-32", "utf-8-sig", ""]),
)
def test_the_short_way_is_the_same_as_the_long_one(
    value: object, escaped: bool, encoding: str
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    data = text.encode(encoding, "surrogatepass") if encoding else text
    assert parse_json(data) == cleaned(json.loads(data))
    json.dumps(parse_json(data), ensure_ascii=False).encode()


@pytest.mark.parametrize("text", [r'"\uD800"', r'"\udc00"', r'"\u0000"', r'{"\uDFFF": 1}'])
def test_escapes_are_seen_however_they_are_written(text: str) -> None:
    assert "\ufffd" in str(parse_json(text)) and "\ufffd" in str(parse_json(text.encode()))


def test_a_path_of_mountinfo_without_a_codec_that_nodes_lack() -> None:
    assert of_mountinfo(r"/a\040b\011c\012d\134e") == "/a b\tc\nd\\e"
    assert of_mountinfo("/plain") == "/plain" and of_mountinfo(r"/no\9octal") == r"/no\9octal"


def test_only_a_line_feed_ends_a_line_of_proc(tmp_path: Path) -> None:
    table = tmp_path / "status"
    table.write_bytes("Name:\ta\x0cb\u2028c\x1cd\n".encode() + b"Umask:\t\xff\n")
    assert lines_of_proc(table) == ["Name:\ta\x0cb\u2028c\x1cd", "Umask:\t\udcff"]
