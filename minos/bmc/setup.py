"""A BMC is set up from inside its machine: the user and the address by which the head reaches it
(IPMI 2.0, chapters 22 and 23).

What is as wanted already is not written. The user comes first: a BMC that has the address takes the
login too. Each thing that was written is read back, and the password is tried by the BMC itself;
nothing is done that these do not show.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import InputError, OperationFailed
from minos.bmc.device import APP, TRANSPORT, Ask, Refusal
from minos.bmc.inspect import survey

MOST_NAME = 16
SHORT = 16
LONG = 20
"""Bytes of a user's name, and of a password in its two forms (22.30)."""
READ_S = 10.0
PAUSE_S = 0.5
"""For how many seconds a value is read back until it is there, and how often."""
ADMIN = 4
ALWAYS = 2
_SET_CHANNEL = 0x40
_GET_CHANNEL_ACCESS = 0x41
_SET_ACCESS = 0x43
_GET_ACCESS = 0x44
_SET_NAME = 0x45
_GET_NAME = 0x46
_PASSWORD = 0x47
_ENABLE = 1
_SET = 2
_TEST = 3
_SET_LAN = 0x01
_PROGRESS = 0
_IP = 3
_SOURCE = 4
_MASK = 6
_GATEWAY = 12
_STATIC = 1
_COMPLETE = 0
_WRITING = 1
_COMMIT = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user, and IPv4 addresses; those that are "" stay as they are. With an `address`, it is
    the BMC's own from then on, and not DHCP's. Without a password it can be looked at and not be
    set."""

    user: str
    password: str
    address: str = ""
    mask: str = ""
    gateway: str = ""

    def __repr__(self) -> str:
        return f"Wanted({self.user!r}, {self.address!r})"


def read(body: Mapping[str, Any]) -> Wanted:
    """What a head asks for. Raises InputError."""
    fields = {
        key: body.get(key) or "" for key in ("user", "password", "address", "mask", "gateway")
    }
    if not all(isinstance(text, str) for text in fields.values()):
        raise InputError("cannot set up the BMC: its user, password and addresses are texts")
    wanted = Wanted(**fields)
    for text in filter(None, (wanted.address, wanted.mask, wanted.gateway)):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            raise InputError(
                f"cannot set up the BMC: {text[:40]!r} is not an IPv4 address"
            ) from None
    plain = wanted.user.isascii() and wanted.user.isprintable()
    if not plain or not 1 <= len(wanted.user) <= MOST_NAME:
        raise InputError(
            f"cannot set up the BMC: its user has 1 to {MOST_NAME} ASCII characters",
            hint="bmc.username in the inventory",
        )
    if "password" in body or body.get("apply") is True:
        _check_password(wanted.password)
    return wanted


def _check_password(password: str) -> None:
    """Raises InputError for what is no password of a BMC."""
    if not 1 <= len(password.encode()) <= LONG or "\0" in password:
        raise InputError(
            f"cannot set up the BMC: its password has 1 to {LONG} bytes (IPMI 2.0, 22.30)",
            hint="a shorter one in the secret that bmc.password names",
        )


class Setup:
    """One BMC, asked from inside for one user. `pause` waits for so many seconds, `clock` is in
    seconds. Methods raise OperationFailed."""

    def __init__(
        self, ask: Ask, pause: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._pause = pause
        self._clock = clock
        try:
            self._found = survey(ask)
        except OSError as error:
            raise OperationFailed(f"cannot ask the BMC: {error}") from None
        self._channel = int(self._found["channel"])
        self._number = 0
        if not self._channel:
            raise OperationFailed(
                "cannot set up the BMC: it has no network of its own that it speaks of in-band"
            )

    @property
    def initial_state(self) -> Mapping[str, Any]:
        """What it said of itself at first (minos.bmc.inspect.survey)."""
        return self._found

    def differences(self, wanted: Wanted) -> list[str]:
        """What is not as wanted, for people. Without a password nothing is said of that."""
        try:
            user = self._user(wanted)
            known = not wanted.password or self._knows(user.number, wanted.password)
            lines = (
                []
                if user.is_ready(wanted.user) and known
                else [
                    f"user {wanted.user!r} (number {user.number}) gets the password, and may do "
                    "everything"
                    + (": the BMC does not say whether it has it" if known is None else "")
                ]
            )
            lines += [
                f"{name}: {before or 'none'} becomes {after}"
                for name, before, after, _, _ in self._moves(wanted)
            ]
            return lines if self._is_open() else [*lines, f"channel {self._channel} is open always"]
        except OSError as error:
            raise OperationFailed(f"cannot ask the BMC: {error}") from None

    def apply(self, wanted: Wanted) -> list[str]:
        """Has it as wanted; what was done, for people."""
        try:
            lines = self.differences(wanted)
            self._have_user(wanted)
            self._open()
            self._move(wanted)
        except OSError as error:
            raise OperationFailed(f"cannot set up the BMC: {error}") from None
        return lines

    # -- the user

    def _user(self, wanted: Wanted) -> _User:
        """The user of that name, or the first place that nobody has. Number 1 has no name and is
        left alone (22.28). All are looked through once: a BMC has up to 63, and takes a tenth of a
        second for each."""
        if self._number:
            return self._read(self._number)
        most = self._ask(APP, _GET_ACCESS, bytes((self._channel, 1)))[0] & 0x3F
        free = None
        for user in map(self._read, range(2, most + 1)):
            if user.name == wanted.user:
                break
            if free is None and not user.name and not user.enabled:
                free = user
        else:
            if free is None:
                raise OperationFailed(
                    f"cannot make user {wanted.user!r}: the BMC has no place for another",
                    hint="take one of its users away",
                )
            user = free
        self._number = user.number
        return user

    def _read(self, number: int) -> _User:
        access = self._ask(APP, _GET_ACCESS, bytes((self._channel, number)))
        try:
            name = (
                self._ask(APP, _GET_NAME, bytes((number,)))
                .split(b"\0")[0]
                .decode("ascii", "replace")
            )
        except Refusal:  # as some answer for a place that nobody has
            name = ""
        status = access[1] >> 6
        rights = access[3]
        return _User(
            number,
            name,
            status == 1 or (status == 0 and bool(rights & 0x10)),
            bool(rights & 0x10),
            rights & 15,
        )

    def _have_user(self, wanted: Wanted) -> None:
        user = self._user(wanted)
        if user.name != wanted.user:
            self._ask(
                APP, _SET_NAME, bytes((user.number,)) + wanted.user.encode().ljust(MOST_NAME, b"\0")
            )
        if not self._knows(user.number, wanted.password):
            self._password(user.number, _SET, wanted.password)
        self._ask(APP, _SET_ACCESS, bytes((0x80 | 0x30 | self._channel, user.number, ADMIN, 0)))
        self._password(user.number, _ENABLE, wanted.password)
        self._until(
            f"user {wanted.user!r}",
            lambda: (
                self._user(wanted).is_ready(wanted.user)
                and self._knows(user.number, wanted.password) is not False
            ),
        )

    def _knows(self, number: int, password: str) -> bool | None:
        """Whether that is a user's password; None of a BMC that says so of any (ipmi_sim is
        one)."""
        size = len(password.encode())
        wrong = os.urandom(size).hex()[:size]
        return self._takes(number, password) and (None if self._takes(number, wrong) else True)

    def _takes(self, number: int, password: str) -> bool:
        try:
            self._password(number, _TEST, password)
        except Refusal as error:
            if error.code in (0x80, 0x81):
                return False
            raise
        return True

    def _password(self, number: int, what: int, password: str) -> None:
        """Sets, tests or enables (22.30). Some BMCs want the password's bytes for each of them."""
        data = password.encode()
        size, flag = (LONG, 0x80) if len(data) > SHORT else (SHORT, 0)
        self._ask(APP, _PASSWORD, bytes((flag | number, what)) + data.ljust(size, b"\0"))

    # -- the channel

    def _access(self, volatile: bool) -> tuple[int, int]:
        access = self._ask(
            APP, _GET_CHANNEL_ACCESS, bytes((self._channel, 0x80 if volatile else 0x40))
        )
        return access[0], access[1] & 15

    def _is_open(self) -> bool:
        return all(
            mode & 7 == ALWAYS and limit >= ADMIN
            for mode, limit in map(self._access, (False, True))
        )

    def _open(self) -> None:
        """Has the channel take sessions at all times, now and after the BMC's own restart
        (22.22)."""
        if self._is_open():
            return
        for kind, volatile in ((0x40, False), (0x80, True)):
            mode, _ = self._access(volatile)
            self._ask(
                APP, _SET_CHANNEL, bytes((self._channel, kind | mode & 0x38 | ALWAYS, kind | ADMIN))
            )
        self._until(f"channel {self._channel}", self._is_open)

    # -- the address

    def _moves(self, wanted: Wanted) -> list[tuple[str, str, str, int, bytes]]:
        """(what, before, after, parameter, bytes) of what differs, in the order in which it is
        written."""
        now = survey(self._ask)
        moves: list[tuple[str, str, str, int, bytes]] = []
        if wanted.address and now["source"] != "static":
            moves.append(("address source", now["source"], "static", _SOURCE, bytes((_STATIC,))))
        for name, after, number in (
            ("address", wanted.address, _IP),
            ("mask", wanted.mask, _MASK),
            ("gateway", wanted.gateway, _GATEWAY),
        ):
            if after and now[name] != after:
                moves.append((name, now[name], after, number, ipaddress.IPv4Address(after).packed))
        return moves

    def _move(self, wanted: Wanted) -> None:
        if not self._moves(wanted):
            return
        self._progress(_WRITING)
        try:
            for _, _, _, number, data in self._moves(wanted):
                self._ask(TRANSPORT, _SET_LAN, bytes((self._channel, number)) + data)
            self._progress(_COMMIT)  # without it some take nothing
        finally:
            self._progress(_COMPLETE)
        self._until("its address", lambda: not self._moves(wanted))

    def _progress(self, word: int) -> None:
        """Says that parameters are being written, that all are, or that it is over (23.2, parameter
        0). Not every BMC knows it."""
        try:
            self._ask(TRANSPORT, _SET_LAN, bytes((self._channel, _PROGRESS, word)))
        except Refusal:
            return

    def _until(self, what: str, there: Callable[[], bool]) -> None:
        """Waits until what was written is read back. Raises OperationFailed."""
        end = self._clock() + READ_S
        while not there():
            if self._clock() > end:
                raise OperationFailed(
                    f"cannot set up the BMC: it took {what}, and does not say so when it is read "
                    "back"
                )
            self._pause(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _User:
    """A place for a user: whether it may log in, whether it may speak IPMI, and its privilege
    (22.27)."""

    number: int
    name: str
    enabled: bool
    speaks: bool
    privilege: int

    def is_ready(self, name: str) -> bool:
        return self.name == name and self.enabled and self.speaks and self.privilege == ADMIN
