"""The minOS initramfs: what goes in, in which part, and how it is packed.

Each part is an archive of its own, compressed on its own; the kernel unpacks one after the other.
So the sizes by part are exact, the parts are compressed side by side, and a site's own files (the
head's CA) are a small archive at the end: the big part is the same for all sites.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed
from minos.agent.head_link.trust import mark
from minos.build import hardware, kernel, profiles, python, tree
from minos.build.archives import cpio
from minos.build.archives.packing import compress
from minos.build.debian import debs, disktools, programs
from minos.build.debian.userland import Userland
from minos.build.debian.userland import of as of_userland
from minos.build.profiles import Profile
from minos.build.result import (
    CARDS,
    DISKTOOLS,
    HARDWARE,
    IMAGE,
    MODULES,
    VMLINUZ,
    BuildResult,
    Part,
)

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = (
    "minos.init",
    "minos.supervisor",
    "layercake.node.main",
    "layercake.node.wiring",
    "imageapi.node.attach.nbd",
    "imageapi.node.attach.iscsi_sessions",
    "imageapi.node.attach.disks",
    "layercake.node.serving",
    "minos.agent.drivers",
    "minos.agent.clock.ntp_client",
    "minos.agent.thermal.monitor",
    "minos.agent.button",
    "minos.agent.network.start",
    "minos.agent.metadata.service",
    "minos.agent.metadata.asker",
    "minos.agent.head_link.content_client",
    "layercake.node.commands",
    "minos.survey.visit",
    "minos.survey.monitor",
    "minos.tpm.proof",
    "minos.agent.disks.manager",
    "minos.erase.orders",
    "layercake.node.bmc",
)
CA_PATH = "etc/layercake/ca.pem"
APPLETS = (
    "sh",
    "ash",
    "cat",
    "ls",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
    "ln",
    "ps",
    "top",
    "kill",
    "ip",
    "ping",
    "mount",
    "umount",
    "losetup",
    "dmesg",
    "free",
    "df",
    "du",
    "grep",
    "sed",
    "awk",
    "head",
    "tail",
    "less",
    "vi",
    "wget",
    "nc",
    "hostname",
    "uname",
    "uptime",
    "date",
    "sleep",
    "echo",
    "env",
    "id",
    "find",
    "lsmod",
    "insmod",
    "rmmod",
    "modprobe",
    "poweroff",
    "reboot",
    "sync",
    "stat",
    "md5sum",
    "sha256sum",
    "hexdump",
    "strings",
    "tar",
    "gzip",
    "zcat",
    "chroot",
    "nsenter",
    "unshare",
    "setsid",
    "stty",
    "reset",
    "clear",
    "watch",
    "which",
    "xargs",
    "sort",
    "wc",
    "true",
    "false",
    "test",
    "readlink",
    "realpath",
    "touch",
    "tee",
    "cut",
    "tr",
    "seq",
    "printf",
    "base64",
    "pidof",
    "cmp",
    "diff",
)
_LEVEL = 12
"""Of the drivers in hardware.img: 19 takes eight times as long, and one part in twenty less."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build. `ca` is the head's certificate authority."""

    out: Path
    cache: Path
    ca: Path | None = None
    profile: Profile = profiles.KNOWN[profiles.VIRTUAL]
    compression: str = "zstd"
    python: Path = field(default_factory=lambda: python.own())


def _file(source: Path, mode: int = 0o644) -> cpio.Entry:
    return cpio.regular(source.read_bytes(), mode)


def _base(userland: Userland) -> dict[str, cpio.Entry]:
    """Directories, busybox with its applets, and the files without which tools complain."""
    entries = {
        name: cpio.directory()
        for name in (
            "dev",
            "proc",
            "sys",
            "run",
            "mnt",
            "root",
            "var",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "etc/layercake",
        )
    }
    entries["tmp"] = cpio.directory(0o1777)
    entries |= {
        name: cpio.symlink(f"usr/{target}")
        for name, target in (("bin", "bin"), ("sbin", "bin"), ("lib", "lib"), ("lib64", "lib64"))
    }
    entries["usr/sbin"] = cpio.symlink("bin")
    entries["dev/console"] = cpio.character_device(5, 1)
    entries["dev/null"] = cpio.character_device(1, 3, 0o666)
    # Where neither processor nor firmware gives random numbers, Python begins by what this has.
    entries["dev/urandom"] = cpio.character_device(1, 9, 0o666)
    entries["usr/bin/busybox"] = _file(userland.program("busybox", "busybox-static"), 0o755)
    entries |= {f"usr/bin/{applet}": cpio.symlink("busybox") for applet in APPLETS}
    entries["etc/passwd"] = cpio.regular(b"root:x:0:0:root:/root:/bin/sh\n")
    entries["etc/group"] = cpio.regular(b"root:x:0:\ntty:x:5:\n")
    return entries


