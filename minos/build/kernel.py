"""The kernel and its modules, out of the distribution's own package, without installing it, or out
of a directory.

What modules need and are for is read from each module's .modinfo section instead of modules.dep and
modules.alias: Debian's packages ship neither (depmod writes them at installation), and this way the
builder needs no kmod.
"""

from __future__ import annotations

import lzma
import platform
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed

MACHINES: Mapping[str, int] = {"x86_64": 62, "aarch64": 183}
"""The numbers of architectures in ELF files (e_machine)."""

_SUFFIXES = (".ko", ".ko.xz", ".ko.gz", ".ko.zst")


def plain(name: str) -> str:
    """A module's name as the kernel has it: e1000e, 8139too, ne2k_pci."""
    return name.split(".ko")[0].replace("-", "_")


@dataclass(frozen=True, slots=True)
class Module:
    """One module: its file, what it needs loaded before (`optional`: what it can do without), the
    devices that it is for as globs, and the firmware files that it may ask for."""

    name: str
    file: Path
    needs: tuple[str, ...]
    optional: tuple[str, ...]
    aliases: tuple[str, ...]
    firmware: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: its release, the image, the directory of its modules, and the machines
    that it is for."""

    release: str
    image: Path
    modules: Path
    architecture: str = field(default_factory=platform.machine)

    @property
    def files(self) -> list[Path]:
        """The files of all its modules."""
        return sorted(p for p in self.modules.rglob("*.ko*") if p.name.endswith(_SUFFIXES))

    @cached_property
    def index(self) -> Mapping[str, Module]:
        """All its modules by name. Raises OperationFailed for a file that is none."""
        return {plain(p.name): _module(p) for p in self.files}

    @cached_property
    def generic(self) -> Mapping[str, str]:
        """{what is computed: the module that does it on every processor}. Others ask for it by
        that: ext4 and libcrc32c, and with it xfs, btrfs and rbd, do nothing without a "crc32c"."""
        return {
            plain(alias): name
            for name, file in self.index.items()
            if name.endswith("_generic")
            for alias in file.aliases
        }

    @cached_property
    def builtin(self) -> frozenset[str]:
        """The names of the modules that are in the image itself."""
        listing = self.modules / "modules.builtin"
        return (
            frozenset(plain(Path(line).name) for line in listing.read_text().split())
            if listing.exists()
            else frozenset()
        )


def run(*command: str, cwd: Path | None = None, package: str = "") -> str:
    """What a program says. Raises OperationFailed with its last words, or with the `package` that
    has it."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, errors="replace", check=True
        )
    except FileNotFoundError:
        raise OperationFailed(
            f"cannot run {command[0]}: it is not installed",
            hint=f"apt-get install {package or command[0]}",
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise OperationFailed(f"cannot run {' '.join(command)}: {last}") from None
    return done.stdout


def _apt_cache(cache: Path, apt: Sequence[str], *words: str) -> str:
    """What apt-cache says. What apt makes of its lists is kept in our cache: where a machine keeps
    none, as containers do, apt makes it anew for each question, in half a second."""
    cache.mkdir(parents=True, exist_ok=True)
    kept = f"Dir::Cache::pkgcache={cache.absolute() / 'pkgcache.bin'}"
    return run("apt-cache", *apt, "-o", kept, *words)


def resolve(package: str, cache: Path, apt: Sequence[str] = ()) -> str:
    """The package that really holds the kernel: a meta-package's dependency, or the package itself.
    `apt` are options of apt (minos.build.debian.debs)."""
    if re.match(r"linux-image-\d", package):
        return package
    text = _apt_cache(cache, apt, "depends", package)
    packages = re.findall(r"Depends: (linux-image-\d\S*)", text)
    if not packages:
        raise InputError(
            f"cannot find a kernel in {package}: it depends on no linux-image package",
            hint="run apt-get update, or name a real kernel package",
        )
    return str(packages[-1])


def fetch(package: str, cache: Path, apt: Sequence[str] = ()) -> Path:
    """The .deb of a kernel in the cache; downloaded only if the distribution's candidate is not
    there yet."""
    return download(resolve(package, cache, apt), cache, apt)


def download(name: str, cache: Path, apt: Sequence[str] = ()) -> Path:
    """The .deb of a package in the cache; downloaded only if the distribution's candidate is not
    there yet."""
    match = re.search(r"Candidate: (\S+)", _apt_cache(cache, apt, "policy", name))
    if not match or match[1] == "(none)":
        raise InputError(
            f"cannot download {name}: apt knows no such package",
            hint="run apt-get update; firmware is in Debian's component non-free-firmware",
        )
    pattern = f"{name}_{match[1].replace(':', '%3a')}_*.deb"
    if not list(cache.glob(pattern)):
        run("apt-get", *apt, "-q", "-o", "APT::Sandbox::User=root", "download", name, cwd=cache)
    files = sorted(cache.glob(pattern))
    if not files:
        raise OperationFailed(f"cannot download {name}: apt-get wrote no {pattern} in {cache}")
    return files[-1]


def opened(package: Path) -> Path:
    """The content of a .deb, unpacked once beside it."""
    tree = package.with_suffix(".d")
    if not tree.exists():
        partial = package.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        run("dpkg-deb", "-x", str(package), str(partial))
        partial.rename(tree)
    return tree


def unpack(package: Path, architecture: str = platform.machine()) -> Kernel:
    """The kernel inside a .deb, unpacked once beside it."""
    tree = opened(package)
    images = sorted((tree / "boot").glob("vmlinu[xz]-*"))
    module_roots = [
        d
        for base in ("lib/modules", "usr/lib/modules")
        for d in sorted(tree.glob(f"{base}/*"))
        if d.is_dir()
    ]
    if not images or not module_roots:
        raise OperationFailed(f"cannot use {package.name}: it holds no kernel image or no modules")
    return Kernel(module_roots[0].name, images[0], module_roots[0], architecture)


def release_of(image: Path) -> str:
    """The release that an x86 kernel image says it is of (Linux' Documentation/arch/x86/boot.rst:
    kernel_version), "" if it says none, as those of other architectures."""
    with image.open("rb") as file:
        head = file.read(0x10000)
    if head[0x202:0x206] != b"HdrS":
        return ""
    (at,) = struct.unpack_from("<H", head, 0x20E)
    return (
        head[at + 0x200 : at + 0x300].split(b"\0")[0].split(b" ")[0].decode("ascii", "replace")
        if at
        else ""
    )


def of_files(image: Path, modules: Path, architecture: str = platform.machine()) -> Kernel:
    """The kernel of an image and a directory of modules (lib/modules/RELEASE) of any distribution.
    Raises InputError if they are not there, or not of one release."""
    if not image.is_file():
        raise InputError(f"cannot use kernel {image}: there is no such file")
    if not modules.is_dir() or not any(modules.rglob("*.ko*")):
        raise InputError(
            f"cannot use {modules}: no kernel modules are there",
            hint="name the directory lib/modules/RELEASE",
        )
    release = release_of(image)
    if release and release != modules.name:
        raise InputError(
            f"cannot use {modules} with kernel {image}: the kernel is {release}",
            hint=f"name the directory lib/modules/{release}",
        )
    return Kernel(modules.name, image, modules, architecture)


def read_module(path: Path) -> bytes:
    """A module's ELF image; one that is packed is unpacked, because the node loads modules without
    a decompressor."""
    return unpacked(path.read_bytes(), path)


def unpacked(data: bytes, path: Path) -> bytes:
    """What a module's file holds, by the ending of its name. Raises OperationFailed."""
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".gz":
                return zlib.decompress(data, wbits=31)
            case ".zst":
                done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True)
                return done.stdout
    except FileNotFoundError:
        raise OperationFailed(
            f"cannot unpack {path.name}: zstd is not installed", hint="apt-get install zstd"
        ) from None
    except (lzma.LZMAError, zlib.error, subprocess.CalledProcessError) as error:
        raise OperationFailed(f"cannot unpack {path}: {error}") from None
    return data


