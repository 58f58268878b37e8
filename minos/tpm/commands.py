"""Commands of a TPM 2.0 (TPM 2.0 Library, Part 3: Commands): those by which a machine shows who it
is and what it has booted.

On a TPM of 2020 all of it takes 120 ms, most of that for the two keys.
"""

from __future__ import annotations

from layercake.kraken.errors import OperationFailed
from minos.tpm.device import Transport
from minos.tpm.keys import POLICY_OR, Endorsement
from minos.tpm.wire import GENERATED, NULL, Reader, selection, sized, u8, u16, u32

OWNER = 0x40000001
ENDORSEMENT = 0x4000000B
LOCKOUT = 0x4000000A
NOTHING = 0x40000007
PASSWORD = 0x40000009
"""Permanent handles (TPM_RH, TPM_RS; Part 2 section 7.4)."""
_NO_SESSIONS = 0x8001
_SESSIONS = 0x8002
_NV_READ = 0x14E
_CREATE_PRIMARY = 0x131
_ACTIVATE = 0x147
_POLICY_SECRET = 0x151
_QUOTE = 0x158
_NV_READ_PUBLIC = 0x169
_READ_PUBLIC = 0x173
_START_SESSION = 0x176
_CAPABILITY = 0x17A
_PCR_READ = 0x17E
_CLEAR = 0x126
_RETRY = (0x922, 0x908, 0x90A)
_TRIES = 20
"""TPM_RC_RETRY, _YIELDED, _TESTING: the same command is to be sent again (Part 2 section 6.6.3)."""
_MEANING = {
    0x98E: "its password is another one",
    0x9A2: "its password is another one: somebody has set one for the endorsement hierarchy",
    0x921: "it is locked for a while, after wrong passwords",
    0x18B: "there is no such place in it",
    0x100: "it was not started by the firmware",
    0x101: "it has failed, and needs a power cycle",
    0x120: "the hierarchy is switched off in the firmware",
    0x185: "the hierarchy is switched off in the firmware",
}
_NO_PASSWORD = u32(PASSWORD) + sized(b"") + u8(0) + sized(b"")
_MOST_NV = 8192
_NV_AT_ONCE = 512
_AT_ONCE = 8
"""Registers that a TPM gives in one answer."""


def _auth(*sessions: bytes) -> bytes:
    """The authorization area of a command (Part 1 section 18.7)."""
    area = b"".join(sessions or (_NO_PASSWORD,))
    return u32(len(area)) + area


