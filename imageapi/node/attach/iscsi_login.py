"""Logging in to an iSCSI target: its PDUs, and what is said in them (RFC 7143, chapters 6, 11.12,
11.13 and 12). No socket here.

security stage      who we are, which target; CHAP, if there is a user, and then nothing less
operational stage   sizes and habits, for the kernel to keep to (`Session.values`)
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

Exchange = Callable[[bytes, bytes], tuple[bytes, bytes]]
"""Sends a PDU (its header of 48 bytes, its data) and returns the target's answer."""

LOGIN = 0x43
LOGIN_ANSWER = 0x23
TRANSIT = 0x80
CONTINUE = 0x40
SECURITY = 0
OPERATIONAL = 1
FULL = 3
ROUNDS = 12
ANSWER_LIMIT = 65536
CHALLENGE_LIMIT = 1024

RECEIVE = 262144
"""Bytes of data that the kernel takes in one PDU."""

ALGORITHMS: Mapping[str, str] = {"5": "md5", "7": "sha256"}
"""CHAP's digests by their numbers (IANA's PPP numbers). MD5 first: all targets know it, and tgt
takes 7 for SHA-1. Who offers only the other gets that; a short secret can be guessed from
either."""

OFFER: Mapping[str, str] = {
    "HeaderDigest": "None",
    "DataDigest": "None",
    "ErrorRecoveryLevel": "0",
    "InitialR2T": "No",
    "ImmediateData": "Yes",
    "MaxBurstLength": "16776192",
    "FirstBurstLength": "262144",
    "MaxOutstandingR2T": "1",
    "MaxConnections": "1",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
    "DefaultTime2Wait": "2",
    "DefaultTime2Retain": "0",
    "MaxRecvDataSegmentLength": str(RECEIVE),
}
_NUMBERS = {
    "MaxBurstLength": (512, 16777215),
    "FirstBurstLength": (512, 16777215),
    "MaxOutstandingR2T": (1, 65535),
    "MaxRecvDataSegmentLength": (512, 16777215),
}


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a target is to take us for. `user` "" is without CHAP."""

    initiator: str
    target: str
    user: str = ""
    secret: bytes = b""


@dataclass(frozen=True, slots=True)
class Session:
    """What was agreed: the values by their names in RFC 7143, and the number that the target's next
    answer has."""

    values: Mapping[str, str]
    status_number: int


def isid(account: Account) -> bytes:
    """The session's name, 6 bytes: always the same for a node and a target, so that a target ends
    the session of a node's earlier boot when it comes again (session reinstatement, RFC 7143,
    6.3.5). Type 10b, random (11.12.5)."""
    return b"\x80" + hashlib.blake2b(account.target.encode(), digest_size=5).digest()


def request(account: Account, flags: int, data: bytes) -> bytes:
    """The header of a login request. Tags and numbers are the kernel's to fill in."""
    length = struct.pack(">I", len(data))[1:]
    return struct.pack(
        ">BBBBB3s6sHIHHII16x", LOGIN, flags, 0, 0, 0, length, isid(account), 0, 0, 0, 0, 1, 0
    )


def text(pairs: Mapping[str, str]) -> bytes:
    """Keys and values as they stand in a PDU."""
    return b"".join(f"{key}={value}\0".encode() for key, value in pairs.items())


def parse_text(data: bytes) -> dict[str, str]:
    """Keys and values of a PDU; what is none is left out."""
    pairs = (pair.partition("=") for pair in data.decode("utf-8", "replace").split("\0"))
    return {key: value for key, equals, value in pairs if equals}


