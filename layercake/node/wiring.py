"""The node's wiring: the agent of minos, the images of imageapi, and the engine, put together in
one place."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imageapi.mutations
import minos.disks.mutations
from imageapi.node.attach.disks import names
from imageapi.node.attach.fetch import Body, Fetch, FileBody
from imageapi.node.container.cgroup import ROOT
from imageapi.node.container.egress import parse_head_ports
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from layercake.node.disks import LateDisks
from layercake.node.files import InstancePreparation, running
from layercake.node.modules import load_module
from minos import syscalls
from minos.agent.busy import is_busy
from minos.agent.core import AgentCore
from minos.agent.files.manager import FileManager
from minos.agent.head_link.connection import CONNECT_S, address_at
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.head_link.secret_client import SecretClient
from minos.agent.http.client import Download, parse_url
from minos.agent.loop import Agent
from minos.agent.network.late import LateNetwork
from minos.agent.state import Session
from minos.agent.tasks.runner import TaskRunner
from minos.agent.wanted import no_orders
from minos.agent.worker import Handler, Worker

if TYPE_CHECKING:
    from layercake.node.commands import Answer, Commands
    from layercake.node.serving import Serving
    from minos.agent.metadata.service import Metadata
    from minos.erase.orders import Orders
    from minos.survey.monitor import HardwareMonitor


class Context:
    """What a mutation's handler works on (imageapi.mutations.NodeContext,
    minos.disks.mutations.DiskContext)."""

    def __init__(
        self,
        images: ImageSet,
        disks: LateDisks,
        run: Path,
        interrupted: Callable[[], bool],
        tell_all: Callable[[], None],
    ) -> None:
        self.images = images
        self.disks = disks
        self.interrupted = interrupted
        self.tell_all = tell_all
        self._run = run

    def busy(self) -> bool:
        """Whether `layercake-busy busy` was said."""
        return is_busy(self._run)


class LateMetadata:
    """What images are told that ask as clouds answer: nothing of it is imported where the head has
    nothing for it. `images` run in cgroups below `groups`."""

    def __init__(self, images: ImageSet, groups: Path) -> None:
        self._images = images
        self._groups = groups
        self._service: Metadata | None = None

    def update(
        self, files: Mapping[str, bytes], of_images: Mapping[str, Mapping[str, bytes]]
    ) -> None:
        """What is said from now on, to all images and to some. Raises OperationFailed."""
        if self._service is None and files:
            from minos.agent.metadata.service import Metadata, open_own

            self._service = Metadata(open_own, asker=self._asker)
        if self._service is not None:
            self._service.update(files, of_images)

    def _asker(self, client: socket.socket) -> str | None:
        """The image whose container asks. Raises OSError."""
        from minos.agent.metadata.asker import container_of

        container = container_of(client, self._groups)
        names = (one.spec.name for one in self._images.instances() if one.id == container)
        return next(names, None)


class LateApi:
    """The node's own API (minos.agent.loop.NodeApi). What it needs is imported when it starts: the
    images run by then. With it begins the survey of the hardware, of a machine that is ours
    (`owner`)."""

    def __init__(self, core: AgentCore, images: ImageSet, port: int, *, owner: bool) -> None:
        self._owner = owner
        self._survey: HardwareMonitor | None = None
        self._core = core
        self._images = images
        self._port = port
        self._serving: Serving | None = None

    def start(self, session: Session) -> None:
        """Serves under a session. Takes a moment."""
        from layercake.node.serving import Serving

        def bmc(body: Mapping[str, Any]) -> Mapping[str, Any]:
            from layercake.node.bmc import answer  # when the head asks for it, if it ever does

            return answer(lambda name: load_module(self._core, session, name), body)

        serving = self._serving = Serving(
            self._core.config,
            self._images,
            self._core.event,
            self._port,
            bmc if self._owner else None,
            self._core.heads.epochs,
        )
        serving.start(session)
        if self._owner:
            from minos.survey import monitor  # the last of all: nobody waits for it

            self._survey = monitor.start(self._core.config, session, self._core.say)

    def announce(self, session: Session) -> None:
        """Tells the head where it listens, if it does already."""
        if self._serving is not None:
            self._serving.announce(session)

    def renew(self, session: Session) -> None:
        """Goes on with another certificate."""
        if self._serving is not None:
            self._serving.renew(session)
        if self._survey is not None:
            self._survey.session = session


def open_url(url: str, offset: int) -> Body:
    """Opens an image's address (imageapi.node.attach.fetch.Fetch)."""
    return (
        FileBody(url.removeprefix("file://"), offset)
        if url.startswith("file:")
        else Download(url, offset)
    )


