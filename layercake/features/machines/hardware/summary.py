"""What lists of nodes show of their hardware, and what queries ask of it, out of machines' reports.
Equal hardware is one object, as a rack has forty times the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from layercake.features.machines.hardware.report import Report


class Hardware(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is small of a machine's hardware, without what identifies it. `memory` is in bytes: of
    the modules in its slots, or what the kernel has where the firmware names none. `disks` are the
    disks' bytes and `disk_models` their models, both in order; `cards` the drivers of its network
    cards, `gpus` and `fabrics` VENDOR:DEVICE by PCI. `board`, `bios` and `bmc_firmware` are the
    board's product and version, and the versions of the firmware."""

    model: str = ""
    cpu: str = ""
    cpus: int = 0
    cores: int = 0
    sockets: int = 0
    memory: int = 0
    disks: tuple[int, ...] = ()
    disk_models: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    fabrics: tuple[str, ...] = ()
    board: str = ""
    bios: str = ""
    bmc_firmware: str = ""


_same: dict[Hardware, Hardware] = {}
_MOST_KINDS = 1000
"""Kinds of hardware of which equal machines share one object."""


def summarize(report: Report) -> Hardware:
    """The summary of a report."""
    system = report.smbios.system
    board = report.smbios.board
    return shared(
        Hardware(
            model=f"{system.vendor} {system.product}".strip(),
            cpu=report.cpu.model,
            cpus=report.cpu.logical,
            cores=report.cpu.cores,
            sockets=report.cpu.sockets,
            memory=sum(dimm.mb for dimm in report.dimms) << 20 or report.memory,
            disks=tuple(sorted(disk.bytes for disk in report.disks)),
            disk_models=tuple(sorted(filter(None, (disk.model for disk in report.disks)))),
            cards=tuple(
                sorted(card.driver or "no driver" for card in report.cards if not card.usb)
            ),
            gpus=tuple(sorted(f"{one.vendor}:{one.device}" for one in report.gpus)),
            fabrics=tuple(sorted(f"{one.vendor}:{one.device}" for one in report.fabrics)),
            board=" ".join(filter(None, (board.product, board.version))),
            bios=report.smbios.bios.version,
            bmc_firmware=report.bmc.firmware if report.bmc is not None else "",
        )
    )


def shared(hardware: Hardware) -> Hardware:
    """The object that stands for all equal ones."""
    if len(_same) >= _MOST_KINDS:
        _same.clear()
    return _same.setdefault(hardware, hardware)


def view(hardware: Hardware, serial: str) -> dict[str, Any]:
    """As the API shows it."""
    return {name: getattr(hardware, name) for name in Hardware.__struct_fields__} | {
        "serial": serial
    }


_AMOUNTS: Mapping[str, Callable[[Hardware], Sequence[int]]] = {
    "cpus": lambda one: (one.cpus,),
    "cores": lambda one: (one.cores,),
    "sockets": lambda one: (one.sockets,),
    "memory": lambda one: (one.memory,),
    "disk": lambda one: one.disks,
    "disks": lambda one: (len(one.disks),),
    "storage": lambda one: (sum(one.disks),),
    "nics": lambda one: (len(one.cards),),
    "gpus": lambda one: (len(one.gpus),),
}
_TEXTS: Mapping[str, Callable[[Hardware], Sequence[str]]] = {
    "model": lambda one: (one.model,),
    "cpu": lambda one: (one.cpu,),
    "disk-model": lambda one: one.disk_models,
    "nic": lambda one: one.cards,
    "gpu": lambda one: one.gpus,
    "fabric": lambda one: one.fabrics,
    "board": lambda one: (one.board,),
    "bios": lambda one: (one.bios,),
    "bmc-firmware": lambda one: (one.bmc_firmware,),
}
AMOUNTS = frozenset(_AMOUNTS)
"""Names in queries that are numbers: of bytes for memory, disk and storage."""
NAMES: Mapping[str, Callable[[Hardware], Sequence[str | int]]] = {**_AMOUNTS, **_TEXTS}
"""What queries may ask of hardware."""
