"""What the next boot is by: the override of the boot source of a ComputerSystem (DSP0268, Boot), at
the system itself or at its Settings resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from layercake.kraken.errors import OperationFailed
from powerman.driver import NotNow, Unsupported
from powerman.redfish.connection import RedfishConnection
from powerman.redfish.facts import boots_by, link, mapping
from powerman.settings import BmcSpec

_TARGET = "BootSourceOverrideTarget"
_ENABLED = "BootSourceOverrideEnabled"
_MODE = "BootSourceOverrideMode"
_URI = "HttpBootUri"
_ALLOWED = "@Redfish.AllowableValues"


def choose_target(
    system: Mapping[str, Any], settings: Mapping[str, Any], targets: tuple[str, ...]
) -> str:
    """The first of `targets` that a system, or its Settings resource, says can be set; the first of
    all where neither says what can be. "" if it can be none of them."""
    allowed: set[str] = set()
    for resource in (system, settings):
        boot = mapping(resource.get("Boot"))
        values = boot.get(f"{_TARGET}{_ALLOWED}") or boot.get("BootSourceOverrideSupported")
        if isinstance(values, list):
            allowed |= {str(value) for value in values}
    return next((one for one in targets if one in allowed or not allowed), "")


def override(
    boot: Mapping[str, Any], target: str, firmware: str, uri: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what to set in a Boot so that the next boot, only that one, is by `target`, the same without
    the mode). A mode that holds already is left out, and so is one that cannot be set: many
    services refuse all of a request for it."""
    changes: dict[str, Any] = {_TARGET: target, _ENABLED: "Once"}
    if uri or boot.get(_URI):
        changes[_URI] = uri or None
    mode = "UEFI" if firmware == "uefi" else "Legacy"
    modes = boot.get(f"{_MODE}{_ALLOWED}")
    settable = not isinstance(modes, list) or not modes or mode in modes
    if boot.get(_MODE) != mode and settable:
        return {**changes, _MODE: mode}, changes
    return changes, changes


class RedfishBoot:
    """The boot source override of one system, which `system` reads with its path."""

    def __init__(
        self,
        spec: BmcSpec,
        connection: RedfishConnection,
        system: Callable[[], Awaitable[tuple[str, Mapping[str, Any]]]],
    ) -> None:
        self._spec = spec
        self._connection = connection
        self._system = system

    async def set(self, what: str, targets: tuple[str, ...], uri: str = "") -> None:
        """Makes the next boot, only that one, by the first of `targets` that the system knows.
        `what` is for errors. Raises as RedfishConnection.request, Unsupported if it knows none."""
        where = self._spec.where
        path, system = await self._system()
        settings_path, settings = await self._settings(system)
        target = choose_target(system, settings, targets)
        if not target:
            raise Unsupported(f"cannot {what} at {where}: it cannot boot by {' or '.join(targets)}")
        boot = mapping(system.get("Boot"))
        settings_boot = mapping(settings.get("Boot"))
        if _TARGET in settings_boot:
            path = settings_path
            boot = settings_boot
        if uri and _URI not in boot:
            raise Unsupported(f"cannot {what} at {where}: it has no {_URI}")
        changes, without_mode = override(boot, target, self._spec.firmware, uri)
        try:
            await self._connection.patch(path, {"Boot": changes})
        except NotNow:
            raise
        except OperationFailed:
            if changes == without_mode:
                raise
            await self._connection.patch(path, {"Boot": without_mode})

    async def is_set(self) -> bool | None:
        """Whether the next boot is by what the inventory says, by the system or by the Settings
        resource, where many services keep what they take over as the machine starts; None of a
        system that has no override."""
        _, system = await self._system()
        by_system = boots_by(system, self._spec.boot)
        if by_system:
            return True
        _, settings = await self._settings(system)
        by_settings = boots_by(settings, self._spec.boot)
        return by_system if by_settings is None else by_settings or by_system

    async def _settings(self, system: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The Settings resource of a system (DSP0266, section 10.10), if it has one that can be
        read."""
        path = link(mapping(system.get("@Redfish.Settings")).get("SettingsObject"))
        if not path:
            return "", {}
        try:
            return path, await self._connection.request("GET", path)
        except (OperationFailed, NotNow):
            return "", {}