def _binaries(
    userland: Userland, sources: Mapping[str, Path], already: set[str]
) -> dict[str, cpio.Entry]:
    """Binaries and the libraries they need; libraries that an earlier part holds are left out, and
    noted in `already`."""
    entries = {path: _file(source, 0o755) for path, source in sources.items()}
    for path, file in userland.libraries(sources.values()).items():
        inside = path.lstrip("/")
        inside = inside if inside.startswith("usr/") else f"usr/{inside}"
        if inside not in already:
            already.add(inside)
            entries[inside] = _file(file, 0o755)
    return entries


def _is_tls(module: python.Module) -> bool:
    return module.name in ("_ssl", "_hashlib")


def collect(
    options: BuildOptions, found: kernel.Kernel, closure: python.Closure, userland: Userland
) -> dict[str, dict[str, cpio.Entry]]:
    """The parts of minos.img as {name: {path: entry}}."""
    interpreter = options.python.name
    number = python.version(options.python)
    library = f"usr/lib/python{number}"
    have: set[str] = set()
    parts = {"base": _base(userland)}
    plain = {
        f"{library}/lib-dynload/{m.file.name}": m.file for m in closure.extensions if not _is_tls(m)
    }
    binary = userland.program(interpreter, interpreter).resolve()
    parts["python"] = _binaries(userland, {f"usr/bin/{interpreter}": binary, **plain}, have)
    parts["stdlib"] = {
        f"usr/lib/python{number.replace('.', '')}.zip": cpio.regular(
            python.archive(options.python, closure.stdlib)
        )
    }
    tls = {f"{library}/lib-dynload/{m.file.name}": m.file for m in closure.extensions if _is_tls(m)}
    parts["tls"] = _binaries(userland, tls, have)
    parts["crun"] = _binaries(
        userland, {"usr/bin/crun": userland.program("crun", "crun").resolve()}, have
    )
    parts["modules"] = {}
    for group, wanted in {"load": profiles.BASE, **profiles.LATER}.items():
        modules = kernel.select(found, wanted)
        parts["modules"] |= {
            f"{hardware.DIRECTORY}/{name}.ko": cpio.regular(image)
            for name, image in modules.items()
        }
        parts["modules"][f"{hardware.DIRECTORY}/{group}"] = cpio.regular(
            "".join(f"{name}\n" for name in modules).encode()
        )
    shebang = (
        f"#!/usr/bin/{interpreter} -ISB\nimport sys\nsys.path.insert(0, '/usr/lib/minos.zip')\n"
    )
    parts["layercake"] = {
        "usr/lib/minos.zip": cpio.regular(python.archive(options.python, closure.own)),
        "init": cpio.regular(f"{shebang}from minos.init import main\nmain()\n".encode(), 0o755),
        "usr/bin/layercake-busy": cpio.regular(b"#!/bin/sh\n" + BUSY_SCRIPT.encode(), 0o755),
    }
    return parts


BUSY_SCRIPT = """# layercake-busy busy|free : says whether this node does work
# that must not be interrupted.
case "$1" in
busy) : > /run/layercake/busy ;;
free) rm -f /run/layercake/busy ;;
*) echo "usage: layercake-busy busy|free" >&2; exit 2 ;;
esac
"""


def build(options: BuildOptions, say: Callable[[str], None] = lambda text: None) -> BuildResult:
    """Builds vmlinuz, minos.img, agent.zip, modules.squashfs, disktools.squashfs and minos.json in
    options.out. Raises LayercakeError with what is missing."""
    _check_authority(options.ca)
    say(f"kernel {options.profile.kernel}")
    architecture = options.profile.architecture
    apt = debs.options(architecture, options.cache, say)
    inputs = profiles.fetch(options.profile, options.cache, apt)
    say(f"kernel {inputs.release}")
    userland = of_userland(architecture, options.python, options.cache, apt, say)
    closure = userland.closure(python.closure(options.python, ROOT, ENTRIES))
    boots = programs.fetch(architecture, options.cache, apt)
    places = profiles.firmware(options.profile, options.cache)
    extra = _hardware(options, inputs, places)
    for_images, unpacked = tree.pack(inputs, _firmware(inputs, extra, places), options.cache)
    packed, sizes, drivers = _packed(options, collect(options, inputs, closure, userland), extra)
    sizes[MODULES] = Part(unpacked, for_images.stat().st_size)
    for_disks = _disktools(options, say)
    if for_disks is not None:
        sizes[DISKTOOLS] = Part(for_disks.stat().st_size, for_disks.stat().st_size)
    files: dict[str, bytes | None] = {
        DISKTOOLS: for_disks.read_bytes() if for_disks is not None else None,
        MODULES: for_images.read_bytes(),
        VMLINUZ: inputs.image.read_bytes(),
        HARDWARE: drivers,
        CARDS: hardware.cards(inputs, extra.modules if extra is not None else ()),
        IMAGE: b"".join(packed.values()),
        **{program: file.read_bytes() for program, file in boots.items()},
        "agent.zip": python.agent(options.python, closure),
    }
    _write(options.out, files)
    result = _result(options, inputs, extra, sizes)
    text = json.dumps(result.to_json(), indent=1).encode() + b"\n"
    write_atomic(options.out / "minos.json", text, mode=0o644)
    return result


