"""The reference is what the code says: each page is as committed, and nothing that a user can name
is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import msgspec
import pytest

from docs import generate
from docs.generator import interfaces
from imageapi.spec.container import CONTAINER_FIELDS
from layercake.cli.main import cli
from layercake.head import modules
from layercake.head.settings import Settings
from layercake.inventory.rules import GROUP, NODE


def committed(name: str) -> str:
    """The page as it is in the repository."""
    return (generate.REFERENCE / name).read_text()


@pytest.mark.parametrize("name", generate.PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert committed(name) == generate.PAGES[name](), "run `make docs`, and commit docs/reference"


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, f"{path} {name}")


def test_every_command_and_option_is_there() -> None:
    sections = dict(
        re.findall(r"^## (layercake[^\n]*)\n(.*?)(?=^## |\Z)", committed("cli.md"), re.M | re.S)
    )
    for path, command in _commands(cli, "layercake"):
        assert path in sections
        for option in (o for p in command.params if isinstance(p, click.Option) for o in p.opts):
            assert option in sections[path], f"{path} {option}"


def test_every_setting_is_there() -> None:
    page = committed("config.md")
    for field in msgspec.structs.fields(Settings):
        assert field.name == "sections" or f"`{field.name}" in page or f"## {field.name}" in page
    for module in modules.built_in():
        for field in msgspec.structs.fields(module.settings):
            assert f"`{module.section}.{field.encode_name}" in page


def test_every_key_of_the_inventory_is_there() -> None:
    page = committed("inventory.md")
    for key in (*NODE, *GROUP, "images", "groups"):
        assert f"| `{key}` |" in page
    for module in modules.built_in():
        named = module.part.struct.ENTRY if module.part else None
        for field in msgspec.structs.fields(named or module.part.struct) if module.part else ():
            prefix = f"{module.part.key}." if module.part and module.part.key else ""
            prefix += "NAME." if named else ""
            assert f"| `{prefix}{field.encode_name}` |" in page


def test_every_field_of_a_container_is_there() -> None:
    for field in CONTAINER_FIELDS:
        assert f"| `{field}` |" in committed("container.md")


def test_every_event_mutation_variable_and_call_is_there() -> None:
    table = modules.standard()
    for kind in table.events:
        assert f"| `{kind}` |" in committed("events.md")
    for name in (*(m.name for m in table.mutations), *(v.name for v in table.variables)):
        assert f"| `{name}` |" in committed("variables.md")
    for call in table.calls.values():
        assert (f"| `{call.name}` |" in committed("modules.md")) is not call.inside


def test_every_route_and_message_is_there() -> None:
    for route in interfaces.routes():
        assert f"| `{route.method} {route.path_shown}` |" in committed("rest.md")
    for message in re.findall(r"^message (\w+)", interfaces.PROTO.read_text(), re.M):
        assert f"message {message} " in committed("module-api.md")


def test_everything_has_a_meaning() -> None:
    """A row whose last cell is empty is a setting or a key without a description."""
    for name in ("config.md", "inventory.md"):
        empty = [line for line in committed(name).splitlines() if re.search(r"\|\s+\|$", line)]
        assert not empty, name


def test_what_an_answer_holds_is_named() -> None:
    """Schemas that are inside another are links, not "anything"; only what a module answers a call
    with can be that."""
    rest = committed("rest.md")
    assert "list of anything" not in rest and rest.count("| anything |") == 1
    assert "| `nodes` | list of [Accepted](#accepted) | required |" in rest
