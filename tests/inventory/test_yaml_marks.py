"""YAML with places: types as in YAML 1.2, duplicate keys, tags, aliases, syntax errors."""

from __future__ import annotations

import pytest

from layercake.inventory.problems import Mark, Problems
from layercake.inventory.yaml_marks import Listing, Scalar, Table, parse


def read(text: str) -> tuple[object, list[tuple[int, int, str]]]:
    problems = Problems("f")
    value = parse(text, problems)
    return value, [(p.line, p.column, p.message) for p in problems.found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("no", "no"),
        ("52:54:00:12:34:56", "52:54:00:12:34:56"),
        ("10.0.0.1", "10.0.0.1"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("007", 7),
        ("0x1f", 31),
        ("1.5", 1.5),
        ("'12'", "12"),
        ("2026-11-21", "2026-11-21"),
        ("9" * 30, "9" * 30),
        ("1_000", "1_000"),
    ],
)
def test_plain_words_are_typed_as_in_yaml_1_2(text: str, value: object) -> None:
    found, problems = read(f"a: {text}\n")
    assert not problems
    assert isinstance(found, Table)
    scalar = found.entries["a"].value
    assert isinstance(scalar, Scalar)
    assert scalar.value == value and type(scalar.value) is type(value)


def test_every_value_knows_its_place() -> None:
    found, _ = read("a:\n  b: [x, yy]\n")
    assert isinstance(found, Table)
    inner = found.entries["a"].value
    assert isinstance(inner, Table)
    assert inner.entries["b"].key_mark == Mark(2, 3)
    listing = inner.entries["b"].value
    assert isinstance(listing, Listing)
    assert [item.mark for item in listing.items] == [Mark(2, 7), Mark(2, 10)]


def test_a_key_that_stands_twice_is_a_mistake() -> None:
    _, problems = read("a: 1\nb: 2\na: 3\n")
    assert problems == [(3, 1, "the key 'a' stands twice")]


@pytest.mark.parametrize(
    "text", ["a: !!python/object/apply:os.system [id]", "a: !x 1", "!!set {a}", "a: !!str 1"]
)
def test_tags_are_refused(text: str) -> None:
    _, problems = read(text)
    assert [p[2] for p in problems] == ["tags are not allowed"]


def test_aliases_work_but_cannot_blow_up() -> None:
    found, problems = read("a: &x [1, 2]\nb: *x\n")
    assert not problems and isinstance(found, Table)
    assert found.entries["a"].value == found.entries["b"].value
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    value, problems = read(bomb)
    assert value is None
    assert len(problems) == 1 and "aliases counted" in problems[0][2]


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: *nothing", "a: &x {b: *x}"])
def test_an_alias_without_a_finished_anchor_is_a_mistake(text: str) -> None:
    assert "no anchor" in read(text)[1][0][2]


def test_merge_keys_are_refused() -> None:
    assert "merge keys" in read("a: &x {b: 1}\nc: {<<: *x}\n")[1][0][2]


def test_deep_nesting_is_refused_and_does_not_overflow() -> None:
    value, problems = read("a: " + "[" * 900)
    assert value is None
    assert "deep" in problems[0][2]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1, 2\nb: 3\n", 2), ("a: 1\n\tb: 2\n", 2), ("a: 'x\n\n\n", 4), ("a: b: c\n", 1)],
)
def test_a_syntax_error_has_a_line(text: str, line: int) -> None:
    value, problems = read(text)
    assert value is None
    assert problems[0][0] == line


def test_an_unprintable_character_has_its_place() -> None:
    assert read("a: 1\nb: x\x07y\n")[1] == [(2, 5, "the character U+0007 may not stand in YAML")]


def test_a_second_document_is_a_mistake() -> None:
    assert read("a: 1\n---\nb: 2\n")[1][0][0] == 2


def test_an_empty_file_is_empty() -> None:
    assert read("") == (None, [])
    assert read("# nothing\n") == (None, [])


def test_braces_of_a_template_that_was_not_filled_in() -> None:
    assert "a key must be text" in read("a: {{ x }}\n")[1][0][2]
