"""The tasks of a day: each command of that page is run, in its order, as it stands there, on a
simulated site of 200 nodes. A `--yes` is added where it asks, and --no-wait where it follows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from layercake.sim.api import Api
from tests.docs.test_commands import parse
from tests.sim.launched import launched
from tests.sim.played import wait_until

T = TypeVar("T")
PAGE = Path(__file__).resolve().parents[2] / "docs/howto/tasks-of-a-day.md"
NODES = 200
COMMANDS = re.findall(r"^# layercake (.*)$", PAGE.read_text(), re.M)
ELSEWHERE = {
    "watch": "it goes on until somebody ends it",
    "backup": "it is of this machine's own head",
    "check": "it is of this machine's own head",
}
"""What is tried by other tests, by how it begins."""
SIMULATED = (
    "capture n7",
    "console",
    "machine show",
    "node logs",
    "node copy",
    "power log",
    "power hardware",
)
"""What needs a machine: a simulated one is refused by its name."""
ENDS = {
    "inventory diff yesterday": (2, "the history begins at"),
    "node compare": (0, "are alike"),
    "roll pause": (4, "it is scheduled"),
    "node exec": (1, "40 with exit status 127"),
    "power password": (1, "the inventory names no password of its BMC"),
}
"""What ends otherwise on this site, by how it begins: with which code, and which words."""
FIRST = {"inventory revert": "node set n9 kernel_args=debug"}
"""What is typed before, so that there is something to undo."""
BACK = {
    "node set n7 mac": "node set n7 mac=52:54:00:12:33:07",
    "node rename n7 gpu7 --save": "node rename gpu7 n7",
    "node rename n[1-4]": "node rename m[1-4] n[1-4]",
}
"""What is typed behind a command, so that the next finds the site as it was."""


def site() -> str:
    """Its inventory."""
    lines = [
        "defaults: {images: [web:1]}",
        "groups: {rack1: {domain: true}, rack7: {domain: true}}",
        "nodes:",
    ]
    for number in range(1, NODES + 1):
        rack = "rack7" if number <= 40 else "rack1"
        image = ", images: [web:2]" if number == NODES else ""
        lines.append(
            f'  n{number}: {{groups: [{rack}], mac: "52:54:00:12:33:{number:02x}", '
            f"ip: 10.1.1.{number}, bmc: {{driver: ipmi, address: 10.2.0.{number}}}{image}}}"
        )
    return "\n".join(lines) + "\n"


class Desk:
    """Where somebody sits and types; the file rack.yaml there is the inventory in force."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self._folder = folder
        self._socket = socket
        sets = Api(socket).request("GET", "/v1/boot")["sets"]
        self._set = next(one["name"] for one in sets if one["default"])
        (folder / "hosts.allow").write_text("ALL: 10.1.\n")

    def wait_until_as_wanted(self) -> None:
        """Returns when all nodes are."""
        wait_until(lambda: self.types("explain")[0] == 0, 120.0, pause=0.5)

    def types(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and all that it prints."""
        typed = command.replace("0.2.0-5c0f3a91", self._set).replace("6.1.0-28-amd64", "simulated")
        words = shlex.split(typed.replace("roll status 3", "roll status 1"))
        options = {option for one in parse(words).command.params for option in one.opts}
        for option in ("--yes", "--no-wait"):
            at = words.index("--") if "--" in words else len(words)
            if option in options:
                words.insert(at, option)
        if "rack.yaml" in command:
            (self._folder / "rack.yaml").write_text(self.types("inventory show")[1])
        done = subprocess.run(
            [sys.executable, "-m", "layercake.cli.main", "--socket", str(self._socket), *words],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "site.yaml").write_text(site())
    (folder / "t").mkdir()
    options = ("--inventory", str(folder / "site.yaml"), "--address", "10.1.0.1/16")
    with launched(folder / "t", *options) as simulation:
        simulation.line(f"{NODES}/{NODES} converged")
        yield Desk(folder, simulation.directory / "api.sock")


def those_of(table: dict[str, T], command: str) -> list[T]:
    """What a table has of a command, by how that begins."""
    return [one for begins, one in table.items() if command.startswith(begins)]


def trouble(desk: Desk, command: str) -> str:
    """What a command does that it should not; "" for one that ends as it has to."""
    usual = (4, "simulated") if command.startswith(SIMULATED) else (0, "")
    code, words = next(iter(those_of(ENDS, command)), usual)
    for first in those_of(FIRST, command):
        assert desk.types(first)[0] == 0
    ended, said = desk.types(command)
    for back in those_of(BACK, command):
        assert desk.types(back)[0] == 0
    if command.startswith(("power on", "node release")):
        desk.wait_until_as_wanted()
    return "" if ended == code and words in said else f"{command}: {ended}, {said[-400:]}"


@pytest.mark.waits
def test_each_command_of_the_page_does_what_it_says(desk: Desk) -> None:
    typed = [command for command in COMMANDS if command.split()[0] not in ELSEWHERE]
    assert not list(filter(None, (trouble(desk, command) for command in typed)))
