"""Which kernel modules a machine's devices want, and loading them: at the start in waves, later
when a device comes.

A device says by its modalias what it is, a module by globs what it is for. Buses are found by
modules, and devices on them only then: so sysfs is looked through again until nothing new comes
(Linux' Documentation/driver-api; `modules.alias` of depmod).

What is left without a driver is written down: the agent asks the head for modules that are not here
(minos.agent.drivers).
"""

from __future__ import annotations

import errno
import marshal
import os
import socket
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

from minos import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes a node that starts 30 ms
    from typing import Any, TypedDict

    Globs = dict[str, list[tuple[str, str]]]
    Device = dict[str, Any]

    class Tables(TypedDict):
        """As the builder writes it (minos.build.hardware): globs of devices with the modules for
        them, by what stands before the first wildcard; what each module needs, itself last; the
        modules that the boot card may need; what is loaded along with a module, and always; the
        globs of network modules that are not there."""

        globs: Globs
        needs: dict[str, list[str]]
        network: list[str]
        along: dict[str, list[str]]
        always: list[str]
        absent: Globs


MODULES = "/usr/lib/minos/modules"
TABLE = "/usr/lib/minos/hardware"
FIRMWARE = "/usr/lib/firmware"
PACKED = "/usr/lib/minos/hardware.squashfs"
PACKED_AT = "/usr/lib/minos/packed"
"""The modules and firmware of hardware.img, and where they are mounted; links lead there."""

SYS = "/sys"
FOUND = "hardware.json"
"""What was found, in the run directory: read by the agent, which tells the head."""

EMPTY: Tables = {"globs": {}, "needs": {}, "network": [], "along": {}, "always": [], "absent": {}}
_NETLINK_KOBJECT_UEVENT = 15
_SETTLED = 4
_BETWEEN_S = 0.5
_GATHER_S = 0.5
"""Devices come in bursts: what was found is told once for what came within this time."""

_SESSION = "session.json"
"""What the agent writes into the run directory when it has joined (minos.agent.state)."""

_UNASKED = ("modprobe.blacklist", "module_blacklist")
"""The kernel arguments that name modules which no device shall get: modprobe's (kmod's
modprobe(8)), and the kernel's own, by which it refuses them itself (Linux'
Documentation/admin-guide/kernel-parameters.txt)."""
_NOT_THERE = (errno.ENODEV, errno.ENXIO, errno.EEXIST)
"""A driver that finds no device of its own says so by the first two; the third is one that is
loaded already."""

_REASONS = {
    errno.EKEYREJECTED: "its signature is not one that the kernel trusts",
    errno.ENOEXEC: "it is damaged, or of another kernel (Exec format error)",
    errno.ENOENT: "the kernel lacks a symbol that it needs (dmesg names it)",
    errno.EPERM: "the kernel is told to refuse it (module_blacklist, or it takes no modules any "
    "more)",
}


def tables(path: str = TABLE) -> Tables:
    """The tables of this minOS; empty ones where hardware.img was not loaded. Raises OSError, also
    for damaged ones."""
    try:
        # It was unpacked with this program.
        loaded: Tables = marshal.loads(Path(path).read_bytes())  # noqa: S302
    except FileNotFoundError:
        return EMPTY
    except (EOFError, ValueError, TypeError) as error:
        raise OSError(f"{path} is damaged: {error}") from None
    return loaded


def matches(glob: str, name: str) -> bool:
    """Whether a device's modalias is one of a glob's. By string search where that does: a regular
    expression for each of two thousand globs takes seconds on a slow machine."""
    if "[" in glob or "?" in glob:
        # here, and json below: PID 1 must start fast, and does without them on most machines
        import re

        pattern = re.sub(r"\\([*?])", lambda m: ".*" if m[1] == "*" else ".", re.escape(glob))
        return (
            re.fullmatch(pattern.replace(r"\[", "[").replace(r"\]", "]").replace(r"\-", "-"), name)
            is not None
        )
    first, *rest = glob.split("*")
    if not rest:
        return glob == name
    if not name.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(name) - len(rest[-1]) >= at and name.endswith(rest[-1])


def lengths_of(globs: Globs) -> list[int]:
    """How long what stands before the first wildcard is, the shortest first."""
    return sorted({len(prefix) for prefix in globs})


def takers(
    globs: Globs, lengths: Iterable[int], name: str, found: Container[str] = ()
) -> Iterator[str]:
    """The modules for the device with this modalias, without those that were `found` by then; one
    may come twice."""
    for length in lengths:
        if length > len(name):
            return
        for glob, module in globs.get(name[:length], ()):
            if module not in found and matches(glob, name):
                yield module


def wanted(globs: Globs, names: Iterable[str]) -> dict[str, str]:
    """{module: a device that wants it}, for the devices with these modaliases."""
    lengths = lengths_of(globs)
    modules = dict[str, str]()
    for name in names:
        for module in takers(globs, lengths, name, modules):
            modules[module] = name
    return modules


