"""What becomes of a DHCP packet, and which packets clients send."""

from __future__ import annotations

import enum

from pxe.packets.dhcp import MessageType


class Outcome(enum.Enum):
    """What became of a packet; the value is the name of its counter."""

    OFFERED = "offered"
    ACKED = "acked"
    NAKED = "naked"
    RELEASED = "released"
    DECLINED = "declined"
    UNKNOWN_MAC = "unknown-mac"
    NOT_ARMED = "not-armed"
    NO_PROGRAM = "no-program"
    WRONG_ARCHITECTURE = "wrong-architecture"
    NO_IPV4 = "no-ipv4"
    OTHER_SERVER = "other-server"
    NOT_FOR_US = "not-for-us"
    OTHER_NETWORK = "other-network"
    POOL_FULL = "pool-full"


CLIENTS_SEND = frozenset(
    {
        MessageType.DISCOVER,
        MessageType.REQUEST,
        MessageType.DECLINE,
        MessageType.RELEASE,
        MessageType.INFORM,
    }
)
"""The kinds of messages that clients send."""
