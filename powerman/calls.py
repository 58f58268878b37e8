"""What powerman can be asked about a node's BMC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from layercake.kraken.errors import Refused, Unreachable
from layercake.moduleapi.module import Call, NodeRequest, Role, call
from powerman import capping
from powerman.addresses import ip_in
from powerman.console.calls import CONSOLE_CALLS, Nothing
from powerman.driver import LogEntry, Sensor, Unsupported
from powerman.hardware import Fact
from powerman.inspect.inspection import InspectedBmc
from powerman.inspect.latency import DriverLatency
from powerman.inspect.scan import PAGE, FoundBmc
from powerman.inventory import COMMAND

MOST_WATTS = 65535
"""DCMI has two bytes for them."""
READING_S = 10.0
"""Seconds for which a BMC is waited for."""

if TYPE_CHECKING:
    from powerman.service import PowerService


@call("power.status", role=Role.VIEWER, answer=dict[str, Any])
async def status(service: PowerService, request: NodeRequest) -> dict[str, Any]:
    """The power state that the BMC says now, or why it cannot be asked."""
    return await service.status(request.node)


@call("power.refresh", role=Role.OPERATOR, answer=dict[str, Any])
async def refresh(service: PowerService, request: NodeRequest) -> dict[str, Any]:
    """Read the power state from the BMC, and tell the state engine."""
    return await service.status(request.node, tell=True)


@call("power.sensors", role=Role.VIEWER, answer=list[Sensor])
async def sensors(service: PowerService, request: NodeRequest) -> list[Sensor]:
    """The BMC's sensors: temperatures, fans, voltages, power supplies."""
    async with service.asking(request.node) as bmc:
        return await bmc.run(bmc.driver.sensors)


@call("power.reading", role=Role.OPERATOR, answer=list[Sensor], inside=True)
async def reading(service: PowerService, request: NodeRequest) -> list[Sensor]:
    """The BMC's sensors, if it answers and nobody is at it: for numbers that are read all the
    time."""
    bmc = service.bmc_of(request.node)
    if bmc.outage is not None:
        raise Unreachable(bmc.outage.why)
    if not bmc.idle:
        raise Refused(f"cannot read the sensors of {bmc.spec.name}: somebody is at its BMC")
    async with bmc.turn(READING_S):
        return await bmc.run(bmc.driver.sensors)


@call("power.log", role=Role.OPERATOR, answer=list[LogEntry])
async def log(service: PowerService, request: NodeRequest) -> list[LogEntry]:
    """The BMC's event log, oldest first."""
    async with service.asking(request.node) as bmc:
        return await bmc.run(bmc.driver.event_log)


@call("power.hardware", role=Role.OPERATOR, answer=list[Fact])
async def hardware(service: PowerService, request: NodeRequest) -> list[Fact]:
    """What the BMC knows of the machine's parts: makers, models, serial numbers, versions of
    firmware."""
    async with service.asking(request.node) as bmc:
        return await bmc.run(bmc.driver.hardware)


class Cap(msgspec.Struct, kw_only=True):
    """How many watts a machine may draw by its BMC, null for no cap."""

    watts: int | None


@call("power.cap", role=Role.VIEWER, answer=Cap)
async def cap(service: PowerService, request: NodeRequest) -> Cap:
    """How many watts the machine may draw, by its BMC."""
    async with service.asking(request.node) as bmc:
        return Cap(watts=await capping.read_cap(bmc))


class CapRequest(NodeRequest, kw_only=True):
    """How many watts the machine may draw, null for as many as it likes."""

    watts: Annotated[int, Meta(ge=1, le=MOST_WATTS)] | None


@call("power.set-cap", role=Role.OPERATOR, request=CapRequest, answer=Cap, inside=True)
async def set_cap(service: PowerService, request: CapRequest) -> Cap:
    """Have the BMC cap what the machine draws, and see that it does."""
    async with service.asking(request.node) as bmc:
        return Cap(watts=await capping.set_cap(bmc, request.watts))


@call("power.latency", role=Role.OPERATOR, request=Nothing, answer=list[DriverLatency], inside=True)
async def latency(service: PowerService, request: Nothing) -> list[DriverLatency]:
    """How long operations of BMCs take, by driver."""
    return service.latencies.view()


class InspectRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """For how many seconds BMCs may be waited for, all together."""

    limit_s: Annotated[float, Meta(ge=1, le=15)] = 15.0


@call("power.look", role=Role.OPERATOR, request=InspectRequest, answer=list[InspectedBmc])
async def inspect_bmcs(service: PowerService, request: InspectRequest) -> list[InspectedBmc]:
    """Look at all BMCs, without changing anything: whether they answer and take the login, their
    clocks, what the next boot is."""
    return await service.inspect_bmcs(request.limit_s)


class ScanRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which IPv4 addresses are asked; no more than can be at a bounded rate before the answer is
    waited for too long."""

    addresses: Annotated[list[Annotated[str, Meta(max_length=15)]], Meta(max_length=PAGE)]


@call("power.scan", role=Role.OPERATOR, request=ScanRequest, answer=list[FoundBmc])
async def scan(service: PowerService, request: ScanRequest) -> list[FoundBmc]:
    """Ask addresses whether a BMC is there, by IPMI and Redfish, without a login; whether it is one
    of a node's."""
    return await service.scan(request.addresses)


class PasswordRequest(NodeRequest, kw_only=True):
    """The password that the user of the inventory shall have at the node's BMC."""

    password: Annotated[str, Meta(min_length=12, max_length=20)]


@call(
    "power.password", role=Role.ADMIN, request=PasswordRequest, answer=dict[str, Any], inside=True
)
async def password(service: PowerService, request: PasswordRequest) -> dict[str, Any]:
    """Give the user of a node's BMC another password, and see that it is taken."""
    return await service.set_password(request.node, request.password)


@call("power.log-in", role=Role.ADMIN, answer=dict[str, Any], inside=True)
async def log_in(service: PowerService, request: NodeRequest) -> dict[str, Any]:
    """Log in at the BMC of a node anew, by what the inventory says."""
    await service.log_in(request.node)
    return {}


class Login(msgspec.Struct, kw_only=True):
    """With what a BMC takes us in. `address` is "" for one that the inventory gives by a name;
    `password` is a secret."""

    address: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.address!r}, {self.username!r})"


@call("power.login", role=Role.ADMIN, answer=Login, inside=True)
async def login(service: PowerService, request: NodeRequest) -> Login:
    """The address, user and password that the inventory says of a node's BMC."""
    spec = service.spec(request.node)
    if spec.driver == COMMAND:
        raise Unsupported(
            f"cannot set up the BMC of {spec.name}: the inventory says none, its power is switched "
            "by a program"
        )
    return Login(address=ip_in(spec.address), username=spec.username, password=spec.password)


CALLS: tuple[Call, ...] = (
    status,
    refresh,
    sensors,
    reading,
    log,
    hardware,
    cap,
    set_cap,
    inspect_bmcs,
    scan,
    password,
    log_in,
    login,
    latency,
    *CONSOLE_CALLS,
)
