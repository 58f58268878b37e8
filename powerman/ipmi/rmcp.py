"""IPMI over LAN as bytes: RMCP, the session-less probe, and RMCP+ sessions. Pure.

Sources: IPMI 2.0 rev 1.1, sections 13 (session formats, RAKP), 22 (session commands) and 28
(chassis commands). pyghmi does all of this too, but it is not asyncio and a dead BMC holds one of
its threads for seconds; power control of many nodes cannot wait.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_RMCP = b"\x06\x00\xff\x07"  # version 1.0, no acknowledge, class IPMI
_BY_NAME = 0x10  # beside a role: the user is looked up by name only
ROLES = (4, 3, 2)
"""Administrator, operator, user (table 13-11): what a login asks for, best first."""
_CONSOLE = 0x81
_BMC = 0x20

IPMI_MESSAGE = 0x00
SOL = 0x01
OPEN_REQUEST = 0x10
OPEN_RESPONSE = 0x11
RAKP1 = 0x12
RAKP2 = 0x13
RAKP3 = 0x14
RAKP4 = 0x15
_SEALED = 0xC0  # of a payload's kind: it is encrypted and authenticated

# RAKP status codes (table 13-15) that mean that the BMC does not know the user or his rights.
LOGIN_STATUS = frozenset({0x0C, 0x0D, 0x0F})
# ... those that mean that the user may not have the role: one with less may do.
ROLE_STATUS = frozenset({0x09, 0x0A})
# ... and those that mean that it does not do this cipher suite.
SUITE_STATUS = frozenset({0x04, 0x05, 0x06, 0x07, 0x10, 0x11})
# ... and those that mean that others have all its sessions.
FULL_STATUS = frozenset({0x01, 0x0B})

STATUS_TEXT = {
    0x01: "no session is free",
    0x02: "invalid session",
    0x04: "unknown authentication",
    0x05: "unknown integrity algorithm",
    0x08: "inactive session",
    0x09: "invalid role",
    0x0A: "role not allowed for the user",
    0x0B: "no session is free for the role",
    0x0C: "invalid name length",
    0x0D: "unknown user",
    0x0F: "wrong check value",
    0x10: "unknown encryption",
    0x11: "unknown suite",
}
COMPLETION_TEXT = {
    0x80: "the user may not have this privilege level",
    0x81: "the privilege level is above what the user or the channel may have",
    0x82: "authentication cannot be switched off",
    0xC0: "busy",
    0xC1: "unknown command",
    0xC3: "timeout inside the BMC",
    0xC4: "out of space",
    0xC7: "wrong request length",
    0xC9: "parameter out of range",
    0xCB: "no such sensor or record",
    0xCC: "invalid data field",
    0xD0: "its sensor repository is being updated",
    0xD1: "its firmware is being updated",
    0xD2: "it is starting",
    0xD4: "insufficient privilege",
    0xD5: "not possible in the present state",
    0xD6: "disabled",
}


class Malformed(ValueError):
    """Bytes that are not what they should be, or not for us. The receiver goes on waiting."""


# ... that mean that the BMC cannot do it at present, and can later.
BUSY_CODES = frozenset({0xC0, 0xC3, 0xD0, 0xD1, 0xD2})


class Corrupt(Malformed):
    """Bytes that are for us, and were altered, or computed wrongly."""


class Doubtful(Exception):
    """A refusal in a login that does not name our session: some BMCs leave it out, and anybody can
    send one. It counts when nothing better comes in time; `other` says that there is something else
    to ask for at once, and then it is forgotten."""

    def __init__(self, status: int, *, other: bool = False) -> None:
        super().__init__(f"status 0x{status:02x}")
        self.status = status
        self.other = other


class WrongPassword(Malformed):
    """The BMC's proof does not fit our password: one of us has another one."""


class WrongKey(WrongPassword):
    """The BMC has taken our password, and its last proof is by another key: it has a BMC key (K_g,
    section 13.33) that we do not have."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A cipher suite (table 22-20); all of ours encrypt by AES-CBC-128."""

    number: int
    auth: int
    integrity: int
    digest: str
    code_len: int


