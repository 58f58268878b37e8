"""The boot service as the head sees it: opens the sockets, keeps the node table, arms and disarms boots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.tally import FIRST_S
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.moduleapi.module import Site
from layercake.moduleapi.service import Link, MutationRequest, Service
from pxe import events
from pxe.dhcp.decision import INSTALL_SHIM, NO_SHIM, Common, Decision, Outcome, decide
from pxe.dhcp.packet import DhcpPacket
from pxe.dhcp.relay import Heard, Relays
from pxe.dhcp.server import DhcpServer
from pxe.http_server import HttpServer
from pxe.machine import ARCHITECTURES, Client, client_of
from pxe.module import MODULE
from pxe.nodes import Nodes, from_record, mac_text
from pxe.notes import Note, Recorder
from pxe.paths import arm64, grub, image
from pxe.paths.ipxe import BIOS_PROGRAM, UEFI_PROGRAM
from pxe.paths.order import INITRD, KERNEL, initrds, order
from pxe.settings import BootSettings, Settings
from pxe.shelf import Shelf
from pxe.six.ra import Advertiser
from pxe.six.server import Dhcp6Server
from pxe.state import BootState, Fetchable
from pxe.tftp_server import TftpServer
from pxe.windows import Window, Windows

_EARLY_S = 3.0
_LIBRARY = Path("/usr/lib")
_DISK_EVERY_S = 600.0
HEARD = frozenset({Outcome.OFFERED, Outcome.ACKED, Outcome.NAKED, Outcome.NOT_ARMED, Outcome.NO_PROGRAM})
"""What becomes of packets of nodes that are in their own network."""


class PxeService(Service):
    """DHCP, TFTP, HTTP and router advertisements on one interface."""

    module = MODULE

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes = Nodes()
        self._windows = Windows()
        self._relays = Relays(clock)
        self._state: BootState | None = None
        self._link: Link | None = None
        self._http: HttpServer | None = None
        self._counting: asyncio.Task[None] | None = None
        self._signed = False
        self._sockets: list[DhcpServer | TftpServer | Advertiser | Dhcp6Server] = []

    async def start(self, link: Link, site: Site, settings: BootSettings) -> None:
        """Opens all sockets, or none: an error closes those that were open already."""
        conf = Settings.of(site, settings)
        recorder = Recorder(link, self._windows, self._clock)
        self._link = link
        self._state = state = BootState(conf, self._nodes, self._windows, recorder, self._clock)
        programs = _programs(conf.ipxe_dir)
        signed, in_image = grub.programs(_LIBRARY), image.programs(_LIBRARY)
        self._signed = bool(signed and in_image)
        files = {name: path.read_bytes() for name, path in programs.items()} | signed
        common = Common(conf, signed=self._signed)

        def decide_now(packet: DhcpPacket) -> Decision:
            self._look_for_disk_boot(packet, recorder)
            decision = decide(packet, self._nodes, self._windows, common, self._clock())
            if decision.outcome in HEARD and (node := self._nodes.by_mac(packet.mac)) is not None:
                self._relays.saw(node.subnet.name if node.subnet is not None else "", packet)
            return decision

        self._http = HttpServer(state, programs, in_image)
        try:
            await self._http.open()
            self._open(TftpServer((conf.address, conf.tftp_port), files, Shelf(state), recorder.counters, self._clock))
            if conf.ra_prefix is not None:
                self._open(Advertiser(conf, recorder))
                self._open_six(conf, files, recorder)
            # Last: who gets an offer finds the rest open.
            self._open(DhcpServer(conf, decide_now, recorder, lambda mac: self._nodes.by_mac(mac) is not None))
        except LayercakeError:
            await self.stop()
            raise
        self._counting = asyncio.create_task(self._count(recorder))
        link.health("running")

    async def _count(self, recorder: Recorder) -> None:
        while True:
            await asyncio.sleep(FIRST_S)
            recorder.count()

    def _look_for_disk_boot(self, packet: DhcpPacket, recorder: Recorder) -> None:
        """Tells of a node that shall boot from the network while a running system asks for its address: that came from a disk."""
        node = self._nodes.by_mac(packet.mac)
        if node is not None and self._windows.untouched(node.id, self._clock()) and client_of(packet) is Client.SYSTEM:
            text = (f"{mac_text(packet.mac)} asks for an address as a running system does: the machine has booted from its disk "
                    "(hint: its BMC does not keep the boot device, or its firmware has another boot order)")
            recorder.note(Note(node.id, events.FROM_DISK, text, None, {"mac": mac_text(packet.mac)}, every=_DISK_EVERY_S))

    def _open_six(self, conf: Settings, files: dict[str, bytes], recorder: Recorder) -> None:
        """What boots firmware by IPv6. A site may have servers for that already: the rest goes on."""
        try:
            shelf = Shelf(self._running())
            self._open(TftpServer(("::", conf.tftp_port), files, shelf, recorder.counters, self._clock, conf.interface))
            self._open(Dhcp6Server(conf, self._nodes, self._windows, recorder, self._clock))
        except OperationFailed as error:
            recorder.note(Note("", events.NO_IPV6, f"no machine can boot by IPv6: {error}"))

    def _open(self, server: DhcpServer | TftpServer | Advertiser | Dhcp6Server) -> None:
        server.open()
        self._sockets.append(server)

    async def stop(self) -> None:
        """Closes all sockets; running transfers end."""
        if self._counting is not None:
            self._counting.cancel()
        while self._sockets:
            self._sockets.pop().close()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Takes the record over. One that cannot be used takes the node out of the table, and its history says why."""
        try:
            self._nodes.put(from_record(node, record, self._running().settings))
        except InputError as error:
            self._nodes.remove(node)
            self._running().recorder.note(Note(node, events.BAD_RECORD, str(error)))

    async def node_removed(self, node: str) -> None:
        """Forgets the node and its window."""
        self._nodes.remove(node)
        self._windows.forget(node)

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """Closes the window of a node that is no longer waited for."""
        self._nodes.set_run(node, values.get("run", "UNKNOWN"))
        self._windows.state(node, values)

    # For the handlers in pxe.calls.

    def steps(self, node: str) -> dict[str, Any]:
        """A node's present boot."""
        return self._windows.report(node, self._clock())

    def stats(self) -> dict[str, int]:
        """The counters."""
        return {"nodes": len(self._nodes), **dict(sorted(self._running().recorder.counters.items()))}

    def relays(self) -> dict[str, Heard]:
        """The relays that were heard last, by network."""
        return self._relays.view()

    def visit(self, seconds: float) -> Fetchable:
        """Lets the head itself fetch for so long; what there is to fetch for the nodes that it has."""
        state = self._running()
        conf, files, missing = state.settings, dict[str, str](), dict[str, tuple[str, str]]()
        of_set: dict[str, list[str]] = {}
        for node in self._nodes.all():
            of_set.setdefault(node.boot_set, []).append(node.name)
        for chosen, names in of_set.items():
            for name in (KERNEL, *initrds(conf.boot_dir / chosen)):
                path = conf.boot_dir / chosen / name
                if path.is_file():
                    files[f"{chosen}/{name}".lstrip("/")] = str(path)
                else:
                    missing |= dict.fromkeys(names, (f"{path} is not there", "layercake boot build; layercake boot default"))
        if not self._signed:
            missing |= {node.name: (NO_SHIM, INSTALL_SHIM) for node in self._nodes.all()
                        if node.secure_boot and not arm64.takes(node)}
        for node in filter(arm64.takes, self._nodes.all()):
            if not arm64.in_image(conf.boot_dir / node.boot_set):
                missing[node.name] = (f"boot set {node.boot_set or 'for it'} has no boot programs for arm64",
                                      "layercake profile build NAME --arch aarch64")
        state.visit.until = self._clock() + seconds
        programs = {name: str(path) for name, path in _programs(conf.ipxe_dir).items()}
        return Fetchable(address=conf.address, tftp_port=conf.tftp_port, base=conf.http_base, programs=programs, files=files,
                         missing=missing)

    def _running(self) -> BootState:
        if self._state is None:
            raise OperationFailed("cannot use the boot service: it was not started")
        return self._state

    # For the handlers in pxe.mutations.

    def arm(self, request: MutationRequest, *, confirmed: bool) -> Window:
        """Opens the window, after a look whether the boot can work at all: a bad record or a missing file fails here, not in
        the firmware of the node. Raises InputError or OperationFailed."""
        state = self._running()
        node = self._nodes.by_id(request.node)
        if node is None:
            raise OperationFailed(f"cannot boot node {request.node}: the boot service has no usable record of it",
                                  hint="its history says what is wrong with the record")
        if node.arch not in ARCHITECTURES:
            raise OperationFailed(f"cannot boot {node.name}: no boot path for {node.arch}",
                                  hint=f"there are some for {', '.join(ARCHITECTURES)}; correct its arch in the inventory")
        for name in (KERNEL, INITRD, *(arm64.FILES if arm64.takes(node) else ())):
            path = state.settings.boot_dir / node.boot_set / name
            if not path.is_file():
                raise OperationFailed(f"cannot boot {node.name}: {path} is not there", hint=(
                    "`layercake boot build` makes a boot set; `layercake boot default` chooses it" if node.boot_set else
                    "no boot set is for it, or its set is not what was signed: `layercake boot list` says what there is and "
                    "what is wrong with it; `layercake boot build` makes one, and `layercake profile build NAME` one for nodes of "
                    "that profile"))
        params = request.params
        window = self._windows.arm(node.id, params.get("token"), params.get("window_s"), self._clock(), confirmed=confirmed)
        try:
            order(node, node.macs[0], window.token, state.settings, 0.0)
        except InputError:
            self._windows.disarm(node.id)
            raise
        return window

    def disarm(self, request: MutationRequest) -> None:
        """Closes the window of this request's token; a later one stays open."""
        self._windows.disarm(request.node, str(request.params.get("token")))

    def now(self) -> float:
        """Seconds on the service's clock."""
        return self._clock()

    def patience(self, request: MutationRequest, started: float) -> float:
        """For how many seconds more to wait for the node. A little less than the engine does, so that people read why the boot
        stalled and not only that it took too long."""
        early = min(_EARLY_S, request.timeout / 10)
        step_s, most_s = (float(request.params.get(name) or 0.0) for name in ("step_s", "most_s"))
        return self._windows.deadline(request.node, started, request.timeout, step_s, most_s) - early - self._clock()

    def name(self, node: str) -> str:
        """A node's name."""
        known = self._nodes.by_id(node)
        return known.name if known is not None else node

    def came_to(self, request: MutationRequest) -> str:
        """The last that was seen of the boot."""
        return self._windows.came_to(request.node)

    def stalled(self, request: MutationRequest) -> str:
        """How far the boot came, in words; it is also written into the node's history."""
        why = self._windows.why_stalled(request.node, request.timeout, self._clock())
        self._running().recorder.note(Note(request.node, events.STALLED, why))
        return why


def _programs(ipxe_dir: Path) -> dict[str, Path]:
    """The boot programs by name. Raises OperationFailed if one is not installed."""
    programs = {name: ipxe_dir / name for name in (BIOS_PROGRAM, UEFI_PROGRAM)}
    for path in programs.values():
        if not path.is_file():
            raise OperationFailed(f"cannot serve boot programs: {path} is not there", hint="install the package ipxe")
    return programs
