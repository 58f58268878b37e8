"""The part of Redfish that sushy does: finding out what a service offers, boot devices with their
vendors' quirks, sensors, logs.

Everything here blocks and runs in a thread. What keeps it from hanging: one attempt per request,
and a limit on each wait. sushy as it comes would try ten times, three seconds apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import sushy
from sushy import auth, connector, exceptions

from layercake.kraken.errors import OperationFailed
from powerman.driver import LogEntry, Sensor, Unsupported, login_refused, unreachable
from powerman.medium import is_ours
from powerman.redfish.facts import Targets, redfish_draw
from powerman.settings import BmcSpec

Result = TypeVar("Result")

PATIENCE = 4.0
"""So many times timeout_s for the answer of a service that has taken the connection: some think for
ten seconds."""
_BOOT_SOURCES = (
    ({sushy.VirtualMediaType.CD, sushy.VirtualMediaType.DVD}, sushy.BootSource.CD),
    ({sushy.VirtualMediaType.USB_STICK}, sushy.BootSource.USB),
)
"""What the boot medium can be, best first: its image is that of a CD and of a stick."""
_HEALTH = {"OK": "ok", "Warning": "warning", "Critical": "critical"}


class SushyClient:
    """One service by sushy; used by one thread at a time."""

    def __init__(self, spec: BmcSpec) -> None:
        self._spec = spec
        self._root: Any = None
        self._system: Any = None

    def targets(self) -> Targets:
        """Finds the system and what it can do. Raises Unreachable, LoginRefused,
        OperationFailed."""

        def find() -> Targets:
            system = self._find_system()
            action = system.json.get("Actions", {}).get("#ComputerSystem.Reset", {})
            if not action.get("target"):
                raise Unsupported(
                    f"cannot control power at {self._spec.where}: the system has no reset action"
                )
            types = frozenset(
                str(value.value) for value in system.get_allowed_reset_system_values() or ()
            )
            return Targets(_path(system.path), _path(action["target"]), types)

        return self._guard("discover the system", find)

    def boot_network(self) -> None:
        """Sets the boot device for the next boot. Raises Unreachable, LoginRefused, Unsupported,
        OperationFailed."""

        def set_boot() -> None:
            self._find_system().set_system_boot_options(
                target=sushy.BootSource.PXE,
                enabled=sushy.BootSourceOverrideEnabled.ONCE,
                mode=self._mode,
            )

        self._guard("set the boot device", set_boot)

    def boot_uri(self, uri: str) -> None:
        """Sets the next boot to UEFI HTTP Boot of a URI (HttpBootUri of ComputerSystem.Boot,
        DSP0268). Raises as above."""
        self._guard(
            "set the URI to boot by",
            lambda: self._find_system().set_system_boot_options(
                target=sushy.BootSource.UEFI_HTTP,
                enabled=sushy.BootSourceOverrideEnabled.ONCE,
                mode=self._mode,
                http_boot_uri=uri,
            ),
        )

    def insert(self, url: str) -> str:
        """Asks for the medium at `url` in a virtual drive; the drive's name. Raises as above."""

        def insert_medium() -> str:
            drive, _ = self._free_drive()
            if _occupied(drive):
                drive.eject_media()
            drive.insert_media(url)
            return str(drive.identity)

        return self._guard("insert the boot medium", insert_medium)

    def holds_medium(self) -> bool:
        """Whether a medium of ours is in a drive. Raises as above."""
        return self._guard(
            "read the virtual drives", lambda: any(_holds_ours(drive) for drive in self._drives())
        )

    def boot_medium(self) -> None:
        """Sets the next boot to the drive that a medium is in, or would be. Raises as above."""

        def set_boot() -> None:
            _, source = self._free_drive()
            self._find_system().set_system_boot_options(
                target=source, enabled=sushy.BootSourceOverrideEnabled.ONCE, mode=self._mode
            )

        self._guard("boot from the virtual drive", set_boot)

    def eject(self) -> bool:
        """Takes media of ours out of all drives; whether there was one. Raises as above."""

        def eject_ours() -> bool:
            ours = [drive for drive in self._drives() if _holds_ours(drive)]
            for drive in ours:
                drive.eject_media()
            return bool(ours)

        return self._guard("eject the boot medium", eject_ours)

    def _drives(self) -> list[Any]:
        """The virtual drives as they are now. Old services have them at the manager (VirtualMedia,
        DSP0268)."""
        system = self._find_system()
        drives = _members(system) or [
            drive for manager in _or_none(lambda: system.managers) for drive in _members(manager)
        ]
        for drive in drives:
            drive.invalidate()
            drive.refresh()
        return drives

    def _free_drive(self) -> tuple[Any, Any]:
        """(drive, boot source) that a machine boots from: a CD's, or a stick's, that is empty or
        holds a medium of ours."""
        drives = self._drives()
        fit = [
            (drive, source)
            for kinds, source in _BOOT_SOURCES
            for drive in drives
            if set(drive.media_types or ()) & kinds
        ]
        if not fit:
            raise Unsupported(
                f"cannot insert the boot medium at {self._spec.where}: "
                + (
                    "its virtual drives take no CD and no USB stick"
                    if drives
                    else "it has no virtual drive"
                )
            )
        for drive, source in sorted(fit, key=lambda one: not _holds_ours(one[0])):
            if not _occupied(drive) or _holds_ours(drive):
                return drive, source
        name = str(fit[0][0].image_name or urlsplit(str(fit[0][0].image)).path)[
            -100:
        ]  # a URL may hold a password
        raise OperationFailed(
            f"cannot insert the boot medium at {self._spec.where}: its virtual drive holds "
            f"{name!r}, not ours",
            hint="somebody may need it; take it out by the BMC's own page",
        )

    @property
    def _mode(self) -> Any:
        return (
            sushy.BootSourceOverrideMode.UEFI
            if self._spec.firmware == "uefi"
            else sushy.BootSourceOverrideMode.LEGACY
        )

    def sensors(self) -> list[Sensor]:
        """Temperatures, fans and power of the system's chassis. Raises as above."""

        def read() -> list[Sensor]:
            members = self._root_service().get_chassis_collection().get_members()
            return [sensor for chassis in members for sensor in _chassis_sensors(chassis)]

        return self._guard("read the sensors", read)

    def event_log(self) -> list[LogEntry]:
        """The first log of the system that has entries. Raises Unsupported if it keeps none."""

        def read() -> list[LogEntry]:
            system = self._find_system()
            services = system.json.get("LogServices", {}).get("@odata.id")
            if not services:
                raise Unsupported(
                    f"cannot read the event log at {self._spec.where}: the system keeps none"
                )
            get = (
                system._conn.get
            )  # sushy has no log services of its own, but its connection knows how to ask
            for service in get(services).json().get("Members", ()):
                entries = get(service["@odata.id"]).json().get("Entries", {}).get("@odata.id")
                members = get(entries).json().get("Members", ()) if entries else ()
                if members:
                    return [
                        LogEntry(
                            str(m.get("Created") or ""),
                            _HEALTH.get(str(m.get("Severity")), "unknown"),
                            str(m.get("Message") or ""),
                        )
                        for m in members
                    ]
            return []

        return self._guard("read the event log", read)

    def close(self) -> None:
        """Drops the connection."""
        if self._root is not None:
            self._root._conn.close()
        self._root = self._system = None

    def _hang_up(self) -> None:
        """Ends the connection and keeps what is known: some BMCs have one at a time. The next
        request opens another."""
        if self._root is not None:
            self._root._conn.close()

    def _root_service(self) -> Any:
        if self._root is None:
            spec = self._spec
            line = connector.Connector(
                spec.address,
                verify=spec.verify_tls,
                server_side_retries=1,
                server_side_retries_delay=1,
                default_request_timeout=spec.timeout_s * PATIENCE,
                connect_timeout=min(3.0, spec.timeout_s),
            )
            try:
                self._root = sushy.Sushy(
                    spec.address, auth=auth.BasicAuth(spec.username, spec.password), connector=line
                )
            except BaseException:
                line.close()
                raise
        return self._root

    def _find_system(self) -> Any:
        if self._system is not None:
            self._system.invalidate()
            self._system.refresh()
            return self._system
        root = self._root_service()
        if self._spec.system:
            self._system = root.get_system(self._spec.system)
            return self._system
        paths = root.get_system_collection().members_identities
        if len(paths) != 1:
            raise OperationFailed(
                f"cannot choose the system at {self._spec.where}: it has {len(paths)}: "
                f"{', '.join(paths)}",
                hint="name one as bmc.system in the inventory",
            )
        self._system = root.get_system(paths[0])
        return self._system

    def _guard(self, what: str, work: Callable[[], Result]) -> Result:
        """Turns sushy's errors into ours; after one, the next use starts afresh."""
        try:
            result = work()
            self._hang_up()
            return result
        except exceptions.AccessError:
            self.close()
            raise login_refused(self._spec.where, self._spec.username) from None
        except exceptions.ConnectionError as error:
            self.close()
            raise unreachable(self._spec.where, _plain(error)) from None
        except (
            exceptions.InvalidParameterValueError,
            exceptions.MissingActionError,
            exceptions.MissingAttributeError,
        ) as error:
            raise Unsupported(f"cannot {what} at {self._spec.where}: {_plain(error)}") from None
        except (exceptions.SushyError, OSError, ValueError, KeyError) as error:
            self.close()
            raise OperationFailed(f"cannot {what} at {self._spec.where}: {_plain(error)}") from None


