"""How a machine's hardware differs from what was accepted of it, and what is wrong with it in any
case. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from layercake.features.machines.hardware.report import Report

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
        yield from _gone(
            "disk",
            Counter(f"{d.model} {d.serial}".strip() or d.path for d in was.disks),
            Counter(f"{d.model} {d.serial}".strip() or d.path for d in now.disks),
        )
    if "cards" not in now.failed:
        have = {card.mac: card for card in now.cards}
        for card in was.cards:
            found = have.get(card.mac)
            if found is None:
                yield f"network card {card.mac} is gone"
            elif card.link and not found.link:
                yield f"network card {card.mac} has no link any more"
            elif card.mbps > found.mbps > 0:
                yield (
                    f"network card {card.mac} has a link of {found.mbps} Mb/s, it had "
                    f"{card.mbps} Mb/s"
                )
    for what, before, after in (
        ("accelerator", was.gpus, now.gpus),
        ("fabric adapter", was.fabrics, now.fabrics),
    ):
        if "pci" not in now.failed:
            yield from _gone(
                what,
                Counter(f"{d.vendor}:{d.device}" for d in before),
                Counter(f"{d.vendor}:{d.device}" for d in after),
            )
    for name, old, new in (
        ("firmware", was.smbios.bios.version, now.smbios.bios.version),
        ("TPM", was.tpm, now.tpm),
        ("serial number", was.smbios.system.serial, now.smbios.system.serial),
    ):
        if old and old != new:
            yield f"its {name} is {new or 'gone'}, it was {old}"


def _memory(was: Report, now: Report) -> Iterator[str]:
    if was.dimms and "smbios" not in now.failed:
        have = {dimm.slot: dimm for dimm in now.dimms}
        for dimm in was.dimms:
            found = have.get(dimm.slot)
            if found is None:
                yield f"the DIMM in {dimm.slot} is gone ({dimm.mb} MB)"
            elif found.mb != dimm.mb:
                yield f"the DIMM in {dimm.slot} has {found.mb} MB, it had {dimm.mb} MB"
    elif now.memory and was.memory and now.memory < was.memory * 0.97:
        yield f"it has {now.memory >> 20} MB of memory, it had {was.memory >> 20} MB"


def _cpu(was: Report, now: Report) -> Iterator[str]:
    if was.cpu.logical and now.cpu.logical and now.cpu.logical < was.cpu.logical:
        yield f"it has {now.cpu.logical} processors, it had {was.cpu.logical}"


def _gone(what: str, was: Counter[str], now: Counter[str]) -> Iterator[str]:
    for name, count in (was - now).items():
        yield f"{what} {name} is gone" + (f" ({count} of them)" if count > 1 else "")