def _packed(
    options: BuildOptions,
    entries_of: Mapping[str, Mapping[str, cpio.Entry]],
    extra: hardware.Hardware | None,
) -> tuple[dict[str, bytes], dict[str, Part], bytes | None]:
    """The parts of minos.img as they are in it, the size of each part, and hardware.img, None
    without drivers."""
    archives = {name: cpio.archive(entries) for name, entries in entries_of.items()}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        drivers = pool.submit(_drivers, extra, options) if extra is not None else None
        compressed = pool.map(
            lambda data: compress(data, options.compression, options.cache), archives.values()
        )
        packed = dict(zip(archives, compressed, strict=True))
    if options.ca:
        packed["site"] = archives["site"] = cpio.archive({CA_PATH: _file(options.ca)})
    sizes = {name: Part(len(archives[name]), len(data)) for name, data in packed.items()}
    if drivers is None:
        return packed, sizes, None
    data, raw = drivers.result()
    sizes[HARDWARE] = Part(raw, len(data))
    return packed, sizes, data


def _write(directory: Path, files: Mapping[str, bytes | None]) -> None:
    """Writes files. None stands for one that this build does not have: that of a build before goes,
    for nodes would fetch it, with the drivers of another kernel."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if data is None:
            (directory / name).unlink(missing_ok=True)
        else:
            write_atomic(directory / name, data, mode=0o644)


def _result(
    options: BuildOptions,
    found: kernel.Kernel,
    extra: hardware.Hardware | None,
    sizes: dict[str, Part],
) -> BuildResult:
    vmlinuz = options.out / VMLINUZ
    image = options.out / IMAGE
    return BuildResult(
        vmlinuz,
        image,
        found.release,
        image.stat().st_size,
        vmlinuz.stat().st_size,
        sizes,
        options.compression,
        options.profile,
        mark(options.ca) if options.ca else "",
        sizes[HARDWARE].packed if extra is not None else 0,
        extra.modules if extra is not None else (),
        extra.missing if extra is not None else {},
        python.version(options.python),
    )


def _disktools(options: BuildOptions, say: Callable[[str], None]) -> Path | None:
    """The programs for nodes with disks; a site that cannot have them now, and may have no such
    nodes, boots all the same."""
    if not options.profile.disktools:
        say(
            "the set has no programs for disks, as its profile says: nodes that boot it can do "
            "nothing with theirs"
        )
        return None
    try:
        return disktools.pack(options.profile.architecture, options.cache, say)
    except OperationFailed as error:
        say(
            "the set has no programs for disks, so nodes that boot it can do nothing with theirs: "
            f"{error.message}"
        )
        return None


def _hardware(
    options: BuildOptions, found: kernel.Kernel, places: Sequence[Path]
) -> hardware.Hardware | None:
    names = profiles.modules(found, options.profile.modules)
    return hardware.collect(found, names, places) if names else None


def _drivers(extra: hardware.Hardware, options: BuildOptions) -> tuple[bytes, int]:
    level = 0 if options.compression == "none" else _LEVEL
    return hardware.archive(
        extra, lambda data: compress(data, options.compression, options.cache), level
    )


def _firmware(
    found: kernel.Kernel, extra: hardware.Hardware | None, places: Sequence[Path]
) -> dict[str, Path]:
    """That of modules.squashfs: what hardware.img has, and of the profile's own firmware what any
    other module may ask for. Not of this machine's: it may have that of all graphics cards there
    are."""
    *own, _ = places
    mine, _ = hardware.firmware_of(found, extra.modules if extra is not None else (), places)
    return hardware.firmware_of(found, found.index, own)[0] | mine


def _check_authority(path: Path | None) -> None:
    """Says what is wrong before anything long is begun."""
    if path is None:
        return
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot ship {path}: {error.strerror}") from None
    if b"BEGIN CERTIFICATE" not in text:
        raise InputError(f"cannot ship {path}: it holds no PEM certificate")


def append_files(base: Path, files: Mapping[str, bytes], out: Path) -> None:
    """Writes `base` with one more archive behind it, holding {path in the initramfs: content}.

    Not compressed: the kernel wants such an archive at a multiple of 4 bytes, which zero bytes
    fill.
    """
    data = base.read_bytes()
    extra = cpio.archive(
        {path.lstrip("/"): cpio.regular(content) for path, content in files.items()}
    )
    write_atomic(out, data + b"\0" * (-len(data) % 4) + extra, mode=0o644)
