"""The help says what a newcomer asks first: where the token, the data and the API's description
are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from layercake.cli.main import cli
from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]


def test_help_names_tokens_variables_data_and_the_description_of_the_api(run: Run) -> None:
    said = run("--help").out
    for word in (
        "LAYERCAKE_SOCKET",
        "LAYERCAKE_URL",
        "LAYERCAKE_TOKEN_FILE",
        "LAYERCAKE_CA",
        "LAYERCAKE_DATA",
        "admin.token",
        "pki/ca.pem",
        "/var/lib/layercake",
        "/v1/openapi.json",
    ):
        assert word in said, word
    assert "[env var: LAYERCAKE_TOKEN_FILE]" in " ".join(said.split())


@pytest.mark.parametrize("command", ["init", "serve", "backup", "restore"])
def test_the_data_directory_says_its_variable(run: Run, command: str) -> None:
    assert "LAYERCAKE_DATA" in run(command, "--help").out


def test_help_lists_every_command_with_its_help(run: Run) -> None:
    lines = run("--help").out.splitlines()
    start = lines.index("Commands:") + 1
    shown = {line.split()[0]: line.split()[1:] for line in lines[start : lines.index("", start)]}
    assert list(shown) == [
        "init",
        "serve",
        "status",
        "plan",
        "apply",
        "inventory",
        "networks",
        "dns",
        "node",
        "image",
        "roll",
        "power",
        "calls",
        "call",
        "events",
        "explain",
        "graph",
        "new",
        "freeze",
        "thaw",
        "outage",
        "machine",
        "boot",
        "profile",
        "boot-media",
        "authority",
        "heads",
        "witness",
        "check",
        "backup",
        "restore",
        "token",
        "audit",
        "sim",
        "watch",
        "log-level",
        "report",
        "console",
        "capture",
        "sensors",
        "dashboard",
        "tpm",
        "files",
        "ssh-known-hosts",
        "shell-groups",
        "docs",
    ]
    assert all(shown.values())


def commands(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=words)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{words} {name}")


def test_no_option_has_a_default_that_it_refuses() -> None:
    wrong = []
    for words, command in commands(cli, "layercake"):
        context = click.Context(command, info_name=words)
        for parameter in command.params:
            try:
                parameter.handle_parse_result(context, {}, [])
            except click.MissingParameter:
                continue
            except click.BadParameter as error:
                wrong.append(f"{words} {parameter.name}: {error.message}")
    assert not wrong


def test_a_bmc_is_set_up_without_a_prefix(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/power/setup"] = (200, {"nodes": []})
    assert run("power", "setup", "n0").code == 0
    assert run("power", "setup", "n0", "--prefix", "24").code == 0
    assert [asked["prefix"] for asked in head.asked("POST /v1/power/setup")] == [0, 24]
