"""Which driver a BMC's record names, and what all drivers share."""

from __future__ import annotations

from dataclasses import dataclass

from layercake.base.lease import Permit, always
from powerman.driver import PowerDriver
from powerman.drivers.command import CommandDriver, Programs
from powerman.drivers.sim import SimDriver, SimLine
from powerman.inventory import COMMAND, SIM
from powerman.ipmi.driver import IpmiDriver
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.settings import BmcSpec


@dataclass(slots=True)
class Shared:
    """What the drivers share. `permit` is asked before anything is sent that switches a machine."""

    web: Web
    pool: PyghmiPool
    sim: SimLine
    programs: Programs
    permit: Permit = always

    async def close(self) -> None:
        """Ends what is open."""
        await self.web.close()
        await self.sim.close()


def make_driver(spec: BmcSpec, shared: Shared) -> PowerDriver:
    """The driver that a BMC's record names."""
    if spec.driver == "redfish":
        return RedfishDriver(spec, shared.web, shared.permit)
    if spec.driver == COMMAND:
        return CommandDriver(spec, shared.programs, shared.permit)
    if spec.driver == SIM:
        return SimDriver(spec, shared.sim, shared.permit)
    return IpmiDriver(spec, shared.pool, shared.permit)