class Tpm:
    """A TPM. All methods raise OperationFailed that says which command it refuses, and why as far
    as that is known."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _command(self, code: int, body: bytes, *, sessions: bool = True) -> Reader:
        command = (
            u16(_SESSIONS if sessions else _NO_SESSIONS) + u32(10 + len(body)) + u32(code) + body
        )
        for _ in range(_TRIES):
            try:
                answer = Reader(self._transport.exchange(command))
                answer.read(2)
                size = answer.number(4)
                result = answer.number(4)
            except (OSError, ValueError) as error:
                raise OperationFailed(f"cannot use the TPM: command {code:#x}: {error}") from None
            if result not in _RETRY:
                break
        if result:
            known = _MEANING.get(result) or _MEANING.get(
                result & 0x8FF if result & 0x80 else result, ""
            )
            why = f": {known}" if known else ""
            raise OperationFailed(
                f"cannot use the TPM: it refuses command {code:#x} with {result:#x}{why}"
            )
        if size != answer.left + 10:
            raise OperationFailed(f"cannot use the TPM: its answer to command {code:#x} is cut off")
        return answer

    def makers_word(self) -> str:
        """Who made it, four letters (TPM_PT_MANUFACTURER)."""
        answer = self._command(_CAPABILITY, u32(6) + u32(0x105) + u32(1), sessions=False)
        try:
            answer.read(1 + 4 + 4 + 4)
            return "".join(c for c in answer.read(4).decode("ascii", "replace") if c.isalnum())
        except ValueError as error:
            raise _odd(error) from None

    def clear(self) -> None:
        """Has it forget its owner: his keys, passwords and places are gone, the endorsement key
        stays (Part 3, TPM2_Clear)."""
        self._command(_CLEAR, u32(LOCKOUT) + _auth())

    def registers(self, numbers: tuple[int, ...]) -> dict[int, bytes]:
        """What is in registers, of the bank of SHA-256."""
        values: dict[int, bytes] = {}
        while missing := [number for number in numbers if number not in values]:
            answer = self._command(_PCR_READ, selection(tuple(missing[:_AT_ONCE])), sessions=False)
            try:
                answer.read(4)
                answered = answer.selection()
                count = answer.number(4)
                some = {
                    number: answer.sized()
                    for number, _ in zip(answered, range(count), strict=False)
                }
            except ValueError as error:
                raise _odd(error) from None
            if not some.keys() & set(missing):
                raise OperationFailed(
                    f"cannot use the TPM: it gives no SHA-256 of register {missing[0]}",
                    hint="switch the bank of SHA-256 on in the firmware",
                )
            values |= some
        return values

    def key(self, template: bytes) -> tuple[int, bytes]:
        """A key of the endorsement hierarchy: its handle, and its public part (TPMT_PUBLIC)."""
        body = (
            u32(ENDORSEMENT)
            + _auth()
            + sized(sized(b"") + sized(b""))
            + sized(template)
            + sized(b"")
            + u32(0)
        )
        answer = self._command(_CREATE_PRIMARY, body)
        try:
            handle = answer.number(4)
            answer.number(4)  # parameterSize
            return handle, answer.sized()
        except ValueError as error:
            raise _odd(error) from None

    def persistent_public(self, handle: int) -> bytes:
        """The public part of a key that is kept in it, b"" if there is none."""
        try:
            return self._command(_READ_PUBLIC, u32(handle), sessions=False).sized()
        except (OperationFailed, ValueError):
            return b""

    def stored(self, index: int) -> bytes:
        """What its maker has put into a place; b"" if there is nothing."""
        try:
            place = self._command(_NV_READ_PUBLIC, u32(index), sessions=False)
        except OperationFailed:
            return b""
        try:
            public = place.sized()
            size = min(_MOST_NV, int.from_bytes(public[-2:], "big"))  # dataSize is its last field
        except ValueError as error:
            raise _odd(error) from None
        content = b""
        while len(content) < size:
            body = (
                u32(OWNER)
                + u32(index)
                + _auth()
                + u16(min(_NV_AT_ONCE, size - len(content)))
                + u16(len(content))
            )
            answer = self._command(_NV_READ, body)
            try:
                answer.read(4)
                part = answer.sized()
            except ValueError as error:
                raise _odd(error) from None
            if not part:
                break
            content += part
        return content

    def activate(
        self,
        attestation: int,
        endorsement: int,
        credential: bytes,
        secret: bytes,
        kind: Endorsement,
    ) -> bytes:
        """What a credential holds: only this TPM can say, and only while it has the attestation key
        that the credential names."""
        try:
            policy = self._endorsement_policy(kind)
            answer = self._command(
                _ACTIVATE,
                u32(attestation)
                + u32(endorsement)
                + _auth(_NO_PASSWORD, policy)
                + sized(credential)
                + sized(secret),
            )
            answer.read(4)
            return answer.sized()
        except ValueError as error:
            raise _odd(error) from None

    def _endorsement_policy(self, kind: Endorsement) -> bytes:
        """A session that may use an endorsement key, for one command."""
        body = (
            u32(NOTHING)
            + u32(NOTHING)
            + sized(bytes(16))
            + sized(b"")
            + u8(1)
            + u16(NULL)
            + u16(kind.hash)
        )
        session = self._command(_START_SESSION, body, sessions=False).number(4)
        self._command(
            _POLICY_SECRET, u32(ENDORSEMENT) + u32(session) + _auth() + 3 * sized(b"") + u32(0)
        )
        if kind.branches:
            self._command(
                POLICY_OR,
                u32(session) + u32(len(kind.branches)) + b"".join(map(sized, kind.branches)),
                sessions=False,
            )
        return (
            u32(session) + sized(b"") + u8(0) + sized(b"")
        )  # without continueSession: it ends with the next command

    def quote(self, key: int, qualifying: bytes, registers: tuple[int, ...]) -> tuple[bytes, bytes]:
        """What it says of registers (TPMS_ATTEST), with somebody's word in it, and its signature
        (TPMT_SIGNATURE)."""
        answer = self._command(
            _QUOTE, u32(key) + _auth() + sized(qualifying) + u16(NULL) + selection(registers)
        )
        try:
            size = answer.number(4)
            quoted = answer.sized()
            signature = answer.read(size - 2 - len(quoted))
        except ValueError as error:
            raise _odd(error) from None
        if quoted[:4] != u32(GENERATED):
            raise OperationFailed("cannot use the TPM: what it gives is no quote")
        return quoted, signature


def _odd(error: ValueError) -> OperationFailed:
    return OperationFailed(f"cannot use the TPM: its answer is not as agreed: {error}")
