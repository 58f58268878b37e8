"""RMCP+ sessions: login, commands, and the end of it.

Sessions are short: BMCs have few, drop idle ones after 30-60 s, and a login costs less than a
millisecond of CPU. One is kept for a moment, for what comes next, and for seconds with a BMC that
takes seconds for each answer (driver.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from layercake.base.lease import Permit, always
from layercake.kraken.errors import OperationFailed, Unreachable
from powerman.driver import LoginRefused, NoSession, NotNow, Unsupported, login_refused
from powerman.ipmi import rmcp
from powerman.ipmi.line import Line, Pace
from powerman.settings import BmcSpec

_BYE_S = 0.3
_PRIVILEGE = 0xD4  # completion code: the session may not do this
_LEVEL_REFUSED = frozenset({0x80, 0x81, 0x82, _PRIVILEGE})  # ... may not have this level
_BUSY_WAITS_S = (0.2, 0.5, 1.0)  # before a command is sent again that the BMC is too busy for

Parsed = TypeVar("Parsed")


class SuiteRefused(Unsupported):
    """The BMC does not do this cipher suite; another may do."""


async def probe(line: Line, pace: Pace) -> rmcp.Capabilities:
    """Asks a BMC what it can do, without a login. Raises Unreachable, at once if its port is
    closed."""
    number = secrets.randbelow(64)
    return await line.exchange(
        lambda: rmcp.probe(number), lambda raw: rmcp.parse_probe(raw, number), pace.probing()
    )


class RoleRefused(LoginRefused):
    """The user may not have the role that we asked for; one with less may do."""


class Session:
    """An open session: raw IPMI commands. It begins with the rights of a user; `raised` says that
    it has the most that it gets, `role` at best. `prelude` is what goes before each packet until
    the first answer comes."""

    def __init__(
        self,
        where: str,
        line: Line,
        pace: Pace,
        keys: rmcp.SessionKeys,
        prelude: bytes = b"",
        role: int = rmcp.ROLES[0],
    ) -> None:
        self._where = where
        self._pace = pace
        self._keys = keys
        self._sequence = 0
        self._request = 0
        self._prelude = prelude
        self._role = role
        self.line = line
        self.raised = False

    async def command(
        self,
        function: int,
        command: int,
        data: bytes = b"",
        *,
        user: bool = False,
        permit: Permit = always,
    ) -> bytes:
        """Sends one command and returns its data. `user`: a user's rights are enough for it, unless
        the BMC thinks otherwise; `permit` is asked before each packet, a repeated one too. Raises
        Unreachable, NotNow, Unsupported, OperationFailed with the completion code, and what the
        permit does."""
        if not user:
            await self._raise()
        code, answer = await self._exchange(function, command, data, permit)
        for wait in _BUSY_WAITS_S:
            if code not in rmcp.BUSY_CODES:
                break
            await asyncio.sleep(wait)
            code, answer = await self._exchange(function, command, data, permit)
        if code == _PRIVILEGE and not self.raised:
            await self._raise()
            code, answer = await self._exchange(function, command, data, permit)
        return self._good(function, command, code, answer)

    async def tried(self, function: int, command: int, data: bytes = b"") -> tuple[int, bytes]:
        """(completion code, data) of a command whose refusals mean something, as an administrator.
        Raises Unreachable."""
        await self._raise()
        return await self._exchange(function, command, data)

    def send_payload(self, kind: int, payload: bytes) -> None:
        """Sends a payload that is no IPMI message, once."""
        self._sequence += 1
        self.line.send(self._keys.seal(self._sequence, secrets.token_bytes(16), payload, kind))

    def hear_payload(self, kind: int, heard: Callable[[bytes], None]) -> None:
        """Has `heard` called with each payload of that kind."""

        def accept(raw: bytes) -> bool:
            if len(raw) < 6 or raw[5] & 0x3F != kind:
                return False
            with contextlib.suppress(rmcp.Malformed):
                heard(self._keys.unseal(raw, kind))
            return True

        self.line.unasked = accept

    @property
    def suite(self) -> rmcp.Suite:
        """The cipher suite that it is by."""
        return self._keys.suite

    @property
    def id(self) -> bytes:
        """The BMC's number for this session, four bytes as they are on the wire."""
        return self._keys.bmc_id

    async def _raise(self) -> None:
        """Set Session Privilege Level: the most that the account gets, down to operator. One that
        gets neither goes on with a user's rights: the command itself says whether they do."""
        if self.raised:
            return
        for level in (level for level in rmcp.ROLES[:2] if level <= self._role):
            code, answer = await self._exchange(0x06, 0x3B, bytes((level,)))
            if code not in _LEVEL_REFUSED:
                self._good(0x06, 0x3B, code, answer)
                break
        self.raised = True

    async def _exchange(
        self, function: int, command: int, data: bytes, permit: Permit = always
    ) -> tuple[int, bytes]:
        packet, request = self._message(function, command, data, permit)
        answer = await self.line.exchange(
            packet,
            lambda raw: rmcp.parse_message(self._keys.unseal(raw), function, request, command),
            self._pace.asking(),
        )
        self._prelude = b""
        return answer

    def _message(
        self, function: int, command: int, data: bytes, permit: Permit = always
    ) -> tuple[Callable[[], bytes], int]:
        self._request = request = (self._request + 1) % 64
        body = rmcp.message(function, request, command, data)

        def packet() -> bytes:
            permit()
            if self._prelude:
                self.line.send(self._prelude)
            self._sequence += 1  # each packet, a repeated one too, needs a number of its own
            return self._keys.seal(self._sequence, secrets.token_bytes(16), body)

        return packet, request

    def _good(self, function: int, command: int, code: int, answer: bytes) -> bytes:
        if code:
            why = rmcp.COMPLETION_TEXT.get(code, "no explanation")
            message = (
                f"cannot do IPMI command 0x{function:02x} 0x{command:02x} at {self._where}: "
                f"the BMC answers 0x{code:02x}, {why}"
            )
            if code in rmcp.BUSY_CODES:
                raise NotNow(message)
            if code == _PRIVILEGE:
                raise OperationFailed(message, hint="give its user the rights of an operator")
            kind = Unsupported if code in (0xC1, 0xC9, 0xCC) else OperationFailed
            raise kind(message)
        return answer

    def leave(self) -> None:
        """Frees the BMC's session without waiting for its word."""
        packet, _ = self._message(0x06, 0x3C, self._keys.bmc_id)
        self.line.send(packet())

    async def close(self) -> None:
        """Frees the BMC's session; if it does not answer, it will drop the session by itself."""
        packet, request = self._message(0x06, 0x3C, self._keys.bmc_id)
        with contextlib.suppress(Unreachable, rmcp.WrongPassword):
            await self.line.exchange(
                packet,
                lambda raw: rmcp.parse_message(self._keys.unseal(raw), 0x06, request, 0x3C),
                (_BYE_S,),
            )


