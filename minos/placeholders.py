"""Marks that identify nobody: what firmware says where its maker wrote no serial number, no UUID
and no address.

A machine, a board or a disk is known by a mark only if no other has it. All that compare serial
numbers, UUIDs and WWIDs ask here first.
"""

from __future__ import annotations

import re

_WORDS = frozenset(
    {
        "asset tag",
        "asset-1234567890",
        "baseboard serial number",
        "base board serial number",
        "board serial number",
        "chassis serial number",
        "default",
        "default string",
        "empty",
        "filled by o.e.m",
        "invalid",
        "n/a",
        "na",
        "no asset information",
        "no asset tag",
        "no serial number",
        "none",
        "not applicable",
        "not available",
        "not set",
        "not specified",
        "nothing",
        "null",
        "o.e.m",
        "oem",
        "serial",
        "serial number",
        "serialnumber",
        "sn",
        "system serial number",
        "system-serial-number",
        "tbd",
        "to be filled",
        "unavailable",
        "undefined",
        "unknown",
        "unspecified",
    }
)
_STARTS = ("to be filled", "to_be_filled", "tobefilled", "default_string", "system_serial_")
_WWID_KIND = re.compile(r"(?:naa|eui|uuid|t10|nvme)\.", re.ASCII)
_RUNS = ("0123456789abcdef", "fedcba9876543210", "1234567890" * 3, "9876543210" * 3)
_SHORTEST_RUN = 5
_UUID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.ASCII)
_SHARED_UUIDS = frozenset(
    {
        "03000200040005000006000700080009",
        "00020003000400050006000700080009",
        "03020100050407060809000102030405",
        "12345678123456781234567812345678",
        "12345678123412341234123456789012",
        "12345678123412341234123456789abc",
    }
)
"""UUIDs of whole series of boards: AMI's default in both byte orders, and counted ones."""


def is_placeholder(mark: str) -> bool:
    """Whether a serial number, a UUID or a WWID is one that many machines or disks have, or that
    nobody wrote: it identifies none."""
    low = _WWID_KIND.sub("", " ".join(mark.lower().split()), count=1).strip(" .")
    if low in _WORDS or low.startswith(_STARTS):
        return True
    digits = re.sub(r"[\s.:_-]|^0x", "", low)
    if _UUID.fullmatch(low) and digits in _SHARED_UUIDS:
        return True
    return _is_one_character(digits) or _is_counted(digits)


def _is_one_character(digits: str) -> bool:
    """ "", "0", "000000", "ffff", "xxxxxxx", and zeros with a one behind them."""
    return len(set(digits)) < 2 or (len(digits) > 4 and not digits[:-1].strip("0"))


def _is_counted(digits: str) -> bool:
    """123456789, 0123456789abcdef: somebody pressed one key after the other."""
    return len(digits) >= _SHORTEST_RUN and any(digits in run for run in _RUNS)


_DEFAULT_ADDRESSES = frozenset(
    {
        "0.0.0.0",
        "192.168.0.100",
        "192.168.0.120",
        "192.168.1.100",
        "192.168.2.100",
        "192.168.0.10",
        "192.168.10.10",
        "192.168.70.125",
        "192.168.100.100",
        "192.168.1.1",
        "192.168.0.1",
    }
)
"""BMCs come with these out of the factory: iDRAC, IMM and XCC, MegaRAC, iBMC."""


def is_default_address(address: str) -> bool:
    """Whether an address of a BMC is one that it has before anybody has set it, a link-local one
    included: any machine may have it."""
    return address in _DEFAULT_ADDRESSES or address.lower().startswith(("169.254.", "fe80:"))
