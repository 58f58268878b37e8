"""Sensors of a Redfish chassis, in each shape that services have them: Thermal and Power (until
2020), ThermalSubsystem, PowerSubsystem and EnvironmentMetrics (since then), and the Sensors
collection (DSP0268, DSP2064)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from layercake.kraken.errors import OperationFailed
from powerman.driver import POWER_DRAW, LoginRefused, NotNow, Sensor
from powerman.redfish.connection import RedfishConnection
from powerman.redfish.facts import items, link, mapping, number

_HEALTH = ("ok", "warning", "critical")
_UNITS = {"Cel": "°C", "Percent": "%"}
_MOST_NAME = 80


def health_of(resource: Mapping[str, Any]) -> str:
    """ok, warning, critical or unknown."""
    health = str(mapping(resource.get("Status")).get("Health")).lower()
    return health if health in _HEALTH else "unknown"


def redfish_temperatures(thermal: Mapping[str, Any]) -> list[Sensor]:
    """Of a Thermal."""
    found = []
    for one in _present(thermal.get("Temperatures")):
        value = number(one.get("ReadingCelsius", one.get("CurrentReading")))
        found.append(Sensor(_name(one, "Temperature"), value, "°C", health_of(one)))
    return found


def redfish_fans(thermal: Mapping[str, Any]) -> list[Sensor]:
    """Of a Thermal; iLO 4 has the names of before 2016."""
    found = []
    for one in _present(thermal.get("Fans")):
        value = number(one.get("Reading", one.get("CurrentReading")))
        unit = str(one.get("ReadingUnits") or one.get("Units") or "")
        found.append(Sensor(_name(one, "Fan"), value, unit[:16], health_of(one)))
    return found


def redfish_draw(power: Mapping[str, Any]) -> list[Sensor]:
    """What a chassis draws (Power, PowerControl, PowerConsumedWatts), and what its power supplies
    give."""
    found = []
    for one in items(power.get("PowerControl")):
        found += _reading(POWER_DRAW, one.get("PowerConsumedWatts"), "W", health_of(one))
    for one in items(power.get("PowerSupplies")):
        name = _name(one, "Power supply")
        found += _reading(name, one.get("LastPowerOutputWatts"), "W", health_of(one))
    return found


def redfish_metrics(metrics: Mapping[str, Any], name: str) -> list[Sensor]:
    """Of an EnvironmentMetrics, that of a chassis called `name`."""
    return [
        *_reading(POWER_DRAW, _value(metrics.get("PowerWatts")), "W"),
        *_reading(
            f"{name} temperature"[:_MOST_NAME], _value(metrics.get("TemperatureCelsius")), "°C"
        ),
    ]


def redfish_thermal_metrics(metrics: Mapping[str, Any]) -> list[Sensor]:
    """Of a ThermalMetrics: each temperature, or where only the summary is filled in, that."""
    found: list[Sensor] = []
    for one in items(metrics.get("TemperatureReadingsCelsius")):
        found += _reading(_name(one, "Temperature"), one.get("Reading"), "°C")
    if not found:
        for place, one in mapping(metrics.get("TemperatureSummaryCelsius")).items():
            found += _reading(str(place)[:_MOST_NAME], _value(one), "°C")
    return found


def redfish_fan(fan: Mapping[str, Any]) -> list[Sensor]:
    """Of a Fan: turns per minute where it says them, else percent."""
    speed = mapping(fan.get("SpeedPercent"))
    name = _name(fan, "Fan")
    turns = number(speed.get("SpeedRPM"))
    if turns is not None:
        return [Sensor(name, turns, "RPM", health_of(fan))]
    return [Sensor(name, number(speed.get("Reading")), "%", health_of(fan))]


def redfish_sensor(sensor: Mapping[str, Any]) -> list[Sensor]:
    """Of a Sensor."""
    unit = str(sensor.get("ReadingUnits") or "")
    value = number(sensor.get("Reading"))
    name = POWER_DRAW if _is_total_power(sensor) else _name(sensor, "Sensor")
    return [Sensor(name, value, _UNITS.get(unit, unit)[:16], health_of(sensor))]


def _is_total_power(sensor: Mapping[str, Any]) -> bool:
    return (
        sensor.get("ReadingType") == "Power"
        and sensor.get("PhysicalContext") == "Chassis"
        and sensor.get("ElectricalContext") in (None, "Total")
    )


class RedfishSensors:
    """Reads the sensors of all chassis of a service."""

    def __init__(self, connection: RedfishConnection) -> None:
        self._connection = connection

    async def read(self, chassis_path: str) -> list[Sensor]:
        """Those of the chassis in a collection. A chassis, or a part of one, that cannot be read is
        left out; raises what was wrong if nothing can be read."""
        found: list[Sensor] = []
        failure: Exception | None = None
        async for member in self._connection.members(chassis_path):
            try:
                path = link(member)
                chassis = await self._connection.request("GET", path) if path else {}
                found += await self._of_chassis(chassis)
            except LoginRefused:
                raise
            except (OperationFailed, NotNow) as error:
                failure = error
        if not found and failure is not None:
            raise failure
        return found

    async def _of_chassis(self, chassis: Mapping[str, Any]) -> list[Sensor]:
        thermal = await self._resource(chassis.get("Thermal"))
        found = [*redfish_temperatures(thermal), *redfish_fans(thermal)]
        if not found:
            found = await self._of_thermal_subsystem(chassis)
        power = redfish_draw(await self._resource(chassis.get("Power")))
        if not power:
            power = await self._of_power_subsystem(chassis)
        if not any(one.unit == "°C" for one in found):
            path = link(chassis.get("Sensors"))
            names = {one.name for one in (*found, *power)}
            async for sensor in self._parts(path):
                found += [one for one in redfish_sensor(sensor) if one.name not in names]
        return found + power

    async def _of_thermal_subsystem(self, chassis: Mapping[str, Any]) -> list[Sensor]:
        subsystem = await self._resource(chassis.get("ThermalSubsystem"))
        metrics = await self._resource(subsystem.get("ThermalMetrics"))
        found = redfish_thermal_metrics(metrics)
        async for fan in self._parts(link(subsystem.get("Fans"))):
            found += redfish_fan(fan)
        return found

    async def _of_power_subsystem(self, chassis: Mapping[str, Any]) -> list[Sensor]:
        metrics = await self._resource(chassis.get("EnvironmentMetrics"))
        found = redfish_metrics(metrics, _name(chassis, "Chassis"))
        subsystem = await self._resource(chassis.get("PowerSubsystem"))
        async for supply in self._parts(link(subsystem.get("PowerSupplies"))):
            measured = await self._resource(supply.get("Metrics"))
            watts = _value(measured.get("OutputPowerWatts"))
            found += _reading(_name(supply, "Power supply"), watts, "W", health_of(supply))
        return found

    async def _resource(self, target: object) -> Mapping[str, Any]:
        """What a link leads to; {} without one, and of what cannot be read."""
        path = link(target)
        try:
            return await self._connection.request("GET", path) if path else {}
        except LoginRefused:
            raise
        except (OperationFailed, NotNow):
            return {}

    async def _parts(self, path: str) -> Any:
        """The resources of a collection that can be read; none of one that cannot."""
        try:
            async for _, resource in self._connection.resources(path):
                yield resource
        except LoginRefused:
            raise
        except (OperationFailed, NotNow):
            return


def _present(value: object) -> Iterator[Mapping[str, Any]]:
    """The entries of a list whose part is there."""
    for one in items(value):
        if mapping(one.get("Status")).get("State") != "Absent":
            yield one


def _name(resource: Mapping[str, Any], otherwise: str) -> str:
    keys = ("Name", "FanName", "DeviceName", "MemberId", "Id")
    names = (resource.get(key) for key in keys)
    return next((one for one in names if isinstance(one, str) and one), otherwise)[:_MOST_NAME]


def _value(excerpt: object) -> object:
    """The reading of an excerpt of a Sensor."""
    return mapping(excerpt).get("Reading")


def _reading(name: str, value: object, unit: str, health: str = "unknown") -> list[Sensor]:
    """One sensor, none without a number."""
    reading = None if isinstance(value, str) else number(value)
    return [] if reading is None else [Sensor(name, reading, unit, health)]
