"""The boot service as the head sees it: opens the sockets, keeps the node table, arms and disarms
boots."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.tally import FIRST_S
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.moduleapi.module import Site
from layercake.moduleapi.service import Link, MutationRequest, Service
from pxe import events
from pxe.dhcp import proxydhcp
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import INSTALL_SHIM, NO_SHIM, Common, Decision, Outcome, decide
from pxe.dhcp.foreign_servers import ForeignServers
from pxe.dhcp.proxy_socket import ProxySocket
from pxe.dhcp.relay import Relays, RelaySighting
from pxe.dhcp.server import DhcpServer
from pxe.dhcp.sniffer import AnswerSniffer
from pxe.dns.forwarder import Forwarder
from pxe.dns.names import Names, NamesShown
from pxe.dns.server import DnsServer
from pxe.dynamic.addressing import DynamicAddressing
from pxe.dynamic.switch_ports import SwitchPorts
from pxe.http_server import HttpServer
from pxe.ipv6.ra import Advertiser, build_advertisement
from pxe.ipv6.server import Dhcp6Server
from pxe.machine import ARCHITECTURES, Client, client_of
from pxe.module import MODULE
from pxe.nodes import Nodes, from_record, mac_text
from pxe.notes import Note, Recorder
from pxe.ntp.server import NtpServer
from pxe.packets.dhcp import DhcpPacket
from pxe.paths import arm64, grub, image
from pxe.paths.boot_spec import INITRD, KERNEL, boot_files, spec_for
from pxe.paths.ipxe import BIOS_PROGRAM, UEFI_PROGRAM
from pxe.settings import BootSettings, Settings
from pxe.state import BootState, Fetchable
from pxe.tftp_files import TftpFiles
from pxe.tftp_server import TftpServer
from pxe.windows import Window, Windows

Server = (
    ProxySocket
    | DhcpServer
    | AnswerSniffer
    | DnsServer
    | NtpServer
    | TftpServer
    | Advertiser
    | Dhcp6Server
)

_EARLY_S = 3.0
_LIBRARY = Path("/usr/lib")
_DISK_EVERY_S = 600.0


class PxeService(Service):
    """DHCP, TFTP, HTTP and router advertisements on one interface."""

    module = MODULE

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes = Nodes(told=False)
        self.windows = Windows()
        self.relay_sightings = Relays(clock)
        self.switch_ports = SwitchPorts(self._nodes, clock)
        self._state: BootState | None = None
        self._link: Link | None = None
        self._http: HttpServer | None = None
        self._counting: asyncio.Task[None] | None = None
        self._signed = False
        self._names: Names | None = None
        self._forwarder: Forwarder | None = None
        self._dynamic: DynamicAddressing | None = None
        self.sockets: list[Server] = []

    async def start(self, link: Link, site: Site, settings: BootSettings) -> None:
        """Opens all sockets, or none: an error closes those that were open already."""
        conf = Settings.of(site, settings)
        recorder = Recorder(link, self.windows, self._clock)
        self._link = link
        self._state = state = BootState(conf, self._nodes, self.windows, recorder, self._clock)
        programs = _programs(conf.ipxe_dir)
        signed = grub.programs(_LIBRARY)
        in_image = image.programs(_LIBRARY)
        self._signed = bool(signed and in_image)
        files = {name: path.read_bytes() for name, path in programs.items()} | signed
        self._http = HttpServer(state, programs, in_image)
        self._dynamic = DynamicAddressing(
            conf, Path(site.data_dir), recorder, self._clock, self._nodes, self.windows
        )
        try:
            self._dynamic.start()
            await self._http.open()
            for own in conf.heads:
                if own.network.version == 4:
                    tftp = TftpServer(
                        (own.address, conf.tftp_port),
                        files,
                        TftpFiles(state),
                        recorder.counters,
                        self._clock,
                    )
                    state.went_on.append(tftp.goes_on)
                    self._open(tftp)
            for interface in conf.ipv6_interfaces:
                self._open_ipv6(interface, conf, files, recorder)
            self._open_clock(conf, recorder)
            if conf.names.serve:
                self._open_names(conf, recorder)
            # Last: who gets an offer finds the rest open.
            self._open_dhcp(conf, recorder)
        except LayercakeError:
            await self.stop()
            raise
        self._counting = asyncio.create_task(_count(recorder, self._dynamic))

    async def ready(self) -> None:
        """Who is not known is a stranger from now on."""
        self._nodes.told.set()

    def look_for_disk_boot(self, packet: DhcpPacket, recorder: Recorder) -> None:
        """Tells of a node that shall boot from the network while a running system asks for its
        address: that came from a disk."""
        node = self._nodes.by_mac(packet.mac)
        if (
            node is not None
            and self.windows.untouched(node.id, self._clock())
            and client_of(packet) is Client.SYSTEM
        ):
            text = (
                f"{mac_text(packet.mac)} asks for an address as a running system does: the machine "
                "has booted from its disk "
                "(hint: its BMC does not keep the boot device, or its firmware has another boot "
                "order)"
            )
            recorder.note(
                Note(
                    node.id,
                    events.FROM_DISK,
                    text,
                    None,
                    {"mac": mac_text(packet.mac)},
                    every=_DISK_EVERY_S,
                )
            )

    def _open_dhcp(self, conf: Settings, recorder: Recorder) -> None:
        """DHCP, as far as the head has a part in it, on each of its interfaces."""
        if conf.dhcp == "off":
            self.windows.first = "request for a file"
            return
        foreign_servers = ForeignServers(conf, self._nodes, recorder)
        for interface in dict.fromkeys(
            own.interface for own in conf.heads if own.network.version == 4
        ):
            self._open_dhcp_on(interface, conf, foreign_servers, recorder)

    def _open_dhcp_on(
        self, interface: str, conf: Settings, foreign_servers: ForeignServers, recorder: Recorder
    ) -> None:
        common = Common(conf, interface, signed=self._signed)
        proxy = conf.dhcp == "proxy"

        def watch(packet: DhcpPacket) -> tuple[Note, ...]:
            self.look_for_disk_boot(packet, recorder)
            return (
                foreign_servers.notes_of_request(packet)
                + self.switch_ports.watch(packet)
                + (proxydhcp.taken(packet, self._nodes) if proxy else ())
            )

        def decide_again(packet: DhcpPacket) -> Decision:
            if self._nodes.may_come(self._nodes.by_mac(packet.mac)):
                return Decision(Outcome.NOT_TOLD)
            return proxydhcp.answer_again(packet, self._nodes, self.windows, common, self._clock())

        def with_dynamic(
            packet: DhcpPacket, nodes: Nodes, windows: Windows, net: Common, now: float
        ) -> Decision:
            decision = decide(packet, nodes, windows, net, now)
            return (
                self.dynamic.answer(packet, decision, net)
                if decision.outcome is Outcome.UNKNOWN_MAC
                else decision
            )

        answers = Answers(
            self._nodes,
            self.windows,
            self.relay_sightings,
            common,
            self._clock,
            watch,
            proxydhcp.answer if proxy else with_dynamic,
            lambda mac: self.dynamic.admits(mac) or self.switch_ports.admits(),
        )
        for own in conf.heads if proxy else ():
            if own.interface == interface and own.network.version == 4:
                self._open(ProxySocket(conf.at(own), decide_again, recorder, answers.known))
        self._open(DhcpServer(conf, interface, answers, recorder, self._clock))
        self._open(AnswerSniffer(conf, interface, foreign_servers.notes_of_answer, recorder))

    def _open_ipv6(
        self, interface: str, conf: Settings, files: dict[str, bytes], recorder: Recorder
    ) -> None:
        """What boots by IPv6 on an interface. A site may have servers for that already: the rest
        goes on."""
        own = [
            head for head in conf.heads if head.interface == interface and head.network.version == 6
        ]
        servers = [head.address for head in own] if conf.names.serve else []
        prefix = conf.ra_prefix if interface == conf.interface else None
        self._open(
            Advertiser(
                interface,
                build_advertisement(prefix, [head.network for head in own], servers),
                recorder,
            )
        )
        try:
            tftp_files = TftpFiles(self.running())
            self._open(
                TftpServer(
                    ("::", conf.tftp_port),
                    files,
                    tftp_files,
                    recorder.counters,
                    self._clock,
                    interface,
                )
            )
            self._open(
                Dhcp6Server(conf, interface, self._nodes, self.windows, recorder, self._clock)
            )
        except OperationFailed as error:
            recorder.note(Note("", events.NO_IPV6, f"no machine can boot by IPv6: {error}"))

    def _open_names(self, conf: Settings, recorder: Recorder) -> None:
        """DNS. Something else may have its port: boots go on without."""
        wanted = conf.dns if conf.names.forward is None else conf.names.forward
        self._forwarder = Forwarder(wanted, conf.address, self._clock)
        self._names = Names(conf, int(time.time()), self.dynamic.near, self._nodes.told.is_set)
        try:
            for own in conf.listens:
                self._open(
                    DnsServer(conf.at(own), self._names, self._forwarder, recorder, self._clock)
                )
        except OperationFailed as error:
            recorder.note(Note("", events.NO_DNS, f"nodes can ask for no names: {error}"))

    def _open_clock(self, conf: Settings, recorder: Recorder) -> None:
        """What keeps the nodes' clocks. A head may have a time server already: the rest goes on."""
        if not conf.ntp_port:
            return
        try:
            nodes = self._nodes.near([own.network for own in conf.heads])

            def near(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
                return nodes(address) or self.dynamic.near(address)

            for own in conf.listens:
                self._open(NtpServer(conf.at(own), near, recorder))
        except OperationFailed as error:
            recorder.note(Note("", events.NO_TIME, f"{error} (hint: {error.hint})"))

    def _open(self, server: Server) -> None:
        server.open()
        self.sockets.append(server)

    async def stop(self) -> None:
        """Closes all sockets; running transfers end."""
        if self._counting is not None:
            self._counting.cancel()
        while self.sockets:
            self.sockets.pop().close()
        if self._dynamic is not None:
            await self._dynamic.stop()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Takes the record over. One that cannot be used takes the node out of the table, and its
        history says why."""
        try:
            node_read = from_record(node, record, self.running().settings)
            self._nodes.update(node_read)
            self.switch_ports.update_node(node_read, record.get("option82"))
            if self._names is not None:
                self._names.update_node(node_read)
        except InputError as error:
            self._forget(node)
            self.running().recorder.note(Note(node, events.BAD_RECORD, str(error)))

    async def node_removed(self, node: str) -> None:
        """Forgets the node and its window."""
        self._forget(node)
        self.windows.forget(node)

    def _forget(self, node: str) -> None:
        self._nodes.remove(node)
        self.switch_ports.remove_node(node)
        if self._names is not None:
            self._names.remove(node)

    async def network_changed(self, name: str, network: Mapping[str, Any]) -> None:
        """Takes over which addresses of the network are for guests."""
        self.dynamic.update_network(name, network)
        self._forget_askers()

    async def network_removed(self, name: str) -> None:
        """Forgets the network's guests."""
        self.dynamic.remove_network(name)
        self._forget_askers()

    def _forget_askers(self) -> None:
        """Who may ask for names is looked at anew."""
        if self._names is not None:
            self._names.asked.clear()

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """Closes the window of a node that is no longer waited for."""
        self._nodes.set_run(node, values.get("run", "UNKNOWN"))
        self.windows.state(node, values)

    # For the handlers in pxe.calls.

    def steps(self, node: str) -> dict[str, Any]:
        """A node's present boot."""
        return self.windows.report(node, self._clock())

    def stats(self) -> dict[str, int]:
        """The counters."""
        return {"nodes": len(self._nodes), **dict(sorted(self.running().recorder.counters.items()))}

    def relays(self) -> dict[str, RelaySighting]:
        """The relays that were heard last, by network."""
        return self.relay_sightings.view()

    @property
    def dynamic(self) -> DynamicAddressing:
        """The machines that are not in the inventory. Raises OperationFailed."""
        if self._dynamic is None:
            raise OperationFailed("cannot use the boot service: it was not started")
        return self._dynamic

    def names(self, name: str, records: bool, start: int) -> NamesShown:
        """How DNS is served; the zone, or what a name in it leads to, if `records` are wanted.
        Raises InputError."""
        if self._names is None or self._forwarder is None:
            return NamesShown()
        forward = self._forwarder.servers
        return self._names.view(name, forward, start) if records else self._names.frame(forward)

    def visit(self, seconds: float) -> Fetchable:
        """Lets the head itself fetch for so long; what there is to fetch for the nodes that it
        has."""
        state = self.running()
        conf = state.settings
        files, missing = boot_files(self._nodes.all(), conf.boot_dir)
        if not self._signed:
            missing |= {
                node.name: (NO_SHIM, INSTALL_SHIM)
                for node in self._nodes.all()
                if node.secure_boot and not arm64.takes(node)
            }
        missing |= arm64.without_programs(self._nodes.all(), conf.boot_dir)
        state.visit.until = self._clock() + seconds
        programs = {name: str(path) for name, path in _programs(conf.ipxe_dir).items()}
        return Fetchable(
            address=conf.address,
            tftp_port=conf.tftp_port,
            base=conf.http_base,
            programs=programs,
            files=files,
            missing=missing,
        )

    def running(self) -> BootState:
        """What all parts share. Raises OperationFailed before the service was started."""
        if self._state is None:
            raise OperationFailed("cannot use the boot service: it was not started")
        return self._state

    # For the handlers in pxe.mutations.

    def arm(self, request: MutationRequest, *, confirmed: bool) -> Window:
        """Opens the window, after a look whether the boot can work at all: a bad record or a
        missing file fails here, not in the firmware of the node. Raises InputError or
        OperationFailed."""
        state = self.running()
        node = self._nodes.by_id(request.node)
        if node is None:
            raise OperationFailed(
                f"cannot boot node {request.node}: the boot service has no usable record of it",
                hint="its history says what is wrong with the record",
            )
        if node.arch not in ARCHITECTURES:
            raise OperationFailed(
                f"cannot boot {node.name}: no boot path for {node.arch}",
                hint=f"there are some for {', '.join(ARCHITECTURES)}; correct its arch in the "
                "inventory",
            )
        for name in (KERNEL, INITRD, *(arm64.FILES if arm64.takes(node) else ())):
            path = state.settings.boot_dir / node.boot_set / name
            if not path.is_file():
                raise OperationFailed(
                    f"cannot boot {node.name}: {path} is not there",
                    hint=(
                        "`layercake boot build` makes a boot set; `layercake boot default SET` "
                        "chooses it"
                        if node.boot_set
                        else "no boot set is for it, or its set is not what was signed: `layercake "
                        "boot list` says what there is and "
                        "what is wrong with it; `layercake boot build` makes one, and `layercake "
                        "profile build NAME` one for nodes of "
                        "that profile"
                    ),
                )
        params = request.params
        window = self.windows.arm(
            node.id, params.get("token"), params.get("window_s"), self._clock(), confirmed=confirmed
        )
        try:
            spec_for(node, next(iter(node.macs), bytes(6)), window.token, state.settings, 0.0)
        except InputError:
            self.windows.disarm(node.id)
            raise
        return window

    def disarm(self, request: MutationRequest) -> None:
        """Closes the window of this request's token; a later one stays open."""
        self.windows.disarm(request.node, str(request.params.get("token")))

    def now(self) -> float:
        """Seconds on the service's clock."""
        return self._clock()

    def patience(self, request: MutationRequest, started: float) -> float:
        """For how many seconds more to wait for the node. A little less than the engine does, so
        that people read why the boot stalled and not only that it took too long."""
        early = min(_EARLY_S, request.timeout / 10)
        step_s, most_s = (float(request.params.get(name) or 0.0) for name in ("step_s", "most_s"))
        return (
            self.windows.deadline(request.node, started, request.timeout, step_s, most_s)
            - early
            - self._clock()
        )

    def name(self, node: str) -> str:
        """A node's name."""
        known = self._nodes.by_id(node)
        return known.name if known is not None else node

    def came_to(self, request: MutationRequest) -> str:
        """The last that was seen of the boot."""
        return self.windows.came_to(request.node)

    def stalled(self, request: MutationRequest) -> str:
        """How far the boot came, in words; it is also written into the node's history."""
        why = self.windows.why_stalled(request.node, request.timeout, self._clock())
        node = self._nodes.by_id(request.node)
        subnet = node.subnet if node is not None else None
        heads = self.running().settings.heads
        if (
            subnet is not None
            and self.windows.silent(request.node)
            and all(own.network != subnet.network for own in heads)
        ):
            why += f"; {self.relay_sightings.last_of(subnet.name)}"
        self.running().recorder.note(Note(request.node, events.STALLED, why))
        return why


def _programs(ipxe_dir: Path) -> dict[str, Path]:
    """The boot programs by name. Raises OperationFailed if one is not installed."""
    programs = {name: ipxe_dir / name for name in (BIOS_PROGRAM, UEFI_PROGRAM)}
    for path in programs.values():
        if not path.is_file():
            raise OperationFailed(
                f"cannot serve boot programs: {path} is not there", hint="install the package ipxe"
            )
    return programs


async def _count(recorder: Recorder, dynamic: DynamicAddressing) -> None:
    while True:
        await asyncio.sleep(FIRST_S)
        recorder.count()
        dynamic.discovery.lapse()
