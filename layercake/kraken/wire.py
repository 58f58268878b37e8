"""The datagrams between head and node, and the node's HTTP credential. Codec only; sockets are
elsewhere.

A datagram is 112 bytes whatever the node holds, all integers big endian:

    magic "LC" | version 1 | kind 1 | node 16 | session 8 | epoch 8 | sequence 8 | cfg 8 | dsc 8
    | layout 4 | mask 16 | state 16 | tag 16

`epoch` is the life of the head, a random number below 2**63. Where a site has several heads, its
highest bit is set, and the 31 bits below that are the epoch of the heads: it grows by one with each
that acts (`datagram_epoch`). Who knows nothing of that takes it for any other number.

The tag is blake2b-128, keyed with the session key, over all before it (RFC 7693 section 2.9). It
proves who sent the datagram, not that it is fresh: see ReplayGuard. `peek` tells which key to try,
and nothing that it says is to be trusted before `decode`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from dataclasses import dataclass
from enum import IntEnum

from layercake.kraken.errors import WireError

MAGIC = b"LC"
VERSION = 1
TAG_SIZE = 16

_HEAD = struct.Struct(">2sBB16sQ")
_BODY = struct.Struct(">2sBB16sQQQQQ4s16s16s")
SIZE = _BODY.size + TAG_SIZE
_TOKEN = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,20})\.([0-9a-f]{32})", re.ASCII
)


_SEVERAL = 1 << 63
_LIFE_BITS = 32
MOST_EPOCHS = (1 << 31) - 1
"""The highest epoch that fits."""
EPOCH_HEADER = "Layercake-Epoch"
"""The field of HTTP by which head and node say the highest epoch that they know, if there is one.
It is believed for who sends it: by TLS, with the session's credential."""


def datagram_epoch(epoch: int, life: int) -> int:
    """What datagrams of a head have as their epoch that acts in this epoch of the heads, 0 for a
    head that is alone; `life` is random. Raises WireError for one that does not fit."""
    if not 0 <= epoch <= MOST_EPOCHS:
        raise WireError(f"cannot put epoch {epoch} into a datagram: it ends at {MOST_EPOCHS}")
    if epoch == 0:
        return life & (_SEVERAL - 1)
    return _SEVERAL | epoch << _LIFE_BITS | life & ((1 << _LIFE_BITS) - 1)


def heads_epoch(number: int) -> int:
    """The epoch of the heads that the epoch of a datagram tells, 0 from a head that is alone."""
    return number >> _LIFE_BITS & MOST_EPOCHS if number & _SEVERAL else 0


_REVISION_BITS = 20


def first_revision(number: int) -> int:
    """The lowest desired revision that a head gives, by the epoch of its datagrams. Heads of a
    site have ranges of their own, the later the higher: what one has told a node, and has not
    written before it ended, is never taken for what the next one tells. A head that is alone goes
    on from what it has written."""
    return heads_epoch(number) << _REVISION_BITS


class Kind(IntEnum):
    """What a datagram is for."""

    HELLO = 1
    DESIRED = 2
    CHALLENGE = 3


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram. `mask` says which bits of the packed `state` the sender vouches for; `layout`
    is Layout.digest.

    HELLO (node to head): what the node has discovered, and the desired revision that it acts on.
    DESIRED (head to node): the goal's mask and value, and the newest desired revision. CHALLENGE
    (head to node): the head's epoch has changed, say HELLO under this one.
    """

    kind: Kind
    node: bytes
    session: int
    epoch: int
    sequence: int
    cfg_revision: int
    dsc_revision: int
    layout: bytes
    mask: int
    state: int


def _tag(data: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=TAG_SIZE).digest()


def _check_key(key: bytes) -> None:
    # blake2b takes an empty key without a murmur, and the tag would then prove nothing.
    if len(key) < TAG_SIZE:
        raise WireError(
            f"cannot authenticate a datagram: the key has {len(key)} bytes, at least {TAG_SIZE} "
            "are needed"
        )


def encode(datagram: Datagram, key: bytes) -> bytes:
    """The datagram's bytes with its tag. Raises WireError when a field does not fit."""
    d = datagram
    _check_key(key)
    if len(d.node) != 16 or len(d.layout) != 4:
        raise WireError(
            "cannot encode datagram: node has 16 bytes and layout 4",
            hint="pass uuid.bytes and Layout.digest",
        )
    try:
        data = _BODY.pack(
            MAGIC,
            VERSION,
            d.kind,
            d.node,
            d.session,
            d.epoch,
            d.sequence,
            d.cfg_revision,
            d.dsc_revision,
            d.layout,
            d.mask.to_bytes(16, "big"),
            d.state.to_bytes(16, "big"),
        )
    except (struct.error, OverflowError) as error:
        raise WireError(f"cannot encode datagram: {error}") from error
    return data + _tag(data, key)


