"""How a machine's hardware differs from what was accepted of it, and what is wrong with it in any
case. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from layercake.features.machines.hardware.report import Device, Dimm, Disk, Report

MOST = 32


def differences(was: Report | None, now: Report) -> tuple[str, ...]:
    """What people should know, a line for each: what is gone or slower or other than in `was`, and
    disks that say they fail."""
    return tuple(_lines(was, now))[:MOST]


def _lines(was: Report | None, now: Report) -> Iterator[str]:
    for disk in now.disks:
        if disk.smart == "failing":
            yield f"disk {disk.name} ({disk.model} {disk.serial}) says that it is failing"
    if was is None:
        return
    yield from _memory(was, now)
    yield from _cpu(was, now)
    if "disks" not in now.failed:
        yield from _missing("disk", map(_disk, was.disks), map(_disk, now.disks))
    if "cards" not in now.failed:
        yield from _cards(was, now)
    if "pci" not in now.failed:
        yield from _missing("accelerator", map(_device, was.gpus), map(_device, now.gpus))
        yield from _missing("fabric adapter", map(_device, was.fabrics), map(_device, now.fabrics))
    for name, old, new in (
        ("firmware", was.smbios.bios.version, now.smbios.bios.version),
        ("TPM", was.tpm, now.tpm),
        ("serial number", was.smbios.system.serial, now.smbios.system.serial),
        ("board's serial number", was.smbios.board.serial, now.smbios.board.serial),
        ("case's serial number", was.smbios.chassis.serial, now.smbios.chassis.serial),
    ):
        if old and old != new:
            yield f"its {name} is {new or 'gone'}, it was {old}"


def _disk(disk: Disk) -> str:
    return f"{disk.model} {disk.serial}".strip() or disk.path


def _device(device: Device) -> str:
    return f"{device.vendor}:{device.device}"


def _cards(was: Report, now: Report) -> Iterator[str]:
    """Cards on USB are left out: a BMC's host interface may have another MAC address at each
    boot."""
    by_mac = {card.mac: card for card in now.cards}
    for old in (card for card in was.cards if not card.usb):
        new = by_mac.get(old.mac)
        if new is None:
            yield f"network card {old.mac} is gone"
        elif old.link and not new.link:
            yield f"network card {old.mac} has no link any more"
        elif old.mbps > new.mbps > 0:
            yield f"network card {old.mac} has a link of {new.mbps} Mb/s, it had {old.mbps} Mb/s"


def _memory(was: Report, now: Report) -> Iterator[str]:
    if was.dimms and "smbios" not in now.failed:
        have = {dimm.slot: dimm for dimm in now.dimms}
        for dimm in was.dimms:
            if line := _dimm(dimm, have.get(dimm.slot)):
                yield line
    elif now.memory and was.memory and now.memory < was.memory * 0.97:
        yield f"it has {now.memory >> 20} MB of memory, it had {was.memory >> 20} MB"


def _dimm(was: Dimm, now: Dimm | None) -> str:
    """What is other in a slot, "" for nothing."""
    place = f"the DIMM in {was.slot}"
    if now is None:
        named = f", serial number {was.serial}" if was.serial else ""
        return f"{place} is gone ({was.mb} MB{named})"
    if now.mb != was.mb:
        return f"{place} has {now.mb} MB, it had {was.mb} MB"
    if was.serial and now.serial and now.serial != was.serial:
        return f"{place} is another: its serial number is {now.serial}, it was {was.serial}"
    return ""


def _cpu(was: Report, now: Report) -> Iterator[str]:
    if was.cpu.logical and now.cpu.logical and now.cpu.logical < was.cpu.logical:
        yield f"it has {now.cpu.logical} processors, it had {was.cpu.logical}"


def _missing(what: str, was: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    """What there is less of than there was."""
    for name, count in (Counter(was) - Counter(now)).items():
        yield f"{what} {name} is gone" + (f" ({count} of them)" if count > 1 else "")