SUITES = {17: Suite(17, 3, 4, "sha256", 16), 3: Suite(3, 1, 1, "sha1", 12)}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a BMC says of itself before any login (section 22.13). `vendor` is its maker's IANA
    enterprise number, 0 for none."""

    ipmi_2_0: bool
    vendor: int = 0


@dataclass(slots=True)
class Handshake:
    """The facts of a session being opened; secrets are not printed. `bmc_key` is the BMC's own key
    (K_g), b"" for one that has none set: then the user's password stands for it."""

    suite: Suite
    username: bytes
    password: bytes = field(repr=False)
    console_id: bytes
    console_random: bytes = field(repr=False)
    bmc_id: bytes = b""
    bmc_random: bytes = field(default=b"", repr=False)
    guid: bytes = b""
    role: int = ROLES[0]
    bmc_key: bytes = field(default=b"", repr=False)

    @property
    def _key(self) -> bytes:
        return self.password.ljust(20, b"\0")

    @property
    def _role(self) -> bytes:
        return bytes((_BY_NAME | self.role, len(self.username))) + self.username

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.suite.digest)

    def is_named(self, body: bytes) -> bool:
        """Whether an answer names our session."""
        return body[4:8] == self.console_id

    def open_request(self, tag: int) -> bytes:
        """RMCP+ Open Session Request, for the highest privilege that the user has."""
        proposal = b"".join(
            bytes((kind, 0, 0, 8, algorithm, 0, 0, 0))
            for kind, algorithm in ((0, self.suite.auth), (1, self.suite.integrity), (2, 1))
        )
        return plain(OPEN_REQUEST, bytes((tag, 0, 0, 0)) + self.console_id + proposal)

    def take_open_response(self, body: bytes) -> None:
        """Keeps the BMC's session id. Raises Malformed if it is not the session or suite that we
        asked for."""
        if len(body) < 36 or not self.is_named(body):
            raise Malformed("open session response")
        if body[16] & 0x3F != self.suite.auth or body[24] & 0x3F != self.suite.integrity:
            raise Malformed("open session response with other algorithms than proposed")
        self.bmc_id = body[8:12]

    def rakp1(self, tag: int) -> bytes:
        """RAKP message 1: who we are, and our random number."""
        head = bytes((tag, 0, 0, 0)) + self.bmc_id + self.console_random
        return plain(
            RAKP1, head + bytes((_BY_NAME | self.role, 0, 0, len(self.username))) + self.username
        )

    def take_rakp2(self, body: bytes) -> None:
        """Checks that the BMC knows the password too. Raises WrongPassword, Malformed."""
        if len(body) < 40 or not self.is_named(body):
            raise Malformed("RAKP message 2")
        self.bmc_random = body[8:24]
        self.guid = body[24:40]
        proof = self._mac(
            self._key,
            self.console_id
            + self.bmc_id
            + self.console_random
            + self.bmc_random
            + self.guid
            + self._role,
        )
        if not hmac.compare_digest(proof, body[40 : 40 + len(proof)]):
            raise WrongPassword("RAKP message 2")

    def rakp3(self, tag: int) -> bytes:
        """RAKP message 3: proof that we know the password."""
        proof = self._mac(self._key, self.bmc_random + self.console_id + self._role)
        return plain(RAKP3, bytes((tag, 0, 0, 0)) + self.bmc_id + proof)

    def keys(self) -> SessionKeys:
        """The session's keys (section 13.31, 13.32), once RAKP message 2 was taken."""
        session_key = self._session_key
        return SessionKeys(
            self.suite,
            self.console_id,
            self.bmc_id,
            self._mac(session_key, b"\x01" * 20),
            self._mac(session_key, b"\x02" * 20)[:16],
        )

    @property
    def _session_key(self) -> bytes:
        key = self.bmc_key.ljust(20, b"\0") if self.bmc_key else self._key
        return self._mac(key, self.console_random + self.bmc_random + self._role)

    def take_rakp4(self, body: bytes) -> SessionKeys:
        """Checks the BMC's last word. Raises WrongKey, Malformed."""
        session_key = self._session_key
        check = self._mac(session_key, self.console_random + self.bmc_id + self.guid)[
            : self.suite.code_len
        ]
        if len(body) < 8 + self.suite.code_len or not self.is_named(body):
            raise Malformed("RAKP message 4")
        if not hmac.compare_digest(check, body[8 : 8 + self.suite.code_len]):
            raise WrongKey("RAKP message 4")
        return self.keys()