def peek(data: bytes) -> tuple[bytes, int]:
    """The node and session that a datagram claims to be of, to look its key up. Raises WireError if
    it is malformed."""
    if len(data) != SIZE:
        raise WireError(f"cannot read datagram: {len(data)} bytes, expected {SIZE}")
    magic, version, kind, node, session = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise WireError("cannot read datagram: it is not one of Layercake's")
    if version != VERSION:
        raise WireError(f"cannot read datagram: version {version}, expected {VERSION}")
    if kind not in _KINDS:
        raise WireError(f"cannot read datagram: kind {kind} is not known")
    return node, session


_KINDS = frozenset(int(k) for k in Kind)


def decode(data: bytes, key: bytes) -> Datagram:
    """The datagram, once its tag has been checked in constant time. Raises WireError if it is
    malformed or forged."""
    peek(data)
    _check_key(key)
    body = bytes(data[: _BODY.size])
    if not hmac.compare_digest(_tag(body, key), bytes(data[_BODY.size :])):
        raise WireError("cannot accept datagram: its tag is wrong")
    _, _, kind, node, session, epoch, sequence, cfg, dsc, layout, mask, state = _BODY.unpack(body)
    numbers = int.from_bytes(mask, "big"), int.from_bytes(state, "big")
    return Datagram(Kind(kind), node, session, epoch, sequence, cfg, dsc, layout, *numbers)


# A datagram's parts, for who takes it without reading it: what it starts with, what makes it fresh,
# what it tells.
NODE = slice(4, 20)
STARTS = slice(0, 36)
FRESH = slice(36, 44)
TELLS = slice(44, 96)
_TELLS = struct.Struct(">QQ4s16s16s")
_ANSWERS = MAGIC + bytes((VERSION, Kind.DESIRED))


def genuine(data: bytes, key: bytes) -> bool:
    """Whether the tag of a datagram of SIZE bytes is right, compared in constant time. The key is
    one that `encode` takes."""
    return hmac.compare_digest(
        hashlib.blake2b(data[:-TAG_SIZE], key=key, digest_size=TAG_SIZE).digest(), data[-TAG_SIZE:]
    )


def tells(cfg_revision: int, dsc_revision: int, layout: bytes, mask: int, state: int) -> bytes:
    """The bytes TELLS of a datagram with these fields."""
    return _TELLS.pack(
        cfg_revision, dsc_revision, layout, mask.to_bytes(16, "big"), state.to_bytes(16, "big")
    )


def answer(hello: bytes, sequence: int, says: bytes, key: bytes) -> bytes:
    """The DESIRED of this number that answers a genuine HELLO, and has these bytes TELLS. The same
    as by `encode`."""
    data = _ANSWERS + hello[4:36] + sequence.to_bytes(8, "big") + says
    return data + hashlib.blake2b(data, key=key, digest_size=TAG_SIZE).digest()


class ReplayGuard:
    """Takes each sequence number of one session and direction at most once, in rising order.

    Datagrams that overtake each other on the way are refused with the replays: each one carries the
    whole state, so an older one has nothing to add.
    """

    __slots__ = ("last",)

    def __init__(self, last: int = -1) -> None:
        self.last = last

    def accept(self, sequence: int) -> bool:
        """Whether the number is above all that were accepted; it counts from then on. Call it after
        `decode`, never before."""
        if sequence <= self.last:
            return False
        self.last = sequence
        return True


def node_text(node: bytes) -> str:
    """A node's 16 bytes as a UUID in its usual form. (The module uuid stays out of what ships to
    nodes.)"""
    if len(node) != 16:
        raise WireError("cannot name node: its id has 16 bytes")
    h = node.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


TO_HEAD = b"http"
TO_NODE = b"node"
"""Who presents a credential to whom: one that a node has sent to the head is worth nothing at the
node's own API."""


def bearer(key: bytes, node: bytes, session: int, purpose: bytes = TO_HEAD) -> str:
    """The value of a node's Authorization header, or with TO_NODE of the head's at the node:
    "Bearer NODE.SESSION.TAG"."""
    _check_key(key)
    try:
        tag = _tag(purpose + session.to_bytes(8, "big"), key)
    except OverflowError as error:
        raise WireError("cannot make credential: the session does not fit 64 bits") from error
    return f"Bearer {node_text(node)}.{session}.{tag.hex()}"


def peek_bearer(header: str) -> tuple[bytes, int]:
    """The node and session that a credential claims, to look its key up. Raises WireError if it is
    malformed."""
    match = _TOKEN.fullmatch(header.removeprefix("Bearer "))
    if match is None or int(match[2]) >= 1 << 64:
        raise WireError("cannot read credential: it is not of the form NODE.SESSION.TAG")
    return bytes.fromhex(match[1].replace("-", "")), int(match[2])


def check_bearer(header: str, key: bytes, purpose: bytes = TO_HEAD) -> tuple[bytes, int]:
    """The node and session of a genuine credential, compared in constant time. Raises WireError if
    malformed or forged."""
    node, session = peek_bearer(header)
    if not hmac.compare_digest(
        bearer(key, node, session, purpose).removeprefix("Bearer "), header.removeprefix("Bearer ")
    ):
        raise WireError("cannot accept credential: its tag is wrong")
    return node, session
