"""What IPMI BMCs say, as plain facts. Pure.

Sources: IPMI 2.0, whose sections are named, and DCMI 1.5.
"""

from __future__ import annotations

import struct

from layercake.kraken.errors import OperationFailed
from powerman.driver import POWER_DRAW, LogMark, PowerState, Sensor
from powerman.hardware import Fact, facts
from powerman.health import CRITICAL, OK, WARNING, Health

FLAGS = {0: "", 1: "pxe", 2: "disk", 3: "disk", 4: "diagnostics", 5: "cd", 6: "setup"}
_NEVER_SET = 0x20000000
_UNSPECIFIED = 0xFFFFFFFF
"""Times of an event log up to the first are counted from its start, before its clock was set (IPMI
2.0, section 37.1)."""
_POWER_FAULTS = {
    0x02: "its power supply is overloaded",
    0x08: "its power supply has a fault",
    0x10: "its power cannot be controlled",
}
_OTHER_FAULTS = {0x04: "a drive has a fault", 0x08: "its cooling has a fault"}
DCMI = 0x2C
READ_POWER = 0x02
ASK_POWER = b"\xdc\x01\x00\x00"
"""Get Power Reading: network function, command, data (DCMI 1.5, section 6.6.1)."""
_MEASURING = 0x40


def parse_power(status: bytes) -> PowerState:
    """The power state in an answer to Get Chassis Status (section 28.2). Raises OperationFailed if
    it is too short."""
    if not status:
        raise OperationFailed("cannot read the power state: the BMC's chassis status is empty")
    return PowerState.ON if status[0] & 1 else PowerState.OFF


def boot_network_data(firmware: str) -> bytes:
    """Set System Boot Options, boot flags: PXE, for the next boot only, in this firmware's mode
    (section 28.13, parameter 5)."""
    valid_once = 0x80
    efi = 0x20
    return bytes((0x05, valid_once | (efi if firmware == "uefi" else 0), 0x04, 0, 0, 0))


def parse_boot(options: bytes) -> bool:
    """Whether Get System Boot Options, boot flags, says that the next boot is by PXE (section
    28.14, parameter 5). The bit that says that they are valid is not looked at: not all set it.
    Raises OperationFailed if it is too short."""
    if len(options) < 4:
        raise OperationFailed("cannot read the boot device: the BMC's boot flags are too short")
    return options[3] & 0x3C == 0x04


def parse_log_mark(info: bytes) -> LogMark | None:
    """The answer to Get SEL Info; None if it is too short to say anything."""
    return (
        LogMark(int.from_bytes(info[1:3], "little"), info[5:13].hex()) if len(info) >= 13 else None
    )


def ipmi_health(status: bytes) -> Health:
    """By an answer to Get Chassis Status. An overload or a fault of the power is critical, one of
    cooling or a drive a warning."""
    if len(status) < 3:
        return Health()
    power = [text for bit, text in _POWER_FAULTS.items() if status[0] & bit]
    other = [text for bit, text in _OTHER_FAULTS.items() if status[2] & bit]
    return Health(CRITICAL if power else WARNING if other else OK, ", ".join(power + other))


def ipmi_clock(answer: bytes) -> float | None:
    """Get SEL Time (IPMI 2.0, section 31.10): seconds since the epoch, None for a clock that was
    never set."""
    if len(answer) < 4:
        return None
    seconds = int.from_bytes(answer[:4], "little")
    return None if seconds <= _NEVER_SET or seconds == _UNSPECIFIED else float(seconds)


def ipmi_boot(answer: bytes) -> tuple[str, str]:
    """(device, mode) of Get System Boot Options, parameter 5 (section 28.13); ("", "") when nothing
    is set."""
    if len(answer) < 4 or not answer[2] & 0x80:
        return "", ""
    return FLAGS.get(answer[3] >> 2 & 0x0F, "other"), "uefi" if answer[2] & 0x20 else "bios"


def dcmi_draw(answer: bytes) -> Sensor | None:
    """The present draw in an answer to Get Power Reading; None of one that does not measure, or
    makes no sense."""
    if len(answer) < 18 or answer[0] != 0xDC or not answer[17] & _MEASURING:
        return None
    return Sensor(POWER_DRAW, float(struct.unpack_from("<H", answer, 1)[0]), "W", "ok")


def ipmi_firmware(device: bytes) -> list[Fact]:
    """The version of a BMC's firmware in its answer to Get Device ID (section 20.1): binary, and
    BCD."""
    return (
        facts("BMC", [("Firmware", f"{device[2] & 0x7F}.{device[3]:02x}")])
        if len(device) >= 4
        else []
    )