def unasked(line: str) -> frozenset[str]:
    """The modules that a kernel command line says no device shall get."""
    pairs = (argument.partition("=") for argument in line.split())
    return frozenset(
        name.replace("-", "_")
        for key, _, value in pairs
        if key in _UNASKED
        for name in value.split(",")
        if name
    )


def read_text(path: str) -> str:
    """A file of sysfs, "" if it cannot be read. By system calls: a slow machine has thousands of
    them to read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(handle, 4096).decode("utf-8", "replace").strip()
        finally:
            os.close(handle)
    except OSError:
        return ""


def names_in(path: str) -> list[str]:
    """What is in a directory, sorted; nothing where it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def _target(path: str) -> str:
    """The last name of what a symbolic link leads to, "" if it is none."""
    try:
        return Path(path).readlink().name
    except OSError:
        return ""


def driver(device: str, root: str = SYS) -> str:
    """The driver of a device, as "pci/0000:00:02.0"; "" if it has none. An object of ACPI has that
    of the device that it describes (`physical_node`: Linux' drivers/acpi/glue.c)."""
    bus, _, name = device.partition("/")
    place = f"{root}/bus/{bus}/devices/{name}"
    return _target(f"{place}/driver") or _target(f"{place}/physical_node/driver")


def module_of(device: str, root: str = SYS) -> str:
    """The module that a device's driver is of, "" if it has none or that is in the kernel
    itself."""
    bus, _, name = device.partition("/")
    return _target(f"{root}/bus/{bus}/devices/{name}/driver/module")


def undriven(root: str = SYS) -> dict[str, list[str]]:
    """{what they say they are: the devices, as "pci/0000:00:02.0"} of all devices that no driver
    has taken. Processors are none: their modalias is a list of features."""
    devices: dict[str, list[str]] = {}
    for bus in names_in(f"{root}/bus"):
        for name in names_in(f"{root}/bus/{bus}/devices") if bus != "cpu" else ():
            if not driver(f"{bus}/{name}", root) and (
                alias := read_text(f"{root}/bus/{bus}/devices/{name}/modalias")
            ):
                devices.setdefault(alias, []).append(f"{bus}/{name}")
    return devices


def modaliases(root: str = SYS) -> Iterator[str]:
    """What the machine's devices say they are. By way of the buses: a walk of all of sysfs takes
    ten times as long."""
    yield read_text(f"{root}/class/dmi/id/modalias")
    yield read_text(f"{root}/devices/system/cpu/modalias")  # here, and not with each processor
    for bus in names_in(f"{root}/bus"):
        devices = f"{root}/bus/{bus}/devices"
        for device in names_in(devices)[: 1 if bus == "cpu" else None]:
            yield read_text(f"{devices}/{device}/modalias")


