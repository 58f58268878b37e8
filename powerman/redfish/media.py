"""The virtual drives of a Redfish service (DSP0268, VirtualMedia)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from layercake.kraken.errors import OperationFailed
from powerman.driver import Unsupported
from powerman.medium import is_ours
from powerman.redfish.boot import RedfishBoot
from powerman.redfish.connection import NoSuchPath, RedfishConnection
from powerman.redfish.facts import link, mapping

_CD = frozenset({"CD", "DVD"})
_STICK = frozenset({"USBStick"})
_SOURCES = ((_CD, ("Cd",)), (_STICK, ("Usb",)))
"""What the boot medium can be, best first, and what a machine boots from it by: its image is that
of a CD and of a stick."""
_INCOMPLETE = frozenset({400, 422})
_MORE: tuple[Mapping[str, Any], ...] = (
    {},
    {"TransferProtocolType": "HTTP"},  # Cisco, Fujitsu
    {"TransferProtocolType": "HTTP", "TransferMethod": "Stream"},  # Dell, Lenovo
    {"TransferProtocolType": "HTTP", "UserName": "none", "Password": "none"},  # NVIDIA
)
"""What an insertion is asked with, one after the other: some services want more than the schema
does, and some refuse it."""

Drive = tuple[str, Mapping[str, Any]]
"""The path of a virtual drive, and what it says."""


class RedfishDrives:
    """See VirtualDrive. `owners` reads the system, and then its managers, by path."""

    def __init__(
        self,
        where: str,
        connection: RedfishConnection,
        owners: Callable[[], Awaitable[list[Mapping[str, Any]]]],
        boot: RedfishBoot,
    ) -> None:
        self._where = where
        self._connection = connection
        self._owners = owners
        self._boot = boot

    async def insert(self, url: str) -> str:
        """See VirtualDrive."""
        (path, drive), _ = self._free(await self._drives())
        if occupied(drive):
            await self._eject(path, drive)
        target = _action(drive, "InsertMedia")
        if not target:
            await self._connection.patch(
                path, {"Image": url, "Inserted": True, "WriteProtected": True}
            )
            return str(drive.get("Id") or path)[:80]
        for more in _MORE:
            answer = await self._connection.send("POST", target, {"Image": url, **more})
            if answer.status not in _INCOMPLETE:
                break
        self._connection.check(answer, "POST", target)
        return str(drive.get("Id") or path)[:80]

    async def holds(self) -> bool:
        """See VirtualDrive."""
        return any(_holds_ours(drive) for _, drive in await self._drives())

    async def boot(self) -> None:
        """See VirtualDrive. On Supermicro a virtual CD boots as UsbCd only, though Cd is offered
        too."""
        (_, _), targets = self._free(await self._drives())
        system = (await self._owners())[0]
        if targets == ("Cd",):
            supermicro = str(system.get("Manufacturer") or "").lower() == "supermicro"
            targets = ("UsbCd", "Cd") if supermicro else ("Cd", "UsbCd")
        await self._boot.set("boot from the virtual drive", targets)

    async def eject(self) -> bool:
        """See VirtualDrive."""
        ours = [(path, drive) for path, drive in await self._drives() if _holds_ours(drive)]
        for path, drive in ours:
            await self._eject(path, drive)
        return bool(ours)

    async def _eject(self, path: str, drive: Mapping[str, Any]) -> None:
        target = _action(drive, "EjectMedia")
        if not target:
            await self._connection.patch(path, {"Image": None, "Inserted": False})
            return
        answer = await self._connection.send("POST", target)
        if answer.status in (400, 411, 415):  # HPE wants an empty object
            answer = await self._connection.send("POST", target, {})
        self._connection.check(answer, "POST", target)

    async def _drives(self) -> list[Drive]:
        """The virtual drives as they are now. Old services have them at the manager."""
        for owner in await self._owners():
            path = link(owner.get("VirtualMedia"))
            with contextlib.suppress(NoSuchPath):  # some name what they do not have
                drives = [one async for one in self._connection.resources(path)] if path else []
                if drives:
                    return drives
        return []

    def _free(self, drives: list[Drive]) -> tuple[Drive, tuple[str, ...]]:
        """(drive, boot sources) that a machine boots from: a CD's, or a stick's, that is empty or
        holds a medium of ours."""
        fit = [
            (drive, sources)
            for kinds, sources in _SOURCES
            for drive in drives
            if kinds & _kinds(drive[1])
        ]
        if not fit:
            raise Unsupported(
                f"cannot insert the boot medium at {self._where}: "
                + (
                    "its virtual drives take no CD and no USB stick"
                    if drives
                    else "it has no virtual drive"
                )
            )
        for drive, sources in sorted(fit, key=lambda one: not _holds_ours(one[0][1])):
            if not occupied(drive[1]) or _holds_ours(drive[1]):
                return drive, sources
        raise OperationFailed(
            f"cannot insert the boot medium at {self._where}: its virtual drive holds "
            f"{_medium_name(fit[0][0][1])!r}, not ours",
            hint="somebody may need it; take it out by the BMC's own page",
        )


def occupied(drive: Mapping[str, Any]) -> bool:
    """Whether something is in a drive; one that does not say so is asked what it is."""
    inserted = drive.get("Inserted")
    if isinstance(inserted, bool):
        return inserted
    return bool(drive.get("Image") or drive.get("ImageName"))


def _holds_ours(drive: Mapping[str, Any]) -> bool:
    return occupied(drive) and (is_ours(drive.get("Image")) or is_ours(drive.get("ImageName")))


def _kinds(drive: Mapping[str, Any]) -> set[str]:
    kinds = drive.get("MediaTypes")
    return {str(kind) for kind in kinds} if isinstance(kinds, list) else set()


def _medium_name(drive: Mapping[str, Any]) -> str:
    """What is in a drive, for people: never a whole URL, which may hold a password."""
    name = drive.get("ImageName")
    if isinstance(name, str) and name and "/" not in name:
        return name[-100:]
    try:
        return urlsplit(str(drive.get("Image") or name or "")).path.rpartition("/")[2][-100:]
    except ValueError:
        return ""


def _action(drive: Mapping[str, Any], name: str) -> str:
    return link(mapping(mapping(drive.get("Actions")).get(f"#VirtualMedia.{name}")).get("target"))
