"""How much a machine may draw, by the power limit of a Redfish chassis (DSP2046):
Power.PowerControl.PowerLimit, or what has come in its place, EnvironmentMetrics.PowerLimitWatts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from powerman.driver import Unsupported
from powerman.redfish.connection import RedfishConnection
from powerman.redfish.facts import link, link_of

_DIALECTS = ("Power", "EnvironmentMetrics")


def redfish_limit(resource: Mapping[str, Any]) -> tuple[bool, int | None]:
    """(whether it has a limit that can be set, the watts of one that holds) of a Power or
    EnvironmentMetrics."""
    control = _control(resource)[1]
    metric = resource.get("PowerLimitWatts")
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
    controls = resource.get("PowerControl")
    for number, one in enumerate(controls if isinstance(controls, list) else ()):
        if isinstance(one, Mapping) and isinstance(one.get("PowerLimit"), Mapping):
            return number, one
    return 0, None


def _watts(value: object) -> int | None:
    return (
        round(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        else None
    )


class RedfishCap:
    """See PowerCap."""

    def __init__(
        self,
        where: str,
        system: Callable[[], Awaitable[Mapping[str, Any]]],
        connection: RedfishConnection,
    ) -> None:
        self._where = where
        self._system = system
        self._connection = connection

    async def read(self) -> int | None:
        """Reads the limit of the system's chassis."""
        return redfish_limit((await self._resource())[1])[1]

    async def set(self, watts: int | None) -> None:
        """Changes it."""
        path, resource = await self._resource()
        await self._connection.patch(path, redfish_request(resource, watts))

    async def _resource(self) -> tuple[str, Mapping[str, Any]]:
        missing = "it has no power limit"
        system = await self._system()
        chassis = link_of(system.get("Links"), "Chassis")
        facts = await self._connection.request("GET", chassis, missing=missing) if chassis else {}
        for dialect in _DIALECTS:
            if path := link(facts.get(dialect)):
                resource = await self._connection.request("GET", path, missing=missing)
                if redfish_limit(resource)[0]:
                    return path, resource
        raise Unsupported(f"cannot cap the power at {self._where}: {missing}")
