"""The second initramfs, hardware.img: the modules of a profile, their firmware, and tables that say
which device wants which module.

Modules and firmware are in a squashfs, which minos.init mounts: what the machine has no device for
is never unpacked, and takes no memory. Links lead there from where everybody looks for them.

There are two of each table: text files as depmod writes them, for busybox' modprobe (people, and
the kernel itself when a program asks for a file system or a protocol), and one for minos.hardware,
which a node reads in milliseconds where the text takes a tenth of a second.
"""

from __future__ import annotations

import json
import marshal
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minos.build import kernel, profiles, tree
from minos.build.archives import cpio
from minos.build.kernel import Kernel, Module
from minos.hardware import PACKED, PACKED_AT, TABLE

if TYPE_CHECKING:
    from minos.hardware import Globs, Tables

DIRECTORY = "usr/lib/minos/modules"
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "ipmi_si": ("ipmi_devintf",),
    "ipmi_ssif": ("ipmi_devintf",),
    "mlx5_core": ("mlx5_ib",),
    "mlx4_core": ("mlx4_en", "mlx4_ib"),
    "virtio_net": ("af_packet",),
    "acpi_cpufreq": ("cpufreq_powersave",),
}
"""What is loaded with a module, if it ships: no device asks for it."""

ALWAYS = ("af_packet",)
"""What is loaded on every machine, if it ships: programs that read frames ask for it."""

_MARSHAL_VERSION = (
    2  # the oldest with all that is needed: builder and node may have different versions of Python
)
_PREFIX = re.compile(r"[*?[]")
_PCI = re.compile(r"pci:v0000([0-9A-F]{4})d(?:0000)?([0-9A-F]{4}|\*)s.*")


@dataclass(frozen=True, slots=True)
class Hardware:
    """What was put together: files for the archive, those that are packed {path: content}, the
    modules in the order to load them in, and the firmware files that they may ask for and nobody
    had {file: modules}."""

    entries: Mapping[str, cpio.Entry]
    packed: Mapping[str, bytes]
    modules: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]


def globs(modules: Iterable[Module]) -> Globs:
    """{what stands before the first wildcard: [(glob, module)]} of the devices that modules are
    for."""
    globs_by_bus: Globs = {}
    for module in modules:
        for alias in module.aliases:
            globs_by_bus.setdefault(_PREFIX.split(alias, maxsplit=1)[0], []).append(
                (alias, module.name)
            )
    return globs_by_bus


def is_network(module: Module) -> bool:
    """Whether it drives network cards, by its place in the kernel's tree."""
    return "/drivers/net/" in str(module.file)


def tables(found: Kernel, names: Iterable[str]) -> Tables:
    """What minos.hardware works by."""
    have = [found.index[name] for name in names]
    inside = {m.name for m in have} | set(kernel.order(found, profiles.BASE))

    def chosen(modules: Iterable[str]) -> list[str]:
        return [name for name in modules if name in inside]

    network = {kernel.plain(n) for n in profiles.SETS[profiles.NETWORK]}
    first = set(kernel.order(found, sorted(n for n in network if n in found.index)))
    first |= {name for name in inside if is_network(found.index[name])}
    available = inside | set(found.builtin)
    absent = (m for name, m in found.index.items() if is_network(m) and name not in available)
    return {
        "globs": globs(found.index[name] for name in sorted(inside)),
        "needs": {m.name: chosen(kernel.order(found, (m.name,))) for m in have},
        "network": sorted(inside & first),
        "along": {name: chosen(TOGETHER[name]) for name in chosen(TOGETHER)},
        "always": chosen(ALWAYS),
        "absent": globs(absent),
    }


def collect(found: Kernel, names: tuple[str, ...], firmware: Iterable[Path]) -> Hardware:
    """The content of hardware.img. Raises InputError for a module of another kernel or another
    machine."""
    images = kernel.select(found, names)
    files, missing = firmware_of(found, images, firmware)
    packed = {f"{DIRECTORY}/{name}.ko": image for name, image in images.items()}
    packed |= {f"usr/lib/firmware/{name}": path.read_bytes() for name, path in files.items()}
    entries = {PACKED_AT.lstrip("/"): cpio.directory()} | {
        path: cpio.symlink(f"{PACKED_AT}/{path}") for path in packed
    }
    tables_of_set = tables(found, images)
    entries[TABLE.lstrip("/")] = cpio.regular(marshal.dumps({**tables_of_set}, _MARSHAL_VERSION))
    entries |= _for_modprobe(found, images)
    return Hardware(entries, packed, tuple(images), missing)


