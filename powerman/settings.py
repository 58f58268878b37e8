"""powerman's settings and what it is told about each BMC, checked once at the door."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from layercake.kraken.errors import InputError

_DEFAULT_PORT = {"ipmi": 623, "redfish": 443}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one BMC may be asked, so that a weak one is not trampled on and a dead one is left alone."""

    rate_per_s: float = 4.0         # operations per second in the long run
    burst: float = 8.0              # operations at once after a quiet time
    failures: int = 2               # unanswered operations in a row until it is left alone
    rest_s: float = 4.0             # how long it is left alone at first; doubles with each further failure
    rest_max_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """The service's settings."""

    poll_s: float = 30.0            # every BMC is read this often
    workers: int = 16               # operations on answering BMCs at the same time
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PowerSettings:
        """Checks the settings that the head sent. Raises InputError naming the setting."""
        return cls(
            poll_s=_number(raw, "poll_s", cls().poll_s, low=0.05),
            workers=int(_number(raw, "workers", cls().workers, low=1)),
            limits=_limits(raw.get("limits") or {}),
        )


def _limits(raw: Mapping[str, Any]) -> Limits:
    known: dict[str, Any] = {f.name: f.default for f in fields(Limits)}
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise InputError(f"cannot use powerman's limits: {unknown[0]!r} is not one of {', '.join(known)}")
    values = {name: _number(raw, name, float(default), low=0.01) for name, default in known.items()}
    return Limits(**{**values, "failures": max(1, int(values["failures"]))})  # type: ignore[arg-type]  # all are numbers, one an int


def _number(raw: Mapping[str, Any], name: str, default: float, low: float) -> float:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < low:
        raise InputError(f"cannot use {name}={value!r}: expected a number of at least {low}")
    return float(value)


@dataclass(frozen=True, slots=True)
class BmcSpec:
    """How to reach one BMC. The password is never part of its printed form."""

    node: str                       # the head's id of the node
    name: str                       # its name, for people
    driver: str
    address: str                    # IPMI: a host or address; Redfish: the root of the service, "https://10.0.0.1:8000"
    port: int
    username: str
    password: str = field(repr=False)
    firmware: str = "bios"          # "bios" or "uefi": the mode of a network boot
    system: str | None = None       # Redfish: the path of the system, when the service has several
    verify_tls: bool | str = True   # or the path of a CA file
    cipher_suite: int | None = None  # IPMI: 3 or 17; None tries 17, then 3
    timeout_s: float = 8.0          # for one operation on the BMC

    @property
    def where(self) -> str:
        """The BMC's address for people."""
        return self.address if self.driver == "redfish" else f"{self.address}:{self.port}"

    @classmethod
    def from_record(cls, node: str, record: Mapping[str, Any]) -> BmcSpec:
        """Checks a node's record. Raises InputError, which never quotes the password."""
        bmc, name = record.get("bmc"), str(record.get("name") or node)
        if not isinstance(bmc, Mapping):
            raise InputError(f"cannot manage the power of {name}: it has no bmc", hint="give it a bmc in the inventory")
        driver = bmc.get("driver")
        if driver not in _DEFAULT_PORT:
            raise InputError(f"cannot manage the power of {name}: bmc.driver is {driver!r}, expected {' or '.join(_DEFAULT_PORT)}")
        address, password = bmc.get("address"), bmc.get("password")
        if not isinstance(address, str) or not address:
            raise InputError(f"cannot manage the power of {name}: bmc.address is {address!r}, expected a host or URL")
        if not isinstance(password, str):
            raise InputError(f"cannot manage the power of {name}: bmc.password is missing")
        port = int(_number({"bmc.port": bmc.get("port") or _DEFAULT_PORT[driver]}, "bmc.port", 0, low=1))
        suite = bmc.get("cipher_suite")
        if suite not in (None, 3, 17):
            raise InputError(f"cannot manage the power of {name}: bmc.cipher_suite is {suite!r}, expected 3 or 17")
        if driver == "ipmi" and len(password.encode()) > 20:
            raise InputError(f"cannot manage the power of {name}: its bmc.password is longer than the 20 bytes that IPMI allows")
        verify = bmc.get("verify_tls")
        return cls(
            node=node, name=name, driver=driver, port=port,
            address=_url(address, port, bmc.get("port")) if driver == "redfish" else address,
            username=str(bmc.get("username") or ""), password=password,
            firmware="uefi" if record.get("firmware") == "uefi" else "bios",
            system=bmc.get("system") or None, verify_tls=True if verify is None else verify, cipher_suite=suite,
            timeout_s=_number({"bmc.timeout_s": bmc.get("timeout_s") or 8.0}, "bmc.timeout_s", 8.0, low=0.1),
        )


def _url(address: str, port: int, given: object) -> str:
    """The root URL of a Redfish service from a URL or a bare host."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}:{port}" if given else f"https://{host}"
