"""A whole simulation: a throw-away head and a fleet, in a network namespace of its own
(namespace.py).

python -m layercake.sim.play OPTIONS        JSON, the fields of Options
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from layercake.base.tcp_listener import raise_file_limit
from layercake.base.text import count_of
from layercake.head.settings import Settings
from layercake.heads.member import PROGRAM
from layercake.inventory import ranges
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.sim import directory, inventory, namespace, site, welcome
from layercake.sim.fleet.etcd import EtcdMembers
from layercake.sim.fleet.faults import Faults, random_numbers
from layercake.sim.fleet.fleet import BootTimes, Fleet, Head, wrong
from layercake.sim.inventory import SimulatedSite
from layercake.sim.screen import Screen
from layercake.sim.show import Meter, line
from powerman.drivers.sim import SOCKET as BMCS

SECOND_S = 1.0
STORE_MEMBERS = 3
UP_S = 60.0
"""After so many seconds a fleet counts as up, whatever keeps some of its nodes from it."""


class Dark(msgspec.Struct, frozen=True):
    """An outage: which nodes, a share of them (`33%`), a group, or a range; when it begins, in
    seconds after the inventory was applied, how long it lasts, and after how long it comes again, 0
    for never."""

    nodes: str
    at: float = 60.0
    lasts: float = 120.0
    every: float = 0.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. `directory` is the simulation's own; `inventory` is a site's, or `nodes`
    are made up; `config` are a site's settings; `changes` are settings by their dotted names.
    `heads` is how many there are. `seconds` 0: until it is interrupted. `keep`: the directory
    stays. `status_s`: seconds between two lines of status, 0 for the usual. `program` is how people
    call `layercake`.

    Of the launcher: `lock` and `listener` are file descriptors, of the directory's lock and of a
    listening socket whose URL is `url`; `parent` is its process."""

    directory: str
    nodes: int = 100
    inventory: str = ""
    config: str = ""
    address: str = ""
    changes: dict[str, Any] = {}
    dhcp: bool = False
    heads: int = 1
    faults: dict[str, Any] = {}
    dark: list[Dark] = []
    firmware_s: float = 8.0
    kernel_s: float = 4.0
    seconds: float = 0.0
    keep: bool = False
    status_s: float = 0.0
    program: str = "layercake"
    lock: int = -1
    listener: int = -1
    url: str = ""
    parent: int = 0


@dataclass
class Play:
    """A simulation that runs: its head, its fleet, who is in it, and which faults it has. `screen`
    is where it says how it is. Of several heads `others` are those that follow first, `members`
    those of their etcd."""

    options: Options
    directory: Path
    simulated: SimulatedSite
    head: site.HeadProcess
    others: list[site.HeadProcess]
    members: EtcdMembers | None
    fleet: Fleet
    settings: Settings
    faults: Faults
    screen: Screen

    @property
    def command(self) -> str:
        """The command line that talks to the head, without what it asks for."""
        return f"{self.options.program} --socket {self.directory / site.SOCKET}"

    def chosen(self, words: str) -> list[str]:
        """The nodes that an outage is about. Raises InputError."""
        names = list(self.simulated.inventory.nodes)
        if words.endswith("%"):
            share = share_of(words)
            return [
                name for name in names if random_numbers(self.faults.seed, name, "dark")[0] < share
            ]
        groups = self.simulated.inventory.groups
        return list(groups[words]) if words in groups else ranges.expand(words, set(names), groups)

    def darken(self) -> None:
        """Has the outages happen when their time comes."""
        for dark in self.options.dark:
            self.fleet.later(dark.at, partial(self._turn, dark, self.chosen(dark.nodes), dark=True))

    def _turn(self, which: Dark, names: list[str], *, dark: bool) -> None:
        self.fleet.darken(names, dark=dark)
        self.screen.line(f"{'dark' if dark else 'back'}: {count_of(len(names), 'node')}")
        if dark:
            self.fleet.later(which.lasts, partial(self._turn, which, names, dark=False))
        elif which.every:
            self.fleet.later(
                max(1.0, which.every - which.lasts), partial(self._turn, which, names, dark=True)
            )