class _Engine:
    """AES-CBC-128 and HMAC by the keys of one session. To make them anew for each packet takes
    three times as long as all the rest, and consoles have thousands. So both are made once, and CBC
    (NIST SP 800-38A, section 6.2) stands here, over single blocks."""

    def __init__(self, encryption: bytes, integrity: bytes, digest: str) -> None:
        # Each block is chained to the one before it, below.
        blocks = Cipher(algorithms.AES(encryption), modes.ECB())  # noqa: S305
        self._encrypt = blocks.encryptor()
        self._decrypt = blocks.decryptor()
        self._mac = hmac.new(integrity, digestmod=digest)
        self._newest: dict[int, int] = {}

    def encrypt(self, iv: bytes, clear: bytes) -> bytes:
        """Encrypts whole blocks."""
        blocks = [iv]
        for at in range(0, len(clear), 16):
            blocks.append(self._encrypt.update(_xor(clear[at : at + 16], blocks[-1])))
        return b"".join(blocks[1:])

    def decrypt(self, iv: bytes, data: bytes) -> bytes:
        """Decrypts whole blocks."""
        return _xor(self._decrypt.update(data), iv + data[:-16])

    def mac(self, data: bytes) -> bytes:
        """The authentication code of a packet."""
        hmac_copy = self._mac.copy()
        hmac_copy.update(data)
        return hmac_copy.digest()

    def is_new(self, kind: int, number: int) -> bool:
        """Whether a packet of this number is no older than those of its kind before: a copy of one
        that was sent earlier is nobody's answer now. Some BMCs count each kind by itself."""
        if number < self._newest.get(kind, 0):
            return False
        self._newest[kind] = number
        return True


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """What an open session seals its packets with."""

    suite: Suite
    console_id: bytes
    bmc_id: bytes
    integrity: bytes = field(repr=False)
    encryption: bytes = field(repr=False)
    _engine: _Engine = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_engine", _Engine(self.encryption, self.integrity, self.suite.digest)
        )

    def seal(self, sequence: int, iv: bytes, message: bytes, kind: int = IPMI_MESSAGE) -> bytes:
        """An encrypted, authenticated packet that carries an IPMI message, or a payload of another
        kind."""
        padding = -(len(message) + 1) % 16
        clear = message + bytes(range(1, padding + 1)) + bytes((padding,))
        payload = iv + self._engine.encrypt(iv, clear)
        packet = (
            bytes((6, _SEALED | kind))
            + self.bmc_id
            + struct.pack("<IH", sequence, len(payload))
            + payload
        )
        fill = -(len(packet) + 2) % 4
        packet += b"\xff" * fill + bytes((fill, 7))
        return _RMCP + packet + self._engine.mac(packet)[: self.suite.code_len]

    def unseal(self, data: bytes, kind: int = IPMI_MESSAGE) -> bytes:
        """The IPMI message, or payload of another kind, of a packet of this session. Raises
        Malformed for anything else."""
        length = self.suite.code_len
        if (
            len(data) < 16 + 32 + length
            or data[:6] != _RMCP + bytes((6, _SEALED | kind))
            or data[6:10] != self.console_id
        ):
            raise Malformed("not a packet of this session")
        if not hmac.compare_digest(self._engine.mac(data[4:-length])[:length], data[-length:]):
            raise Corrupt("wrong authentication code")
        number, size = struct.unpack_from("<IH", data, 10)
        if not self._engine.is_new(kind, number):
            raise Malformed("an older packet of this session")
        payload = data[16 : 16 + size]
        if len(payload) != size or size < 32 or size % 16:
            raise Malformed("wrong payload length")
        clear = self._engine.decrypt(payload[:16], payload[16:])
        if clear[-1] > 15:
            raise Malformed("wrong padding")
        return clear[: -1 - clear[-1]]


