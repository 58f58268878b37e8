"""Redfish BMCs: what is done with one, by the requests of `connection.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from layercake.base.lease import Permit, always
from layercake.kraken.errors import OperationFailed
from powerman.driver import (
    Inspection,
    LogEntry,
    NotNow,
    PowerState,
    Sensor,
    Unsupported,
    VirtualDrive,
)
from powerman.hardware import Fact
from powerman.health import Health
from powerman.redfish.boot import RedfishBoot
from powerman.redfish.capping import RedfishCap
from powerman.redfish.connection import ROOT, NoSuchPath, RedfishConnection
from powerman.redfish.console import RedfishSource
from powerman.redfish.facts import (
    RESET_ACTION,
    Targets,
    allowed_resets,
    choose_reset,
    link,
    link_of,
    mapping,
    parse_power,
    parse_targets,
    progress,
    redfish_boot,
    redfish_clock,
    redfish_facts,
    redfish_health,
)
from powerman.redfish.logs import RedfishLogs
from powerman.redfish.media import RedfishDrives
from powerman.redfish.sensors import RedfishSensors
from powerman.redfish.web import Web, tls_context
from powerman.settings import BmcSpec

_CONSOLE_MESSAGE = 1 << 16
_ACCOUNTS = f"{ROOT}AccountService/Accounts"


class RedfishDriver:
    """One Redfish BMC; see `driver.PowerDriver` for what the methods mean. `connection` is the
    service, if it is another than that of `spec`."""

    def __init__(
        self,
        spec: BmcSpec,
        web: Web,
        permit: Permit = always,
        connection: RedfishConnection | None = None,
    ) -> None:
        self._spec = spec
        self._web = web
        self._connection = connection or RedfishConnection(spec, web, permit)
        self._targets: Targets | None = None
        self.progress = ""
        self.health = Health()
        self.console = RedfishSource(spec.where, self._system, self._socket)
        self.cap = RedfishCap(spec.where, self._system, self._connection)
        self._boot = RedfishBoot(spec, self._connection, self._system_with_path)
        self._drives = RedfishDrives(spec.where, self._connection, self._owners, self._boot)

    @property
    def answer_s(self) -> float:
        """See PowerDriver."""
        return self._connection.slowest

    async def state(self) -> PowerState:
        """Reads the power state."""
        system = await self._system()
        self.progress = progress(system)
        self.health = redfish_health(system)
        return parse_power(system, self._spec.where)

    async def on(self) -> None:
        """Asks for power on."""
        await self._reset("on")

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off."""
        await self._reset("soft" if soft else "off")

    async def cycle(self) -> None:
        """Asks for off and on again."""
        await self._reset("cycle")

    async def reset(self) -> None:
        """Asks for a hard reset."""
        await self._reset("reset")

    async def boot_network(self) -> None:
        """Makes the next boot a network boot."""
        await self._boot.set("set the boot device", ("Pxe",))

    async def boot_uri(self, uri: str) -> None:
        """Makes the next boot UEFI HTTP Boot of a URI."""
        await self._boot.set("set the URI to boot by", ("UefiHttp",), uri)

    @property
    def drive(self) -> VirtualDrive:
        """Its VirtualMedia."""
        return self._drives

    async def boots_as_told(self) -> bool | None:
        """Reads the override of the boot source; None of a system that has none."""
        return await self._boot.is_set()

    async def sensors(self) -> list[Sensor]:
        """Reads temperatures, fans and power of all chassis."""
        root = await self._connection.request("GET", ROOT)
        path = link(root.get("Chassis")) or f"{ROOT}Chassis"
        return await RedfishSensors(self._connection).read(path)

    async def event_log(self) -> list[LogEntry]:
        """Reads the log of the hardware."""
        return await RedfishLogs(self._spec.where, self._connection).read(await self._owners())

    async def hardware(self) -> list[Fact]:
        """Reads the system and its manager."""
        system, *managers = await self._owners()
        return redfish_facts(system, managers[0] if managers else {})

    async def log_mark(self) -> None:
        """Redfish has no such question."""

    async def inspect(self) -> Inspection:
        """Reads the boot override of the system and the clock of its manager."""
        system, *managers = await self._owners()
        clock = redfish_clock(managers[0]) if managers else None
        device, mode, modes, network = redfish_boot(system, self._spec.boot)
        return Inspection(clock=clock, device=device, mode=mode, modes=modes, network=network)

    async def set_password(self, new: str) -> None:
        """Sets the password of our own account (ManagerAccount, DSP0266 section 13.3.7)."""
        accounts = await self._connection.request(
            "GET", _ACCOUNTS, missing="it has no accounts that could be changed"
        )
        async for path, account in self._connection.resources(link(accounts) or _ACCOUNTS):
            if account.get("UserName") == self._spec.username:
                await self._connection.patch(path, {"Password": new})
                return
        raise Unsupported(
            f"cannot set the password at {self._spec.where}: it names no account of our user"
        )

    async def close(self) -> None:
        """Ends our session; connections belong to the shared client."""
        await self._connection.close()

    async def request(self, method: str, path: str) -> Mapping[str, Any]:
        """One request with our login, see RedfishConnection."""
        return await self._connection.request(method, path)

    async def _system(self) -> Mapping[str, Any]:
        return (await self._system_with_path())[1]

    async def _system_with_path(self) -> tuple[str, Mapping[str, Any]]:
        """(path, the system as it is now). Its path is looked for again when there is nothing
        there: it has another one after a firmware update, say."""
        targets = await self._discovered()
        try:
            return targets.system, await self._connection.request("GET", targets.system)
        except NoSuchPath:
            self._targets = None
            raise

    async def _owners(self) -> list[Mapping[str, Any]]:
        """The system, and its managers that can be read: services have logs and virtual drives at
        the one or the other."""
        system = await self._system()
        path = link_of(system.get("Links"), "ManagedBy")
        try:
            if path:
                return [system, await self._connection.request("GET", path)]
            managers = self._connection.resources(f"{ROOT}Managers")
            return [system, *[manager async for _, manager in managers]]
        except (OperationFailed, NotNow):
            return [system]

    async def _socket(self, path: str) -> aiohttp.ClientWebSocketResponse:
        secure = (
            tls_context(self._spec.verify_tls) if self._spec.address.startswith("https:") else True
        )
        async with asyncio.timeout(self._connection.answer_limit):
            return await self._web.session.ws_connect(
                self._connection.url(path),
                ssl=secure,
                headers=self._connection.login(),
                heartbeat=20.0,
                max_msg_size=_CONSOLE_MESSAGE,
            )

    async def _discovered(self) -> Targets:
        """Where the system is and what it can do."""
        if self._targets is None:
            path = self._spec.system or await self._only_system()
            system = await self._connection.request("GET", path)
            targets = parse_targets(path, system)
            action = mapping(mapping(system.get("Actions")).get(RESET_ACTION))
            info = link(action.get("@Redfish.ActionInfo"))
            if info and not targets.reset_types:
                try:
                    known = allowed_resets(await self._connection.request("GET", info))
                except (OperationFailed, NotNow):
                    known = frozenset()
                targets = Targets(path, targets.reset, known)
            self._targets = targets
        return self._targets

    async def _only_system(self) -> str:
        """The path of the only system. Raises OperationFailed if there are others, or none."""
        root = await self._connection.request("GET", ROOT)
        systems = link(root.get("Systems")) or f"{ROOT}Systems"
        paths = [link(one) async for one in self._connection.members(systems)]
        if len(paths) != 1 or not paths[0]:
            raise OperationFailed(
                f"cannot choose the system at {self._spec.where}: it has {len(paths)}: "
                f"{', '.join(paths)}"[:400],
                hint="name one as bmc.system in the inventory",
            )
        return paths[0]

    async def _reset(self, action: str) -> None:
        targets = await self._discovered()
        if not targets.reset:
            self._targets = None  # it may not have been there yet: the BMC was starting
            raise Unsupported(
                f"cannot control power at {self._spec.where}: the system has no reset action"
            )
        reset = choose_reset(action, targets, self._spec.where)
        await self._connection.request("POST", targets.reset, {"ResetType": reset})
