"""minOS of another architecture: put together of packages that are unpacked and never executed, and
this machine stays as it is."""

from __future__ import annotations

import platform
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from layercake.kraken.errors import InputError, OperationFailed
from minos.build import BuildOptions, build, profiles, python, sets
from minos.build.builder import ENTRIES, ROOT
from minos.build.debian import debs, elf
from minos.build.kernel import MACHINES
from minos.build.profiles import KNOWN
from minos.build.result import LIMIT, BuildResult
from pxe.paths import arm64

CACHE = Path.home() / ".cache/layercake"
LISTS, STATUS = Path("/var/lib/apt/lists"), Path("/var/lib/dpkg")


def host() -> tuple[str, list[str], list[tuple[str, int]]]:
    """What this machine's apt and dpkg know: architectures, lists, and files of dpkg."""
    told = subprocess.run(
        ["dpkg", "--print-foreign-architectures"], capture_output=True, text=True, check=True
    ).stdout
    state = [
        (str(p), p.stat().st_mtime_ns)
        for p in sorted(STATUS.iterdir())
        if p.name in ("status", "arch", "available")
    ]
    return told, sorted(p.name for p in LISTS.glob("*arm64*")), state


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    profile = profiles.of(
        "arm", None, architecture="aarch64", kernel="linux-image-cloud-arm64", modules=()
    )
    before = host()
    result = build(BuildOptions(tmp_path_factory.mktemp("foreign"), CACHE, None, profile))
    assert host() == before
    return result


@pytest.fixture(scope="module")
def unpacked(built: BuildResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of minos.img."""
    into, at = tmp_path_factory.mktemp("unpacked"), 0
    data = built.image.read_bytes()
    for part in built.parts.values():
        piece = data[at : at + part.packed]
        at += part.packed
        if piece.startswith(b"\x28\xb5\x2f\xfd"):
            whole = subprocess.run(
                ["zstd", "-dcq"], input=piece, capture_output=True, check=False
            ).stdout  # zeros follow
            subprocess.run(
                ["busybox", "cpio", "-idmu"],
                input=whole,
                cwd=into,
                capture_output=True,
                check=False,
            )
    return into


def test_all_that_runs_is_of_that_architecture(built: BuildResult, unpacked: Path) -> None:
    assert built.initramfs_bytes <= LIMIT
    files = [p for p in unpacked.rglob("*") if stat.S_ISREG(p.lstat().st_mode)]
    programs = {p: p.read_bytes()[:0x14] for p in files}
    machines = {
        str(p.relative_to(unpacked)): int.from_bytes(head[0x12:], "little")
        for p, head in programs.items()
        if head.startswith(b"\x7fELF")
    }
    assert set(machines.values()) == {MACHINES["aarch64"]}
    assert {
        "usr/bin/busybox",
        "usr/bin/crun",
        f"usr/bin/{python.own().name}",
        "usr/lib/ld-linux-aarch64.so.1",
    } <= set(machines)
    assert any(name.endswith("/virtio_net.ko") for name in machines)


def test_every_library_is_there(unpacked: Path) -> None:
    binaries = [unpacked / "usr/bin" / name for name in ("crun", python.own().name)]
    binaries += (unpacked / "usr/lib").glob("python3*/lib-dynload/*.so")
    assert len(binaries) > 5
    assert elf.libraries(unpacked, "aarch64", binaries)


def test_its_python_has_what_this_one_imports(unpacked: Path) -> None:
    (stdlib,) = (unpacked / "usr/lib").glob("python3*.zip")
    mine = python.closure(python.own(), ROOT, ENTRIES)
    assert len(zipfile.ZipFile(stdlib).namelist()) == len(mine.stdlib)
    assert len(list((unpacked / "usr/lib").glob("python3*/lib-dynload/*.so"))) == len(
        mine.extensions
    )
    assert not list(unpacked.rglob("*x86_64*"))


def test_a_set_of_it_says_what_it_is_for_and_has_its_boot_programs(
    built: BuildResult, tmp_path: Path
) -> None:
    directory = built.image.parent
    assert all((directory / name).read_bytes()[:2] == b"MZ" for name in (*arm64.FILES, "vmlinuz"))
    assert set(arm64.in_image(directory)) == {"EFI/BOOT/BOOTAA64.EFI", "EFI/BOOT/grubaa64.efi"}
    name = sets.name_of(directory)
    directory.with_name(name).symlink_to(directory)
    found = sets.load(directory.parent, name)
    assert found.architecture == "aarch64" and found.profile == built.profile
    sets.sign(directory, name, lambda text: "mine")
    assert sets.trouble(directory.parent, name, lambda text, signature: signature == "mine") == ""
    (directory / arm64.SHIM).write_bytes(b"MZ, and not what was signed")
    assert arm64.SHIM in sets.trouble(
        directory.parent, name, lambda text, signature: signature == "mine"
    )


def test_the_libraries_are_those_that_ldd_finds() -> None:
    binaries = [python.own(), Path("/bin/bash").resolve(), Path("/usr/bin/apt-get").resolve()]
    ours = elf.libraries(Path("/"), platform.machine(), binaries)
    assert {p.name for p in ours.values()} == {p.name for p in python.libraries(binaries).values()}
    assert elf.needs(Path("/bin/busybox")).libraries == (), "it is static"


def test_what_is_no_program_or_of_another_machine_is_refused(tmp_path: Path) -> None:
    whole, file = python.own().read_bytes(), tmp_path / "program"
    for data in (b"", b"#!/bin/sh\n", whole[:0x30], whole[:0x200]):
        file.write_bytes(data)
        with pytest.raises(OperationFailed, match="cannot ship"):
            elf.needs(file)
    file.write_bytes(whole)
    with pytest.raises(OperationFailed, match="is not for aarch64"):
        elf.libraries(Path("/"), "aarch64", [file])
    with pytest.raises(OperationFailed, match="is in none of the packages"):
        elf.libraries(tmp_path, "x86_64", [file])


def test_a_profile_is_for_one_architecture() -> None:
    made = profiles.of("arm", None, architecture="aarch64")
    assert (made.kernel, made.architecture, made.modules) == (
        "linux-image-arm64",
        "aarch64",
        KNOWN["server"].modules,
    )
    assert profiles.of("virtual", None, architecture="aarch64").kernel == "linux-image-cloud-arm64"
    assert profiles.of("arm", made, modules=("usb",)).architecture == "aarch64", (
        "what is not said stays as it was"
    )
    with pytest.raises(
        InputError, match="cannot build profile arm for x86_64: its boot sets are for aarch64"
    ):
        profiles.of("arm", made, architecture="x86_64")
    with pytest.raises(InputError, match="cannot build for architecture 'riscv64'"):
        profiles.of("other", None, architecture="riscv64")


def test_apt_has_a_configuration_of_its_own(tmp_path: Path) -> None:
    assert (
        debs.options(platform.machine(), tmp_path) == ()
        and debs.place(platform.machine(), tmp_path) == tmp_path
    )
    with pytest.raises(InputError, match="apt takes no path with"):
        debs.options("aarch64", tmp_path / "a b")
