"""A whole simulation: a throw-away head and a fleet, in a network namespace of its own (namespace.py).

    python -m layercake.sim.play OPTIONS        JSON, the fields of Options
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from layercake.base.door import open_files
from layercake.head.settings import Settings
from layercake.inventory import ranges
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError
from layercake.sim import inventory, namespace, site
from layercake.sim.fleet.faults import Faults, draws
from layercake.sim.fleet.fleet import Fleet, Head, Tempo, wrong
from layercake.sim.inventory import Cast
from layercake.sim.show import Meter, line
from powerman.drivers.sim import SOCKET as BMCS

SECOND_S = 1.0


def say(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Dark(msgspec.Struct, frozen=True):
    """An outage: which nodes, a share of them (`33%`), a group, or a range; when it begins, in seconds after the inventory was
    applied, and how long it lasts."""

    nodes: str
    at: float = 60.0
    lasts: float = 120.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. `directory` is the simulation's own; `inventory` is a site's, or `nodes` are made up; `config` are a
    site's settings; `changes` are settings by their dotted names. `seconds` 0: until it is interrupted. `keep`: the directory
    stays."""

    directory: str
    nodes: int = 100
    inventory: str = ""
    config: str = ""
    address: str = ""
    changes: dict[str, Any] = {}
    dhcp: bool = False
    faults: dict[str, Any] = {}
    dark: list[Dark] = []
    firmware_s: float = 8.0
    kernel_s: float = 4.0
    seconds: float = 0.0
    keep: bool = False


@dataclass
class Play:
    """A simulation that runs: its head, its fleet, who is in it, and which faults it has."""

    options: Options
    directory: Path
    cast: Cast
    head: site.HeadProcess
    fleet: Fleet
    settings: Settings
    faults: Faults

    def chosen(self, words: str) -> list[str]:
        """The nodes that an outage is about. Raises InputError."""
        names = list(self.cast.inventory.nodes)
        if words.endswith("%"):
            share = share_of(words)
            return [name for name in names if draws(self.faults.seed, name, "dark")[0] < share]
        groups = self.cast.inventory.groups
        return list(groups[words]) if words in groups else ranges.expand(words, set(names), groups)

    def darken(self) -> None:
        """Has the outages happen when their time comes."""
        for dark in self.options.dark:
            names = self.chosen(dark.nodes)
            self.fleet.later(dark.at, partial(self._turn, names, "dark", dark=True))
            self.fleet.later(dark.at + dark.lasts, partial(self._turn, names, "back", dark=False))

    def _turn(self, names: list[str], what: str, *, dark: bool) -> None:
        self.fleet.darken(names, dark=dark)
        say(f"{what}: {len(names)} nodes")


def share_of(words: str) -> float:
    """A share, as 1% or 0.01. Raises InputError."""
    try:
        share = float(words.removesuffix("%")) / (100.0 if words.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InputError(f"cannot use {words}: it is no share", hint="from 0% to 100%")
    return share


def made(options: Options) -> Play:
    """The parts of a simulation; nothing runs yet, its directory is made. Raises InputError."""
    directory = Path(options.directory).absolute()
    if len(str(directory / site.SOCKET)) > 100:
        raise InputError(f"cannot simulate in {directory}: its path is too long for a socket", hint="name one below /tmp")
    site.claim(directory)
    config = _config(Path(options.config)) if options.config else None
    heads = [options.address] if options.address else [f"{config.get('address')}/{config.get('prefix', 24)}"] if config else []
    for head in heads:
        try:
            ipaddress.IPv4Interface(head)
        except ValueError:
            raise InputError(f"cannot use {head} as the head's address", hint="such as 10.0.0.1/8") from None
    cast = (inventory.of_file(Path(options.inventory), heads) if options.inventory else
            inventory.cast(inventory.made_up(options.nodes), heads=heads))
    address = options.address or ("" if options.inventory or config is not None else inventory.HEAD)
    settings = site.settings_of(directory, cast, config=config, changes=options.changes, address=address, dhcp=options.dhcp)
    site.prepare(directory, settings, cast)
    boot = next(s for s in settings.sections.values() if hasattr(s, "dhcp_port"))
    faults = msgspec.convert(options.faults, Faults)
    where = Head(address=settings.address, tls=settings.api_port, sync=settings.sync.port, http=boot.http_port,
                 authority=directory / "pki" / "ca.pem", bmcs=directory / BMCS, dhcp=boot.dhcp_port if options.dhcp else 0)
    fleet = Fleet(cast.plates, where, faults, Tempo(options.firmware_s, options.kernel_s))
    play = Play(options, directory, cast, site.HeadProcess(directory), fleet, settings, faults)
    for dark in options.dark:
        play.chosen(dark.nodes)
    return play


def _config(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"cannot use {path}: it holds no settings")
    return found


async def run(options: Options, stop: asyncio.Event, then: Callable[[Play], Awaitable[None]]) -> None:
    """Plays; `then` is what happens once the inventory is applied. Whatever comes, nothing is left running, and no directory unless
    it is to be kept. Raises LayercakeError and OSError."""
    namespace.set_up()
    open_files()
    try:
        play = made(options)
    except LayercakeError:
        site.remove(Path(options.directory).absolute())
        raise
    try:
        await play.fleet.start()
        play.head.start()
        await asyncio.to_thread(play.head.wait)
        if not stop.is_set():
            await asyncio.to_thread(play.head.fill, play.cast)
            play.darken()
            await then(play)
    finally:
        await asyncio.to_thread(play.head.stop)
        await play.fleet.stop()
        if not options.keep:
            site.remove(play.directory)


async def show(play: Play, stop: asyncio.Event) -> None:
    """A line a second, until it is to stop, or the time is over."""
    loop, meter = asyncio.get_running_loop(), Meter(play.head.pid)
    end = loop.time() + play.options.seconds if play.options.seconds else float("inf")
    while not stop.is_set() and loop.time() < end:
        try:
            async with asyncio.timeout(SECOND_S):
                await stop.wait()
        except TimeoutError:
            status = await asyncio.to_thread(play.head.api.ask, "GET", "/v1/status")
            say(line(status, play.fleet.view(), meter.look()))


async def main(options: Options) -> None:
    """The simulation as a person sees it."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def then(play: Play) -> None:
        say(f"a head at {play.settings.address} with {len(play.cast.plates)} simulated nodes; talk to it, in another terminal:\n"
              f"  layercake --socket {play.directory / site.SOCKET} status\nCtrl-C ends it.")
        for what, names in wrong(play.fleet.machines.values()).items():
            if names:
                say(f"{what}: {ranges.fold(names)}")
        await show(play, stop)

    await run(options, stop, then)


def parsed(text: str) -> Options:
    """Options out of JSON. Raises InputError."""
    try:
        return msgspec.json.decode(text, type=Options)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot use the options: {error}") from None


if __name__ == "__main__":
    try:
        asyncio.run(main(parsed(sys.argv[1])))
    except LayercakeError as error:
        problems = [f"  {problem}" for problem in error.problems] if isinstance(error, InventoryErrors) else []
        sys.stderr.write("\n".join([error.message, *problems, *([f"hint: {error.hint}"] if error.hint else [])]) + "\n")
        sys.exit(2 if isinstance(error, InputError) else 1)
