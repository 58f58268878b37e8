"""The answer to a packet as bytes, ready to be sent. What a node that runs was answered once is
kept with the record of the node, so that its next packet that is alike but for its transaction (RFC
2131 section 2: `xid`, `secs`) costs a look into a table.

Kept is only what follows from packet and record alone: nothing of a boot, which has a window and is
noted, and nothing that was refused. A record that is replaced takes its answers with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pxe.dhcp.decision import Common, Decision, Outcome, Way, decide
from pxe.dhcp.outcome import mac_of, notes_on, notes_on_malformed
from pxe.dhcp.relay import Relay, Relays, relay_of
from pxe.machine import Client, client_of
from pxe.nodes import Nodes
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket
from pxe.windows import Windows

CHADDR = slice(28, 34)
"""Where a packet has the client's MAC address (RFC 2131 section 2)."""
Decide = Callable[[DhcpPacket, Nodes, Windows, Common, float], Decision]
_XID = slice(4, 8)
_AFTER_XID = 8
_AFTER_SECS = 10
_EACH = 4
_LONGEST = 1024
"""Answers that are kept of a node, and bytes of a packet whose answer is."""
HEARD = frozenset(
    {Outcome.OFFERED, Outcome.ACKED, Outcome.NAKED, Outcome.NOT_ARMED, Outcome.NO_PROGRAM}
)
"""What becomes of packets of nodes that are in their own network."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a packet, and how that is counted. With a reply: all of it but the
    transaction id, which stands between `before` and `after`, and the four bytes of the address
    that it goes to, and of the head's that it comes from."""

    outcome: Outcome
    counter: str
    notes: tuple[Note, ...] = ()
    way: Way | None = None
    address: bytes = b""
    source: bytes = b""
    before: bytes = b""
    after: bytes = b""

    def payload(self, packet: bytes) -> bytes:
        """The reply to this packet."""
        return self.before + packet[_XID] + self.after


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, on which interface it was made, the networks of all nodes then (Nodes.networks),
    and by which relay it was asked for."""

    answer: Answer
    common: Common
    networks: int
    network: str
    relay: Relay | None


class Answers:
    """Answers packets by `decide`. `watch` is shown each that is read, and says what is to be noted
    of it; `clock` is in seconds. `admits`: whose packets are read, by the MAC address, though no
    node has it."""

    def __init__(
        self,
        nodes: Nodes,
        windows: Windows,
        relays: Relays,
        common: Common,
        clock: Callable[[], float],
        watch: Callable[[DhcpPacket], tuple[Note, ...]] = lambda packet: (),
        decide: Decide = decide,
        admits: Callable[[bytes], bool] = lambda mac: False,
    ) -> None:
        self._nodes = nodes
        self._windows = windows
        self._relays = relays
        self._common = common
        self._clock = clock
        self._watch = watch
        self._decide = decide
        self._admits = admits

    def known(self, mac: bytes) -> bool:
        """Whether a node has this MAC address, or somebody else who is not to be passed over."""
        return self._nodes.by_mac(mac) is not None or self._admits(mac)

    @property
    def knows_all(self) -> bool:
        """Whether who is not known is a stranger, and no node that was not told yet."""
        return self._nodes.told.is_set()

    def malformed(self, data: bytes, why: str) -> tuple[Note, ...]:
        """What is to be told of bytes that are no packet."""
        return notes_on_malformed(data, why, self._nodes)

    def to(self, data: bytes) -> Answer:
        """What becomes of this packet. Raises DhcpError for bytes that are none."""
        node = self._nodes.by_mac(data[CHADDR])
        if node is None or not node.answers:
            return self._anew(data)
        cached = node.answers.get(_alike(data))
        if (
            cached is None
            or cached.common is not self._common
            or cached.networks != self._nodes.networks
        ):
            return self._anew(data)
        if self._windows.untouched(node.id, self._clock()):
            return self._anew(data)
        if cached.relay is not None:
            self._relays.record(cached.network, cached.relay)
        return cached.answer

    def _silence(self, packet: DhcpPacket, decision: Decision) -> tuple[Note, ...]:
        """Why a packet of which nothing else is told gets no answer."""
        return () if decision.reply else notes_on(packet, decision.outcome, self._nodes)

    def _anew(self, data: bytes) -> Answer:
        packet = dhcp.parse(data)
        if self._nodes.may_come(self._nodes.by_mac(mac_of(packet))):
            return Answer(Outcome.NOT_TOLD, f"dhcp.{Outcome.NOT_TOLD.value}")
        return self._decided(packet, data)

    def _decided(self, packet: DhcpPacket, data: bytes) -> Answer:
        seen = self._watch(packet)
        decision = self._decide(packet, self._nodes, self._windows, self._common, self._clock())
        notes = decision.notes + seen or self._silence(packet, decision)
        counter = f"dhcp.{decision.outcome.value}"
        answer = Answer(decision.outcome, counter, notes)
        if decision.reply is not None:
            reply = dhcp.build(decision.reply)
            answer = Answer(
                decision.outcome,
                counter,
                notes,
                decision.way,
                decision.address,
                decision.source,
                reply[: _XID.start],
                reply[_AFTER_XID:],
            )
        node = self._nodes.by_mac(packet.mac)
        if node is None or decision.outcome not in HEARD:
            return answer
        network = node.subnet.name if node.subnet is not None else ""
        relay = relay_of(packet)
        if relay is not None:
            self._relays.record(network, relay)
        if (
            decision.outcome in (Outcome.OFFERED, Outcome.ACKED)
            and not notes
            and len(data) <= _LONGEST
            and client_of(packet) is Client.SYSTEM
        ):
            if len(node.answers) >= _EACH:
                del node.answers[next(iter(node.answers))]
            node.answers[_alike(data)] = Kept(
                answer, self._common, self._nodes.networks, network, relay
            )
        return answer


def _alike(data: bytes) -> bytes:
    """A packet but for what differs from one transaction of a client to its next."""
    return data[: _XID.start] + data[_AFTER_SECS:]
