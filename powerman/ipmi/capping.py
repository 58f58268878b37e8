"""How much a machine may draw, by DCMI's power limit (DCMI 1.5, section 6.6: Get Power Limit, Set
Power Limit, Activate/Deactivate). Frames, and who asks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from layercake.kraken.errors import OperationFailed
from powerman.driver import Unsupported
from powerman.ipmi.facts import DCMI
from powerman.ipmi.session import Session

_GET = 0x03
_SET = 0x04
_ACTIVATE = 0x05
_GROUP = 0xDC
_NONE_SET = 0x80  # completion code of Get Power Limit: there is one, and it does not hold
# group, what happens beyond it, watts, ms to get below it, s that are averaged
_LIMIT = struct.Struct("<B2xBHI2xH")
_SET_LIMIT = struct.Struct("<B3xBHI2xH")
_HARD_OFF = 0x01  # what nobody wants of a cap that is exceeded
_LOG_ONLY = 0x11  # what harms nobody
_CORRECTION_MS = 1000
_SAMPLING_S = 1
_WHY = {
    0x84: "it does not cap at so many watts",
    0x85: "it cannot be below it so soon",
    0x89: "it averages over another time",
    0xC9: "it does not cap at so many watts",
    0xD4: "our user may not",
}
_ABSENT = (0xC1, 0xCC, 0xD6)


def dcmi_limit(code: int, answer: bytes) -> int | None:
    """The limit that holds, in watts, in an answer to Get Power Limit; None if none does. Raises
    OperationFailed for what makes no sense."""
    if code == _NONE_SET:
        return None
    if len(answer) < _LIMIT.size or answer[0] != _GROUP:
        raise OperationFailed("its answer about the power limit makes no sense")
    return int(_LIMIT.unpack_from(answer)[2])


def dcmi_request(watts: int, before: bytes) -> bytes:
    """Set Power Limit: all but the watts as it was, if that is known; a machine that goes beyond it
    is never switched off."""
    _, action, _, correction, sampling = (
        _LIMIT.unpack_from(before) if len(before) >= _LIMIT.size else (0, 0, 0, 0, 0)
    )
    action = _LOG_ONLY if action == _HARD_OFF else action
    return _SET_LIMIT.pack(
        _GROUP, action, watts, correction or _CORRECTION_MS, sampling or _SAMPLING_S
    )


class DcmiCap:
    """See PowerCap."""

    def __init__(
        self, where: str, session: Callable[[], AbstractAsyncContextManager[Session | None]]
    ) -> None:
        self._where = where
        self._session = session

    async def read(self) -> int | None:
        """Asks for the power limit."""
        async with self._session() as session:
            return dcmi_limit(*await self._limit(session))

    async def set(self, watts: int | None) -> None:
        """Sets it and has it hold, or hold no more."""
        async with self._session() as session:
            code, before = await self._limit(session)
            if session is None or (watts is None and code == _NONE_SET):
                return
            if watts is not None:
                await self._command(session, _SET, dcmi_request(watts, before))
            await self._command(session, _ACTIVATE, bytes((_GROUP, int(watts is not None), 0, 0)))

    async def _limit(self, session: Session | None) -> tuple[int, bytes]:
        code, answer = (
            await session.tried(DCMI, _GET, bytes((_GROUP, 0, 0))) if session else (_ABSENT[0], b"")
        )
        if code in _ABSENT:
            raise Unsupported(
                f"cannot cap the power at {self._where}: the BMC has no power limit (DCMI)"
            )
        if code not in (0, _NONE_SET):
            raise OperationFailed(f"cannot read the power cap at {self._where}: {_why(code)}")
        return code, answer

    async def _command(self, session: Session, command: int, data: bytes) -> None:
        code, _ = await session.tried(DCMI, command, data)
        if code:
            raise (Unsupported if code in _ABSENT else OperationFailed)(
                f"cannot cap the power at {self._where}: {_why(code)}"
            )


def _why(code: int) -> str:
    return _WHY.get(code, f"the BMC answers 0x{code:02x}")
