"""What a relay says: for which link it asks, and how its clients shall reach the server. RFC 3046,
3527 and 5107. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from layercake.base.text import clean
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket

CIRCUIT = 1
REMOTE = 2
LINK = 5
SERVER = 11
"""Sub-options of option 82: the port and the relay itself (RFC 3046), the link's address if giaddr
is of another (RFC 3527), and the relay's address in the place of the server's (RFC 5107)."""
MOST = 255
"""Bytes that one option has at most. What is longer came in pieces, and no relay needs that."""
MULTICAST = 224
"""From this first byte on, an address is no host's: an answer to it would reach many."""
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay's words. `giaddr` is where answers go, `link` the address of the link that the client
    is on, `server` what clients shall take for the server's address, or None; `parts` are all
    sub-options."""

    giaddr: bytes
    link: bytes
    server: bytes | None
    parts: Mapping[int, bytes]

    @property
    def circuit(self) -> str:
        """The port that the client is on, for people; "" if it does not say."""
        return _shown(self.parts.get(CIRCUIT, b""))

    @property
    def remote(self) -> str:
        """The relay's name for itself, for people; "" if it does not say."""
        return _shown(self.parts.get(REMOTE, b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySighting:
    """A relay that was heard: its address, the port that the client was on and the relay's name for
    itself, as far as it says so, and how long ago that was."""

    relay: str
    circuit: str
    remote: str
    seconds_ago: float


def relay_of(packet: DhcpPacket) -> Relay | None:
    """The relay that a packet came by, None for one that came by none."""
    if packet.giaddr == dhcp.NO_ADDRESS:
        return None
    parts = parts_of(packet.options.get(dhcp.RELAY_AGENT, b""))
    return Relay(
        packet.giaddr, _address(parts, LINK) or packet.giaddr, _address(parts, SERVER), parts
    )


def parts_of(value: bytes) -> dict[int, bytes]:
    """The sub-options of option 82, the first of each; none of one that is cut off: nothing in it
    is to be trusted."""
    suboptions: dict[int, bytes] = {}
    at = 0
    while at < len(value):
        end = at + 2 + (value[at + 1] if at + 1 < len(value) else len(value))
        if end > len(value):
            return {}
        suboptions.setdefault(value[at], value[at + 2 : end])
        at = end
    return suboptions


class Relays:
    """Which relays were heard last: of each network that nodes are in, one. `clock` is in
    seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[Relay, float]] = {}

    def record(self, network: str, relay: Relay) -> None:
        """A packet of a node in this network came by this relay."""
        self._last[network] = (relay, self._clock())

    def last_of(self, network: str) -> str:
        """When a relay of a network was heard last, for people."""
        relay = self.view().get(network)
        if relay is None:
            return f"no relay of its network {network} was heard since the boot service began"
        return (
            f"the relay of its network {network}, {relay.relay}, was heard "
            f"{relay.seconds_ago:.0f} s ago"
        )

    def view(self) -> dict[str, RelaySighting]:
        """By network."""
        now = self._clock()
        return {
            name: RelaySighting(
                relay=dotted(relay.giaddr),
                circuit=relay.circuit,
                remote=relay.remote,
                seconds_ago=round(now - at, 1),
            )
            for name, (relay, at) in self._last.items()
        }


def dotted(address: bytes) -> str:
    """Four bytes as people write them."""
    return ".".join(map(str, address))


def _address(parts: dict[int, bytes], code: int) -> bytes | None:
    value = parts.get(code, b"")
    return value if len(value) == 4 and value != dhcp.NO_ADDRESS else None


def _shown(value: bytes) -> str:
    """Text as it is, all else in hex."""
    shortened = value[:_SHOWN]
    return (
        clean(shortened.decode())
        if shortened.isascii() and shortened.decode().isprintable()
        else shortened.hex(":")
    )