class Login:
    """One login over an exchange of PDUs."""

    def __init__(self, account: Account, exchange: Exchange) -> None:
        self._account = account
        self._exchange = exchange
        self._status_number = 0
        self._rounds = 0
        self._transit = False

    def run(self) -> Session:
        """Logs in. Raises Unreachable, OperationFailed that say why not; none of them tells the
        secret."""
        keys = self._security()
        while not self._transit:
            keys |= self._negotiate(SECURITY, OPERATIONAL, {})
        self._transit = False
        offered = dict(OFFER)
        while not self._transit:
            keys |= self._negotiate(OPERATIONAL, FULL, offered)
            offered = {}
        for key, (low, high) in _NUMBERS.items():
            value = keys.get(key, "8192" if key == "MaxRecvDataSegmentLength" else OFFER[key])
            if not (
                value.isascii() and value.isdigit() and len(value) < 9 and low <= int(value) <= high
            ):
                raise OperationFailed(f"the target says {key}={value[:40]}")
            keys[key] = value
        return Session(keys, self._status_number)

    def _security(self) -> dict[str, str]:
        account = self._account
        who = {
            "InitiatorName": account.initiator,
            "SessionType": "Normal",
            "TargetName": account.target,
        }
        if not account.user:
            return self._negotiate(SECURITY, OPERATIONAL, {**who, "AuthMethod": "None"})
        keys = self._negotiate(SECURITY, SECURITY, {**who, "AuthMethod": "CHAP"})
        if keys.get("AuthMethod") != "CHAP":
            raise OperationFailed(
                "the target does not ask for CHAP, and a user is given",
                hint="leave user and secret out if the target is open",
            )
        keys |= self._negotiate(SECURITY, SECURITY, {"CHAP_A": ",".join(ALGORITHMS)})
        answer = {"CHAP_N": account.user, "CHAP_R": f"0x{response(keys, account).hex()}"}
        return keys | self._negotiate(SECURITY, OPERATIONAL, answer)

    def _negotiate(self, stage: int, following: int, pairs: Mapping[str, str]) -> dict[str, str]:
        """One request with its whole answer. With another stage to follow it asks to go on to
        it."""
        flags = stage << 2 | following
        header, keys = self._pdu(flags | (TRANSIT if following != stage else 0), text(pairs))
        while header[1] & CONTINUE:
            header, more = self._pdu(stage << 2 | stage, b"")
            keys += more
            if len(keys) > ANSWER_LIMIT:
                raise OperationFailed("the login's answer has no end")
        self._transit = bool(header[1] & TRANSIT) and header[1] & 3 == following
        return parse_text(keys)

    def _pdu(self, flags: int, data: bytes) -> tuple[bytes, bytes]:
        self._rounds += 1
        if self._rounds > ROUNDS:
            raise OperationFailed("the login does not come to an end")
        header, answer = self._exchange(request(self._account, flags, data), data)
        if len(header) != 48 or header[0] & 0x3F != LOGIN_ANSWER:
            raise OperationFailed("its answer is none to a login")
        self._status_number = struct.unpack_from(">I", header, 24)[0] + 1 & 0xFFFFFFFF
        if header[36]:
            raise refusal(
                self._account, header[36], header[37], parse_text(answer).get("TargetAddress", "")
            )
        return header, answer


def response(challenge: Mapping[str, str], account: Account) -> bytes:
    """The answer to a CHAP challenge (RFC 1994, 4.1; RFC 7143, 12.1.3). Raises OperationFailed."""
    name = ALGORITHMS.get(challenge.get("CHAP_A", ""))
    try:
        number = int(challenge["CHAP_I"], 0)
        challenge_bytes = binary(challenge["CHAP_C"])
        if (
            name is None
            or not 0 <= number <= 255
            or not 0 < len(challenge_bytes) <= CHALLENGE_LIMIT
        ):
            raise ValueError
    except (KeyError, ValueError):
        raise OperationFailed("the target does not ask for CHAP by MD5 or SHA-256") from None
    return hashlib.new(name, bytes([number]) + account.secret + challenge_bytes).digest()


def binary(value: str) -> bytes:
    """A binary value, in hex or base64 (RFC 7143, 6.1). Raises ValueError."""
    if value[:2].lower() == "0x":
        return bytes.fromhex(value[2:].rjust(len(value[2:]) + len(value) % 2, "0"))
    if value[:2].lower() == "0b":
        import base64

        return base64.b64decode(value[2:], validate=True)
    raise ValueError(value)


def refusal(account: Account, kind: int, detail: int, elsewhere: str) -> LayercakeError:
    """What a status means (RFC 7143, 11.13.5)."""
    if kind == 1:
        return OperationFailed(
            f"the target has moved to {elsewhere[:80] or 'another portal'}", hint="name that portal"
        )
    if (kind, detail) == (2, 1):
        who = f"user {account.user} with this secret" if account.user else "who has no user"
        return OperationFailed(
            f"the target refuses {who}",
            hint="see the target's CHAP account, and the file of the secret on the head",
        )
    if (kind, detail) == (2, 2):
        return OperationFailed(
            "this node may not use it", hint=f"the node's initiator name is {account.initiator}"
        )
    if (kind, detail) in ((2, 3), (2, 4)):
        return OperationFailed("the portal has no such target")
    if kind == 3:
        return Unreachable(f"the target is out of service (status {kind:02x}{detail:02x})")
    return OperationFailed(f"the target refuses (status {kind:02x}{detail:02x})")