def modinfo(image: bytes) -> dict[str, list[str]]:
    """The key=value strings of a module's .modinfo section (ELF64, little-endian). Raises
    OperationFailed."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise OperationFailed("cannot read a kernel module: not a 64-bit little-endian ELF file")
    try:
        (offset,) = struct.unpack_from("<Q", image, 0x28)
        size, count, names = struct.unpack_from("<HHH", image, 0x3A)

        def section(index: int) -> tuple[int, int, int]:
            name, _, _, _, start, length = struct.unpack_from(
                "<IIQQQQ", image, offset + index * size
            )
            return name, start, length

        _, strings, _ = section(names)
        info: dict[str, list[str]] = {}
        for index in range(count):
            name, start, length = section(index)
            if image[strings + name : image.index(b"\0", strings + name)] == b".modinfo":
                for item in image[start : start + length].split(b"\0"):
                    key, _, value = item.decode("utf-8", "replace").partition("=")
                    if key:
                        info.setdefault(key, []).append(value)
    except (struct.error, ValueError):
        raise OperationFailed("cannot read a kernel module: it is cut off") from None
    return info


def _module(path: Path) -> Module:
    try:
        info = modinfo(read_module(path))
    except OperationFailed as error:
        raise OperationFailed(f"{error.message} ({path})", hint=error.hint) from None
    soft = " ".join(
        line.split("post:")[0].replace("pre:", "") for line in info.get("softdep", [])
    ).split()
    needs = [plain(name) for name in ",".join(info.get("depends", [])).split(",") if name]
    return Module(
        plain(path.name),
        path,
        tuple(needs),
        tuple(map(plain, soft)),
        tuple(info.get("alias", ())),
        tuple(info.get("firmware", ())),
    )


def _checked(kernel: Kernel, module: Module) -> bytes:
    """A module's image, if it is of this kernel. Raises InputError."""
    image = read_module(module.file)
    (machine,) = struct.unpack_from("<H", image, 0x12)
    if machine != MACHINES.get(kernel.architecture, machine):
        raise InputError(
            f"cannot add module {module.name}: {module.file} is not for {kernel.architecture}"
        )
    magic = (modinfo(image).get("vermagic") or [""])[0].split(" ")[0]
    if magic != kernel.release:
        raise InputError(
            f"cannot add module {module.name}: {module.file} is of kernel "
            f"{magic or '(it does not say)'}, "
            f"not of {kernel.release}"
        )
    return image


