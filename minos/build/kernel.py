"""The kernel and its modules, out of the distribution's own package, without installing it.

Module dependencies are read from each module's .modinfo section instead of modules.dep: Debian's packages ship no
modules.dep (depmod writes it at installation), and this way the builder needs no kmod.
"""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed

BASE_MODULES = ("virtio_pci", "virtio_net", "overlay", "squashfs", "loop")
"""What every node needs: the virtual network card, and the three that images are made of."""

LATER_MODULES = {"rbd": ("rbd",), "verity": ("dm_verity",), "nbd": ("nbd",)}
"""What only some images need, by the group that imageapi.node.modules loads when the first such image comes."""

SERVER_MODULES = ("e1000e", "igb", "ixgbe", "i40e", "ice", "bnxt_en", "tg3", "r8169", "mlx5_core", "virtio_net")
"""Network cards of common servers; the cloud kernel lacks most of them, linux-image-amd64 has them."""


def module_names(text: str) -> tuple[str, ...]:
    """Names with commas between them; "server" stands for SERVER_MODULES."""
    return tuple(name for word in text.split(",") if word for name in (SERVER_MODULES if word == "server" else (word,)))


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: its release, the image, and the directory of its modules."""

    release: str
    image: Path
    modules: Path


def _run(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise OperationFailed(f"cannot run {command[0]}: it is not installed", hint=f"apt-get install {command[0]}") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise OperationFailed(f"cannot run {' '.join(command)}: {last}") from None
    return done.stdout


def resolve(package: str) -> str:
    """The package that really holds the kernel: a meta-package's dependency, or the package itself."""
    if re.match(r"linux-image-\d", package):
        return package
    text = _run("apt-cache", "depends", package)
    found = re.findall(r"Depends: (linux-image-\d\S*)", text)
    if not found:
        raise InputError(f"cannot find a kernel in {package}: it depends on no linux-image package",
                         hint="run apt-get update, or name a real kernel package")
    return str(found[-1])


def fetch(package: str, cache: Path) -> Path:
    """The .deb of a kernel in the cache; downloaded only if the distribution's candidate is not there yet."""
    cache.mkdir(parents=True, exist_ok=True)
    name = resolve(package)
    match = re.search(r"Candidate: (\S+)", _run("apt-cache", "policy", name))
    if not match or match[1] == "(none)":
        raise InputError(f"cannot download {name}: apt knows no such package", hint="run apt-get update")
    pattern = f"{name}_{match[1].replace(':', '%3a')}_*.deb"
    if not list(cache.glob(pattern)):
        _run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name, cwd=cache)
    found = sorted(cache.glob(pattern))
    if not found:
        raise OperationFailed(f"cannot download {name}: apt-get wrote no {pattern} in {cache}")
    return found[-1]


def unpack(package: Path) -> Kernel:
    """The kernel inside a .deb, unpacked once beside it."""
    tree = package.with_suffix(".d")
    if not tree.exists():
        partial = package.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        _run("dpkg-deb", "-x", str(package), str(partial))
        partial.rename(tree)
    images = sorted((tree / "boot").glob("vmlinu[xz]-*"))
    module_roots = [d for base in ("lib/modules", "usr/lib/modules") for d in sorted(tree.glob(f"{base}/*")) if d.is_dir()]
    if not images or not module_roots:
        raise OperationFailed(f"cannot use {package.name}: it holds no kernel image or no modules")
    return Kernel(module_roots[0].name, images[0], module_roots[0])


def read_module(path: Path) -> bytes:
    """A module's ELF image; .ko.xz is unpacked, because the node loads modules without a decompressor."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def modinfo(image: bytes) -> dict[str, list[str]]:
    """The key=value strings of a module's .modinfo section (ELF64, little-endian)."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise OperationFailed("cannot read a kernel module: not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)

    def section(index: int) -> tuple[int, int, int]:
        name, _, _, _, start, length = struct.unpack_from("<IIQQQQ", image, offset + index * size)
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
    return info


def select(kernel: Kernel, wanted: Iterable[str]) -> dict[str, bytes]:
    """The wanted modules and all they depend on, {name: image}, in the order to load them in.

    They ship as they come: Debian's hold no debug symbols, and any change would break the signatures that a node under
    Secure Boot asks for. Raises InputError for a module that the kernel does not have.
    """
    index = {p.name.split(".ko")[0].replace("-", "_"): p for p in sorted(kernel.modules.rglob("*.ko*"))}
    builtin = {Path(line).stem.replace("-", "_") for line in (kernel.modules / "modules.builtin").read_text().split()}
    chosen: dict[str, bytes] = {}

    def add(name: str, needed_by: str, optional: bool = False) -> None:
        name = name.replace("-", "_")
        if name in chosen or name in builtin or (optional and name not in index):
            return
        if name not in index:
            raise InputError(f"cannot add module {name} ({needed_by}): kernel {kernel.release} does not have it",
                             hint="server network cards are in linux-image-amd64, not in the cloud kernel")
        image = read_module(index[name])
        info = modinfo(image)
        for soft in info.get("softdep", []):
            before = soft.split("post:")[0]
            for dependency in before.replace("pre:", "").split():
                add(dependency, name, optional=True)
        for dependency in ",".join(info.get("depends", [])).split(","):
            if dependency:
                add(dependency, name)
        chosen[name] = image

    for name in wanted:
        add(name, "asked for")
    return chosen
