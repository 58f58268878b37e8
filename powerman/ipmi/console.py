"""Consoles by Serial over LAN: opened with a session of their own, kept alive, and given back."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from powerman.driver import Listener, NoSession, Taken, Unsupported
from powerman.ipmi import rmcp
from powerman.ipmi.session import Session
from powerman.ipmi.sol import Sol, parse_activated

KEEP_S = 10.0
"""How often a console is asked whether it is still ours; BMCs end a session of which nothing comes
for 30 to 60 s."""
_APP = 0x06
_GET_DEVICE = 0x01
_SESSION_INFO = 0x3D
_USER_NAME = 0x46
_ACTIVATE = 0x48
_DEACTIVATE = 0x49
_INSTANCE = 0x4B
_OURS = bytes((rmcp.SOL, 1))  # payload type and instance
_ENCRYPTED = b"\xc0\0\0\0"  # both ways encrypted and authenticated (table 24-2)
_ACTIVE = 0x80
_DISABLED = 0x81
_LIMIT = 0x82
_NO_ENCRYPTION = 0x83
_UNKNOWN = (0xC1, 0xC9, 0xCC, 0xD6)
_BY_SESSION_ID = b"\xff"

_TAKE_HINT = "`layercake console NODE --take` takes it from them"
_ON_HINT = "switch it on there: ipmitool sol set enabled true; or say `console: off` of its bmc"


class SolSource:
    """The console of one IPMI BMC. `login` opens a session that is nobody else's."""

    def __init__(self, where: str, login: Callable[[], Awaitable[Session]]) -> None:
        self._where = where
        self._login = login
        self._open: SolStream | None = None
        self._opening: Session | None = None

    async def open(self, listener: Listener, *, take: bool = False) -> SolStream:
        """See ConsoleSource."""
        session = self._opening = await self._login()
        try:
            self._open = await self._activated(session, listener, take)
            if self._opening is None:
                raise NoSession(
                    f"cannot open the console at {self._where}: its session is needed for the power"
                )
        except BaseException:
            session.leave()
            session.line.done()
            raise
        finally:
            self._opening = None
        return self._open

    def give_way(self) -> bool:
        """Ends a console that is open, or being opened, because its session is needed for something
        else; whether there was one."""
        stream = self._open
        opening = self._opening
        self._open = None
        self._opening = None
        if opening is not None:
            opening.leave()
        return opening is not None or (stream is not None and stream.give_way())

    async def _activated(self, session: Session, listener: Listener, take: bool) -> SolStream:
        code, answer = await session.tried(_APP, _ACTIVATE, _OURS + _ENCRYPTED)
        if code in (_ACTIVE, _LIMIT) and take:
            await session.tried(_APP, _DEACTIVATE, _OURS + bytes(4))
            code, answer = await session.tried(_APP, _ACTIVATE, _OURS + _ENCRYPTED)
        if code in (_ACTIVE, _LIMIT):
            by = await holder(session) or "another session"
            raise Taken(
                f"cannot open the console at {self._where}: {by} has it", by=by, hint=_TAKE_HINT
            )
        if code == _DISABLED or code in _UNKNOWN:
            why = (
                "Serial over LAN is switched off there"
                if code in (_DISABLED, 0xD6)
                else "it has no Serial over LAN"
            )
            raise Unsupported(f"cannot open the console at {self._where}: {why}", hint=_ON_HINT)
        if code == _NO_ENCRYPTION:
            raise Unsupported(f"cannot open the console at {self._where}: it does not encrypt it")
        if code:
            why = rmcp.COMPLETION_TEXT.get(code, "no explanation")
            raise OperationFailed(
                f"cannot open the console at {self._where}: the BMC answers 0x{code:02x}, {why}"
            )
        try:
            room = parse_activated(answer).room
        except rmcp.Malformed as error:
            raise OperationFailed(
                f"cannot open the console at {self._where}: the BMC's {error} makes no sense"
            ) from None
        return SolStream(self._where, session, Sol(room), listener)