async def begin(
    line: Line, spec: BmcSpec, pace: Pace, suites: Sequence[rmcp.Suite], role: int = rmcp.ROLES[0]
) -> Session:
    """A session over a line by the first of these cipher suites that the BMC does, for at most the
    rights of `role`. Raises Unreachable, LoginRefused, RoleRefused, SuiteRefused, NoSession,
    OperationFailed."""
    where = spec.where

    async def step(
        kind: int, request: Callable[[int], bytes], take: Callable[[bytes], Parsed]
    ) -> None:
        tag = line.tag()  # a late answer to an earlier login is not taken for one of this

        def parse(raw: bytes) -> Parsed | int:
            status, body = rmcp.parse_plain(raw, kind, tag)
            if status and not shake.is_named(body):
                raise rmcp.Doubtful(status)
            return status if status else take(body)

        answer = await line.exchange(lambda: request(tag), parse, pace.asking())
        if isinstance(answer, int):
            raise _refusal(where, spec.username, answer)

    shake = await _open(line, spec, pace, [_handshake(spec, suite, role) for suite in suites])
    try:
        await step(rmcp.RAKP2, shake.rakp1, shake.take_rakp2)
        # some end a session of which no command came in 30 s: the last step of the login goes with
        # the first one
        if pace.slow:
            return Session(where, line, pace, shake.keys(), shake.rakp3(line.tag()), role)
        session = Session(where, line, pace, shake.keys(), role=role)
        try:
            await step(rmcp.RAKP4, shake.rakp3, shake.take_rakp4)
        except BaseException:  # the BMC may have begun it, and some have only one
            session.leave()
            raise
        return session
    except rmcp.WrongKey:
        raise key_refused(where, given=bool(spec.key)) from None
    except rmcp.WrongPassword:
        raise login_refused(where, spec.username) from None


