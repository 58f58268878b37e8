"""What a BMC says of itself to the machine that it is in."""

from __future__ import annotations

from typing import Any

from minos.bmc.device import APP, TRANSPORT, Ask

_GET_DEVICE_ID = 0x01
_GET_LAN = 0x02
_GET_CHANNEL = 0x42
_IP = 3
_SOURCE = 4
_MAC = 5
_MASK = 6
_GATEWAY = 12
_VLAN = 20
_LAN_MEDIUM = (4, 6)
_CHANNELS = range(1, 12)
_SOURCES = {1: "static", 2: "dhcp", 3: "bios", 4: "other"}


def survey(ask: Ask) -> dict[str, Any]:
    """Address, MAC address and firmware of a BMC. Raises OSError for one that does not answer at
    all."""
    device = ask(APP, _GET_DEVICE_ID, b"")
    if len(device) < 11:
        raise OSError("the BMC's device id is too short")
    facts: dict[str, Any] = {
        "firmware": f"{device[2] & 0x7F}.{device[3]:02x}",
        "ipmi": f"{device[4] & 15}.{device[4] >> 4}",
        "vendor": int.from_bytes(device[6:9], "little") & 0xFFFFF,
        "product": int.from_bytes(device[9:11], "little"),
        "channel": 0,
        "address": "",
        "mask": "",
        "gateway": "",
        "mac": "",
        "source": "",
        "vlan": 0,
    }
    for channel in _CHANNELS:
        try:
            if ask(APP, _GET_CHANNEL, bytes((channel,)))[1] & 0x7F not in _LAN_MEDIUM:
                continue
            facts |= _lan(ask, channel)
        except (OSError, IndexError):
            continue
        break
    return facts


def _lan(ask: Ask, channel: int) -> dict[str, Any]:
    """How a channel is configured. A parameter that the BMC does not have is left out; the first
    one must be there."""

    def parameter(number: int, size: int) -> bytes:
        data = ask(TRANSPORT, _GET_LAN, bytes((channel, number, 0, 0)))[1:]
        if len(data) < size:
            raise OSError(f"parameter {number} is too short")
        return data[:size]

    def maybe(number: int, size: int) -> bytes:
        try:
            return parameter(number, size)
        except OSError:
            return b""

    vlan = maybe(_VLAN, 2)
    return {
        "channel": channel,
        "address": _dotted(parameter(_IP, 4)),
        "mask": _dotted(maybe(_MASK, 4)),
        "gateway": _dotted(maybe(_GATEWAY, 4)),
        "mac": maybe(_MAC, 6).hex(":"),
        "source": _SOURCES.get(maybe(_SOURCE, 1)[:1].ljust(1, b"\0")[0] & 15, ""),
        "vlan": (vlan[0] | (vlan[1] & 15) << 8) if vlan and vlan[1] & 0x80 else 0,
    }


def _dotted(data: bytes) -> str:
    return ".".join(map(str, data)) if any(data) else ""
