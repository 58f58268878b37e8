"""A small IPMI BMC for what no real program can be made to do: one cipher suite only, no boot
device, one that is forgotten, a power state that is never true. It speaks RMCP+ by powerman's own
codec, the other way round; tests against ipmi_sim hold that to be right."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import secrets
import struct
from dataclasses import dataclass, field
from typing import Any

from powerman.ipmi import rmcp
from tests.support.minisol import MiniSol

_RMCP = b"\x06\x00\xff\x07"
_REFUSED, NO_SUITE, _FULL = 0xC1, 0x11, 0x01
_CONSOLE = (0x3D, 0x46, 0x48, 0x49, 0x4B)


@dataclass
class MiniBmc(asyncio.DatagramProtocol):
    """How it is: the cipher suites that it does, whether it drops others in silence instead of
    refusing them, whether it knows a boot device, how often it forgets it, whether power-on clears
    it, what it says of the power ("" for the truth), its console if it has one, how many sessions
    it has at a time (0: no limit), and whether the last answer of each login is lost."""

    password: bytes = b"pw"
    suites: tuple[int, ...] = (17, 3)
    drops: bool = False
    boot_device: bool = True
    forgets: int = 0
    clears: bool = False
    says: str = ""
    on: bool = False
    boot: int = 0
    cap: bytes = b""  # DCMI's power limit, as it was set; b"" for a BMC without
    caps: bool = False  # whether it holds
    least: int = 0  # watts that it caps at
    sol: MiniSol | None = None
    sessions: int = 0
    others: int = 0  # sessions of others
    loses: bool = False
    key: bytes = b""  # its own key (K_g)
    most_role: int = 4  # what its user may ask for at a login
    role_status: int = 0x0A  # how it refuses more
    most_level: int = 4  # what its user gets by Set Session Privilege Level
    level_code: int = 0x81  # how it refuses more
    busy: list[int] = field(default_factory=list)  # completion codes that come first
    corrupts: bool = False  # the checksum of its answers is wrong
    nameless: bool = False  # it refuses a suite without naming the login
    forged: bytes = b""  # what somebody else sends in its name first, as refusal of each login
    commands: list[tuple[int, int]] = field(default_factory=list)
    opened: list[tuple[bytes, Any]] = field(default_factory=list)  # proposals, and who sent them
    used: list[int] = field(default_factory=list)
    keys: dict[bytes, rmcp.SessionKeys] = field(default_factory=dict)
    _shakes: dict[bytes, rmcp.Handshake] = field(default_factory=dict)

    def connection_made(self, transport: Any) -> None:
        """It listens."""
        self.transport = transport

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """One packet, one answer or none."""
        if data[4] == 0:
            answer = bytearray(
                bytes((0x81, 0x07 << 2))
                + b"\0"
                + bytes((0x20, data[18], 0x38, 0, 0x01, 0x80, 0x04, 0x02, 0, 0, 0, 0))
            )
            answer[2] = rmcp.checksum(bytes(answer[:2]))
            answer.append(rmcp.checksum(bytes(answer[3:])))
            self.transport.sendto(
                _RMCP + b"\0" + bytes(8) + bytes((len(answer),)) + bytes(answer), addr
            )
            return
        kind = data[5] & 0x3F
        if kind == rmcp.SOL and self.sol is not None:
            if data[6:10] == self.sol.owner:
                self.sol.heard(self.keys[data[6:10]].unseal(data, rmcp.SOL))
            return
        if kind == rmcp.OPEN_REQUEST:
            self.opened.append((data, addr))
        if self.forged and kind in (rmcp.OPEN_REQUEST, rmcp.RAKP1, rmcp.RAKP3):
            refusal = bytes((data[16],)) + self.forged
            self.transport.sendto(rmcp.plain(kind + 1, refusal), addr)
        reply = (
            self._open(data[16:])
            if kind == rmcp.OPEN_REQUEST
            else self._rakp1(data[16:])
            if kind == rmcp.RAKP1
            else self._rakp3(data[16:])
            if kind == rmcp.RAKP3
            else self._message(data, addr)
        )
        if reply:
            self.transport.sendto(reply, addr)

    def _open(self, body: bytes) -> bytes:
        suite = next(
            (
                s
                for s in rmcp.SUITES.values()
                if (s.auth, s.integrity) == (body[12] & 0x3F, body[20] & 0x3F)
            ),
            None,
        )
        if suite is None or suite.number not in self.suites:
            if self.drops:
                return b""
            name = b"" if self.nameless else b"\0\0" + body[4:8]
            return rmcp.plain(rmcp.OPEN_RESPONSE, bytes((body[0], NO_SUITE)) + name)
        if self.sessions and len(self.keys) + self.others >= self.sessions:
            return rmcp.plain(rmcp.OPEN_RESPONSE, bytes((body[0], _FULL, 0, 0)) + body[4:8])
        self.used.append(suite.number)
        mine = secrets.token_bytes(4)
        self._shakes[mine] = rmcp.Handshake(
            suite, b"", self.password, body[4:8], b"", mine, secrets.token_bytes(16), bytes(16)
        )
        return rmcp.plain(
            rmcp.OPEN_RESPONSE, bytes((body[0], 0, 4, 0)) + body[4:8] + mine + body[8:32]
        )

    def _rakp1(self, body: bytes) -> bytes:
        shake = self._shakes[body[4:8]]
        shake.console_random, shake.username = body[8:24], body[28 : 28 + body[27]]
        shake.role = body[24] & 0x0F
        if shake.role > self.most_role:
            refusal = bytes((body[0], self.role_status, 0, 0)) + shake.console_id
            return rmcp.plain(rmcp.RAKP2, refusal)
        role = bytes((body[24], len(shake.username))) + shake.username
        facts = (
            shake.console_id
            + shake.bmc_id
            + shake.console_random
            + shake.bmc_random
            + shake.guid
            + role
        )
        proof = hmac.digest(self.password.ljust(20, b"\0"), facts, shake.suite.digest)
        return rmcp.plain(
            rmcp.RAKP2,
            bytes((body[0], 0, 0, 0)) + shake.console_id + shake.bmc_random + shake.guid + proof,
        )

    def _rakp3(self, body: bytes) -> bytes:
        shake = self._shakes[body[4:8]]
        digest = shake.suite.digest
        role = bytes((0x10 | shake.role, len(shake.username))) + shake.username
        key = hmac.digest(
            (self.key or self.password).ljust(20, b"\0"),
            shake.console_random + shake.bmc_random + role,
            digest,
        )
        one, two = (hmac.digest(key, bytes((n,)) * 20, digest) for n in (1, 2))
        self.keys[shake.bmc_id] = rmcp.SessionKeys(
            shake.suite, shake.bmc_id, shake.console_id, one, two[:16]
        )
        check = hmac.digest(key, shake.console_random + shake.bmc_id + shake.guid, digest)[
            : shake.suite.code_len
        ]
        return (
            b""
            if self.loses
            else rmcp.plain(rmcp.RAKP4, bytes((body[0], 0, 0, 0)) + shake.console_id + check)
        )

    def _message(self, data: bytes, addr: Any) -> bytes:
        session = data[6:10]
        if session not in self.keys:
            return b""  # it has ended
        keys = self.keys[session]
        seen = keys.unseal(data)
        function, sequence, command = seen[1] >> 2, seen[4] >> 2, seen[5]
        self.commands.append((function, command))
        code, more = (
            self._console(session, keys, command, addr)
            if function == 0x06 and command in _CONSOLE
            else self._do(function, command, seen[6:-1])
        )
        if (function, command) == (0x06, 0x3C):
            del self.keys[session]
            if self.sol is not None and self.sol.owner == session:
                self.sol.deactivate()
        if function == 0x00 and self.busy:
            code = self.busy.pop(0)
        first, second = (
            bytes((0x81, function + 1 << 2)),
            bytes((0x20, sequence << 2, command, code)) + more,
        )
        answer = first + bytes((rmcp.checksum(first),)) + second + bytes((rmcp.checksum(second),))
        if self.corrupts:
            answer = answer[:-1] + bytes((answer[-1] ^ 1,))
        number = struct.unpack_from("<I", data, 10)[0]
        return keys.seal(number, secrets.token_bytes(16), answer)

    def _console(
        self, session: bytes, keys: rmcp.SessionKeys, command: int, addr: Any
    ) -> tuple[int, bytes]:
        numbers = itertools.count(1)

        def send(payload: bytes) -> None:
            self.transport.sendto(
                keys.seal(next(numbers), secrets.token_bytes(16), payload, rmcp.SOL), addr
            )

        if self.sol is None:
            return _REFUSED, b""
        if command == 0x48:
            return self.sol.activate(session, send, self.port)
        if command == 0x3D:
            return 0, bytes((1, 4, 2, self.sol.holder, 4, 1, 192, 0, 2, 9)) + bytes(8)
        if command == 0x46:
            return 0, b"alice".ljust(16, b"\0")
        return self.sol.deactivate() if command == 0x49 else self.sol.instance()

    def _limit(self, command: int, data: bytes) -> tuple[int, bytes]:
        if not self.cap:
            return 0xC1, b""
        if command == 0x03:
            return 0 if self.caps else 0x80, b"\xdc\0\0" + self.cap
        if command == 0x05:
            self.caps = data[1] == 1
        elif int.from_bytes(data[5:7], "little") < self.least:
            return 0x84, b""
        else:
            self.cap = data[4:]
        return 0, b"\xdc"

    def _do(self, function: int, command: int, data: bytes) -> tuple[int, bytes]:
        if function == 0x2C:
            return self._limit(command, data)
        if (function, command) == (0x06, 0x3B) and data[0] > self.most_level:
            return self.level_code, b""
        if (function, command) == (0x00, 0x01):
            said = self.on if not self.says else self.says == "ON"
            return 0, bytes((int(said), 0, 0))
        if (function, command) == (0x00, 0x02):
            self.on = data[0] != 0
            if self.on and self.clears:
                self.boot = 0
        elif (function, command) in ((0x00, 0x08), (0x00, 0x09)) and not self.boot_device:
            return _REFUSED, b""
        elif (function, command) == (0x00, 0x08):
            self.boot, self.forgets = (data[2] & 0x3C) if self.forgets <= 0 else 0, self.forgets - 1
        elif (function, command) == (0x00, 0x09):
            return 0, bytes((1, 5, 0x80 if self.boot else 0, self.boot, 0, 0, 0))
        return 0, b""