def order(kernel: Kernel, wanted: Iterable[str]) -> tuple[str, ...]:
    """The wanted modules and all they depend on, in the order to load them in; what the kernel has
    built in is left out. Raises InputError for a module that the kernel does not have."""
    chosen: dict[str, None] = {}

    def add(name: str, needed_by: str, optional: bool = False) -> None:
        name = plain(name)
        if optional and name not in kernel.index and name not in kernel.builtin:
            name = kernel.generic.get(name, name)
        if name in chosen or name in kernel.builtin or (optional and name not in kernel.index):
            return
        if name not in kernel.index:
            raise InputError(
                f"cannot add module {name} ({needed_by}): kernel {kernel.release} does not have it",
                hint="server network cards are in linux-image-amd64, not in the cloud kernel",
            )
        for soft in kernel.index[name].optional:
            add(soft, name, optional=True)
        for dependency in kernel.index[name].needs:
            add(dependency, name)
        chosen[name] = None

    for name in wanted:
        add(name, "asked for")
    return tuple(chosen)


def select(kernel: Kernel, wanted: Iterable[str]) -> dict[str, bytes]:
    """The wanted modules and all they depend on, {name: image}, in the order to load them in.

    They ship as they come: Debian's hold no debug symbols, and any change would break the
    signatures that a node under Secure Boot asks for. Raises InputError for a module that the
    kernel does not have, or that is another kernel's.
    """
    return {name: _checked(kernel, kernel.index[name]) for name in order(kernel, wanted)}
