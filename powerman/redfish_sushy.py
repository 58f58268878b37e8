"""The part of Redfish that sushy does: finding out what a service offers, boot devices with their vendors' quirks, sensors, logs.

Everything here blocks and runs in a thread. What keeps it from hanging: one attempt per request, and a limit on each wait. sushy as
it comes would try ten times, three seconds apart.
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
from powerman.redfish_facts import Targets
from powerman.settings import BmcSpec

Result = TypeVar("Result")

PATIENCE = 4.0
"""So many times timeout_s for the answer of a service that has taken the connection: some think for ten seconds."""
_HEALTH = {"OK": "ok", "Warning": "warning", "Critical": "critical"}


class SushyClient:
    """One service by sushy; used by one thread at a time."""

    def __init__(self, spec: BmcSpec) -> None:
        self._spec = spec
        self._root: Any = None
        self._system: Any = None

    def targets(self) -> Targets:
        """Finds the system and what it can do. Raises Unreachable, LoginRefused, OperationFailed."""
        def find() -> Targets:
            system = self._find_system()
            action = system.json.get("Actions", {}).get("#ComputerSystem.Reset", {})
            if not action.get("target"):
                raise Unsupported(f"cannot control power at {self._spec.where}: the system has no reset action")
            types = frozenset(str(value.value) for value in system.get_allowed_reset_system_values() or ())
            return Targets(_path(system.path), _path(action["target"]), types)
        return self._guard("discover the system", find)

    def boot_network(self) -> None:
        """Sets the boot device for the next boot. Raises Unreachable, LoginRefused, Unsupported, OperationFailed."""
        uefi = self._spec.firmware == "uefi"

        def put() -> None:
            self._find_system().set_system_boot_options(
                target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE,
                mode=sushy.BootSourceOverrideMode.UEFI if uefi else sushy.BootSourceOverrideMode.LEGACY)
        self._guard("set the boot device", put)

    def sensors(self) -> list[Sensor]:
        """Temperatures and fans of the system's chassis. Raises as above."""
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
                raise Unsupported(f"cannot read the event log at {self._spec.where}: the system keeps none")
            get = system._conn.get      # sushy has no log services of its own, but its connection knows how to ask
            for service in get(services).json().get("Members", ()):
                entries = get(service["@odata.id"]).json().get("Entries", {}).get("@odata.id")
                members = get(entries).json().get("Members", ()) if entries else ()
                if members:
                    return [LogEntry(str(m.get("Created") or ""), _HEALTH.get(str(m.get("Severity")), "unknown"),
                                     str(m.get("Message") or "")) for m in members]
            return []
        return self._guard("read the event log", read)

    def close(self) -> None:
        """Drops the connection."""
        if self._root is not None:
            self._root._conn.close()
        self._root = self._system = None

    def _hang_up(self) -> None:
        """Ends the connection and keeps what is known: some BMCs have one at a time. The next request opens another."""
        if self._root is not None:
            self._root._conn.close()

    def _root_service(self) -> Any:
        if self._root is None:
            spec = self._spec
            line = connector.Connector(spec.address, verify=spec.verify_tls, server_side_retries=1, server_side_retries_delay=1,
                                       default_request_timeout=spec.timeout_s * PATIENCE, connect_timeout=min(3.0, spec.timeout_s))
            try:
                self._root = sushy.Sushy(spec.address, auth=auth.BasicAuth(spec.username, spec.password), connector=line)
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
            raise OperationFailed(f"cannot choose the system at {self._spec.where}: it has {len(paths)}: {', '.join(paths)}",
                                  hint="name one as bmc.system in the inventory")
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
        except (exceptions.InvalidParameterValueError, exceptions.MissingActionError, exceptions.MissingAttributeError) as error:
            raise Unsupported(f"cannot {what} at {self._spec.where}: {_plain(error)}") from None
        except (exceptions.SushyError, OSError, ValueError, KeyError) as error:
            self.close()
            raise OperationFailed(f"cannot {what} at {self._spec.where}: {_plain(error)}") from None


def _chassis_sensors(chassis: Any) -> list[Sensor]:
    found: list[Sensor] = []
    with contextlib.suppress(exceptions.MissingAttributeError, exceptions.ResourceNotFoundError):    # a chassis need not measure
        thermal = chassis.thermal
        for t in thermal.temperatures or ():
            found.append(Sensor(str(t.name), _number(t.reading_celsius), "°C", _health(t)))
        for fan in thermal.fans or ():
            unit = getattr(fan.reading_units, "value", None) or ""
            found.append(Sensor(str(fan.name), _number(fan.reading), str(unit), _health(fan)))
    return found


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
