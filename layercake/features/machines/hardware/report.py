"""A machine's report of its hardware (minos.survey), as the head reads it: hostile until it was
cleaned and checked here."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from layercake.base.text import printable
from layercake.kraken.errors import InputError

MOST_BYTES = 256 << 10
MOST_LIST = 1024
_DEEPEST = 6
_MOST_NUMBER = 1 << 62


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Firmware(_Part, frozen=True):
    """The machine's firmware."""

    vendor: str = ""
    version: str = ""
    date: str = ""


class Made(_Part, frozen=True):
    """Who made the machine, its board or its case, and the numbers that it has."""

    vendor: str = ""
    product: str = ""
    version: str = ""
    serial: str = ""
    uuid: str = ""
    sku: str = ""
    asset: str = ""


class Smbios(_Part, frozen=True):
    """What the firmware's tables say."""

    bios: Firmware = Firmware()
    system: Made = Made()
    board: Made = Made()
    chassis: Made = Made()


class Processor(_Part, frozen=True):
    """A processor in its socket."""

    socket: str = ""
    model: str = ""
    mhz: int = 0
    cores: int = 0
    threads: int = 0


class Cpu(_Part, frozen=True):
    """The processors as the kernel sees them."""

    model: str = ""
    logical: int = 0
    cores: int = 0
    sockets: int = 0


class Dimm(_Part, frozen=True):
    """A memory module in its slot."""

    slot: str = ""
    bank: str = ""
    mb: int = 0
    mhz: int = 0
    vendor: str = ""
    serial: str = ""
    part: str = ""


class Disk(_Part, frozen=True):
    """A disk. `smart` is ok, failing or not read."""

    name: str = ""
    bytes: int = 0
    model: str = ""
    serial: str = ""
    firmware: str = ""
    rotational: bool = False
    path: str = ""
    smart: str = "not read"


_USB_SLOT = re.compile(r"(?:usb)?[0-9]+(?:-[0-9.]+(?::[0-9.]+)?)?", re.ASCII)
"""An interface of a USB device, as sysfs names it: "1-3.2:1.0"."""
_USB_NAMES = ("usb", "enx")
"""How the kernel, and udev, name network cards on USB."""
_USB_DRIVERS = ("cdc_", "rndis", "usb", "ax88179", "r8152", "asix", "smsc75", "smsc95", "lan78")


class Card(_Part, frozen=True):
    """A network card; `mbps` is 0 for one without a link, or that does not say."""

    name: str = ""
    mac: str = ""
    driver: str = ""
    link: bool = False
    mbps: int = 0
    slot: str = ""
    kind: str = "ethernet"

    @property
    def usb(self) -> bool:
        """Whether it hangs on USB: the host interface of a BMC does, of which all boards may have
        one MAC address, or another at each boot. It identifies no machine."""
        return (
            bool(_USB_SLOT.fullmatch(self.slot))
            or self.driver.startswith(_USB_DRIVERS)
            or self.name.startswith(_USB_NAMES)
        )


class Device(_Part, frozen=True):
    """A device on the PCI bus."""

    slot: str = ""
    vendor: str = ""
    device: str = ""
    driver: str = ""


class Bmc(_Part, frozen=True):
    """The BMC, as the machine sees it from inside."""

    firmware: str = ""
    ipmi: str = ""
    vendor: int = 0
    product: int = 0
    channel: int = 0
    address: str = ""
    mask: str = ""
    gateway: str = ""
    mac: str = ""
    source: str = ""
    vlan: int = 0


class SwitchPort(_Part, frozen=True):
    """What a card is cabled to, by LLDP."""

    switch: str = ""
    port: str = ""
    chassis: str = ""
    port_text: str = ""
    vlan: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it; `neighbours` by card, `failed` is {part: why it could not be looked at}."""

    smbios: Smbios = Smbios()
    processors: list[Processor] = []
    dimms: list[Dimm] = []
    slots: int = 0
    cpu: Cpu = Cpu()
    memory: int = 0
    disks: list[Disk] = []
    cards: list[Card] = []
    gpus: list[Device] = []
    fabrics: list[Device] = []
    neighbours: dict[str, SwitchPort] = {}
    bmc: Bmc | None = None
    tpm: str = ""
    tpm_ek: str = ""
    arch: str = ""
    uefi: bool = False
    secure_boot: str = ""
    failed: dict[str, str] = {}


def _cleaned(value: object, depth: int = 0) -> Any:
    """What a node sent, with printable text, numbers within bounds, and lists of bounded length.
    Raises InputError for what is nested too deeply, or no JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int | float):
        return int(max(0, min(value, _MOST_NUMBER))) if value == value else 0  # NaN
    if depth >= _DEEPEST:
        raise InputError("cannot take the report: it is nested too deeply")
    if isinstance(value, list):
        return [_cleaned(one, depth + 1) for one in value[:MOST_LIST]]
    if isinstance(value, dict):
        return {
            printable(str(key)): _cleaned(one, depth + 1)
            for key, one in list(value.items())[:MOST_LIST]
        }
    raise InputError("cannot take the report: it holds something that is no JSON")


def read(value: object) -> Report:
    """A report, of what came in as JSON. Raises InputError."""
    cleaned = _cleaned(value)
    if isinstance(cleaned, dict) and cleaned.get("bmc") == {}:
        cleaned["bmc"] = None
    try:
        return msgspec.convert(cleaned, Report)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot take the report: {printable(str(error))}") from None
