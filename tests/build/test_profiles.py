"""Boot profiles: recipes, kernels out of directories, firmware, and mistakes."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from layercake.kraken.errors import InputError, OperationFailed
from minos.build import hardware, kernel, profiles
from minos.build.archives import cpio
from minos.build.kernel import Kernel
from minos.build.profiles import KNOWN, Profile

CACHE = Path.home() / ".cache/layercake"
NAMES = ("e1000", "e1000e", "tg3", "libphy")


@pytest.fixture(scope="module")
def general() -> Kernel:
    return profiles.fetch(KNOWN["server"], CACHE)


@pytest.fixture
def files(general: Kernel, tmp_path: Path) -> tuple[Path, Path]:
    """An image and a directory of a few modules, each packed another way, as distributions do."""
    modules = tmp_path / "lib/modules" / general.release
    modules.mkdir(parents=True)
    image = tmp_path / "vmlinuz"
    shutil.copyfile(general.image, image)
    for name, ending in zip(NAMES, ("", ".xz", ".gz", ".zst"), strict=True):
        data = general.index[name].file.read_bytes()
        packed = {"": data, ".xz": lzma.compress(data), ".gz": gzip.compress(data)}.get(ending)
        if packed is None:
            packed = subprocess.run(
                ["zstd", "-qc"], input=data, capture_output=True, check=True
            ).stdout
        (modules / f"{name}.ko{ending}").write_bytes(packed)
    (modules / "modules.builtin").write_text(
        "kernel/drivers/ptp/ptp.ko\nkernel/drivers/pps/pps_core.ko\n"
    )
    return image, modules


def test_the_kernel_of_any_distribution_out_of_a_directory(
    files: tuple[Path, Path], general: Kernel
) -> None:
    found = kernel.of_files(*files)
    assert found.release == general.release == kernel.release_of(files[0])
    assert kernel.select(found, NAMES) == {
        n: general.index[n].file.read_bytes() for n in ("e1000", "e1000e", "libphy", "tg3")
    }


def test_modules_of_another_kernel_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    image, modules = files
    other = modules.rename(modules.with_name("5.10.0-9-amd64"))
    with pytest.raises(InputError, match=r"the kernel is 6\.") as caught:
        kernel.of_files(image, other)
    assert "lib/modules/6." in caught.value.hint
    with pytest.raises(InputError, match=r"e1000\.ko is of kernel 6\..*, not of 5\.10\.0-9-amd64"):
        kernel.select(Kernel(other.name, image, other), ["e1000"])


def test_modules_of_another_machine_and_altered_ones_are_refused(files: tuple[Path, Path]) -> None:
    image, modules = files
    data = bytearray((modules / "e1000.ko").read_bytes())
    data[0x12:0x14] = (183).to_bytes(2, "little")
    (modules / "e1000.ko").write_bytes(data)
    with pytest.raises(InputError, match="is not for x86_64"):
        kernel.select(kernel.of_files(image, modules), ["e1000"])
    for broken in (bytes(data[:200]), b"", b"not a module at all"):
        (modules / "e1000.ko").write_bytes(broken)
        with pytest.raises(OperationFailed, match=r"e1000\.ko"):
            kernel.select(kernel.of_files(image, modules), ["e1000"])


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (Profile("Big"), "profile name"),
        (Profile("x" * 33), "profile name"),
        (Profile("x", "/boot/vmlinuz"), "go together"),
        (Profile("x", "linux-image-amd64", "/lib/modules/x"), "go together"),
        (Profile("x", "-o Dir=/"), "neither a path"),
        (Profile("x", firmware=("a b",)), "neither a path"),
    ],
)
def test_recipes_that_cannot_be(profile: Profile, why: str) -> None:
    with pytest.raises(InputError, match=why):
        profile.check()


def test_a_recipe_is_what_it_was_with_what_is_changed_now() -> None:
    first = profiles.of(
        "gpu",
        None,
        kernel="/boot/vmlinuz-9",
        kernel_modules="/lib/modules/9",
        modules=("storage",),
        firmware=None,
    )
    assert (first.kernel, first.modules, first.firmware) == ("/boot/vmlinuz-9", ("storage",), ())
    again = profiles.of("gpu", Profile.from_json(first.to_json()), modules=("usb",))
    assert (again.kernel, again.modules) == ("/boot/vmlinuz-9", ("usb",))
    assert (
        profiles.of("virtual", None) == KNOWN["virtual"]
        and profiles.of("new", None).modules == KNOWN["server"].modules
    )
    assert Profile.from_json(None) is None and Profile.from_json({"name": 3}) is None
    assert Profile.from_json({**first.to_json(), "kernel": None}) is None
    assert Profile.from_json({**first.to_json(), "of a later version": 1}) == first


def test_sets_leave_out_what_a_kernel_does_not_have_and_names_do_not(general: Kernel) -> None:
    names = profiles.modules(general, ("server-nics",))
    assert {
        "e1000e",
        "ixgbe",
        "ice",
        "bnxt_en",
        "mlx5_core",
        "r8169",
        "vmxnet3",
        "ena",
        "usbnet",
    } <= set(names)
    assert not set(names) & {"virtio_net", "overlay"}, "those are in minOS itself"
    cloud = profiles.fetch(KNOWN["virtual"], CACHE)
    assert "e1000e" not in profiles.modules(cloud, ("server-nics",))
    with pytest.raises(
        InputError, match=r"kernel .* does not have it, and no set is named so"
    ) as caught:
        profiles.modules(general, ("mlx5-cor",))
    assert caught.value.hint == "did you mean mlx5_core?"


def test_firmware_comes_out_of_directories_as_it_lies_there(
    general: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "tigon").mkdir()
    (tmp_path / "tigon/tg3.bin").write_bytes(b"microcode")
    (tmp_path / "tigon/tg3_tso.bin.xz").write_bytes(lzma.compress(b"packed"))
    found = hardware.collect(general, kernel.order(general, ("tg3",)), (tmp_path,))
    assert found.packed["usr/lib/firmware/tigon/tg3.bin"] == b"microcode"
    assert "usr/lib/firmware/tigon/tg3_tso.bin.xz" in found.packed, "the kernel unpacks it"
    assert found.entries["usr/lib/firmware/tigon/tg3.bin"] == cpio.symlink(
        "/usr/lib/minos/packed/usr/lib/firmware/tigon/tg3.bin"
    )
    assert found.missing["tigon/tg3_tso5.bin"] == ("tg3",) and "tigon/tg3.bin" not in found.missing


def test_busybox_finds_a_modules_file_and_what_it_needs(general: Kernel, tmp_path: Path) -> None:
    found = hardware.collect(general, kernel.order(general, ("ahci",)), ())
    listing = (
        found.entries[f"usr/lib/modules/{general.release}/modules.dep"].data.decode().splitlines()
    )
    line = next(line for line in listing if "/ahci.ko:" in line)
    needs = line.split(": ")[1].split()
    assert [Path(n).stem for n in needs][-1] == "scsi_common" and needs.index(needs[-1]) > 1, (
        "modprobe takes them from the right"
    )
    assert {"libata", "libahci", "scsi_mod"} <= {Path(n).stem for n in needs}


def test_what_apt_makes_of_its_lists_is_kept(tmp_path: Path) -> None:
    meta = KNOWN[profiles.VIRTUAL].kernel
    package = kernel.resolve(meta, tmp_path / "cache")
    assert package.startswith("linux-image-")
    kept = (tmp_path / "cache" / "pkgcache.bin").stat()
    assert kernel.resolve(meta, tmp_path / "cache") == package
    again = (tmp_path / "cache" / "pkgcache.bin").stat()
    assert (kept.st_ino, kept.st_mtime_ns) == (again.st_ino, again.st_mtime_ns), "and is not remade"