def _handshake(spec: BmcSpec, suite: rmcp.Suite, role: int) -> rmcp.Handshake:
    return rmcp.Handshake(
        suite,
        spec.username.encode(),
        spec.password.encode(),
        secrets.token_bytes(4),
        secrets.token_bytes(16),
        role=role,
        bmc_key=spec.key_bytes,
    )


async def _open(
    line: Line, spec: BmcSpec, pace: Pace, shakes: Sequence[rmcp.Handshake]
) -> rmcp.Handshake:
    """Proposes a suite; who refuses it without naming our login is asked for the next one at once.
    What the BMC takes first counts: it answers in turn, so nobody who forges a refusal has us use a
    weaker suite than it does. Raises as `begin` does."""
    proposed = {line.tag(): shakes[0]}

    def request() -> bytes:
        tag, shake = list(proposed.items())[-1]
        return shake.open_request(tag)

    def parse(raw: bytes) -> rmcp.Handshake | int:
        tag = rmcp.tag_of(raw)
        shake = proposed.get(tag)
        if shake is None:
            raise rmcp.Malformed("not the answer to this request")
        status, body = rmcp.parse_plain(raw, rmcp.OPEN_RESPONSE, tag)
        if not status:
            shake.take_open_response(body)
            return shake
        if shake is not shakes[len(proposed) - 1]:
            raise rmcp.Malformed("it has refused this one before")
        if shake.is_named(body):
            return status
        other = status in rmcp.SUITE_STATUS and shake is not shakes[-1]
        if other:
            proposed[line.tag()] = shakes[len(proposed)]
        raise rmcp.Doubtful(status, other=other)

    answer = await line.exchange(request, parse, pace.opening())
    if isinstance(answer, int):
        raise _refusal(spec.where, spec.username, answer)
    return answer


def key_refused(where: str, *, given: bool) -> LoginRefused:
    """The error for a BMC that has a key of its own (K_g), and not the one that we have."""
    return LoginRefused(
        f"cannot log in to the BMC at {where}: it takes the user and the password, and "
        + ("its own key (K_g) is not that of bmc.key" if given else "wants its own key (K_g) too"),
        hint="set bmc.key in the inventory to its K_g, or have the BMC use none (all zeros)",
    )


def _refusal(where: str, username: str, status: int) -> OperationFailed:
    text = rmcp.STATUS_TEXT.get(status, f"status 0x{status:02x}")
    if status in rmcp.LOGIN_STATUS:
        return login_refused(where, username, text)
    if status in rmcp.ROLE_STATUS:
        refused = login_refused(where, username, text)
        return RoleRefused(refused.message, hint="give its user the rights of an operator")
    if status in rmcp.SUITE_STATUS:
        return SuiteRefused(f"cannot open an IPMI session with {where}: {text}")
    if status in rmcp.FULL_STATUS:
        return NoSession(f"cannot open an IPMI session with {where}: {text}")
    return OperationFailed(f"cannot open an IPMI session with {where}: {text}")
