"""How much a machine may draw, by its BMC: DCMI's power limit, or Redfish's of a chassis. Facts and
frames, and who asks.

IPMI: DCMI 1.5, section 6.6: Get Power Limit, Set Power Limit, Activate/Deactivate. Redfish,
DSP2046: Power.PowerControl.PowerLimit, or what has come in its place,
EnvironmentMetrics.PowerLimitWatts.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from layercake.kraken.errors import OperationFailed
from powerman.bmc import ManagedBmc
from powerman.driver import PowerCap, Unsupported
from powerman.looks.draw import DCMI
from powerman.looks.look import link_of
from powerman.rmcp_session import Session

_GET, _SET, _ACTIVATE = 0x03, 0x04, 0x05
_GROUP = 0xDC
_NONE_SET = 0x80  # completion code of Get Power Limit: there is one, and it does not hold
_LIMIT = struct.Struct(
    "<B2xBHI2xH"
)  # group, what happens beyond it, watts, ms to get below it, s that are averaged
_SET_LIMIT = struct.Struct("<B3xBHI2xH")
_HARD_OFF, _LOG_ONLY = 0x01, 0x11  # beyond it: what nobody wants of a cap, and what harms nobody
_CORRECTION_MS, _SAMPLING_S = 1000, 1
_WHY = {
    0x84: "it does not cap at so many watts",
    0x85: "it cannot be below it so soon",
    0x89: "it averages over another time",
    0xC9: "it does not cap at so many watts",
    0xD4: "our user may not",
}
_ABSENT = (0xC1, 0xCC, 0xD6)
_PAUSE_S = 0.5
_DIALECTS = ("Power", "EnvironmentMetrics")


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
        self._where, self._session = where, session

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
                await self._told(session, _SET, dcmi_request(watts, before))
            await self._told(session, _ACTIVATE, bytes((_GROUP, int(watts is not None), 0, 0)))

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

    async def _told(self, session: Session, command: int, data: bytes) -> None:
        code, _ = await session.tried(DCMI, command, data)
        if code:
            raise (Unsupported if code in _ABSENT else OperationFailed)(
                f"cannot cap the power at {self._where}: {_why(code)}"
            )


def _why(code: int) -> str:
    return _WHY.get(code, f"the BMC answers 0x{code:02x}")


def redfish_limit(resource: Mapping[str, Any]) -> tuple[bool, int | None]:
    """(whether it has a limit that can be set, the watts of one that holds) of a Power or
    EnvironmentMetrics."""
    control, metric = _control(resource)[1], resource.get("PowerLimitWatts")
    if control is not None:
        return True, _watts(control["PowerLimit"].get("LimitInWatts"))
    if isinstance(metric, Mapping) and "SetPoint" in metric:
        return True, None if metric.get("ControlMode") == "Disabled" else _watts(
            metric.get("SetPoint")
        )
    return False, None


def redfish_request(resource: Mapping[str, Any], watts: int | None) -> dict[str, Any]:
    """What is to be changed of it; entries of a list that stay are empty (DSP0266, section 7.8)."""
    number, control = _control(resource)
    if control is not None:
        return {
            "PowerControl": [*({} for _ in range(number)), {"PowerLimit": {"LimitInWatts": watts}}]
        }
    return {
        "PowerLimitWatts": {"ControlMode": "Disabled"}
        if watts is None
        else {"ControlMode": "Automatic", "SetPoint": watts}
    }


def _control(resource: Mapping[str, Any]) -> tuple[int, Mapping[str, Any] | None]:
    found = resource.get("PowerControl")
    for number, one in enumerate(found if isinstance(found, list) else ()):
        if isinstance(one, Mapping) and isinstance(one.get("PowerLimit"), Mapping):
            return number, one
    return 0, None


def _watts(value: object) -> int | None:
    return (
        round(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        else None
    )


class _Request(Protocol):
    def __call__(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing: str = "",
        headers: Mapping[str, str] = {},
    ) -> Awaitable[Mapping[str, Any]]: ...


class RedfishCap:
    """See PowerCap."""

    def __init__(
        self, where: str, system: Callable[[], Awaitable[Mapping[str, Any]]], request: _Request
    ) -> None:
        self._where, self._system, self._request = where, system, request

    async def read(self) -> int | None:
        """Reads the limit of the system's chassis."""
        return redfish_limit((await self._resource())[1])[1]

    async def set(self, watts: int | None) -> None:
        """Changes it."""
        path, found = await self._resource()
        tag = found.get("@odata.etag")
        await self._request(
            "PATCH",
            path,
            redfish_request(found, watts),
            headers={"If-Match": tag} if isinstance(tag, str) else {},
        )

    async def _resource(self) -> tuple[str, Mapping[str, Any]]:
        missing = "it has no power limit"
        system = await self._system()
        chassis = link_of(system.get("Links"), "Chassis")
        facts = await self._request("GET", chassis, missing=missing) if chassis else {}
        for dialect in _DIALECTS:
            if path := link_of({dialect: [facts.get(dialect)]}, dialect):
                found = await self._request("GET", path, missing=missing)
                if redfish_limit(found)[0]:
                    return path, found
        raise Unsupported(f"cannot cap the power at {self._where}: {missing}")


async def read_cap(bmc: ManagedBmc) -> int | None:
    """How many watts a node may draw, None for as many as it likes. Inside a turn. Raises
    LayercakeError, Unsupported above all."""
    return await bmc.ask(_of(bmc).read)


async def set_cap(bmc: ManagedBmc, watts: int | None) -> int | None:
    """Caps what a node draws, and returns what the BMC says then. Inside a turn. Raises as
    `read_cap`, and OperationFailed for one that takes the command and goes on saying something
    else."""
    cap, until = _of(bmc), bmc.clock.now() + bmc.spec.timeout_s
    await bmc.ask(lambda: cap.set(watts))
    while (found := await bmc.ask(cap.read)) != watts:
        if bmc.clock.now() >= until:
            says = "none" if found is None else f"{found} W"
            raise OperationFailed(
                f"cannot cap the power of {bmc.spec.name}: the BMC at {bmc.spec.where} took the "
                "command, and "
                f"still says {says}"
            )
        await bmc.clock.sleep(_PAUSE_S)
    return found


def _of(bmc: ManagedBmc) -> PowerCap:
    if bmc.driver.cap is None:
        raise Unsupported(
            f"cannot cap the power of {bmc.spec.name}: driver {bmc.spec.driver} has no such thing"
        )
    return bmc.driver.cap
