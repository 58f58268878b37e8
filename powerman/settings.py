"""powerman's settings and what it is told about each BMC, checked once at the door."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import nearest, show
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import LABEL, NEWER, Check, Mistake
from powerman import inventory
from powerman.addresses import PLACE, key_of
from powerman.inventory import COMMAND, DEFAULT_PORTS, LONGEST_S, SIM, TIMEOUT_S, Bmc


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one BMC may be asked, so that a weak one is not overloaded and a dead one is left
    alone."""

    rate_per_s: Annotated[
        float, Meta(ge=0.01, description="Operations per second in the long run.")
    ] = 4.0
    burst: Annotated[float, Meta(ge=0.01, description="Operations at once after a quiet time.")] = (
        8.0
    )
    failures: Annotated[
        int, Meta(ge=1, description="Unanswered operations in a row until it is left alone.")
    ] = 2
    rest_s: Annotated[
        float,
        Meta(
            ge=0.01,
            description="Seconds it is left alone at first; twice as long with each further "
            "failure.",
        ),
    ] = 4.0
    rest_max_s: Annotated[
        float,
        Meta(
            ge=0.01,
            description="Seconds it is left alone at most; after refused logins 30 times as "
            "long, for accounts lock.",
        ),
    ] = 60.0


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines' serial consoles."""

    keep: Annotated[
        Literal["log", "attach", "off"],
        Meta(
            description="log: each is open all the time and kept in a file; attach: open while "
            "somebody looks at it; off: never. "
            "`bmc.console` in the inventory says it for single nodes."
        ),
    ] = "log"
    file_mib: Annotated[
        int,
        Meta(
            ge=1, le=1024, description="MiB that one node's log may have, with the file before it."
        ),
    ] = 4
    total_mib: Annotated[
        int,
        Meta(
            ge=16,
            le=1 << 20,
            description="MiB that all logs may have; each gets its part of them, if that is less.",
        ),
    ] = 2048


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the site's own that switches machines."""

    path: Annotated[
        str,
        Check(inventory.program_path),
        Meta(
            description="Where it is on this machine, from the root. Nobody but root may be able "
            "to change it."
        ),
    ]
    timeout_s: Annotated[
        float,
        Meta(
            ge=1,
            le=LONGEST_S,
            description="Seconds that one run may take; then it is killed. More gives every step "
            "of the "
            "nodes' power more time, in proportion.",
        ),
    ] = TIMEOUT_S
    at_once: Annotated[
        int, Meta(ge=1, le=256, description="How many of it run at the same time, for all nodes.")
    ] = 8


class PowerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power by BMCs."""

    poll_s: Annotated[
        float, Meta(ge=0.05, description="Every BMC is read each so many seconds.")
    ] = 30.0
    events_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            extra=NEWER,
            description="Every BMC's event log is looked at each so many seconds, and what is new "
            "becomes "
            "an event; 0 is never.",
        ),
    ] = 600.0
    workers: Annotated[
        int, Meta(ge=1, description="Operations on answering BMCs at the same time.")
    ] = 16
    read_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            extra=NEWER,
            description="Seconds for finding out whether a node is on. A BMC that "
            "has shown that it is slow is given up to six times as long for this, and for the next "
            "two.",
        ),
    ] = 15.0
    on_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            extra=NEWER,
            description="Seconds for switching a node on, until its BMC says so.",
        ),
    ] = 50.0
    off_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            extra=NEWER,
            description="Seconds for switching a node off, until its BMC says so.",
        ),
    ] = 30.0
    media_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            extra=NEWER,
            description="TCP port that BMCs fetch the boot medium from; 0 for any. It is open only "
            "while "
            "one is lent, on the address that the BMC is reached from.",
        ),
    ] = 8445
    limits: Annotated[Limits, Meta(description="What one BMC may be asked.")] = Limits()
    console: Annotated[
        ConsoleSettings, Meta(extra=NEWER, description="The machines' serial consoles.")
    ] = ConsoleSettings()
    programs: Annotated[
        dict[str, Program],
        Meta(
            extra=NEWER,
            description="Programs that switch machines, by the names that "
            "`bmc.program` in the inventory says.",
        ),
    ] = {}


def check(settings: PowerSettings) -> None:
    """Raises Mistake for what the inventory could not name."""
    for name in settings.programs:
        if not LABEL.fullmatch(name):
            raise Mistake(
                f"power.programs: {show(name)} is no name for a program",
                "lower case letters, digits and -, as apc-pdu",
            )


def patience_s(settings: PowerSettings, bmc: Bmc | BmcSpec) -> float:
    """Seconds that one operation on a BMC may take."""
    program = settings.programs.get(bmc.program)
    return bmc.timeout_s if program is None else program.timeout_s


def of_site(spec: BmcSpec, settings: PowerSettings) -> BmcSpec:
    """A BMC with what config.yaml says of its program. Raises InputError for a program that is not
    there."""
    if spec.program and spec.program not in settings.programs:
        raise InputError(
            f"cannot manage the power of {spec.name}: config.yaml has no program {spec.program!r} "
            "in power.programs",
            hint=nearest(spec.program, settings.programs) or "name it there, and restart the head",
        )
    return replace(spec, timeout_s=patience_s(settings, spec))


def limit_s(mutation: str, settings: PowerSettings, bmc: Bmc | BmcSpec) -> float:
    """Seconds for a step of a node's power with a BMC that answers at once, and the usual time for
    an operation. One that fetches a medium first is given twice as long to switch on."""
    usual = (
        settings.on_s
        if mutation == "power-on"
        else settings.read_s
        if mutation == "power-discover"
        else settings.off_s
    )
    fetches = mutation == "power-on" and bmc.boot == "media"
    return usual * max(1.0, patience_s(settings, bmc) / TIMEOUT_S) * (2.0 if fetches else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcSpec:
    """How to reach one BMC. The password is never part of its printed form."""

    node: str  # the head's id of the node
    name: str  # its name, for people
    driver: Literal["ipmi", "redfish", "command", "sim"]
    # IPMI: a host or address; Redfish: the root of the service, "https://10.0.0.1:8000"
    address: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # 0 in a record: as usual for the driver
    username: str = ""
    password: str = field(default="", repr=False)
    key: str = field(default="", repr=False)  # IPMI: the BMC's own key (K_g), "0x..." for hex
    firmware: str = "bios"  # "bios" or "uefi": the mode of a network boot
    system: str | None = None  # Redfish: the path of the system, when the service has several
    verify_tls: bool | str = True  # or the path of a CA file
    cipher_suite: Literal[3, 17, None] = None  # IPMI; None tries 17, then 3
    timeout_s: Annotated[float, Meta(ge=0.1, le=LONGEST_S)] = TIMEOUT_S  # for one operation
    boot: Literal["network", "media", "uri"] = "network"  # by what the next boot is
    console: Literal["", "log", "attach", "off"] = ""  # ConsoleSettings.keep, "" as settings say
    boot_uri: str = ""  # what UEFI HTTP Boot fetches
    program: str = ""  # command: its name in PowerSettings.programs
    no_medium: str = ""  # why the boot medium does not boot this node

    @property
    def key_bytes(self) -> bytes:
        """The BMC's own key (K_g), b"" for none; one of zeros is none too (section 13.33)."""
        if self.key[:2].lower() == "0x":
            return bytes.fromhex(self.key[2:]).rstrip(b"\0")
        return self.key.encode()

    @property
    def where(self) -> str:
        """The BMC's address for people."""
        if self.driver == SIM:
            return key_of(self.address, self.port, self.system)
        if self.driver == COMMAND:
            return f"{self.address} (program {self.program})"
        return self.address if self.driver == "redfish" else f"{self.address}:{self.port}"

    @classmethod
    def from_record(cls, node: str, record: Mapping[str, Any]) -> BmcSpec:
        """Checks a node's record (powerman.module.record). Raises InputError, which never quotes
        the password."""
        name = str(record.get("name") or node)
        bmc = record.get("bmc")
        if not isinstance(bmc, Mapping):
            raise InputError(
                f"cannot manage the power of {name}: it has no bmc",
                hint="give it a bmc in the inventory",
            )
        fields = {key: value for key, value in bmc.items() if value is not None}
        facts = {
            "node": node,
            "name": name,
            "firmware": "uefi" if record.get("firmware") == "uefi" else "bios",
            "boot_uri": str(record.get("boot_uri") or ""),
            "no_medium": str(record.get("no_medium") or ""),
        }
        try:
            spec = msgspec.convert({**fields, **facts}, cls)
            _check_login(spec, has_password="password" in fields)
            _check_key(spec)
            _check_boot(spec)
        except msgspec.ValidationError as error:
            what, _, field = str(error).partition(" - at `$.")
            where = f"bmc.{field.rstrip('`')}: " if field else "bmc: "
            raise InputError(f"cannot manage the power of {name}: {where}{what}") from None
        except Mistake as mistake:
            raise InputError(
                f"cannot manage the power of {name}: {mistake.message}", hint=mistake.hint
            ) from None
        port = spec.port or DEFAULT_PORTS.get(spec.driver, 1)
        if spec.driver == "redfish":
            return replace(spec, port=port, address=_url(spec.address, spec.port))
        return replace(spec, port=port)


def _check_login(spec: BmcSpec, *, has_password: bool) -> None:
    """Raises Mistake for a user or password that the driver cannot use, and for what a program
    could take for something else."""
    if spec.driver == COMMAND:
        if not LABEL.fullmatch(spec.program):
            raise Mistake(f"bmc.program is {show(spec.program)}, expected a name of power.programs")
        if not PLACE.fullmatch(spec.address):
            raise Mistake(f"bmc.address is {show(spec.address)}, which no program is told")
        if re.search(r"[\n\r\0]", spec.password):
            raise Mistake("its bmc.password has more than one line")
    elif spec.driver != SIM and not has_password:
        raise Mistake("bmc.password is missing")
    if spec.driver == "ipmi" and len(spec.password.encode()) > 20:
        raise Mistake("its bmc.password is longer than the 20 bytes that IPMI allows")


def _check_key(spec: BmcSpec) -> None:
    """Raises Mistake for a BMC key (K_g) that IPMI does not have. Never quotes it."""
    if not spec.key:
        return
    if spec.driver != "ipmi":
        raise Mistake(f"bmc.key is given, which {spec.driver} does not have")
    try:
        length = len(spec.key_bytes)
    except ValueError:
        raise Mistake("its bmc.key begins with 0x, and the rest is no hexadecimal") from None
    if length > 20:
        raise Mistake("its bmc.key is longer than the 20 bytes that IPMI allows")


def _check_boot(spec: BmcSpec) -> None:
    """Raises Mistake for a way to boot that the driver or the firmware does not have."""
    if spec.boot != "network" and spec.driver != "redfish":
        raise Mistake(f"bmc.boot is {spec.boot}, which {spec.driver} does not do")
    if spec.boot == "uri" and spec.firmware != "uefi":
        raise Mistake(
            "bmc.boot is uri, and its firmware is not uefi",
            "a BIOS has no HTTP Boot: let it boot by network or by media",
        )


def _url(address: str, port: int) -> str:
    """The root URL of a Redfish service from a URL or a bare host; `port` 0: the usual one."""
    if address.startswith(("http://", "https://")):
        return address.rstrip("/")
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}:{port}" if port else f"https://{host}"