class Plug:
    """Loads modules for devices. `load` loads a file, `say` tells the console; `refused` are
    modules that no device shall get."""

    def __init__(
        self,
        found: Tables,
        say: Callable[[str], None],
        *,
        root: str = SYS,
        load: Callable[[str], None] = syscalls.load_module,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        self.tables = found
        self.root = root
        self._say = say
        self._load = load
        self._refused = refused
        self._network = frozenset(found["network"])
        self._known: set[str] = set()
        self._waiting: dict[str, str] = {}
        self.loaded: dict[str, str] = {}
        self._done: set[str] = set()

    def load_modules(self, names: Iterable[str], *, network: bool = False) -> int:
        """Loads what new devices want; with `network` only what the boot card may need, the rest
        stays for later. Returns how many modules it loaded, or tried to."""
        new = {name for name in names if name} - self._known
        self._known |= new
        modules = wanted(self.tables["globs"], sorted(new))
        self._waiting |= {
            module: name for module, name in modules.items() if module not in self._refused
        }
        now = [m for m in self._waiting if not network or m in self._network]
        return sum(self._module(module, self._waiting.pop(module)) for module in now)

    def wave(self, *, network: bool = False) -> int:
        """Looks through the devices once; see `take`."""
        return self.load_modules(modaliases(self.root), network=network)

    def always(self) -> None:
        """Loads what no device asks for."""
        for module in self.tables["always"]:
            self._module(module, "every machine")

    def _module(self, module: str, why: str) -> int:
        count = 0
        for name in (
            *self.tables["needs"].get(module, [module]),
            *self.tables["along"].get(module, ()),
        ):
            for inner in self.tables["needs"].get(name, [name]):
                if inner not in self._done:
                    self._done.add(inner)
                    count += self._one(inner, why)
        return count

    def _one(self, name: str, why: str) -> int:
        path = f"{MODULES}/{name}.ko"
        try:
            self._load(path)
        except FileNotFoundError:
            return 0  # one of minOS itself, or of the kernel
        except OSError as error:
            if error.errno not in _NOT_THERE:
                self._say(f"hardware: cannot load module {name} ({why}): {reason(error)}")
            return 1
        self.loaded[name] = why
        return 1

    def cards(self) -> list[Device]:
        """The machine's network cards: those with a driver, by the names of their interfaces, and
        those without one, with the modules that would be for them and are not here."""
        cards: list[Device] = []
        for name in names_in(f"{self.root}/class/net"):
            device = f"{self.root}/class/net/{name}/device"
            if slot := _target(device):
                cards.append(
                    {
                        "name": name,
                        "mac": read_text(f"{self.root}/class/net/{name}/address"),
                        "slot": slot,
                        "alias": read_text(f"{device}/modalias"),
                        "driver": _target(f"{device}/driver"),
                    }
                )
        return cards + self.without()

    def without(self) -> list[Device]:
        """The network cards on PCI that no driver has taken."""
        root = f"{self.root}/bus/pci/devices"
        devices = []
        for slot in names_in(root):
            if read_text(f"{root}/{slot}/class").startswith("0x02") and not _target(
                f"{root}/{slot}/driver"
            ):
                alias = read_text(f"{root}/{slot}/modalias")
                vendor, device = (
                    read_text(f"{root}/{slot}/{key}")[2:] for key in ("vendor", "device")
                )
                devices.append(
                    {
                        "slot": slot,
                        "alias": alias,
                        "id": f"{vendor}:{device}",
                        "absent": sorted(wanted(self.tables["absent"], (alias,))),
                        "refused": sorted(wanted(self.tables["globs"], (alias,))),
                    }
                )
        return devices


def reason(error: OSError) -> str:
    """Why the kernel did not take a module, for people."""
    return _REASONS.get(error.errno or 0) or str(error.strerror)


def explain(card: Device) -> str:
    """Why a network card has no driver, for people."""
    text = f"network card {card['id']} at {card['slot']} has no driver"
    if card["refused"]:
        return f"{text}: {', '.join(card['refused'])} does not take it"
    if card["absent"]:
        return f"{text}: module {' or '.join(card['absent'])} is not in this boot profile"
    return f"{text}: this kernel has no module for it"


def find(plug: Plug, there: Callable[[], str], clock: Callable[[], float], timeout: float) -> str:
    """Loads what the boot card may need, in waves, until `there` names its interface; "" if that
    never comes."""
    deadline = clock() + timeout
    while not (name := there()) and clock() < deadline:
        if not plug.wave(network=True):
            time.sleep(0.05)
    return name


def watch(plug: Plug, run: str) -> None:
    """Loads what all devices want, tells what was found, and then waits for devices that come.
    Never returns."""
    listener = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_KOBJECT_UEVENT)
    listener.bind((0, 1))
    cold_plug_s = cold_plug(plug) if plug.tables["globs"] else 0.0
    while not plug.tables["globs"] and not Path(run, _SESSION).exists():
        time.sleep(
            _BETWEEN_S
        )  # all that can be done here is to tell the agent, which joins now: it goes first
    write_report(plug, run, cold_plug_s)
    told_by = None
    while True:
        listener.settimeout(None if told_by is None else max(0.001, told_by - time.monotonic()))
        try:
            plug.load_modules(added(listener.recv(1 << 16)))
        except TimeoutError:
            write_report(plug, run, cold_plug_s)
            told_by = None
            continue
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            plug.wave()  # more came than could be heard
        told_by = told_by or time.monotonic() + _GATHER_S


def cold_plug(plug: Plug) -> float:
    """Loads what the devices want that are there, until nothing new comes. Returns the seconds that
    it took."""
    began = last = time.monotonic()
    plug.always()
    quiet = 0
    while quiet < _SETTLED:
        if plug.wave():
            quiet = 0
            last = time.monotonic()
        else:
            quiet += 1
            time.sleep(_BETWEEN_S)
    return last - began


def added(message: bytes) -> list[str]:
    """The modalias of a device that the kernel says has come (Linux' lib/kobject_uevent.c)."""
    fields = message.split(b"\0")
    if b"ACTION=add" not in fields:
        return []
    return [
        field[9:].decode("utf-8", "replace") for field in fields if field.startswith(b"MODALIAS=")
    ]


def write_report(plug: Plug, run: str, seconds: float) -> None:
    """Writes down what was found, if that has changed."""
    import json

    text = json.dumps(
        {
            "cards": plug.cards(),
            "modules": plug.loaded,
            "cold_plug_s": round(seconds, 2),
            "undriven": undriven(plug.root),
        }
    )
    path = Path(run, FOUND)
    new = Path(run, f"{FOUND}.new")
    if not path.exists() or path.read_text() != text:
        new.write_text(text)
        new.replace(path)
