"""A client starts fast, and where the head's dependencies are not installed: what a command
imports, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.canned_api import CannedApi

SERVER = (
    "layercake.head",
    "layercake.api",
    "layercake.main",
    "layercake.setup",
    "layercake.moduleapi",
    "layercake.kraken.converge",
    "pxe",
    "powerman",
    "minos",
    "imageapi",
    "aiohttp",
    "grpc",
    "google.protobuf",
    "msgspec",
    "jinja2",
    "cryptography",
)
SLOW = ("rich", "yaml", "asyncio", "ClusterShell")
SCRIPT = """
import sys
from layercake.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ["--version"],
        ["--help"],
        ["node", "list"],
        ["node", "list", "--json"],
        ["image", "build", "--help"],
        ["power", "on", "n0"],
    ],
    ids=" ".join,
)
def test_nothing_of_the_server_and_nothing_slow_is_imported(
    head: CannedApi, socket: Path, command: list[str]
) -> None:
    head.answers["POST /v1/power"] = (200, {"nodes": [{"node": "n0", "accepted": True, "why": ""}]})
    found = imported("--socket", str(socket), *command)
    assert "layercake.cli.main" in found
    assert not found & {*SERVER, *SLOW}
    of_features = {name for name in found if name.startswith("layercake.features.")}
    assert not {n for n in of_features if n.count(".") > 2 and not n.endswith("commands")}


def test_version_imports_no_command() -> None:
    found = {name for name in imported("--version") if name.startswith("layercake.")}
    assert found == {
        "layercake.cli",
        "layercake.cli.main",
        "layercake.client",
        "layercake.client.command",
        "layercake.client.completion",
        "layercake.client.output",
        "layercake.client.target",
        "layercake.kraken",
        "layercake.kraken.errors",
    }
