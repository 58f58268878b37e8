"""The help says what a newcomer asks first: where the token, the data and the API's description
are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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
        "check",
        "backup",
        "restore",
        "token",
        "audit",
        "sim",
        "watch",
        "report",
        "console",
        "sensors",
        "dashboard",
        "tpm",
        "files",
        "ssh-known-hosts",
        "docs",
    ]
    assert all(shown.values())