def plain(kind: int, body: bytes) -> bytes:
    """A packet outside any session."""
    return _RMCP + bytes((6, kind)) + bytes(8) + struct.pack("<H", len(body)) + body


def tag_of(data: bytes) -> int:
    """The tag of a session-less RMCP+ answer, -1 if it is too short for one."""
    return data[16] if len(data) > 16 else -1


def parse_plain(data: bytes, kind: int, tag: int) -> tuple[int, bytes]:
    """(status, body) of a session-less RMCP+ answer of this kind and tag. Raises Malformed for
    anything else.

    A refusal may be two bytes long (ipmi_sim) or carry all fields, so only the tag and the status
    are looked at here.
    """
    if len(data) < 18 or data[:6] != _RMCP + bytes((6, kind)):
        raise Malformed("not the expected kind of answer")
    body = data[16 : 16 + struct.unpack_from("<H", data, 14)[0]]
    if len(body) < 2 or body[0] != tag:
        raise Malformed("not the answer to this request")
    return body[1], body


def checksum(data: bytes) -> int:
    """IPMI's two's complement checksum."""
    return -sum(data) & 0xFF


def message(function: int, sequence: int, command: int, data: bytes = b"") -> bytes:
    """An IPMI request to the BMC (section 13.8). `sequence` is 0..63."""
    first = bytes((_BMC, function << 2))
    second = bytes((_CONSOLE, sequence << 2, command)) + data
    return first + bytes((checksum(first),)) + second + bytes((checksum(second),))


def parse_message(data: bytes, function: int, sequence: int, command: int) -> tuple[int, bytes]:
    """(completion code, data) of the answer to that request. Raises Malformed for anything else."""
    if len(data) < 8 or checksum(data[:3]) or checksum(data[3:]):
        raise Corrupt("wrong checksum")
    if data[1] >> 2 != function + 1 or data[4] >> 2 != sequence or data[5] != command:
        raise Malformed("answer to another request")
    return data[6], data[7:-1]


def probe(sequence: int = 0) -> bytes:
    """Get Channel Authentication Capabilities, 23 bytes, no session: the cheapest question that
    every BMC answers."""
    return _alone(
        message(0x06, sequence, 0x38, b"\x8e\x04")
    )  # this channel, with IPMI 2.0 data; administrator


def _alone(body: bytes) -> bytes:
    """A packet of IPMI 1.5 that belongs to no session."""
    return _RMCP + bytes((0,)) + bytes(8) + bytes((len(body),)) + body


def _parse_alone(data: bytes, command: int, sequence: int = 0) -> tuple[int, bytes]:
    if len(data) < 14 or data[:5] != _RMCP + b"\x00":
        raise Malformed("not a session-less answer")
    return parse_message(data[14 : 14 + data[13]], 0x06, sequence, command)


def ask_guid() -> bytes:
    """Get System GUID, which needs no session either (section 22.14)."""
    return _alone(message(0x06, 0, 0x37))


def parse_guid(data: bytes) -> bytes:
    """The sixteen bytes of the answer to `ask_guid`, b"" from a BMC that does not tell them. Raises
    Malformed."""
    code, body = _parse_alone(data, 0x37)
    return body[:16] if not code and len(body) >= 16 else b""


def parse_probe(data: bytes, sequence: int = 0) -> Capabilities:
    """The answer to `probe`. Raises Malformed."""
    code, body = _parse_alone(data, 0x38, sequence)
    if code or len(body) < 4:
        raise Malformed(f"capabilities refused with 0x{code:02x}")
    extended = bool(body[1] & 0x80)
    return Capabilities(extended and bool(body[3] & 0x02), int.from_bytes(body[4:7], "little"))
