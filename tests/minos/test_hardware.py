"""Which module a device gets: what minOS matches, against another implementation, over a real
kernel; waves; what is said of a card without a driver."""

from __future__ import annotations

import errno
import fnmatch
import json
import os
from pathlib import Path

import pytest

from minos import hardware
from minos.build import hardware as builder
from minos.build import kernel, profiles
from minos.build.kernel import Kernel
from minos.hardware import Plug

CACHE = Path.home() / ".cache/layercake"
E1000, E1000E = (
    "pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00",
    "pci:v00008086d000010D3sv00001AF4sd00000000bc02sc00i00",
)


@pytest.fixture(scope="module")
def general() -> Kernel:
    return profiles.fetch(profiles.KNOWN["server"], CACHE)


class Machine:
    """A pretended sysfs, and a kernel that takes modules. `comes` are devices that are there once a
    module is loaded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loaded: list[str] = []
        self.said: list[str] = []
        self.comes: dict[str, str] = {}
        self.fails: dict[str, int] = {}
        for place in ("bus", "class/net", "class/dmi/id"):
            (root / place).mkdir(parents=True)

    def device(self, bus: str, name: str, alias: str, *, driver: str = "", **files: str) -> Path:
        place = self.root / "bus" / bus / "devices" / name
        place.mkdir(parents=True)
        for file, text in {"modalias": alias, **files}.items():
            (place / file).write_text(f"{text}\n")
        if driver:
            (place / "driver").symlink_to(f"../../drivers/{driver}")
        return place

    def load(self, path: str) -> None:
        name = Path(path).stem
        if name in self.fails:
            raise OSError(self.fails[name], os.strerror(self.fails[name]), path)
        self.loaded.append(name)
        if name in self.comes:
            self.device("virtio", name, self.comes[name])

    def plug(self, found: Kernel, *words: str) -> Plug:
        tables = builder.tables(found, profiles.modules(found, words))
        return Plug(tables, self.said.append, root=str(self.root), load=self.load)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_glob_matches_what_fnmatch_says_for_every_alias_of_a_real_kernel(general: Kernel) -> None:
    globs = sorted(
        {alias for module in general.index.values() for alias in module.aliases if ":" in alias}
    )
    assert len(globs) > 20_000
    for glob in globs:
        filled = (
            glob.replace("*", "0F")
            .replace("?", "x")
            .replace("[0-9]", "7")
            .replace("[", "")
            .replace("]", "")
        )
        for name in (filled, glob.replace("*", ""), f"{filled}0", E1000):
            assert hardware.matches(glob, name) == fnmatch.fnmatchcase(name, glob), (glob, name)


def test_the_cards_of_real_servers_get_their_drivers(general: Kernel) -> None:
    tables = builder.tables(
        general, profiles.modules(general, ("server-nics", "storage", "ipmi", "usb"))
    )
    for alias, module in {
        E1000: "e1000",
        E1000E: "e1000e",
        "pci:v000015B3d00001017sv0sd0bc02sc00i00": "mlx5_core",
        "pci:v00008086d00001593sv0sd0bc02sc00i00": "ice",
        "pci:v000014E4d000016D7sv0sd0bc02sc00i00": "bnxt_en",
        "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01": "ahci",
        "pci:v00001B36d00000010sv0sd0bc01sc08i02": "nvme",
        "platform:dmi-ipmi-si": "ipmi_si",
        "scsi:t-0x00": "sd_mod",
    }.items():
        assert module in hardware.wanted(tables["globs"], [alias]), alias
        assert tables["needs"].get(module, [module])[-1] == module
    assert {"e1000", "mlx5_core", "xhci_pci"} <= set(tables["network"]) and "nvme" not in tables[
        "network"
    ]


def test_what_a_module_needs_is_loaded_before_it_and_once(
    general: Kernel, machine: Machine
) -> None:
    machine.device("pci", "0000:00:1f.2", "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01")
    plug = machine.plug(general, "storage", "ipmi")
    plug.wave()
    plug.wave()
    order = machine.loaded
    assert len(order) == len(set(order)) and order.index("libata") < order.index(
        "libahci"
    ) < order.index("ahci")
    machine.device("platform", "dmi-ipmi-si.0", "platform:dmi-ipmi-si")
    plug.wave()
    assert machine.loaded[-1] == "ipmi_devintf" and "ipmi_si" in machine.loaded, (
        "no device asks for ipmi_devintf"
    )


def test_the_processors_get_their_sensors_and_their_governor(
    general: Kernel, machine: Machine
) -> None:
    place = machine.root / "devices/system/cpu/modalias"
    place.parent.mkdir(parents=True)
    place.write_text("cpu:type:x86,ven0000fam0006mod00A7:feature:,0000,0001,00E8,01C0,01C6\n")
    machine.device("pci", "0000:00:18.3", "pci:v00001022d00001463sv00000000sd00000000bc06sc00i00")
    machine.plug(general, "sensors").wave()
    assert set(machine.loaded) >= {
        "coretemp",
        "x86_pkg_temp_thermal",
        "k10temp",
        "acpi_cpufreq",
        "cpufreq_powersave",
    }


def test_the_boot_card_comes_first_and_the_rest_later(general: Kernel, machine: Machine) -> None:
    machine.device("pci", "0000:00:02.0", E1000)
    machine.device("pci", "0000:00:05.0", "pci:v00001B36d00000010sv0sd0bc01sc08i02")
    plug = machine.plug(general, "server-nics", "storage")
    assert (
        hardware.find(plug, lambda: "eth0" if "e1000" in machine.loaded else "", lambda: 0.0, 1.0)
        == "eth0"
    )
    assert machine.loaded == ["e1000"]
    plug.wave()
    assert "nvme" in machine.loaded


def test_a_device_behind_a_bus_is_found_in_a_later_wave(general: Kernel, machine: Machine) -> None:
    machine.comes["virtio_pci"] = "virtio:d00000001v00001AF4"
    tables = builder.tables(general, profiles.modules(general, ("server-nics",)))
    machine.device("pci", "0000:00:02.0", "pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00")
    plug = Plug(tables, machine.said.append, root=str(machine.root), load=machine.load)
    assert plug.wave(network=True) and plug.wave(network=True) and not plug.wave(network=True)
    assert "virtio_net" in machine.loaded


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENODEV, ""),
        (errno.EKEYREJECTED, "its signature is not one that the kernel trusts"),
        (errno.ENOEXEC, "Exec format error"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_named_and_the_others_are_loaded(
    general: Kernel, machine: Machine, number: int, said: str
) -> None:
    machine.fails["e1000"] = number
    machine.device("pci", "0000:00:02.0", E1000)
    machine.device("pci", "0000:00:03.0", E1000E)
    plug = machine.plug(general, "server-nics")
    plug.wave()
    assert machine.loaded[-1] == "e1000e"
    assert (said in machine.said[0] and "e1000" in machine.said[0]) if said else not machine.said


@pytest.mark.parametrize(
    ("words", "alias", "device", "why"),
    [
        (("r8169",), E1000E, "0x10d3", "module e1000e is not in this boot profile"),
        (("e1000e",), E1000E, "0x10d3", "e1000e does not take it"),
        (
            ("e1000e",),
            "pci:v0000FFFFd0000FFFFsv0sd0bc02sc00i00",
            "0xffff",
            "this kernel has no module for it",
        ),
    ],
)
def test_a_card_without_a_driver_is_named_with_what_is_missing(
    general: Kernel, machine: Machine, words: tuple[str, ...], alias: str, device: str, why: str
) -> None:
    machine.device(
        "pci", "0000:00:03.0", alias, **{"class": "0x020000", "vendor": "0x8086", "device": device}
    )
    machine.device("pci", "0000:00:04.0", "pci:x", driver="e1000", **{"class": "0x020000"})
    (card,) = machine.plug(general, *words).without()
    assert (
        hardware.explain(card)
        == f"network card 8086:{device[2:]} at 0000:00:03.0 has no driver: {why}"
    )


def test_what_was_found_is_written_down_once(
    general: Kernel, machine: Machine, tmp_path: Path
) -> None:
    place = machine.device("pci", "0000:00:02.0", E1000, driver="e1000", **{"class": "0x020000"})
    eth0 = machine.root / "class/net/eth0"
    eth0.mkdir()
    (eth0 / "address").write_text("52:54:00:00:00:01\n")
    (eth0 / "device").symlink_to(place)
    (machine.root / "class/net/lo").mkdir()
    plug = machine.plug(general, "server-nics")
    plug.wave()
    (card,) = plug.cards()
    assert card == {
        "name": "eth0",
        "mac": "52:54:00:00:00:01",
        "slot": "0000:00:02.0",
        "alias": E1000,
        "driver": "e1000",
    }
    hardware.write_report(plug, str(tmp_path), 1.25)
    first = (tmp_path / hardware.FOUND).stat()
    hardware.write_report(plug, str(tmp_path), 1.25)
    assert (tmp_path / hardware.FOUND).stat().st_ino == first.st_ino


def test_events_of_the_kernel_name_devices_that_have_come() -> None:
    come = (
        b"add@/devices/x\0ACTION=add\0DEVPATH=/devices/x\0MODALIAS=usb:v0525pA4A2\0SUBSYSTEM=usb\0"
    )
    assert hardware.added(come) == ["usb:v0525pA4A2"]
    assert hardware.added(come.replace(b"ACTION=add", b"ACTION=remove")) == []
    assert hardware.added(b"\xff\xfe") == []


@pytest.mark.parametrize(
    "line", ["ro modprobe.blacklist=ipmi-si,e1000 quiet", "module_blacklist=e1000"]
)
def test_what_the_kernels_arguments_name_no_device_gets(
    general: Kernel, machine: Machine, line: str
) -> None:
    machine.device("pci", "0000:00:02.0", E1000)
    machine.device("pci", "0000:00:03.0", E1000E)
    tables = builder.tables(general, profiles.modules(general, ("server-nics",)))
    refused = hardware.unasked(line)
    Plug(
        tables, machine.said.append, root=str(machine.root), load=machine.load, refused=refused
    ).wave()
    assert "e1000" in refused and "e1000" not in machine.loaded and "e1000e" in machine.loaded
    assert hardware.unasked("modprobe.blacklist= x module_blacklist i6300esb") == frozenset()


def test_devices_without_a_driver_are_written_down_for_the_agent(
    general: Kernel, machine: Machine, tmp_path: Path
) -> None:
    machine.device("pci", "0000:00:02.0", E1000, driver="e1000")
    machine.device("pci", "0000:00:04.0", "pci:watchdog")
    machine.device("pci", "0000:00:05.0", "pci:watchdog")
    machine.device("pci", "0000:00:06.0", "")
    machine.device("cpu", "cpu0", "cpu:type:x86")
    machine.device("acpi", "ACPI0007:00", "acpi:LNXCPU:")
    processor = machine.root / "cpu0"
    processor.mkdir()
    (processor / "driver").symlink_to("../bus/cpu/drivers/processor")
    (machine.root / "bus/acpi/devices/ACPI0007:00/physical_node").symlink_to(processor)
    hardware.write_report(machine.plug(general, "server-nics"), str(tmp_path), 1.0)
    said = json.loads((tmp_path / hardware.FOUND).read_text())
    assert said["undriven"] == {"pci:watchdog": ["pci/0000:00:04.0", "pci/0000:00:05.0"]}


def test_the_tables_of_a_minos_without_hardware_are_empty(tmp_path: Path, machine: Machine) -> None:
    found = hardware.tables(str(tmp_path / "none"))
    assert Plug(found, machine.said.append, root=str(machine.root), load=machine.load).wave() == 0


@pytest.mark.parametrize("data", [b"", b"[", b"{\xf3\x05", bytes(20)])
def test_damaged_tables_are_an_error_that_the_start_survives(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "hardware").write_bytes(data)
    with pytest.raises(OSError, match="is damaged"):
        hardware.tables(str(tmp_path / "hardware"))


def test_kernel_and_cards_json_agree(general: Kernel) -> None:
    names = kernel.order(general, ("e1000",))
    text = builder.cards(general, names).decode()
    assert '"8086:100e"' in text.partition('"lacking"')[0] and '"8086:10d3":["e1000e"]' in text


def test_file_systems_and_clusters_come_with_what_they_compute_by(general: Kernel) -> None:
    for name in ("ext4", "xfs", "btrfs", "rbd"):
        found = kernel.order(general, (name,))
        assert found.index("crc32c_generic") < found.index(name), (
            "without it they cannot be loaded, or mount nothing"
        )
    server = profiles.modules(general, profiles.KNOWN["server"].modules)
    wanted = {
        "nfsv3",
        "nfsv4",
        "lockd",
        "sunrpc",
        "iscsi_tcp",
        "libiscsi",
        "scsi_transport_iscsi",
        "sd_mod",
        "crc32c_generic",
        "ahci",
        "nvme",
        "usb_storage",
    }
    assert wanted <= set(server)