class SolStream:
    """An open console; see ConsoleStream."""

    def __init__(self, where: str, session: Session, sol: Sol, listener: Listener) -> None:
        self._where = where
        self._session = session
        self._sol = sol
        self._listener = listener
        self._now = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._over: OperationFailed | None = None
        self._ours = True  # whether the console is
        self._left = False  # whether the session is gone
        self._tells_whose = True  # some do not know Get Payload Instance Info
        session.hear_payload(rmcp.SOL, self._packet_received)

    async def run(self) -> None:
        """See ConsoleStream."""
        keep_at = self._now() + KEEP_S
        while True:
            if self._over is not None:
                raise self._over
            if self._sol.stuck:
                raise OperationFailed(
                    f"cannot write to the console at {self._where}: the BMC takes nothing"
                )
            if packet := self._sol.due(self._now()):
                self._session.send_payload(rmcp.SOL, packet)
            if self._now() >= keep_at:
                await self._still_ours()
                keep_at = self._now() + KEEP_S
                continue
            again = self._sol.again_at
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(keep_at if again is None else min(keep_at, again)):
                    await self._wake.wait()

    def write(self, data: bytes) -> int:
        """See ConsoleStream."""
        taken = self._sol.write(data)
        self._wake.set()
        return taken

    def send_break(self) -> None:
        """See ConsoleStream."""
        self._sol.send_break()
        self._wake.set()

    def give_way(self) -> bool:
        """Frees the session now, and has `run` end; whether it was going on."""
        if self._over is not None:
            return False
        self._over = NoSession(
            f"cannot keep the console at {self._where} open: its session is needed for the power"
        )
        self._session.leave()
        self._left = True
        self._wake.set()
        return True

    async def close(self) -> None:
        """See ConsoleStream."""
        self._session.line.unasked = None
        left = self._left
        self._left = True
        try:
            # One that does not answer drops the session by itself.
            with contextlib.suppress(LayercakeError, TimeoutError):
                async with asyncio.timeout(KEEP_S):
                    if not left and self._ours:  # of another's console this would be the end
                        await self._session.tried(_APP, _DEACTIVATE, _OURS + bytes(4))
                    if not left:
                        await self._session.close()
        finally:
            self._session.line.done()

    def _packet_received(self, payload: bytes) -> None:
        """A packet came. Most carry something and want nothing but their acknowledgement."""
        received = self._sol.receive(payload, self._now())
        if received.send:
            self._session.send_payload(rmcp.SOL, received.send)
        if received.lost:
            self._listener.lost(received.lost)
        if received.data:
            self._listener.received(received.data)
        if received.ended and self._over is None:
            self._ours = False
            self._over = OperationFailed(
                f"cannot keep the console at {self._where} open: the BMC has ended it"
            )
        if received.ended or self._sol.again_at is not None:
            self._wake.set()

    async def _still_ours(self) -> None:
        """Asks who has the console, which keeps the session too. Raises Taken, Unreachable,
        OperationFailed."""
        if not self._tells_whose:
            await self._session.command(_APP, _GET_DEVICE, user=True)
            return
        code, answer = await self._session.tried(_APP, _INSTANCE, _OURS)
        if code or len(answer) < 4:
            self._tells_whose = False
        elif answer[:4] == bytes(4):
            self._ours = False
            raise OperationFailed(
                f"cannot keep the console at {self._where} open: the BMC has ended it"
            )
        elif answer[:4] not in (self._session.id, self._session.id[::-1]):
            self._ours = False
            by = await holder(self._session) or "another session"
            raise Taken(
                f"cannot keep the console at {self._where}: {by} has taken it",
                by=by,
                hint=_TAKE_HINT,
            )


async def holder(session: Session) -> str:
    """Who has the console, as far as the BMC tells: the user and the address of that session
    (sections 24.6, 22.20, 22.29)."""
    with contextlib.suppress(Unreachable, OperationFailed):
        code, instance = await session.tried(_APP, _INSTANCE, _OURS)
        if code or len(instance) < 4 or instance[:4] == bytes(4):
            return ""
        code, facts = await session.tried(_APP, _SESSION_INFO, _BY_SESSION_ID + instance[:4])
        if code or len(facts) < 6:
            return ""
        code, name = await session.tried(_APP, _USER_NAME, bytes((facts[3] & 0x3F,)))
        user = name.split(b"\0")[0].decode("ascii", "replace") if not code else ""
        address = (
            str(ipaddress.IPv4Address(facts[6:10])) if len(facts) >= 10 and any(facts[6:10]) else ""
        )
        session_owner = " at ".join(filter(None, (f"user {user!r}" if user else "", address)))
        return session_owner or "another session"
    return ""
