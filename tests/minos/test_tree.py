"""modules.squashfs, read by foreign tools: what is in it, the same bytes for the same inputs, made
once."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from layercake.kraken.errors import OperationFailed
from minos.build import builder, kernel, profiles, tree
from minos.build.kernel import Kernel
from minos.build.profiles import KNOWN, Profile
from minos.build.result import MODULES, table

CACHE = Path.home() / ".cache/layercake"
RELEASE = "6.1.0-made-up"
PLACES = {"tg3.ko": "kernel/drivers/net", "libphy.ko": "kernel/drivers/net/phy"}


@pytest.fixture
def found(tmp_path: Path) -> Kernel:
    """A kernel of two modules, as Debian ships them, one of them packed as other distributions
    do."""
    real, top = profiles.fetch(KNOWN["server"], CACHE), tmp_path / "lib/modules" / RELEASE
    for name, place in PLACES.items():
        (top / place).mkdir(parents=True, exist_ok=True)
        (source,) = real.modules.rglob(name)
        if name == "libphy.ko":
            (top / place / f"{name}.xz").write_bytes(lzma.compress(source.read_bytes()))
        else:
            shutil.copyfile(source, top / place / name)
    (top / "modules.builtin").write_text("kernel/fs/made_up.ko\n")
    (top / "modules.order").write_text(
        "".join(f"{place}/{name}\n" for name, place in PLACES.items())
    )
    (top / "modules.dep").write_text("of a depmod that is long gone\n")
    (top / "build").symlink_to("/usr/src/linux-headers")
    return Kernel(RELEASE, real.image, top)


def unsquash(file: Path, into: Path) -> Path:
    subprocess.run(
        ["unsquashfs", "-q", "-n", "-d", str(into), str(file)], check=True, capture_output=True
    )
    return into


def test_the_tree_is_the_kernels_own_and_modprobe_finds_its_way(
    found: Kernel, tmp_path: Path
) -> None:
    firmware = tmp_path / "tg3.bin"
    firmware.write_bytes(b"microcode")
    firmware.chmod(0o600)
    file, raw = tree.pack(found, {"tigon/tg3.bin": firmware}, tmp_path / "cache")
    root = unsquash(file, tmp_path / "root")
    top = root / "modules" / RELEASE
    for path in found.files:
        assert (top / path.relative_to(found.modules)).read_bytes() == path.read_bytes(), (
            "the signatures hold"
        )
    assert raw == sum(
        p.stat().st_size
        for p in (
            *found.files,
            found.modules / "modules.builtin",
            found.modules / "modules.order",
            firmware,
        )
    )
    assert (root / "firmware/tigon/tg3.bin").read_bytes() == b"microcode"
    assert not (top / "build").is_symlink() and "long gone" not in (top / "modules.dep").read_text()
    (tmp_path / "image/lib").mkdir(parents=True)
    (tmp_path / "image/lib/modules").symlink_to(root / "modules")
    shown = subprocess.run(
        [
            "modprobe",
            "-d",
            str(tmp_path / "image"),
            "-S",
            RELEASE,
            "--show-depends",
            "pci:v000014E4d00001659sv0sd0bc02sc00i00",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert [Path(line.split()[1]).name for line in shown.splitlines()] == ["libphy.ko.xz", "tg3.ko"]
    listing = subprocess.run(
        ["unsquashfs", "-lln", str(file)], check=True, capture_output=True, text=True
    ).stdout
    modes = {
        line.split()[0]
        for line in listing.splitlines()
        if line[:1] in "-dl" and "squashfs-root" in line
    }
    owners = {line.split()[1] for line in listing.splitlines() if "squashfs-root" in line}
    assert (modes, owners) == ({"-rw-r--r--", "drwxr-xr-x"}, {"0/0"})


def test_the_same_inputs_are_the_same_bytes_and_made_once(
    found: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = tree.pack(found, {}, tmp_path / "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", _cannot)  # another disk
        again, _ = tree.pack(found, {}, tmp_path / "b")
    assert again.name == first.name and again.read_bytes() == first.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(kernel, "run", _cannot)
        assert tree.pack(found, {}, tmp_path / "a")[0] == first
    tg3 = found.modules / "kernel/drivers/net/tg3.ko"
    os.utime(tg3, ns=(0, 1))
    assert tree.pack(found, {}, tmp_path / "a")[0] != first, "it was built anew, perhaps"
    assert sorted(p.suffix for p in (tmp_path / "a").iterdir()) == [".squashfs", ".squashfs"], (
        "nothing else is left"
    )


def _cannot(*words: object, **more: object) -> None:
    raise OSError("Invalid cross-device link")


def test_what_is_missing_is_named_with_its_package(
    found: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OperationFailed, match="cannot run depmod") as caught:
        tree.pack(found, {}, tmp_path / "cache")
    assert (
        caught.value.hint == "apt-get install kmod" and list((tmp_path / "cache").iterdir()) == []
    )


def test_a_set_has_the_modules_and_the_firmware_of_its_profile(
    found: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the profile's own firmware all that any module may ask for, though hardware.img has no
    driver here."""
    for name in ("tigon/tg3.bin", "tigon/tg3_tso.bin", "other/unasked.bin"):
        (tmp_path / "firmware" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "firmware" / name).write_text(name)
    (found.modules / "modules.builtin").write_text(
        "".join(f"kernel/{name}.ko\n" for name in profiles.BASE)
    )
    profile = Profile("made-up", "linux-image-made-up", firmware=(str(tmp_path / "firmware"),))
    monkeypatch.setattr(profiles, "fetch", lambda profile, cache, apt: found)
    monkeypatch.setattr(builder, "collect", lambda options, found, closure, userland: {"base": {}})
    result = builder.build(
        builder.BuildOptions(tmp_path / "out", tmp_path / "cache", profile=profile)
    )
    root = unsquash(tmp_path / "out" / MODULES, tmp_path / "root")
    assert sorted(p.name for p in (root / "firmware").rglob("*.bin")) == ["tg3.bin", "tg3_tso.bin"]
    assert (root / "modules" / RELEASE / "kernel/drivers/net/tg3.ko").is_file()
    assert result.parts[MODULES].packed == (tmp_path / "out" / MODULES).stat().st_size
    assert "modules.squashfs" in table(result)