def share_of(words: str) -> float:
    """A share, as 1% or 0.01. Raises InputError."""
    try:
        share = float(words.removesuffix("%")) / (100.0 if words.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InputError(f"cannot use {words}: it is no share", hint="from 0% to 100%")
    return share


def _heads(options: Options, config: Mapping[str, Any] | None) -> list[str]:
    """The head's address with its prefix, by the options or the site's settings; none if neither
    has it. Raises InputError."""
    if options.address:
        head = options.address
    elif config:
        head = f"{config.get('address')}/{config.get('prefix', 24)}"
    else:
        return []
    try:
        ipaddress.IPv4Interface(head)
    except ValueError:
        raise InputError(
            f"cannot use {head} as the head's address", hint="such as 10.0.0.1/8"
        ) from None
    return [head]


def _simulated(options: Options, heads: list[str]) -> SimulatedSite:
    """Who is in it. Raises InputError."""
    if options.inventory:
        return inventory.of_file(Path(options.inventory), heads)
    return inventory.simulated_site(inventory.generated(options.nodes), heads=heads)


def build_play(options: Options, screen: Screen) -> Play:
    """The parts of a simulation in a directory that is claimed for it; nothing runs yet. Raises
    InputError."""
    place = Path(options.directory).absolute()
    config = _config(Path(options.config)) if options.config else None
    simulated = _simulated(options, _heads(options, config))
    address = options.address or ("" if options.inventory or config is not None else inventory.HEAD)
    members = _members(place, options.heads)
    settings = site.settings_of(
        place,
        simulated,
        config=config,
        changes=options.changes | _among("head1", members),
        address=address,
        dhcp=options.dhcp,
        url=options.url,
    )
    site.prepare(place, settings, simulated)
    others = [_other(number, settings, options, members) for number in range(2, options.heads + 1)]
    _place_members(members, [place, *others])
    boot = next(s for s in settings.sections.values() if hasattr(s, "dhcp_port"))
    faults = msgspec.convert(options.faults, Faults)
    where = Head(
        address=settings.address,
        tls=settings.api_port,
        sync=settings.sync.port,
        http=boot.http_port,
        authority=place / "pki" / "ca.pem",
        bmcs=place / BMCS,
        dhcp=boot.dhcp_port if options.dhcp else 0,
        others=tuple(_address(settings, number) for number in range(2, options.heads + 1)),
    )
    fleet = Fleet(
        simulated.identities, where, faults, BootTimes(options.firmware_s, options.kernel_s)
    )
    play = Play(
        options,
        place,
        simulated,
        site.HeadProcess(place),
        [site.HeadProcess(other) for other in others],
        members,
        fleet,
        settings,
        faults,
        screen,
    )
    for dark in options.dark:
        play.chosen(dark.nodes)
    return play


def _members(place: Path, heads: int) -> EtcdMembers | None:
    """The members of the store of several heads. Raises InputError without etcd."""
    if heads < 2:
        return None
    if shutil.which(PROGRAM) is None:
        why = "cannot simulate several heads: etcd is not installed"
        raise InputError(why, hint="apt install etcd-server")
    return EtcdMembers(place, STORE_MEMBERS)


def _place_members(members: EtcdMembers | None, heads: Sequence[Path]) -> None:
    """Each head has a member on its machine; those that are left are witnesses."""
    if members is not None:
        for number, head in enumerate(heads):
            members.place(number, head)


def _among(name: str, members: EtcdMembers | None) -> dict[str, Any]:
    """The settings of one of several heads, by their dotted names."""
    return {} if members is None else {"heads.name": name, "heads.store": members.endpoints}


def _address(settings: Settings, number: int) -> str:
    """The address of a further head; the one after the first head's is the relay's."""
    return str(ipaddress.IPv4Address(settings.address) + number)


def _other(number: int, settings: Settings, options: Options, members: EtcdMembers | None) -> Path:
    """Makes a further head, with the files of the first one; its directory."""
    place = Path(options.directory).absolute()
    other = place / f"head{number}"
    return site.copy_head(
        place, other, _address(settings, number), _among(f"head{number}", members)
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"cannot use {path}: it holds no settings")
    return config


Happens = Callable[["Play"], Awaitable[None]]
"""What happens in a simulation."""


async def run(
    options: Options,
    stop: asyncio.Event,
    screen: Screen,
    then: Happens,
    first: Happens | None = None,
) -> None:
    """Plays; `then` is what happens once the inventory is applied, `first` before a head begins.
    Whatever comes, nothing is left running, and no directory unless it is to be kept. Raises
    LayercakeError and OSError."""
    namespace.set_up()
    raise_file_limit()
    path = Path(options.directory).absolute()
    lock = options.lock if options.lock >= 0 else directory.claim(path)
    stays = "" if options.keep else ", which is removed at the end"
    screen.line(f"starting a head for simulated nodes in {path}{stays}")
    try:
        play = build_play(options, screen)
        if first is not None:
            await first(play)
        await _play(play, stop, then)
    finally:
        if not options.keep:
            directory.remove(path)
        os.close(lock)


async def _play(play: Play, stop: asyncio.Event, then: Happens) -> None:
    try:
        await play.fleet.start()
        if play.members is not None:
            play.members.start()
            await asyncio.to_thread(play.members.wait)
        play.head.start(play.options.listener)
        waiting = asyncio.create_task(_count_seconds(play.screen, "the head starts"))
        try:
            await asyncio.to_thread(play.head.wait, stop.is_set)
            if not stop.is_set():
                for other in play.others:
                    other.start()
                await asyncio.to_thread(play.head.fill, play.simulated)
        finally:
            waiting.cancel()
        if not stop.is_set():
            play.darken()
            await then(play)
    finally:
        for head in (*play.others, play.head):
            await asyncio.to_thread(head.stop)
        if play.members is not None:
            play.members.kill()
        await play.fleet.stop()


async def _count_seconds(screen: Screen, what: str) -> None:
    """Says each second how long something takes, until cancelled."""
    now = asyncio.get_running_loop().time
    began = now()
    while True:
        await asyncio.sleep(SECOND_S)
        screen.status(f"{what}: {now() - began:.0f} s", now())


class Watch:
    """Shows how a simulation is, until it is to stop or its time is over."""

    def __init__(self, play: Play, stop: asyncio.Event) -> None:
        self._play = play
        self._stop = stop
        self._meter = Meter(play.head.pid)
        self._now = asyncio.get_running_loop().time
        seconds = play.options.seconds
        self._end = self._now() + seconds if seconds else float("inf")

    async def until(self, true: Callable[[Mapping[str, Any]], bool]) -> None:
        """Looks each second, until something is true of the head's status. Raises OperationFailed
        if the head has ended."""
        while not self._stop.is_set() and self._now() < self._end:
            try:
                async with asyncio.timeout(SECOND_S):
                    await self._stop.wait()
            except TimeoutError:
                status = await self._status()
                self._play.screen.status(
                    line(status, self._play.fleet.view(), self._meter.sample()), self._now()
                )
                if true(status):
                    return

    async def _status(self) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await asyncio.to_thread(
                self._play.head.api.request, "GET", "/v1/status"
            )
            return answer
        except OSError as error:
            raise OperationFailed(
                f"cannot go on: the head does not answer: {error}\n{self._play.head.log()}"
            ) from None

    async def until_up(self) -> None:
        """Until all nodes without a fault run what is wanted, or the time that this may take is
        over."""
        end = self._now() + UP_S
        bad = {
            name for names in wrong(self._play.fleet.machines.values()).values() for name in names
        }
        await self.until(
            lambda status: (
                self._now() > end
                or status["nodes"]["converged"] >= status["nodes"]["total"] - len(bad)
            )
        )


async def main(options: Options) -> None:
    """The simulation as a person sees it."""
    stop = asyncio.Event()
    screen = Screen(every_s=options.status_s or None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.parent and os.getppid() != options.parent:
        return  # the launcher was killed before this process was told to end with it

    async def then(play: Play) -> None:
        for text in welcome.begin(
            play.settings.address, play.fleet.machines.values(), play.command
        ):
            screen.line(text)
        watch = Watch(play, stop)
        if options.url:
            await watch.until_up()
            if not stop.is_set():
                certificate = play.directory / "pki" / "server.pem"
                screen.line(
                    "\n".join(
                        await asyncio.to_thread(
                            welcome.link, play.head.api, certificate, play.command
                        )
                    )
                )
        await watch.until(lambda status: False)

    try:
        await run(options, stop, screen, then)
    finally:
        screen.close()


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
        problems = (
            [f"  {problem}" for problem in error.problems]
            if isinstance(error, InventoryErrors)
            else []
        )
        sys.stderr.write(
            "\n".join([error.message, *problems, *([f"hint: {error.hint}"] if error.hint else [])])
            + "\n"
        )
        sys.exit(2 if isinstance(error, InputError) else 1)
