"""What is answered about power."""

from __future__ import annotations

import msgspec


class PowerShown(msgspec.Struct):
    """What a BMC says; `error` says why it cannot."""

    node: str
    driver: str | None
    address: str | None
    power: str
    error: str | None


class PowerList(msgspec.Struct):
    """What the BMCs say."""

    power: list[PowerShown]


class Reading(msgspec.Struct):
    """A sensor. `value` null: it has none now; `health` is ok, warning, critical, failed or
    unknown."""

    name: str
    value: float | None
    unit: str
    health: str


class SensorsShown(msgspec.Struct):
    """What a machine's sensors say: what it draws, the hottest place, the slowest fan, the worst
    health; `error`: why nothing is known."""

    node: str
    error: str
    watts: float | None
    hottest: float | None
    hottest_name: str
    slowest_fan: float | None
    health: str
    readings: list[Reading]


class SensorList(msgspec.Struct):
    """Sensors of nodes."""

    sensors: list[SensorsShown]


class CapShown(msgspec.Struct):
    """How many watts a node may draw by its BMC; null for as many as it likes, or where `error`
    says why that is not known."""

    node: str
    watts: int | None
    error: str


class CapList(msgspec.Struct):
    """Power caps of nodes."""

    nodes: list[CapShown]


class SetupShown(msgspec.Struct):
    """A BMC: where the inventory has it, where it is, in what it is not as wanted, and whether that
    was changed."""

    node: str
    address: str
    now: str
    lines: list[str]
    done: bool
    error: str


class SetupList(msgspec.Struct):
    """BMCs that are set up from inside."""

    nodes: list[SetupShown]


class Accepted(msgspec.Struct):
    """Whether it is done to a node."""

    node: str
    accepted: bool
    why: str


class AcceptedList(msgspec.Struct):
    """What becomes of each node."""

    nodes: list[Accepted]