def _occupied(drive: Any) -> bool:
    """Whether something is in a drive; one that does not say so is asked what it is."""
    return bool(drive.image or drive.image_name) if drive.inserted is None else bool(drive.inserted)


def _holds_ours(drive: Any) -> bool:
    return _occupied(drive) and (is_ours(drive.image) or is_ours(drive.image_name))


def _members(owner: Any) -> list[Any]:
    return list(_or_none(lambda: owner.virtual_media.get_members()))


def _or_none(find: Callable[[], Any]) -> Any:
    """What is found, () of a service that has no such thing."""
    try:
        return find() or ()
    except (exceptions.MissingAttributeError, exceptions.ResourceNotFoundError):
        return ()


def _chassis_sensors(chassis: Any) -> list[Sensor]:
    sensors: list[Sensor] = []
    with contextlib.suppress(
        exceptions.MissingAttributeError, exceptions.ResourceNotFoundError
    ):  # a chassis need not measure
        thermal = chassis.thermal
        for t in thermal.temperatures or ():
            sensors.append(Sensor(str(t.name), _number(t.reading_celsius), "°C", _health(t)))
        for fan in thermal.fans or ():
            unit = getattr(fan.reading_units, "value", None) or ""
            sensors.append(Sensor(str(fan.name), _number(fan.reading), str(unit), _health(fan)))
    with contextlib.suppress(exceptions.MissingAttributeError, exceptions.ResourceNotFoundError):
        sensors += redfish_draw(chassis.power.json)
    return sensors


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _health(item: Any) -> str:
    health = getattr(item.status, "health", None)
    return _HEALTH.get(str(getattr(health, "value", health)), "unknown")


def _path(url: str) -> str:
    """The path of a link, so that a service cannot send our password to another host."""
    return urlsplit(url).path


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
