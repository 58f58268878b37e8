"""A BMC as its machine sees it from inside: users, one channel, LAN parameters that count once they
are committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from minos.bmc.device import Refusal

CHANNEL = 1


@dataclass
class Account:
    name: str = ""
    password: str = ""
    enabled: bool = False
    rights: int = 0


@dataclass
class InbandBmc:
    """`deaf` are LAN parameters that are taken and forgotten, `refused` are commands that it
    answers with that code."""

    users: dict[int, Account] = field(
        default_factory=lambda: {number: Account() for number in range(1, 5)}
    )
    lan: dict[int, bytes] = field(
        default_factory=lambda: {
            3: bytes(4),
            4: b"\2",
            5: b"\x52\x54\0\0\0\x0b",
            6: bytes(4),
            12: bytes(4),
            20: bytes(2),
        }
    )
    access: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {0x40: (0x3A, 4), 0x80: (0x3A, 4)}
    )
    deaf: frozenset[int] = frozenset()
    refused: dict[int, int] = field(default_factory=dict)
    medium: int = 4
    staged: dict[int, bytes] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)

    def request(self, netfn: int, command: int, data: bytes) -> bytes:
        if command in self.refused:
            raise Refusal(command, self.refused[command])
        if netfn == 12:
            return self._lan(command, data)
        if command == 0x01:
            return bytes((0x20, 1, 2, 0x17, 2, 0xBF, 0xA2, 2, 0, 1, 0))
        if command == 0x42:
            return bytes((data[0], self.medium))
        if command in (0x40, 0x41):
            return self._channel(command, data)
        return self._user(command, data)

    def _channel(self, command: int, data: bytes) -> bytes:
        if command == 0x41:
            return bytes(self.access[data[1]])
        self.written.append(command)
        self.access[data[1] & 0xC0] = (data[1] & 0x3F, data[2] & 15)
        return b""

    def _user(self, command: int, data: bytes) -> bytes:
        number = (data[1] if command in (0x43, 0x44) else data[0]) & 0x3F
        user = self.users[number]
        if command == 0x44:
            return bytes((len(self.users), (1 if user.enabled else 2) << 6, 0, user.rights))
        if command == 0x46:
            if not user.name:
                raise Refusal(command, 0xCC)
            return user.name.encode().ljust(16, b"\0")
        if command == 0x47 and data[1] == 3:
            if user.password.encode().ljust(len(data) - 2, b"\0") != data[2:]:
                raise Refusal(command, 0x80)
            return b""
        self.written.append(command)
        if command == 0x45:
            user.name = data[1:].rstrip(b"\0").decode()
        elif command == 0x43:
            user.rights = data[0] & 0x70 | data[2]
        elif data[1] == 2:
            user.password = data[2:].rstrip(b"\0").decode()
        else:
            user.enabled = data[1] == 1
        return b""

    def _lan(self, command: int, data: bytes) -> bytes:
        number = data[1]
        if command == 2:
            return b"\x11" + self.lan[number]
        self.written.append(command)
        if number:
            self.staged[number] = data[2:]
        elif data[2] == 2:
            self.lan |= {key: value for key, value in self.staged.items() if key not in self.deaf}
        else:
            self.staged = {}
        return b""
