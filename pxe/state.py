"""What the sockets of the boot service share: the node table, the windows, the recorder, and who
may fetch what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from layercake.base.secrets import mark_of
from layercake.base.text import show
from layercake.kraken.errors import Refused
from pxe import events
from pxe.nodes import Node, Nodes, mac_text
from pxe.notes import Note, Recorder
from pxe.settings import Settings
from pxe.windows import Step, Window, Windows

_REFUSED_EVERY_S = 10.0
_OTHER_EVERY_S = 30.0
_NAMES_KEPT = 8
_NAME_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetchable:
    """What there is to fetch: by TFTP at `address` and `tftp_port` the `programs`, by HTTP below
    `base` the `files`, {name: where it is on the head}. `missing`: {node: (why it could not boot,
    what to do)}."""

    address: str
    tftp_port: int
    base: str
    programs: dict[str, str]
    files: dict[str, str]
    missing: dict[str, tuple[str, str]]


@dataclass(slots=True)
class Visit:
    """A short time in which the head itself may fetch boot programs, kernels and minOS, to see that
    it can be done; never a boot script, which has a token. The kernel takes no packet from the wire
    that comes from an address of its own machine, so nobody else can use it. `until` is on the
    service's clock."""

    until: float = 0.0


@dataclass(frozen=True, slots=True)
class BootState:
    """One service instance's state. `clock` is monotonic, in seconds."""

    settings: Settings
    nodes: Nodes
    windows: Windows
    recorder: Recorder
    clock: Callable[[], float]
    visit: Visit = field(default_factory=Visit)
    went_on: list[Callable[[str], None]] = field(default_factory=list)
    """Who wants to know that a node has its boot programs, by its address: it asks for its
    script."""

    def visits(self, ip: str) -> bool:
        """Whether it is the head itself that asks, during a visit."""
        return (
            ip in {own.address for own in self.settings.heads} and self.clock() < self.visit.until
        )

    def may_come(self, ip: str) -> bool:
        """Whether who asks at this address may be a node that was not told yet."""
        return self.nodes.may_come(self.nodes.by_ip(ip)) and not self.visits(ip)

    def booting(self, ip: str) -> tuple[Node, Window]:
        """The node whose reserved address this is, and its open window. Raises Refused for everyone
        else.

        The address is trusted as far as the link is: what a thief of it gains is a one-use token,
        and two that use one are found out.
        """
        node = self.nodes.by_ip(ip)
        if node is None:
            self.recorder.counters["fetch.stranger"] += 1
            raise Refused("cannot serve this address: it is reserved for no node")
        window = self.windows.armed(node.id, self.clock())
        if window is None:
            self.recorder.counters["fetch.not-armed"] += 1
            text = "the node asks for boot files, but no boot is wanted now; refused"
            self.recorder.note(
                Note(node.id, events.IGNORED, text, None, {"ip": ip}, "fetch", _REFUSED_EVERY_S)
            )
            raise Refused("cannot serve this node: no boot of it is wanted now")
        return node, window

    def hand_out(self, node: Node, window: Window, mac: bytes, what: str) -> None:
        """What has the token of this boot goes out to a card, once (Windows.hand_out). Where the
        head has no part in DHCP, asking for it is all that is seen of a machine's beginning. Raises
        Refused."""
        if self.settings.dhcp == "off":
            self.recorder.asked(node.id, mac_text(mac))
        if why := self.windows.hand_out(window, mac_text(mac)):
            self.recorder.note(
                Note(node.id, events.SCRIPT_REFUSED, why, None, {"ip": node.ip}, every=1.0)
            )
            raise Refused(f"cannot serve this {what}: {why}")
        for callback in self.went_on:
            callback(node.ip)

    def look_for_two(self, ip: str, mac: bytes) -> None:
        """Tells the head when a machine asks for the script that another one has joined with."""
        node = self.nodes.by_ip(ip)
        if node is not None and self.windows.disputed(node.id, mac_text(mac), self.clock()):
            text = f"{mac_text(mac)} asks at {ip} for the boot script that a node has joined with"
            self.recorder.note(
                Note(node.id, events.SCRIPT_DISPUTED, text, None, {"ip": ip}, every=1.0)
            )

    def asks_other(self, ip: str, name: str, protocol: str) -> None:
        """Tells of firmware that asks for a file that is not there, once for all that it asks for
        in a while."""
        node = self.nodes.by_ip(ip)
        window = self.windows.armed(node.id, self.clock()) if node is not None else None
        if node is None or window is None:
            return
        self.recorder.counters["fetch.other-file"] += 1
        window.others = (*dict.fromkeys((*window.others, name[:_NAME_SHOWN])),)[:_NAMES_KEPT]
        text = (
            f"its firmware asks by {protocol} for {', '.join(map(show, window.others))}, which it "
            "was not offered (hint: "
            "another DHCP server, or a setting of the firmware, names the file)"
        )
        data = {"file": name[:_NAME_SHOWN], "files": list(window.others), "ip": ip}
        self.recorder.note(Note(node.id, events.OTHER_FILE, text, None, data, every=_OTHER_EVERY_S))

    def began(self, node: Node, step: Step, name: str) -> None:
        """A transfer to the node has begun."""
        self.recorder.began(node.id, step, {"file": name})

    def ended(self, node: Node, step: Step, name: str, size: int, seconds: float) -> None:
        """A transfer to the node has ended, all of it."""
        data = {"file": name, "bytes": size, "seconds": round(seconds, 3)}
        window = self.windows.by_node.get(node.id)
        if step is Step.SCRIPT and window is not None:
            # what a TPM says of the boot is held against it (layercake/features/tpm)
            data |= {
                "boot": node.boot_set,
                "configuration": window.configuration,
                "window": mark_of(window.token),
            }
        self.recorder.note(
            Note(
                node.id,
                step.kind,
                f"sent {name}, {size} bytes in {seconds:.2f} s",
                data=data,
                step=step,
            )
        )