def archive(found: Hardware, compress: Callable[[bytes], bytes], level: int) -> tuple[bytes, int]:
    """hardware.img, and how many bytes its files have: an archive of tables and links, which
    `compress` packs, and one of the squashfs as it is (`level`: tree.squash). Raises
    OperationFailed."""
    links = cpio.archive(found.entries)
    with tempfile.TemporaryDirectory(prefix="layercake-hardware-") as scratch:
        top = Path(scratch, "top")
        for name, data in found.packed.items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        file = tree.squash(top, Path(scratch, "squashfs"), level).read_bytes()
    raw = len(links) + sum(map(len, found.packed.values()))
    return compress(links) + cpio.archive({PACKED.lstrip("/"): cpio.regular(file)}), raw


def firmware_of(
    found: Kernel, names: Iterable[str], places: Iterable[Path]
) -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """The firmware that modules may ask for, looked for in directories laid out as /lib/firmware:
    ({path below: file}, {what nobody has: the modules that may ask for it}). A file may be packed,
    as the kernel unpacks it: its path has the ending then."""
    places = list(places)
    files = dict[str, Path]()
    missing = dict[str, tuple[str, ...]]()
    for wanted, users in sorted(_wanted(found, names).items()):
        name, file = next(
            (
                (name, place / name)
                for place in places
                for name in (wanted, f"{wanted}.xz", f"{wanted}.zst")
                if (place / name).is_file()
            ),
            (wanted, None),
        )
        if file is None:
            missing[wanted] = users
        else:
            files[name] = file
    return files, missing


def _wanted(found: Kernel, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    wanted: dict[str, tuple[str, ...]] = {}
    for name in names:
        for file in found.index[name].firmware:
            if not Path(file).is_absolute() and ".." not in Path(file).parts:
                wanted[file] = (*wanted.get(file, ()), name)
    return wanted


def _for_modprobe(found: Kernel, images: Iterable[str]) -> dict[str, cpio.Entry]:
    """modules.dep and modules.alias, of this archive's modules and of minOS's own."""
    own = kernel.order(
        found, (*profiles.BASE, *(name for names in profiles.LATER.values() for name in names))
    )
    names = sorted({*images, *own})
    path = {name: f"/{DIRECTORY}/{name}.ko" for name in names}
    depends = "".join(
        f"{path[name]}: "
        f"{' '.join(path[n] for n in reversed(kernel.order(found, (name,))[:-1]) if n in path)}\n"
        for name in names
    )
    aliases = "".join(
        f"alias {alias} {name}\n" for name in names for alias in found.index[name].aliases
    )
    root = f"usr/lib/modules/{found.release}"
    return {
        root: cpio.directory(),
        f"{root}/modules.dep": cpio.regular(depends.encode()),
        f"{root}/modules.alias": cpio.regular(aliases.encode()),
        f"{root}/modules.symbols": cpio.regular(b""),
    }


def cards(found: Kernel, names: Iterable[str]) -> bytes:
    """The content of cards.json: the network cards on PCI, as vendor:device, that the modules drive
    (`have`), and those that other modules of this kernel would drive, with these (`lacking`)."""
    inside = {*names, *kernel.order(found, profiles.BASE)}
    have = set()
    lacking = dict[str, list[str]]()
    for module in found.index.values():
        if not is_network(module) and module.name not in inside:
            continue
        for match in filter(None, map(_PCI.fullmatch, module.aliases)):
            card = f"{match[1]}:{match[2]}".lower()
            if module.name in inside:
                have.add(card)
            elif module.name not in lacking.setdefault(card, []):
                lacking[card].append(module.name)
    return json.dumps(
        {
            "have": sorted(have),
            "lacking": {c: m for c, m in sorted(lacking.items()) if c not in have},
        },
        separators=(",", ":"),
    ).encode()