def opener(heads: KnownHeads) -> Fetch:
    """Opens images' addresses; one at a head that does not answer, at the next head."""

    def opened(url: str, offset: int) -> Body:
        if url.startswith("file:") or not heads.several:
            return open_url(url, offset)
        failure: LayercakeError | None = None
        for address in address_at(url, heads.in_turn()):
            try:
                return Download(address, offset, connect_timeout=CONNECT_S)
            except (Unreachable, OperationFailed) as error:
                failure = failure or error
        raise failure or Unreachable("cannot reach the head: none is known")

    return opened


def handlers(
    images: ImageSet,
    disks: LateDisks,
    run: Path,
    tell_all: Callable[[], None],
    ready: Callable[[], None],
) -> dict[str, Handler]:
    """What this minOS can carry out itself, by the names of the mutations. Their declarations come
    from the head, at the join. `ready` returns when they may begin."""

    def bind(handler: Callable[..., Mapping[str, str]]) -> Handler:
        def carry_out(interrupted: Callable[[], bool]) -> Mapping[str, str]:
            ready()
            return handler(Context(images, disks, run, interrupted, tell_all))

        return carry_out

    known = (*imageapi.mutations.MUTATIONS, *minos.disks.mutations.MUTATIONS)
    return {m.name: bind(m.handler) for m in known if m.handler}


class LateOrders:
    """What a release needs on a machine that is ours: nothing of it is imported before the head
    asks for it."""

    def __init__(self) -> None:
        self._alone = threading.Lock()
        self._orders: Orders | None = None

    def carry_out(
        self, settled: Callable[[], bool], request: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """One order (minos.erase.orders). Raises LayercakeError."""
        with self._alone:
            if self._orders is None:
                from minos.erase.orders import Orders
                from minos.erase.selection import select_disks

                self._orders = Orders(find=lambda: select_disks(names))
        return self._orders.carry_out(settled, request)


class LateCommands:
    """What the head asks many nodes for at once (minos.agent.wanted.Commands): nothing of it is
    imported before it does, or finds what an agent before this one has begun."""

    def __init__(self, core: AgentCore, images: ImageSet, root: Path | None) -> None:
        self._core = core
        self._images = images
        self._root = root
        self._commands: Commands | None = None
        self._looked = False

    def _loaded(self) -> Commands:
        if self._commands is None:
            from layercake.node.commands import Commands
            from minos.agent.head_link.content_client import ContentClient

            config = self._core.config
            content = ContentClient(config)
            self._commands = Commands(self._images, config.run, content, self._root)
        return self._commands

    def begin(self, request: Mapping[str, Any], answer: Answer) -> None:
        """Begins one."""
        self._loaded().begin(request, answer)

    def cancel_others(self, keys: Set[str]) -> None:
        """Calls off all but these."""
        if not self._looked:
            self._looked = True
            if (self._core.config.run / "commands").is_dir():
                self._loaded()
        if self._commands is not None:
            self._commands.cancel_others(keys)


def head_ports(core: AgentCore) -> Mapping[str, Any]:
    """What containers may not speak to: the heads, the one that was joined and the others."""
    told = core.head_ports
    if not told or not core.heads.several:
        return told
    hosts = (parse_url(head.url).host for head in core.heads.in_turn())
    return {**told, "addresses": list(dict.fromkeys([*told.get("addresses", ()), *hosts]))}


def _power_off() -> None:
    os.sync()
    syscalls.reboot(syscalls.RB_POWER_OFF)


def make(
    core: AgentCore, *, cgroup: str = "layercake", api_port: int = 0, owner: bool = False
) -> Agent:
    """The agent with everything it needs. Its API listens on `api_port`, 0 for any. `owner`: the
    machine runs minOS, and its interfaces are the agent's to set. Raises LayercakeError."""
    run = core.config.run
    preparing: InstancePreparation
    open_image = opener(core.heads)
    disks = LateDisks(core, open_image)
    images = ImageSet(
        run,
        Runtime(run, parent=cgroup, head_ports=lambda: parse_head_ports(head_ports(core))),
        open_image,
        core.event,
        secret=SecretClient(core.config),
        key=lambda: core.image_key,
        changed=core.check_images,
        busy=lambda: is_busy(run),
        files=lambda *instance: preparing.give(*instance),
    )
    preparing = InstancePreparation(
        FileManager(
            core.config,
            core.event,
            lambda: running(images),
            Path("/") if owner else None,
            LateMetadata(images, ROOT / cgroup).update,
        ),
        TaskRunner(core.config, core.event),
        disks,
    )
    network = LateNetwork(core, owner=owner)
    worker = Worker(handlers(images, disks, run, core.link.drain, network.wait), core.inbox.post)
    return Agent(
        core,
        images,
        worker,
        LateApi(core, images, api_port, owner=owner),
        network,
        preparing,
        orders=LateOrders().carry_out if owner else no_orders,
        commands=LateCommands(core, images, Path("/") if owner else None),
        power_off=_power_off if owner else None,
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        clock_ns=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    )
